/**
 * Horizontal places. Items whose wire runs straight are tied into a column that moves as one; columns then move towards
 * what they are wired to, as far as the distance to their neighbours allows.
 */
import type { Item, Link, Rows } from "./rows";

const NODE_GAP = 18;
const LANE_GAP = 10;
const PASSES = 24;
const SPINE_PULL = 2;

interface Column {
  x: number;
  items: Item[];
  packedLeft: number;
}

interface Placed {
  column: Column;
  /** Distance of the item from the column's x. */
  offset: number;
}

interface Tie {
  upper: Item;
  lower: Item;
  shift: number;
  weight: number;
  /** Middle wires of an item are tied before outer ones. */
  eccentricity: number;
}

export function alignColumns(rows: Rows): void {
  const places = new Map<Item, Placed>();
  const columns = inOrder(makeColumns(rows.rows, places), rows.rows, places);
  const bounds = new Bounds(rows.rows, places);
  pack(columns, bounds);
  for (let pass = 0; pass < PASSES; pass++)
    for (const column of pass % 2 ? columns : columns.toReversed())
      column.x = clamp(wanted(column, rows, places), bounds.left(column), bounds.right(column));
  for (const [item, { column, offset }] of places) item.x = column.x + offset;
}

const clamp = (x: number, low: number, high: number): number => Math.max(low, Math.min(high, x));

function makeColumns(rows: readonly Item[][], places: Map<Item, Placed>): Column[] {
  const below = new Map<Item, Tie>();
  const tied = new Set<Item>();
  for (const row of rows)
    for (const tie of straightTies(row, tied)) {
      below.set(tie.upper, tie);
      tied.add(tie.lower);
    }
  const tops = rows.flat().filter((item) => !tied.has(item));
  return tops.map((top) => columnFrom(top, below, places));
}

function columnFrom(top: Item, below: Map<Item, Tie>, places: Map<Item, Placed>): Column {
  const column: Column = { x: 0, items: [], packedLeft: 0 };
  let offset = 0;
  for (let item: Item | undefined = top; item; ) {
    column.items.push(item);
    places.set(item, { column, offset });
    const tie: Tie | undefined = below.get(item);
    offset += tie?.shift ?? 0;
    item = tie?.lower;
  }
  return column;
}

/** The wires below a row that become straight: heaviest first, at most one an end, none crossing another. */
function straightTies(row: readonly Item[], tied: ReadonlySet<Item>): Tie[] {
  const chosen: Tie[] = [];
  const upper = new Set<Item>();
  const lower = new Set<Item>();
  const candidates = row.flatMap(tiesBelow).sort((a, b) => b.weight - a.weight || a.eccentricity - b.eccentricity);
  for (const tie of candidates) {
    if (tied.has(tie.lower) || upper.has(tie.upper) || lower.has(tie.lower) || isForked(tie)) continue;
    if (chosen.some((other) => crosses(tie, other))) continue;
    chosen.push(tie);
    upper.add(tie.upper);
    lower.add(tie.lower);
  }
  return chosen;
}

function tiesBelow(upper: Item): Tie[] {
  const middle = (upper.down.length - 1) / 2;
  const links = upper.down.slice().sort((a, b) => a.item.position - b.item.position);
  return links.map(({ item: lower, here, there, weight }, index) => ({
    upper, lower, weight, shift: here - there,
    eccentricity: Math.abs(index - middle) + Math.abs(lower.up.length - 1) * 0.01,
  }));
}

const crosses = (a: Tie, b: Tie): boolean =>
  (a.upper.position - b.upper.position) * (a.lower.position - b.lower.position) < 0;

/** An even fork has no middle wire: tying one of its arms would make equal arms look different. */
const isForked = (tie: Tie): boolean => evenAt(tie.upper.down, tie.weight) || evenAt(tie.lower.up, tie.weight);
const evenAt = (links: readonly Link[], weight: number): boolean =>
  links.reduce((even, link) => (link.weight === weight ? !even : even), true);

