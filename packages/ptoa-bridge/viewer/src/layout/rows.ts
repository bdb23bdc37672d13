import { BORDER, type LevelEdge, type LevelInput } from "./words";

/** What stands in a row: a child, a port of the border, or the lane of a wire that passes through. */
export interface Item {
  /** Index of the child; -1 for ports and lanes. */
  node: number;
  isLane: boolean;
  width: number;
  row: number;
  /** Place in the row, from the left. */
  position: number;
  x: number;
  up: Link[];
  down: Link[];
}

/** A piece of wire from one row to the next, seen from one of its ends. */
export interface Link {
  item: Item;
  /** Distance of the wire from the left edge of this item, and of the other one. */
  here: number;
  there: number;
  weight: number;
}

export interface Wire {
  from: Item;
  to: Item;
  fromAt: number;
  toAt: number;
  lanes: Item[];
  /** It runs upwards in the model; its points are turned round when drawn. */
  reversed: boolean;
}

/** The rows from the border's in-ports (first) to its out-ports (last). */
export interface Rows {
  rows: Item[][];
  /** Items of the children, by index. */
  children: Item[];
  inPorts: Item[];
  outPorts: Item[];
  wires: Wire[];
}

const THIN = 2;
/** Where a wire meets a port or a lane. */
export const CENTRE = THIN / 2;
const LANE_WEIGHT = 8;
const LANE_END_WEIGHT = 0.3;
/** Past this many lanes long wires are drawn directly: a flat model of 100,000 blocks must not need 10^10 of them. */
const MAX_LANES = 20_000;

export function buildRows(input: LevelInput, rank: readonly number[]): Rows {
  const last = rank.reduce((most, r) => Math.max(most, r), 0) + 2;
  const rows: Item[][] = Array.from({ length: last + 1 }, () => []);
  const add = (node: number, row: number, width: number, isLane = false): Item => {
    const item: Item = { node, isLane, width, row, position: rows[row]!.length, x: 0, up: [], down: [] };
    rows[row]!.push(item);
    return item;
  };
  const inPorts = Array.from({ length: input.inCount }, () => add(-1, 0, THIN));
  const outPorts = Array.from({ length: input.outCount }, () => add(-1, last, THIN));
  const children = input.nodes.map((node, index) => add(index, rank[index]! + 1, node.width));
  const ends = input.edges.map((edge) => endsOf(edge, input, children, inPorts, outPorts));
  const addLane = laneMaker(ends, input.edges, (row) => add(-1, row, THIN, true));
  const wires = ends.map((wire, index) => wireUp(wire, input.edges[index]!, addLane));
  return { rows, children, inPorts, outPorts, wires };
}

/** A wire with its ends, the upper one first. */
function endsOf(edge: LevelEdge, input: LevelInput, children: Item[], inPorts: Item[], outPorts: Item[]): Wire {
  const { source, sourcePort, target, targetPort } = edge;
  const from = source === BORDER ? inPorts[sourcePort]! : children[source]!;
  const to = target === BORDER ? outPorts[targetPort]! : children[target]!;
  const fromAt = source === BORDER ? CENTRE : input.nodes[source]!.outPorts[sourcePort] ?? from.width / 2;
  const toAt = target === BORDER ? CENTRE : input.nodes[target]!.inPorts[targetPort] ?? to.width / 2;
  if (from.row < to.row) return { from, to, fromAt, toAt, lanes: [], reversed: false };
  return { from: to, to: from, fromAt: toAt, toAt: fromAt, lanes: [], reversed: true };
}

type LaneMaker = ((edge: LevelEdge, row: number, shared: boolean) => { lane: Item; isNew: boolean }) | null;

/** Makes lanes; wires that carry one tensor share theirs. */
function laneMaker(wires: readonly Wire[], edges: readonly LevelEdge[], add: (row: number) => Item): LaneMaker {
  if (lanesNeeded(wires, edges) > MAX_LANES) return null;
  const lanes = new Map<string, Item>();
  return (edge, row, shared) => {
    const key = `${tensorOf(edge)} ${row}`;
    const known = shared ? lanes.get(key) : undefined;
    if (known) return { lane: known, isNew: false };
    const lane = add(row);
    if (shared) lanes.set(key, lane);
    return { lane, isNew: true };
  };
}

const tensorOf = (edge: LevelEdge): string => `${edge.source} ${edge.sourcePort}`;

/** Each tensor needs a lane in every row that its longest wire passes. */
function lanesNeeded(wires: readonly Wire[], edges: readonly LevelEdge[]): number {
  const longest = new Map<string, number>();
  wires.forEach((wire, i) => {
    const tensor = tensorOf(edges[i]!);
    longest.set(tensor, Math.max(longest.get(tensor) ?? 0, wire.to.row - wire.from.row - 1));
  });
  return [...longest.values()].reduce((sum, rows) => sum + rows, 0);
}

/** Links the ends of a wire row by row, through a lane in each row between. */
function wireUp(wire: Wire, edge: LevelEdge, addLane: LaneMaker): Wire {
  const { from, to } = wire;
  const rows = to.row - from.row;
  if (rows === 0 || (rows > 1 && !addLane)) return wire;
  let above = from;
  let at = wire.fromAt;
  for (let row = from.row + 1; row < to.row; row++) {
    const { lane, isNew } = addLane!(edge, row, !wire.reversed);
    if (isNew) link(above, at, lane, CENTRE, above === from ? LANE_END_WEIGHT : LANE_WEIGHT);
    wire.lanes.push(lane);
    above = lane;
    at = CENTRE;
  }
  link(above, at, to, wire.toAt, rows > 1 ? LANE_END_WEIGHT : edge.weight);
  return wire;
}

function link(upper: Item, upperAt: number, lower: Item, lowerAt: number, weight: number): void {
  upper.down.push({ item: lower, here: upperAt, there: lowerAt, weight });
  lower.up.push({ item: upper, here: lowerAt, there: upperAt, weight });
}
