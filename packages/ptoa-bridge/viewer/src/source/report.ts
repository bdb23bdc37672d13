/** The data inside a report: base64 of gzip of a file, in a block of this page that never runs. */

/** The file in the data block with this id; null where the page is not a report, an empty text where it has no data. */
export function embeddedData(page: Document, id = "ptoa-data"): string | null {
  const block = page.getElementById(id);
  return block ? block.textContent.trim() : null;
}

/** The file, inflated; the browser keeps it, as it keeps one that was opened. */
export function unpack(base64: string): Promise<Blob> {
  const binary = atob(base64);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).blob();
}
