/** Everything known of the selected block, or of the model while none is selected. */
import type { ComponentChildren } from "preact";
import type { App, Model } from "../app";
import type { Stats } from "../formats/frames";
import type { Block } from "../formats/spec";
import { membersOf } from "../model/outline";
import { plain } from "../model/text";
import { neighbours } from "../model/view";
import { count, number, written } from "../run/numbers";
import { Histogram } from "./Histogram";
import { Heads, Tensors } from "./Tensors";

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
          <p class="quiet">{count(membersOf(model.outline, item).length)} groups that are built alike, {item.detail}.</p>
          {!item.gives && <Repeats app={app} id={item.id} />}
          <Facts facts={linkFacts(app, model, item.id)} />
        </>
      )}
    </div>
  );
}

const REPEATS = [
  ["Fold", false, false],
  ["Show one", true, false],
  ["Show all", true, true],
] as const;

/** Equal layers as one box, as the first of them, or as all. */
function Repeats({ app, id }: { app: App; id: string }) {
  return (
    <p class="choices">
      {REPEATS.map(([said, open, all]) => (
        <button key={said} type="button" onClick={() => app.setOpen(id, open, all)}>{said}</button>
      ))}
    </p>
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
  const facts: [string, ComponentChildren][] = [["kind", plain(block.kind, 60)], ["id", <bdi>{plain(block.id, 60)}</bdi>]];
  if (block.label) facts.push(["label", <bdi>{plain(block.label, 400)}</bdi>]);
  for (const [key, value] of Object.entries(block.params)) facts.push([plain(key, 40), <bdi>{said(value)}</bdi>]);
  facts.push(...linkFacts(app, model, block.id));
  return (
    <>
      <h2><bdi>{item.title}</bdi></h2>
      <Facts facts={facts} />
      <Health app={app} id={block.id} />
      <BlockHeads app={app} id={block.id} />
      <Tensors app={app} id={block.id} />
    </>
  );
}

/** What a block or a whole group reads and is read by, and the group that it is in, each to go there. */
function linkFacts(app: App, model: Model, id: string): [string, ComponentChildren][] {
  const { inputs, outputs } = neighbours(model.outline, id);
  const around = model.outline.items.get(id)?.parent;
  const facts: [string, readonly string[]][] = [["reads", inputs], ["read by", outputs], ["inside", around ? [around] : []]];
  return facts.filter(([, ids]) => ids.length).map(([name, ids]) => [name, <Links app={app} model={model} ids={ids} />]);
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

/** Follows the step that is looked at, as the numbers do. */
function BlockHeads({ app, id }: { app: App; id: string }) {
  app.tick.value;
  return <Heads app={app} id={id} health={app.training.healthOf(id)} />;
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
    </>
  );
}

const value = (number: number | null | undefined, form: "number" | "share" | "count" = "number"): string =>
  written(number ?? NaN, number === null ? "nan" : "", form);
