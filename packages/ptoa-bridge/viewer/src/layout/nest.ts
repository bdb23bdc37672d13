/**
 * Layout of groups within groups.
 *
 * A wire that crosses borders is cut at each of them and enters through a port, one a tensor, so that a residual stream
 * is drawn once and forks inside. Groups are laid out from the inside out. Equal groups (layers) are laid out once: the
 * result depends only on the sizes and wires inside, which serve as the key of a memo.
 */
import { layoutLevel } from "./level";
import { BORDER, type Level, type LevelEdge, type Padding, type Point } from "./words";

export interface NestNode {
  id: string;
  parent: string | null;
  /** Size of the box; of an open group only `width` counts, as the least it needs for its title. */
  width: number;
  height: number;
  open: boolean;
}

export interface NestEdge {
  source: string;
  target: string;
  /** A wire that bends round others (a residual) pulls less. */
  aside: boolean;
}

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface Nest {
  boxes: Map<string, Box>;
  /** The points of each edge, in the order of the edges given; empty for an edge that cannot be drawn. */
  paths: Point[][];
  width: number;
  height: number;
}

const GROUP_PADDING: Padding = { top: 32, side: 12, bottom: 8 };
const ROOT_PADDING: Padding = { top: 10, side: 10, bottom: 10 };
const WEIGHT = 3;
const WEIGHT_ASIDE = 1;

/** A cut wire: which piece of which edge a wire of this group is. */
interface Piece {
  edge: number;
  order: number;
}

/** The inside of a group while its wires are being cut. */
class Inside {
  readonly children: NestNode[] = [];
  readonly edges: LevelEdge[] = [];
  readonly pieces: Piece[][] = [];
  private readonly inPorts = new Map<string, number>();
  private readonly outPorts = new Map<string, number>();
  private readonly known = new Map<string, number>();

  get inCount(): number {
    return this.inPorts.size;
  }

  get outCount(): number {
    return this.outPorts.size;
  }

  inPort(tensor: string): number {
    return portOf(this.inPorts, tensor);
  }

  outPort(tensor: string): number {
    return portOf(this.outPorts, tensor);
  }

  /** Adds a wire; pieces of several edges that run alike are one wire. */
  add(edge: LevelEdge, piece: Piece): void {
    const key = `${edge.source} ${edge.sourcePort} ${edge.target} ${edge.targetPort}`;
    let index = this.known.get(key);
    if (index === undefined) {
      index = this.edges.push(edge) - 1;
      this.pieces.push([]);
      this.known.set(key, index);
    }
    this.pieces[index]!.push(piece);
  }
}

function portOf(ports: Map<string, number>, tensor: string): number {
  const known = ports.get(tensor);
  if (known !== undefined) return known;
  ports.set(tensor, ports.size);
  return ports.size - 1;
}

/** Memo of laid out groups by what is inside; kept by the caller between calls, so that folding one group redoes one. */
export type LevelMemo = Map<string, Level>;

/** Nodes come with every parent before its children; a wire to itself or to a group around it is not drawn. */
export function nest(nodes: readonly NestNode[], edges: readonly NestEdge[], memo: LevelMemo = new Map()): Nest {
  const tree = new Tree(nodes);
  edges.forEach((edge, index) => cutWire(edge, index, tree));
  const levels = layoutInsideOut(tree, memo);
  return assemble(tree, levels, edges.length);
}

class Tree {
  readonly insides = new Map<string | null, Inside>([[null, new Inside()]]);
  readonly parents = new Map<string, string | null>();
  readonly index = new Map<string, number>();
  private readonly depths = new Map<string, number>();
  /** Open groups, parents first, after the root. */
  readonly groups: (NestNode | null)[] = [null];

  constructor(nodes: readonly NestNode[]) {
    for (const node of nodes) {
      const siblings = this.inside(node.parent).children;
      this.parents.set(node.id, node.parent);
      this.depths.set(node.id, node.parent === null ? 0 : this.depths.get(node.parent)! + 1);
      this.index.set(node.id, siblings.push(node) - 1);
      if (!node.open) continue;
      this.groups.push(node);
      this.insides.set(node.id, new Inside());
    }
  }

  inside(group: string | null): Inside {
    return this.insides.get(group)!;
  }

  parent(id: string): string | null {
    return this.parents.get(id)!;
  }

  depth(id: string): number {
    return this.depths.get(id)!;
  }
}

interface Climb {
  /** From the source outwards, and from the target outwards: what the wire leaves and what it enters. */
  leaving: string[];
  entering: string[];
  /** The two siblings between which the wire runs across. */
  from: string;
  to: string;
}

