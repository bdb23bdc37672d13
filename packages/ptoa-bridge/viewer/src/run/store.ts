/**
 * The frames of one run, in the order they were sent, as columns of numbers.
 *
 * A frame that comes twice (history and live stream overlap) is taken once. A later attempt of a run that was continued
 * takes the place of the earlier one from its first step on (FORMATS.md, section 6). Past `capacity` frames the oldest go.
 */
import type { BlockHealth, HealthFrame } from "../formats/frames";
import { CURVES, MEASURES, type Curve } from "./measures";
import { Series, type Mark } from "./series";

/** The bridge keeps as many (FORMATS.md, section 7). */
export const LIVE_CAPACITY = 5_000;
export const FILE_CAPACITY = 20_000;

export class RunStore {
  readonly steps: number[] = [];
  readonly curves: Readonly<Record<Curve, Series>>;
  /** Per block one series a measure, in the order of MEASURES. */
  readonly blocks = new Map<string, Series[]>();
  /** The last health of each block, whole. */
  readonly latest = new Map<string, BlockHealth>();
  lastFrame: HealthFrame | null = null;
  /** Frames that were kept once and gave way to newer ones. */
  forgotten = 0;
  private readonly keys: string[] = [];
  private readonly known = new Set<string>();
  private attempt = 0;

  constructor(readonly capacity: number) {
    this.curves = Object.fromEntries(CURVES.map((curve) => [curve, new Series()])) as Record<Curve, Series>;
  }

  get length(): number {
    return this.steps.length;
  }

  /** Takes a frame; false when it is here already or belongs to an attempt that was superseded. */
  add(frame: HealthFrame): boolean {
    const attempt = frame.attempt ?? 0;
    const key = `${attempt} ${frame.step} ${frame.t}`;
    if (this.known.has(key) || attempt < this.attempt) return false;
    if (attempt > this.attempt) this.supersedeFrom(frame.step);
    this.attempt = attempt;
    this.known.add(key);
    this.keys.push(key);
    this.append(frame);
    // A tenth at a time: moving every column for each frame would cost more than the frame.
    if (this.length > this.capacity * 1.1) this.forget(this.length - this.capacity);
    return true;
  }

  private append(frame: HealthFrame): void {
    const index = this.steps.push(frame.step) - 1;
    this.lastFrame = frame;
    for (const curve of CURVES) put(this.curves[curve], index, frame[curve], frame.nonFinite?.[curve]);
    for (const block of frame.blocks) this.appendBlock(block, index, frame.nonFinite);
  }

  private appendBlock(block: BlockHealth, index: number, nonFinite: HealthFrame["nonFinite"]): void {
    let series = this.blocks.get(block.id);
    if (!series) this.blocks.set(block.id, (series = MEASURES.map(() => new Series())));
    this.latest.set(block.id, block);
    MEASURES.forEach((measure, m) => {
      const value = measure.read(block);
      const name = value === null ? nonFinite?.[`blocks.${block.id}.${measure.field}`] ?? "nan" : undefined;
      put(series[m]!, index, value, name);
    });
  }

  private supersedeFrom(step: number): void {
    let length = this.length;
    while (length > 0 && this.steps[length - 1]! >= step) length--;
    for (const key of this.keys.splice(length)) this.known.delete(key);
    this.steps.length = length;
    for (const series of this.allSeries()) series.cutTo(length);
  }

  private forget(count: number): void {
    for (const key of this.keys.splice(0, count)) this.known.delete(key);
    this.steps.splice(0, count);
    for (const series of this.allSeries()) series.dropFirst(count);
    this.forgotten += count;
  }

  private *allSeries(): Generator<Series> {
    yield* Object.values(this.curves);
    for (const series of this.blocks.values()) yield* series;
  }
}

function put(series: Series, index: number, value: number | null | undefined, name: string | undefined): void {
  if (typeof value === "number") series.set(index, value);
  else if (name !== undefined) series.set(index, NaN, markOf(name));
}

const markOf = (name: string): Mark => (name === "inf" || name === "-inf" ? name : "nan");
