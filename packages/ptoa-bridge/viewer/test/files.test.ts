/** What the shared vectors cannot hold: sizes, depths, and files that arrive in pieces. */
import { describe, expect, it } from "vitest";
import { readFrame, readParts, type FilePart } from "../src/formats/files";
import { parseJson } from "../src/formats/json";
import { checkSpec } from "../src/formats/spec";
import { gpt } from "./models";

const run = (frames: number): string =>
  [
    JSON.stringify({ protocol: "pta-run", v: 1, producer: { name: "test", version: "0" }, spec: gpt(1) }),
    ...Array.from({ length: frames }, (_, step) => JSON.stringify({ event: "health", data: { step, t: step, loss: 1, blocks: [{ id: "é", weightNorm: 1 }] } })),
    "",
  ].join("\n");

async function read(text: string, piece = 1 << 16): Promise<FilePart[]> {
  const parts: FilePart[] = [];
  for await (const batch of readParts(new Blob([text]), "run.pta", piece)) parts.push(...batch);
  return parts;
}

const steps = (parts: FilePart[]): number[] => parts.flatMap((part) => (part.kind === "frame" ? [part.frame.step] : []));

describe("a run file", () => {
  it.each([1, 3, 1000, 1 << 20])("reads the same in pieces of %i bytes", async (piece) => {
    expect(steps(await read(run(5), piece))).toEqual([0, 1, 2, 3, 4]);
  });

  it("may begin with blank lines", async () => {
    expect(steps(await read(`\n \r\n${run(2)}`))).toEqual([0, 1]);
  });

  it("says where each frame's line stands, so that it can be read again whole", async () => {
    const file = new Blob([run(3)]);
    const parts = await read(run(3), 50);
    const frames = await Promise.all(parts.flatMap((part) => (part.kind === "frame" ? [readFrame(file, part.place)] : [])));
    expect(frames.map((frame) => [frame!.step, frame!.blocks[0]!.id])).toEqual([[0, "é"], [1, "é"], [2, "é"]]);
  });

  it("cut at any byte of its last frame reads up to the frame before, with a warning", async () => {
    const whole = run(3);
    const lastLine = whole.trimEnd().lastIndexOf("\n") + 1;
    for (let end = lastLine + 1; end < whole.length - 1; end++) {
      const parts = await read(whole.slice(0, end));
      expect(steps(parts)).toEqual([0, 1]);
      expect(parts.at(-1)?.kind).toBe("warning");
    }
  });

  it("leaves out a line that is broken in its middle, and names it", async () => {
    const parts = await read(run(3).replace('"step":1', '"step":'));
    expect(steps(parts)).toEqual([0, 2]);
    expect(parts).toContainEqual({ kind: "warning", text: expect.stringContaining("Line 3 is left out") });
  });

  it("with Windows line ends reads too", async () => {
    expect(steps(await read(run(2).replaceAll("\n", "\r\n")))).toEqual([0, 1]);
  });
});

describe("a document", () => {
  it("over several lines reads as well as on one", async () => {
    const [part] = await read(JSON.stringify(gpt(1), null, 2));
    expect(part).toMatchObject({ kind: "model", file: "spec", spec: { name: "Test" } });
  });

  it.each([
    ["an image", "\ufffdPNG\u0000", "is not valid JSON"],
    ["an empty file", "", "is empty"],
    ["a list", "[1,2]", "holds no JSON object"],
    ["another program's JSON", '{"protocol":"notebook"}', 'the protocol "notebook"'],
  ])("that is %s is refused in one sentence", async (_name, text, problem) => {
    await expect(read(text)).rejects.toThrow(problem);
  });
});

describe("JSON", () => {
  const nested = (depth: number): string => "[".repeat(depth) + "]".repeat(depth);

  it("nests 64 deep and no deeper", () => {
    expect(() => parseJson(nested(64), { what: "it" })).not.toThrow();
    expect(() => parseJson(nested(65), { what: "it" })).toThrow("deeper than 64");
    expect(() => parseJson("[".repeat(1_000_000), { what: "it" })).toThrow("deeper than 64");
  });

  it.each(['"a', '{"a"', '{"a":', "[1,", "-", "01", "1.", '"\\x"', "tru", "'a'", "[1 2]", '{"a":1,}', "NaN", "1e999", "9007199254740993", "\u00a01"])(
    "refuses %s",
    (text) => {
      expect(() => parseJson(text, { what: "it" })).toThrow("it is not valid JSON");
    },
  );

  it.each(['{"a":[1,-2.5e3,"\\u00e9\\n😀",true,null]}', " [ ] ", '"\\\\"', '"\\""', "0", "-0", "1e2", '{"constructor":1}'])("reads %s as JSON.parse does", (text) => {
    expect(parseJson(text, { what: "it" })).toEqual(JSON.parse(text));
  });

  it("names line and column", () => {
    expect(() => parseJson('{\n  "a": x}', { what: "it" })).toThrow("line 2, column 8");
  });
});

describe("a spec", () => {
  it("has at most 100,000 blocks", () => {
    const blocks = Array.from({ length: 100_001 }, (_, i) => ({ id: `i${i}`, kind: "input", params: {}, inputs: [] }));
    const value = { v: 1, name: "", blocks, output: "i0", origin: { kind: "lab" } };
    expect(() => checkSpec(value)).toThrow("at most 100000");
  });
});
