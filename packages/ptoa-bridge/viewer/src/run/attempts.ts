/**
 * Which frames of a run that was continued stand (FORMATS.md, section 6).
 *
 * An attempt begins at the step of its first frame in the file. Each attempt ends where the earliest of the later ones
 * begins: that part was trained again from a checkpoint. Lines may stand in any order of attempts and steps.
 */
export class Attempts {
  private readonly seen = new Set<number>();
  /** Beginnings that end something: attempts grow, and their first steps grow too. */
  private readonly stairs: { attempt: number; first: number }[] = [];

  /** Takes note of a frame; true when it begins an attempt that ends an earlier one. */
  note(attempt: number, step: number): boolean {
    if (this.seen.has(attempt)) return false;
    this.seen.add(attempt);
    const at = this.after(attempt);
    if (at < this.stairs.length && this.stairs[at]!.first <= step) return false;
    let from = at;
    while (from > 0 && this.stairs[from - 1]!.first >= step) from--;
    this.stairs.splice(from, at - from, { attempt, first: step });
    return true;
  }

  /** The step from which on a later attempt stands in the place of this one. */
  endOf(attempt: number): number {
    return this.stairs[this.after(attempt)]?.first ?? Infinity;
  }

  /** Index of the first stair of a later attempt. */
  private after(attempt: number): number {
    let low = 0;
    let high = this.stairs.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.stairs[middle]!.attempt <= attempt) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
