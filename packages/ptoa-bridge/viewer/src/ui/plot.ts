/** A time chart: our colours and rules around uPlot. */
import uPlot from "uplot";
import { tick } from "../run/numbers";
import { FONT, type Theme } from "./colours";
import { theme } from "./theme";

export interface PlotLine {
  colour: "curve-1" | "curve-2" | "curve-3" | "curve-4";
  /** Drawn dashed: another quantity or another run. */
  dashed: boolean;
  /** Measured on few frames: its points are joined over the frames between. */
  sparse: boolean;
  /** How strong: weaker behind its own smoothed course, or of another run. */
  alpha: number;
}

export interface PlotData {
  axis: readonly number[];
  /** Per line: null is a gap, undefined goes on. */
  values: readonly (readonly (number | null | undefined)[])[];
  /** Indices of frames where something was NaN or Inf. */
  marks: readonly number[];
  /** The stretch of the axis that is shown; null shows all. */
  zoom: readonly [number, number] | null;
  /** Place of the frame that is looked at; null where none is chosen. */
  chosen: number | null;
}

export interface PlotOptions {
  lines: readonly PlotLine[];
  isLog: boolean;
  format: (value: number) => string;
}

export interface PlotEvents {
  cursor(place: number | null): void;
  zoom(stretch: readonly [number, number] | null): void;
  pick(place: number): void;
}

export interface Plot {
  show(data: PlotData): void;
  /** Puts the cursor where it is on another chart. */
  point(place: number | null): void;
  resize(width: number, height: number): void;
  destroy(): void;
}

/** Width of the numbers beside a chart; the map leaves as much for names. */
export const GUTTER = 66;
export const RIGHT_EDGE = 10;
const TICKS = `11px ${FONT}`;
const CLICK_SLACK = 4;

export function makePlot(room: HTMLElement, options: PlotOptions, events: PlotEvents): Plot {
  const colours = theme();
  let shown: PlotData = { axis: [], values: [], marks: [], zoom: null, chosen: null };
  const plot = new uPlot(
    {
      width: Math.max(80, room.clientWidth),
      height: Math.max(60, room.clientHeight),
      padding: [8, RIGHT_EDGE, 0, 0],
      legend: { show: false },
      cursor: { y: false, drag: { x: true, y: false, setScale: false, dist: CLICK_SLACK }, points: { size: 6 }, bind: { dblclick: () => () => (events.zoom(null), null) } },
      scales: {
        x: { time: false, range: () => stretchOf(shown) },
        y: options.isLog ? { distr: 3 } : {},
      },
      axes: [axis(colours, 24), { ...axis(colours, GUTTER), values: (_, splits) => splits.map((value) => (value === null ? "" : options.format(value))) }],
      series: [{}, ...options.lines.map((line) => seriesOptions(line, colours))],
      hooks: {
        setCursor: [(self) => events.cursor((self.cursor.left ?? -1) < 0 ? null : self.posToVal(self.cursor.left!, "x"))],
        setSelect: [(self) => {
          const { left, width } = self.select;
          if (width > 0) events.zoom([self.posToVal(left, "x"), self.posToVal(left + width, "x")]);
          self.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        }],
        draw: [(self) => drawChosen(self, shown.chosen, colours), (self) => drawMarks(self, shown, colours)],
      },
    },
    [[], ...options.lines.map(() => [])],
    room,
  );
  listenForClicks(plot, events);
  return {
    show(data) {
      shown = data;
      plot.setData([data.axis, ...data.values] as uPlot.AlignedData);
    },
    point(place) {
      const left = place === null ? -10 : plot.valToPos(place, "x");
      if (Math.abs(left - (plot.cursor.left ?? -10)) < 1) return;
      plot.setCursor({ left, top: place === null ? -10 : 10 }, false);
    },
    resize: (width, height) => plot.setSize({ width: Math.max(80, width), height: Math.max(60, height) }),
    destroy: () => plot.destroy(),
  };
}

/** A click without a drag picks the place under the pointer. */
function listenForClicks(plot: uPlot, events: PlotEvents): void {
  let from = 0;
  plot.over.addEventListener("mousedown", (event) => (from = event.clientX));
  plot.over.addEventListener("click", (event) => {
    if (Math.abs(event.clientX - from) < CLICK_SLACK && (plot.cursor.left ?? -1) >= 0) events.pick(plot.posToVal(plot.cursor.left!, "x"));
  });
}

function stretchOf({ zoom, axis }: PlotData): [number, number] {
  const [low, high] = zoom ?? [axis[0] ?? 0, axis.at(-1) ?? 1];
  return low === high ? [low - 1, high + 1] : [low, high];
}

function axis(colours: Theme, size: number): uPlot.Axis {
  const line = { stroke: colours.line, width: 1 };
  return { stroke: colours.soft, font: TICKS, size, gap: 4, grid: line, ticks: { show: false } };
}

export const axisTick = tick;

function seriesOptions(line: PlotLine, colours: Theme): uPlot.Series {
  const stroke = colours[line.colour];
  return {
    stroke, width: line.alpha < 1 ? 1 : 1.6, alpha: line.alpha, spanGaps: line.sparse,
    ...(line.dashed && { dash: [5, 3] }),
    points: { size: 5, stroke, fill: stroke, ...(line.sparse && line.alpha === 1 && { show: true }) },
  };
}

function drawChosen(plot: uPlot, chosen: number | null, colours: Theme): void {
  if (chosen === null) return;
  const { ctx: context, bbox } = plot;
  const x = Math.round(plot.valToPos(chosen, "x", true));
  if (x < bbox.left || x > bbox.left + bbox.width) return;
  context.fillStyle = colours.accent;
  context.fillRect(x, bbox.top, Math.max(1, devicePixelRatio), bbox.height);
}

/** A triangle at the upper edge where a number was NaN or Inf and the line has a gap. */
function drawMarks(plot: uPlot, { marks, axis }: PlotData, colours: Theme): void {
  const { ctx: context, bbox } = plot;
  const size = 4 * devicePixelRatio;
  context.fillStyle = colours.bad;
  let last = -Infinity;
  for (const i of marks) {
    const x = plot.valToPos(axis[i]!, "x", true);
    // Thousands of them are one band.
    if (x < bbox.left - 1 || x > bbox.left + bbox.width + 1 || x - last < 1.5 * devicePixelRatio) continue;
    last = x;
    context.beginPath();
    context.moveTo(x - size, bbox.top);
    context.lineTo(x + size, bbox.top);
    context.lineTo(x, bbox.top + 1.7 * size);
    context.fill();
  }
}
