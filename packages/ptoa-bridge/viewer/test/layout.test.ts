import { describe, expect, it } from "vitest";
import { nest, type Box, type Nest, type NestEdge, type NestNode } from "../src/layout/nest";
import { buildOutline } from "../src/model/outline";
import { visibleView } from "../src/model/view";
import type { Spec } from "../src/formats/spec";
import type { Level } from "../src/layout/words";
import { gpt } from "./models";

interface Graph {
  nodes: NestNode[];
  edges: NestEdge[];
}

/** The whole spec with every group open. */
function unfolded(spec: Spec): Graph {
  const outline = buildOutline(spec);
  const view = visibleView(outline, new Set(outline.items.keys()));
  return {
    nodes: view.items.map(({ item, parent, open }) => ({ id: item.id, parent, open, width: 40 + 6 * item.title.length, height: 36 })),
    edges: view.edges.map(({ source, target, residual }) => ({ source, target, aside: residual })),
  };
}

/** A seeded generator of numbers from 0 to 1 (Park and Miller's minimal standard). */
function randomFrom(seed: number): () => number {
  let state = seed * 7919 + 1;
  return () => (state = (state * 48271) % 2147483647) / 2147483647;
}

/** Groups within groups and wires anywhere, also backwards, to groups and in circles. */
function randomGraph(seed: number): Graph {
  const random = randomFrom(seed);
  const nodes: NestNode[] = [];
  for (let i = 0; i < 40; i++) {
    const groups = nodes.filter((node) => node.open);
    const parent = groups.length && random() < 0.7 ? groups[Math.floor(random() * groups.length)]!.id : null;
    nodes.push({ id: `b${i}`, parent, open: random() < 0.25, width: 20 + Math.floor(random() * 120), height: 20 + Math.floor(random() * 30) });
  }
  const any = (): string => nodes[Math.floor(random() * nodes.length)]!.id;
  return { nodes, edges: Array.from({ length: 60 }, () => ({ source: any(), target: any(), aside: random() < 0.3 })) };
}

const GRAPHS: [name: string, graph: Graph][] = [
  ["nothing", { nodes: [], edges: [] }],
  ["one block", { nodes: [{ id: "a", parent: null, open: false, width: 50, height: 20 }], edges: [] }],
  ["a GPT of 12 layers", unfolded(gpt(12))],
  ...[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12].map((seed): [string, Graph] => [`random graph ${seed}`, randomGraph(seed)]),
];

const overlap = (a: Box, b: Box): boolean =>
  a.x < b.x + b.width - 1e-6 && b.x < a.x + a.width - 1e-6 && a.y < b.y + b.height - 1e-6 && b.y < a.y + a.height - 1e-6;

const isInside = (inner: Box, outer: Box): boolean =>
  inner.x >= outer.x - 1e-6 && inner.y >= outer.y - 1e-6 &&
  inner.x + inner.width <= outer.x + outer.width + 1e-6 && inner.y + inner.height <= outer.y + outer.height + 1e-6;

const siblings = (nodes: readonly NestNode[]): NestNode[][] => {
  const byParent = new Map<string | null, NestNode[]>();
  for (const node of nodes) byParent.set(node.parent, [...(byParent.get(node.parent) ?? []), node]);
  return [...byParent.values()];
};

function overlapping(nodes: readonly NestNode[], laid: Nest): string[] {
  return siblings(nodes).flatMap((all) =>
    all.flatMap((a, i) => all.slice(i + 1).filter((b) => overlap(laid.boxes.get(a.id)!, laid.boxes.get(b.id)!)).map((b) => `${a.id} and ${b.id}`)),
  );
}

describe.each(GRAPHS)("the layout of %s", (_name, { nodes, edges }) => {
  const laid = nest(nodes, edges);

  it("keeps siblings apart", () => {
    expect(overlapping(nodes, laid)).toEqual([]);
  });

  it("keeps every block inside its group and the drawing", () => {
    const whole = { x: 0, y: 0, width: laid.width, height: laid.height };
    const outside = nodes.filter(({ id, parent }) => !isInside(laid.boxes.get(id)!, parent === null ? whole : laid.boxes.get(parent)!));
    expect(outside).toEqual([]);
  });

  it("gives every wire between two places finite points", () => {
    expect(laid.paths).toHaveLength(edges.length);
    expect(laid.paths.flat(2).every(Number.isFinite)).toBe(true);
    const parents = new Map(nodes.map((node) => [node.id, node.parent]));
    const isAround = (outer: string, inner: string): boolean => {
      for (let at: string | null = inner; at !== null; at = parents.get(at)!) if (at === outer) return true;
      return false;
    };
    edges.forEach(({ source, target }, i) => {
      expect(laid.paths[i]!.length > 1).toBe(!isAround(source, target) && !isAround(target, source));
    });
  });

  it("comes out the same twice", () => {
    expect(nest(nodes, edges)).toEqual(laid);
  });
});

describe("wires", () => {
  const laid = nest(
    [
      { id: "a", parent: null, open: false, width: 50, height: 20 },
      { id: "g", parent: null, open: true, width: 80, height: 20 },
      { id: "b", parent: "g", open: false, width: 50, height: 20 },
    ],
    [{ source: "a", target: "b", aside: false }],
  );

  it("begin at the bottom of their source and end at the top of their target, through the border", () => {
    const [a, b] = [laid.boxes.get("a")!, laid.boxes.get("b")!];
    const path = laid.paths[0]!;
    expect(path[0]).toEqual([a.x + a.width / 2, a.y + a.height]);
    expect(path.at(-1)).toEqual([b.x + b.width / 2, b.y]);
    expect(path.map(([, y]) => y)).toContain(laid.boxes.get("g")!.y);
  });

  it("run straight down a chain", () => {
    const chain = ["a", "b", "c"].map((id): NestNode => ({ id, parent: null, open: false, width: 30, height: 20 }));
    const { paths } = nest(chain, [{ source: "a", target: "b", aside: false }, { source: "b", target: "c", aside: false }]);
    expect(new Set(paths.flat().map(([x]) => x)).size).toBe(1);
  });
});

class CountingMemo extends Map<string, Level> {
  layouts = 0;

  override set(key: string, level: Level): this {
    this.layouts++;
    return super.set(key, level);
  }
}

describe("equal layers", () => {
  it("look the same", () => {
    const { nodes, edges } = unfolded(gpt(6));
    const { boxes } = nest(nodes, edges);
    const inside = (layer: number): number[][] => {
      const around = boxes.get(`g${2 + 3 * layer}`)!;
      return [`n${2 * layer}`, `a${layer}`, `r${2 * layer}`, `f${layer}`].map((id) => [boxes.get(id)!.x - around.x, boxes.get(id)!.y - around.y]);
    };
    expect(inside(3)).toEqual(inside(2));
  });

  it("are laid out once: 180 layers and 2,500 blocks need a handful of layouts", () => {
    const memo = new CountingMemo();
    const { nodes, edges } = unfolded(gpt(180));
    expect(nodes.length).toBeGreaterThan(2000);
    nest(nodes, edges, memo);
    expect(memo.layouts).toBeLessThan(12);
    nest(nodes, edges, memo);
    expect(memo.layouts).toBeLessThan(12);
  });
});
