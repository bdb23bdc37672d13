/**
 * The live connection to a bridge: server-sent events for what happens, one request for what happened before.
 *
 * Events are opened first and held back while the history is read, so that nothing falls between the two; the receiver
 * drops what comes twice. A browser resumes a broken stream by itself with `Last-Event-ID`, if an event with an id had
 * come; where none had, or the browser has given up, the history is read again.
 */
import { checkHealthFrame, checkTraceFrame, type HealthFrame, type TraceFrame } from "../formats/frames";
import { isObject, type Json } from "../formats/json";
import { checkSpec, type Spec } from "../formats/spec";
import { messageOf } from "../formats/errors";
import { readHistory } from "./history";

export type BridgeState = "connecting" | "live" | "gone" | "no-token" | "wrong-token" | "ended";

export interface Receiver {
  state(state: BridgeState): void;
  /** A model; `isNew` when what was received so far belongs to another one or to an earlier run. */
  model(spec: Spec, isNew: boolean): void;
  frame(frame: HealthFrame): void;
  trace(trace: TraceFrame): void;
  /** Something the bridge sent cannot be read. */
  problem(text: string): void;
}

const RETRY_MS = 2_000;
const REFUSALS: Record<number, BridgeState> = { 401: "no-token", 403: "wrong-token" };

export class BridgeClient {
  private events: EventSource | null = null;
  private reading: AbortController | null = null;
  private held: HealthFrame[] = [];
  private historyIsWhole = false;
  /** The browser can tell the bridge where the stream broke. */
  private canResume = false;
  private specText = "";
  private retry = 0;

  constructor(
    private readonly base: string,
    private readonly token: string,
    private readonly receiver: Receiver,
  ) {}

  open(): void {
    this.receiver.state("connecting");
    this.connect();
  }

  close(): void {
    clearTimeout(this.retry);
    this.events?.close();
    this.events = null;
    this.reading?.abort();
  }

  /** The newest frame of a step, whole, as long as the bridge has it; null when it has not, or does not answer. */
  async frameAt(step: number): Promise<HealthFrame | null> {
    const reading = new AbortController();
    try {
      const answer = await fetch(this.url("health", { since: String(step - 1) }), { signal: reading.signal });
      if (!answer.ok || !answer.body) return null;
      for await (const batch of readHistory(answer.body))
        for (const text of batch) {
          const frame = checkHealthFrame(parse(text));
          return frame.step === step ? frame : null;
        }
      return null;
    } finally {
      // The answer goes on with every later frame.
      reading.abort();
    }
  }

  private connect(): void {
    const events = new EventSource(this.url("events"));
    this.events = events;
    this.canResume = false;
    events.onopen = () => this.opened();
    events.onerror = () => void this.failed(events);
    const on = (name: string, take: (value: Json) => void): void =>
      events.addEventListener(name, (event) => {
        const { data, lastEventId } = event as MessageEvent<string>;
        this.canResume ||= lastEventId !== "";
        this.read(() => take(parse(data)));
      });
    on("hello", (value) => this.hello(value));
    on("spec", (value) => this.spec(value));
    on("frame", (value) => this.receiver.trace(checkTraceFrame(value)));
    on("health", (value) => this.health(checkHealthFrame(value)));
    events.addEventListener("bye", () => this.bye());
  }

  private url(path: string, query: Record<string, string> = {}): string {
    return `${new URL(path, this.base).href}?${new URLSearchParams({ ...query, token: this.token })}`;
  }

  private opened(): void {
    this.receiver.state("live");
    if (!this.canResume) this.historyIsWhole = false;
    if (!this.historyIsWhole && !this.reading) void this.readHistory();
  }

  private hello(value: Json): void {
    this.takeModel(isObject(value) ? value.spec ?? null : null, false);
  }

  /** A new run begins, or the model has changed: what came before is another run's. */
  private spec(value: Json): void {
    this.takeModel(isObject(value) && value.spec !== undefined ? value.spec : value, true);
  }

  private takeModel(value: Json, startsAnew: boolean): void {
    const text = JSON.stringify(value);
    const isNew = startsAnew || (this.specText !== "" && text !== this.specText);
    if (text === this.specText && !isNew) return;
    this.specText = text;
    this.receiver.model(checkSpec(value), isNew);
    if (!isNew) return;
    this.held = [];
    void this.readHistory();
  }

  private health(frame: HealthFrame): void {
    if (this.historyIsWhole) this.receiver.frame(frame);
    else this.held.push(frame);
  }

  private bye(): void {
    this.events?.close();
    if (!this.reading) this.release();
    this.receiver.state("ended");
  }

  /** Reads what happened before. Until that has worked, what the stream sends is held back: it comes later. */
  private async readHistory(): Promise<void> {
    this.reading?.abort();
    const reading = new AbortController();
    this.reading = reading;
    this.historyIsWhole = false;
    const isWhole = await this.fetchHistory(reading.signal);
    if (this.reading !== reading) return;
    this.reading = null;
    const isOver = this.events?.readyState === EventSource.CLOSED;
    if (isWhole || isOver) this.release();
    else this.retry = window.setTimeout(() => void this.readHistory(), RETRY_MS);
  }

  /** False when the answer did not come or broke off. */
  private async fetchHistory(signal: AbortSignal): Promise<boolean> {
    try {
      const answer = await fetch(this.url("health", { since: "-1" }), { signal });
      if (!answer.ok || !answer.body) return false;
      for await (const batch of readHistory(answer.body))
        for (const text of batch) if (!signal.aborted) this.read(() => this.receiver.frame(checkHealthFrame(parse(text))));
      return true;
    } catch {
      return false;
    }
  }

  private release(): void {
    this.historyIsWhole = true;
    for (const frame of this.held) this.receiver.frame(frame);
    this.held = [];
  }

  private async failed(events: EventSource): Promise<void> {
    if (events !== this.events) return;
    // While it is connecting, the browser itself tries again and says where it stopped.
    if (events.readyState === EventSource.CONNECTING) return this.receiver.state("gone");
    const refusal = await this.askRefusal();
    if (events !== this.events) return;
    this.receiver.state(refusal ?? "gone");
    if (!refusal) this.retry = window.setTimeout(() => this.connect(), RETRY_MS);
    else if (!this.reading) this.release();
  }

  /** Why the stream was refused, which an EventSource does not tell; null when the bridge cannot be reached. */
  private async askRefusal(): Promise<BridgeState | null> {
    try {
      return REFUSALS[(await fetch(this.url("spec"))).status] ?? null;
    } catch {
      return null;
    }
  }

  private read(take: () => void): void {
    try {
      take();
    } catch (error) {
      this.receiver.problem(`The bridge sent something this page cannot read. ${messageOf(error)}`);
    }
  }
}

/** Our own bridge writes strict JSON, so the browser's reader serves: it is ten times faster than ours. */
const parse = (text: string): Json => JSON.parse(text) as Json;
