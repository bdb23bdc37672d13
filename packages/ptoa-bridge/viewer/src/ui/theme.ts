/** Colours for what is drawn on canvas, read from the style sheet so that each stands in one place. */
import { signal } from "@preact/signals";
import type { Family } from "../model/kinds";

const NAMES = [
  "ink", "soft", "faint", "line", "paper", "panel", "halo", "accent", "bad", "broken", "curve-1", "curve-2", "curve-3", "curve-4",
  "k-source", "k-attention", "k-linear", "k-norm", "k-add", "k-activation", "k-loss", "k-group", "k-other",
] as const;
type Name = (typeof NAMES)[number];
export type Theme = Readonly<Record<Name, string>>;

/** Grows when the system turns from light to dark or back. */
export const schemeChanges = signal(0);
const darkScheme = matchMedia("(prefers-color-scheme: dark)");
darkScheme.addEventListener("change", () => schemeChanges.value++);
export const isDark = (): boolean => darkScheme.matches;

let known: { at: number; theme: Theme } | null = null;

export function theme(): Theme {
  if (known?.at === schemeChanges.value) return known.theme;
  const style = getComputedStyle(document.documentElement);
  const entries = NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]);
  known = { at: schemeChanges.value, theme: Object.fromEntries(entries) as Theme };
  return known.theme;
}

export const familyColour = (colours: Theme, family: Family): string => colours[`k-${family}`];

/** The family of `font` of the page, for canvas text. */
export const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
