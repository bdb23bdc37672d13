/** How far a reader got before it stopped, in the words of the shared vectors. */
export type Stage = "payload" | "base64" | "inflate" | "size" | "json" | "object" | "file" | "spec" | "tensor" | "frame";

/** A stranger's data is not what the formats say. The message is one sentence that a person can act on. */
export class FormatError extends Error {
  override readonly name = "FormatError";

  constructor(
    readonly stage: Stage,
    message: string,
  ) {
    super(message);
  }
}

/** A piece of a stranger's text for an error message: quoted, escaped and short. */
export function quote(value: unknown): string {
  const text = typeof value === "string" ? value : JSON.stringify(value) ?? String(value);
  return JSON.stringify(text.length > 60 ? text.slice(0, 60) + "…" : text);
}

/** The sentence of any thrown value, for showing to a person. */
export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
