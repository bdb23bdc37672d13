/** A number a frame, with room to grow; what was measured and is not finite is marked, what was not measured is a gap. */

export type Mark = "" | "nan" | "inf" | "-inf";
const MARKS: readonly Mark[] = ["", "nan", "inf", "-inf"];
const FIRST_ROOM = 256;
const NOTHING = new Float32Array(0);

export class Series {
  /** Nothing is kept for a measure that never comes. */
  private numbers = NOTHING;
  private marks: Uint8Array | null = null;
  length = 0;

  /** Number of frame `index`: NaN when it was not measured or is not finite. */
  at(index: number): number {
    return index >= 0 && index < this.length ? this.numbers[index]! : NaN;
  }

  markAt(index: number): Mark {
    return MARKS[this.marks?.[index] ?? 0]!;
  }

  get isMarked(): boolean {
    return this.marks !== null;
  }

  /** The numbers of all frames; longer than `length` allows to read. */
  get values(): Float32Array {
    return this.numbers;
  }

  set(index: number, value: number, mark: Mark = ""): void {
    if (index >= this.numbers.length) this.grow(index + 1);
    this.numbers[index] = value;
    if (mark) {
      this.marks ??= new Uint8Array(this.numbers.length);
      this.marks[index] = MARKS.indexOf(mark);
    }
    this.length = Math.max(this.length, index + 1);
  }

  /** Index of the last frame up to `from` with a number or a mark; -1 when there is none. */
  lastMeasured(from = this.length - 1): number {
    let index = Math.min(from, this.length - 1);
    while (index >= 0 && Number.isNaN(this.numbers[index]) && !this.marks?.[index]) index--;
    return index;
  }

  /** Index of the first frame with a mark; -1 when there is none. */
  firstMarked(): number {
    return this.marks ? this.marks.findIndex((mark) => mark !== 0) : -1;
  }

  /** Keeps the frames of these indices, in this order. */
  take(indices: readonly number[]): void {
    if (this.length === 0) return;
    const { numbers, marks, length } = this;
    this.numbers = new Float32Array(numbers.length).fill(NaN);
    indices.forEach((from, to) => (this.numbers[to] = from < length ? numbers[from]! : NaN));
    if (marks) {
      this.marks = new Uint8Array(marks.length);
      indices.forEach((from, to) => (this.marks![to] = marks[from] ?? 0));
    }
    this.length = indices.length;
  }

  /** Forgets the oldest `count` frames. */
  dropFirst(count: number): void {
    this.numbers.copyWithin(0, count);
    this.marks?.copyWithin(0, count);
    this.cutTo(Math.max(0, this.length - count));
  }

  /** Forgets every frame from `length` on. */
  cutTo(length: number): void {
    if (length >= this.length) return;
    this.numbers.fill(NaN, length);
    this.marks?.fill(0, length);
    this.length = length;
  }

  private grow(needed: number): void {
    const room = Math.max(FIRST_ROOM, this.numbers.length < 4096 ? this.numbers.length * 2 : this.numbers.length * 1.25, needed) | 0;
    const numbers = new Float32Array(room).fill(NaN);
    numbers.set(this.numbers);
    this.numbers = numbers;
    if (!this.marks) return;
    const marks = new Uint8Array(room);
    marks.set(this.marks);
    this.marks = marks;
  }
}
