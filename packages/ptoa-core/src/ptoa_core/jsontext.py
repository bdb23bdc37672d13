"""Strict JSON: what the formats allow, and nothing that two readers could see differently.

Python's ``json`` accepts more than a browser does (NaN, lone surrogates, integers of any
size), keeps the last of two equal keys without a word, and recurses once a level. A
stranger's text is therefore weighed before it is parsed: size, depth and the number of
values are counted in a few passes that run in C, so that a good text costs little more
than ``json.loads`` and a bad one never reaches the parser.
"""

from __future__ import annotations

import json
import re
from array import array
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from .errors import JsonError
from .protocol import MAX_DEPTH, MAX_FILE_BYTES, MAX_INTEGER, MAX_VALUES
from .terminal import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["dumps", "is_suspect", "loads"]

_BOM = b"\xef\xbb\xbf"
_ALL_BYTES = bytes(range(256))
# Deleting every other byte leaves what gives a text its structure.
_NOT_STRUCTURE = _ALL_BYTES.translate(None, b'[]{},"')
# Digits become 0; what can stand before a number becomes a comma; a sign of an exponent is
# dropped by making it part of the e. Then a search for a fixed text finds suspects.
_NUMBER_SHAPES = bytes.maketrans(b"123456789: \t\r\n[-E+", b"000000000,,,,,,,ee")
_LONG_INTEGER = b"," + b"0" * len(str(MAX_INTEGER))
_LARGE_EXPONENT = b"e000"
_MOST_LOOKS = 10_000
_NUMBER_WINDOW = 400  # a longer number is looked at closely in any case
_PIECE = 1 << 18
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
# Compiled when it is first needed, which most texts never do.
_LONE_SURROGATE = r"\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F].."
_HIDDEN_KEY = "__proto__"
_HIDDEN_KEY_BYTES = b'"__proto__":'


