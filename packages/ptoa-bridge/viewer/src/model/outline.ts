/** The blocks of a spec as a tree in the order of execution, with equal neighbours gathered under one item. */
import type { Block, Spec } from "../formats/spec";
import { summary } from "./kinds";
import { count } from "../run/numbers";
import { plain } from "./text";

export interface OutlineItem {
  id: string;
  kind: string;
  title: string;
  detail: string;
  parent: string | null;
  children: string[];
  /** The spec's block; null for an item that stands for equal layers in a row. */
  block: Block | null;
  /** Once it is open, its children stand in its place: the rest of equal layers of which the first is shown. */
  gives?: boolean;
}

export interface Outline {
  items: Map<string, OutlineItem>;
  roots: string[];
  /** `aside`: not the nearest of what its reader reads, and read by many others too, as a mask is. */
  edges: { source: string; target: string; residual: boolean; aside: boolean }[];
}

/** A tensor that more blocks than these read is named on its readers, in place of wires. */
export const HANDFUL = 5;
/** Fewer equal groups in a row are shown one by one. */
const FEWEST_REPEATS = 3;
const DOTTED_LABEL = /^(.*) \(([^()]*)\)$/s;

export function buildOutline(spec: Spec): Outline {
  const items = new Map(spec.blocks.map((block) => [block.id, itemOf(block)]));
  const outline: Outline = { items, roots: [], edges: edgesOf(spec) };
  const upwards = childrenFirst(spec.blocks);
  hangUp(spec.blocks, upwards, outline);
  gatherRepeats(outline, signatures(upwards, items));
  shortenTitles(outline);
  return outline;
}

/** Path and class of a container's label `dotted.path (ClassName)`. */
function splitLabel(block: Block): { path: string; className: string } {
  const label = block.label ?? "";
  const match = DOTTED_LABEL.exec(label);
  return match ? { path: match[1]!, className: match[2]! } : { path: label, className: "" };
}

function itemOf(block: Block): OutlineItem {
  const { path, className } = splitLabel(block);
  return {
    id: block.id, kind: block.kind, parent: block.group ?? null, children: [], block,
    title: plain(path || block.kind), detail: className ? plain(className) : summary(block),
  };
}

/** What a tooltip says of an item: its full name, what it is, the shape of its output and its parameters. */
export function hintOf({ block, title, detail }: OutlineItem): string {
  const { shape, paramCount } = block?.params ?? {};
  const facts = [block?.kind, Array.isArray(shape) && shape.join(" × "), typeof paramCount === "number" && `${count(paramCount)} parameters`];
  const lines = [block?.label ?? title, detail, facts.filter(Boolean).join(" · ")];
  return lines.filter(Boolean).map((line) => plain(line, 200)).join("\n");
}

/** Every block after all blocks inside it. */
function childrenFirst(blocks: readonly Block[]): Block[] {
  const byId = new Map(blocks.map((block) => [block.id, block]));
  const depths = new Map<string, number>();
  const depthOf = (block: Block): number => {
    const chain: Block[] = [];
    for (let at: Block | undefined = block; at && !depths.has(at.id); at = byId.get(at.group ?? "")) chain.push(at);
    for (const link of chain.reverse()) depths.set(link.id, link.group === undefined ? 0 : depths.get(link.group)! + 1);
    return depths.get(block.id)!;
  };
  const deepest = blocks.map((block) => ({ block, depth: depthOf(block) })).sort((a, b) => b.depth - a.depth);
  return deepest.map(({ block }) => block);
}

/** Fills in children and roots, siblings by what runs first inside them. */
function hangUp(blocks: readonly Block[], upwards: readonly Block[], outline: Outline): void {
  const isContainer = new Set(blocks.map((block) => block.group));
  const first = new Map<string, number>();
  blocks.forEach((block, index) => first.set(block.id, isContainer.has(block.id) ? Infinity : index));
  for (const { id, group } of upwards) if (group !== undefined) first.set(group, Math.min(first.get(group)!, first.get(id)!));
  for (const { id, group } of blocks) (group === undefined ? outline.roots : outline.items.get(group)!.children).push(id);
  const inOrder = (a: string, b: string): number => first.get(a)! - first.get(b)!;
  outline.roots.sort(inOrder);
  for (const item of outline.items.values()) item.children.sort(inOrder);
}

/** A number for each block, equal for blocks that are built alike inside. */
function signatures(upwards: readonly Block[], items: ReadonlyMap<string, OutlineItem>): Map<string, number> {
  const numbers = new Map<string, number>();
  const known = new Map<string, number>();
  for (const block of upwards) {
    const { children } = items.get(block.id)!;
    const text = children.length
      ? JSON.stringify([splitLabel(block).className, children.map((id) => numbers.get(id))])
      : JSON.stringify([block.kind, block.kind === "group" ? block.label : "", block.inputs.length, ownParams(block)]);
    if (!known.has(text)) known.set(text, known.size);
    numbers.set(block.id, known.get(text)!);
  }
  return numbers;
}

