/** Paints at most once a display frame and eight times a second; in a hidden tab it waits, while data keep coming. */

const BETWEEN = 125;
/** A paint that takes long is followed by a pause this many times as long, so that the page stays at hand. */
const REST = 8;
const LONGEST_REST = 800;

export class Painter {
  private timer = 0;
  /** When the paint that was asked for comes; Infinity where none was. */
  private due = Infinity;
  private last = -Infinity;
  private rest = BETWEEN;

  constructor(private readonly paint: () => void) {}

  /** Asks for a paint soon, or no sooner than `wait` milliseconds after the last; many requests make one. */
  request(wait = 0): void {
    const due = this.last + Math.max(this.rest, wait);
    if (due >= this.due) return;
    this.due = due;
    clearTimeout(this.timer);
    const pause = due - performance.now();
    if (pause > 0) this.timer = window.setTimeout(() => this.atNextFrame(), pause);
    else this.atNextFrame();
  }

  private atNextFrame(): void {
    // From here on it comes with the next display frame; nothing that is asked for can be sooner.
    this.due = -Infinity;
    requestAnimationFrame(() => {
      this.due = Infinity;
      const begun = performance.now();
      this.last = begun;
      this.rest = BETWEEN;
      this.paint();
      // Panels draw in microtasks after the signal that was set; a task of its own comes when they are through.
      setTimeout(() => (this.rest = Math.min(LONGEST_REST, Math.max(BETWEEN, REST * (performance.now() - begun)))));
    });
  }
}
