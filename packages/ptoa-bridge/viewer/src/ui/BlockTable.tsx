/** One row a block, with the number and the course of every measure. Only the rows on the screen are drawn. */
import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import type { App } from "../app";
import { familyOf } from "../model/kinds";
import { blockAround } from "../model/outline";
import { plain } from "../model/text";
import { MEASURES } from "../run/measures";
import { count, written } from "../run/numbers";
import type { Series } from "../run/series";
import type { RunStore } from "../run/store";
import { scrollToRow, useRowWindow } from "./hooks";
import { blockRows } from "./rows";
import { drawSparklines } from "./Sparkline";
import { schemeChanges } from "./theme";

const ROW = 38;
const HEAD = 34;
const NAME_WIDTH = 150;
export const CELL_WIDTH = 74;

/** A measure's index and which way; null keeps the order of the model. */
interface Order {
  measure: number;
  isRising: boolean;
}

export function BlockTable({ app }: { app: App }) {
  app.tick.value;
  const order = useSignal<Order | null>(null);
  const words = useSignal("");
  const store = app.store.value;
  const all = blockRows(store, app.model.value);
  const index = app.training.index.value;
  // Rows keep their places while frames come: they are sorted when that is asked for, and when a step is chosen.
  const ids = useMemo(
    () => sorted(store, all.filter((id) => matches(app, id, words.value)), order.value, index),
    [store, all.length, order.value, words.value, app.training.at.value],
  );
  const columns = MEASURES.map((_, m) => m).filter((m) => all.some((id) => (store.blocks.get(id)?.[m]?.length ?? 0) > 0));
  const window = useRowWindow(ids.length, ROW);
  const active = ids.indexOf(app.selected.value ?? "");
  useEffect(() => {
    if (active >= 0) scrollToRow(window.ref.current!, active, ROW, HEAD);
  }, [active]);
  const shown = ids.slice(window.first, window.end);
  return (
    <div class="panel table">
      <div class="table-head">
        <h2>
          Blocks <span class="quiet">{count(ids.length)}{ids.length < all.length && ` of ${count(all.length)}`}</span>
        </h2>
        <input
          type="search" id="filter" placeholder="name or kind" aria-label="Show only blocks whose name or kind has" value={words.value}
          onInput={(event) => (words.value = event.currentTarget.value)}
        />
      </div>
      <div
        ref={window.ref} class="grid" id="blocks" role="grid" aria-label="Numbers of each block at the step that is looked at" tabIndex={0}
        aria-rowcount={ids.length + 1} aria-activedescendant={active >= 0 ? `row-${active}` : undefined}
        onKeyDown={(event) => key(event, app, ids, active)}
      >
        <div class="grid-head" role="row" aria-rowindex={1}>
          <span role="columnheader" class="cell name" aria-sort={order.value ? "none" : "other"}>
            <button type="button" onClick={() => (order.value = null)} title="in the order of the model">block</button>
          </span>
          {columns.map((m) => <Heading key={m} measure={m} order={order.value} sort={(next) => (order.value = next)} />)}
        </div>
        <div class="stretch" role="rowgroup" style={{ height: `${ids.length * ROW}px`, width: `${NAME_WIDTH + columns.length * CELL_WIDTH}px` }}>
          {shown.map((id, i) => (
            <BlockRow key={id} id={id} index={window.first + i} isActive={window.first + i === active} columns={columns} app={app} />
          ))}
          <Courses store={store} ids={shown} top={window.first * ROW} columns={columns} index={index} isChosen={app.training.at.value !== null} />
        </div>
      </div>
    </div>
  );
}

function Heading({ measure, order, sort }: { measure: number; order: Order | null; sort: (order: Order) => void }) {
  const { title, meaning } = MEASURES[measure]!;
  const isSorted = order?.measure === measure;
  const direction = !isSorted ? "none" : order.isRising ? "ascending" : "descending";
  return (
    <span role="columnheader" class="cell" title={`${meaning}; a click sorts`} aria-sort={direction}>
      <button type="button" onClick={() => sort({ measure, isRising: isSorted && !order.isRising })}>
        {isSorted && (order.isRising ? "▴ " : "▾ ")}{title}
      </button>
    </span>
  );
}

