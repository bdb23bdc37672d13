/** Colours for what is drawn on canvas, read from the style sheet so that each stands in one place. */
import { signal } from "@preact/signals";
import { COLOURS, type Theme } from "./colours";

/** Grows when the system turns from light to dark or back. */
export const schemeChanges = signal(0);
const darkScheme = matchMedia("(prefers-color-scheme: dark)");
darkScheme.addEventListener("change", () => schemeChanges.value++);
export const isDark = (): boolean => darkScheme.matches;

let known: { at: number; theme: Theme } | null = null;

export function theme(): Theme {
  if (known?.at === schemeChanges.value) return known.theme;
  const style = getComputedStyle(document.documentElement);
  const entries = COLOURS.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]);
  known = { at: schemeChanges.value, theme: Object.fromEntries(entries) as Theme };
  return known.theme;
}
