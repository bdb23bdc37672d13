import { useSignalEffect } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import type { App } from "../app";
import { GraphView } from "../graph/GraphView";
import { count } from "../run/numbers";
import { useSize } from "./hooks";
import { Export } from "./Export";
import { isDark, schemeChanges, theme } from "./theme";

const ZOOM_STEP = 1.3;

export function GraphPanel({ app }: { app: App }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const room = useRef<HTMLDivElement>(null);
  const map = useRef<HTMLCanvasElement>(null);
  const frame = useRef<HTMLElement>(null);
  const view = useRef<GraphView | null>(null);
  useLayoutEffect(() => {
    const toggle = (id: string, all: boolean): void => app.setOpen(id, all || !app.open.value.has(id), all);
    view.current = new GraphView(canvas.current!, { toggle, pick: (id) => app.select(id) }, { canvas: map.current!, frame: frame.current! });
  }, []);
  useSize(room, (width, height) => view.current!.resize(width, height));
  useSignalEffect(() => {
    const { value: model } = app.model;
    const { value: open } = app.open;
    if (model) view.current!.show(model.outline, open);
  });
  useSignalEffect(() => view.current!.select(app.selected.value));
  useSignalEffect(() => {
    const { value: model } = app.model;
    schemeChanges.value;
    app.slowTick.value;
    if (model) view.current!.colour(app.training.tints(model.outline, isDark(), theme().broken));
  });
  useSignalEffect(() => {
    if (schemeChanges.value) view.current!.request();
  });
  const total = app.model.value?.spec.blocks.length ?? 0;
  return (
    <section class="graph" aria-label="Graph">
      <div class="graph-tools" role="toolbar" aria-label="View of the graph">
        <button type="button" title="Whole model (0)" onClick={() => view.current!.fit()}>Fit</button>
        <button type="button" title="Closer (+)" aria-label="Closer" onClick={() => view.current!.zoom(ZOOM_STEP)}>+</button>
        <button type="button" title="Farther (−)" aria-label="Farther" onClick={() => view.current!.zoom(1 / ZOOM_STEP)}>−</button>
        <button type="button" title="Open every group" onClick={() => app.unfold(true)}>Unfold all</button>
        <button type="button" title="Only the outer groups open" onClick={() => app.unfold(false)}>Fold all</button>
        <Export app={app} view={() => view.current!} />
      </div>
      <div ref={room} class="canvas-room">
        <canvas
          ref={canvas} id="graph" tabIndex={0} role="img"
          aria-label={`Graph of the model, ${count(total)} blocks. The list of blocks beside it says the same; arrow keys follow the wires of the chosen block or move the view, Enter opens and folds it, plus and minus zoom, 0 shows all.`}
        />
        <div class="minimap" hidden aria-hidden="true">
          <canvas ref={map} id="minimap" />
          <i ref={frame} />
        </div>
      </div>
    </section>
  );
}
