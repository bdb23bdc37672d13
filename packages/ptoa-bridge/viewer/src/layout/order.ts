import type { Item, Link } from "./rows";

const SWEEPS = 8;
/** Counting crossings is quadratic; between rows with more wires than this they are not counted. */
const COUNTED_WIRES = 400;

/** Puts each row into the order with the fewest crossings found; lanes begin at the right of their row. */
export function orderRows(rows: Item[][]): void {
  for (const row of rows) arrange(row, (item) => (item.isLane ? 1 : 0));
  if (rows.every((row) => row.length < 2)) return;
  let fewest = crossings(rows);
  let best = rows.map((row) => row.slice());
  for (let sweep = 0; sweep < SWEEPS && fewest > 0; sweep++) {
    if (sweep % 2 === 0) for (const row of rows.slice(1)) arrange(row, (item) => meanPlace(item, item.up));
    else for (const row of rows.slice(0, -1).reverse()) arrange(row, (item) => meanPlace(item, item.down));
    const count = crossings(rows);
    if (count >= fewest) continue;
    fewest = count;
    best = rows.map((row) => row.slice());
  }
  best.forEach((row, index) => {
    rows[index] = row;
    renumber(row);
  });
}

/** Sorts a row by a key; equal keys keep their order. */
function arrange(row: Item[], key: (item: Item) => number): void {
  const keys = new Map(row.map((item) => [item, key(item)]));
  row.sort((a, b) => keys.get(a)! - keys.get(b)! || a.position - b.position);
  renumber(row);
}

function renumber(row: Item[]): void {
  row.forEach((item, position) => (item.position = position));
}

/** Where the other ends are on average; ports within an item count as fractions of a place. */
function meanPlace(item: Item, links: readonly Link[]): number {
  if (!links.length) return item.position;
  const sum = links.reduce((total, link) => total + link.item.position + (link.there / (link.item.width + 1)) * 0.5, 0);
  return sum / links.length;
}

function crossings(rows: readonly Item[][]): number {
  return rows.reduce((sum, row) => sum + crossingsBelow(row), 0);
}

function crossingsBelow(row: readonly Item[]): number {
  const wires = row.flatMap((item) =>
    item.down.map((link) => ({
      top: item.position + link.here / (item.width + 1),
      bottom: link.item.position + link.there / (link.item.width + 1),
    })),
  );
  if (wires.length > COUNTED_WIRES) return 0;
  let count = 0;
  wires.forEach((a, index) => {
    for (const b of wires.slice(0, index)) if ((a.top - b.top) * (a.bottom - b.bottom) < 0) count++;
  });
  return count;
}
