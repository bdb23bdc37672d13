/** The map of a run as pixels: blocks down, steps along. Where several frames share a pixel, what stands out most shows. */
import { isBroken, seriesFor, standsOut, type MapMeasure, type Scale } from "./scales";
import type { Series } from "./series";
import { upperBound } from "./store";

export interface Grid {
  /** Place on the scale; NaN where nothing was measured, Infinity where something was NaN or infinite. */
  places: Float32Array;
  width: number;
  height: number;
}

/** For each of `width` columns between two places on the axis: the first frame, and the one after the last. */
export function columnsOf(axis: ArrayLike<number>, [from, to]: readonly [number, number], width: number): Int32Array {
  const bounds = new Int32Array(2 * width);
  for (let column = 0; column < width; column++) {
    const left = from + ((to - from) * column) / width;
    const right = from + ((to - from) * (column + 1)) / width;
    const end = column === width - 1 ? upperBound(axis, to) : upperBound(axis, right);
    // Between two frames the earlier one holds on.
    const start = Math.min(column === 0 ? upperBound(axis, from) - 1 : upperBound(axis, left), end - 1);
    bounds[2 * column] = Math.max(0, start);
    bounds[2 * column + 1] = end;
  }
  return bounds;
}

/** Rows of `blocks` gathered into at most `height` rows of pixels. */
export function rasterise(blocks: readonly (readonly Series[])[], measure: MapMeasure, scale: Scale, columns: Int32Array, height: number): Grid {
  const width = columns.length / 2;
  const rows = Math.max(1, Math.min(height, blocks.length));
  const places = new Float32Array(width * rows).fill(NaN);
  blocks.forEach((block, b) => {
    const row = Math.floor((b * rows) / blocks.length);
    rasteriseRow(block, seriesFor(measure, block), scale, columns, places.subarray(row * width, (row + 1) * width));
  });
  return { places, width, height: rows };
}

function rasteriseRow(block: readonly Series[], series: Series | undefined, scale: Scale, columns: Int32Array, into: Float32Array): void {
  const broken = brokenFrames(block, series);
  const values = series?.values;
  const length = series?.length ?? 0;
  for (let column = 0; column < into.length; column++) {
    const end = columns[2 * column + 1]!;
    let low = Infinity;
    let high = -Infinity;
    for (let i = columns[2 * column]!; i < end; i++) {
      if (broken?.[i]) into[column] = Infinity;
      if (i >= length) continue;
      const value = values![i]!;
      if (value < low) low = value;
      if (value > high) high = value;
    }
    if (high >= low && into[column] !== Infinity) into[column] = worse(scale, into[column]!, worse(scale, scale.place(low), scale.place(high)));
  }
}

const worse = (scale: Scale, a: number, b: number): number => (standsOut(scale, b) >= standsOut(scale, a) || Number.isNaN(a) ? b : a);

/** Frames in which a block had NaN or infinite values; null where it never had. */
function brokenFrames(block: readonly Series[], series: Series | undefined): Uint8Array | null {
  const length = Math.max(...block.map((one) => one.length));
  let broken: Uint8Array | null = null;
  const counts = block.at(-1)!;
  if (!series?.isMarked && !counts.values.some((count) => count > 0)) return null;
  for (let i = 0; i < length; i++) if (isBroken(block, series, i)) (broken ??= new Uint8Array(length))[i] = 1;
  return broken;
}

/** Pixels of a grid; broken places are a check of two colours, which no scale holds. */
export function paintGrid({ places, width }: Grid, colours: Uint32Array, check: readonly [number, number]): Uint32Array {
  const pixels = new Uint32Array(places.length);
  for (let i = 0; i < places.length; i++) {
    const place = places[i]!;
    if (place <= 1) pixels[i] = colours[(place * 255) | 0]!;
    else if (place === Infinity) pixels[i] = check[((i % width) >> 1) & 1]!;
  }
  return pixels;
}
