/** Health frames and trace frames: types and checks (FORMATS.md, section 5). */
import { FormatError, quote } from "./errors";
import { isObject, type Json, type JsonObject } from "./json";
import { MAX_PATTERN } from "./limits";
import { checkLength, checkTensor, type SentTensor } from "./tensor";

export interface Stats {
  mean: number | null;
  std: number | null;
  absMax: number | null;
  zeroFrac: number | null;
  satFrac?: number | null;
  nanCount: number;
  infCount: number;
  hist?: number[];
}

export interface BlockHealth {
  id: string;
  act?: Stats;
  hidden?: Stats;
  grad?: Stats;
  weightNorm?: number | null;
  weightGradNorm?: number | null;
  updateRatio?: number | null;
  headEntropy?: (number | null)[];
  headPattern?: { head: number; size: number; b64: string }[];
}

export interface HealthFrame {
  step: number;
  t: number;
  loss: number | null;
  valLoss?: number | null;
  lr?: number | null;
  gradNorm?: number | null;
  memory?: number | null;
  timing?: { data?: number | null; forward?: number | null; backward?: number | null; optim?: number | null };
  attempt?: number;
  /** Path of a field that was not finite, to "nan", "inf" or "-inf". */
  nonFinite?: Record<string, string>;
  blocks: BlockHealth[];
}

export interface TraceFrame {
  step: number;
  loss?: number | null;
  tensors: SentTensor[];
  uncaptured?: string[];
}

const NUMBERS = ["loss", "valLoss", "lr", "gradNorm", "memory"] as const;
const TIMES = ["data", "forward", "backward", "optim"] as const;
const BLOCK_NUMBERS = ["weightNorm", "weightGradNorm", "updateRatio"] as const;
const STAT_NUMBERS = ["mean", "std", "absMax", "zeroFrac", "satFrac", "nanCount", "infCount"] as const;
const STATS = ["act", "hidden", "grad"] as const;

const isCount = (value: Json | undefined): value is number => Number.isSafeInteger(value) && (value as number) >= 0;
const isNumbers = (value: Json): boolean => Array.isArray(value) && value.every((n) => n === null || typeof n === "number");

/** The same value as a HealthFrame; unknown fields are kept. */
export function checkHealthFrame(value: Json): HealthFrame {
  if (!isObject(value)) throw new FormatError("frame", `A frame is ${quote(value)}; an object was expected.`);
  if (!isCount(value.step)) throw new FormatError("frame", `A frame has the step ${quote(value.step)}; a whole number from 0 was expected.`);
  const where = `The frame of step ${value.step}`;
  if (typeof value.t !== "number") throw new FormatError("frame", `${where} has no time "t".`);
  if (value.loss === undefined) throw new FormatError("frame", `${where} has no "loss" (null when it is unknown).`);
  checkNumbers(value, NUMBERS, where);
  if (value.attempt !== undefined && !isCount(value.attempt)) throw new FormatError("frame", `${where} has a wrong "attempt".`);
  if (value.nonFinite !== undefined && !isObject(value.nonFinite)) throw new FormatError("frame", `${where} has a wrong "nonFinite".`);
  if (value.timing !== undefined) {
    if (!isObject(value.timing)) throw new FormatError("frame", `${where} has a wrong "timing".`);
    checkNumbers(value.timing, TIMES, `${where} timing`);
  }
  if (!Array.isArray(value.blocks)) throw new FormatError("frame", `${where} has no list of blocks.`);
  for (const block of value.blocks) checkBlockHealth(block, where);
  return value as unknown as HealthFrame;
}

function checkBlockHealth(block: Json, where: string): void {
  if (!isObject(block) || typeof block.id !== "string") throw new FormatError("frame", `${where} has a block without an id.`);
  const place = `${where}, block ${quote(block.id)},`;
  checkNumbers(block, BLOCK_NUMBERS, place);
  if (block.headEntropy !== undefined && !isNumbers(block.headEntropy)) throw new FormatError("frame", `${place} has a wrong "headEntropy".`);
  if (block.headPattern !== undefined) checkPatterns(block.headPattern, place);
  for (const key of STATS) {
    const stats = block[key];
    if (stats === undefined) continue;
    if (!isObject(stats)) throw new FormatError("frame", `${place} has a wrong "${key}".`);
    checkNumbers(stats, STAT_NUMBERS, `${place} ${key}`);
    if (stats.hist !== undefined && !isNumbers(stats.hist)) throw new FormatError("frame", `${place} has a wrong histogram.`);
  }
}

function checkNumbers(value: JsonObject, keys: readonly string[], where: string): void {
  for (const key of keys) {
    const field = value[key];
    if (field !== undefined && field !== null && typeof field !== "number")
      throw new FormatError("frame", `${where} has ${quote(field)} as "${key}"; a number was expected.`);
  }
}

function checkPatterns(patterns: Json, where: string): void {
  if (!Array.isArray(patterns)) throw new FormatError("frame", `${where} has a wrong "headPattern".`);
  for (const pattern of patterns) {
    const { head, size, b64 } = isObject(pattern) ? pattern : {};
    if (!isCount(head) || !isCount(size) || size > MAX_PATTERN || typeof b64 !== "string")
      throw new FormatError("frame", `${where} has a wrong attention pattern.`);
    inFrame(() => checkLength(b64, size * size, `${where} pattern of head ${head}`));
  }
}

/** Runs a check of a part of a frame, whose error is then one of the frame. */
function inFrame<Result>(check: () => Result): Result {
  try {
    return check();
  } catch (error) {
    if (error instanceof FormatError) throw new FormatError("frame", error.message);
    throw error;
  }
}

/** The same value as a TraceFrame; its tensors are decoded when they are looked at. */
export function checkTraceFrame(value: Json): TraceFrame {
  if (!isObject(value) || !isCount(value.step)) throw new FormatError("frame", "The trace has no step.");
  const { step, tensors, uncaptured } = value;
  checkNumbers(value, ["loss"], `The trace of step ${step}`);
  if (!Array.isArray(tensors)) throw new FormatError("frame", "The trace has no list of tensors.");
  if (uncaptured !== undefined && !(Array.isArray(uncaptured) && uncaptured.every((id) => typeof id === "string")))
    throw new FormatError("frame", 'The trace has a wrong "uncaptured".');
  return { ...value, step, tensors: tensors.map((tensor) => inFrame(() => checkTensor(tensor))) } as TraceFrame;
}
