/** Which step is looked at, and how the charts are drawn. */
import type { App } from "../app";
import { count } from "../run/numbers";
import { duration } from "./Header";

export function StepBar({ app }: { app: App }) {
  const { training } = app;
  app.tick.value;
  const store = app.store.value;
  const index = training.index.value;
  const { value: source } = app.source;
  const isLive = source.kind === "bridge" && source.file === undefined;
  const isFollowing = training.at.value === null && !training.paused.value;
  return (
    <div class="panel stepbar" role="group" aria-label="Step and charts">
      <div class="slide">
        <button type="button" id="follow" aria-pressed={isFollowing} onClick={() => app.resume()}>{isLive ? "Follow" : "Last"}</button>
        {isLive && (
          <button type="button" id="pause" aria-pressed={training.paused.value} onClick={() => (training.paused.value ? app.resume() : (training.paused.value = true))}>
            Pause
          </button>
        )}
        <input
          type="range" id="slider" aria-label="Step" min={0} max={Math.max(0, store.length - 1)} value={Math.max(0, index)}
          aria-valuetext={`step ${count(store.steps[index] ?? 0)}`} onInput={(event) => training.look(Number(event.currentTarget.value))}
        />
        <output id="chosen">
          {index < 0 ? "no frame" : <>step <b>{count(store.steps[index]!)}</b> <span class="quiet">{duration(store.times[index] ?? 0)}</span></>}
        </output>
      </div>
      <div class="choices">
        <Choice label="Over" options={["step", "time"]} value={training.axis.value} choose={(axis) => {
          training.zoom.value = null;
          training.axis.value = axis;
        }} />
        <Choice label="Scale" options={["linear", "log"]} value={training.isLog.value ? "log" : "linear"} choose={(scale) => (training.isLog.value = scale === "log")} />
        <label class="smooth">
          smooth
          <input type="range" id="smooth" min={0} max={0.98} step={0.02} value={training.smoothing.value} onInput={(event) => (training.smoothing.value = Number(event.currentTarget.value))} />
        </label>
        {training.zoom.value && <button type="button" id="whole" onClick={() => (training.zoom.value = null)}>Whole run</button>}
      </div>
      <Other app={app} />
    </div>
  );
}

function Choice<Name extends string>({ label, options, value, choose }: { label: string; options: readonly Name[]; value: Name; choose: (name: Name) => void }) {
  return (
    <span class="choice" role="group" aria-label={label}>
      {options.map((name) => (
        <button key={name} type="button" aria-pressed={name === value} onClick={() => choose(name)}>{name}</button>
      ))}
    </span>
  );
}

/** The run that is laid over this one. */
function Other({ app }: { app: App }) {
  const other = app.training.other.value;
  if (!other) return null;
  const { name, state, problem, store } = other;
  return (
    <p class={state === "failed" ? "over bad" : "over"} id="other">
      <span class="key dashed quiet">{state === "reading" ? "reading " : ""}<bdi>{name}</bdi></span>
      <span class="quiet">{problem ?? `${count(store.length)} frames, laid over this run`}</span>
      <button type="button" onClick={() => (app.training.other.value = null)}>Remove</button>
    </p>
  );
}
