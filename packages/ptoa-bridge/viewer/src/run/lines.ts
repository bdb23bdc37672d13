/** Series made ready for drawing. */
import type { Mark, Series } from "./series";

/** Frame indices by growing step: a chart's axis cannot go back, as a run pushed by hand may. */
export function byStep(steps: readonly number[]): number[] | null {
  if (steps.every((step, i) => i === 0 || step >= steps[i - 1]!)) return null;
  return steps.map((_, i) => i).sort((a, b) => steps[a]! - steps[b]! || a - b);
}

/** A series as a chart takes it: null where there is no number. */
export function chartValues(series: Series, count: number, order: readonly number[] | null): (number | null)[] {
  return Array.from({ length: count }, (_, i) => {
    const value = series.at(order ? order[i]! : i);
    return Number.isNaN(value) ? null : value;
  });
}

/** The lowest and highest number in each of `width` equal stretches of a series; NaN where a stretch has none. */
export function envelope(series: Series, count: number, width: number): { low: Float32Array; high: Float32Array; marks: Mark[] } {
  const columns = Math.max(1, Math.min(width, count));
  const low = new Float32Array(columns).fill(NaN);
  const high = new Float32Array(columns).fill(NaN);
  const marks: Mark[] = new Array<Mark>(columns).fill("");
  for (let i = 0; i < count; i++) {
    const column = Math.floor((i * columns) / count);
    const value = series.at(i);
    if (series.isMarked) marks[column] ||= series.markAt(i);
    if (Number.isNaN(value)) continue;
    if (!(low[column]! <= value)) low[column] = value;
    if (!(high[column]! >= value)) high[column] = value;
  }
  return { low, high, marks };
}