/** Parameters without those that name other blocks. */
function ownParams(block: Block): Block["params"] {
  const { tiedTo: _tied, sharedWith: _shared, ...params } = block.params;
  return params;
}

/** Puts each run of equal neighbouring groups under one new item. */
function gatherRepeats(outline: Outline, signature: ReadonlyMap<string, number>): void {
  const parents = [null, ...[...outline.items.values()].filter((item) => item.children.length)];
  for (const parent of parents) {
    const siblings = parent ? parent.children : outline.roots;
    const gathered = runsOf(siblings, (id) => (outline.items.get(id)!.children.length ? signature.get(id)! : null));
    const ids = gathered.map((run) => (run.length < FEWEST_REPEATS ? run : [addRepeat(run, parent, outline)])).flat();
    if (parent) parent.children = ids;
    else outline.roots = ids;
  }
}

/** Cuts a list into runs of neighbours with the same key; null is equal to nothing. */
function runsOf(ids: readonly string[], key: (id: string) => number | null): string[][] {
  const runs: string[][] = [];
  let last: number | null = null;
  for (const id of ids) {
    const own = key(id);
    if (own !== null && own === last) runs.at(-1)!.push(id);
    else runs.push([id]);
    last = own;
  }
  return runs;
}

/** Equal layers are one item, which opens into the first of them and one more item for the rest. */
function addRepeat(run: readonly string[], parent: OutlineItem | null, outline: Outline): string {
  const first = outline.items.get(run[0]!)!;
  const className = first.block ? splitLabel(first.block).className : "";
  const id = addStandIn(run, `${plain(className || first.title)} × ${run.length}`, parent?.id ?? null, outline);
  const rest = addStandIn(run.slice(1), `${run.length - 1} more`, id, outline);
  outline.items.get(rest)!.gives = true;
  Object.assign(outline.items.get(id)!, { children: [first.id, rest] });
  first.parent = id;
  return id;
}

function addStandIn(run: readonly string[], title: string, parent: string | null, { items }: Outline): string {
  let id = `${run[0]} × ${run.length}`;
  while (items.has(id)) id += "'";
  const [first, last] = [items.get(run[0]!)!, items.get(run.at(-1)!)!];
  items.set(id, { id, kind: "group", parent, children: [...run], block: null, title, detail: `${first.title} – ${last.title}` });
  for (const member of run) items.get(member)!.parent = id;
  return id;
}

/** The nearest item around another that is a block of the spec. */
export function blockAround({ items }: Outline, id: string): OutlineItem | undefined {
  let around = items.get(items.get(id)?.parent ?? "");
  while (around && !around.block) around = items.get(around.parent ?? "");
  return around;
}

/** The equal layers that an item stands for; empty for any other item. */
export function membersOf({ items }: Outline, item: OutlineItem): string[] {
  if (item.block) return [];
  return item.children.flatMap((id) => (items.get(id)!.gives ? items.get(id)!.children : [id]));
}

/** Leaves out of a title the path of the group around it: "attn" inside "transformer.h.0". */
function shortenTitles(outline: Outline): void {
  for (const item of outline.items.values()) {
    const path = pathAround(item, outline);
    item.title = withoutPath(item.title, path);
    if (!item.block) item.detail = item.detail.split(" – ").map((title) => withoutPath(title, path)).join(" – ");
  }
}

/** Path of the nearest group of the spec around an item; empty where there is none. */
function pathAround(item: OutlineItem, outline: Outline): string {
  const around = blockAround(outline, item.id);
  return around ? plain(splitLabel(around.block!).path) : "";
}

/** A bare number says nothing by itself: "h.0", not "0". */
function withoutPath(title: string, path: string): string {
  if (!path || !title.startsWith(path) || !/^[. ]./.test(title.slice(path.length))) return title;
  const rest = title.slice(path.length + 1);
  return /^\d/.test(rest) ? `${path.split(".").at(-1)}.${rest}` : rest;
}

/** All wires of the spec; a residual is an input of an `add` that others read too and that is not the nearest one. */
function edgesOf(spec: Spec): Outline["edges"] {
  const index = new Map(spec.blocks.map((block, i) => [block.id, i]));
  const readers = new Map<string, number>();
  for (const block of spec.blocks) for (const id of block.inputs) readers.set(id, (readers.get(id) ?? 0) + 1);
  return spec.blocks.flatMap((block) => {
    const nearest = block.inputs.reduce((most, id) => Math.max(most, index.get(id)!), -1);
    return block.inputs.map((source) => ({
      source, target: block.id,
      aside: index.get(source) !== nearest && readers.get(source)! > HANDFUL,
      residual: block.kind === "add" && block.inputs.length > 1 && index.get(source) !== nearest && readers.get(source)! > 1,
    }));
  });
}
