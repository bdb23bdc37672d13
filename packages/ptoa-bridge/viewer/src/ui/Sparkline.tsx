/** Small courses of measures over all frames; stretches with NaN or Inf are marked at the upper edge. */
import { envelope } from "../run/lines";
import type { Series } from "../run/series";
import { prepare } from "./Histogram";
import type { Theme } from "./colours";
import { theme } from "./theme";

const HEIGHT = 15;
const [LEFT, RIGHT, BOTTOM] = [6, 8, 3];

export interface Sizes {
  /** Number of frames across. */
  length: number;
  cellWidth: number;
  rowHeight: number;
  /** The frame that is looked at. */
  chosen: number | null;
}

/** A row of courses for each row of a table, at the lower edge of its cells. */
export function drawSparklines(canvas: HTMLCanvasElement, rows: readonly (readonly (Series | undefined)[])[], sizes: Sizes): void {
  const { cellWidth, rowHeight } = sizes;
  const context = prepare(canvas, (rows[0]?.length ?? 0) * cellWidth, rows.length * rowHeight);
  const colours = theme();
  context.lineWidth = 1;
  context.lineJoin = "round";
  rows.forEach((row, r) =>
    row.forEach((series, c) => {
      if (!series?.length) return;
      context.save();
      context.translate(c * cellWidth + LEFT, (r + 1) * rowHeight - HEIGHT - BOTTOM);
      drawOne(context, series, cellWidth - LEFT - RIGHT, sizes, colours);
      context.restore();
    }),
  );
}

function drawOne(context: CanvasRenderingContext2D, series: Series, width: number, { length, chosen }: Sizes, colours: Theme): void {
  const { low, high, marks } = envelope(series, length, width);
  const x = (column: number): number => ((column + 0.5) * width) / low.length;
  let [bottom, top] = [Infinity, -Infinity];
  for (let i = 0; i < low.length; i++) {
    if (low[i]! < bottom) bottom = low[i]!;
    if (high[i]! > top) top = high[i]!;
  }
  const y = (value: number): number => (top === bottom ? HEIGHT / 2 : HEIGHT - ((value - bottom) / (top - bottom)) * HEIGHT);
  context.strokeStyle = colours["curve-1"];
  context.beginPath();
  for (let i = 0; i < low.length; i++) {
    if (Number.isNaN(low[i])) continue;
    context.lineTo(x(i), y(low[i]!));
    if (high[i] !== low[i]) context.lineTo(x(i), y(high[i]!));
  }
  context.stroke();
  context.fillStyle = colours.accent;
  if (chosen !== null) context.fillRect(((chosen + 0.5) * width) / length, 0, 1, HEIGHT);
  context.fillStyle = colours.bad;
  marks.forEach((mark, i) => mark && context.fillRect(x(i) - 1, -1, 2, 5));
}
