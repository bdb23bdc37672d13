/**
 * A strict JSON reader for a stranger's text.
 *
 * `JSON.parse` keeps the last of two equal keys, lets `__proto__` and lone surrogates through and knows no depth, so two
 * readers could see two different models in one file. Here each of these is an error (FORMATS.md, section 2).
 */
import { FormatError, quote } from "./errors";
import { MAX_DEPTH } from "./limits";

export type Json = null | boolean | number | string | Json[] | JsonObject;
export interface JsonObject {
  [key: string]: Json;
}

const SPACE = /[ \t\n\r]*/y;
const NUMBER = /-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/y;
// What a string between its quotes may not hold unescaped, and what needs a closer look.
const UNUSUAL = /[\u0000-\u001f\\\ud800-\udfff]/;
const WORDS: ReadonlyArray<readonly [string, Json]> = [["true", true], ["false", false], ["null", null]];

export interface JsonOptions {
  /** What is being read, for the error message: "the file", "line 3". */
  what: string;
  maxDepth?: number;
}

/**
 * The value of a JSON text, or a FormatError that names the place.
 *
 * `JSON.parse` does the reading, since it is ten times faster; where its value leaves a doubt, the strict reader decides.
 */
export function parseJson(text: string, { what, maxDepth = MAX_DEPTH }: JsonOptions): Json {
  const value = parseQuickly(text);
  if (value !== undefined && countKeys(value, maxDepth) === keysWritten(text)) return value;
  return new Reader(text, what, maxDepth).document();
}

function parseQuickly(text: string): Json | undefined {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return undefined;
  }
}

/** How many keys a value has; NaN where it holds something that only the strict reader can judge. */
function countKeys(value: Json, depth: number): number {
  if (typeof value === "string") return value.isWellFormed() ? 0 : NaN;
  if (typeof value === "number") return Math.abs(value) <= Number.MAX_SAFE_INTEGER ? 0 : NaN;
  if (value === null || typeof value === "boolean") return 0;
  if (depth === 0) return NaN;
  let keys = 0;
  if (Array.isArray(value)) for (const item of value) keys += countKeys(item, depth - 1);
  else
    for (const key in value) {
      if (key === "__proto__" || !key.isWellFormed()) return NaN;
      keys += 1 + countKeys(value[key]!, depth - 1);
    }
  return keys;
}

/** How many keys are written in a text that is JSON: strings that a colon follows. */
function keysWritten(text: string): number {
  let keys = 0;
  for (let open = text.indexOf('"'); open >= 0; ) {
    let end = endOfString(text, open) + 1;
    while (text.charCodeAt(end) <= 0x20) end++;
    if (text.charCodeAt(end) === 0x3a) keys++;
    open = text.indexOf('"', end);
  }
  return keys;
}

/** Index of the quote that closes the string opened at `open`; -1 where none does. */
function endOfString(text: string, open: number): number {
  for (let end = text.indexOf('"', open + 1); end >= 0; end = text.indexOf('"', end + 1)) {
    let slashes = 0;
    while (text[end - 1 - slashes] === "\\") slashes++;
    if (slashes % 2 === 0) return end;
  }
  return -1;
}

export const isObject = (value: unknown): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value);

class Reader {
  private at = 0;

  constructor(
    private readonly text: string,
    private readonly what: string,
    private readonly maxDepth: number,
  ) {}

  document(): Json {
    const value = this.value(0);
    if (this.at < this.text.length) this.fail(`something follows the value: ${quote(this.text.slice(this.at, this.at + 20))}`);
    return value;
  }

  /** One value with the white space around it. */
  private value(depth: number): Json {
    this.skipSpace();
    const value = this.bareValue(depth);
    this.skipSpace();
    return value;
  }

  private bareValue(depth: number): Json {
    switch (this.text.charCodeAt(this.at)) {
      case 0x7b: return this.object(this.deeper(depth));
      case 0x5b: return this.array(this.deeper(depth));
      case 0x22: return this.string();
      default: return this.numberOrWord();
    }
  }

  private deeper(depth: number): number {
    if (depth >= this.maxDepth) this.fail(`it nests deeper than ${this.maxDepth} levels`);
    return depth + 1;
  }

  private object(depth: number): JsonObject {
    const object: JsonObject = {};
    this.at++;
    this.skipSpace();
    if (this.take("}")) return object;
    do {
      const key = this.key(object);
      object[key] = this.value(depth);
    } while (this.take(","));
    this.expect("}");
    return object;
  }

  private key(object: JsonObject): string {
    this.skipSpace();
    if (this.text[this.at] !== '"') this.fail("a key in double quotes is missing");
    const key = this.string();
    if (key === "__proto__") this.fail('the key "__proto__" is not allowed');
    if (Object.hasOwn(object, key)) this.fail(`the key ${quote(key)} comes twice in one object`);
    this.skipSpace();
    this.expect(":");
    return key;
  }

  private array(depth: number): Json[] {
    const array: Json[] = [];
    this.at++;
    this.skipSpace();
    if (this.take("]")) return array;
    do array.push(this.value(depth));
    while (this.take(","));
    this.expect("]");
    return array;
  }

  private string(): string {
    const start = this.at;
    const end = endOfString(this.text, start);
    if (end < 0) this.fail("a string is not closed");
    const body = this.text.slice(start + 1, end);
    if (!UNUSUAL.test(body)) {
      this.at = end + 1;
      return body;
    }
    const value = this.unescape(start, end);
    if (!value.isWellFormed()) this.fail("a string holds half of a surrogate pair");
    this.at = end + 1;
    return value;
  }

  private unescape(start: number, end: number): string {
    try {
      return JSON.parse(this.text.slice(start, end + 1)) as string;
    } catch {
      return this.fail("a string holds a control character or an unknown escape");
    }
  }

  private numberOrWord(): Json {
    for (const [word, value] of WORDS) if (this.take(word)) return value;
    NUMBER.lastIndex = this.at;
    const match = NUMBER.exec(this.text);
    if (!match) this.fail(`a value is missing or not JSON: ${quote(this.text.slice(this.at, this.at + 20))}`);
    const value = Number(match[0]);
    const whole = match[1] === undefined && match[2] === undefined;
    if (!Number.isFinite(value)) this.fail(`the number ${quote(match[0])} is too large`);
    if (whole && !Number.isSafeInteger(value)) this.fail(`the integer ${quote(match[0])} is beyond ±(2^53 - 1)`);
    this.at += match[0].length;
    return value;
  }

  private skipSpace(): void {
    if (this.text.charCodeAt(this.at) > 0x20) return;
    SPACE.lastIndex = this.at;
    this.at += SPACE.exec(this.text)![0].length;
  }

  private take(token: string): boolean {
    if (!this.text.startsWith(token, this.at)) return false;
    this.at += token.length;
    return true;
  }

  private expect(token: string): void {
    if (!this.take(token)) this.fail(`${quote(token)} is missing`);
  }

  private fail(problem: string): never {
    const before = this.text.slice(0, this.at);
    const line = before.split("\n").length;
    const column = this.at - before.lastIndexOf("\n");
    throw new FormatError("json", `${this.what} is not valid JSON: ${problem} (line ${line}, column ${column}).`);
  }
}
