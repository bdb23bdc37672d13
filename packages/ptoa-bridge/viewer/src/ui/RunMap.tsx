/** The run at a glance: depth of the model down, steps along, a colour for the measure; a click looks there. */
import { untracked, useSignalEffect } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import type { App } from "../app";
import { fit, fitEnd, plain } from "../model/text";
import { count, number, written } from "../run/numbers";
import { columnsOf, paintGrid, rasterise } from "../run/raster";
import { isBroken, MAP_MEASURES, palette, pixel, scaleFor, seriesFor, type MapMeasure, type Scale } from "../run/scales";
import type { Series } from "../run/series";
import { frameAt } from "./Charts";
import { ColourBar } from "./HeatMap";
import { prepare } from "./Histogram";
import { GUTTER, RIGHT_EDGE } from "./plot";
import { blockRows } from "./rows";
import { FONT } from "./colours";
import { isDark, schemeChanges, theme } from "./theme";
import { useSize } from "./hooks";

export function RunMap({ app }: { app: App }) {
  const view = useRef<MapView | null>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const room = useRef<HTMLDivElement>(null);
  const lines = useRef<HTMLDivElement>(null);
  const { training } = app;
  useLayoutEffect(() => {
    view.current = new MapView(app, canvas.current!, lines.current!);
  }, []);
  useSize(room, (width, height) => view.current!.resize(width, height));
  useSignalEffect(() => {
    app.slowTick.value;
    training.measure.value;
    training.zoom.value;
    training.axis.value;
    app.model.value;
    schemeChanges.value;
    // What drawing reads beside, the cursor above all, is no reason to draw all cells.
    untracked(() => view.current!.draw());
  });
  useSignalEffect(() => view.current!.drawCursor());
  return (
    <figure class="panel map" id="map-panel">
      <figcaption>
        <h2>Map</h2>
        <span class="choice" role="group" aria-label="Measure of the map and the graph">
          {MAP_MEASURES.map((measure) => (
            <button key={measure.key} type="button" aria-pressed={measure === training.measure.value} onClick={() => (training.measure.value = measure)}>
              {measure.title}
            </button>
          ))}
        </span>
        <Legend app={app} />
      </figcaption>
      <div
        ref={room} class="map-room" id="map" tabIndex={0} role="application"
        aria-label="Map of the run: blocks down, steps along. Up and down choose a block, left and right a step."
        onPointerMove={(event) => view.current!.hover(event.offsetX, event.offsetY)} onPointerLeave={() => view.current!.hover(-1, -1)}
        onClick={(event) => view.current!.pick(event.offsetX, event.offsetY)} onKeyDown={(event) => view.current!.key(event)}
      >
        <canvas ref={canvas} id="map-cells" aria-hidden="true" />
        <div ref={lines} class="map-lines" aria-hidden="true">
          <i class="pointed" /><i class="pointed" /><i class="chosen" /><i class="selected" /><i class="frame" />
        </div>
      </div>
      <MapReading app={app} />
    </figure>
  );
}

function Legend({ app }: { app: App }) {
  app.slowTick.value;
  const measure = app.training.measure.value;
  const scale = scaleFor(measure, app.store.value.blocks.values());
  const say = (value: number): string => (measure.kind === "share" ? written(value, "", "share") : number(value));
  return (
    <span class="legend" id="legend">
      <span>{measure.kind === "around" ? `≤ ${say(scale.low)}` : say(scale.low)}</span>
      <ColourBar kind={scale.kind} label={`Colours from ${say(scale.low)} to ${say(scale.high)} ${measure.unit}`} />
      <span>{measure.kind === "around" ? `≥ ${say(scale.high)}` : say(scale.high)}</span>
      <span class="quiet">{measure.unit}</span>
      <span class="broken-key">NaN, Inf</span>
    </span>
  );
}

