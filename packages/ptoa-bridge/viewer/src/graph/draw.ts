/**
 * Paints a scene, on a canvas as into a file. Only what is on the screen is painted, and names only where they can be
 * read.
 */
import type { Point } from "../layout/words";
import { familyOf } from "../model/kinds";
import { familyColour, FONT, type Theme } from "../ui/colours";
import type { Camera, Size } from "./camera";
import { BADGE_HEIGHT, type Scene, type SceneBox, type SceneWire } from "./scene";

export const TITLE_FONT = `500 12px ${FONT}`;
export const DETAIL_FONT = `11px ${FONT}`;
/** Below this zoom text is left away, and below the next one arrow heads too. */
const TEXT_ZOOM = 0.42;
const ARROW_ZOOM = 0.3;
const ROUND = 6;
const STRIPE = 6;

/** What the course of a wire is written into. */
export type Course = Pick<CanvasPath, "moveTo" | "lineTo" | "bezierCurveTo">;

/** What a scene is painted on: the part of a canvas's context that is needed for it. */
export interface Surface
  extends Course,
    Pick<CanvasPath, "closePath" | "roundRect">,
    Pick<CanvasRenderingContext2D, "beginPath" | "fillText" | "strokeText" | "fillStyle" | "strokeStyle" | "lineWidth" | "lineJoin" | "font" | "textAlign" | "textBaseline"> {
  fill(): void;
  stroke(course?: Course): void;
}

/** A wire's path and the part of the drawing it crosses. */
export interface WirePath {
  wire: SceneWire;
  path: Course;
  left: number;
  right: number;
  top: number;
  bottom: number;
}

export const wirePaths = (scene: Scene, start: () => Course): WirePath[] => scene.wires.map((wire) => wirePath(wire, start()));

function wirePath(wire: SceneWire, path: Course): WirePath {
  const crossed: WirePath = { wire, path, left: Infinity, right: -Infinity, top: Infinity, bottom: -Infinity };
  let last: Point | null = null;
  for (const point of wire.points) {
    if (last) bend(path, last, point);
    else path.moveTo(...point);
    last = point;
    const [x, y] = point;
    crossed.left = Math.min(crossed.left, x);
    crossed.right = Math.max(crossed.right, x);
    crossed.top = Math.min(crossed.top, y);
    crossed.bottom = Math.max(crossed.bottom, y);
  }
  return crossed;
}

/** A straight line down, or an S between two columns. */
function bend(path: Course, [x0, y0]: Point, [x1, y1]: Point): void {
  if (Math.abs(x0 - x1) < 0.5 || Math.abs(y0 - y1) < 1) return path.lineTo(x1, y1);
  const middle = (y0 + y1) / 2;
  path.bezierCurveTo(x0, middle, x1, middle, x1, y1);
}

export interface Picture {
  scene: Scene;
  wires: readonly WirePath[];
  camera: Camera;
  screen: Size;
  colours: Theme;
  selected: string | null;
  /** The box under the pointer: its wires are marked as those of the chosen one are. */
  hovered: string | null;
  /** How a measure of training stands on a box, as a colour. */
  tints: ReadonlyMap<string, string> | null;
}

/** Paints what a camera sees on a canvas of that size. */
export function drawScene(context: CanvasRenderingContext2D, picture: Picture, pixelRatio: number): void {
  const { camera, screen } = picture;
  context.setTransform(pixelRatio, 0, 0, pixelRatio, 0, 0);
  context.clearRect(0, 0, screen.width, screen.height);
  context.translate(camera.x, camera.y);
  context.scale(camera.zoom, camera.zoom);
  drawPicture(context, picture);
}

/** Paints it in the drawing's own measures. */
export function drawPicture(context: Surface, picture: Picture): void {
  const { scene } = picture;
  context.textBaseline = "middle";
  const visible = onScreen(picture);
  for (const box of scene.boxes) if (box.open && visible(box.x, box.y, box.x + box.width, box.y + box.height)) drawFrame(context, box, picture);
  drawWires(context, picture, visible);
  for (const box of scene.boxes) {
    if (!visible(box.x, box.y, box.x + box.width, box.y + box.height)) continue;
    if (box.open) drawTitle(context, box, picture);
    else drawBox(context, box, picture);
  }
}

type Visible = (left: number, top: number, right: number, bottom: number) => boolean;

function onScreen({ camera, screen }: Picture): Visible {
  const left = -camera.x / camera.zoom;
  const top = -camera.y / camera.zoom;
  const right = left + screen.width / camera.zoom;
  const bottom = top + screen.height / camera.zoom;
  return (l, t, r, b) => r >= left && l <= right && b >= top && t <= bottom;
}

function drawFrame(context: Surface, box: SceneBox, { colours, selected }: Picture): void {
  context.beginPath();
  context.roundRect(box.x, box.y, box.width, box.height, ROUND + 2);
  context.fillStyle = colours["k-group"];
  context.fill();
  outline(context, box.id === selected, colours);
}

