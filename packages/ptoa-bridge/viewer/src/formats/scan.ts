/**
 * A quick reader of a run file's usual line, straight from its bytes.
 *
 * It takes exactly what our own writers write: the known fields in their order (FORMATS.md, section 5), plain names, no
 * white space. For any other line it gives null, and the strict readers decide. Histograms and the names of what is not
 * finite are checked and left out: they are read again, with the whole frame, when it is looked at.
 */
import type { BlockHealth, HealthFrame, Stats } from "./frames";

const GIVE_UP = Symbol("not a usual line");
const [QUOTE, COMMA, POINT, MINUS, PLUS, ZERO, NINE, OPEN, CLOSE, LIST, LIST_END, BACKSLASH, LETTER_N, LOWER_E, UPPER_E] = [
  ..."\",.-+09{}[]\\neE",
].map((one) => one.charCodeAt(0)) as [number, number, number, number, number, number, number, number, number, number, number, number, number, number, number];
const TENS = Array.from({ length: 23 }, (_, i) => 10 ** i);

type Token = Uint8Array;
const token = (text: string): Token => new TextEncoder().encode(text);
const key = (name: string): Token => token(`"${name}":`);
/** A field's name, how its value is read, and where it goes. */
type Field<Target> = readonly [name: Token, read: (scan: Scan, target: Target) => void];

const HEAD = token('{"event":"health","data":');
const NULL = token("null");

const TIMING: Field<NonNullable<HealthFrame["timing"]>>[] = [
  [key("data"), (scan, timing) => (timing.data = scan.maybe())],
  [key("forward"), (scan, timing) => (timing.forward = scan.maybe())],
  [key("backward"), (scan, timing) => (timing.backward = scan.maybe())],
  [key("optim"), (scan, timing) => (timing.optim = scan.maybe())],
];
const STATS: Field<Stats>[] = [
  [key("mean"), (scan, stats) => (stats.mean = scan.maybe())],
  [key("std"), (scan, stats) => (stats.std = scan.maybe())],
  [key("absMax"), (scan, stats) => (stats.absMax = scan.maybe())],
  [key("zeroFrac"), (scan, stats) => (stats.zeroFrac = scan.maybe())],
  [key("satFrac"), (scan, stats) => (stats.satFrac = scan.maybe())],
  [key("nanCount"), (scan, stats) => (stats.nanCount = scan.number())],
  [key("infCount"), (scan, stats) => (stats.infCount = scan.number())],
  [key("hist"), (scan) => scan.skipNumbers()],
];
const BLOCK: Field<BlockHealth>[] = [
  [key("id"), (scan, block) => (block.id = scan.name())],
  [key("act"), (scan, block) => (block.act = scan.stats())],
  [key("hidden"), (scan, block) => (block.hidden = scan.stats())],
  [key("grad"), (scan, block) => (block.grad = scan.stats())],
  [key("weightNorm"), (scan, block) => (block.weightNorm = scan.maybe())],
  [key("weightGradNorm"), (scan, block) => (block.weightGradNorm = scan.maybe())],
  [key("updateRatio"), (scan, block) => (block.updateRatio = scan.maybe())],
  [key("headEntropy"), (scan, block) => (block.headEntropy = scan.list(() => scan.maybe()))],
];
const FRAME: Field<HealthFrame>[] = [
  [key("step"), (scan, frame) => (frame.step = scan.number())],
  [key("t"), (scan, frame) => (frame.t = scan.number())],
  [key("loss"), (scan, frame) => (frame.loss = scan.maybe())],
  [key("valLoss"), (scan, frame) => (frame.valLoss = scan.maybe())],
  [key("lr"), (scan, frame) => (frame.lr = scan.maybe())],
  [key("gradNorm"), (scan, frame) => (frame.gradNorm = scan.maybe())],
  [key("timing"), (scan, frame) => (frame.timing = scan.object(TIMING, {}))],
  [key("memory"), (scan, frame) => (frame.memory = scan.maybe())],
  [key("blocks"), (scan, frame) => (frame.blocks = scan.list(() => scan.object(BLOCK, { id: "" })))],
  [key("attempt"), (scan, frame) => (frame.attempt = scan.number())],
];

/** The frame of a usual line, without histograms; null for any other line. */
export function scanLine(bytes: Uint8Array): HealthFrame | null {
  const scan = new Scan(bytes);
  try {
    scan.expect(HEAD);
    const frame = scan.object<HealthFrame>(FRAME, { step: -1, t: NaN, loss: null, blocks: [] });
    scan.end();
    const isWhole = Number.isSafeInteger(frame.step) && frame.step >= 0 && !Number.isNaN(frame.t) && isCount(frame.attempt ?? 1);
    return isWhole && frame.blocks.every(({ id }) => id !== "") ? frame : null;
  } catch (error) {
    if (error === GIVE_UP) return null;
    throw error;
  }
}

const isCount = (value: number): boolean => Number.isSafeInteger(value) && value >= 0;

class Scan {
  private at = 0;

  constructor(private readonly bytes: Uint8Array) {}

