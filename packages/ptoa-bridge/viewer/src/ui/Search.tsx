/** Jumps to a block by its name, kind or path: `/` opens it, arrows and Enter choose, Escape closes. */
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { App } from "../app";
import { familyOf } from "../model/kinds";
import { pathOf, search } from "../model/search";
import { count } from "../run/numbers";

const MOST_RESULTS = 50;

export function Search({ app, onJump }: { app: App; onJump: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const list = useRef<HTMLUListElement>(null);
  const query = useSignal("");
  const active = useSignal(0);
  const open = (): void => {
    query.value = "";
    active.value = 0;
    dialog.current!.showModal();
  };
  useSlashKey(() => !dialog.current!.open && open());
  const model = app.model.value;
  const found = model ? search(model.outline, query.value, MOST_RESULTS) : { items: [], total: 0 };
  const last = found.items.length - 1;
  const jump = (id: string): void => {
    dialog.current!.close();
    onJump();
    app.select(id);
  };
  useEffect(() => list.current?.children[active.value]?.scrollIntoView({ block: "nearest" }), [active.value]);
  const keys: Record<string, () => void> = {
    // A browser would only empty the field.
    Escape: () => dialog.current!.close(),
    ArrowDown: () => (active.value = Math.min(last, active.value + 1)),
    ArrowUp: () => (active.value = Math.max(0, active.value - 1)),
    Enter: () => found.items[active.value] && jump(found.items[active.value]!.id),
  };
  return (
    <>
      <button type="button" id="find" title="Find a block (/)" onClick={open}>Find</button>
      <dialog ref={dialog} class="search" id="search" aria-label="Find a block" onClick={(event) => event.target === dialog.current && dialog.current!.close()}>
        <input
          type="search" id="query" placeholder="Name, kind or path of a block" autocomplete="off" spellcheck={false} value={query.value}
          role="combobox" list={undefined} aria-label="Name, kind or path of a block" aria-expanded={last >= 0} aria-controls="results" aria-autocomplete="list"
          aria-activedescendant={last >= 0 ? `result-${active.value}` : undefined}
          onInput={(event) => {
            query.value = event.currentTarget.value;
            active.value = 0;
          }}
          onKeyDown={(event) => {
            const act = event.isComposing ? undefined : keys[event.key];
            if (!act) return;
            event.preventDefault();
            act();
          }}
        />
        <ul ref={list} id="results" role="listbox" aria-label="Blocks found">
          {found.items.map((item, i) => (
            <li
              key={item.id} id={`result-${i}`} role="option" aria-selected={i === active.value} data-result={item.id}
              onPointerMove={() => (active.value = i)} onClick={() => jump(item.id)}
            >
              <span class={`dot k-${familyOf(item.kind)}`} aria-hidden="true" />
              <bdi class="name">{item.title}</bdi>
              <span class="quiet">{item.kind}</span>
              <bdi class="quiet path">{pathOf(item) || item.detail}</bdi>
            </li>
          ))}
        </ul>
        <p class="quiet" role="status">{summaryOf(query.value, found.total)}</p>
      </dialog>
    </>
  );
}

function summaryOf(query: string, total: number): string {
  if (!query.trim()) return "Arrows choose, Enter goes there, Esc closes.";
  if (!total) return "No block has all of these words in its name, kind or path.";
  return total > MOST_RESULTS ? `The first ${MOST_RESULTS} of ${count(total)}; another word narrows it down.` : `${count(total)} found.`;
}

/** Calls back when `/` is pressed anywhere but where text is written. */
function useSlashKey(open: () => void): void {
  const latest = useRef(open);
  latest.current = open;
  useEffect(() => {
    const press = (event: KeyboardEvent): void => {
      const isWriting = event.target instanceof HTMLInputElement && event.target.type !== "range";
      if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || isWriting) return;
      event.preventDefault();
      latest.current();
    };
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, []);
}
