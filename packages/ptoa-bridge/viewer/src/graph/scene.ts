/** The visible blocks as boxes and wires, laid out and ready to draw. */
import { nest, type Box, type LevelMemo } from "../layout/nest";
import type { Point } from "../layout/words";
import { fit } from "../model/text";
import { visibleView, type View, type VisibleItem } from "../model/view";
import type { Outline } from "../model/outline";

export interface SceneBox extends Box {
  id: string;
  kind: string;
  title: string;
  titleWidth: number;
  detail: string;
  /** What it reads without a wire, in words and by ids. */
  badge: string;
  reads: readonly string[];
  depth: number;
  /** A group that is open is a frame round others; one that is folded can be opened. */
  open: boolean;
  isGroup: boolean;
}

export interface SceneWire {
  points: Point[];
  residual: boolean;
  source: string;
  target: string;
}

export interface Scene {
  boxes: SceneBox[];
  byId: Map<string, SceneBox>;
  wires: SceneWire[];
  width: number;
  height: number;
}

export interface Measure {
  title: (text: string) => number;
  detail: (text: string) => number;
}

const MIN_WIDTH = 92;
const MAX_TEXT = 190;
const SIDE = 12;
const CHEVRON = 14;
const HEIGHT = 26;
const HEIGHT_WITH_DETAIL = 40;
/** The line in which a box names what it reads without a wire. */
export const BADGE_HEIGHT = 15;

export function buildScene(outline: Outline, open: ReadonlySet<string>, measure: Measure, memo: LevelMemo): Scene {
  const view = visibleView(outline, open);
  const labels = view.items.map((visible) => labelOf(visible, view.badges.get(visible.item.id) ?? [], outline, measure));
  const nodes = view.items.map(({ item, parent, open }, i) => ({ id: item.id, parent, open, width: labels[i]!.width, height: labels[i]!.height }));
  const edges = view.edges.map(({ source, target, residual }) => ({ source, target, aside: residual }));
  const laid = nest(nodes, edges, memo);
  const boxes = view.items.map(({ item, depth, open }, i): SceneBox => ({
    ...laid.boxes.get(item.id)!, id: item.id, kind: item.kind, depth, open, isGroup: item.children.length > 0,
    title: labels[i]!.title, titleWidth: labels[i]!.titleWidth, detail: labels[i]!.detail, badge: labels[i]!.badge, reads: view.badges.get(item.id) ?? [],
  }));
  const { width, height } = laid;
  return { boxes, byId: new Map(boxes.map((box) => [box.id, box])), wires: wiresOf(view, laid.paths), width, height };
}

interface Label {
  title: string;
  titleWidth: number;
  detail: string;
  badge: string;
  width: number;
  height: number;
}

function labelOf({ item, open }: VisibleItem, reads: readonly string[], outline: Outline, measure: Measure): Label {
  const title = fit(item.title, MAX_TEXT, measure.title);
  const room = open ? Math.max(0, MAX_TEXT - measure.title(title)) : MAX_TEXT;
  const detail = fit(item.detail, room, measure.detail);
  const badge = reads.length ? fit(`← ${reads.map((id) => outline.items.get(id)!.title).join(", ")}`, MAX_TEXT, measure.detail) : "";
  const chevron = item.children.length ? CHEVRON : 0;
  const titleWidth = measure.title(title);
  const detailWidth = measure.detail(detail);
  const text = open ? titleWidth + 8 + detailWidth : Math.max(titleWidth, detailWidth, measure.detail(badge));
  const width = Math.max(open ? 0 : MIN_WIDTH, Math.ceil(text + chevron + 2 * SIDE));
  return { title, titleWidth, detail, badge, width, height: (detail && !open ? HEIGHT_WITH_DETAIL : HEIGHT) + (badge ? BADGE_HEIGHT : 0) };
}

/** Residual wires first: where they share a piece with the main path, that lies on top. */
const wiresOf = (view: View, paths: Point[][]): SceneWire[] =>
  view.edges
    .map(({ residual, source, target }, i) => ({ residual, source, target, points: paths[i]! }))
    .filter((wire) => wire.points.length > 1)
    .sort((a, b) => Number(b.residual) - Number(a.residual));

/** The innermost box at a point of the drawing. */
export function boxAt(scene: Scene, x: number, y: number): SceneBox | null {
  const inside = (box: SceneBox): boolean => x >= box.x && x <= box.x + box.width && y >= box.y && y <= box.y + box.height;
  return scene.boxes.findLast(inside) ?? null;
}

export type Way = "up" | "down" | "left" | "right";

/** The box to go to from another: what it reads above it and what reads it below, else the nearest on that side. */
export function beside(scene: Scene, id: string, way: Way): string | null {
  const from = scene.byId.get(id);
  if (!from) return null;
  const upright = way === "up" || way === "down";
  const wired = upright ? scene.wires.flatMap(({ source, target }) => (way === "up" ? (target === id ? [source] : []) : source === id ? [target] : [])) : [];
  const onSide = (box: SceneBox): boolean => !box.open && (way === "left" ? box.x + box.width <= from.x : way === "right" ? box.x >= from.x + from.width : false);
  const overlaps = (box: SceneBox): boolean => box.y < from.y + from.height && box.y + box.height > from.y;
  const candidates = upright ? wired.map((one) => scene.byId.get(one)!) : scene.boxes.filter((box) => onSide(box) && overlaps(box));
  const distance = (box: SceneBox): number => Math.hypot(box.x + box.width / 2 - from.x - from.width / 2, box.y + box.height / 2 - from.y - from.height / 2);
  return candidates.reduce<SceneBox | null>((best, box) => (best && distance(best) <= distance(box) ? best : box), null)?.id ?? null;
}
