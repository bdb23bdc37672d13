import type { ComponentChildren } from "preact";
import type { App } from "../app";
import { plain } from "../model/text";
import { bytes, count, number } from "../run/numbers";
import { statusOf } from "../status";
import { embeddedData } from "../source/report";

export function Header({ app, tools }: { app: App; tools: ComponentChildren }) {
  const model = app.model.value;
  const status = statusOf(app.source.value, { hasModel: model !== null, frames: app.frames.value });
  return (
    <header class="top">
      <h1>
        <bdi title={model ? plain(model.spec.name, 1000) : undefined} id="model-name">
          {model ? plain(model.spec.name, 120) || "Unnamed model" : "Local page"}
        </bdi>
      </h1>
      <p id="state" role="status" data-state={status.state} class={`state ${status.tone}`}>
        {status.text}
      </p>
      <Counters app={app} />
      <div class="actions">
        {tools}
        <FileButton app={app} />
        {embeddedData(document) === null && (
          <a href="./assets/third-party-licenses.md" target="_blank" rel="noreferrer">
            Licences
          </a>
        )}
      </div>
      {app.notices.value.map((text) => (
        <p key={text} class="notice" role="alert">
          {text}
        </p>
      ))}
    </header>
  );
}

/** Step, frames and what else the last frame says of the whole run. */
function Counters({ app }: { app: App }) {
  const frames = app.frames.value;
  const store = app.store.value;
  const last = store.lastFrame;
  const facts: [string, string][] = [];
  if (last) facts.push(["time", duration(last.t)]);
  if (typeof last?.memory === "number") facts.push(["GPU memory", bytes(last.memory)]);
  if (store.forgotten) facts.push(["older frames left out", count(store.forgotten)]);
  return (
    <dl class="counters">
      <div class={frames ? undefined : "hidden"}>
        <dt>frames</dt>
        <dd id="frames">{frames}</dd>
      </div>
      <div class={last ? undefined : "hidden"}>
        <dt>step</dt>
        <dd id="step">{count(last?.step ?? 0)}</dd>
      </div>
      {facts.map(([name, value]) => (
        <div key={name} class="minor">
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

export function duration(milliseconds: number): string {
  const seconds = milliseconds / 1000;
  if (seconds < 60) return `${number(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  const rest = String(Math.floor(seconds % 60)).padStart(2, "0");
  return minutes < 60 ? `${minutes}:${rest} min` : `${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, "0")}:${rest} h`;
}

export function FileButton({ app }: { app: App }) {
  const open = (event: Event): void => {
    const input = event.currentTarget as HTMLInputElement;
    const file = input.files?.[0];
    if (file) void app.showFile(file, file.name);
    input.value = "";
  };
  return (
    <label class="button">
      Open file…
      <input id="file" type="file" onChange={open} />
    </label>
  );
}