def loads(
    text: str | bytes,
    *,
    what: str = "JSON",
    max_bytes: int = MAX_FILE_BYTES,
    max_depth: int = MAX_DEPTH,
    max_values: int = MAX_VALUES,
) -> Any:
    r"""The value that a strict JSON text stands for.

    Args:
        text: UTF-8 without a byte order mark.
        what: What the text is, in words; every error begins with it.
        max_bytes: The longest text that is parsed.
        max_depth: How deep arrays and objects may nest.
        max_values: How many values the text may hold, counted by its commas and opening
            brackets, and how many escapes. The counts bound the memory of the result, and
            the time: an escape costs thirty times what a plain character does.

    Returns:
        ``dict``, ``list``, ``str``, ``int``, ``float``, ``bool`` or None.

    Raises:
        JsonError: If the text is not UTF-8 or not JSON; if it is too long, too deep or
            holds too many values; at NaN, Infinity, a number that no double holds, an
            integer beyond 2**53 - 1, a key that stands twice in one object, the key
            ``__proto__``, or half of a surrogate pair.

    Source:
        ``FORMATS.md``, section 2. JSON: RFC 8259; the surrogate pairs of its section 7.

    Example:
        >>> loads('{"a":[1,2.5]}')
        {'a': [1, 2.5]}
        >>> loads('{"a":1,"a":2}', what="the header")
        Traceback (most recent call last):
        ptoa_core.errors.JsonError: the header: the key 'a' stands twice in one object
    """
    data = _utf8(text, what)
    if len(data) > max_bytes:
        raise JsonError(f"{what}: {len(data)} bytes, at most {max_bytes} are read")
    if data.startswith(_BOM):
        raise JsonError(f"{what}: begins with a byte order mark; UTF-8 without one is wanted")
    _check_weight(data, what, max_depth, max_values)
    try:
        plain = text if isinstance(text, str) else data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise JsonError(f"{what}: not UTF-8 at byte {error.start}") from None
    if b"\\u" in data:
        _check_surrogates(plain, what)
    decoder = _CAREFUL if _has_suspect_number(data) else _QUICK
    try:
        return decoder.decode(plain)
    except json.JSONDecodeError as error:
        raise JsonError(f"{what}: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except JsonError as error:
        raise JsonError(f"{what}: {error}") from None


def _utf8(text: str | bytes, what: str) -> bytes:
    """The bytes of ``text``."""
    if isinstance(text, str):
        try:
            return text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise JsonError(f"{what}: half of a surrogate pair at character {error.start}") from None
    if isinstance(text, (bytes, bytearray, memoryview)):
        return bytes(text)
    raise JsonError(f"{what}: text or bytes are wanted, found {shown(text)}")


def _check_weight(data: bytes, what: str, max_depth: int, max_values: int) -> None:
    """Refuse a text that would be too deep or too heavy once parsed.

    The plain counts include what stands inside texts, so they are never too low; only when
    they are too high are the texts taken out.
    """
    if data.count(b"\\") > max_values:
        raise JsonError(f"{what}: more escapes than the {max_values} that are read")
    opened = data.count(b"[") + data.count(b"{")
    if opened <= max_depth and opened + data.count(b",") <= max_values:
        return
    values = depth = deepest = 0
    for structure in _structure(data):
        values += len(structure) - structure.count(b"]") - structure.count(b"}")
        if values > max_values:
            raise JsonError(f"{what}: more values than the {max_values} that are read")
        steps = array("b", structure.translate(_STEPS, b","))
        deepest = max(deepest, depth + max(accumulate(steps), default=0))
        if deepest > max_depth:
            raise JsonError(f"{what}: nested more than {max_depth} deep")
        depth += sum(steps)


def _structure(data: bytes) -> Iterator[bytes]:
    """The brackets and commas of ``data`` outside of its texts, a piece at a time.

    A piece bounds the memory: of a text made of quotes, each could become an object.
    """
    inside = 0
    carried = b""
    for start in range(0, len(data), _PIECE):
        piece = carried + data[start : start + _PIECE]
        carried = b""
        if b"\\" in piece:
            # A backslash at the end escapes what the next piece begins with.
            if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
                piece, carried = piece[:-1], b"\\"
            piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        # Two quotes side by side are an empty text, or the seam of two texts with nothing
        # between them; either way what lies outside stays outside.
        parts = piece.translate(None, _NOT_STRUCTURE).replace(b'""', b"").split(b'"')
        yield b"".join(parts[inside::2])
        inside ^= (len(parts) - 1) % 2


def _check_surrogates(plain: str, what: str) -> None:
    """Refuse an escape that is half of a surrogate pair."""
    # A pair of backslashes is one escaped backslash: blanked, so that it escapes nothing.
    found = re.search(_LONE_SURROGATE, plain.replace("\\\\", "  "))
    if found:
        raise JsonError(f"{what}: half of a surrogate pair, {found[0]}, at character {found.start()}")


def is_suspect(data: bytes) -> bool:
    """Whether JSON text must be looked at closely: an odd key, or a number that may be too large.

    Sometimes true without cause, never false where ``loads`` would refuse a number or ``__proto__``.

    Example:
        >>> is_suspect(b"[1,2.5]"), is_suspect(b"[9007199254740993]")
        (False, True)
    """
    return _HIDDEN_KEY_BYTES in data or _has_suspect_number(data)


def _has_suspect_number(data: bytes) -> bool:
    """Whether a number could be too large for a browser."""
    shapes = data.translate(_NUMBER_SHAPES)
    if _LONG_INTEGER in shapes or shapes.startswith(_LONG_INTEGER[1:]):
        return True
    # Base64 holds an e and three digits now and then; a few such places are looked at.
    place = -1
    for _ in range(_MOST_LOOKS):
        place = shapes.find(_LARGE_EXPONENT, place + 1)
        if place < 0:
            return False
        if _ends_in_a_number(data[max(0, place - _NUMBER_WINDOW) : place]):
            return True
    return True


def _ends_in_a_number(data: bytes) -> bool:
    """Whether a number that is no part of a longer word may end here."""
    rest = data.rstrip(b"0123456789.+-eE")
    return not rest or rest[-1:] in b" \t\r\n:[,"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys are all different."""
    found = dict(pairs)
    if len(found) != len(pairs) or _HIDDEN_KEY in found:
        raise JsonError(_key_fault(pairs))
    return found


def _key_fault(pairs: list[tuple[str, Any]]) -> str:
    """What is wrong with the keys of an object."""
    seen = set()
    for key, _ in pairs:
        if key == _HIDDEN_KEY:
            return f"the key {_HIDDEN_KEY!r} is refused, since it is no plain key in JavaScript"
        if key in seen:
            break
        seen.add(key)
    return f"the key {shown(key)} stands twice in one object"


def _constant(name: str) -> Any:
    """Refuse NaN, Infinity and -Infinity."""
    raise JsonError(f"{name} is no JSON number; null is wanted where a number is unknown")


def _integer(digits: str) -> int:
    """An integer that a browser holds exactly."""
    # Python takes quadratic time for long integers, so the length comes first.
    if len(digits) > 17 or abs(int(digits)) > MAX_INTEGER:
        raise JsonError(f"the integer {shown(digits, 20)} is beyond 2**53 - 1, which no browser holds")
    return int(digits)


def _float(digits: str) -> float:
    """A number that a double holds."""
    number = float(digits)
    if number - number != 0:
        raise JsonError(f"the number {shown(digits, 20)} is too large for a double")
    return number


_QUICK = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)
_CAREFUL = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_constant, parse_int=_integer, parse_float=_float
)


def dumps(value: Any) -> str:
    """Canonical JSON text of a value: no spaces, non-ASCII letters as they are.

    Args:
        value: Plain values, or objects of ours (anything with ``to_dict``), also nested.

    Returns:
        Text that ``loads`` reads back to an equal value.

    Raises:
        JsonError: If the value holds something that ``loads`` must refuse (NaN, Infinity,
            a large integer, half of a surrogate pair, ``__proto__``, too much depth, a
            cycle) or that JSON cannot say; the message names the place.

    Source:
        ``FORMATS.md``, section 2.

    Example:
        >>> dumps({"name": "µ", "d": 16})
        '{"name":"µ","d":16}'
        >>> dumps({"loss": float("nan")})
        Traceback (most recent call last):
        ptoa_core.errors.JsonError: $.loss is nan; JSON has no such number
    """
    try:
        _check_value(value, MAX_DEPTH)
    except _Fault as fault:
        raise JsonError(f"${''.join(reversed(fault.place))} {fault.message}") from None
    return _ENCODER.encode(value)


def _plain(value: Any) -> Any:
    """What an object of ours says about itself."""
    return value.to_dict()


_ENCODER = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"), default=_plain
)


class _Fault(Exception):  # noqa: N818  # never leaves this module
    """What cannot be written, and the steps that lead to it, innermost first."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.place: list[str] = []


def _check_value(value: Any, depth: int) -> None:
    """Refuse what a reader of the text would refuse. ``depth`` bounds it, so a cycle ends."""
    if isinstance(value, str):
        _check_text(value)
    elif isinstance(value, float):
        # Only NaN and the infinities do not cancel themselves.
        if value - value != 0:
            raise _Fault(f"is {value}; JSON has no such number")
    elif isinstance(value, int):
        if not -MAX_INTEGER <= value <= MAX_INTEGER:
            raise _Fault(f"is {shown(value)}, beyond 2**53 - 1, which no browser holds")
    elif value is not None:
        _check_container(value, depth)


def _check_text(text: str) -> None:
    """Refuse half of a surrogate pair."""
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise _Fault(f"holds half of a surrogate pair: {shown(text)}") from None


def _check_container(value: Any, depth: int) -> None:
    """Check what stands inside an array, an object, or an object of ours."""
    if depth == 0:
        raise _Fault(f"is nested over {MAX_DEPTH} deep, or holds itself")
    if isinstance(value, dict):
        _check_object(value, depth - 1)
    elif isinstance(value, (list, tuple)):
        index = 0
        try:
            for index, item in enumerate(value):  # noqa: B007  # the handler says where it stopped
                _check_value(item, depth - 1)
        except _Fault as fault:
            fault.place.append(f"[{index}]")
            raise
    elif hasattr(value, "to_dict"):
        _check_value(value.to_dict(), depth - 1)
    else:
        raise _Fault(f"is {shown(value)}, which JSON cannot say")


def _check_object(value: dict[Any, Any], depth: int) -> None:
    """Check the keys and values of an object."""
    key = None
    try:
        for key, item in value.items():
            if not isinstance(key, str) or key == _HIDDEN_KEY:
                break
            _check_text(key)
            _check_value(item, depth)
        else:
            return
    except _Fault as fault:
        fault.place.append(f".{shown(key)[1:-1]}")
        raise
    raise _Fault(f"has the key {shown(key)}; a key is text, and not {_HIDDEN_KEY!r}")
