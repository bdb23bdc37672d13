/** A time chart: our colours and rules around uPlot. */
import uPlot from "uplot";
import { tick } from "../run/numbers";
import { FONT, theme, type Theme } from "./theme";

export interface PlotLine {
  title: string;
  colour: "curve-1" | "curve-2" | "curve-3" | "curve-4";
  dashed: boolean;
  /** Measured on few frames: its points are joined over the frames between. */
  sparse: boolean;
}

export interface PlotData {
  steps: number[];
  values: (number | null)[][];
  /** Frames where something was NaN or Inf. */
  marks: boolean[];
}

export interface Plot {
  show(data: PlotData): void;
  resize(width: number, height: number): void;
  destroy(): void;
}

const TICKS = `11px ${FONT}`;
const SYNC = uPlot.sync("steps");

export function makePlot(room: HTMLElement, lines: readonly PlotLine[], onCursor: (index: number | null) => void): Plot {
  const colours = theme();
  let marks: boolean[] = [];
  const plot = new uPlot(
    {
      width: Math.max(80, room.clientWidth),
      height: Math.max(60, room.clientHeight),
      padding: [8, 10, 0, 0],
      legend: { show: false },
      cursor: { sync: { key: SYNC.key }, y: false, drag: { x: true, y: false }, points: { size: 6 } },
      scales: { x: { time: false, range: (_, low, high) => (low === high ? [low - 1, high + 1] : [low, high]) } },
      axes: [axis(colours, 24), { ...axis(colours, 50), values: (_, splits) => splits.map(tick) }],
      series: [{}, ...lines.map((line) => seriesOptions(line, colours))],
      hooks: {
        setCursor: [(self) => onCursor(self.cursor.idx ?? null)],
        draw: [(self) => drawMarks(self, marks, colours)],
      },
    },
    [[], ...lines.map(() => [])],
    room,
  );
  return {
    show(data) {
      marks = data.marks;
      plot.setData([data.steps, ...data.values]);
    },
    resize: (width, height) => plot.setSize({ width: Math.max(80, width), height: Math.max(60, height) }),
    destroy: () => plot.destroy(),
  };
}

function axis(colours: Theme, size: number): uPlot.Axis {
  const line = { stroke: colours.line, width: 1 };
  return { stroke: colours.soft, font: TICKS, size, gap: 4, grid: line, ticks: { show: false } };
}

function seriesOptions(line: PlotLine, colours: Theme): uPlot.Series {
  const stroke = colours[line.colour];
  return {
    stroke, width: 1.6, spanGaps: line.sparse,
    ...(line.dashed && { dash: [5, 3] }),
    points: { size: 5, stroke, fill: stroke, ...(line.sparse && { show: true }) },
  };
}

/** A triangle at the upper edge where a number was NaN or Inf and the line has a gap. */
function drawMarks(plot: uPlot, marks: readonly boolean[], colours: Theme): void {
  const { ctx: context, bbox } = plot;
  const size = 5 * devicePixelRatio;
  context.fillStyle = colours.bad;
  marks.forEach((isMarked, i) => {
    if (!isMarked) return;
    const x = plot.valToPos(plot.data[0][i]!, "x", true);
    context.beginPath();
    context.moveTo(x - size, bbox.top);
    context.lineTo(x + size, bbox.top);
    context.lineTo(x, bbox.top + 1.6 * size);
    context.fill();
  });
}
