import { describe, expect, it } from "vitest";
import { entropyOf, heatPixels, heatScale, placeIn, sliceCount, sliceOf, type Grid } from "../src/model/heat";

const grid = (rows: number, columns: number, values: number[]): Grid => ({ rows, columns, values: Float32Array.from(values) });
/** Colour i is the number i, so that a pixel tells its place on the scale. */
const COLOURS = Uint32Array.from({ length: 256 }, (_, i) => i);
const BROKEN = 999;

describe("slices", () => {
  it.each([
    ["a number", [], 1, []],
    ["a row", [5], 1, [3]],
    ["a matrix", [2, 5], 1, [1, 3]],
    ["a stack of stacks", [2, 3, 4, 5], 6, [1, 2, 1, 3]],
  ])("name each value of %s by its index", (_name, shape, slices, place) => {
    expect(sliceCount(shape)).toBe(slices);
    expect(placeIn(shape, slices - 1, Math.min(1, (shape.at(-2) ?? 1) - 1), shape.length ? 3 : 0)).toEqual(place);
  });

  it("hold the values of the last two axes", () => {
    const values = Float32Array.from({ length: 24 }, (_, i) => i);
    expect([...sliceOf([2, 3, 4], values, 1).values]).toEqual([...values.slice(12)]);
  });
});

describe("colours", () => {
  it("go from 0 up where nothing is below 0, else evenly to both sides of 0, and by finite values alone", () => {
    expect(heatScale(Float32Array.of(0.5, 2, NaN, Infinity))).toEqual({ kind: "upward", low: 0, high: 2 });
    expect(heatScale(Float32Array.of(-3, 2))).toEqual({ kind: "around", low: -3, high: 3 });
    expect(heatScale(new Float32Array(0))).toEqual({ kind: "upward", low: 0, high: 0 });
  });

  it("show each value in its own cell where there is room", () => {
    const four = grid(2, 2, [0, 1, 1, 0]);
    expect([...heatPixels(four, heatScale(four.values), 2, 2, COLOURS, BROKEN)]).toEqual([0, 255, 255, 0]);
    expect([...heatPixels(four, heatScale(four.values), 4, 2, COLOURS, BROKEN)]).toEqual([0, 0, 255, 255, 255, 255, 0, 0]);
  });

  it.each([
    ["the value farthest from 0", [0, 0, -1, 0.5], 0],
    ["a NaN before any number", [0, 0, -1, NaN], BROKEN],
    ["an Inf before any number", [-Infinity, 0, 1, 0], BROKEN],
  ])("show %s of many values in one pixel", (_name, values, colour) => {
    const one = grid(1, 4, values);
    expect([...heatPixels(one, { kind: "around", low: -1, high: 1 }, 1, 1, COLOURS, BROKEN)]).toEqual([colour]);
  });

  it("take a tensor of zeros", () => {
    expect([...heatPixels(grid(1, 2, [0, 0]), heatScale(new Float32Array(2)), 2, 1, COLOURS, BROKEN)]).toEqual([0, 0]);
  });
});

describe("the entropy of a pattern", () => {
  it("is 0 where each row looks at one place and ln n where it looks everywhere", () => {
    expect(entropyOf(grid(2, 2, [1, 0, 0, 1]))).toBe(0);
    expect(entropyOf(grid(1, 4, [0.25, 0.25, 0.25, 0.25]))).toBeCloseTo(Math.log(4));
  });
});
