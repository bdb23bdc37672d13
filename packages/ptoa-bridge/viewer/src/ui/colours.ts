/** The names of colours that stand in the style sheet, and the page's font, for what is drawn. */
import type { Family } from "../model/kinds";

export const COLOURS = [
  "ink", "soft", "faint", "line", "paper", "panel", "halo", "accent", "bad", "broken", "curve-1", "curve-2", "curve-3", "curve-4",
  "k-source", "k-attention", "k-linear", "k-norm", "k-add", "k-activation", "k-loss", "k-group", "k-other",
] as const;
type Name = (typeof COLOURS)[number];
export type Theme = Readonly<Record<Name, string>>;

export const familyColour = (colours: Theme, family: Family): string => colours[`k-${family}`];

/** The family of `font` of the page, for canvas text. */
export const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
