import type { App } from "../app";

/** What stands where the model will be. */
export function Welcome({ app }: { app: App }) {
  const source = app.source.value;
  const waits = source.kind === "bridge" && source.state === "live";
  return (
    <main class="welcome">
      {waits ? (
        <p>
          Waiting for a model. In Python: <code>ptoa.watch(model, optimizer)</code> or <code>ptoa.show(model, x, mode="local")</code>.
        </p>
      ) : (
        <p>
          Drop a <code>.pta</code> file, a run file from <code>pta-runs</code> or a spec here, or use “Open file…”. It is read in this tab and sent nowhere.
        </p>
      )}
    </main>
  );
}
