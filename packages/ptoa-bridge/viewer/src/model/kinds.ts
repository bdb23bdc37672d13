/** What is said of a block of each kind, besides its name. */
import type { Block } from "../formats/spec";
import { plain } from "./text";

type Say = (params: Block["params"]) => (string | false)[];

const has = (value: unknown): value is number | string => typeof value === "number" || typeof value === "string";
const said = (value: number | string): string => (typeof value === "number" ? value.toLocaleString("en") : value);
const arrow = (...sizes: unknown[]): string | false => sizes.every(has) && sizes.map(said).join(" → ");
const times = (...sizes: unknown[]): string | false => sizes.every(has) && sizes.map(said).join(" × ");
const text = (value: unknown): string | false => has(value) && String(value);
const count = (value: unknown, unit: string): string | false => has(value) && `${said(value)} ${unit}`;

const SUMMARIES: Record<string, Say> = {
  tokens: (p) => [count(p.vocab, "tokens")],
  input: (p) => [count(p.in, "features")],
  embedding: (p) => [times(p.vocab, p.d)],
  posenc: (p) => [text(p.variant), times(p.maxLen, p.d)],
  attention: (p) => [count(p.heads, p.heads === 1 ? "head" : "heads"), has(p.d) && `d ${p.d}`, p.causal === true && "causal"],
  mlp: (p) => [arrow(p.d, p.hidden, p.d), text(p.variant) || text(p.activation)],
  norm: (p) => [text(p.variant) || text(p.type), has(p.d) && `d ${p.d}`],
  linear: (p) => [arrow(p.in, p.out)],
  activation: (p) => [text(p.variant) || text(p.activation) || text(p.type)],
  unembed: (p) => [arrow(p.d, p.vocab), has(p.tiedTo) && `tied to ${p.tiedTo}`],
};

/** One line such as "4 heads · d 64 · causal"; empty where nothing is known. */
export function summary(block: Block): string {
  const parts = SUMMARIES[block.kind]?.(block.params) ?? [];
  return parts.filter((part): part is string => part !== false).map((part) => plain(part, 40)).join(" · ");
}

/** The families of kinds that share a colour. */
export type Family = "source" | "attention" | "linear" | "norm" | "add" | "activation" | "loss" | "group" | "other";

const FAMILIES: Record<string, Family> = {
  tokens: "source", input: "source", embedding: "source", posenc: "source",
  attention: "attention",
  mlp: "linear", linear: "linear", unembed: "linear",
  norm: "norm", add: "add", activation: "activation", softmax: "activation", loss: "loss", group: "group",
};

export const familyOf = (kind: string): Family => (Object.hasOwn(FAMILIES, kind) ? FAMILIES[kind]! : "other");
