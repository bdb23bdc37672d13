import { describe, expect, it } from "vitest";
import type { BlockHealth, HealthFrame } from "../src/formats/frames";
import { chartValues, envelope, overlaid, smoothed } from "../src/run/lines";
import { MEASURES } from "../src/run/measures";
import { bytes, number, tick, written } from "../src/run/numbers";
import { Series } from "../src/run/series";
import { RunStore } from "../src/run/store";

const frame = (step: number, rest: Partial<HealthFrame> = {}): HealthFrame => ({ step, t: step * 10, loss: 1 / (step + 1), blocks: [], ...rest });
const measure = (key: string): number => MEASURES.findIndex((one) => one.key === key);

function storeOf(frames: HealthFrame[], capacity = 100): RunStore {
  const store = new RunStore(capacity);
  for (const one of frames) store.add(one);
  store.settle();
  return store;
}

describe("the store", () => {
  it("takes a frame that comes twice once", () => {
    const store = storeOf([frame(0), frame(10)]);
    expect(store.add(frame(0))).toBe(false);
    expect(store.steps).toEqual([0, 10]);
  });

  it("puts frames that came out of order in the order of their steps, with all their numbers", () => {
    const store = storeOf([frame(0), frame(10, { loss: null, nonFinite: { loss: "nan" } }), frame(5, { lr: 5, blocks: [{ id: "l0", weightNorm: 5 }] })]);
    expect(store.steps).toEqual([0, 5, 10]);
    expect([0, 1, 2].map((i) => store.curves.lr.at(i))).toEqual([NaN, 5, NaN]);
    expect([0, 1, 2].map((i) => store.curves.loss.markAt(i))).toEqual(["", "", "nan"]);
    expect(store.blocks.get("l0")![measure("weightNorm")]!.at(1)).toBe(5);
    expect([-1, 0, 4, 5, 99].map((step) => store.indexAt(step))).toEqual([0, 0, 0, 1, 2]);
  });

  it("counts the time of a continued run on", () => {
    expect(storeOf([frame(0), frame(10, { t: 100 }), frame(20, { t: 7, attempt: 2 }), frame(30, { t: 9, attempt: 2 })]).times).toEqual([0, 100, 107, 109]);
  });

  it("reads the parts of a step's time", () => {
    const store = storeOf([frame(0, { timing: { data: 1, optim: 4 } })]);
    expect([store.curves.data.at(0), store.curves.forward.at(0), store.curves.optim.at(0)]).toEqual([1, NaN, 4]);
  });

  it.each(Array.from({ length: 60 }, (_, seed) => seed))("keeps the frames that the formats say stand, in any order of lines (%i)", (seed) => {
    let state = seed + 1;
    const random = (below: number): number => (state = (state * 48271) % 2147483647) % below;
    const frames = Array.from({ length: 30 }, (_, i) => frame(random(12), { t: i, attempt: 1 + random(4) }));
    const firsts = new Map<number, number>();
    for (const { attempt, step } of frames) if (!firsts.has(attempt!)) firsts.set(attempt!, step);
    const stands = (one: HealthFrame): boolean => [...firsts].every(([attempt, first]) => attempt <= one.attempt! || one.step < first);
    const wanted = frames.filter(stands).map(({ step, t }) => `${step} ${t}`).sort();
    const store = storeOf(frames);
    const found = store.steps.map((step, i) => `${step} ${store.curves.loss.at(i) === Math.fround(1 / (step + 1)) ? "ok" : "wrong"}`);
    expect(found.sort()).toEqual(frames.filter(stands).map(({ step }) => `${step} ok`).sort());
    expect(store.length + store.superseded).toBe(frames.length);
    expect(wanted.length).toBe(store.length);
  });

  it("keeps two frames of one step that were measured at different times", () => {
    expect(storeOf([frame(3), frame(3, { t: 31 })]).steps).toEqual([3, 3]);
  });

  it("lets a later attempt take the place of an earlier one from its first step on", () => {
    const store = storeOf([frame(0), frame(10), frame(20), frame(10, { attempt: 2, loss: 9 })]);
    expect(store.steps).toEqual([0, 10]);
    expect(store.curves.loss.at(1)).toBe(9);
    expect(store.add(frame(20))).toBe(false);
  });

  it("forgets the oldest frames past its capacity, in every column", () => {
    const store = storeOf(Array.from({ length: 250 }, (_, i) => frame(i, { loss: i, blocks: [{ id: "l0", weightNorm: i }] })));
    expect(store.length).toBeLessThanOrEqual(110);
    expect(store.forgotten + store.length).toBe(250);
    const last = store.length - 1;
    expect([store.steps[last], store.curves.loss.at(last), store.blocks.get("l0")![measure("weightNorm")]!.at(last)]).toEqual([249, 249, 249]);
  });

  it("tells NaN, infinity and not measured apart", () => {
    const store = storeOf([
      frame(0, { loss: null, nonFinite: { loss: "nan" } }),
      frame(1, { loss: null }),
      frame(2, { gradNorm: null, nonFinite: { gradNorm: "inf" } }),
    ]);
    expect([0, 1].map((i) => store.curves.loss.markAt(i))).toEqual(["nan", ""]);
    expect(store.curves.gradNorm.markAt(2)).toBe("inf");
    expect(store.curves.loss.at(1)).toBeNaN();
  });

  it("names a block's number that was not finite by the block's id", () => {
    const blocks: BlockHealth[] = [{ id: "a0", weightNorm: null }];
    const store = storeOf([frame(0, { blocks, nonFinite: { "blocks.a0.weightNorm": "inf" } })]);
    expect(store.blocks.get("a0")![measure("weightNorm")]!.markAt(0)).toBe("inf");
  });

  it("leaves a gap where a block is missing from a frame", () => {
    const store = storeOf([frame(0, { blocks: [{ id: "a0", weightNorm: 1 }] }), frame(1), frame(2, { blocks: [{ id: "a0", weightNorm: 3 }] })]);
    const norms = store.blocks.get("a0")![measure("weightNorm")]!;
    expect([0, 1, 2].map((i) => norms.at(i))).toEqual([1, NaN, 3]);
  });
});