/** What is under the pointer, or at the chosen block and step. */
function MapReading({ app }: { app: App }) {
  app.tick.value;
  const { training } = app;
  const store = app.store.value;
  const hovered = app.mapRow.value;
  const id = hovered ?? app.selected.value;
  const index = hovered !== null && training.hover.value !== null ? frameAt(app, training.hover.value) : training.index.value;
  const series = id === null ? undefined : store.blocks.get(id);
  if (!series || id === null) return <p class="map-reading quiet">{count(store.blocks.size)} blocks. Point at the map to read it; a click opens that block at that step.</p>;
  const measure = training.measure.value;
  const one = seriesFor(measure, series);
  const broken = isBroken(series, one, index);
  return (
    <p class="map-reading" id="map-reading">
      <bdi>{titleOf(app, id)}</bdi> <span class="quiet">step {count(store.steps[index] ?? 0)}</span>{" "}
      <b class={broken ? "bad" : undefined}>{said(measure, one, index)}{broken && !one?.markAt(index) ? ", with NaN or Inf" : ""}</b>
    </p>
  );
}

const said = (measure: MapMeasure, series: Series | undefined, index: number): string =>
  `${measure.title} ${series ? written(series.at(index), series.markAt(index), measure.kind === "share" ? "share" : "number") : "not measured"}`;

function titleOf(app: App, id: string): string {
  const items = app.model.value?.outline.items;
  const item = items?.get(id);
  return item?.block?.label ? plain(item.block.label, 80) : item?.title ?? plain(id, 80);
}

class MapView {
  private width = 0;
  private height = 0;
  private ids: string[] = [];
  private common = "";
  private readonly cells = document.createElement("canvas");

  constructor(
    private readonly app: App,
    private readonly canvas: HTMLCanvasElement,
    private readonly lines: HTMLElement,
  ) {}

  resize(width: number, height: number): void {
    if (width === this.width && height === this.height) return;
    [this.width, this.height] = [width, height];
    this.draw();
  }

  /** Draws all cells. */
  draw(): void {
    if (this.width <= 0 || this.height <= 0) return;
    this.paint();
    this.drawCursor();
  }

  private paint(): void {
    const { store: { value: store }, training } = this.app;
    this.ids = blockRows(store, this.app.model.value);
    this.common = commonPath(this.ids.flatMap((id) => this.app.model.value?.outline.items.get(id)?.block?.label ?? []));
    const context = prepare(this.canvas, this.width, this.height);
    const ratio = devicePixelRatio;
    const [width, height] = [this.cellsWidth, this.height];
    if (!this.ids.length || store.length === 0 || width < 1) return;
    const blocks = this.ids.map((id) => store.blocks.get(id)!);
    const measure = training.measure.value;
    const scale: Scale = scaleFor(measure, blocks);
    const columns = columnsOf(training.axisOf(store), this.stretch(), Math.round(width * ratio));
    const grid = rasterise(blocks, measure, scale, columns, Math.round(height * ratio));
    const colours = theme();
    const pixels = paintGrid(grid, palette(scale.kind, isDark()), isDark() ? [pixel(255, 80, 170), pixel(0, 0, 0)] : [pixel(214, 0, 110), pixel(255, 255, 255)]);
    [this.cells.width, this.cells.height] = [grid.width, grid.height];
    this.cells.getContext("2d")!.putImageData(new ImageData(new Uint8ClampedArray(pixels.buffer as ArrayBuffer), grid.width, grid.height), 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.cells, GUTTER, 0, width, height);
    this.names(context, colours.soft);
    this.canvas.dataset.frames = String(store.length);
  }

  /** A block's label without what all of them begin with. */
  private nameOf(id: string): string {
    const { model } = this.app;
    const item = model.value?.outline.items.get(id);
    const label = item?.block?.label;
    return plain(label ? (label.startsWith(this.common) ? label.slice(this.common.length) : label) : item?.title ?? id, 60);
  }

  /** Names of blocks beside their rows, as many as can be read. */
  private names(context: CanvasRenderingContext2D, colour: string): void {
    const row = this.height / this.ids.length;
    const every = Math.max(1, Math.ceil(12 / row));
    context.font = `10px ${FONT}`;
    context.fillStyle = colour;
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (let i = 0; i < this.ids.length; i += every) {
      context.fillText(cut(context, this.nameOf(this.ids[i]!)), GUTTER - 5, Math.max(5, (i + 0.5) * row));
    }
  }

  private get cellsWidth(): number {
    return this.width - GUTTER - RIGHT_EDGE;
  }

