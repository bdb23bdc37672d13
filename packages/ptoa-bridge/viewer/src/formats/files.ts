/** Reads a .pta file, a run file or a bare spec, told apart by what is in it (FORMATS.md, section 6). */
import { FormatError, messageOf, quote } from "./errors";
import { checkHealthFrame, checkTraceFrame, type HealthFrame, type TraceFrame } from "./frames";
import { isObject, parseJson, type Json, type JsonObject } from "./json";
import { MAX_FILE_BYTES, MAX_LINE_BYTES } from "./limits";
import { CHUNK, readLines, type Line } from "./lines";
import { scanLine } from "./scan";
import { checkSpec, type Spec } from "./spec";

/** Where a frame's line stands in its file: bytes from `start` to `end`. */
export interface Place {
  start: number;
  end: number;
}

/** What a file gives, in its order: the model first, then a trace or the frames of a run, and warnings. */
export type FilePart =
  | { kind: "model"; file: "pta" | "run" | "spec"; spec: Spec }
  | { kind: "trace"; trace: TraceFrame }
  | { kind: "frame"; frame: HealthFrame; place: Place }
  | { kind: "warning"; text: string };

/** Yields the parts in batches, each the work of one chunk of the file, so that a caller can paint between them. */
export async function* readParts(file: Blob, what: string, chunkSize = CHUNK): AsyncGenerator<FilePart[]> {
  const whole: string[] = [];
  let size = 0;
  let isRun = false;
  let isBegun = false;
  for await (const batch of readLines(file, MAX_FILE_BYTES, what, chunkSize)) {
    const parts: FilePart[] = [];
    for (const line of batch) {
      if (isRun) {
        const part = runLine(line, what);
        if (part) parts.push(part);
        continue;
      }
      const { text } = line;
      const header = isBegun ? null : runHeader(text, what);
      isBegun ||= text?.trim() !== "";
      isRun = header !== null;
      if (header) parts.push({ kind: "model", file: "run", spec: specOf(header, what) });
      else whole.push(documentLine(text, (size += text?.length ?? 0), what));
    }
    if (parts.length) yield parts;
  }
  if (!isRun) yield documentParts(whole.join("\n"), what);
}

/** The first line that is not blank as the header of a run file, or null when the file is something else. */
function runHeader(text: string | null, what: string): JsonObject | null {
  // A cheap look first: the only line of a large .pta is read once, as a document.
  if (text === null || !(/"pta-run"/.test(text.slice(0, 4096)) || /"event"\s*:/.test(text.slice(0, 200)))) return null;
  const header = inFile(() => parseJson(text, { what: `Line 1 of ${what}` }));
  if (!isObject(header)) return null;
  if (header.event !== undefined) throw new FormatError("file", `${what} has no header: its first line must be that of a run file.`);
  return header.protocol === "pta-run" ? header : null;
}

/** A header that is not whole makes a file that is none of ours. */
function inFile<Result>(read: () => Result): Result {
  try {
    return read();
  } catch (error) {
    throw new FormatError("file", messageOf(error));
  }
}

/** A frame, nothing for an event that this page does not know, or a warning for a line that is damaged. */
function runLine(line: Line, what: string): FilePart | null {
  const place = { start: line.start, end: line.start + line.bytes.length };
  const usual = scanLine(line.bytes);
  if (usual) return { kind: "frame", frame: usual, place };
  const { text } = line;
  if (text?.trim() === "") return null;
  try {
    const frame = eventFrame(lineText(text, line.number, what), `Line ${line.number} of ${what}`);
    return frame && { kind: "frame", frame, place };
  } catch (error) {
    const said = line.ended ? `Line ${line.number} is left out. ${messageOf(error)}` : "The last line was cut short, as by a crash, and is left out.";
    return { kind: "warning", text: said };
  }
}

function eventFrame(text: string, what: string): HealthFrame | null {
  const value = parseJson(text, { what });
  if (!isObject(value) || typeof value.event !== "string") throw new FormatError("file", `${what} is no event.`);
  return value.event === "health" ? checkHealthFrame(value.data ?? null) : null;
}

/** The whole frame at a place of a run file, with its histograms and patterns. */
export async function readFrame(file: Blob, { start, end }: Place): Promise<HealthFrame | null> {
  return eventFrame(await file.slice(start, end).text(), "That line");
}

function lineText(text: string | null, number: number, what: string): string {
  if (text === null) throw new FormatError("json", `Line ${number} of ${what} is not UTF-8 text.`);
  if (text.length > MAX_LINE_BYTES) throw new FormatError("file", `Line ${number} of ${what} is longer than ${MAX_LINE_BYTES / 2 ** 20} MiB.`);
  return text;
}

function documentLine(text: string | null, size: number, what: string): string {
  if (text === null) throw new FormatError("json", `${what} is not UTF-8 text; a .pta, a run file or a spec was expected.`);
  if (size > MAX_FILE_BYTES) throw new FormatError("file", `${what} is larger than ${MAX_FILE_BYTES / 2 ** 20} MiB.`);
  return text;
}

function documentParts(text: string, what: string): FilePart[] {
  if (!text.trim()) throw new FormatError("json", `${what} is empty; a .pta, a run file or a spec was expected.`);
  const value = parseJson(text, { what });
  if (!isObject(value)) throw new FormatError("file", `${what} holds no JSON object; a .pta, a run file or a spec was expected.`);
  if (value.protocol === "pta-run") return [{ kind: "model", file: "run", spec: specOf(value, what) }];
  if (value.protocol === "pta-file") return ptaParts(value, what);
  if (value.protocol !== undefined) throw new FormatError("file", `${what} has the protocol ${quote(value.protocol)}, which this page does not know.`);
  return [{ kind: "model", file: "spec", spec: checkSpec(value) }];
}

function specOf(value: JsonObject, what: string): Spec {
  if (value.v !== 1) throw new FormatError("file", `${what} is of version ${quote(value.v)}; this page reads version 1.`);
  if (value.spec === undefined) throw new FormatError("file", `${what} holds no "spec".`);
  return checkSpec(value.spec);
}

function ptaParts(value: JsonObject, what: string): FilePart[] {
  const parts: FilePart[] = [{ kind: "model", file: "pta", spec: specOf(value, what) }];
  if (value.trace !== undefined) parts.push({ kind: "trace", trace: checkTraceFrame(value.trace as Json) });
  return parts;
}
