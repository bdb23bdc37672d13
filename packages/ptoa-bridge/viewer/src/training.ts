/** How the training is looked at: at which step, by which measure, over which stretch, and beside which other run. */
import { batch, computed, effect, signal, type ReadonlySignal, type Signal } from "@preact/signals";
import type { BlockHealth, HealthFrame } from "./formats/frames";
import type { Outline } from "./model/outline";
import { cssColour, isBroken, MAP_MEASURES, palette, scaleFor, seriesFor, standsOut, type MapMeasure } from "./run/scales";
import type { RunStore } from "./run/store";

export type AxisName = "step" | "time";

export interface OtherRun {
  name: string;
  store: RunStore;
  state: "reading" | "done" | "failed";
  problem?: string;
}

/** Gets the whole frame at an index of the store, with histograms and patterns; null where it is not to be had. */
export type FrameFinder = (index: number) => Promise<HealthFrame | null>;

export class Training {
  /** The step that is looked at; null follows the newest. */
  readonly at = signal<number | null>(null);
  readonly paused = signal(false);
  /** Place under the pointer on the charts' axis. */
  readonly hover = signal<number | null>(null);
  readonly measure = signal<MapMeasure>(MAP_MEASURES[0]!);
  readonly axis = signal<AxisName>("step");
  readonly isLog = signal(false);
  /** Weight of what came before, from 0 (as measured) up to 0.99. */
  readonly smoothing = signal(0);
  readonly zoom = signal<readonly [number, number] | null>(null);
  readonly other = signal<OtherRun | null>(null);
  /** Index of the frame that is looked at; -1 without frames. */
  readonly index: ReadonlySignal<number>;
  /** The whole frame at a chosen step, while it is not the newest. */
  private readonly found = signal<{ index: number; blocks: ReadonlyMap<string, BlockHealth> } | null>(null);
  private wanted = -1;
  private isFinding = false;

  constructor(
    private readonly store: Signal<RunStore>,
    private readonly tick: Signal<number>,
    private readonly finder: Signal<FrameFinder | null>,
    /** Whether the store has the newest frame whole. */
    private readonly hasLatest: () => boolean,
  ) {
    this.index = computed(() => {
      this.tick.value;
      const { value: store } = this.store;
      return this.at.value === null ? store.length - 1 : store.indexAt(this.at.value);
    });
    effect(() => this.find(this.index.value, this.finder.value));
  }

  /** Looks at a frame; the last one is followed. */
  look(index: number): void {
    const { value: store } = this.store;
    this.at.value = index >= store.length - 1 ? null : store.steps[Math.max(0, index)]!;
  }

  follow(): void {
    batch(() => {
      this.at.value = null;
      this.paused.value = false;
    });
  }

  reset(): void {
    batch(() => {
      this.follow();
      this.hover.value = null;
      this.zoom.value = null;
      this.other.value = null;
      this.found.value = null;
      this.wanted = -1;
    });
  }

  /** Places of the frames on the axis: steps, or seconds of training. */
  axisOf(store: RunStore): readonly number[] {
    return this.axis.value === "step" ? store.steps : store.times.map((t) => t / 1000);
  }

  /** A block's health at the step that is looked at, as whole as it is to be had. */
  healthOf(id: string): BlockHealth | undefined {
    this.tick.value;
    const isNewest = this.at.value === null && this.hasLatest();
    const found = this.found.value;
    if (!isNewest && found?.index === this.index.value) return found.blocks.get(id);
    // Until it is found, what was shown before stays: no blink while the slider moves.
    return this.at.value === null ? this.store.value.latest.get(id) : found?.blocks.get(id);
  }

  /** A colour for each block and each group of the graph at the step that is looked at; null without a run. */
  tints(outline: Outline, isDark: boolean, bad: string): ReadonlyMap<string, string> | null {
    const { value: store } = this.store;
    // While the newest frame is followed, whoever asks says when: colours need not change with every frame.
    const index = this.at.value === null ? this.index.peek() : this.index.value;
    if (index < 0) return null;
    const measure = this.measure.value;
    const scale = scaleFor(measure, store.blocks.values());
    const colours = palette(scale.kind, isDark);
    const worst = new Map<string, number>();
    for (const [id, series] of store.blocks) {
      const one = seriesFor(measure, series);
      const value = one?.at(index) ?? NaN;
      const place = isBroken(series, one, index) ? Infinity : Number.isNaN(value) ? NaN : scale.place(value);
      // What is inside a group shows on it while it is folded.
      for (let at: string | null = id; at !== null && !Number.isNaN(place); at = outline.items.get(at)?.parent ?? null) {
        const known = worst.get(at);
        if (known === undefined || standsOut(scale, place) > standsOut(scale, known)) worst.set(at, place);
      }
    }
    return new Map([...worst].map(([id, place]) => [id, place === Infinity ? bad : cssColour(colours, place)]));
  }

  /** Gets the frame that is looked at, one at a time; what is wanted meanwhile comes next. */
  private find(index: number, finder: FrameFinder | null): void {
    this.wanted = index;
    if (this.isFinding || !finder || index < 0 || (this.at.peek() === null && this.hasLatest())) return;
    this.isFinding = true;
    const { store } = this;
    const from = store.peek();
    void finder(index)
      .catch(() => null)
      .then((frame) => {
        this.isFinding = false;
        if (from !== store.peek()) return;
        this.found.value = { index, blocks: new Map(frame?.blocks.map((block) => [block.id, block])) };
        if (this.wanted !== index) this.find(this.wanted, this.finder.peek());
      });
  }
}
