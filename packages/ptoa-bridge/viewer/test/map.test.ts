/** The map: colours for values, and what shows where many frames and blocks share a pixel. */
import { describe, expect, it } from "vitest";
import { columnsOf, paintGrid, rasterise } from "../src/run/raster";
import { MEASURES } from "../src/run/measures";
import { MAP_MEASURES, palette, pixel, scaleFor, type MapMeasure } from "../src/run/scales";
import { Series } from "../src/run/series";

const measure = (key: string): MapMeasure => MAP_MEASURES.find((one) => one.key === key)!;

/** A block with these numbers for one measure; "nan" for a mark. */
function block(key: string, values: (number | "nan" | null)[], notFinite: number[] = []): Series[] {
  const series = MEASURES.map(() => new Series());
  const one = series[MEASURES.findIndex((candidate) => candidate.key === key)]!;
  values.forEach((value, i) => value !== null && (value === "nan" ? one.set(i, NaN, "nan") : one.set(i, value)));
  notFinite.forEach((count, i) => series.at(-1)!.set(i, count));
  return series;
}

const gridOf = (key: string, from: string, values: (number | "nan" | null)[][], width: number, height = 100) => {
  const blocks = values.map((one) => block(from, one));
  const axis = values[0]!.map((_, i) => i);
  return rasterise(blocks, measure(key), scaleFor(measure(key), blocks), columnsOf(axis, [0, axis.length - 1], width), height);
};

describe("scales", () => {
  it("put the usual value in the middle and both ways of going wrong at the ends", () => {
    const scale = scaleFor(measure("updateRatio"), [block("updateRatio", [1e-3, 1e-6, 1])]);
    expect([scale.place(1e-3), scale.place(0), scale.place(1e-9), scale.place(1e9)]).toEqual([0.5, 0, 0, 1]);
  });

  it("of shares reach from none to all, whatever was measured", () => {
    const scale = scaleFor(measure("dead"), [block("zeros", [0.1, 0.2])]);
    expect([scale.low, scale.high, scale.place(1)]).toEqual([0, 1, 1]);
  });

  it("stand for something without any measurement", () => {
    for (const one of MAP_MEASURES) expect(Number.isFinite(scaleFor(one, []).place(1))).toBe(true);
  });

  it("have colours that no two ends share, in light and dark", () => {
    for (const kind of ["around", "share"] as const)
      for (const isDark of [true, false]) expect(new Set([0, 128, 255].map((i) => palette(kind, isDark)[i])).size).toBe(3);
  });
});

describe("columns", () => {
  it("share out all frames when there are more than pixels", () => {
    expect([...columnsOf([0, 1, 2, 3, 4, 5, 6, 7], [0, 7], 2)]).toEqual([0, 4, 4, 8]);
  });

  it("hold the earlier frame where there are fewer", () => {
    expect([...columnsOf([0, 10], [0, 10], 4)]).toEqual([0, 1, 0, 1, 0, 1, 1, 2].map((n, i) => (i === 6 ? 1 : n)));
  });

  it.each([1, 3, 7, 50])("leave no frame out at %i pixels", (width) => {
    const axis = Array.from({ length: 20 }, (_, i) => i * i);
    const bounds = columnsOf(axis, [0, 361], width);
    const seen = new Set<number>();
    for (let c = 0; c < width; c++) for (let i = bounds[2 * c]!; i < bounds[2 * c + 1]!; i++) seen.add(i);
    expect(seen.size).toBe(20);
  });
});

describe("the map", () => {
  it("shows one bad frame among hundreds that share its pixel", () => {
    const values = Array.from({ length: 500 }, (_, i) => (i === 333 ? 1 : 1e-3));
    const { places } = gridOf("updateRatio", "updateRatio", [values], 5);
    expect([...places].map((place) => place > 0.9)).toEqual([false, false, false, true, false]);
  });

  it("shows one bad block among many that share its row", () => {
    const rows = Array.from({ length: 50 }, (_, b) => [b === 31 ? 1 : 0]);
    const { places, height } = gridOf("dead", "hiddenZeros", rows, 1, 5);
    expect([height, ...places]).toEqual([5, 0, 0, 0, 1, 0]);
  });

  it("marks NaN over any value, and leaves empty what was not measured", () => {
    const { places } = gridOf("gradient", "gradient", [[1, "nan", 1, null]], 4);
    expect([...places].map((place) => (place === Infinity ? "broken" : Number.isNaN(place) ? "none" : "value"))).toEqual(["value", "broken", "value", "none"]);
  });

  it("marks a block whose values held NaN though its statistics are finite", () => {
    const blocks = [block("std", [1, 1], [0, 3])];
    const one = measure("activation");
    expect([...rasterise(blocks, one, scaleFor(one, blocks), columnsOf([0, 1], [0, 1], 2), 10).places].map((place) => place === Infinity)).toEqual([false, true]);
  });

  it("paints nothing where nothing was measured", () => {
    const colours = palette("share", false);
    const pixels = paintGrid({ places: Float32Array.of(0, 1, NaN, Infinity), width: 4, height: 1 }, colours, [pixel(1, 2, 3), pixel(4, 5, 6)]);
    expect([...pixels]).toEqual([colours[0], colours[255], 0, pixel(4, 5, 6)]);
  });
});
