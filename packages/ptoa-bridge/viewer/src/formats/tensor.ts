/** Tensors on the wire: base64 of little-endian float32, cut to a leading corner when large (FORMATS.md, section 4). */
import { decodeBase64 } from "./base64";
import { FormatError, quote } from "./errors";
import { isObject, type Json } from "./json";
import { MAX_TENSOR_AXES } from "./limits";

export interface Tensor {
  key: string;
  /** The true shape. */
  shape: number[];
  clipped: boolean;
  /** The shape of `values`; other than `shape` only when clipped. */
  dataShape: number[];
  values: Float32Array;
}

const isShape = (value: Json | undefined): value is number[] =>
  Array.isArray(value) && value.length <= MAX_TENSOR_AXES && value.every((n) => Number.isSafeInteger(n) && (n as number) >= 0);

/** A tensor as it travels. */
export type SentTensor = Omit<Tensor, "values"> & { b64: string };

/** A tensor whose shape and length of data agree; the data are not decoded. */
export function checkTensor(value: Json): SentTensor {
  if (!isObject(value)) throw new FormatError("tensor", `A tensor is ${quote(value)}; an object was expected.`);
  const { key, shape, b64, clipped, dataShape } = value;
  if (typeof key !== "string") throw new FormatError("tensor", "A tensor has no key.");
  const what = `Tensor ${quote(key)}`;
  if (!isShape(shape)) throw new FormatError("tensor", `${what} has the shape ${quote(shape)}; a list of sizes was expected.`);
  if (typeof b64 !== "string") throw new FormatError("tensor", `${what} has no data.`);
  if (typeof clipped !== "boolean") throw new FormatError("tensor", `${what} does not say whether it is clipped.`);
  if (clipped !== (dataShape !== undefined)) throw new FormatError("tensor", `${what} must have a dataShape exactly when it is clipped.`);
  const data = clipped ? cornerShape(shape, dataShape, what) : shape;
  checkLength(b64, count(data), what);
  return { key, shape, clipped, dataShape: data, b64 };
}

/** A tensor with its values. */
export function decodeTensor(value: Json): Tensor {
  const { b64, ...tensor } = checkTensor(value);
  return { ...tensor, values: decodeFloats(b64, `Tensor ${quote(tensor.key)}`) };
}

function cornerShape(shape: number[], corner: Json | undefined, what: string): number[] {
  const fits = isShape(corner) && corner.length === shape.length && corner.every((n, axis) => n <= shape[axis]!);
  if (!fits) throw new FormatError("tensor", `${what} has the dataShape ${quote(corner)}, which is no corner of ${quote(shape)}.`);
  return corner as number[];
}

const count = (shape: readonly number[]): number => shape.reduce((product, n) => product * n, 1);

/** Refuses base64 text whose length is not that of `floats` numbers. */
export function checkLength(b64: string, floats: number, what: string): void {
  const needed = 4 * Math.ceil((4 * floats) / 3);
  if (b64.length !== needed)
    throw new FormatError("tensor", `${what} has ${b64.length} characters of data; ${floats} numbers need ${needed}.`);
}

/** The little-endian floats of base64 text. */
export function decodeFloats(b64: string, what: string): Float32Array {
  const bytes = decodeBase64(b64, `${what}: the data`);
  const view = new DataView(bytes.buffer);
  return Float32Array.from({ length: Math.floor(bytes.length / 4) }, (_, i) => view.getFloat32(4 * i, true));
}
