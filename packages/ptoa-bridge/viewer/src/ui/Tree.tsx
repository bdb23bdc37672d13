/** The blocks as a tree for eyes, keyboard and screen readers; it folds and opens the same groups as the graph. */
import { useComputed } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { App, Model } from "../app";
import { familyOf } from "../model/kinds";
import { shownAs, visibleItems, type VisibleItem } from "../model/view";
import { count } from "../run/numbers";
import { scrollToRow, useRowWindow } from "./hooks";

const ROW = 26;

interface Row extends VisibleItem {
  /** Place among its siblings, from 1, and how many they are. */
  place: number;
  siblings: number;
}

export function Tree({ app }: { app: App }) {
  const rows = useComputed(() => (app.model.value ? treeRows(app.model.value, app.open.value) : []));
  const active = useComputed(() => {
    const { value: model } = app.model;
    const { value: selected } = app.selected;
    return model && selected !== null ? shownAs(model.outline, app.open.value, selected) : null;
  });
  const window = useRowWindow(rows.value.length, ROW);
  const activeRow = rows.value.findIndex((row) => row.item.id === active.value);
  useEffect(() => {
    if (activeRow >= 0) scrollToRow(window.ref.current!, activeRow, ROW);
  }, [activeRow]);
  const visible = rows.value.slice(window.first, window.end);
  return (
    <div class="panel tree">
      <h2>
        Blocks <span class="quiet">{count(app.model.value?.spec.blocks.length ?? 0)}</span>
      </h2>
      <div
        ref={window.ref} class="rows" role="tree" aria-label="Blocks of the model" tabIndex={0}
        aria-activedescendant={activeRow >= 0 ? `tree-${activeRow}` : undefined}
        onKeyDown={(event) => key(event, app, rows.value, activeRow)}
      >
        <div role="none" class="stretch" style={{ height: `${rows.value.length * ROW}px` }}>
          {visible.map((row, i) => (
            <TreeRow key={row.item.id} row={row} index={window.first + i} isActive={window.first + i === activeRow} app={app} />
          ))}
        </div>
      </div>
    </div>
  );
}

function treeRows({ outline }: Model, open: ReadonlySet<string>): Row[] {
  const siblings = new Map<string | null, number>();
  const counted = visibleItems(outline, open).map((visible) => {
    const place = (siblings.get(visible.parent) ?? 0) + 1;
    siblings.set(visible.parent, place);
    return { ...visible, place };
  });
  return counted.map((row) => ({ ...row, siblings: siblings.get(row.parent)! }));
}

function TreeRow({ row, index, isActive, app }: { row: Row; index: number; isActive: boolean; app: App }) {
  const { item, depth, open } = row;
  const isGroup = item.children.length > 0;
  return (
    <div
      id={`tree-${index}`} class="row" role="treeitem" data-tree={item.id} style={{ top: `${index * ROW}px`, paddingLeft: `${6 + Math.min(depth, 12) * 14}px` }}
      aria-level={depth + 1} aria-setsize={row.siblings} aria-posinset={row.place} aria-selected={isActive}
      aria-expanded={isGroup ? open : undefined} onClick={() => app.select(item.id)}
      onDblClick={() => isGroup && app.setOpen(item.id, !open)}
    >
      <span
        class={`twist ${isGroup ? (open ? "open" : "folded") : ""}`} aria-hidden="true"
        onClick={(event) => {
          if (!isGroup) return;
          event.stopPropagation();
          app.setOpen(item.id, event.shiftKey || !open, event.shiftKey);
        }}
      />
      <span class={`dot k-${familyOf(item.kind)}`} aria-hidden="true" />
      <bdi class="name" title={item.title}>{item.title}</bdi>
      <bdi class="quiet detail">{item.detail}</bdi>
    </div>
  );
}

/** The keys of a tree as the ARIA Authoring Practices Guide has them. */
function key(event: KeyboardEvent, app: App, rows: readonly Row[], active: number): void {
  const row = rows[active];
  const go = (index: number): void => {
    const target = rows[Math.max(0, Math.min(rows.length - 1, index))];
    if (target) app.select(target.item.id);
  };
  const keys: Record<string, () => void> = {
    ArrowDown: () => go(active + 1),
    ArrowUp: () => go(active < 0 ? 0 : active - 1),
    Home: () => go(0),
    End: () => go(rows.length - 1),
    PageDown: () => go(active + 10),
    PageUp: () => go(active - 10),
    ArrowRight: () => row?.item.children.length && (row.open ? go(active + 1) : app.setOpen(row.item.id, true)),
    ArrowLeft: () => row && (row.open ? app.setOpen(row.item.id, false) : row.parent !== null && app.select(row.parent)),
    Enter: () => row?.item.children.length && app.setOpen(row.item.id, event.shiftKey || !row.open, event.shiftKey),
    " ": () => row?.item.children.length && app.setOpen(row.item.id, !row.open),
  };
  const act = event.ctrlKey || event.metaKey || event.altKey ? undefined : keys[event.key];
  if (!act) return;
  event.preventDefault();
  act();
}
