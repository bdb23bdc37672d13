"""A table that fits a width: pure functions from cells to lines.

Widths are columns of a terminal: an East Asian wide character takes two, a combining mark none.
When the width does not do, the widest column gives way first, down to its least width; after that
the least important columns go.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["CELL_MAX", "Column", "clip", "display_width", "fit", "render"]

CELL_MAX = 80
_GAP = 2


@dataclass(frozen=True)
class Column:
    """One column: its title, the least width it is useful at, how soon it goes, its style and side."""

    title: str
    least: int
    goes: int
    style: str = ""
    right: bool = False


def display_width(text: str) -> int:
    """Columns of a terminal that `text` takes.

    Example:
        >>> display_width("abc"), display_width("模型"), display_width("e\N{COMBINING ACUTE ACCENT}")
        (3, 4, 1)
    """
    return len(text) if text.isascii() else sum(map(_char_width, text))


def _char_width(char: str) -> int:
    """Columns that one character takes."""
    if unicodedata.combining(char) or unicodedata.category(char) in {"Mn", "Me"}:
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def clip(text: str, width: int, mark: str = "…") -> str:
    """`text` cut to `width` columns, with `mark` in place of what was cut.

    Example:
        >>> clip("attention", 5), clip("norm", 5), clip("模型模型", 4)
        ('atte…', 'norm', '模…')
    """
    if display_width(text) <= width:
        return text
    room = width - display_width(mark)
    if room < 0:
        return mark[:width]
    if text.isascii():  # what most cells are; counting each character takes seconds in a large table
        return text[:room] + mark
    end, used = 0, 0
    for char in text:
        used += _char_width(char)
        if used > room:
            break
        end += 1
    return text[:end] + mark


def fit(columns: Sequence[Column], natural: Sequence[int], width: int | None) -> list[int]:
    """The width of each column so that the table takes at most `width`; 0 leaves a column out.

    Args:
        columns: The columns.
        natural: The width that each would like; 0 for one that is empty.
        width: What there is, or None for no limit.

    Example:
        >>> fit([Column("id", 2, 0), Column("label", 4, 1)], [2, 30], 20)
        [2, 16]
        >>> fit([Column("id", 2, 0), Column("label", 4, 1)], [2, 30], 6)
        [2, 0]
    """
    widths = [min(want, CELL_MAX) for want in natural]
    if width is None:
        return widths
    while _total(widths) > width:
        shown = [i for i, w in enumerate(widths) if w]
        loose = [i for i in shown if widths[i] > columns[i].least]
        if loose:
            widths[max(loose, key=lambda i: widths[i])] -= 1
        elif len(shown) > 1:
            widths[max(shown, key=lambda i: columns[i].goes)] = 0
            widths = _regrown(widths, natural)
        else:
            widths[shown[0]] = width
    return widths


def _regrown(widths: list[int], natural: Sequence[int]) -> list[int]:
    """Widths as they would like to be again, for the columns that stay: one that went left room."""
    return [min(want, CELL_MAX) if kept else 0 for kept, want in zip(widths, natural, strict=True)]


def _total(widths: Sequence[int]) -> int:
    """Columns of a terminal that the table takes."""
    shown = [w for w in widths if w]
    return sum(shown) + _GAP * max(0, len(shown) - 1)


def render(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    width: int | None,
    style: Callable[[str, str], str],
    mark: str = "…",
) -> Iterator[str]:
    """The lines of the table, its titles first.

    Args:
        columns: The columns.
        rows: The cells, each on one line and safe to print.
        width: Columns of the terminal, or None for no limit.
        style: Puts a text into a named style.
        mark: What stands for text that was cut.
    """
    natural = [max((display_width(row[i]) for row in rows), default=0) for i in range(len(columns))]
    titled = [max(want, len(c.title)) if want else 0 for want, c in zip(natural, columns, strict=True)]
    widths = fit(columns, titled, width)
    sides = [column.right for column in columns]
    yield _line([c.title for c in columns], widths, sides, mark, lambda text, _: style(text, "bold"))
    for row in rows:
        yield _line(row, widths, sides, mark, lambda text, i: style(text, columns[i].style))


def _line(
    cells: Sequence[str],
    widths: Sequence[int],
    sides: Sequence[bool],
    mark: str,
    style: Callable[[str, int], str],
) -> str:
    """One line: each cell cut and filled to its width, nothing after the last."""
    shown = [i for i, w in enumerate(widths) if w]
    parts = []
    for i in shown:
        text = clip(cells[i], widths[i], mark)
        spare = " " * (widths[i] - display_width(text))
        gap = "" if i == shown[-1] else " " * _GAP
        told = style(text, i) if text else ""
        parts.append((spare + told if sides[i] else told + spare) + gap)
    return "".join(parts).rstrip()
