/** Text lines of a byte stream, one at a time, so that a large run file never stands in memory as one string. */
import { FormatError } from "./errors";

export interface Line {
  text: string;
  number: number;
  /** False for a last line without an end-of-line character: a crash may have cut it. */
  ended: boolean;
}

/** Splits UTF-8 bytes into lines; a line longer than `limit` characters and broken UTF-8 are refused. */
export async function* readLines(stream: ReadableStream<Uint8Array>, limit: number, what: string): AsyncGenerator<Line[]> {
  const decoder = new Utf8(what);
  const reader = stream.getReader();
  let number = 0;
  let rest: string[] = [];
  let restLength = 0;
  for (let next = await reader.read(); !next.done; next = await reader.read()) {
    const pieces = decoder.push(next.value).split("\n");
    const last = pieces.pop()!;
    const batch: Line[] = [];
    for (const piece of pieces) {
      batch.push({ text: rest.join("") + piece, number: ++number, ended: true });
      rest = [];
      restLength = 0;
    }
    rest.push(last);
    restLength += last.length;
    if (restLength > limit) throw new FormatError("json", `Line ${number + 1} of ${what} is longer than ${limit / 2 ** 20} MiB.`);
    if (batch.length) yield batch;
  }
  const text = rest.join("") + decoder.end();
  if (text) yield [{ text, number: number + 1, ended: false }];
}

class Utf8 {
  private readonly decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  private begun = false;

  constructor(private readonly what: string) {}

  push(bytes: Uint8Array): string {
    const text = this.decode(() => this.decoder.decode(bytes, { stream: true }));
    if (!this.begun && text.startsWith("\ufeff"))
      throw new FormatError("json", `${this.what} begins with a byte order mark; save it as UTF-8 without one.`);
    this.begun ||= text !== "";
    return text;
  }

  /** Nothing, or an error; a character cut by the file's end belongs to a torn last line and is left away. */
  end(): string {
    try {
      return this.decoder.decode();
    } catch {
      return "\ufffd";
    }
  }

  private decode(run: () => string): string {
    try {
      return run();
    } catch {
      throw new FormatError("json", `${this.what} is not UTF-8 text; a .pta, a run file or a spec was expected.`);
    }
  }
}
