import { BORDER, type LevelEdge } from "./words";

/** The row of every child: one below the lowest child it reads. */
export function rankNodes(count: number, edges: readonly LevelEdge[]): number[] {
  const readers: number[][] = Array.from({ length: count }, () => []);
  const waiting = new Array<number>(count).fill(0);
  for (const { source, target } of edges) {
    if (source === BORDER || target === BORDER || source === target) continue;
    readers[source]!.push(target);
    waiting[target]!++;
  }
  const isSource = waiting.map((n) => n === 0);
  const { rank, order } = longestPaths(readers, waiting);
  lowerSources(rank, order, readers, isSource, fedFromOutside(count, edges));
  return rank;
}

function fedFromOutside(count: number, edges: readonly LevelEdge[]): boolean[] {
  const fed = new Array<boolean>(count).fill(false);
  for (const { source, target } of edges) if (source === BORDER && target !== BORDER) fed[target] = true;
  return fed;
}

function longestPaths(readers: readonly number[][], waiting: number[]): { rank: number[]; order: number[] } {
  const count = readers.length;
  const rank = new Array<number>(count).fill(0);
  const done = new Array<boolean>(count).fill(false);
  const order: number[] = [];
  const ready = [...waiting.keys()].filter((node) => waiting[node] === 0);
  let lowest = 0;
  for (let next = 0; order.length < count; next++) {
    if (next >= ready.length) {
      // Only circles are left: the first child of one goes ahead without its inputs.
      while (done[lowest]) lowest++;
      ready.push(lowest);
    }
    const node = ready[next]!;
    if (done[node]) continue;
    done[node] = true;
    order.push(node);
    for (const reader of readers[node]!) {
      if (done[reader]) continue;
      rank[reader] = Math.max(rank[reader]!, rank[node]! + 1);
      if (--waiting[reader]! === 0) ready.push(reader);
    }
  }
  return { rank, order };
}

/** A child that reads nothing (a mask, a table of positions) stands just above its first reader. */
function lowerSources(rank: number[], order: number[], readers: number[][], isSource: boolean[], fed: boolean[]): void {
  for (const node of order.toReversed()) {
    if (!isSource[node] || fed[node] || !readers[node]!.length) continue;
    const nearest = readers[node]!.reduce((low, reader) => Math.min(low, rank[reader]!), Infinity);
    rank[node] = Math.max(rank[node]!, nearest - 1);
  }
}
