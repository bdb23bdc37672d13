/** Finds blocks by name, kind and path. */
import type { Outline, OutlineItem } from "./outline";
import { plain } from "./text";

export interface Found {
  /** The best matches first. */
  items: OutlineItem[];
  total: number;
}

/** Where in the model a block is: its label with the full path; empty where the spec has none. */
export const pathOf = (item: OutlineItem): string => plain(item.block?.label ?? "");

/** The items in which every word of the query occurs, at most `limit` of them. */
export function search(outline: Outline, query: string, limit: number): Found {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return { items: [], total: 0 };
  const ranked = [...outline.items.values()].flatMap((item) => {
    const rank = item.gives ? null : rankOf(item, words);
    return rank === null ? [] : [{ item, rank }];
  });
  // Sorting keeps the order of the model among equals.
  ranked.sort((a, b) => a.rank - b.rank);
  return { items: ranked.slice(0, limit).map(({ item }) => item), total: ranked.length };
}

/** The sum over the words of how well each is met; null when one is not. */
function rankOf(item: OutlineItem, words: readonly string[]): number | null {
  const title = item.title.toLowerCase();
  const rest = `${pathOf(item)} ${item.kind} ${item.detail} ${item.id}`.toLowerCase();
  let sum = 0;
  for (const word of words) {
    if (title === word) continue;
    if (title.startsWith(word)) sum += 1;
    else if (title.includes(word)) sum += 2;
    else if (rest.includes(word)) sum += 3;
    else return null;
  }
  return sum;
}
