/** A number a frame, with room to grow; what was measured and is not finite is marked, what was not measured is a gap. */

export type Mark = "" | "nan" | "inf" | "-inf";
const MARKS: readonly Mark[] = ["", "nan", "inf", "-inf"];
const FIRST_ROOM = 256;

export class Series {
  private numbers = new Float32Array(FIRST_ROOM).fill(NaN);
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

  /** Index of the last frame with a number or a mark; -1 when there is none. */
  lastMeasured(): number {
    let index = this.length - 1;
    while (index >= 0 && Number.isNaN(this.numbers[index]) && !this.marks?.[index]) index--;
    return index;
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
    const room = Math.max(this.numbers.length * 2, needed);
    const numbers = new Float32Array(room).fill(NaN);
    numbers.set(this.numbers);
    this.numbers = numbers;
    if (!this.marks) return;
    const marks = new Uint8Array(room);
    marks.set(this.marks);
    this.marks = marks;
  }
}
