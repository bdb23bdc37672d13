"""What reaches the streams: nothing that a terminal obeys, nothing that an encoding lacks."""

from __future__ import annotations

import io
import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from papertoanything.cli.console import Console, OutputClosedError, OutputFailedError, json_safe


def stream(encoding="utf-8"):
    return io.TextIOWrapper(io.BytesIO(), encoding=encoding)


def written(text_stream):
    text_stream.flush()
    return text_stream.buffer.getvalue().decode(text_stream.encoding)


HOSTILE = "a\x1b[2Jb\x07\x9b31m\u202ec\u2028d\x7f\r\n\t\x00e\u200f"


def test_a_line_holds_nothing_that_a_terminal_obeys():
    out = stream()
    Console(out, None).line(HOSTILE)
    text = written(out)
    assert text.endswith("\n")
    assert text[:-1].isprintable()
    assert "\\x1b[2J" in text


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1", "utf-8"])
def test_a_line_can_always_be_encoded(encoding):
    out = stream(encoding)
    Console(out, None).line("模型 ü —")
    assert written(out)


def test_messages_are_one_line_on_standard_error():
    err = stream("ascii")
    Console(None, err).note(HOSTILE + "模")
    assert written(err).count("\n") == 1


def test_several_lines_stay_several_and_each_is_escaped():
    err = stream()
    Console(None, err).lines("one\n  two\x1b[0m\n  three")
    assert written(err) == "ptoa: one\n  two\\x1b[0m\n  three\n"


@given(
    st.recursive(st.none() | st.text() | st.integers(), lambda x: st.lists(x) | st.dictionaries(st.text(), x))
)
def test_json_stays_the_same_value(value):
    text = json.dumps(value, ensure_ascii=False, indent=2)
    for encoding in ("utf-8", "ascii", "cp1252"):
        safe = json_safe(text, encoding)
        assert json.loads(safe) == json.loads(text)
        if not any("\ud800" <= char <= "\udfff" for char in text):
            safe.encode(encoding)


@pytest.mark.parametrize(
    "char", list("\x7f\x80\x9b\x9f\xad\u061c\u200b\u200e\u2028\u2029\u202e\u2066\ufeff"), ids=ascii
)
def test_json_spells_out_what_a_terminal_obeys(char):
    assert json_safe(f'["{char}"]') == f'["\\u{ord(char):04x}"]'


def test_json_spells_a_character_beyond_the_basic_plane_as_a_pair():
    assert json_safe('["\U0001f600"]', "ascii") == '["\\ud83d\\ude00"]'


class Refusing(io.StringIO):
    """A stream that cannot be written."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def write(self, text):
        raise self.error


def test_a_reader_that_left_is_told_apart_from_a_full_disk():
    with pytest.raises(OutputClosedError):
        Console(Refusing(BrokenPipeError(32, "Broken pipe")), None).line("x")
    with pytest.raises(OutputFailedError, match="No space"):
        Console(Refusing(OSError(28, "No space left on device")), None).line("x")


def test_a_process_without_standard_output_is_told():
    with pytest.raises(OutputFailedError):
        Console(None, None).line("x")


def test_a_message_nobody_can_read_is_dropped():
    Console(None, Refusing(OSError(5, "Input/output error"))).note("x")


@pytest.mark.parametrize(
    ("columns", "width"),
    [("40", 40), ("0", 80), ("wide", None), ("", None)],
    ids=["40", "zero", "words", "empty"],
)
def test_width_is_that_of_columns_where_there_is_no_terminal(monkeypatch, columns, width):
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr(sys, "__stdout__", None)
    assert Console(stream(), None).width == width


def test_no_colour_where_there_is_no_terminal():
    console = Console(stream(), None)
    assert console.style("x", "bold") == "x"


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("env", "colour"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
    ids=["plain", "NO_COLOR", "NO_COLOR empty", "dumb"],
)
def test_colour_only_on_a_terminal_that_wants_it(monkeypatch, env, colour):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert Console(Terminal(), None).colour is colour


def test_a_hint_is_for_terminals():
    err, terminal = stream(), Terminal()
    Console(None, err).hint("look")
    Console(None, terminal).hint("look")
    assert written(err) == ""
    assert terminal.getvalue() == "ptoa: look\n"


def test_quick_work_shows_no_progress():
    terminal = Terminal()
    with Console(None, terminal).progress("reading x"):
        pass
    assert terminal.getvalue() == ""


def test_long_work_shows_progress_and_clears_it(monkeypatch):
    monkeypatch.setattr("papertoanything.cli.console._PROGRESS_AFTER", 0.0)
    terminal = Terminal()
    seen = __import__("threading").Event()
    monkeypatch.setattr(terminal, "write", lambda text: (seen.set(), io.StringIO.write(terminal, text))[1])
    with Console(None, terminal).progress("reading \x1b[2Jx"):
        assert seen.wait(10)
    assert "reading \\x1b[2Jx ... 0 s" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")
