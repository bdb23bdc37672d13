/** The architecture in an address: base64url of raw DEFLATE of a spec's JSON (FORMATS.md, section 3). */
import { decodeBase64Url, encodeBase64Url } from "./base64";
import { FormatError } from "./errors";
import { isObject, parseJson } from "./json";
import { MAX_INFLATED_BYTES } from "./limits";
import { checkSpec, type Spec } from "./spec";

/** The spec in a full address, a fragment or a bare payload. */
export async function decodeLink(text: string): Promise<Spec> {
  const json = await payloadToJson(extractPayload(text));
  const value = parseJson(json, { what: "the model in the link" });
  if (!isObject(value)) throw new FormatError("object", "The link holds JSON that is no object, so no model.");
  return checkSpec(value);
}

const LAB = "https://lab.papertoanything.com/#s=";
/** Up to here a link carries what only informs. */
const COMFORTABLE_LENGTH = 32_000;
const INFORMING = ["shape", "dtype", "paramCount", "flops"];

/** The address at which the hosted Lab shows a model; it holds the architecture and nothing of a training. */
export async function encodeLink(spec: Spec): Promise<string> {
  const whole = LAB + (await jsonToPayload(JSON.stringify(spec)));
  if (whole.length < COMFORTABLE_LENGTH) return whole;
  const blocks = spec.blocks.map((block) => ({ ...block, params: Object.fromEntries(Object.entries(block.params).filter(([key]) => !INFORMING.includes(key))) }));
  return LAB + (await jsonToPayload(JSON.stringify({ ...spec, blocks })));
}

async function jsonToPayload(json: string): Promise<string> {
  const bytes = new TextEncoder().encode(json);
  if (bytes.length > MAX_INFLATED_BYTES) throw new FormatError("size", "The model is too large for a link. Save it as a .pta file instead.");
  const deflated = new Response(new Blob([bytes]).stream().pipeThrough(new CompressionStream("deflate-raw")));
  return encodeBase64Url(new Uint8Array(await deflated.arrayBuffer()));
}

/** The part after `s=`; further `&key=value` pairs of the fragment are ignored. */
export function extractPayload(text: string): string {
  const hash = text.indexOf("#");
  const pairs = text.slice(hash + 1).trim().split("&");
  const named = pairs.find((pair) => pair.startsWith("s="));
  const isBare = hash < 0 && !text.includes(":");
  const payload = named?.slice(2) ?? (isBare ? pairs[0] : undefined);
  if (!payload) throw new FormatError("payload", 'The link holds no model: after "#" a part "s=…" was expected.');
  return payload;
}

async function payloadToJson(payload: string): Promise<string> {
  const deflated = decodeBase64Url(payload, "The link");
  const bytes = await inflateRaw(deflated, MAX_INFLATED_BYTES);
  return decodeUtf8(bytes, "The model in the link");
}

/** Text of UTF-8 bytes; a byte order mark and broken sequences are refused. */
export function decodeUtf8(bytes: Uint8Array, what: string): string {
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    if (text.startsWith("\ufeff")) throw new FormatError("json", `${what} begins with a byte order mark; UTF-8 without one was expected.`);
    return text;
  } catch (error) {
    if (error instanceof FormatError) throw error;
    throw new FormatError("json", `${what} is not UTF-8 text.`);
  }
}

/** The bytes behind a raw DEFLATE stream that ends exactly where `deflated` ends. */
export async function inflateRaw(deflated: Uint8Array<ArrayBuffer>, limit: number): Promise<Uint8Array> {
  const inflated = await inflate(deflated, limit);
  if (!inflated) throw new FormatError("inflate", "The link is damaged or cut short. Copy the whole address and try again.");
  // Not every engine reports bytes after the stream's end; a stream that is whole without its last byte has some.
  if (await inflate(deflated.subarray(0, -1), limit)) throw new FormatError("inflate", "The link has bytes after the model's end.");
  return inflated;
}

/** The inflated bytes, or null when the stream is broken or not whole. */
async function inflate(deflated: Uint8Array<ArrayBuffer>, limit: number): Promise<Uint8Array | null> {
  const stream = new Blob([deflated]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  try {
    return await readAll(stream, limit, `The model in the link is larger than ${limit / 2 ** 20} MiB.`);
  } catch (error) {
    if (error instanceof FormatError) throw error;
    return null;
  }
}

async function readAll(stream: ReadableStream<Uint8Array>, limit: number, tooLarge: string): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  const reader = stream.getReader();
  for (let next = await reader.read(); !next.done; next = await reader.read()) {
    size += next.value.length;
    if (size > limit) {
      reader.cancel().catch(() => undefined);
      throw new FormatError("size", tooLarge);
    }
    chunks.push(next.value);
  }
  return concat(chunks, size);
}

function concat(chunks: Uint8Array[], size: number): Uint8Array {
  const whole = new Uint8Array(size);
  let at = 0;
  for (const chunk of chunks) {
    whole.set(chunk, at);
    at += chunk.length;
  }
  return whole;
}
