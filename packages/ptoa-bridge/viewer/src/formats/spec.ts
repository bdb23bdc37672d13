/** The model spec: its types, and the check that a stranger's JSON is one (FORMATS.md, section 1). */
import { FormatError, quote } from "./errors";
import { isObject, type Json, type JsonObject } from "./json";
import { MAX_BLOCKS } from "./limits";

export interface Block {
  id: string;
  kind: string;
  label?: string;
  params: JsonObject;
  inputs: string[];
  group?: string;
  at?: { x: number; y: number };
}

export interface Spec {
  v: 1;
  name: string;
  blocks: Block[];
  output: string;
  dataset?: JsonObject;
  train?: JsonObject;
  origin: { kind: string; source?: string };
}

type Test = (value: Json) => boolean;
interface Rule {
  readonly test: Test;
  readonly want: string;
  readonly optional?: true;
}

const isString: Test = (value) => typeof value === "string";
const isNumber: Test = (value) => typeof value === "number";
const isInteger: Test = (value) => Number.isSafeInteger(value);
const isBoolean: Test = (value) => typeof value === "boolean";
const isStrings: Test = (value) => Array.isArray(value) && value.every(isString);
const isPlace: Test = (value) => isObject(value) && isNumber(value.x ?? null) && isNumber(value.y ?? null);

const text: Rule = { test: isString, want: "text" };
const integer: Rule = { test: isInteger, want: "an integer" };
const number: Rule = { test: isNumber, want: "a number" };
const flag: Rule = { test: isBoolean, want: "true or false" };
const object: Rule = { test: isObject, want: "an object" };
const maybe = (rule: Rule): Rule => ({ ...rule, optional: true });

const SPEC: Record<string, Rule> = {
  v: { test: (value) => value === 1, want: "1, the version this page reads" },
  name: text,
  blocks: { test: Array.isArray, want: "a list of blocks" },
  output: text,
  dataset: maybe(object),
  train: maybe(object),
  origin: object,
};
const BLOCK: Record<string, Rule> = {
  id: { test: (value) => typeof value === "string" && value !== "", want: "a name that is not empty" },
  kind: text,
  label: maybe(text),
  params: object,
  inputs: { test: isStrings, want: "a list of block ids" },
  group: maybe(text),
  at: maybe({ test: isPlace, want: 'an object with numbers "x" and "y"' }),
};
const PARAMS: Record<string, Rule> = {
  ...Object.fromEntries(["vocab", "d", "maxLen", "heads", "hidden", "in", "out"].map((key) => [key, maybe(integer)])),
  ...Object.fromEntries(["causal", "attnOnly", "bias"].map((key) => [key, maybe(flag)])),
  ...Object.fromEntries(["variant", "tiedTo"].map((key) => [key, maybe(text)])),
};
const ORIGIN: Record<string, Rule> = { kind: text, source: maybe(text) };
const DATASET: Record<string, Rule> = { id: text, provenance: text, seed: maybe(integer), options: maybe(object) };
const TRAIN: Record<string, Rule> = {
  optimizer: text, lr: number, weightDecay: maybe(number), batch: integer, steps: integer, seed: integer,
};

/** The same value as a Spec, or a FormatError that names the first thing that is not right. */
export function checkSpec(value: Json): Spec {
  if (!isObject(value)) throw new FormatError("spec", "The model spec is not a JSON object.");
  checkFields(value, SPEC, "spec");
  checkFields(value.origin as JsonObject, ORIGIN, "spec.origin");
  if (value.dataset !== undefined) checkFields(value.dataset as JsonObject, DATASET, "spec.dataset");
  if (value.train !== undefined) checkFields(value.train as JsonObject, TRAIN, "spec.train");
  const blocks = value.blocks as Json[];
  if (blocks.length > MAX_BLOCKS) throw new FormatError("spec", `The model has ${blocks.length} blocks; at most ${MAX_BLOCKS} are read.`);
  blocks.forEach(checkBlock);
  const spec = value as unknown as Spec;
  checkReferences(spec);
  checkNoCircle(spec.blocks, (block) => (block.group === undefined ? [] : [block.group]), "is inside itself");
  checkNoCircle(spec.blocks, (block) => block.inputs, "reads its own output");
  return spec;
}

/** Refuses an object whose known fields are missing or of another type; unknown fields are kept. */
export function checkFields(value: JsonObject, rules: Record<string, Rule>, where: string): void {
  for (const key in rules) {
    const rule = rules[key]!;
    const field = value[key];
    if (field === undefined && rule.optional) continue;
    if (field === undefined) throw new FormatError("spec", `${where}.${key} is missing; ${rule.want} was expected.`);
    if (!rule.test(field)) throw new FormatError("spec", `${where}.${key} is ${quote(field)}; ${rule.want} was expected.`);
  }
}

function checkBlock(block: Json, index: number): void {
  const where = `spec.blocks[${index}]`;
  if (!isObject(block)) throw new FormatError("spec", `${where} is ${quote(block)}; an object was expected.`);
  checkFields(block, BLOCK, where);
  checkFields(block.params as JsonObject, PARAMS, `${where}.params`);
}

function checkReferences(spec: Spec): void {
  const byId = new Map<string, Block>();
  for (const block of spec.blocks) {
    if (byId.has(block.id)) throw new FormatError("spec", `Two blocks have the id ${quote(block.id)}.`);
    byId.set(block.id, block);
  }
  for (const block of spec.blocks) {
    const unknown = block.inputs.find((id) => !byId.has(id));
    if (unknown !== undefined) throw new FormatError("spec", `Block ${quote(block.id)} reads ${quote(unknown)}, which is no block.`);
    if (block.group !== undefined && byId.get(block.group)?.kind !== "group")
      throw new FormatError("spec", `Block ${quote(block.id)} is in ${quote(block.group)}, which is no group.`);
  }
  if (!byId.has(spec.output)) throw new FormatError("spec", `The output ${quote(spec.output)} is no block.`);
}

/** Refuses a circle of references by taking away, again and again, blocks that nothing left refers to. */
function checkNoCircle(blocks: readonly Block[], refers: (block: Block) => readonly string[], problem: string): void {
  const byId = new Map(blocks.map((block) => [block.id, block]));
  const waiting = new Map(blocks.map((block) => [block.id, 0]));
  for (const block of blocks) for (const id of refers(block)) waiting.set(id, waiting.get(id)! + 1);
  const free = blocks.filter((block) => waiting.get(block.id) === 0);
  for (const block of free)
    for (const id of refers(block)) {
      const left = waiting.get(id)! - 1;
      waiting.set(id, left);
      if (left === 0) free.push(byId.get(id)!);
    }
  if (free.length === blocks.length) return;
  const stuck = blocks.find((block) => waiting.get(block.id)! > 0)!;
  throw new FormatError("spec", `Block ${quote(stuck.id)} ${problem}: the references of the model go round in a circle.`);
}
