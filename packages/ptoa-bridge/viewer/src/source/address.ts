/** What the page's address carries: a bridge's token, or an architecture. */

export interface Address {
  token: string | null;
  /** A fragment with an architecture, as it stands. */
  link: string | null;
  /** Name of the file that the bridge serves (`#file=`); null where it serves a run. */
  file: string | null;
  /** The address without the token, for the address bar. */
  clean: string;
}

/** Reads an address; a token is taken from the fragment (`#token=`) and tolerated in the query (`?token=`). */
export function readAddress(href: string): Address {
  const url = new URL(href);
  const fragment = new URLSearchParams(url.hash.slice(1));
  const token = fragment.get("token") || url.searchParams.get("token") || null;
  const link = fragment.has("s") ? url.hash : null;
  url.searchParams.delete("token");
  const file = fragment.get("file") || null;
  fragment.delete("token");
  // A link's fragment stays as it is written: its payload is no form field.
  if (link === null) url.hash = fragment.toString();
  return { token, link, file, clean: url.href.replace(/#$/, "") };
}

const KEY = "ptoa-token";

/**
 * The token of this tab: from the address, where it does not stay, else the one of an earlier load.
 *
 * A token in the address bar ends up in history, screenshots and shared links; `sessionStorage` is this tab's alone.
 */
export function takeToken(address: Address, storage: Storage, history: History): string | null {
  if (address.token === null) return storage.getItem(KEY);
  storage.setItem(KEY, address.token);
  history.replaceState(null, "", address.clean);
  return address.token;
}
