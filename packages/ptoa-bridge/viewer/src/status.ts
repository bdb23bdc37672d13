/** The state of the page in one sentence that says what to do, if anything. */
import type { Source } from "./app";

export type Tone = "calm" | "good" | "bad";

export interface Status {
  tone: Tone;
  /** A word for tests and styles. */
  state: string;
  text: string;
}

interface Facts {
  hasModel: boolean;
  frames: number;
}

const BRIDGE: Record<string, Status> = {
  connecting: { tone: "calm", state: "connecting", text: "Connecting to your Python process…" },
  "no-token": { tone: "bad", state: "no-token", text: "This address carries no token. Open the link that Python printed, or drop a file here." },
  "wrong-token": { tone: "bad", state: "wrong-token", text: "The token is not the one of this bridge. Open the newest link that Python printed." },
  gone: { tone: "bad", state: "gone", text: "Your Python process does not answer. What came so far stays here, and this page keeps trying." },
  ended: { tone: "calm", state: "ended", text: "The run has ended. What came stays here until you close the tab." },
  "no-model": { tone: "calm", state: "no-model", text: "Connected. There is no model yet: it appears as soon as Python shows or watches one." },
  "no-frames": { tone: "good", state: "no-frames", text: "Connected. No training frames yet: they appear with the first measured step." },
  live: { tone: "good", state: "live", text: "Live from your Python process." },
};

/** A file that a command of ours serves: nothing more comes. */
const opened = (name: string): Status => ({ tone: "calm", state: "file", text: `File ${name}, opened from the command line.` });

const NAMES = { file: "File", link: "Architecture from", report: "Report:" } as const;

export function statusOf(source: Source, facts: Facts): Status {
  if (source.kind === "bridge") return source.file && source.state === "live" ? opened(source.file) : BRIDGE[source.state === "live" ? liveState(facts) : source.state]!;
  const { state, name, problem } = source;
  if (state === "failed") return { tone: "bad", state, text: problem ?? "It could not be read." };
  if (state === "reading") return { tone: "calm", state, text: `Reading ${name}…` };
  return { tone: "calm", state: source.kind, text: `${NAMES[source.kind]} ${name}.` };
}

const liveState = ({ hasModel, frames }: Facts): string => (frames ? "live" : hasModel ? "no-frames" : "no-model");
