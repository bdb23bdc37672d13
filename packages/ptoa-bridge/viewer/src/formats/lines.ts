/** Lines of a byte stream, one at a time, so that a large run file never stands in memory as one string. */
import { FormatError } from "./errors";

export interface Line {
  /** Null where the bytes are not UTF-8. */
  text: string | null;
  number: number;
  /** False for a last line without an end-of-line character: a crash may have cut it. */
  ended: boolean;
}

const NEWLINE = 0x0a;

/** Splits bytes into lines; one that is longer than `limit` bytes ends the reading. */
export async function* readLines(stream: ReadableStream<Uint8Array>, limit: number, what: string): AsyncGenerator<Line[]> {
  const reader = stream.getReader();
  let number = 0;
  let begun: Uint8Array[] = [];
  let size = 0;
  for (let next = await reader.read(); !next.done; next = await reader.read()) {
    const chunk = next.value;
    const batch: Line[] = [];
    let from = 0;
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, from)) {
      batch.push({ text: decode([...begun, chunk.subarray(from, end)]), number: ++number, ended: true });
      begun = [];
      size = 0;
      from = end + 1;
    }
    begun.push(chunk.subarray(from));
    size += chunk.length - from;
    if (size > limit) throw new FormatError("file", `Line ${number + 1} of ${what} is longer than ${limit / 2 ** 20} MiB.`);
    if (batch.length) yield batch;
  }
  if (size) yield [{ text: decode(begun), number: number + 1, ended: false }];
}

/** The text of a line's pieces, which may cut a character; a byte order mark stays, for the JSON reader to refuse. */
function decode(pieces: readonly Uint8Array[]): string | null {
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  try {
    return pieces.map((piece) => decoder.decode(piece, { stream: true })).join("") + decoder.decode();
  } catch {
    return null;
  }
}
