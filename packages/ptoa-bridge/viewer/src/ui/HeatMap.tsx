/** A grid of numbers in colours, with the value under the pointer or under the keys. */
import { useSignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { heatPixels, type Grid, type HeatScale } from "../model/heat";
import { number } from "../run/numbers";
import { cssColour, palette, pixel, type Scale } from "../run/scales";
import { prepare } from "./Histogram";
import { isDark, schemeChanges } from "./theme";

export interface Cell {
  row: number;
  column: number;
}

interface HeatMapProps {
  grid: Grid;
  scale: HeatScale;
  width: number;
  label: string;
  /** Called with the cell under the pointer, null beside all of them. */
  onPoint(cell: Cell | null): void;
}

const [LEAST_HEIGHT, MOST_HEIGHT, LARGEST_CELL] = [14, 220, 14];
const STEPS: Record<string, readonly [down: number, right: number]> = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
const [BROKEN_LIGHT, BROKEN_DARK] = [pixel(214, 0, 110), pixel(255, 80, 170)];

/** Cells are square where there is room for that. */
function sizeOf({ rows, columns }: Grid, room: number): [width: number, height: number] {
  const cell = Math.min(LARGEST_CELL, room / columns);
  return [Math.max(1, Math.round(cell * columns)), Math.max(LEAST_HEIGHT, Math.min(MOST_HEIGHT, Math.round(Math.max(cell, 1) * rows)))];
}

export function HeatMap({ grid, scale, width: room, label, onPoint }: HeatMapProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const at = useRef<Cell>({ row: 0, column: 0 });
  const [width, height] = sizeOf(grid, room);
  useLayoutEffect(() => {
    const context = prepare(canvas.current!, width, height);
    const { width: wide, height: high } = canvas.current!;
    const colours = palette(scale.kind, isDark());
    const pixels = heatPixels(grid, scale, wide, high, colours, isDark() ? BROKEN_DARK : BROKEN_LIGHT);
    context.putImageData(new ImageData(new Uint8ClampedArray(pixels.buffer as ArrayBuffer), wide, high), 0, 0);
  }, [grid, scale.kind, scale.high, width, height, schemeChanges.value]);
  const point = (row: number, column: number): void => {
    at.current = { row: clamp(row, grid.rows), column: clamp(column, grid.columns) };
    onPoint(at.current);
  };
  return (
    <canvas
      ref={canvas} class="heat" role="img" tabIndex={0} aria-label={label}
      onPointerMove={(event) => point(Math.floor((event.offsetY / height) * grid.rows), Math.floor((event.offsetX / width) * grid.columns))}
      onPointerLeave={() => onPoint(null)} onFocus={() => point(at.current.row, at.current.column)} onBlur={() => onPoint(null)}
      onKeyDown={(event) => {
        const step = STEPS[event.key];
        if (!step) return;
        event.preventDefault();
        point(at.current.row + step[0], at.current.column + step[1]);
      }}
    />
  );
}

const clamp = (value: number, size: number): number => Math.max(0, Math.min(size - 1, value));

/** The colours of a scale from its low end to its high one. */
export function ColourBar({ kind, label }: { kind: Scale["kind"]; label: string }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useLayoutEffect(() => {
    const [width, height] = [96, 10];
    const context = prepare(canvas.current!, width, height);
    const colours = palette(kind, isDark());
    for (let x = 0; x < width; x++) {
      context.fillStyle = cssColour(colours, x / (width - 1));
      context.fillRect(x, 0, 1, height);
    }
  }, [kind, schemeChanges.value]);
  return <canvas ref={canvas} role="img" aria-label={label} />;
}

/** What the colours of a heat map mean. */
export function HeatLegend({ scale: { kind, low, high } }: { scale: HeatScale }) {
  return (
    <span class="legend">
      <span>{number(low)}</span>
      <ColourBar kind={kind} label={`Colours from ${number(low)} to ${number(high)}`} />
      <span>{number(high)}</span>
    </span>
  );
}

/** A value as it is read off a heat map. */
export const valueOf = (value: number): string => (Number.isFinite(value) ? number(value) : Number.isNaN(value) ? "NaN" : value > 0 ? "Inf" : "−Inf");

/** The cell that is pointed at, in words. */
export const useCell = () => useSignal<(Cell & { of: number }) | null>(null);