function climb(source: string, target: string, tree: Tree): Climb | null {
  const way: Climb = { leaving: [], entering: [], from: source, to: target };
  const leave = (): void => void (way.leaving.push(way.from), (way.from = tree.parent(way.from)!));
  const enter = (): void => void (way.entering.push(way.to), (way.to = tree.parent(way.to)!));
  while (tree.depth(way.from) > tree.depth(way.to)) leave();
  while (tree.depth(way.to) > tree.depth(way.from)) enter();
  if (way.from === way.to) return null;
  while (tree.parent(way.from) !== tree.parent(way.to)) {
    leave();
    enter();
  }
  return way;
}

/** Cuts a wire at the borders between its ends: out of each group, across, and into each group. */
function cutWire({ source, target, aside }: NestEdge, edge: number, tree: Tree): void {
  const way = climb(source, target, tree);
  if (!way) return;
  const weight = aside ? WEIGHT_ASIDE : WEIGHT;
  let order = 0;
  let port = -1;
  for (const child of way.leaving) {
    const inside = tree.inside(tree.parent(child));
    const exit = inside.outPort(source);
    const wire = { source: tree.index.get(child)!, sourcePort: port, target: BORDER, targetPort: exit, weight };
    inside.add(wire, { edge, order: order++ });
    port = exit;
  }
  const entry = (child: string): number => (child === target ? -1 : tree.inside(child).inPort(source));
  const across = { source: tree.index.get(way.from)!, sourcePort: port, target: tree.index.get(way.to)!, targetPort: entry(way.to), weight };
  tree.inside(tree.parent(way.from)).add(across, { edge, order: order++ });
  for (const child of way.entering.toReversed()) {
    const inside = tree.inside(tree.parent(child));
    const wire = { source: BORDER, sourcePort: inside.inPort(source), target: tree.index.get(child)!, targetPort: entry(child), weight };
    inside.add(wire, { edge, order: order++ });
  }
}

function layoutInsideOut(tree: Tree, memo: LevelMemo): Map<string | null, Level> {
  const levels = new Map<string | null, Level>();
  for (const group of tree.groups.toReversed()) {
    const inside = tree.inside(group?.id ?? null);
    const level = layoutInside(inside, levels, group ? GROUP_PADDING : ROOT_PADDING, memo);
    levels.set(group?.id ?? null, group ? widen(level, group.width) : level);
  }
  return levels;
}

function layoutInside(inside: Inside, levels: ReadonlyMap<string | null, Level>, padding: Padding, memo: LevelMemo): Level {
  const nodes = inside.children.map((child) => {
    const { width, height, inPorts, outPorts } = levels.get(child.id) ?? { ...child, inPorts: [], outPorts: [] };
    return { width, height, inPorts, outPorts };
  });
  const input = { nodes, edges: inside.edges, inCount: inside.inCount, outCount: inside.outCount, padding };
  const key = JSON.stringify(input);
  const known = memo.get(key);
  if (known) return known;
  const level = layoutLevel(input);
  memo.set(key, level);
  return level;
}

/** The same level, centred in the width that the group's title needs. */
function widen(level: Level, width: number): Level {
  if (level.width >= width) return level;
  const shift = (width - level.width) / 2;
  const move = (x: number): number => x + shift;
  return {
    ...level, width,
    x: level.x.map(move),
    inPorts: level.inPorts.map(move),
    outPorts: level.outPorts.map(move),
    paths: level.paths.map((path) => path.map(([x, y]): Point => [x + shift, y])),
  };
}

/** Places of the whole drawing: each group's inside moved to where the group is, and cut wires joined again. */
function assemble(tree: Tree, levels: ReadonlyMap<string | null, Level>, edgeCount: number): Nest {
  const boxes = new Map<string, Box>();
  const pieces: Point[][][] = Array.from({ length: edgeCount }, () => []);
  for (const group of tree.groups) {
    const level = levels.get(group?.id ?? null)!;
    const inside = tree.inside(group?.id ?? null);
    const corner = group ? boxes.get(group.id)! : { x: 0, y: 0 };
    inside.children.forEach((child, i) => {
      const { width, height } = levels.get(child.id) ?? child;
      boxes.set(child.id, { x: corner.x + level.x[i]!, y: corner.y + level.y[i]!, width, height });
    });
    inside.pieces.forEach((shared, i) => {
      const path = level.paths[i]!.map(([x, y]): Point => [corner.x + x, corner.y + y]);
      for (const { edge, order } of shared) pieces[edge]![order] = path;
    });
  }
  const root = levels.get(null)!;
  return { boxes, paths: pieces.map((path) => path.flat()), width: root.width, height: root.height };
}