function matches(app: App, id: string, words: string): boolean {
  const item = app.model.value?.outline.items.get(id);
  const text = `${id} ${item?.kind ?? ""} ${item?.title ?? ""} ${item?.detail ?? ""} ${item?.block?.label ?? ""}`.toLowerCase();
  return words.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

/** By a measure at a frame; what was NaN or infinite comes first either way, what was not measured last. */
export function sorted(store: RunStore, ids: string[], order: Order | null, index: number): string[] {
  if (!order) return ids;
  const values = new Map(ids.map((id) => [id, valueAt(store.blocks.get(id)![order.measure]!, index, order.isRising)]));
  return ids.sort((a, b) => values.get(b)! - values.get(a)! || 0);
}

function valueAt(series: Series, index: number, isRising: boolean): number {
  const at = series.lastMeasured(index);
  if (at < 0) return -Infinity;
  if (series.markAt(at)) return Infinity;
  return isRising ? -series.at(at) : series.at(at);
}

interface RowProps {
  id: string;
  index: number;
  isActive: boolean;
  columns: readonly number[];
  app: App;
}

function BlockRow({ id, index, isActive, columns, app }: RowProps) {
  const store = app.store.value;
  const series = store.blocks.get(id)!;
  const item = app.model.value?.outline.items.get(id);
  const title = item?.title ?? plain(id, 120);
  const at = app.training.index.value;
  return (
    <div
      id={`row-${index}`} class="grid-row" role="row" aria-rowindex={index + 2} aria-selected={isActive} data-block={id}
      style={{ top: `${index * ROW}px` }} onClick={() => app.select(id)}
    >
      <span role="rowheader" class="cell name">
        <span class={`dot k-${familyOf(item?.kind ?? "")}`} aria-hidden="true" />
        <bdi title={title}>{title}</bdi>
        <bdi class="quiet">{around(app, id)}</bdi>
      </span>
      {columns.map((m) => <Cell key={m} measure={m} series={series[m]!} index={at} />)}
    </div>
  );
}

/** The nearest group of the model around a block, which tells equal layers apart. */
function around(app: App, id: string): string {
  const { value: model } = app.model;
  return (model && blockAround(model.outline, id)?.title) ?? "";
}

function Cell({ measure, series, index }: { measure: number; series: Series; index: number }) {
  const { key, form } = MEASURES[measure]!;
  const at = series.lastMeasured(index);
  const mark = at < 0 ? "" : series.markAt(at);
  const value = series.at(at);
  const isBad = mark !== "" || (key === "notFinite" && value > 0);
  // A share fills its cell as far as it goes: a layer of dead units is a full bar.
  const bar = form === "share" && value > 0 ? { backgroundSize: `${Math.round(value * 100)}% 100%` } : undefined;
  return (
    <span role="gridcell" class={isBad ? "cell bad" : bar ? "cell bar" : "cell"} data-measure={key} {...(bar && { style: bar })}>
      {written(value, mark, form)}
    </span>
  );
}

interface CoursesProps {
  store: RunStore;
  ids: readonly string[];
  top: number;
  columns: readonly number[];
  index: number;
  isChosen: boolean;
}

/** The courses of all measures of the rows on the screen, on one canvas. */
function Courses({ store, ids, top, columns, index, isChosen }: CoursesProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  schemeChanges.value;
  useLayoutEffect(() => {
    const rows = ids.map((id) => columns.map((m) => store.blocks.get(id)?.[m]));
    drawSparklines(canvas.current!, rows, { length: store.length, cellWidth: CELL_WIDTH, rowHeight: ROW, chosen: isChosen ? index : null });
  });
  return <canvas ref={canvas} class="courses" aria-hidden="true" style={{ top: `${top}px`, left: `${NAME_WIDTH}px` }} />;
}

function key(event: KeyboardEvent, app: App, ids: readonly string[], active: number): void {
  const steps: Record<string, number> = {
    ArrowDown: active + 1, ArrowUp: Math.max(0, active - 1), Home: 0, End: ids.length - 1, PageDown: active + 10, PageUp: active - 10,
  };
  const to = event.target === event.currentTarget ? steps[event.key] : undefined;
  const id = to === undefined ? undefined : ids[Math.max(0, Math.min(ids.length - 1, to))];
  if (id === undefined) return;
  event.preventDefault();
  app.select(id);
}
