/** The answer of `/health`, `{"frames":[…]}`, frame by frame as it arrives: whole it may not fit into one string. */

const MARKS = /["\\{}[\]]/g;

/** Cuts a growing JSON text into the objects of the array that its outer object holds. */
export class FrameSplitter {
  private text = "";
  private depth = 0;
  private start = -1;
  private inString = false;
  private at = 0;

  /** Adds text; gives the objects that are now whole. */
  push(text: string): string[] {
    this.text += text;
    const frames: string[] = [];
    MARKS.lastIndex = this.at;
    for (let match = MARKS.exec(this.text); match; match = MARKS.exec(this.text)) {
      // An escaped character counts for nothing; it may not have arrived yet.
      if (match[0] === "\\") MARKS.lastIndex++;
      else this.mark(match[0], match.index, frames);
    }
    this.keepRest();
    return frames;
  }

  private mark(character: string, index: number, frames: string[]): void {
    if (character === '"') this.inString = !this.inString;
    else if (this.inString) return;
    else if (character === "{" || character === "[") {
      if (++this.depth === 3) this.start = index;
    } else if (--this.depth === 2 && this.start >= 0) {
      frames.push(this.text.slice(this.start, index + 1));
      this.start = -1;
    }
  }

  /** Forgets what was cut; a backslash at the end waits for its character. */
  private keepRest(): void {
    const scanned = this.text.length - (/\\+$/.exec(this.text)?.[0].length ?? 0) % 2;
    const from = this.start < 0 ? scanned : this.start;
    this.text = this.text.slice(from);
    this.start = this.start < 0 ? -1 : 0;
    this.at = scanned - from;
  }
}

/** The frames of a `/health` answer, in batches as they arrive. */
export async function* readHistory(body: ReadableStream<Uint8Array>): AsyncGenerator<string[]> {
  const splitter = new FrameSplitter();
  const decoder = new TextDecoder();
  const reader = body.getReader();
  for (let next = await reader.read(); !next.done; next = await reader.read())
    yield splitter.push(decoder.decode(next.value, { stream: true }));
}
