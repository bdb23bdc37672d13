/** Paints at most once a display frame and eight times a second; in a hidden tab it waits, while data keep coming. */

const BETWEEN = 125;
/** A paint that takes long is followed by a pause this many times as long, so that the page stays at hand. */
const REST = 8;

export class Painter {
  private waiting = false;
  private next = -Infinity;
  private last = -Infinity;

  constructor(private readonly paint: () => void) {}

  /** Asks for a paint soon, or no sooner than `wait` milliseconds after the last; many requests make one. */
  request(wait = 0): void {
    if (this.waiting) return;
    this.waiting = true;
    const pause = Math.max(0, this.next - performance.now(), this.last + wait - performance.now());
    if (pause > 0) setTimeout(() => this.atNextFrame(), pause);
    else this.atNextFrame();
  }

  private atNextFrame(): void {
    requestAnimationFrame(() => {
      this.waiting = false;
      const begun = performance.now();
      this.last = begun;
      this.next = begun + BETWEEN;
      this.paint();
      // Panels draw in microtasks after the signal that was set; a task of its own comes when they are through.
      setTimeout(() => (this.next = begun + Math.max(BETWEEN, REST * (performance.now() - begun))));
    });
  }
}
