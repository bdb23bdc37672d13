import { useLayoutEffect, useRef } from "preact/hooks";
import { number } from "../run/numbers";
import { theme } from "./theme";

const WIDTH = 64;
const HEIGHT = 24;

/** Equal bins over [−limit, limit]. */
export function Histogram({ counts, limit }: { counts: readonly number[]; limit: number }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useLayoutEffect(() => draw(canvas.current!, counts));
  const label = `Histogram of ${counts.length} bins from −${number(limit)} to ${number(limit)}`;
  return <canvas ref={canvas} class="histogram" role="img" aria-label={label} title={label} />;
}

function draw(canvas: HTMLCanvasElement, counts: readonly number[]): void {
  const context = prepare(canvas, WIDTH, HEIGHT);
  const most = counts.reduce((high, n) => Math.max(high, n), 0) || 1;
  const bin = WIDTH / counts.length;
  context.fillStyle = theme()["curve-1"];
  // A bin that is not empty stays visible beside one that holds nearly everything.
  counts.forEach((n, i) => {
    const height = n > 0 ? Math.max(1, (n / most) * (HEIGHT - 1)) : 0;
    context.fillRect(i * bin, HEIGHT - height, Math.max(1, bin - 0.5), height);
  });
}

/** A cleared canvas in the screen's own pixels. */
export function prepare(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const ratio = devicePixelRatio;
  const context = canvas.getContext("2d")!;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}