/** How far left or right a column can go before it meets a neighbour in any of its rows. */
class Bounds {
  constructor(
    private readonly rows: readonly Item[][],
    private readonly places: ReadonlyMap<Item, Placed>,
  ) {}

  left(column: Column): number {
    let bound = -Infinity;
    for (const item of column.items) {
      const neighbour = this.rows[item.row]![item.position - 1];
      if (neighbour) bound = Math.max(bound, this.xOf(neighbour) + gap(neighbour, item) - this.places.get(item)!.offset);
    }
    return bound;
  }

  right(column: Column): number {
    let bound = Infinity;
    for (const item of column.items) {
      const neighbour = this.rows[item.row]![item.position + 1];
      if (neighbour) bound = Math.min(bound, this.xOf(neighbour) - gap(item, neighbour) - this.places.get(item)!.offset);
    }
    return bound;
  }

  /** Farthest left and right of a column's items, from its x. */
  extent(column: Column): { left: number; right: number } {
    let left = Infinity;
    let right = -Infinity;
    for (const item of column.items) {
      const { offset } = this.places.get(item)!;
      left = Math.min(left, offset);
      right = Math.max(right, offset + item.width);
    }
    return { left, right };
  }

  private xOf(item: Item): number {
    const { column, offset } = this.places.get(item)!;
    return column.x + offset;
  }
}

const gap = (left: Item, right: Item): number => left.width + (left.node < 0 && right.node < 0 ? LANE_GAP : NODE_GAP);

/** The columns from left to right. They never cross, so that "left of" has no circle. */
function inOrder(columns: Column[], rows: readonly Item[][], places: ReadonlyMap<Item, Placed>): Column[] {
  const waiting = new Map(columns.map((column) => [column, 0]));
  const next = new Map<Column, Column[]>(columns.map((column) => [column, []]));
  for (const row of rows)
    for (let i = 1; i < row.length; i++) {
      const right = places.get(row[i]!)!.column;
      next.get(places.get(row[i - 1]!)!.column)!.push(right);
      waiting.set(right, waiting.get(right)! + 1);
    }
  const ordered = columns.filter((column) => waiting.get(column) === 0);
  for (const column of ordered)
    for (const right of next.get(column)!) {
      const left = waiting.get(right)! - 1;
      waiting.set(right, left);
      if (left === 0) ordered.push(right);
    }
  return ordered;
}

/** First places: the mean of everything pushed left and everything pushed right, which keeps every distance. */
function pack(columns: readonly Column[], bounds: Bounds): void {
  let width = 0;
  for (const column of columns) {
    const bound = bounds.left(column);
    const extent = bounds.extent(column);
    column.x = column.packedLeft = Number.isFinite(bound) ? bound : -extent.left;
    width = Math.max(width, column.x + extent.right);
  }
  for (const column of columns) column.x = Infinity;
  for (const column of columns.toReversed()) {
    const bound = bounds.right(column);
    column.x = Number.isFinite(bound) ? bound : width - bounds.extent(column).right;
  }
  for (const column of columns) column.x = (column.packedLeft + column.x) / 2;
}

/** Where a column would stand if it had no neighbours: the weighted mean of what it is wired to. */
function wanted(column: Column, rows: Rows, places: ReadonlyMap<Item, Placed>): number {
  let sum = 0;
  let weights = 0;
  const pull = (item: Item, target: Item, targetAt: number, weight: number): void => {
    const place = places.get(target)!;
    if (place.column === column) return;
    sum += (place.column.x + place.offset + targetAt - places.get(item)!.offset) * weight;
    weights += weight;
  };
  for (const item of column.items) {
    for (const link of item.up) pull(item, link.item, link.there - link.here, link.weight);
    for (const link of item.down) pull(item, link.item, link.there - link.here, link.weight);
    // What enters and what leaves pull at each other, so that a stack of groups has one straight spine.
    if (item === rows.inPorts[0] && rows.outPorts[0]) pull(item, rows.outPorts[0], 0, SPINE_PULL);
    if (item === rows.outPorts[0] && rows.inPorts[0]) pull(item, rows.inPorts[0], 0, SPINE_PULL);
  }
  return weights ? sum / weights : column.x;
}
