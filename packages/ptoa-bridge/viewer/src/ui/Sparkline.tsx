import { useLayoutEffect, useRef } from "preact/hooks";
import { envelope } from "../run/lines";
import type { Series } from "../run/series";
import { prepare } from "./Histogram";
import { theme } from "./theme";

export const SPARK_WIDTH = 128;
const HEIGHT = 22;
const EDGE = 3;

/** The course of one measure over all frames; stretches with NaN or Inf are marked at the upper edge. */
export function Sparkline({ series, length, label }: { series: Series; length: number; label: string }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useLayoutEffect(() => draw(canvas.current!, series, length));
  return <canvas ref={canvas} role="img" aria-label={label} />;
}

function draw(canvas: HTMLCanvasElement, series: Series, length: number): void {
  const context = prepare(canvas, SPARK_WIDTH, HEIGHT);
  const { low, high, marks } = envelope(series, length, SPARK_WIDTH);
  const colours = theme();
  const x = (column: number): number => ((column + 0.5) * SPARK_WIDTH) / low.length;
  let bottom = Infinity;
  let top = -Infinity;
  for (let i = 0; i < low.length; i++) {
    if (low[i]! < bottom) bottom = low[i]!;
    if (high[i]! > top) top = high[i]!;
  }
  const y = (value: number): number => (top === bottom ? HEIGHT / 2 : HEIGHT - EDGE - ((value - bottom) / (top - bottom)) * (HEIGHT - 2 * EDGE));
  context.strokeStyle = colours["curve-1"];
  context.lineWidth = 1.2;
  context.lineJoin = "round";
  context.beginPath();
  for (let i = 0; i < low.length; i++) {
    if (Number.isNaN(low[i])) continue;
    context.lineTo(x(i), y(low[i]!));
    if (high[i] !== low[i]) context.lineTo(x(i), y(high[i]!));
  }
  context.stroke();
  context.fillStyle = colours.bad;
  marks.forEach((mark, i) => mark && context.fillRect(x(i) - 1, 0, 2, 5));
}