  private stretch(): readonly [number, number] {
    const { training, store: { value: store } } = this.app;
    const axis = training.axisOf(store);
    const [low, high] = training.zoom.value ?? [axis[0] ?? 0, axis.at(-1) ?? 1];
    return low === high ? [low - 1, high + 1] : [low, high];
  }

  /** The cursor of all charts, the chosen step, and the selected block. */
  drawCursor(): void {
    const { training, store: { value: store }, selected } = this.app;
    const [hover, row, at] = [training.hover.value, this.app.mapRow.value, training.at.value];
    const chosen = at === null ? null : training.axisOf(store)[training.index.value] ?? null;
    const selectedRow = this.ids.indexOf(selected.value ?? "");
    if (this.width <= 0) return;
    const [low, high] = this.stretch();
    const isIn = (place: number | null): place is number => place !== null && place >= low && place <= high;
    const x = (place: number): number => Math.round(GUTTER + ((place - low) / (high - low)) * this.cellsWidth);
    const size = this.height / Math.max(1, this.ids.length);
    // Lines move on their own layers: the cells under them are not painted again.
    const [step, block, look, side, frame] = [...this.lines.children] as HTMLElement[];
    put(step!, isIn(hover) ? [x(hover), 0, 1, this.height] : null);
    put(block!, row === null ? null : [GUTTER, Math.round((this.ids.indexOf(row) + 0.5) * size), this.cellsWidth, 1]);
    put(look!, isIn(chosen) ? [x(chosen) - 1, 0, 2, this.height] : null);
    const top = Math.floor(selectedRow * size);
    put(side!, selectedRow < 0 ? null : [GUTTER - 4, top, 4, Math.max(2, size)]);
    put(frame!, selectedRow < 0 ? null : [GUTTER - 1, top - 1, this.cellsWidth + 2, Math.ceil(size) + 2]);
  }

  private rowAt(y: number): string | null {
    return this.ids[Math.floor((y / this.height) * this.ids.length)] ?? null;
  }

  private placeAt(x: number): number | null {
    const share = (x - GUTTER) / this.cellsWidth;
    const [low, high] = this.stretch();
    return share < 0 || share > 1 ? null : low + share * (high - low);
  }

  hover(x: number, y: number): void {
    this.app.mapRow.value = y < 0 ? null : this.rowAt(y);
    this.app.training.hover.value = x < 0 ? null : this.placeAt(x);
  }

  pick(x: number, y: number): void {
    if (this.ids.length !== this.app.store.value.blocks.size) this.draw();
    const [id, place] = [this.rowAt(y), this.placeAt(x)];
    if (id !== null) this.app.select(id);
    if (place !== null) this.app.training.look(frameAt(this.app, place));
  }

  key(event: KeyboardEvent): void {
    const { training, selected } = this.app;
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const down = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (step === undefined && down === undefined) return;
    event.preventDefault();
    if (step !== undefined) training.look(training.index.value + step * (event.shiftKey ? 10 : 1));
    const row = this.ids.indexOf(selected.value ?? "");
    if (down !== undefined) this.app.select(this.ids[Math.max(0, Math.min(this.ids.length - 1, row + down))] ?? null);
  }
}

function put({ style }: HTMLElement, box: readonly [x: number, y: number, width: number, height: number] | null): void {
  style.visibility = box ? "visible" : "hidden";
  if (!box) return;
  style.transform = `translate(${box[0]}px, ${box[1]}px)`;
  style.width = `${box[2]}px`;
  style.height = `${box[3]}px`;
}

/** The dotted path with which most of these labels begin: "layers." or "transformer.h.". */
function commonPath(labels: readonly string[]): string {
  const dotted = labels.filter((label) => label.includes("."));
  let path = dotted[0] ?? "";
  for (const label of dotted) while (!label.startsWith(path)) path = path.slice(0, Math.max(0, path.lastIndexOf(".", path.length - 2) + 1));
  return path.endsWith(".") ? path : "";
}

/** As much of a name as fits beside the map: of a path its end, which tells blocks apart, of other names the beginning. */
function cut(context: CanvasRenderingContext2D, name: string): string {
  const measure = (text: string): number => context.measureText(text).width;
  return (name.includes(".") ? fitEnd : fit)(name, GUTTER - 8, measure);
}
