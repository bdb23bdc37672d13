/** The canvas: keeps a scene and a camera, paints when asked, and turns pointer and keys into pans, zooms and picks. */
import type { LevelMemo } from "../layout/nest";
import { hintOf, type Outline } from "../model/outline";
import { shownAs } from "../model/view";
import { theme } from "../ui/theme";
import { fitAll, fitFirst, panBy, reveal, zoomAt, type Camera, type Size } from "./camera";
import { DETAIL_FONT, drawScene, TITLE_FONT, wirePaths, type WirePath } from "./draw";
import { Minimap } from "./Minimap";
import { sceneToSvg } from "./svg";
import { beside, boxAt, buildScene, type Measure, type Scene, type Way } from "./scene";

export interface GraphEvents {
  pick(id: string | null): void;
  /** Opens or folds a group; `all`: into each of equal layers. */
  toggle(id: string, all: boolean): void;
}

const CLICK_SLACK = 5;
const KEY_PANS: Record<Way, [x: number, y: number]> = { left: [60, 0], right: [-60, 0], up: [0, 60], down: [0, -60] };
const PNG_MARGIN = 16;
/** On a side; larger canvases come out empty in some browsers. */
const MOST_PIXELS = 8192;
const KEY_ZOOM = 1.25;
/** Titles have their chevron within this distance of the left edge. */
const CHEVRON_WIDTH = 22;

