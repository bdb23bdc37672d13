"""A stranger's text on a terminal does nothing but be read."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptoa_core.terminal import escape, shown

ESCAPED = {
    "escape": ("\x1b[2J", "\\x1b[2J"),
    "bell": ("\a", "\\x07"),
    "newline": ("a\nb\rc", "a\\x0ab\\x0dc"),
    "tab": ("a\tb", "a\\x09b"),
    "delete": ("\x7f", "\\x7f"),
    "c1": ("\x9b31m", "\\x9b31m"),
    "next-line": ("\x85", "\\x85"),
    "no-break-space": ("a\xa0b", "a\\xa0b"),
    "soft-hyphen": ("a\xadb", "a\\xadb"),
    "right-to-left-override": ("\u202eabc", "\\u202eabc"),
    "isolate": ("\u2066a\u2069", "\\u2066a\\u2069"),
    "arabic-letter-mark": ("\u061c", "\\u061c"),
    "zero-width-space": ("a\u200bb", "a\\u200bb"),
    "zero-width-joiner": ("a\u200db", "a\\u200db"),
    "byte-order-mark": ("\ufeffa", "\\ufeffa"),
    "line-separator": ("\u2028", "\\u2028"),
    "paragraph-separator": ("\u2029", "\\u2029"),
    "lone-surrogate": ("\ud800", "\\ud800"),
    "tag": ("\U000e0041", "\\U000e0041"),
    "hangul-filler": ("\u3164", "\\u3164"),
    "variation-selector": ("a\ufe0f", "a\\ufe0f"),
    "private": ("\ue000", "\\ue000"),
}


@pytest.mark.parametrize(("text", "written"), ESCAPED.values(), ids=ESCAPED)
def test_character_that_could_act_is_written_out(text, written):
    assert escape(text) == written


@pytest.mark.parametrize("text", ["", "layers.0 (Block)", "模型 µ-attn é ß Ω", "C:\\runs", "é", "שלום", "😀"])
def test_plain_text_stays(text):
    assert escape(text) == text


@given(st.text())
def test_result_is_one_printable_line_of_utf8(text):
    result = escape(text)
    result.encode("utf-8")
    assert len(result.splitlines()) <= 1
    assert not {unicodedata.category(char) for char in result} & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


SHOWN = {
    "text": ("a'b", '"a\'b"'),
    "control": ("\x1b", "'\\x1b'"),
    "bidi": ("\u202e", "'\\u202e'"),
    "invisible": ("\u3164", "'\\u3164'"),
    "long": ("a" * 100, "'" + "a" * 60 + "'... (100 characters)"),
    "number": (5, "5"),
    "huge": (10**6000, "an integer of 19932 bits"),
    "nan": (float("nan"), "nan"),
    "none": (None, "None"),
    "list": ([1, [2]], "a list of 2"),
    "object": ({"a": 1}, "an object with 1 keys"),
    "other": (object(), "a object"),
}


@pytest.mark.parametrize(("value", "text"), SHOWN.values(), ids=SHOWN)
def test_shown_is_short_and_safe(value, text):
    assert shown(value) == text
