/** Series made ready for drawing. */
import type { Mark, Series } from "./series";

/** A series as a chart takes it: null where there is no number, or none that a logarithm has. */
export function chartValues(series: Series, count: number, isLog: boolean): (number | null)[] {
  const values = new Array<number | null>(count);
  for (let i = 0; i < count; i++) {
    const value = series.at(i);
    values[i] = Number.isNaN(value) || (isLog && value <= 0) ? null : value;
  }
  return values;
}

/** Each value drawn towards those before it: with weight 0.9 about the last ten count. Gaps stay gaps. */
export function smoothed(values: readonly (number | null)[], weight: number): (number | null)[] {
  let mean = 0;
  let norm = 0;
  return values.map((value) => {
    if (value === null) return null;
    mean = mean * weight + value * (1 - weight);
    norm = norm * weight + (1 - weight);
    return mean / norm;
  });
}

/**
 * The lines of two runs over one axis, which holds the places of both.
 *
 * Where only the other run has a frame a line has `undefined`, over which it goes on, while null is a gap.
 */
export function overlaid<Value>(first: readonly number[], second: readonly number[]): { axis: number[]; spread: (values: readonly Value[], which: 0 | 1) => (Value | undefined)[] } {
  const axis: number[] = [];
  const from: [number[], number[]] = [[], []];
  for (let i = 0, j = 0; i < first.length || j < second.length; ) {
    const place = Math.min(first[i] ?? Infinity, second[j] ?? Infinity);
    from[0].push(first[i] === place ? i++ : -1);
    from[1].push(second[j] === place ? j++ : -1);
    axis.push(place);
  }
  return { axis, spread: (values, which) => from[which].map((i) => (i < 0 ? undefined : values[i])) };
}

/** The lowest and highest number in each of `width` equal stretches of a series; NaN where a stretch has none. */
export function envelope(series: Series, count: number, width: number): { low: Float32Array; high: Float32Array; marks: Mark[] } {
  const columns = Math.max(1, Math.min(width, count));
  const low = new Float32Array(columns).fill(NaN);
  const high = new Float32Array(columns).fill(NaN);
  const marks: Mark[] = new Array<Mark>(columns).fill("");
  const { values } = series;
  for (let column = 0; column < columns; column++) {
    const end = Math.min(series.length, Math.ceil(((column + 1) * count) / columns));
    let [least, most] = [Infinity, -Infinity];
    for (let i = Math.ceil((column * count) / columns); i < end; i++) {
      const value = values[i]!;
      if (value < least) least = value;
      if (value > most) most = value;
      if (series.isMarked) marks[column] ||= series.markAt(i);
    }
    if (most >= least) [low[column], high[column]] = [least, most];
  }
  return { low, high, marks };
}
