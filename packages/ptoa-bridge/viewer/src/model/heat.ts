/** A tensor as pictures: its last two axes as rows and columns, one slice for each place on the axes before them. */

export interface Grid {
  rows: number;
  columns: number;
  /** Row after row. */
  values: Float32Array;
}

const product = (sizes: readonly number[]): number => sizes.reduce((all, size) => all * size, 1);
const lastTwo = (shape: readonly number[]): [rows: number, columns: number] => [shape.at(-2) ?? 1, shape.at(-1) ?? 1];

/** How many slices a tensor has. */
export const sliceCount = (shape: readonly number[]): number => product(shape.slice(0, -2));

export function sliceOf(shape: readonly number[], values: Float32Array, slice: number): Grid {
  const [rows, columns] = lastTwo(shape);
  return { rows, columns, values: values.subarray(slice * rows * columns, (slice + 1) * rows * columns) };
}

/** The index along each axis of a value; empty for a single number. */
export function placeIn(shape: readonly number[], slice: number, row: number, column: number): number[] {
  const place: number[] = [];
  let rest = slice;
  for (const size of shape.slice(0, -2).reverse()) {
    place.unshift(rest % size);
    rest = Math.floor(rest / size);
  }
  return [...place, row, column].slice(place.length + 2 - shape.length);
}

/** What colours say: from 0 to the largest where nothing is below 0, else as far down as up, with 0 in the middle. */
export interface HeatScale {
  kind: "around" | "upward";
  low: number;
  high: number;
}

export function heatScale(values: Float32Array): HeatScale {
  let [low, high] = [0, 0];
  for (const value of values) {
    if (!Number.isFinite(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  const most = Math.max(high, -low);
  return low < 0 ? { kind: "around", low: -most, high: most } : { kind: "upward", low: 0, high };
}

/**
 * A grid as `width` × `height` pixels.
 *
 * Where several values share a pixel it shows the one farthest from 0, and what is not finite before all others.
 */
export function heatPixels(grid: Grid, scale: HeatScale, width: number, height: number, colours: Uint32Array, broken: number): Uint32Array {
  const pixels = new Uint32Array(width * height);
  const span = scale.high - scale.low || 1;
  const columns = edges(grid.columns, width);
  const rows = edges(grid.rows, height);
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) {
      const value = farthest(grid, rows[y]!, columns[x]!);
      pixels[y * width + x] = Number.isFinite(value) ? colours[Math.round(((value - scale.low) / span) * 255)]! : broken;
    }
  return pixels;
}

/** For each of `pixels` the cells it covers: at least one. */
function edges(cells: number, pixels: number): [from: number, to: number][] {
  return Array.from({ length: pixels }, (_, i) => {
    const from = Math.floor((i * cells) / pixels);
    return [from, Math.max(from + 1, Math.floor(((i + 1) * cells) / pixels))];
  });
}

function farthest({ columns, values }: Grid, [top, bottom]: [number, number], [left, right]: [number, number]): number {
  let most = 0;
  for (let row = top; row < bottom; row++)
    for (let column = left; column < right; column++) {
      const value = values[row * columns + column]!;
      if (!Number.isFinite(value)) return NaN;
      if (Math.abs(value) > Math.abs(most)) most = value;
    }
  return most;
}

/** Mean entropy in nats of rows of probabilities. */
export function entropyOf({ rows, values }: Grid): number {
  let sum = 0;
  for (const p of values) if (p > 0) sum -= p * Math.log(p);
  return sum / rows;
}
