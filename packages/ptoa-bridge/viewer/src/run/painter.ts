/** Paints at most once a display frame and ten times a second; in a hidden tab it waits, while data keep coming. */

const BETWEEN = 100;

export class Painter {
  private waiting = false;
  private last = -Infinity;

  constructor(private readonly paint: () => void) {}

  /** Asks for a paint soon; many requests make one. */
  request(): void {
    if (this.waiting) return;
    this.waiting = true;
    const pause = Math.max(0, this.last + BETWEEN - performance.now());
    if (pause > 0) setTimeout(() => this.atNextFrame(), pause);
    else this.atNextFrame();
  }

  private atNextFrame(): void {
    requestAnimationFrame(() => {
      this.waiting = false;
      this.last = performance.now();
      this.paint();
    });
  }
}
