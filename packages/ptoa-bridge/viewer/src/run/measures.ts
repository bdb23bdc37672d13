/** The measures of a block and of a run, one row each: what it is called, how it is read and how it is written. */
import type { BlockHealth, HealthFrame, Stats } from "../formats/frames";

export type Form = "number" | "share" | "count" | "ratio";

export interface Measure {
  key: string;
  /** Short, for a column. */
  title: string;
  /** Whole, for a tooltip and for screen readers. */
  meaning: string;
  form: Form;
  /** Undefined where not measured; null where the number was not finite. */
  read: (block: BlockHealth) => number | null | undefined;
  /** The field that `nonFinite` names. */
  field: string;
}

const rms = (stats: Stats | undefined): number | null | undefined => {
  if (!stats) return undefined;
  return stats.mean === null || stats.std === null ? null : Math.hypot(stats.mean, stats.std);
};

const meanOf = (values: (number | null)[] | undefined): number | null | undefined => {
  if (!values?.length) return undefined;
  return values.includes(null) ? null : (values as number[]).reduce((sum, value) => sum + value, 0) / values.length;
};

const notFinite = (block: BlockHealth): number | undefined => {
  const all = [block.act, block.hidden, block.grad].filter((stats) => stats !== undefined);
  return all.length ? all.reduce((sum, stats) => sum + stats.nanCount + stats.infCount, 0) : undefined;
};

export const MEASURES: readonly Measure[] = [
  { key: "mean", title: "mean", meaning: "activation: mean", form: "number", field: "act.mean", read: (b) => b.act?.mean },
  { key: "std", title: "std", meaning: "activation: standard deviation", form: "number", field: "act.std", read: (b) => b.act?.std },
  { key: "absMax", title: "max |x|", meaning: "activation: largest absolute value", form: "number", field: "act.absMax", read: (b) => b.act?.absMax },
  { key: "zeros", title: "zeros", meaning: "activation: share of exact zeros", form: "share", field: "act.zeroFrac", read: (b) => b.act?.zeroFrac },
  { key: "hiddenZeros", title: "hidden 0", meaning: "inner activation of an MLP: share of exact zeros", form: "share", field: "hidden.zeroFrac", read: (b) => b.hidden?.zeroFrac },
  { key: "saturated", title: "saturated", meaning: "activation: share of saturated values (tanh, sigmoid)", form: "share", field: "act.satFrac", read: (b) => b.act?.satFrac },
  { key: "gradient", title: "gradient", meaning: "gradient reaching the block: root mean square", form: "number", field: "grad.std", read: (b) => rms(b.grad) },
  { key: "weightNorm", title: "weights", meaning: "norm of the weights", form: "number", field: "weightNorm", read: (b) => b.weightNorm },
  { key: "updateRatio", title: "update", meaning: "size of the last update over size of the weights", form: "ratio", field: "updateRatio", read: (b) => b.updateRatio },
  { key: "entropy", title: "entropy", meaning: "attention: mean entropy of the heads, in nats", form: "number", field: "headEntropy", read: (b) => meanOf(b.headEntropy) },
  { key: "notFinite", title: "NaN, Inf", meaning: "values that are NaN or infinite, in activation and gradient", form: "count", field: "", read: notFinite },
];

/** Milliseconds of a step, by what they were spent on. */
const TIMES = ["data", "forward", "backward", "optim"] as const;
const NUMBERS = ["loss", "valLoss", "gradNorm", "lr", "memory"] as const satisfies readonly (keyof HealthFrame)[];
/** The numbers of a whole run, one a frame. */
export const CURVES = [...NUMBERS, ...TIMES] as const;
export type Curve = (typeof CURVES)[number];

const isTime = (curve: Curve): curve is (typeof TIMES)[number] => TIMES.includes(curve as "data");

/** Undefined where a frame does not have it, null where it is unknown or was not finite. */
export const curveOf = (frame: HealthFrame, curve: Curve): number | null | undefined =>
  isTime(curve) ? frame.timing?.[curve] : frame[curve];

/** The name that a frame's `nonFinite` has for it. */
export const pathOf = (curve: Curve): string => (isTime(curve) ? `timing.${curve}` : curve);
