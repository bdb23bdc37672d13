import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { RefObject } from "preact";

/** Calls back with an element's size at first and whenever it changes. */
export function useSize<E extends HTMLElement>(ref: RefObject<E | null>, onSize: (width: number, height: number) => void): void {
  useLayoutEffect(() => {
    const element = ref.current!;
    const observer = new ResizeObserver(() => onSize(element.clientWidth, element.clientHeight));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
}

export interface RowWindow {
  ref: RefObject<HTMLDivElement | null>;
  /** The rows that are on the screen, and a few around: from `first` up to, not including, `end`. */
  first: number;
  end: number;
}

const SPARE_ROWS = 4;

/** Which rows of a long list an element shows as it is scrolled; `head` pixels above the first row scroll with them. */
export function useRowWindow(count: number, rowHeight: number): RowWindow {
  const ref = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 800 });
  const look = (): void => {
    const { scrollTop, clientHeight } = ref.current!;
    setView((old) => (old.top === scrollTop && old.height === clientHeight ? old : { top: scrollTop, height: clientHeight }));
  };
  useSize(ref, look);
  useLayoutEffect(() => {
    const element = ref.current!;
    element.addEventListener("scroll", look, { passive: true });
    return () => element.removeEventListener("scroll", look);
  }, []);
  const first = Math.max(0, Math.floor(view.top / rowHeight) - SPARE_ROWS);
  const end = Math.min(count, Math.ceil((view.top + view.height) / rowHeight) + SPARE_ROWS);
  return { ref, first: Math.min(first, count), end };
}

/** Scrolls a list so that a row is wholly visible under a head that stays in place. */
export function scrollToRow(list: HTMLElement, row: number, rowHeight: number, head = 0): void {
  const top = row * rowHeight;
  if (top < list.scrollTop) list.scrollTop = top;
  const overhang = top + rowHeight + head - (list.scrollTop + list.clientHeight);
  if (overhang > 0) list.scrollTop += overhang;
}
