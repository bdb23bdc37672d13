/** Everything known of the selected block, or of the model while none is selected. */
import type { ComponentChildren } from "preact";
import type { App, Model } from "../app";
import type { Stats } from "../formats/frames";
import type { Block } from "../formats/spec";
import { plain } from "../model/text";
import { count, number, written } from "../run/numbers";
import { Histogram } from "./Histogram";

export function Details({ app }: { app: App }) {
  const model = app.model.value;
  if (!model) return null;
  const item = model.outline.items.get(app.selected.value ?? "");
  return (
    <div class="panel details" id="details" aria-label="Details" role="region" tabIndex={0}>
      {!item && <ModelFacts model={model} />}
      {item?.block && <BlockFacts app={app} model={model} block={item.block} />}
      {item && !item.block && (
        <>
          <h2><bdi>{item.title}</bdi></h2>
          <p class="quiet">{count(item.children.length)} groups that are built alike, {item.detail}.</p>
        </>
      )}
    </div>
  );
}

function Facts({ facts }: { facts: [name: string, value: ComponentChildren][] }) {
  return (
    <dl class="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function ModelFacts({ model: { spec } }: { model: Model }) {
  const facts: [string, ComponentChildren][] = [["blocks", count(spec.blocks.length)]];
  const parameters = spec.blocks.reduce((sum, block) => sum + (typeof block.params.paramCount === "number" ? block.params.paramCount : 0), 0);
  if (parameters) facts.push(["parameters", count(parameters)]);
  if (spec.origin.source) facts.push(["from", <bdi>{plain(spec.origin.source)}</bdi>]);
  for (const [key, value] of Object.entries({ ...spec.train })) facts.push([plain(key, 40), said(value)]);
  if (spec.dataset) facts.push(["data", said(spec.dataset.id)]);
  return (
    <>
      <h2>Model</h2>
      <Facts facts={facts} />
      <p class="quiet">Select a block to see what is known of it.</p>
    </>
  );
}

const said = (value: unknown): string => {
  if (typeof value === "number") return Number.isInteger(value) ? count(value) : number(value);
  if (Array.isArray(value) && value.every((part) => typeof part === "number")) return value.join(" × ");
  return plain(typeof value === "string" ? value : JSON.stringify(value), 200);
};

function BlockFacts({ app, model, block }: { app: App; model: Model; block: Block }) {
  const item = model.outline.items.get(block.id)!;
  const readers = model.spec.blocks.filter((other) => other.inputs.includes(block.id)).map((other) => other.id);
  const facts: [string, ComponentChildren][] = [["kind", plain(block.kind, 60)], ["id", <bdi>{plain(block.id, 60)}</bdi>]];
  if (block.label) facts.push(["label", <bdi>{plain(block.label, 400)}</bdi>]);
  for (const [key, value] of Object.entries(block.params)) facts.push([plain(key, 40), <bdi>{said(value)}</bdi>]);
  if (block.inputs.length) facts.push(["reads", <Links app={app} model={model} ids={block.inputs} />]);
  if (readers.length) facts.push(["read by", <Links app={app} model={model} ids={readers} />]);
  return (
    <>
      <h2><bdi>{item.title}</bdi></h2>
      <Facts facts={facts} />
      <TraceFacts app={app} block={block} />
      <Health app={app} id={block.id} />
    </>
  );
}

const MOST_LINKS = 24;

function Links({ app, model, ids }: { app: App; model: Model; ids: readonly string[] }) {
  return (
    <>
      {ids.slice(0, MOST_LINKS).map((id) => (
        <button key={id} type="button" class="link" onClick={() => app.select(id)}>
          <bdi>{model.outline.items.get(id)?.title ?? plain(id, 60)}</bdi>
        </button>
      ))}
      {ids.length > MOST_LINKS && ` and ${count(ids.length - MOST_LINKS)} more`}
    </>
  );
}

/** Shapes of the tensors that the recorded forward pass has of this block. */
function TraceFacts({ app, block }: { app: App; block: Block }) {
  const trace = app.trace.value;
  const own = trace?.tensors.filter((tensor) => tensor.key.startsWith(`${block.id}:`)) ?? [];
  if (!trace || !own.length) return null;
  const facts = own.map(({ key, shape, clipped, dataShape }): [string, string] => [
    plain(key.slice(block.id.length + 1), 40),
    `${shape.join(" × ") || "one number"}${clipped ? `, of which ${dataShape.join(" × ")} is here` : ""}`,
  ]);
  return (
    <>
      <h3>Tensors of the forward pass, step {count(trace.step)}</h3>
      <Facts facts={facts} />
    </>
  );
}

const STATS = [["act", "activation"], ["hidden", "inner"], ["grad", "gradient"]] as const;
const FIELDS = [
  ["mean", "mean", "number"], ["std", "std", "number"], ["absMax", "max |x|", "number"], ["zeroFrac", "zeros", "share"],
  ["satFrac", "saturated", "share"], ["nanCount", "NaN", "count"], ["infCount", "Inf", "count"],
] as const;

/** The statistics of the block at the step that is looked at. */
function Health({ app, id }: { app: App; id: string }) {
  app.tick.value;
  const health = app.training.healthOf(id);
  const step = app.training.at.value;
  if (!health) return step === null ? null : <p class="quiet">The whole frame of this step is no longer to be had; the table has its numbers.</p>;
  const measured = STATS.flatMap(([key, title]): [string, Stats][] => (health[key] ? [[title, health[key]]] : []));
  const rows = FIELDS.filter(([field]) => measured.some(([, stats]) => stats[field] !== undefined));
  const norms: [string, string][] = (["weightNorm", "weightGradNorm", "updateRatio"] as const)
    .filter((key) => health[key] !== undefined)
    .map((key) => [{ weightNorm: "norm of weights", weightGradNorm: "norm of their gradient", updateRatio: "update ratio" }[key], value(health[key])]);
  return (
    <>
      <h3>{step === null ? "Latest frame" : `Step ${count(step)}`}</h3>
      {measured.length > 0 && (
        <table class="stats">
          <thead>
            <tr><td />{measured.map(([title]) => <th key={title} scope="col">{title}</th>)}</tr>
          </thead>
          <tbody>
            {rows.map(([field, title, form]) => (
              <tr key={field}>
                <th scope="row">{title}</th>
                {measured.map(([name, stats]) => <td key={name}>{value(stats[field], form)}</td>)}
              </tr>
            ))}
            {measured.some(([, stats]) => stats.hist) && (
              <tr>
                <th scope="row">histogram</th>
                {measured.map(([name, stats]) => <td key={name}>{stats.hist && <Histogram counts={stats.hist} limit={stats.absMax ?? 0} />}</td>)}
              </tr>
            )}
          </tbody>
        </table>
      )}
      <Facts facts={norms} />
      {health.headEntropy && (
        <Facts facts={[["entropy of heads", `${health.headEntropy.map((entropy) => value(entropy)).join("  ")} nats`]]} />
      )}
    </>
  );
}

const value = (number: number | null | undefined, form: "number" | "share" | "count" = "number"): string =>
  written(number ?? NaN, number === null ? "nan" : "", form);
