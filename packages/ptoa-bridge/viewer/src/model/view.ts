/** What of the outline is on screen: groups are open or folded, and wires end at what is visible. */
import { HANDFUL, type Outline, type OutlineItem } from "./outline";

export interface VisibleItem {
  item: OutlineItem;
  parent: string | null;
  depth: number;
  open: boolean;
}

export interface VisibleEdge {
  source: string;
  target: string;
  residual: boolean;
}

export interface View {
  items: VisibleItem[];
  edges: VisibleEdge[];
  /** For a visible item the ids of what it reads without a wire. */
  badges: Map<string, string[]>;
}

/** About as many boxes as a first picture can hold and still be read. */
const FIRST_PICTURE = 48;

/** The groups open at first: outer ones before inner ones while the picture stays readable, repeated layers folded. */
export function firstOpen(outline: Outline): Set<string> {
  const open = new Set<string>();
  const queue = outline.roots.slice();
  let shown = queue.length;
  for (const id of queue) {
    const item = outline.items.get(id)!;
    if (!item.children.length || !item.block || shown + item.children.length > FIRST_PICTURE) continue;
    open.add(id);
    shown += item.children.length;
    for (const child of item.children) queue.push(child);
  }
  return open;
}

/** The visible items, each group before what is inside it. */
export function visibleItems(outline: Outline, open: ReadonlySet<string>): VisibleItem[] {
  const visible: VisibleItem[] = [];
  const stack: { id: string; parent: string | null; depth: number }[] = [];
  const wait = (ids: readonly string[], parent: string | null, depth: number): void => {
    for (const id of ids.toReversed()) stack.push({ id, parent, depth });
  };
  wait(outline.roots, null, 0);
  for (let next = stack.pop(); next; next = stack.pop()) {
    const { id, parent, depth } = next;
    const item = outline.items.get(id)!;
    const isOpen = item.children.length > 0 && open.has(id);
    if (isOpen && item.gives) {
      wait(item.children, parent, depth);
      continue;
    }
    visible.push({ item, parent, depth, open: isOpen });
    if (isOpen) wait(item.children, id, depth + 1);
  }
  return visible;
}

/** Opens or folds an item. Equal layers open into one of them, or with `all` into each; folded, they begin anew. */
export function withOpen(outline: Outline, open: ReadonlySet<string>, id: string, isOpen: boolean, all = false): Set<string> {
  const next = new Set(open);
  const change = (one: string, on: boolean): unknown => (on ? next.add(one) : next.delete(one));
  change(id, isOpen);
  for (const child of outline.items.get(id)?.children ?? []) if (outline.items.get(child)!.gives) change(child, isOpen && all);
  return next;
}

export function visibleView(outline: Outline, open: ReadonlySet<string>): View {
  const items = visibleItems(outline, open);
  const shownAs = representatives(outline, items);
  const edges = new Map<string, VisibleEdge & { aside: boolean }>();
  for (const edge of outline.edges) {
    const source = shownAs.get(edge.source)!;
    const target = shownAs.get(edge.target)!;
    if (source === target) continue;
    const key = JSON.stringify([source, target]);
    const known = edges.get(key);
    if (!known) edges.set(key, { source, target, residual: edge.residual, aside: edge.aside });
    else {
      known.residual &&= edge.residual;
      known.aside &&= edge.aside;
    }
  }
  return { items, ...wiresAndBadges([...edges.values()]) };
}

/** Where the readers that are seen are few, a wire says more than a badge. */
function wiresAndBadges(all: readonly (VisibleEdge & { aside: boolean })[]): Pick<View, "edges" | "badges"> {
  const asides = new Map<string, number>();
  for (const { source, aside } of all) if (aside) asides.set(source, (asides.get(source) ?? 0) + 1);
  const view: Pick<View, "edges" | "badges"> = { edges: [], badges: new Map() };
  for (const { source, target, residual, aside } of all) {
    if (!aside || asides.get(source)! <= HANDFUL) view.edges.push({ source, target, residual });
    else view.badges.set(target, [...(view.badges.get(target) ?? []), source]);
  }
  return view;
}

/** For each item the visible one that stands for it: itself, or the outermost folded group around it. */
function representatives(outline: Outline, visible: readonly VisibleItem[]): Map<string, string> {
  const shownAs = new Map<string, string>();
  for (const { item, open } of visible) {
    shownAs.set(item.id, item.id);
    if (open) continue;
    const inside = item.children.slice();
    for (let id = inside.pop(); id !== undefined; id = inside.pop()) {
      shownAs.set(id, item.id);
      for (const child of outline.items.get(id)!.children) inside.push(child);
    }
  }
  return shownAs;
}

/** Opens every group around an item, so that it can be seen. */
export function openAround(outline: Outline, open: ReadonlySet<string>, id: string): Set<string> {
  const wider = new Set(open);
  for (let at = outline.items.get(id)?.parent; at; at = outline.items.get(at)?.parent) wider.add(at);
  return wider;
}

/** The visible item that shows a block now. */
export function shownAs(outline: Outline, open: ReadonlySet<string>, id: string): string {
  const item = outline.items.get(id);
  if (item?.gives && open.has(id)) return shownAs(outline, open, item.parent!);
  let shown = id;
  for (let at = item?.parent; at; at = outline.items.get(at)?.parent) if (!open.has(at)) shown = at;
  return shown;
}

/** Every group and all of equal layers open. */
export const allOpen = ({ items }: Outline): Set<string> => new Set([...items.values()].filter(({ children }) => children.length).map(({ id }) => id));

/** What a block, or anything inside a group, reads from outside and is read by outside, each once. */
export function neighbours(outline: Outline, id: string): { inputs: string[]; outputs: string[] } {
  const inside = new Set([id]);
  for (const one of inside) for (const child of outline.items.get(one)?.children ?? []) inside.add(child);
  const [inputs, outputs] = [new Set<string>(), new Set<string>()];
  for (const { source, target } of outline.edges) {
    if (inside.has(target) && !inside.has(source)) inputs.add(source);
    if (inside.has(source) && !inside.has(target)) outputs.add(target);
  }
  return { inputs: [...inputs], outputs: [...outputs] };
}
