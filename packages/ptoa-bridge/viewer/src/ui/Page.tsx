/** The page as a whole: what came and from where above, the model on the left, the training on the right. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { App } from "../app";
import { BlockTable } from "./BlockTable";
import { Charts } from "./Charts";
import { Details } from "./Details";
import { GraphPanel } from "./GraphPanel";
import { Header } from "./Header";
import { RunMap } from "./RunMap";
import { Search } from "./Search";
import { StepBar } from "./StepBar";
import { Tree } from "./Tree";
import { Welcome } from "./Welcome";

const VIEWS = [
  ["training", "Training"],
  ["graph", "Graph"],
  ["blocks", "Blocks"],
] as const;
type ViewName = (typeof VIEWS)[number][0];

export function Page({ app }: { app: App }) {
  const view = useSignal<ViewName | null>(null);
  useFileDrop(app);
  const { model } = app;
  // A model may be served without being trained: the graph has the room until the first frame comes.
  const hasFrames = app.frames.value > 0;
  const shown = view.value ?? (hasFrames ? "training" : "graph");
  // Where one part is seen at a time, a block that was found is shown in its place in the graph.
  const showJump = (): void => void (shown === "training" && (view.value = "graph"));
  return (
    <>
      <Header app={app} tools={model.value && <Search app={app} onJump={showJump} />} />
      {model.value || hasFrames ? (
        <main class={`page ${hasFrames ? "with-training" : "model-only"}`} data-view={shown}>
          <nav class="views" aria-label="Parts of the page">
            {VIEWS.map(([name, title]) => (
              <button key={name} type="button" aria-pressed={shown === name} onClick={() => (view.value = name)}>
                {title}
              </button>
            ))}
          </nav>
          <section class="blocks" aria-label="Blocks">
            <Tree app={app} />
            <Details app={app} />
          </section>
          <GraphPanel app={app} />
          {hasFrames && (
            <section class="training" aria-label="Training">
              <StepBar app={app} />
              <Charts app={app} />
              <RunMap app={app} />
              <BlockTable app={app} />
              <Charts app={app} minor />
            </section>
          )}
        </main>
      ) : (
        <Welcome app={app} />
      )}
    </>
  );
}

/** A file dropped anywhere on the page is opened. */
function useFileDrop(app: App): void {
  useEffect(() => {
    const over = (event: DragEvent): void => event.preventDefault();
    const drop = (event: DragEvent): void => {
      event.preventDefault();
      const file = event.dataTransfer?.files[0];
      if (file) void app.takeFile(file, file.name);
    };
    document.addEventListener("dragover", over);
    document.addEventListener("drop", drop);
    return () => {
      document.removeEventListener("dragover", over);
      document.removeEventListener("drop", drop);
    };
  }, []);
}
