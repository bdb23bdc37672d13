/**
 * The frames of one run as columns of numbers, by growing step once they are settled.
 *
 * A frame that comes twice (history and live stream overlap) is taken once. Frames of a later attempt of a run that was
 * continued take the place of every frame of earlier attempts from the step at which the later one began, wherever their
 * lines stand (FORMATS.md, section 6). Past `capacity` frames the oldest go.
 */
import type { Place } from "../formats/files";
import type { BlockHealth, HealthFrame } from "../formats/frames";
import { Attempts } from "./attempts";
import { CURVES, curveOf, MEASURES, pathOf, type Curve } from "./measures";
import { Series, type Mark } from "./series";

/** The bridge keeps as many (FORMATS.md, section 7). */
export const LIVE_CAPACITY = 5_000;
export const FILE_CAPACITY = 20_000;
/** Numbers kept at most, of four bytes each: a model of thousands of blocks keeps fewer frames. */
const MOST_NUMBERS = 40_000_000;

export class RunStore {
  readonly steps: number[] = [];
  /** Milliseconds of training up to each frame; a continued run goes on where it was left. */
  times: readonly number[] = [];
  readonly curves: Readonly<Record<Curve, Series>>;
  /** Per block one series a measure, in the order of MEASURES. */
  readonly blocks = new Map<string, Series[]>();
  /** The last health of each block, whole. */
  readonly latest = new Map<string, BlockHealth>();
  lastFrame: HealthFrame | null = null;
  /** Frames that were kept once and gave way to newer ones. */
  forgotten = 0;
  /** Frames of earlier attempts that a later one took the place of. */
  superseded = 0;
  private readonly rows: Row[] = [];
  private readonly known = new Set<string>();
  private readonly attempts = new Attempts();
  private isSorted = true;
  private settledRows = 0;
  private used = 0;

  /** `withBlocks` false keeps the curves of the run alone. */
  constructor(
    readonly capacity: number,
    private readonly withBlocks = true,
  ) {
    this.curves = Object.fromEntries(CURVES.map((curve) => [curve, new Series()])) as Record<Curve, Series>;
  }

  get length(): number {
    return this.steps.length;
  }

  /** Takes a frame; false when it is here already or belongs to an attempt that was superseded. */
  add(frame: HealthFrame, place?: Place): boolean {
    const attempt = frame.attempt || 1;
    const key = `${attempt} ${frame.step} ${frame.t}`;
    if (this.known.has(key)) return false;
    if (this.attempts.note(attempt, frame.step)) this.dropSuperseded(frame.step);
    if (frame.step >= this.attempts.endOf(attempt)) {
      this.superseded++;
      return false;
    }
    this.known.add(key);
    this.append(frame, { attempt, key, t: frame.t, place });
    this.keepWithin();
    return true;
  }

  /** Puts the frames in the order of their steps; what draws calls it first. */
  settle(): void {
    if (!this.isSorted) {
      const { steps, rows } = this;
      this.take(steps.map((_, i) => i).sort((a, b) => steps[a]! - steps[b]! || rows[a]!.attempt - rows[b]!.attempt || a - b));
      this.isSorted = true;
    }
    if (this.settledRows === this.rows.length && this.times.length === this.length) return;
    this.settledRows = this.rows.length;
    this.times = elapsed(this.rows);
  }

  /** Index of the last frame whose step is at most `step`; the first one's where all are later, -1 without frames. */
  indexAt(step: number): number {
    return this.length === 0 ? -1 : Math.max(0, upperBound(this.steps, step) - 1);
  }

  placeOf(index: number): Place | undefined {
    return this.rows[index]?.place;
  }

  private append(frame: HealthFrame, row: Row): void {
    const index = this.steps.push(frame.step) - 1;
    if (index > 0 && this.steps[index - 1]! > frame.step) this.isSorted = false;
    this.rows.push(row);
    this.settledRows = -1;
    this.lastFrame = frame;
    for (const curve of CURVES) put(this.curves[curve], index, curveOf(frame, curve), frame.nonFinite?.[pathOf(curve)]);
    if (this.withBlocks) for (const block of frame.blocks) this.appendBlock(block, index, frame.nonFinite);
  }

  private appendBlock(block: BlockHealth, index: number, nonFinite: HealthFrame["nonFinite"]): void {
    let series = this.blocks.get(block.id);
    if (!series) this.blocks.set(block.id, (series = MEASURES.map(() => new Series())));
    this.latest.set(block.id, block);
    for (let m = 0; m < MEASURES.length; m++) {
      const measure = MEASURES[m]!;
      const value = measure.read(block);
      if (value === undefined) continue;
      if (series[m]!.length === 0) this.used++;
      if (value === null) series[m]!.set(index, NaN, markOf(nonFinite?.[`blocks.${block.id}.${measure.field}`] ?? "nan"));
      else series[m]!.set(index, value);
    }
  }

  /** A new attempt began at `step`: what earlier ones had from there on goes. */
  private dropSuperseded(step: number): void {
    if (this.isSorted && (this.steps.at(-1) ?? -1) < step) return;
    const kept = this.steps.flatMap((at, i) => (at < this.attempts.endOf(this.rows[i]!.attempt) ? [i] : []));
    if (kept.length === this.length) return;
    this.superseded += this.length - kept.length;
    this.take(kept);
  }

  /** Forgets the oldest frames, a tenth at a time: moving every column for each frame would cost more than the frame. */
  private keepWithin(): void {
    const most = Math.min(this.capacity, Math.max(100, Math.floor(MOST_NUMBERS / Math.max(1, this.used))));
    if (this.length <= most * 1.1) return;
    const count = this.length - most;
    for (const { key } of this.rows.splice(0, count)) this.known.delete(key);
    this.steps.splice(0, count);
    for (const series of this.allSeries()) series.dropFirst(count);
    this.forgotten += count;
  }

  private take(indices: readonly number[]): void {
    const { steps, rows } = this;
    const [newSteps, newRows] = [indices.map((i) => steps[i]!), indices.map((i) => rows[i]!)];
    const kept = new Set(newRows);
    for (const row of rows) if (!kept.has(row)) this.known.delete(row.key);
    steps.splice(0, steps.length, ...newSteps);
    rows.splice(0, rows.length, ...newRows);
    this.settledRows = -1;
    for (const series of this.allSeries()) series.take(indices);
  }

  private *allSeries(): Generator<Series> {
    yield* Object.values(this.curves);
    for (const series of this.blocks.values()) yield* series;
  }
}

interface Row {
  attempt: number;
  key: string;
  t: number;
  place: Place | undefined;
}

/** Training time of each frame: where the clock went back, a continued run had started it again. */
function elapsed(rows: readonly Row[]): number[] {
  let before = 0;
  let last = -Infinity;
  return rows.map(({ t }) => {
    if (t < last) before += last;
    last = t;
    return before + t;
  });
}

/** How many of these growing numbers are at most `value`. */
export function upperBound(numbers: ArrayLike<number>, value: number): number {
  let low = 0;
  let high = numbers.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle]! <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}

function put(series: Series, index: number, value: number | null | undefined, name: string | undefined): void {
  if (typeof value === "number") series.set(index, value);
  else if (name !== undefined) series.set(index, NaN, markOf(name));
}

const markOf = (name: string): Mark => (name === "inf" || name === "-inf" ? name : "nan");
