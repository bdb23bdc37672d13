/** The quick reader of a run's lines against the strict one: never another value, never a line that is not right. */
import { describe, expect, it } from "vitest";
import { checkHealthFrame } from "../src/formats/frames";
import { parseJson, type JsonObject } from "../src/formats/json";
import { scanLine } from "../src/formats/scan";

const scan = (text: string) => scanLine(new TextEncoder().encode(text));
const stats = '{"mean":-0.25,"std":1.5e-3,"absMax":4.0,"zeroFrac":0.0,"nanCount":0,"infCount":2,"hist":[0.0,12.0,3]}';
const LINE = `{"event":"health","data":{"step":10,"t":812.125,"loss":null,"valLoss":2.5,"lr":3e-4,"gradNorm":1.25,"timing":{"data":1.5,"optim":2},"memory":4123456789,"blocks":[{"id":"h.0/x","act":${stats},"grad":${stats},"weightNorm":12,"updateRatio":null,"headEntropy":[1.5,null]},{"id":"l1"}],"attempt":2}}`;

/** What the strict reader makes of a line, as far as the quick one reads; null where it refuses. */
function strictly(text: string): unknown {
  try {
    const { event, data } = parseJson(text, { what: "the line" }) as JsonObject;
    const frame = checkHealthFrame(data ?? null);
    if (event !== "health") return null;
    return JSON.parse(JSON.stringify(frame, (name, value: unknown) => (name === "hist" ? undefined : value))) as unknown;
  } catch {
    return null;
  }
}

describe("the quick reader", () => {
  it("reads a usual line as the strict one does", () => {
    expect(scan(LINE)).toEqual(strictly(LINE));
    expect(scan(LINE)).not.toBeNull();
  });

  it.each([
    ["0"], ["-0.0"], ["1"], ["123456789012345"], ["0.1"], ["1e5"], ["1E-7"], ["2.5e+3"], ["0.021623293780007307"], ["3.4028234663852886e+38"],
  ])("reads %s to the precision of a column", (number) => {
    expect(Math.fround(scan(LINE.replace("3e-4", number))!.lr!)).toBe(Math.fround(Number(number)));
  });

  it.each([
    ["a leading zero", "3e-4", "03"], ["no digit after the point", "3e-4", "3."], ["no digit before it", "3e-4", ".3"], ["a plus", "3e-4", "+3"],
    ["an empty exponent", "3e-4", "3e"], ["NaN", "3e-4", "NaN"], ["text", "3e-4", '"3"'], ["a space", '"lr":', '"lr": '], ["a key twice", '"lr":3e-4', '"lr":3e-4,"lr":1'],
    ["an unknown key", '"lr":', '"more":'], ["a fraction as step", '"step":10', '"step":1.5'], ["a negative step", '"step":10', '"step":-1'], ["no step", '"step":10,', ""],
    ["a comma at the end of a list", "null]", "null,]"], ["a trailing comma", '"attempt":2}', '"attempt":2,}'], ["an escape", "h.0/x", "h\\u0041"], ["another event", "health", "other"], ["a bad histogram", "12.0,3", "12.0,,3"],
    ["a histogram that is not closed", "12.0,3]", "12.0,3"], ["a word", "null,", "nul,"], ["another end", "}]", "]}"], ["something after it", '"attempt":2}}', '"attempt":2}} '],
    ["not ASCII", "h.0/x", "é"], ["a huge number", "3e-4", "1e999"],
  ])("leaves a line with %s to the strict one", (_name, from, to) => {
    expect(scan(LINE.replace(from, to))).toBeNull();
  });

  it("never takes what the strict one refuses, nor reads it otherwise, wherever a byte is lost or another", () => {
    for (let at = 0; at < LINE.length; at++)
      for (const change of ["", "0", ",", "}", "]", '"', "e", "."]) {
        const text = LINE.slice(0, at) + change + LINE.slice(at + 1);
        const quick = scan(text);
        if (quick) expect(JSON.parse(JSON.stringify(quick)), text).toEqual(strictly(text));
      }
  });
});