describe("measures", () => {
  const stats = { mean: 3, std: 4, absMax: 9, zeroFrac: 0.5, nanCount: 1, infCount: 2 };

  it.each([
    ["gradient", { id: "a0", grad: stats }, 5],
    ["zeros", { id: "a0", act: stats }, 0.5],
    ["hiddenZeros", { id: "a0", hidden: stats }, 0.5],
    ["notFinite", { id: "a0", act: stats, grad: stats }, 6],
    ["entropy", { id: "a0", headEntropy: [1, 2] }, 1.5],
    ["entropy", { id: "a0", headEntropy: [1, null] }, null],
    ["entropy", { id: "a0" }, undefined],
    ["updateRatio", { id: "a0", updateRatio: 1e-3 }, 1e-3],
  ])("%s of %j is %s", (key, block, value) => {
    expect(MEASURES[measure(key)]!.read(block as BlockHealth)).toBe(value);
  });
});

describe("lines", () => {
  it("give a chart null where there is no number, or none that a logarithm has", () => {
    const series = new Series();
    series.set(0, 1);
    series.set(2, -3);
    expect(chartValues(series, 3, false)).toEqual([1, null, -3]);
    expect(chartValues(series, 3, true)).toEqual([1, null, null]);
  });

  it("smooth without a start at zero and without filling gaps", () => {
    expect(smoothed([4, 4, null, 4], 0.9).map((value) => value && Math.round(value * 1e9) / 1e9)).toEqual([4, 4, null, 4]);
    const [, second] = smoothed([0, 1], 0.5);
    expect(second).toBeCloseTo(2 / 3);
  });

  it("of two runs share one axis, on which each goes on over the places of the other", () => {
    const { axis, spread } = overlaid<number>([0, 10, 10, 20], [5, 10, 30]);
    expect(axis).toEqual([0, 5, 10, 10, 20, 30]);
    expect(spread([1, 2, 3, 4], 0)).toEqual([1, undefined, 2, 3, 4, undefined]);
    expect(spread([7, 8, 9], 1)).toEqual([undefined, 7, 8, undefined, undefined, 9]);
  });

  it("keep the peak and the mark of every stretch", () => {
    const series = new Series();
    for (let i = 0; i < 1000; i++) series.set(i, i === 617 ? 99 : i % 3);
    series.set(30, NaN, "nan");
    const { low, high, marks } = envelope(series, 1000, 10);
    expect([...high]).toEqual([2, 2, 2, 2, 2, 2, 99, 2, 2, 2]);
    expect([...low]).toEqual(new Array(10).fill(0));
    expect(marks[0]).toBe("nan");
  });
});

describe("numbers", () => {
  it.each([
    [0, "0"], [1, "1.000"], [0.0312, "0.03120"], [123.456, "123.5"], [-2.5, "−2.500"], [6e-4, "6.00e−4"], [1234567, "1.23e6"], [99999, "99999"], [0.00123, "0.00123"],
  ])("%s is written %s", (value, text) => {
    expect(number(value)).toBe(text);
  });

  it.each([[0, "0"], [2.5, "2.5"], [5e-4, "5e−4"], [100_000, "1e5"], [-1, "−1"]])("%s on an axis is %s", (value, text) => {
    expect(tick(value)).toBe(text);
  });

  it("that are not finite are named, and those not measured are a dash", () => {
    expect([written(NaN, "nan", "number"), written(NaN, "-inf", "share"), written(NaN, "", "number"), written(0.5, "", "share")]).toEqual(["NaN", "−Inf", "–", "50.0 %"]);
  });

  it("of bytes carry a unit", () => {
    expect([bytes(0), bytes(1500), bytes(4_123_456_789)]).toEqual(["0 bytes", "1.500 kB", "4.123 GB"]);
  });
});
