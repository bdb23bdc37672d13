import type { Level, LevelInput, Point } from "./words";
import { CENTRE, type Item, type Rows, type Wire } from "./rows";

const ROW_GAP = 22;
/** Room between the border's ports and the children, where wires bend. */
const PORT_GAP = 10;
const EMPTY_WIDTH = 60;

interface Band {
  top: number;
  bottom: number;
}

/** Turns rows with places into boxes and wires with points. */
export function drawWires(input: LevelInput, rows: Rows): Level {
  const { left, right } = extent(rows.rows);
  const { bands, height } = stackRows(input, rows);
  const shift = input.padding.side - left;
  const x = rows.children.map((item) => item.x + shift);
  const y = rows.children.map((item) => {
    const band = bands[item.row]!;
    return (band.top + band.bottom - input.nodes[item.node]!.height) / 2;
  });
  // The first port of each side shares one axis; what is wired elsewhere bends inside the padding.
  const exits = rows.outPorts.map((item, index) => (index === 0 && rows.inPorts[0] ? rows.inPorts[0].x : item.x));
  const outPorts = exits.map((exit) => exit + shift + CENTRE);
  const scene: Scene = { input, rows, bands, height, shift, y, outPorts };
  return {
    x, y, height, outPorts,
    width: right - left + 2 * input.padding.side,
    inPorts: rows.inPorts.map((item) => item.x + shift + CENTRE),
    paths: rows.wires.map((wire) => points(wire, scene)),
  };
}

interface Scene {
  input: LevelInput;
  rows: Rows;
  bands: Band[];
  height: number;
  shift: number;
  y: number[];
  outPorts: number[];
}

function extent(rows: readonly Item[][]): { left: number; right: number } {
  let left = Infinity;
  let right = -Infinity;
  for (const row of rows)
    for (const item of row) {
      left = Math.min(left, item.x);
      right = Math.max(right, item.x + item.width);
    }
  return Number.isFinite(left) ? { left, right } : { left: 0, right: EMPTY_WIDTH };
}

/** Tops and bottoms of the rows; the first and the last, those of the ports, have no height. */
function stackRows(input: LevelInput, { rows }: Rows): { bands: Band[]; height: number } {
  const last = rows.length - 1;
  let y = input.padding.top;
  const bands = rows.map((row, index): Band => {
    const tallest = row.reduce((most, item) => Math.max(most, input.nodes[item.node]?.height ?? 0), 0);
    const band = { top: y, bottom: y + tallest };
    const beforePorts = index === last - 1;
    if (index === 0) y += input.inCount ? PORT_GAP : 0;
    else if (beforePorts) y = band.bottom + (input.outCount ? PORT_GAP : 0);
    else if (index < last) y = band.bottom + ROW_GAP;
    return band;
  });
  return { bands, height: y + input.padding.bottom };
}

function points(wire: Wire, scene: Scene): Point[] {
  const { bands, shift } = scene;
  const path: Point[] = [...startOf(wire, scene)];
  for (const lane of wire.lanes) {
    const x = lane.x + shift + CENTRE;
    path.push([x, bands[lane.row]!.top], [x, bands[lane.row]!.bottom]);
  }
  path.push(...endOf(wire, scene));
  return wire.reversed ? path.reverse() : path;
}

/** From the bottom of a child to the bottom of its row, or from the border to the first row. */
function startOf({ from, fromAt }: Wire, { input, bands, shift, y }: Scene): Point[] {
  const x = from.x + shift + fromAt;
  if (from.node < 0) return [[x, 0], [x, bands[1]!.top - PORT_GAP]];
  const bottom = y[from.node]! + input.nodes[from.node]!.height;
  const rowBottom = bands[from.row]!.bottom;
  return bottom < rowBottom ? [[x, bottom], [x, rowBottom]] : [[x, bottom]];
}

/** From the top of a row to the top of a child in it, or from the last row to the border. */
function endOf({ to, toAt }: Wire, { rows, bands, shift, y, height, outPorts }: Scene): Point[] {
  const x = to.x + shift + toAt;
  if (to.node < 0) return [[x, bands[to.row - 1]!.bottom + 2], [outPorts[rows.outPorts.indexOf(to)]!, height]];
  const top = y[to.node]!;
  const rowTop = bands[to.row]!.top;
  return top > rowTop ? [[x, rowTop], [x, top]] : [[x, top]];
}
