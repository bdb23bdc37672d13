"""What a notebook shows for a spec."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .terminal import escape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .spec import Block, ModelSpec

_GROUP = "ptoa_core.renderers"
_MOST_ROWS = 1_000


def spec_html(spec: ModelSpec) -> str:
    """The first installed renderer's HTML, or the table when there is none or it fails."""
    for render in _renderers():
        try:
            return render(spec)
        # A cell must show something, whatever a plugin does.
        except Exception:  # noqa: BLE001, PERF203, S112
            continue
    return _table(spec)


def _renderers() -> Iterable[Callable[[ModelSpec], str]]:
    """The functions that installed distributions offer, those that import."""
    # Finding entry points reads every installed distribution's metadata: only when asked.
    from importlib.metadata import entry_points

    for entry in entry_points(group=_GROUP):
        try:
            yield entry.load()
        except Exception:  # noqa: BLE001, PERF203, S112  # a broken plugin must not hide the table
            continue


def _table(spec: ModelSpec) -> str:
    """A row a block, every text escaped."""
    rows = "".join(map(_row, spec.blocks[:_MOST_ROWS]))
    left = len(spec.blocks) - _MOST_ROWS
    more = f"<p>and {left} more blocks</p>" if left > 0 else ""
    head = "<tr><th>id</th><th>kind</th><th>label</th><th>inputs</th><th>params</th></tr>"
    return f"<div><b>{_safe(spec.name)}</b><table>{head}{rows}</table>{more}</div>"


def _row(block: Block) -> str:
    """One block's cells."""
    params = " ".join(f"{key}={value}" for key, value in block.params.to_dict().items())
    cells = (block.id, block.kind, block.label or "", " ".join(block.inputs), params)
    return "<tr>" + "".join(f"<td>{_safe(cell)}</td>" for cell in cells) + "</tr>"


def _safe(text: object, limit: int = 200) -> str:
    """Text that is neither markup nor acts on the page's layout."""
    plain = escape(str(text)[:limit])
    for char, name in (("&", "amp"), ("<", "lt"), (">", "gt"), ('"', "quot"), ("'", "#39")):
        plain = plain.replace(char, f"&{name};")
    return plain
