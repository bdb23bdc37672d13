/** What the page knows, as signals, and the few ways in which it changes. */
import { batch, computed, signal } from "@preact/signals";
import { FormatError, messageOf } from "./formats/errors";
import { readFrame, readParts, type FilePart } from "./formats/files";
import type { HealthFrame, TraceFrame } from "./formats/frames";
import { decodeLink } from "./formats/link";
import type { Spec } from "./formats/spec";
import { buildOutline, type Outline } from "./model/outline";
import { plain } from "./model/text";
import { allOpen, firstOpen, openAround, withOpen } from "./model/view";
import { Painter } from "./run/painter";
import { FILE_CAPACITY, LIVE_CAPACITY, RunStore } from "./run/store";
import { BridgeClient, type BridgeState } from "./source/bridge";
import { Training, type FrameFinder } from "./training";

/** Where what is shown comes from, and how that stands. */
export type Source =
  /** `file` is what the bridge serves where it serves a file and no training. */
  | { kind: "bridge"; state: BridgeState; file?: string }
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
  /** The block under the pointer on the map. */
  readonly mapRow = signal<string | null>(null);
  readonly trace = signal<TraceFrame | null>(null);
  readonly store = signal(new RunStore(LIVE_CAPACITY));
  readonly notices = signal<readonly string[]>([]);
  /** Counts paints: what shows numbers of the store reads it and so follows the store at its pace. */
  readonly tick = signal(0);
  /** The same for what takes longer to draw: the map, and colours on the graph. */
  readonly slowTick = signal(0);
  readonly frames = computed(() => (this.tick.value, this.store.value.length));
  private readonly finder = signal<FrameFinder | null>(null);
  readonly training = new Training(this.store, this.tick, this.finder, () => this.client !== null);
  private client: BridgeClient | null = null;
  private file: string | null = null;
  /** Counts what was opened, so that a file still being read stops when another takes its place. */
  private opened = 0;
  private trailing = 0;
  private lastSlow = -Infinity;
  private readonly painter = new Painter(() => this.paint());

  /** Follows the bridge that served this page; without a token there is nothing to ask. */
  connect(base: string, token: string | null, file: string | null = null): void {
    this.reset(LIVE_CAPACITY);
    this.file = file;
    if (token === null) return this.setBridge("no-token");
    this.client = new BridgeClient(base, token, {
      state: (state) => this.setBridge(state),
      model: (spec, isNew) => this.takeModel(spec, isNew),
      frame: (frame) => this.takeFrame(frame),
      trace: (trace) => (this.trace.value = trace),
      problem: (text) => this.notice(text),
    });
    this.finder.value = (index) => this.frameOfBridge(index);
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
  async showFile(file: Blob | Promise<Blob>, name: string, kind: "file" | "report" = "file"): Promise<void> {
    await this.show(kind, plain(name, 80), FILE_CAPACITY, async (isCurrent) => {
      const blob = await file;
      await eachPart(blob, plain(name, 80), (part) => isCurrent() && this.takePart(part));
      this.painter.request();
      if (isCurrent()) this.finder.value = (index) => frameOfFile(this.store.peek(), blob, index);
    });
  }

  /** Opens what was dropped: a second run is laid over the one that is here, anything else takes its place. */
  async takeFile(file: Blob, name: string): Promise<void> {
    if (this.frames.value > 0 && (await isRun(file))) return this.layOver(file, name);
    return this.showFile(file, name);
  }

  /** Reads the curves of a second run to lie over those of the first. */
  async layOver(file: Blob, name: string): Promise<void> {
    const other = { name: plain(name, 80), store: new RunStore(FILE_CAPACITY, false) };
    const { other: shown } = this.training;
    shown.value = { ...other, state: "reading" };
    const isCurrent = (): boolean => shown.value?.store === other.store;
    try {
      await eachPart(file, other.name, (part) => {
        if (part.kind === "frame" && isCurrent() && other.store.add(part.frame)) this.painter.request();
        return isCurrent();
      });
      if (isCurrent()) shown.value = { ...other, state: "done" };
    } catch (error) {
      if (isCurrent()) shown.value = { ...other, state: "failed", problem: plain(messageOf(error), 400) };
    }
    this.painter.request();
  }

  select(id: string | null): void {
    const model = this.model.value;
    batch(() => {
      this.selected.value = id;
      if (id === null || !model) return;
      const wider = openAround(model.outline, this.open.value, id);
      if (wider.size !== this.open.value.size) this.open.value = wider;
    });
  }

  /** Opens every group, or only those that are open at first. */
  unfold(all: boolean): void {
    const { value: model } = this.model;
    if (model) this.open.value = (all ? allOpen : firstOpen)(model.outline);
  }

  /** Opens or folds a group; `all` opens every one of equal layers in place of the first. */
  setOpen(id: string, open: boolean, all = false): void {
    const { value: model } = this.model;
    if (model) this.open.value = withOpen(model.outline, this.open.value, id, open, all);
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
    this.finder.value = null;
    this.training.reset();
    this.store.value = new RunStore(capacity);
    this.painter.request();
  }

  private setBridge(state: BridgeState): void {
    this.source.value = { kind: "bridge", state, ...(this.file !== null && { file: plain(this.file, 80) }) };
  }

  private takeModel(spec: Spec, isNew: boolean): void {
    if (isNew) {
      this.training.reset();
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

  /** Always true, so that reading goes on. */
  private takePart(part: FilePart): true {
    switch (part.kind) {
      case "model": this.setModel(part.spec); break;
      case "trace": this.trace.value = part.trace; break;
      case "frame": if (this.store.value.add(part.frame, part.place)) this.painter.request(READING_MS); break;
      case "warning": this.notice(part.text);
    }
    return true;
  }

  private paint(): void {
    if (this.training.paused.value) return;
    this.store.value.settle();
    this.training.other.value?.store.settle();
    this.tick.value++;
    clearTimeout(this.trailing);
    const wait = this.lastSlow + SLOW_MS - performance.now();
    if (wait > 0) this.trailing = window.setTimeout(() => this.paintSlow(), wait);
    else this.paintSlow();
  }

  private paintSlow(): void {
    this.lastSlow = performance.now();
    this.slowTick.value++;
  }

  /** Goes on painting after a pause. */
  resume(): void {
    this.training.follow();
    this.painter.request();
  }

  private async frameOfBridge(index: number): Promise<HealthFrame | null> {
    const step = this.store.peek().steps[index];
    return step === undefined || !this.client ? null : this.client.frameAt(step);
  }

  private notice(text: string): void {
    const short = plain(text, 400);
    if (!this.notices.value.includes(short)) this.notices.value = [...this.notices.value, short].slice(-5);
  }
}

const frameOfFile: (store: RunStore, file: Blob, index: number) => Promise<HealthFrame | null> = async (store, file, index) => {
  const place = store.placeOf(index);
  return place ? readFrame(file, place) : null;
};

const SLOW_MS = 600;
const WORK_MS = 12;
/** Between two paints while a file is read: what is read shows, and most of the time goes into reading on. */
const READING_MS = 500;

/** Reads a file part by part until `take` says no, and lets the browser paint and answer input in between. */
async function eachPart(file: Blob, name: string, take: (part: FilePart) => boolean): Promise<void> {
  let rested = performance.now();
  for await (const parts of readParts(file, name)) {
    for (const part of parts) if (!take(part)) return;
    if (performance.now() - rested < WORK_MS) continue;
    await new Promise((resolve) => setTimeout(resolve));
    rested = performance.now();
  }
}

/** Whether a file says of itself that it is a run; what is wrong with it is said when it is read. */
const isRun = async (file: Blob): Promise<boolean> => /^\s*\{[^]{0,200}"protocol"\s*:\s*"pta-run"/.test(await file.slice(0, 4096).text());
