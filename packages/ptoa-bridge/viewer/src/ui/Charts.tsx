/** Loss, gradient norm and learning rate over the steps, with one cursor through all of them. */
import { useSignal, useSignalEffect } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import type { App } from "../app";
import { byStep, chartValues } from "../run/lines";
import type { Curve } from "../run/measures";
import { count, written } from "../run/numbers";
import type { RunStore } from "../run/store";
import { useSize } from "./hooks";
import { makePlot, type Plot, type PlotLine } from "./plot";
import { schemeChanges } from "./theme";

interface Line extends PlotLine {
  curve: Curve;
}

interface ChartSpec {
  id: string;
  title: string;
  lines: Line[];
}

const CHARTS: readonly ChartSpec[] = [
  {
    id: "loss", title: "Loss",
    lines: [
      { curve: "loss", title: "training", colour: "curve-1", dashed: false, sparse: false },
      { curve: "valLoss", title: "validation", colour: "curve-2", dashed: true, sparse: true },
    ],
  },
  { id: "gradient", title: "Gradient norm", lines: [{ curve: "gradNorm", title: "", colour: "curve-3", dashed: false, sparse: false }] },
  { id: "lr", title: "Learning rate", lines: [{ curve: "lr", title: "", colour: "curve-4", dashed: false, sparse: false }] },
];

export function Charts({ app }: { app: App }) {
  /** Frame under the pointer; null while it is elsewhere. */
  const cursor = useSignal<number | null>(null);
  return (
    <div class="charts">
      {CHARTS.map((chart) => (
        <Chart key={chart.id} app={app} spec={chart} onCursor={(index) => (cursor.value = index)} cursor={cursor.value} />
      ))}
    </div>
  );
}

interface ChartProps {
  app: App;
  spec: ChartSpec;
  cursor: number | null;
  onCursor: (index: number | null) => void;
}

function Chart({ app, spec, cursor, onCursor }: ChartProps) {
  const room = useRef<HTMLDivElement>(null);
  const plot = useRef<Plot | null>(null);
  useLayoutEffect(() => {
    plot.current = makePlot(room.current!, spec.lines, onCursor);
    return () => plot.current!.destroy();
  }, [schemeChanges.value]);
  useSize(room, (width, height) => plot.current!.resize(width, height));
  useSignalEffect(() => {
    app.tick.value;
    schemeChanges.value;
    plot.current!.show(plotData(app.store.value, spec.lines));
  });
  app.tick.value;
  const store = app.store.value;
  const points = chartPoints(store, spec.lines[0]!.curve);
  return (
    <figure class={`panel chart chart-${spec.id}`} id={`chart-${spec.id}`} data-points={points}>
      <figcaption>
        <h2>{spec.title}</h2>
        {spec.lines.map((line) => <Reading key={line.curve} store={store} line={line} cursor={cursor} />)}
        <span class="quiet step">{stepText(store, cursor)}</span>
        <span class="quiet points" id={`${spec.id}-points`}>{count(points)} points</span>
      </figcaption>
      <div ref={room} class="plot" />
    </figure>
  );
}

/** The value of a line under the cursor, or the last one. */
function Reading({ store, line, cursor }: { store: RunStore; line: Line; cursor: number | null }) {
  const series = store.curves[line.curve];
  const order = byStep(store.steps);
  const index = cursor === null ? series.lastMeasured() : order ? order[cursor]! : cursor;
  const mark = index < 0 ? "" : series.markAt(index);
  return (
    <span class="reading">
      {line.title && <span class={`key ${line.colour} ${line.dashed ? "dashed" : ""}`}>{line.title}</span>}
      <output class={mark ? "bad" : undefined}>{written(series.at(index), mark, "number")}</output>
    </span>
  );
}

function stepText(store: RunStore, cursor: number | null): string {
  if (cursor === null) return "";
  const order = byStep(store.steps);
  return `step ${count(store.steps[order ? order[cursor]! : cursor] ?? 0)}`;
}

function chartPoints(store: RunStore, curve: Curve): number {
  const series = store.curves[curve];
  let points = 0;
  for (let i = 0; i < store.length; i++) if (!Number.isNaN(series.at(i)) || series.markAt(i)) points++;
  return points;
}

function plotData(store: RunStore, lines: readonly Line[]) {
  const order = byStep(store.steps);
  const steps = order ? order.map((i) => store.steps[i]!) : store.steps.slice();
  const series = lines.map(({ curve }) => store.curves[curve]);
  return {
    steps,
    values: series.map((one) => chartValues(one, steps.length, order)),
    marks: steps.map((_, i) => series.some((one) => one.isMarked && one.markAt(order ? order[i]! : i) !== "")),
  };
}
