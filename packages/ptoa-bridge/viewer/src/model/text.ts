/** A stranger's names made safe to read: bounded, and with nothing invisible that turns the reading order round. */

const ELLIPSIS = "…";
/** Control and formatting characters (zero-width, bidirectional), line separators, halves of surrogate pairs. */
const INVISIBLE = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;

const escapeInvisible = (character: string): string =>
  `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;

/** At most `limit` characters of a text on one line; what cannot be seen is written as its code. */
export function plain(text: string, limit = 200): string {
  const cut = text.length > limit ? text.slice(0, limit - 1).replace(/[\ud800-\udbff]$/, "") : text;
  const shown = cut.replace(INVISIBLE, escapeInvisible);
  return cut.length < text.length ? shown + ELLIPSIS : shown;
}

/** The longest beginning of a text whose measured width fits, with an ellipsis where something is left out. */
export function fit(text: string, width: number, measure: (text: string) => number): string {
  if (measure(text) <= width) return text;
  let low = 0;
  let high = text.length;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (measure(text.slice(0, middle) + ELLIPSIS) <= width) low = middle;
    else high = middle - 1;
  }
  return text.slice(0, low) + ELLIPSIS;
}

/** The same for the longest end of a text. */
export function fitEnd(text: string, width: number, measure: (text: string) => number): string {
  const mirrored = (value: string): string => [...value].reverse().join("");
  return mirrored(fit(mirrored(text), width, (value) => measure(mirrored(value))));
}
