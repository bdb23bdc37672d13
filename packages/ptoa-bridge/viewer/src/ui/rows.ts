import type { Model } from "../app";
import type { RunStore } from "../run/store";

/** Blocks with numbers in the order in which they run, then those that the model does not name. */
export function blockRows(store: RunStore, model: Model | null): string[] {
  const named = model?.spec.blocks.map((block) => block.id).filter((id) => store.blocks.has(id)) ?? [];
  if (named.length === store.blocks.size) return named;
  const known = new Set(named);
  return [...named, ...[...store.blocks.keys()].filter((id) => !known.has(id))];
}
