/** Lines of a file, one at a time, so that a large run file never stands in memory as one string. */
import { FormatError } from "./errors";

export class Line {
  /** `ended` is false for a last line without an end-of-line character: a crash may have cut it. */
  constructor(
    readonly bytes: Uint8Array,
    readonly number: number,
    /** Where in the file its first byte is. */
    readonly start: number,
    readonly ended: boolean,
  ) {}

  /** Null where the bytes are not UTF-8; a byte order mark stays, for the JSON reader to refuse. */
  get text(): string | null {
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(this.bytes);
    } catch {
      return null;
    }
  }
}

const NEWLINE = 0x0a;
/** Small enough that reading the lines of one takes no longer than a display frame or two. */
export const CHUNK = 2 ** 21;

/** Splits a file into lines, a batch a chunk; one that is longer than `limit` bytes ends the reading. */
export async function* readLines(file: Blob, limit: number, what: string, chunkSize = CHUNK): AsyncGenerator<Line[]> {
  let number = 0;
  let begun: Uint8Array[] = [];
  let size = 0;
  let place = 0;
  for await (const chunk of chunksOf(file, chunkSize)) {
    const batch: Line[] = [];
    let from = 0;
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, from)) {
      const bytes = joined(begun, size, chunk.subarray(from, end));
      batch.push(new Line(bytes, ++number, place, true));
      place += bytes.length + 1;
      begun = [];
      size = 0;
      from = end + 1;
    }
    begun.push(chunk.subarray(from));
    size += chunk.length - from;
    if (size > limit) throw new FormatError("file", `Line ${number + 1} of ${what} is longer than ${limit / 2 ** 20} MiB.`);
    if (batch.length) yield batch;
  }
  if (size) yield [new Line(joined(begun, size, new Uint8Array(0)), number + 1, place, false)];
}

/** The file's bytes; the next chunk is on its way while one is being worked on. */
async function* chunksOf(file: Blob, size: number): AsyncGenerator<Uint8Array> {
  const read = (at: number): Promise<ArrayBuffer> => file.slice(at, at + size).arrayBuffer();
  let next = read(0);
  for (let at = 0; at < file.size; at += size) {
    const chunk = await next;
    if (at + size < file.size) {
      next = read(at + size);
      // A file that cannot be read on is reported when its turn comes.
      next.catch(() => {});
    }
    yield new Uint8Array(chunk);
  }
}

function joined(pieces: readonly Uint8Array[], size: number, last: Uint8Array): Uint8Array {
  if (size === 0) return last;
  const whole = new Uint8Array(size + last.length);
  let at = 0;
  for (const piece of [...pieces, last]) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
}