export class GraphView {
  private readonly context: CanvasRenderingContext2D;
  private readonly measure: Measure;
  private readonly minimap: Minimap;
  private memo: LevelMemo = new Map();
  private outline: Outline | null = null;
  private open: ReadonlySet<string> = new Set();
  private scene: Scene | null = null;
  private wires: WirePath[] = [];
  private camera: Camera = { zoom: 1, x: 0, y: 0 };
  private screen: Size = { width: 0, height: 0 };
  /** The block that was chosen, and the visible one that shows it. */
  private chosen: string | null = null;
  private selected: string | null = null;
  private hovered: string | null = null;
  private tints: ReadonlyMap<string, string> | null = null;
  private framePending = false;
  /** The camera follows a fit until the reader moves it. */
  private fitted: "first" | "all" | null = "first";
  private readonly pointers = new Map<number, { x: number; y: number }>();
  private travelled = 0;

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly events: GraphEvents,
    minimap: { canvas: HTMLCanvasElement; frame: HTMLElement },
  ) {
    this.minimap = new Minimap(minimap.canvas, minimap.frame, (x, y) => this.centre(x, y));
    this.context = canvas.getContext("2d")!;
    this.measure = { title: this.widthIn(TITLE_FONT), detail: this.widthIn(DETAIL_FONT) };
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.pointerDown(event));
    canvas.addEventListener("pointermove", (event) => this.pointerMove(event));
    canvas.addEventListener("pointerup", (event) => this.pointerUp(event));
    canvas.addEventListener("pointerleave", () => this.hover(null));
    canvas.addEventListener("pointercancel", (event) => this.pointers.delete(event.pointerId));
    canvas.addEventListener("dblclick", (event) => this.doubleClick(event));
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  /** Number of boxes drawn. */
  get count(): number {
    return this.scene?.boxes.length ?? 0;
  }

  show(outline: Outline, open: ReadonlySet<string>): void {
    const isSame = outline === this.outline;
    const before = isSame ? this.scene : null;
    const changed = [...open].find((id) => !this.open.has(id)) ?? [...this.open].find((id) => !open.has(id));
    if (!isSame) {
      this.memo = new Map();
      this.fitted = "first";
    }
    this.outline = outline;
    this.open = open;
    this.hover(null);
    this.scene = buildScene(outline, open, this.measure, this.memo);
    this.wires = wirePaths(this.scene, () => new Path2D());
    if (before && changed !== undefined) this.hold(changed, before);
    this.refit();
    this.mark();
    this.request();
  }

  /** Marks a block, or the folded group around it, and brings it onto the screen. */
  select(id: string | null): void {
    this.chosen = id;
    this.mark();
    this.request();
  }

  /** Finds the box of the chosen block; one that was not shown before is brought onto the screen. */
  private mark(): void {
    const before = this.selected;
    this.selected = this.chosen === null || !this.outline?.items.has(this.chosen) ? null : shownAs(this.outline, this.open, this.chosen);
    const box = this.selected === null || this.selected === before ? undefined : this.scene?.byId.get(this.selected);
    if (!box || this.screen.width === 0) return;
    const camera = reveal(this.camera, box, this.screen);
    if (camera.x !== this.camera.x || camera.y !== this.camera.y) this.fitted = null;
    this.camera = camera;
  }

  /** Colours the boxes by a measure of training; null leaves them plain. */
  colour(tints: ReadonlyMap<string, string> | null): void {
    this.tints = tints;
    this.request();
  }

  resize(width: number, height: number): void {
    if (width === this.screen.width && height === this.screen.height) return;
    this.screen = { width, height };
    this.refit();
    this.request();
  }

  /** Shows the whole drawing, or where it is too large to be read so, its top. */
  fit(how: "first" | "all"): void {
    this.fitted = how;
    this.refit();
    this.request();
  }

  zoom(factor: number): void {
    this.move(zoomAt(this.camera, factor, this.screen.width / 2, this.screen.height / 2));
  }

  /** The whole drawing as it is unfolded and coloured, in the theme of the page. */
  toSvg(name: string): Blob {
    return new Blob([sceneToSvg(this.scene!, name, theme(), this.tints)], { type: "image/svg+xml" });
  }

  /** The same as pixels: twice as fine as the drawing, or as fine as a canvas of a browser can be. */
  async toPng(): Promise<Blob> {
    const { scene, wires, tints } = this;
    const [width, height] = [scene!.width + 2 * PNG_MARGIN, scene!.height + 2 * PNG_MARGIN];
    const zoom = Math.min(2, MOST_PIXELS / Math.max(width, height));
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [Math.ceil(width * zoom), Math.ceil(height * zoom)];
    const context = canvas.getContext("2d")!;
    const screen = { width: canvas.width, height: canvas.height };
    drawScene(context, { scene: scene!, wires, camera: { zoom, x: PNG_MARGIN * zoom, y: PNG_MARGIN * zoom }, screen, selected: null, hovered: null, tints, colours: theme() }, 1);
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.globalCompositeOperation = "destination-over";
    context.fillStyle = theme().panel;
    context.fillRect(0, 0, screen.width, screen.height);
    return new Promise((resolve, reject) => canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("The browser could not make this picture. Fold some groups, or save it as SVG.")))));
  }

  /** Asks for a paint with the next display frame. */
  request(): void {
    if (this.framePending) return;
    this.framePending = true;
    requestAnimationFrame(() => {
      this.framePending = false;
      this.paint();
    });
  }

  private widthIn(font: string): (text: string) => number {
    return (text) => {
      this.context.font = font;
      return this.context.measureText(text).width;
    };
  }

  private paint(): void {
    const { width, height } = this.screen;
    if (!this.scene || width === 0) return;
    const ratio = devicePixelRatio;
    const [pixelWidth, pixelHeight] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (this.canvas.width !== pixelWidth) this.canvas.width = pixelWidth;
    if (this.canvas.height !== pixelHeight) this.canvas.height = pixelHeight;
    const { scene, wires, camera, screen, selected, hovered, tints } = this;
    drawScene(this.context, { scene, wires, camera, screen, selected, hovered, tints, colours: theme() }, ratio);
    this.minimap.show(scene, camera, screen, tints);
  }

  private centre(x: number, y: number): void {
    const { zoom } = this.camera;
    this.move({ zoom, x: this.screen.width / 2 - x * zoom, y: this.screen.height / 2 - y * zoom });
  }

  private refit(): void {
    if (!this.scene || this.screen.width === 0 || !this.fitted) return;
    this.camera = (this.fitted === "all" ? fitAll : fitFirst)(this.scene, this.screen);
  }

  private move(camera: Camera): void {
    this.fitted = null;
    this.camera = camera;
    this.request();
  }

  /** What was opened or folded, or what is around it, stays where it is while everything else moves. */
  private hold(changed: string, before: Scene): void {
    const { byId } = this.scene!;
    let id: string | null | undefined = changed;
    while (id && !(before.byId.has(id) && byId.has(id))) id = this.outline!.items.get(id)?.parent;
    if (!id) return;
    const [from, to] = [before.byId.get(id)!, byId.get(id)!];
    this.fitted = null;
    this.camera = panBy(this.camera, (from.x - to.x) * this.camera.zoom, (from.y - to.y) * this.camera.zoom);
  }

  private place(event: MouseEvent): { x: number; y: number } {
    const { left, top } = this.canvas.getBoundingClientRect();
    return { x: event.clientX - left, y: event.clientY - top };
  }

  private boxUnder(event: MouseEvent): { id: string; isGroup: boolean; onChevron: boolean } | null {
    if (!this.scene) return null;
    const { x, y } = this.place(event);
    const { zoom } = this.camera;
    const drawingX = (x - this.camera.x) / zoom;
    const drawingY = (y - this.camera.y) / zoom;
    const box = boxAt(this.scene, drawingX, drawingY);
    if (!box) return null;
    const onTitle = !box.open || drawingY <= box.y + 28;
    return { id: box.id, isGroup: box.isGroup, onChevron: box.isGroup && onTitle && drawingX <= box.x + CHEVRON_WIDTH };
  }

  private wheel(event: WheelEvent): void {
    event.preventDefault();
    const { x, y } = this.place(event);
    const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
    // A pinch on a touchpad arrives as a wheel with the control key.
    if (event.ctrlKey || event.metaKey) this.move(zoomAt(this.camera, Math.exp(-event.deltaY * lines * 0.01), x, y));
    else this.move(panBy(this.camera, -event.deltaX * lines, -event.deltaY * lines));
  }

  private pointerDown(event: PointerEvent): void {
    this.canvas.setPointerCapture(event.pointerId);
    if (this.pointers.size === 0) this.travelled = 0;
    this.pointers.set(event.pointerId, this.place(event));
  }

  private pointerMove(event: PointerEvent): void {
    const before = this.pointers.get(event.pointerId);
    if (!before) {
      const under = this.boxUnder(event);
      this.canvas.style.cursor = under ? "pointer" : "grab";
      this.hover(under?.id ?? null);
      return;
    }
    const now = this.place(event);
    const other = [...this.pointers].find(([id]) => id !== event.pointerId)?.[1];
    this.pointers.set(event.pointerId, now);
    this.travelled += Math.hypot(now.x - before.x, now.y - before.y);
    if (this.travelled <= CLICK_SLACK) return;
    if (!other) return this.move(panBy(this.camera, now.x - before.x, now.y - before.y));
    const apart = (point: { x: number; y: number }): number => Math.hypot(point.x - other.x, point.y - other.y) || 1;
    this.move(zoomAt(this.camera, apart(now) / apart(before), (now.x + other.x) / 2, (now.y + other.y) / 2));
  }

  /** Marks the wires of the box under the pointer, and says what it is. */
  private hover(id: string | null): void {
    if (id === this.hovered) return;
    this.hovered = id;
    this.canvas.title = id === null ? "" : hintOf(this.outline!.items.get(id)!);
    this.request();
  }

  private pointerUp(event: PointerEvent): void {
    const wasDown = this.pointers.delete(event.pointerId);
    if (!wasDown || this.pointers.size > 0 || this.travelled > CLICK_SLACK) return;
    const under = this.boxUnder(event);
    if (under?.onChevron) this.events.toggle(under.id, event.shiftKey);
    else this.events.pick(under?.id ?? null);
  }

  private doubleClick(event: MouseEvent): void {
    const under = this.boxUnder(event);
    if (under?.isGroup && !under.onChevron) this.events.toggle(under.id, event.shiftKey);
  }

  /** Along the wires from the chosen block; without one, or where nothing lies that way, the view moves. */
  private go(way: Way): void {
    const next = this.selected === null || !this.scene ? null : beside(this.scene, this.selected, way);
    const [x, y] = KEY_PANS[way];
    if (next === null) this.move(panBy(this.camera, x, y));
    else this.events.pick(next);
  }

  private key(event: KeyboardEvent): void {
    const keys: Record<string, () => void> = {
      ArrowLeft: () => this.go("left"),
      ArrowRight: () => this.go("right"),
      ArrowUp: () => this.go("up"),
      ArrowDown: () => this.go("down"),
      Escape: () => this.events.pick(null),
      "+": () => this.zoom(KEY_ZOOM),
      "=": () => this.zoom(KEY_ZOOM),
      "-": () => this.zoom(1 / KEY_ZOOM),
      "0": () => this.fit("all"),
      Enter: () => this.selected !== null && this.events.toggle(this.selected, event.shiftKey),
    };
    const act = event.ctrlKey || event.metaKey || event.altKey ? undefined : keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }
}
