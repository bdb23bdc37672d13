/** Numbers of the whole run over steps or time, with one cursor through all charts, and a second run laid over them. */
import { useSignalEffect } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import type { App } from "../app";
import { chartValues, overlaid, smoothed } from "../run/lines";
import type { Curve } from "../run/measures";
import { bytes, count, tick, written } from "../run/numbers";
import { upperBound, type RunStore } from "../run/store";
import type { Series } from "../run/series";
import { useSize } from "./hooks";
import { makePlot, type Plot, type PlotData, type PlotLine } from "./plot";
import { schemeChanges } from "./theme";

interface Line {
  curve: Curve;
  title: string;
  colour: PlotLine["colour"];
  dashed?: true;
  sparse?: true;
}

interface ChartSpec {
  id: string;
  title: string;
  unit?: string;
  lines: readonly Line[];
  format?: (value: number) => string;
  /** Below the map, and only where a run has it. */
  minor?: true;
}

const CHARTS: readonly ChartSpec[] = [
  {
    id: "loss", title: "Loss",
    lines: [
      { curve: "loss", title: "training", colour: "curve-1" },
      { curve: "valLoss", title: "validation", colour: "curve-2", dashed: true, sparse: true },
    ],
  },
  { id: "gradient", title: "Gradient norm", lines: [{ curve: "gradNorm", title: "", colour: "curve-3" }] },
  { id: "lr", title: "Learning rate", lines: [{ curve: "lr", title: "", colour: "curve-4" }] },
  {
    id: "time", title: "Time of a step", unit: "ms", minor: true,
    lines: [
      { curve: "data", title: "data", colour: "curve-4" },
      { curve: "forward", title: "forward", colour: "curve-1" },
      { curve: "backward", title: "backward", colour: "curve-2" },
      { curve: "optim", title: "optimizer", colour: "curve-3" },
    ],
  },
  { id: "memory", title: "GPU memory", minor: true, format: bytes, lines: [{ curve: "memory", title: "", colour: "curve-1" }] },
];

export function Charts({ app, minor = false }: { app: App; minor?: boolean }) {
  app.tick.value;
  const { curves } = app.store.value;
  const shown = CHARTS.filter((chart) => (chart.minor ?? false) === minor && (!minor || chart.lines.some(({ curve }) => curves[curve].length > 0)));
  if (shown.length === 0) return null;
  return (
    <div class={minor ? "charts minor" : "charts"}>
      {shown.map((chart) => <Chart key={chart.id} app={app} spec={chart} />)}
    </div>
  );
}

function Chart({ app, spec }: { app: App; spec: ChartSpec }) {
  const room = useRef<HTMLDivElement>(null);
  const plot = useRef<Plot | null>(null);
  const { training } = app;
  const isLog = training.isLog.value;
  const isSmooth = training.smoothing.value > 0;
  const hasOther = training.other.value !== null;
  useLayoutEffect(() => {
    const options = { lines: plotLines(spec, isSmooth, hasOther), isLog, format: spec.format ?? tick };
    plot.current = makePlot(room.current!, options, {
      cursor: (place) => (training.hover.value = place),
      zoom: (stretch) => (training.zoom.value = stretch),
      pick: (place) => training.look(frameAt(app, place)),
    });
    plot.current.show(plotData(app, spec));
    return () => plot.current!.destroy();
  }, [schemeChanges.value, isLog, isSmooth, hasOther]);
  useSize(room, (width, height) => plot.current!.resize(width, height));
  useSignalEffect(() => {
    app.tick.value;
    plot.current!.show(plotData(app, spec));
  });
  useSignalEffect(() => plot.current!.point(training.hover.value));
  app.tick.value;
  const store = app.store.value;
  const points = pointsOf(store, spec.lines[0]!.curve);
  return (
    <figure class={`panel chart chart-${spec.id}`} id={`chart-${spec.id}`} data-points={points}>
      <figcaption>
        <h2>{spec.title} {spec.unit && <span class="quiet">{spec.unit}</span>}</h2>
        {spec.lines.map((line) => store.curves[line.curve].length > 0 && <Reading key={line.curve} app={app} spec={spec} line={line} />)}
        <Broken store={store} lines={spec.lines} />
        <span class="quiet points" id={`${spec.id}-points`}>{count(points)} points</span>
      </figcaption>
      <div ref={room} class="plot" />
    </figure>
  );
}