  expect(wanted: Token): void {
    if (!this.takes(wanted)) throw GIVE_UP;
  }

  /** The end of the event's object and of the line. */
  end(): void {
    this.one(CLOSE);
    if (this.at !== this.bytes.length) throw GIVE_UP;
  }

  /** Known fields in their order, each at most once. */
  object<Target>(fields: readonly Field<Target>[], target: Target): Target {
    this.one(OPEN);
    if (this.bytes[this.at] === CLOSE) return this.at++, target;
    for (const [name, read] of fields) {
      if (!this.takes(name)) continue;
      read(this, target);
      if (this.bytes[this.at++] === COMMA) continue;
      this.at--;
      this.one(CLOSE);
      return target;
    }
    throw GIVE_UP;
  }

  stats(): Stats {
    const stats = this.object(STATS, { mean: null, std: null, absMax: null, zeroFrac: null, nanCount: -1, infCount: -1 });
    if (stats.nanCount < 0 || stats.infCount < 0) throw GIVE_UP;
    return stats;
  }

  list<Item>(read: () => Item): Item[] {
    const items: Item[] = [];
    this.one(LIST);
    if (this.bytes[this.at] === LIST_END) {
      this.at++;
      return items;
    }
    do items.push(read());
    while (this.bytes[this.at++] === COMMA);
    this.at--;
    this.one(LIST_END);
    return items;
  }

  /** A list of numbers, whose spelling alone is looked at: half of a line are histograms. */
  skipNumbers(): void {
    this.one(LIST);
    const { bytes } = this;
    let at = this.at;
    if (bytes[at] === LIST_END) return void this.at++;
    for (;;) {
      if (bytes[at] === MINUS) at++;
      const start = at;
      while (bytes[at]! >= ZERO && bytes[at]! <= NINE) at++;
      if (at === start || at - start > 15 || (bytes[start] === ZERO && at > start + 1)) throw GIVE_UP;
      if (bytes[at] === POINT) {
        const first = ++at;
        while (bytes[at]! >= ZERO && bytes[at]! <= NINE) at++;
        if (at === first) throw GIVE_UP;
      }
      this.at = at;
      if (bytes[at] === LOWER_E || bytes[at] === UPPER_E) {
        this.exponent();
        at = this.at;
      }
      if (bytes[at++] !== COMMA) break;
    }
    this.at = at - 1;
    this.one(LIST_END);
  }

  /** A plain name: ASCII without escapes. */
  name(): string {
    this.one(QUOTE);
    let name = "";
    for (let byte = this.bytes[this.at]!; byte !== QUOTE; byte = this.bytes[++this.at]!) {
      if (!(byte >= 0x20 && byte < 0x7f) || byte === BACKSLASH) throw GIVE_UP;
      name += String.fromCharCode(byte);
    }
    this.at++;
    return name;
  }

  maybe(): number | null {
    if (this.bytes[this.at] !== LETTER_N) return this.number();
    this.expect(NULL);
    return null;
  }

  /** A number to 15 digits, which is more than a column keeps. */
  number(): number {
    const { bytes } = this;
    let at = this.at;
    const isNegative = bytes[at] === MINUS;
    if (isNegative) at++;
    const start = at;
    let value = 0;
    let byte = bytes[at]!;
    for (; byte >= ZERO && byte <= NINE; byte = bytes[++at]!) value = value * 10 + (byte - ZERO);
    if (at === start || (bytes[start] === ZERO && at > start + 1)) throw GIVE_UP;
    let power = 0;
    if (byte === POINT) {
      const first = ++at;
      for (byte = bytes[at]!; byte >= ZERO && byte <= NINE; byte = bytes[++at]!) value = value * 10 + (byte - ZERO);
      power = first - at;
      if (power === 0) throw GIVE_UP;
    } else if (value > Number.MAX_SAFE_INTEGER) throw GIVE_UP;
    this.at = at;
    if (byte === LOWER_E || byte === UPPER_E) power += this.exponent();
    if (power !== 0) value = power < 0 && power > -TENS.length ? value / TENS[-power]! : value * 10 ** power;
    if (!(value < Infinity)) throw GIVE_UP;
    return isNegative ? -value : value;
  }

  private exponent(): number {
    const { bytes } = this;
    let at = this.at + 1;
    const isNegative = bytes[at] === MINUS;
    if (isNegative || bytes[at] === PLUS) at++;
    const start = at;
    let value = 0;
    for (let byte = bytes[at]!; byte >= ZERO && byte <= NINE; byte = bytes[++at]!) value = value * 10 + (byte - ZERO);
    if (at === start || at > start + 2) throw GIVE_UP;
    this.at = at;
    return isNegative ? -value : value;
  }

  private one(byte: number): void {
    if (this.bytes[this.at++] !== byte) throw GIVE_UP;
  }

  private takes(wanted: Token): boolean {
    const { bytes, at } = this;
    for (let i = 0; i < wanted.length; i++) if (bytes[at + i] !== wanted[i]) return false;
    this.at = at + wanted.length;
    return true;
  }
}
