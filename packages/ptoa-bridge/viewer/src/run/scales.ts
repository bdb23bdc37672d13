/** Colour scales for the measures that tell how training goes: one for the map, the table and the graph. */
import { MEASURES } from "./measures";
import type { Series } from "./series";

/**
 * `around`: far below and far above a usual value, in powers of ten, as for sizes that vanish or explode.
 * `share`: from none to all. `upward`: from zero to the largest.
 */
type Kind = "around" | "share" | "upward";

export interface MapMeasure {
  key: string;
  title: string;
  unit: string;
  kind: Kind;
  /** Keys of MEASURES; of several, the first that a block has. */
  from: readonly string[];
  /** The usual value; without it the median of what is there. */
  centre?: number;
}

export const MAP_MEASURES: readonly MapMeasure[] = [
  { key: "updateRatio", title: "update ratio", unit: "", kind: "around", from: ["updateRatio"], centre: 1e-3 },
  { key: "activation", title: "activation size", unit: "std", kind: "around", from: ["std"] },
  { key: "gradient", title: "gradient size", unit: "RMS", kind: "around", from: ["gradient"] },
  { key: "dead", title: "dead share", unit: "of values exactly 0", kind: "share", from: ["hiddenZeros", "zeros"] },
  { key: "entropy", title: "entropy", unit: "nats", kind: "upward", from: ["entropy"] },
];

const NOT_FINITE = MEASURES.findIndex((measure) => measure.key === "notFinite");
const indices = new Map(MAP_MEASURES.map((one) => [one.key, one.from.map((key) => MEASURES.findIndex((measure) => measure.key === key))]));

/** The series of a block that this measure shows. */
export function seriesFor(measure: MapMeasure, block: readonly Series[] | undefined): Series | undefined {
  const index = indices.get(measure.key)!.find((m) => (block?.[m]?.length ?? 0) > 0);
  return index === undefined ? undefined : block![index];
}

/** Whether something of a block was NaN or infinite in a frame. */
export const isBroken = (block: readonly Series[], series: Series | undefined, index: number): boolean =>
  block[NOT_FINITE]!.at(index) > 0 || (series !== undefined && series.markAt(index) !== "");

export interface Scale {
  kind: Kind;
  low: number;
  centre: number;
  high: number;
  /** Place of a value between 0 (low) and 1 (high). */
  place(value: number): number;
}

const SAMPLES = 4_000;
const [LEAST_DECADES, MOST_DECADES] = [1, 4];

/** A scale that fits what these blocks measured; it moves in steps, so that colours hold still while frames come. */
export function scaleFor(measure: MapMeasure, blocks: Iterable<readonly Series[]>): Scale {
  if (measure.kind === "share") return linear("share", 1);
  const values = sample([...blocks].flatMap((block) => seriesFor(measure, block) ?? []));
  if (measure.kind === "upward") return linear("upward", Math.max(1, Math.ceil(values.at(-1) ?? 1)));
  const positive = values.filter((value) => value > 0);
  const middle = measure.centre ?? positive[positive.length >> 1] ?? 1;
  const centre = 10 ** (Math.round(Math.log10(middle) * 2) / 2);
  const ends = [positive[Math.floor(positive.length * 0.01)], positive[Math.floor(positive.length * 0.99)]];
  const far = Math.max(...ends.map((value) => Math.abs(Math.log10((value ?? centre) / centre))));
  return around(centre, Math.min(MOST_DECADES, Math.max(LEAST_DECADES, Math.ceil(far))));
}

function linear(kind: Kind, high: number): Scale {
  return { kind, low: 0, centre: high / 2, high, place: (value) => Math.min(1, Math.max(0, value / high)) };
}

function around(centre: number, decades: number): Scale {
  const place = (value: number): number => (value > 0 ? Math.min(1, Math.max(0, 0.5 + Math.log10(value / centre) / (2 * decades))) : 0);
  return { kind: "around", low: centre * 10 ** -decades, centre, high: centre * 10 ** decades, place };
}

/** Some thousand finite numbers of these series, evenly taken, by size. */
function sample(series: readonly Series[]): number[] {
  const total = series.reduce((sum, one) => sum + one.length, 0);
  const stride = Math.max(1, Math.floor(total / SAMPLES));
  const found: number[] = [];
  let skip = 0;
  for (const one of series) {
    let i = skip;
    for (; i < one.length; i += stride) if (Number.isFinite(one.at(i))) found.push(one.at(i));
    skip = i - one.length;
  }
  return found.sort((a, b) => a - b);
}

/** How much a place stands out: the ends of a scale around a usual value, the top of any other. */
export const standsOut = (scale: Scale, place: number): number => (scale.kind === "around" ? Math.abs(place - 0.5) * 2 : place);

type Rgb = readonly [number, number, number];
/** Stops of even steps; lightness goes one way from the middle or the start, so that any colour vision can read them. */
const STOPS: Record<"around" | "rising", Record<"light" | "dark", readonly Rgb[]>> = {
  around: {
    light: [[8, 58, 122], [67, 133, 190], [236, 238, 240], [214, 128, 44], [120, 50, 0]],
    dark: [[150, 208, 255], [60, 124, 186], [38, 45, 54], [190, 108, 30], [255, 205, 130]],
  },
  rising: {
    light: [[236, 240, 243], [152, 202, 196], [62, 140, 168], [24, 76, 130], [14, 22, 70]],
    dark: [[32, 39, 47], [30, 84, 112], [52, 150, 156], [150, 210, 140], [250, 246, 170]],
  },
};

/** 256 colours of a scale as canvas pixels, from low to high. */
export function palette(kind: Kind, isDark: boolean): Uint32Array {
  const stops = STOPS[kind === "around" ? "around" : "rising"][isDark ? "dark" : "light"];
  return Uint32Array.from({ length: 256 }, (_, i) => {
    const at = (i / 255) * (stops.length - 1);
    const [from, to] = [stops[Math.floor(at)]!, stops[Math.ceil(at)]!];
    const [r, g, b] = from.map((value, c) => Math.round(value + (to[c]! - value) * (at % 1))) as [number, number, number];
    return pixel(r, g, b);
  });
}

/** A pixel of canvas data: its bytes are red, green, blue and opacity on every machine that has a browser. */
export const pixel = (r: number, g: number, b: number): number => (255 << 24 | b << 16 | g << 8 | r) >>> 0;

export const cssColour = (colours: Uint32Array, place: number): string => {
  const value = colours[Math.round(place * 255)]!;
  return `rgb(${value & 255} ${(value >> 8) & 255} ${(value >> 16) & 255})`;
};
