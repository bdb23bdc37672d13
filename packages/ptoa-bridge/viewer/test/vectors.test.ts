/** The shared vectors, as every reader of the formats runs them. */
import { describe, expect, it } from "vitest";
import { FormatError } from "../src/formats/errors";
import { readParts, type FilePart } from "../src/formats/files";
import { checkHealthFrame, checkTraceFrame } from "../src/formats/frames";
import { parseJson, type Json, type JsonObject } from "../src/formats/json";
import { decodeLink, decodeUtf8, encodeLink } from "../src/formats/link";
import { checkSpec } from "../src/formats/spec";
import { decodeTensor } from "../src/formats/tensor";
import { FILE_CAPACITY, RunStore } from "../src/run/store";

const FILES = import.meta.glob<string>("../../../../vectors/*/*.json", { query: "?raw", import: "default", eager: true });

interface Case {
  reason: string;
  input: JsonObject;
  expect: string;
  result?: JsonObject;
}

const bytesOf = (input: JsonObject): Uint8Array<ArrayBuffer> =>
  "text" in input ? new TextEncoder().encode(input.text as string) : Uint8Array.from(atob(input.base64 as string), (c) => c.charCodeAt(0));

async function fileParts(input: JsonObject): Promise<FilePart[]> {
  const parts: FilePart[] = [];
  for await (const batch of readParts(new Blob([bytesOf(input)]), "the file")) parts.push(...batch);
  return parts;
}

const modelOf = (parts: FilePart[]): unknown => parts.find((part) => part.kind === "model")?.spec;

async function readPta(input: JsonObject): Promise<unknown> {
  const parts = await fileParts(input);
  const trace = parts.find((part) => part.kind === "trace")?.trace;
  return { spec: modelOf(parts), trace: trace ? { ...trace, tensors: trace.tensors.length } : null };
}

async function readRun(input: JsonObject): Promise<unknown> {
  const parts = await fileParts(input);
  const store = new RunStore(FILE_CAPACITY);
  for (const part of parts) if (part.kind === "frame") store.add(part.frame);
  const losses = store.steps.map((_, i) => store.curves.loss.at(i)).map((loss) => (Number.isNaN(loss) ? null : loss));
  return { spec: modelOf(parts), steps: store.steps, losses, warns: parts.some((part) => part.kind === "warning") };
}

const readFrame = (input: JsonObject): unknown => {
  const value = parseJson(input.text as string, { what: "the frame" });
  return { frame: input.kind === "trace" ? (checkTraceFrame(value), value) : checkHealthFrame(value) };
};

const named = (value: number): Json => (Number.isNaN(value) ? "nan" : Object.is(value, -0) ? "-0" : value === Infinity ? "inf" : value === -Infinity ? "-inf" : value);

/** One reader a folder: the case's input to what `result` holds. */
const READERS: Record<string, (input: JsonObject) => unknown> = {
  spec: (input) => ({ spec: checkSpec(parseJson(decodeUtf8(bytesOf(input), "the spec"), { what: "the spec" })) }),
  link: async (input) => ({ spec: await decodeLink(input.text as string) }),
  tensor: (input) => ({ values: [...decodeTensor(input.tensor!).values].map(named) }),
  frame: readFrame,
  pta: readPta,
  run: readRun,
};

/** Operations of a folder that this page has no use for. */
const LEFT_OUT = (input: JsonObject): boolean => ["encode", "clip"].includes(input.op as string) || input.kind === "hello";

function casesIn(folder: string): [name: string, test: Case][] {
  const files = Object.entries(FILES).filter(([path]) => path.includes(`/vectors/${folder}/`));
  const cases = files.map(([path, text]): [string, Case] => [path.split("/").at(-1)!, JSON.parse(text)]);
  return cases.filter(([, test]) => !LEFT_OUT(test.input));
}

const stageOf = async (run: () => unknown): Promise<string> => {
  try {
    await run();
    return "ok";
  } catch (error) {
    return error instanceof FormatError ? error.stage : `not our error: ${String(error)}`;
  }
};

describe.runIf(Object.keys(FILES).length).each(Object.keys(READERS))("%s", (folder) => {
  it.each(casesIn(folder))("%s", async (_name, { input, expect: stage, result }) => {
    const read = READERS[folder]!;
    expect(await stageOf(() => read(input))).toBe(stage);
    if (result) expect(await read(input)).toMatchObject(comparable(folder, result));
  });
});

/** The parts of a result that the page reads; of a trace the number of tensors. */
function comparable(folder: string, result: JsonObject): JsonObject {
  if (folder === "spec") return { spec: result.spec! };
  if (folder === "tensor") return { values: ([result.values] as unknown[]).flat(16) as Json[] };
  if (folder !== "pta" || !result.trace) return result;
  const trace = result.trace as JsonObject;
  return { ...result, trace: { ...trace, tensors: (trace.tensors as Json[]).length } };
}

describe.runIf(Object.keys(FILES).length)("the link that this page makes", () => {
  const valid = casesIn("link").filter(([, test]) => test.expect === "ok");

  it.each(valid)("brings back the model of %s", async (_name, { input }) => {
    const spec = await decodeLink(input.text as string);
    const link = await encodeLink(spec);
    expect(link).toMatch(/^https:\/\/lab\.papertoanything\.com\/#s=[\w-]+$/);
    expect(JSON.stringify(await decodeLink(link))).toBe(JSON.stringify(spec));
  });
});
