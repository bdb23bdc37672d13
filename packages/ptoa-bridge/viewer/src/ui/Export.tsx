/** Takes the drawing and the architecture along: SVG, PNG, and a link to the hosted Lab. */
import { useSignal } from "@preact/signals";
import type { App } from "../app";
import { messageOf } from "../formats/errors";
import { encodeLink } from "../formats/link";
import { plain } from "../model/text";
import type { GraphView } from "../graph/GraphView";

const NOT_FOR_FILES = /[^\p{L}\p{N}._-]+/gu;

export function Export({ app, view }: { app: App; view: () => GraphView }) {
  const said = useSignal("");
  const name = plain(app.model.value?.spec.name ?? "", 60);
  const act = async (work: () => Promise<string>): Promise<void> => {
    said.value = await work().catch((error: unknown) => plain(messageOf(error), 200));
  };
  const image = (kind: "svg" | "png") => async (): Promise<string> => {
    const blob = kind === "svg" ? view().toSvg(name) : await view().toPng();
    const file = `${name.replace(NOT_FOR_FILES, "-").replace(/^[.-]+/, "") || "model"}.${kind}`;
    save(blob, file);
    return `Saved ${file}`;
  };
  const copy = async (): Promise<string> => {
    const link = await encodeLink(app.model.value!.spec);
    try {
      await navigator.clipboard.writeText(link);
      return "Copied";
    } catch {
      // Not every browser lets a page from a file write there.
      prompt("Copy this address:", link);
      return "";
    }
  };
  return (
    <details class="menu" id="export">
      <summary class="button">Export</summary>
      <div class="panel">
        <button type="button" onClick={() => void act(image("svg"))}>SVG</button>
        <button type="button" onClick={() => void act(image("png"))}>PNG</button>
        <button type="button" id="copy-link" title="The architecture alone is in this address, and no training" onClick={() => void act(copy)}>Copy the Lab's link</button>
        <span role="status" class="quiet">{said.value}</span>
      </div>
    </details>
  );
}

function save(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