/** The value of a line under the cursor, at the chosen step or the last one; that of the other run beside it. */
function Reading({ app, spec, line }: { app: App; spec: ChartSpec; line: Line }) {
  const { other } = app.training;
  const at = app.training.hover.value;
  return (
    <span class="reading">
      {line.title && <span class={`key ${line.colour} ${line.dashed ? "dashed" : ""}`}>{line.title}</span>}
      <Value series={app.store.value.curves[line.curve]} index={at === null ? app.training.index.value : frameAt(app, at)} exact={at !== null} format={spec.format} />
      {other.value && (
        <span class="quiet other">
          <Value series={other.value.store.curves[line.curve]} index={at === null ? other.value.store.length - 1 : nearest(app.training.axisOf(other.value.store), at)} exact={at !== null} format={spec.format} />
        </span>
      )}
    </span>
  );
}

function Value({ series, index, exact, format }: { series: Series; index: number; exact: boolean; format: ChartSpec["format"] }) {
  const measured = exact ? index : series.lastMeasured(index);
  const [value, mark] = [series.at(measured), measured < 0 ? "" : series.markAt(measured)];
  const text = format && !mark && !Number.isNaN(value) ? format(value) : written(value, mark, "number");
  return <output class={mark ? "bad" : undefined}>{text}</output>;
}

/** From which step on something was NaN or infinite: said beside the chart, since a line cannot show it. */
function Broken({ store, lines }: { store: RunStore; lines: readonly Line[] }) {
  const first = Math.min(...lines.map(({ curve }) => store.curves[curve].firstMarked()).map((index) => (index < 0 ? Infinity : index)));
  return first === Infinity ? null : <span class="broken">▼ not finite, first at step {count(store.steps[first] ?? 0)}</span>;
}

/** Index of the frame nearest to a place on the axis. */
export const frameAt = (app: App, place: number): number => nearest(app.training.axisOf(app.store.value), place);

function nearest(axis: readonly number[], place: number): number {
  const after = Math.min(axis.length - 1, upperBound(axis, place));
  return after > 0 && place - axis[after - 1]! < axis[after]! - place ? after - 1 : after;
}

/** How many frames have this number, or a mark in its place. */
function pointsOf(store: RunStore, curve: Curve): number {
  const series = store.curves[curve];
  let points = 0;
  for (let i = 0; i < series.length; i++) if (!Number.isNaN(series.at(i)) || series.markAt(i)) points++;
  return points;
}

function plotLines(spec: ChartSpec, isSmooth: boolean, hasOther: boolean): PlotLine[] {
  const own = spec.lines.flatMap(({ colour, dashed = false, sparse = false }): PlotLine[] => {
    const line = { colour, dashed, sparse, alpha: 1 };
    return isSmooth ? [{ ...line, alpha: 0.35 }, line] : [line];
  });
  return hasOther ? [...own, ...spec.lines.map(({ colour, sparse = false }) => ({ colour, dashed: true, sparse, alpha: 0.7 }))] : own;
}

function plotData(app: App, spec: ChartSpec): PlotData {
  const { training } = app;
  const [store, other] = [app.store.value, training.other.value?.store];
  const [isLog, weight] = [training.isLog.value, training.smoothing.value];
  const own = training.axisOf(store);
  const read = (from: RunStore) => spec.lines.map(({ curve }) => chartValues(from.curves[curve], from.length, isLog));
  const lines = read(store).flatMap((values) => (weight > 0 ? [values, smoothed(values, weight)] : [values]));
  const series = spec.lines.map(({ curve }) => store.curves[curve]).filter((one) => one.isMarked);
  const marks = series.length === 0 ? [] : own.flatMap((_, i) => (series.some((one) => one.markAt(i)) ? [i] : []));
  const shown = { zoom: training.zoom.value, chosen: training.at.value === null ? null : own[training.index.value] ?? null };
  if (!other) return { ...shown, axis: own, values: lines, marks };
  const { axis, spread } = overlaid<number | null>(own, training.axisOf(other));
  const second = read(other).map((values) => (weight > 0 ? smoothed(values, weight) : values));
  const places = marks.map((i) => upperBound(axis, own[i]!) - 1);
  return { ...shown, axis, values: [...lines.map((values) => spread(values, 0)), ...second.map((values) => spread(values, 1))], marks: places };
}
