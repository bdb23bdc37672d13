"""The table fits its width, whatever is in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from papertoanything.cli.table import Column, clip, display_width, fit, render

COLUMNS = (Column("id", 2, 0), Column("kind", 4, 1), Column("label", 6, 2), Column("inputs", 4, 3))
CELL = st.text(st.characters(blacklist_categories=("Cc", "Cs", "Cf", "Zl", "Zp")), max_size=40)
ROWS = st.lists(st.tuples(CELL, CELL, CELL, CELL).map(list), min_size=1, max_size=6)


def plain(text, style):
    return text


@given(ROWS, st.integers(1, 120))
def test_no_line_is_wider_than_the_width(rows, width):
    assert all(display_width(line) <= width for line in render(COLUMNS, rows, width, plain))


@given(ROWS)
def test_without_a_width_nothing_shorter_than_a_cell_may_be_is_cut(rows):
    lines = list(render(COLUMNS, rows, None, plain))
    for line, row in zip(lines[1:], rows, strict=True):
        assert all(cell.strip() in line for cell in row)


@given(CELL, st.integers(0, 50))
def test_clip_keeps_to_its_width(text, width):
    assert display_width(clip(text, width)) <= width


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (None, [8, 9, 30, 12]),
        (65, [8, 9, 30, 12]),
        (40, [8, 9, 8, 9]),
        (20, [4, 6, 6, 0]),
        (10, [3, 5, 0, 0]),
        (3, [3, 0, 0, 0]),
    ],
    ids=str,
)
def test_the_widest_column_gives_way_first_and_the_least_important_goes(width, shown):
    widths = fit(COLUMNS, [8, 9, 30, 12], width)
    assert [bool(w) for w in widths] == [bool(w) for w in shown]
    if width is not None:
        used = [w for w in widths if w]
        assert sum(used) + 2 * (len(used) - 1) <= width


def test_an_empty_column_is_left_out():
    assert next(iter(render(COLUMNS, [["a", "b", "", "c"]], None, plain))) == "id  kind  inputs"


def test_a_wide_character_takes_two_columns():
    lines = list(render(COLUMNS, [["模", "x", "", ""], ["ab", "y", "", ""]], None, plain))
    assert lines[1:] == ["模  x", "ab  y"]


def test_a_style_is_put_around_the_text_and_not_the_fill():
    lines = list(
        render((Column("id", 2, 0, "bold"), Column("k", 1, 1)), [["a", "b"]], None, lambda t, s: f"<{t}>")
    )
    assert lines[1] == "<a>   <b>"
