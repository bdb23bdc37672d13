/** Numbers as people read them: few digits, the same width, units beside them. */
import type { Form } from "./measures";
import type { Mark } from "./series";

const MINUS = "−";
const MARK_NAMES: Record<Mark, string> = { "": "", nan: "NaN", inf: "Inf", "-inf": `${MINUS}Inf` };

/** Three to four significant digits; powers of ten where a plain number would be long. */
export function number(value: number): string {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size < 0.001 || size >= 100_000) return power(value);
  const digits = Math.max(0, Math.min(5, 3 - Math.floor(Math.log10(size))));
  return value.toFixed(digits).replace("-", MINUS);
}

function power(value: number): string {
  const [mantissa, exponent] = value.toExponential(2).split("e");
  return `${mantissa}e${Number(exponent)}`.replaceAll("-", MINUS);
}

/** A number on an axis: as short as it can be said. */
export function tick(value: number): string {
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.001 || size >= 100_000)) return value.toExponential().replaceAll("-", MINUS).replace("+", "");
  return String(Number(value.toPrecision(6))).replace("-", MINUS);
}

const FORMS: Record<Form, (value: number) => string> = {
  number,
  ratio: number,
  share: (value) => `${(value * 100).toFixed(value > 0 && value < 0.1 ? 2 : 1)} %`,
  count: (value) => value.toLocaleString("en"),
};

/** A value of a measure, or the name of what it was instead of a number; a dash where nothing was measured. */
export function written(value: number, mark: Mark, form: Form): string {
  if (mark) return MARK_NAMES[mark];
  return Number.isNaN(value) ? "–" : FORMS[form](value);
}

const UNITS = ["bytes", "kB", "MB", "GB", "TB"];

export function bytes(value: number): string {
  const unit = Math.min(UNITS.length - 1, Math.floor(Math.log10(Math.max(1, value)) / 3));
  return `${number(value / 1000 ** unit)} ${UNITS[unit]}`;
}

/** A whole number with thousands apart. */
export const count = (value: number): string => value.toLocaleString("en");
