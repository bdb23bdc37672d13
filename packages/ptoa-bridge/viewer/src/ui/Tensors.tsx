/** The tensors that the recorded forward pass has of a block, as heat maps, and the patterns of its attention heads. */
import { useSignal } from "@preact/signals";
import { useMemo, useRef } from "preact/hooks";
import type { App } from "../app";
import type { BlockHealth, TraceFrame } from "../formats/frames";
import { decodeFloats, type SentTensor } from "../formats/tensor";
import { entropyOf, heatScale, placeIn, sliceCount, sliceOf, type Grid, type HeatScale } from "../model/heat";
import { plain } from "../model/text";
import { count, number } from "../run/numbers";
import { HeatLegend, HeatMap, useCell, valueOf, type Cell } from "./HeatMap";
import { useSize } from "./hooks";

const ownTensors = (trace: TraceFrame | null, id: string): SentTensor[] => trace?.tensors.filter((tensor) => tensor.key.startsWith(`${id}:`)) ?? [];

const valuesOf = (tensor: SentTensor): Float32Array => decodeFloats(tensor.b64, "A tensor of the forward pass");

export function Tensors({ app, id }: { app: App; id: string }) {
  const trace = app.trace.value;
  const own = ownTensors(trace, id);
  if (!trace || !own.length) return null;
  return (
    <>
      <h3>Forward pass of step {count(trace.step)}</h3>
      {own.map((tensor) => <TensorMap key={tensor.key} tensor={tensor} name={plain(tensor.key.slice(id.length + 1), 40)} />)}
    </>
  );
}

const sizes = (shape: readonly number[]): string => shape.join(" × ") || "one number";

function TensorMap({ tensor, name }: { tensor: SentTensor; name: string }) {
  const room = useRef<HTMLElement>(null);
  const width = useSignal(200);
  const slice = useSignal(0);
  const cell = useSignal<Cell | null>(null);
  useSize(room, (wide) => (width.value = Math.max(40, wide)));
  const { values, scale } = useMemo(() => {
    const values = valuesOf(tensor);
    return { values, scale: heatScale(values) };
  }, [tensor]);
  const shape = tensor.dataShape;
  const slices = sliceCount(shape);
  const at = Math.min(slice.value, slices - 1);
  const grid = useMemo(() => sliceOf(shape, values, at), [tensor, at]);
  return (
    <figure ref={room} class="tensor" data-tensor={tensor.key}>
      <figcaption>
        <b>{name}</b> <span class="quiet">{sizes(tensor.shape)}</span>
        {tensor.clipped && <span class="clipped">{values.length ? `clipped to ${sizes(shape)}` : "too large to be sent"}</span>}
      </figcaption>
      {values.length > 0 && (
        <>
          {slices > 1 && <SliceChoice shape={shape} slices={slices} at={at} choose={(index) => (slice.value = index)} />}
          <HeatMap grid={grid} scale={scale} width={width.value} label={`${name}, ${count(grid.rows)} rows and ${count(grid.columns)} columns from ${number(scale.low)} to ${number(scale.high)}; arrow keys read its values`} onPoint={(pointed) => (cell.value = pointed)} />
          <p class="tensor-reading">
            <HeatLegend scale={scale} />
            <output>{cell.value && `[${placeIn(shape, at, cell.value.row, cell.value.column).join(", ")}] ${valueOf(grid.values[cell.value.row * grid.columns + cell.value.column] ?? NaN)}`}</output>
          </p>
        </>
      )}
    </figure>
  );
}

/** Which place on the axes before the last two is shown. */
function SliceChoice({ shape, slices, at, choose }: { shape: readonly number[]; slices: number; at: number; choose: (index: number) => void }) {
  const place = `[${placeIn(shape, at, 0, 0).slice(0, -2).join(", ")}, :, :]`;
  return (
    <label class="slice">
      <input type="range" aria-label="Slice" min={0} max={slices - 1} value={at} aria-valuetext={place} onInput={(event) => choose(Number(event.currentTarget.value))} />
      <span class="quiet">{place}</span>
    </label>
  );
}

interface Head {
  head: number;
  grid: Grid;
  /** Nats; null where it is not known. */
  entropy: number | null;
}

const MOST_HEADS = 64;
const PATTERN_WIDTH = 62;
/** Attention is a share of 1; in a pattern of many positions few shares are large, and the largest is the darkest. */
const scaleOf = (heads: readonly Head[]): HeatScale => ({ kind: "upward", low: 0, high: Math.max(...heads.map(({ grid }) => heatScale(grid.values).high)) });

/** Each head's pattern with its entropy: of the step that is looked at, or of the recorded forward pass. */
export function Heads({ app, id, health }: { app: App; id: string; health: BlockHealth | undefined }) {
  const cell = useCell();
  const trace = app.trace.value;
  const measured = health?.headPattern;
  const heads = useMemo(() => (measured ? measuredHeads(health) : tracedHeads(trace, id)), [measured, measured ? null : trace, id]);
  const entropies = health?.headEntropy;
  if (!heads.length) {
    return entropies ? <p class="quiet">entropy of heads: {entropies.map((one) => valueOf(one ?? NaN)).join("  ")} nats</p> : null;
  }
  const scale = scaleOf(heads);
  const pointed = cell.value && heads[cell.value.of];
  return (
    <section aria-label="Attention heads">
      <h3>Attention heads{measured ? "" : " of the forward pass"}</h3>
      <div class="heads">
        {heads.slice(0, MOST_HEADS).map(({ head, grid, entropy }, i) => (
          <figure key={head} data-head={head}>
            <HeatMap
              grid={grid} scale={scale} width={PATTERN_WIDTH} label={`Pattern of head ${head}: queries down, keys along`}
              onPoint={(at) => (cell.value = at && { ...at, of: i })}
            />
            <figcaption>{head} <span class="quiet">{entropy === null ? "" : number(entropy)}</span></figcaption>
          </figure>
        ))}
      </div>
      {heads.length > MOST_HEADS && <p class="quiet">and {count(heads.length - MOST_HEADS)} more heads</p>}
      <p class="tensor-reading">
        <HeatLegend scale={scale} />
        <output>
          {cell.value && pointed
            ? `head ${pointed.head}, ${cell.value.row} reads ${cell.value.column}: ${valueOf(pointed.grid.values[cell.value.row * pointed.grid.columns + cell.value.column] ?? NaN)}`
            : "number: entropy, nats"}
        </output>
      </p>
    </section>
  );
}

function measuredHeads({ headPattern, headEntropy }: BlockHealth): Head[] {
  return (headPattern ?? []).map(({ head, size, b64 }) => ({
    head, grid: { rows: size, columns: size, values: decodeFloats(b64, `Pattern of head ${head}`) }, entropy: headEntropy?.[head] ?? null,
  }));
}

/** Heads of the first sequence, from weights of the shape [batch, heads, queries, keys] or [heads, queries, keys]. */
function tracedHeads(trace: TraceFrame | null, id: string): Head[] {
  const weights = ownTensors(trace, id).find(({ key }) => key === `${id}:weights`);
  const heads = weights?.dataShape.at(-3) ?? 0;
  if (!weights || !heads || weights.dataShape.includes(0)) return [];
  const { dataShape, shape } = weights;
  const values = valuesOf(weights);
  const isWhole = shape.at(-1) === dataShape.at(-1);
  return Array.from({ length: heads }, (_, head) => {
    const grid = sliceOf(dataShape, values, head);
    return { head, grid, entropy: isWhole ? entropyOf(grid) : null };
  });
}
