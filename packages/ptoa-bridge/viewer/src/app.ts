/** What the page knows, as signals, and the few ways in which it changes. */
import { computed, signal } from "@preact/signals";
import { FormatError, messageOf } from "./formats/errors";
import { readParts, type FilePart } from "./formats/files";
import type { HealthFrame, TraceFrame } from "./formats/frames";
import { decodeLink } from "./formats/link";
import type { Spec } from "./formats/spec";
import { buildOutline, type Outline } from "./model/outline";
import { plain } from "./model/text";
import { firstOpen, openAround } from "./model/view";
import { Painter } from "./run/painter";
import { FILE_CAPACITY, LIVE_CAPACITY, RunStore } from "./run/store";
import { BridgeClient, type BridgeState } from "./source/bridge";

/** Where what is shown comes from, and how that stands. */
export type Source =
  | { kind: "bridge"; state: BridgeState }
  | { kind: "file" | "link" | "report"; name: string; state: "reading" | "done" | "failed"; problem?: string };

export interface Model {
  spec: Spec;
  outline: Outline;
}

export class App {
  readonly source = signal<Source>({ kind: "bridge", state: "no-token" });
  readonly model = signal<Model | null>(null);
  /** Ids of the open groups. */
  readonly open = signal<ReadonlySet<string>>(new Set());
  readonly selected = signal<string | null>(null);
  readonly trace = signal<TraceFrame | null>(null);
  readonly store = signal(new RunStore(LIVE_CAPACITY));
  readonly notices = signal<readonly string[]>([]);
  /** Counts paints: what shows numbers of the store reads it and so follows the store at its pace. */
  readonly tick = signal(0);
  readonly frames = computed(() => (this.tick.value, this.store.value.length));
  private client: BridgeClient | null = null;
  /** Counts what was opened, so that a file still being read stops when another takes its place. */
  private opened = 0;
  private readonly painter = new Painter(() => this.tick.value++);

  /** Follows the bridge that served this page; without a token there is nothing to ask. */
  connect(base: string, token: string | null): void {
    this.reset(LIVE_CAPACITY);
    if (token === null) return this.setBridge("no-token");
    this.client = new BridgeClient(base, token, {
      state: (state) => this.setBridge(state),
      model: (spec, isNew) => this.takeModel(spec, isNew),
      frame: (frame) => this.takeFrame(frame),
      trace: (trace) => (this.trace.value = trace),
      problem: (text) => this.notice(text),
    });
    this.client.open();
  }

  /** Shows the architecture of a link's fragment. */
  async showLink(fragment: string): Promise<void> {
    await this.show("link", "the link", FILE_CAPACITY, async (isCurrent) => {
      const spec = await decodeLink(fragment);
      if (isCurrent()) this.setModel(spec);
    });
  }

  /** Shows a .pta, a run file or a spec, painting while it reads. */
  async showFile(stream: ReadableStream<Uint8Array>, name: string, kind: "file" | "report" = "file"): Promise<void> {
    await this.show(kind, plain(name, 80), FILE_CAPACITY, async (isCurrent) => {
      for await (const batch of readParts(stream, plain(name, 80))) {
        if (!isCurrent()) return;
        for (const part of batch) this.takePart(part);
        await breathe();
      }
    });
  }

  select(id: string | null): void {
    this.selected.value = id;
    const model = this.model.value;
    if (id === null || !model) return;
    const wider = openAround(model.outline, this.open.value, id);
    if (wider.size !== this.open.value.size) this.open.value = wider;
  }

  setOpen(id: string, open: boolean): void {
    const next = new Set(this.open.value);
    if (open) next.add(id);
    else next.delete(id);
    this.open.value = next;
  }

  private async show(kind: "file" | "link" | "report", name: string, capacity: number, read: (isCurrent: () => boolean) => Promise<void>): Promise<void> {
    this.reset(capacity);
    const opened = this.opened;
    const isCurrent = (): boolean => this.opened === opened;
    this.source.value = { kind, name, state: "reading" };
    try {
      await read(isCurrent);
      if (isCurrent()) this.source.value = { kind, name, state: "done" };
    } catch (error) {
      if (!isCurrent()) return;
      const problem = error instanceof FormatError ? error.message : `It could not be read: ${messageOf(error)}`;
      this.source.value = { kind, name, state: "failed", problem: plain(problem, 400) };
    }
  }

  private reset(capacity: number): void {
    this.opened++;
    this.client?.close();
    this.client = null;
    this.model.value = null;
    this.selected.value = null;
    this.trace.value = null;
    this.notices.value = [];
    this.store.value = new RunStore(capacity);
    this.painter.request();
  }

  private setBridge(state: BridgeState): void {
    this.source.value = { kind: "bridge", state };
  }

  private takeModel(spec: Spec, isNew: boolean): void {
    if (isNew) {
      this.store.value = new RunStore(LIVE_CAPACITY);
      this.trace.value = null;
      this.painter.request();
    }
    this.setModel(spec);
  }

  private setModel(spec: Spec): void {
    const outline = buildOutline(spec);
    const selected = this.selected.value;
    if (selected !== null && !outline.items.has(selected)) this.selected.value = null;
    this.open.value = firstOpen(outline);
    this.model.value = { spec, outline };
  }

  private takeFrame(frame: HealthFrame): void {
    if (this.store.value.add(frame)) this.painter.request();
  }

  private takePart(part: FilePart): void {
    switch (part.kind) {
      case "model": return this.setModel(part.spec);
      case "trace": return void (this.trace.value = part.trace);
      case "frame": return this.takeFrame(part.frame);
      case "warning": return this.notice(part.text);
    }
  }

  private notice(text: string): void {
    const short = plain(text, 400);
    if (!this.notices.value.includes(short)) this.notices.value = [...this.notices.value, short].slice(-5);
  }
}

/** Lets the browser paint and answer input before work goes on. */
const breathe = (): Promise<void> => new Promise((resolve) => setTimeout(resolve));
