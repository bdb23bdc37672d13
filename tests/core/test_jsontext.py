"""Strict JSON: what is refused, what is read, and that writing refuses what reading would."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptoa_core.errors import JsonError
from ptoa_core.jsontext import dumps, loads

REFUSED = {
    "empty": (b"", "Expecting value"),
    "white-space": (b"  \n", "Expecting value"),
    "nan": (b"[NaN]", "NaN is no JSON number"),
    "infinity": (b"[Infinity]", "Infinity is no JSON number"),
    "minus-infinity": (b"[-Infinity]", "-Infinity is no JSON number"),
    "float-overflow": (b"[1e400]", "too large for a double"),
    "float-overflow-minus": (b"[-1e999]", "too large for a double"),
    "float-overflow-upper-plus": (b'{"a":1E+400}', "too large for a double"),
    "float-overflow-top": (b"1e309", "too large for a double"),
    "float-of-many-digits": (b"[" + b"9" * 400 + b".5]", "too large for a double"),
    "integer-one-too-large": (b"[9007199254740992]", "beyond 2**53"),
    "integer-one-too-small": (b"[-9007199254740992]", "beyond 2**53"),
    "integer-top-level": (b"9007199254740993", "beyond 2**53"),
    "integer-after-space": (b'{"a": \t9007199254740993}', "beyond 2**53"),
    "integer-of-5000-digits": (b"[" + b"7" * 5000 + b"]", "beyond 2**53"),
    "equal-keys": (b'{"a":1,"b":2,"a":3}', "the key 'a' stands twice"),
    "equal-keys-escaped": (b'{"a":1,"\\u0061":2}', "the key 'a' stands twice"),
    "equal-keys-nested": (b'[{"x":{"k":1,"k":1}}]', "the key 'k' stands twice"),
    "proto": (b'{"__proto__":1}', "__proto__"),
    "proto-escaped": (b'{"__pro\\u0074o__":{}}', "__proto__"),
    "byte-order-mark": (b"\xef\xbb\xbf5", "byte order mark"),
    "latin-1": (b'"\xe9"', "not UTF-8 at byte 1"),
    "utf-16": ('{"a":1}'.encode("utf-16"), "not UTF-8"),
    "overlong": (b'"\xc0\x80"', "not UTF-8"),
    "surrogate-bytes": (b'"\xed\xa0\x80"', "not UTF-8"),
    "lone-high": (b'["\\ud800"]', "half of a surrogate pair"),
    "lone-low": (b'["\\uDC00"]', "half of a surrogate pair"),
    "lone-high-before-text": (b'["\\ud800x"]', "half of a surrogate pair"),
    "two-highs": (b'["\\ud800\\ud800\\udc00"]', "half of a surrogate pair"),
    "pair-then-low": (b'["\\ud83d\\ude00\\ude00"]', "half of a surrogate pair"),
    "pair-the-wrong-way": (b'["\\ude00\\ud83d"]', "half of a surrogate pair"),
    "lone-in-a-key": (b'{"\\udfff":1}', "half of a surrogate pair"),
    "second-value": (b"{} {}", "Extra data at line 1, column 4"),
    "trailing-comma": (b"[1,]", "at line 1"),
    "single-quotes": (b"{'a':1}", "at line 1, column 2"),
    "comment": (b"[1]//x", "Extra data"),
    "leading-zero": (b"[01]", "at line 1"),
    "bare-fraction": (b"[.5]", "Expecting value"),
    "raw-newline-in-text": (b'"a\nb"', "control character"),
    "cut-short": (b'{"a":[1,2', "at line 1"),
    "65-deep": (b"[" * 65 + b"]" * 65, "nested more than 64 deep"),
    "65-deep-mixed": (b'{"a":[' * 32 + b"[" + b"]" + b"]}" * 32, "nested more than 64 deep"),
    "deep-behind-a-bracket-in-text": (b'["]",' + b"[" * 70 + b"]" * 70 + b"]", "nested more than 64 deep"),
    "deep-behind-an-escaped-quote": (
        b'["\\"]]]",' + b"[" * 70 + b"]" * 70 + b"]",
        "nested more than 64 deep",
    ),
    "deep-and-unfinished": (b"[" * 100_000, "nested more than 64 deep"),
    "deep-objects-unfinished": (b'{"a":' * 100_000, "nested more than 64 deep"),
}


@pytest.mark.parametrize(("text", "says"), REFUSED.values(), ids=REFUSED)
def test_refused_with_one_error_that_says_why(text, says):
    with pytest.raises(JsonError) as caught:
        loads(text, what="the header")
    assert str(caught.value).startswith("the header: ")
    assert says in str(caught.value)
    assert len(str(caught.value)) < 300


READ = {
    "largest-integer": (b"[9007199254740991,-9007199254740991]", [9007199254740991, -9007199254740991]),
    "largest-double": (b"[1.7976931348623157e308]", [sys.float_info.max]),
    "long-fraction": (b"[0.12345678901234567890123]", [0.12345678901234568]),
    "small-exponent": (b"[1e-400,5e-324]", [0.0, 5e-324]),
    "pair": (b'["\\ud83d\\ude00"]', ["\U0001f600"]),
    "escaped-backslash-before-u": (b'["\\\\ud800"]', ["\\ud800"]),
    "brackets-in-text": (b'["' + b"[" * 500 + b'"]', ["[" * 500]),
    "quotes-in-text": (b'["' + b'\\"[' * 500 + b'"]', ['"[' * 500]),
    "64-deep": (b"[" * 64 + b"]" * 64, None),
    "wide": (b"[" + b"[]," * 1000 + b"[]]", [[]] * 1001),
    "numbers-in-text": (b'["9007199254740993","1e999"]', ["9007199254740993", "1e999"]),
    "text-that-looks-like-keys": (b'["__proto__"]', ["__proto__"]),
    "every-escape": (b'"\\"\\\\\\/\\b\\f\\n\\r\\t\\u00b5"', '"\\/\b\f\n\r\tµ'),
}


@pytest.mark.parametrize(("text", "value"), READ.values(), ids=READ)
def test_read_as_it_stands(text, value):
    found = loads(text)
    if value is not None:
        assert found == value
        assert loads(text.decode("utf-8")) == value


@pytest.mark.parametrize("text", ["\ud800", '"\udfff"'])
def test_text_with_half_of_a_pair_is_refused(text):
    with pytest.raises(JsonError, match="half of a surrogate pair"):
        loads(text)


@pytest.mark.parametrize("text", [None, 5, [], {}])
def test_what_is_no_text_is_refused(text):
    with pytest.raises(JsonError, match="text or bytes are wanted"):
        loads(text)


def test_depth_is_refused_also_under_a_raised_recursion_limit():
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(10**6)
    try:
        with pytest.raises(JsonError, match="nested more than 64 deep"):
            loads(b"[" * 1_000_000)
    finally:
        sys.setrecursionlimit(before)


def test_size_is_bounded():
    assert loads(b'"abc"', max_bytes=5) == "abc"
    with pytest.raises(JsonError, match="5 bytes, at most 4 are read"):
        loads(b'"abc"', max_bytes=4)


@pytest.mark.parametrize("unit", [b"[]", b"{}", b"1", b'""', b'"[,"'])
def test_number_of_values_is_bounded(unit):
    text = b"[" + b",".join([unit] * 100) + b"]"
    assert len(loads(text, max_values=200)) == 100
    with pytest.raises(JsonError, match="more values than the 99 that are read"):
        loads(text, max_values=99)


@pytest.mark.parametrize("escape", [r"\n", r"\u0041", r"\""])
def test_number_of_escapes_is_bounded(escape):
    text = '"' + escape * 100 + '"'
    assert len(loads(text, max_values=100)) == 100
    with pytest.raises(JsonError, match="more escapes than the 99 that are read"):
        loads(text, max_values=99)


def test_commas_in_text_are_no_values():
    assert loads(b'["' + b"," * 1000 + b'"]', max_values=2) == ["," * 1000]


@pytest.mark.parametrize("size", [1 << 18, (1 << 18) + 1, (1 << 19) - 3])
@pytest.mark.parametrize(
    "filler",
    [b"\\\\", b'\\"', b"[", b'x"', b"\\n"],
    ids=["backslash", "quote", "bracket", "close", "newline"],
)
def test_texts_that_cross_the_pieces_of_the_scan_hide_nothing(size, filler):
    text = b'["' + filler * (size // len(filler)) + (b'"' if filler != b'x"' else b"") + b"," + b"[" * 70
    with pytest.raises(JsonError):
        loads(text)
    closed = b'["' + filler * (size // len(filler)) + b'"]'
    if filler != b'x"':
        assert len(loads(closed)[0]) >= size // len(filler)


@pytest.mark.parametrize("shift", range(-4, 3))
@pytest.mark.parametrize("backslashes", range(1, 5))
def test_escape_on_the_border_of_two_pieces_is_not_lost(shift, backslashes):
    start = b'["' + b"a" * ((1 << 18) + shift - 2)
    inside = start + b"\\" * (2 * backslashes - 1) + b'"' + b"[" * 100 + b'"]'
    assert loads(inside)[0].endswith("[" * 100)
    outside = start + b"\\" * (2 * backslashes) + b'",' + b"[" * 100 + b"]" * 100 + b"]"
    with pytest.raises(JsonError, match="nested more than 64 deep"):
        loads(outside)


def test_depth_goes_on_from_piece_to_piece():
    text = b"[" * 40 + b'"' + b"a" * (1 << 19) + b'",' + b"[" * 30 + b"]" * 70
    with pytest.raises(JsonError, match="nested more than 64 deep"):
        loads(text)
    assert loads(text[6:-6])[0]


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"]), max_size=6).filter("__proto__".__ne__),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(JSON_VALUES)
def test_what_is_written_reads_back(value):
    assert loads(dumps(value)) == value


@given(JSON_VALUES)
def test_text_is_that_of_json_stringify(value):
    assert dumps(value) == json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@given(JSON_VALUES, st.sampled_from([None, 1, "\t"]), st.booleans())
def test_every_spelling_of_a_value_reads_alike(value, indent, ascii_only):
    assert loads(json.dumps(value, indent=indent, ensure_ascii=ascii_only)) == value


@given(JSON_VALUES, st.data())
def test_mutated_text_is_read_or_refused_with_our_error(value, data):
    text = bytearray(dumps(value).encode("utf-8"))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(text)))
        text[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    try:
        found = loads(bytes(text))
    except JsonError:
        return
    assert loads(dumps(found)) == found


class Said:
    def __init__(self, value):
        self.value = value

    def to_dict(self):
        return self.value


LOOP: list = []
LOOP.append(LOOP)
UNWRITABLE = {
    "nan": ({"a": {"b": [1, float("nan")]}}, "$.a.b[1] is nan"),
    "infinity": ([float("-inf")], "$[0] is -inf"),
    "large-integer": ([2**53], "$[0] is 9007199254740992"),
    "huge-integer": ([10**5000], "an integer of"),
    "lone-surrogate": ({"name": "\ud800"}, "$.name holds half of a surrogate pair"),
    "lone-surrogate-key": ({"\ud800": 1}, "half of a surrogate pair"),
    "proto": ({"a": {"__proto__": 1}}, "$.a has the key '__proto__'"),
    "number-as-key": ({1: 2}, "has the key 1"),
    "none-as-key": ({None: 2}, "has the key None"),
    "set": ([{1}], "a set, which JSON cannot say"),
    "bytes": (b"x", "a bytes, which JSON cannot say"),
    "object": ([object()], "a object, which JSON cannot say"),
    "cycle": (LOOP, "holds itself"),
    "ours-with-nan": (Said({"loss": float("nan")}), "$.loss is nan"),
    "ours-that-is-none": ([Said({1})], "a set, which JSON cannot say"),
}


@pytest.mark.parametrize(("value", "says"), UNWRITABLE.values(), ids=UNWRITABLE)
def test_unwritable_value_is_refused_and_its_place_named(value, says):
    with pytest.raises(JsonError) as caught:
        dumps(value)
    assert says in str(caught.value)


def test_depth_that_reads_is_the_depth_that_is_written():
    value = []
    for _ in range(63):
        value = [value]
    assert loads(dumps(value)) == value
    with pytest.raises(JsonError, match="nested over 64 deep"):
        dumps([value])


def test_objects_of_ours_are_written_as_they_say():
    assert dumps({"a": [Said({"b": (1, 2)})]}) == '{"a":[{"b":[1,2]}]}'