/** The title of an open group, above the wires that pass behind it. */
function drawTitle(context: Surface, box: SceneBox, { colours, camera }: Picture): void {
  if (camera.zoom < TEXT_ZOOM) return;
  chevron(context, box.x + 12, box.y + 15, true, colours.soft);
  context.textAlign = "left";
  const left = box.x + 22;
  context.font = TITLE_FONT;
  haloText(context, box.title, left, box.y + 15, colours.ink, colours);
  context.font = DETAIL_FONT;
  haloText(context, box.detail, left + box.titleWidth + 8, box.y + 15, colours.soft, colours);
}

function haloText(context: Surface, text: string, x: number, y: number, colour: string, colours: Theme): void {
  context.lineJoin = "round";
  context.lineWidth = 4;
  context.strokeStyle = colours.halo;
  context.strokeText(text, x, y);
  context.fillStyle = colour;
  context.fillText(text, x, y);
}

function drawBox(context: Surface, box: SceneBox, { colours, camera, selected, tints }: Picture): void {
  context.beginPath();
  context.roundRect(box.x, box.y, box.width, box.height, ROUND);
  context.fillStyle = familyColour(colours, familyOf(box.kind));
  context.fill();
  const tint = tints?.get(box.id);
  if (tint) drawTint(context, box, tint, camera.zoom < TEXT_ZOOM);
  outline(context, box.id === selected, colours);
  if (camera.zoom < TEXT_ZOOM) return;
  const middle = box.x + box.width / 2 + (box.isGroup ? 6 : 0);
  const y = box.y + (box.height - (box.badge ? BADGE_HEIGHT : 0)) / 2;
  if (box.badge) drawBadge(context, box, colours, selected);
  if (box.isGroup) chevron(context, box.x + 12, y, false, colours.soft);
  context.textAlign = "center";
  context.font = TITLE_FONT;
  context.fillStyle = colours.ink;
  context.fillText(box.title, middle, box.detail ? y - 7 : y);
  if (!box.detail) return;
  context.font = DETAIL_FONT;
  context.fillStyle = colours.soft;
  context.fillText(box.detail, middle, y + 8);
}

/** A line at the foot of the box that names what it reads without a wire. */
function drawBadge(context: Surface, box: SceneBox, colours: Theme, selected: string | null): void {
  const isNear = selected !== null && box.reads.includes(selected);
  context.textAlign = "center";
  context.font = DETAIL_FONT;
  context.fillStyle = isNear ? colours.accent : colours.soft;
  context.fillText(box.badge, box.x + box.width / 2, box.y + box.height - BADGE_HEIGHT / 2 - 2);
}

/** A stripe at the edge that leaves the text alone; the whole box where there is no text. */
function drawTint(context: Surface, { x, y, width, height }: SceneBox, colour: string, isWhole: boolean): void {
  context.fillStyle = colour;
  if (isWhole) return context.fill();
  context.beginPath();
  context.roundRect(x, y, STRIPE, height, [ROUND, 0, 0, ROUND]);
  context.fill();
  context.beginPath();
  context.roundRect(x, y, width, height, ROUND);
}

function outline(context: Surface, isSelected: boolean, colours: Theme): void {
  context.lineWidth = isSelected ? 2.5 : 1;
  context.strokeStyle = isSelected ? colours.accent : colours.line;
  context.stroke();
}

function chevron(context: Surface, x: number, y: number, open: boolean, colour: string): void {
  context.beginPath();
  if (open) {
    context.moveTo(x - 4, y - 2);
    context.lineTo(x, y + 2.5);
    context.lineTo(x + 4, y - 2);
  } else {
    context.moveTo(x - 2, y - 4);
    context.lineTo(x + 2.5, y);
    context.lineTo(x - 2, y + 4);
  }
  context.lineWidth = 1.5;
  context.strokeStyle = colour;
  context.stroke();
}

function drawWires(context: Surface, { wires, camera, colours, selected, hovered }: Picture, visible: Visible): void {
  for (const { wire, path, left, top, right, bottom } of wires) {
    if (!visible(left - 4, top - 4, right + 4, bottom + 4)) continue;
    const ends = [wire.source, wire.target];
    const isNear = (selected !== null && ends.includes(selected)) || (hovered !== null && ends.includes(hovered));
    const colour = isNear ? colours.accent : wire.residual ? colours["curve-3"] : colours.faint;
    context.strokeStyle = colour;
    context.lineWidth = isNear ? 2 : wire.residual ? 1.6 : 1.2;
    context.stroke(path);
    if (camera.zoom >= ARROW_ZOOM) arrow(context, wire, colour);
  }
}

/** A small head where the wire meets its target from above. */
function arrow(context: Surface, { points }: SceneWire, colour: string): void {
  const [x, y] = points.at(-1)!;
  context.beginPath();
  context.moveTo(x - 3, y - 5.5);
  context.lineTo(x + 3, y - 5.5);
  context.lineTo(x, y);
  context.closePath();
  context.fillStyle = colour;
  context.fill();
}
