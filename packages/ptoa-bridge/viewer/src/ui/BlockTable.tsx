/** One row a block: its latest numbers, and the course of one of them. Only the rows on the screen are in the document. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { App, Model } from "../app";
import { familyOf } from "../model/kinds";
import { plain } from "../model/text";
import { MEASURES } from "../run/measures";
import { count, written } from "../run/numbers";
import type { Series } from "../run/series";
import type { RunStore } from "../run/store";
import { scrollToRow, useRowWindow } from "./hooks";
import { Sparkline } from "./Sparkline";

const ROW = 30;
const HEAD = 34;

export function BlockTable({ app }: { app: App }) {
  app.tick.value;
  const trend = useSignal("std");
  const store = app.store.value;
  const ids = rowIds(store, app.model.value);
  const columns = MEASURES.map((_, m) => m).filter((m) => ids.some((id) => (store.blocks.get(id)?.[m]?.length ?? 0) > 0));
  const window = useRowWindow(ids.length, ROW);
  const active = ids.indexOf(app.selected.value ?? "");
  useEffect(() => {
    if (active >= 0) scrollToRow(window.ref.current!, active, ROW, HEAD);
  }, [active]);
  const shown = columns.find((m) => MEASURES[m]!.key === trend.value) ?? columns[0];
  return (
    <div class="panel table">
      <h2>
        Blocks, latest frame <span class="quiet">{count(ids.length)}</span>
      </h2>
      <div
        ref={window.ref} class="grid" id="blocks" role="grid" aria-label="Latest numbers of each block" tabIndex={0}
        aria-rowcount={ids.length + 1} aria-activedescendant={active >= 0 ? `row-${active}` : undefined}
        onKeyDown={(event) => key(event, app, ids, active)}
      >
        <div class="grid-head" role="row" aria-rowindex={1}>
          <span role="columnheader" class="cell name">block</span>
          <span role="columnheader" class="cell trend">{shown === undefined ? "" : `${MEASURES[shown]!.title} over time`}</span>
          {columns.map((m) => (
            <span key={m} role="columnheader" class="cell" title={MEASURES[m]!.meaning}>
              <button type="button" tabIndex={-1} aria-pressed={m === shown} onClick={() => (trend.value = MEASURES[m]!.key)}>
                {MEASURES[m]!.title}
              </button>
            </span>
          ))}
        </div>
        <div class="stretch" role="rowgroup" style={{ height: `${ids.length * ROW}px` }}>
          {ids.slice(window.first, window.end).map((id, i) => (
            <BlockRow key={id} id={id} index={window.first + i} isActive={window.first + i === active} columns={columns} trend={shown} app={app} />
          ))}
        </div>
      </div>
    </div>
  );
}

/** Blocks with numbers in the order in which they run, then those that the model does not name. */
function rowIds(store: RunStore, model: Model | null): string[] {
  const named = model?.spec.blocks.map((block) => block.id).filter((id) => store.blocks.has(id)) ?? [];
  if (named.length === store.blocks.size) return named;
  const known = new Set(named);
  return [...named, ...[...store.blocks.keys()].filter((id) => !known.has(id))];
}

interface RowProps {
  id: string;
  index: number;
  isActive: boolean;
  columns: readonly number[];
  trend: number | undefined;
  app: App;
}

function BlockRow({ id, index, isActive, columns, trend, app }: RowProps) {
  const store = app.store.value;
  const series = store.blocks.get(id)!;
  const item = app.model.value?.outline.items.get(id);
  const title = item?.title ?? plain(id, 120);
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
      <span role="gridcell" class="cell trend">
        {trend !== undefined && <Sparkline series={series[trend]!} length={store.length} label={`${MEASURES[trend]!.meaning}, over ${store.length} frames`} />}
      </span>
      {columns.map((m) => <Cell key={m} measure={m} series={series[m]!} />)}
    </div>
  );
}

/** The nearest group of the model around a block, which tells equal layers apart. */
function around(app: App, id: string): string {
  const items = app.model.value?.outline.items;
  let group = items?.get(items.get(id)?.parent ?? "");
  if (group && !group.block) group = items?.get(group.parent ?? "");
  return group ? group.title : "";
}

function Cell({ measure, series }: { measure: number; series: Series }) {
  const { key, form } = MEASURES[measure]!;
  const last = series.lastMeasured();
  const mark = last < 0 ? "" : series.markAt(last);
  const isBad = mark !== "" || (key === "notFinite" && series.at(last) > 0);
  return (
    <span role="gridcell" class={isBad ? "cell bad" : "cell"} data-measure={key}>
      {written(series.at(last), mark, form)}
    </span>
  );
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
