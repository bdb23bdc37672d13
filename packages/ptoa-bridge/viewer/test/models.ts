/** Specs for tests: a GPT of any depth, as ptoa_torch writes one. */
import type { Block, Spec } from "../src/formats/spec";

export const spec = (blocks: Block[], output = blocks.at(-1)?.id ?? ""): Spec => ({
  v: 1, name: "Test", blocks, output, origin: { kind: "torch", source: "test:Test" },
});

export const block = (id: string, kind: string, inputs: string[], rest: Partial<Block> = {}): Block => ({ id, kind, params: {}, inputs, ...rest });

const group = (id: string, label: string, around?: string): Block => block(id, "group", [], { label, ...(around !== undefined && { group: around }) });

/** 3 + 11 × layers + 3 blocks: embeddings, layers of attention and MLP with residual adds, head. */
export function gpt(layers: number): Spec {
  const groups = [group("g0", "transformer (GPT)"), group("g1", "transformer.h (ModuleList)", "g0")];
  const blocks = [block("t0", "tokens", []), block("e0", "embedding", ["t0"], { group: "g0" })];
  let stream = "e0";
  for (let i = 0; i < layers; i++) {
    const layer = `g${2 + 3 * i}`;
    const attention = `g${3 + 3 * i}`;
    const mlp = `g${4 + 3 * i}`;
    groups.push(
      group(layer, `transformer.h.${i} (Block)`, "g1"),
      group(attention, `transformer.h.${i}.attn (Attention)`, layer),
      group(mlp, `transformer.h.${i}.mlp (MLP)`, layer),
    );
    const within = (id: string, kind: string, inputs: string[], around: string): string => (blocks.push(block(id, kind, inputs, { group: around })), id);
    const norm = within(`n${2 * i}`, "norm", [stream], layer);
    const qkv = within(`l${4 * i}`, "linear", [norm], attention);
    const heads = within(`a${i}`, "attention", [qkv], attention);
    const projection = within(`l${4 * i + 1}`, "linear", [heads], attention);
    const added = within(`r${2 * i}`, "add", [stream, projection], layer);
    const second = within(`n${2 * i + 1}`, "norm", [added], layer);
    const up = within(`l${4 * i + 2}`, "linear", [second], mlp);
    const bend = within(`f${i}`, "activation", [up], mlp);
    const down = within(`l${4 * i + 3}`, "linear", [bend], mlp);
    stream = within(`r${2 * i + 1}`, "add", [added, down], layer);
  }
  blocks.push(block("u0", "unembed", [stream]), block("x0", "loss", ["u0"]));
  return spec([...groups, ...blocks]);
}
