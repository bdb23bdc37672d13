"""Reading and writing the objects of the formats from tables of their keys.

Each class of ``spec`` and ``frames`` has one ``Schema``. Known keys are checked and
written in the order of the table; unknown keys are kept in ``extra`` and follow in their
own order, so that a file from a newer version survives a round trip.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .protocol import MAX_INTEGER
from .terminal import shown

if TYPE_CHECKING:
    from .errors import FormatError

_NUMBER_TYPES = frozenset((int, float))
_SCALAR_TYPES = frozenset((int, float, str, bool))


class Kind(NamedTuple):
    """What a value must be.

    ``wanted`` says it in words, ``fits`` tests it, ``empty`` makes what stands in when it is
    missing. A value of one of the types in ``sure`` needs no test.
    """

    wanted: str
    fits: Callable[[Any], bool]
    empty: Callable[[], Any]
    sure: tuple[type, ...] = ()


def _is_integer(value: Any) -> bool:
    """An integer that a browser holds exactly, and no bool."""
    return isinstance(value, int) and type(value) is not bool and -MAX_INTEGER <= value <= MAX_INTEGER


def _is_number(value: Any) -> bool:
    """A finite number."""
    return (type(value) is float and math.isfinite(value)) or _is_integer(value)


def _is_measure(value: Any) -> bool:
    """A number of a frame, which may be unknown or not finite before it is encoded."""
    return value is None or isinstance(value, float) or _is_integer(value)


def _are_measures(value: Any) -> bool:
    """A list of numbers, tested at C speed in the usual case."""
    return isinstance(value, list) and (
        _NUMBER_TYPES.issuperset(map(type, value)) or all(map(_is_measure, value))
    )


def _are_texts(value: Any) -> bool:
    """A list of texts."""
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_point(value: Any) -> bool:
    """An object with a number for x and for y."""
    return isinstance(value, Mapping) and _is_number(value.get("x")) and _is_number(value.get("y"))


def _is_mapping(value: Any) -> bool:
    """An object; ``dict`` first, since an abstract class is slow to ask."""
    return isinstance(value, (dict, Mapping))


def _are_scalars(value: Any) -> bool:
    """An object of numbers, texts and flags."""
    return _is_mapping(value) and _SCALAR_TYPES.issuperset(map(type, value.values()))


TEXT = Kind("text", lambda value: isinstance(value, str), str, (str,))
TEXTS = Kind("a list of texts", _are_texts, list)
FLAG = Kind("true or false", lambda value: isinstance(value, bool), bool, (bool,))
INTEGER = Kind("an integer within 2**53", _is_integer, int)
COUNT = Kind("an integer of at least 0", lambda value: _is_integer(value) and value >= 0, int)
COUNTS = Kind(
    "a list of integers of at least 0",
    lambda value: isinstance(value, list) and all(_is_integer(item) and item >= 0 for item in value),
    list,
)
ORDINAL = Kind("an integer of at least 1", lambda value: _is_integer(value) and value >= 1, int)
NUMBER = Kind("a finite number", _is_number, float)
MEASURE = Kind("a number or null", _is_measure, lambda: None, (float, type(None)))
MEASURES = Kind("a list of numbers", _are_measures, list)
OBJECT = Kind("an object", _is_mapping, dict, (dict,))
OBJECTS = Kind("a list of objects", lambda value: isinstance(value, list), list, (list,))
POINT = Kind('an object {"x":number,"y":number}', _is_point, dict)
SCALARS = Kind("an object of numbers, texts and flags", _are_scalars, dict)
MEASURES_BY_NAME = Kind(
    "an object of numbers", lambda value: _is_mapping(value) and all(map(_is_measure, value.values())), dict
)
TEXTS_BY_NAME = Kind(
    "an object of texts",
    lambda value: _is_mapping(value) and all(isinstance(item, str) for item in value.values()),
    dict,
)


class Field(NamedTuple):
    """One key of an object.

    ``required`` keys must be there when reading; ``always`` keys are written even when
    their value is None (as null); other keys with None are left out.
    """

    key: str
    kind: Kind
    required: bool = False
    always: bool = False
    attr: str = ""


# Told the place and what is wrong there; raises, or notes it and lets the reading go on.
Report = Callable[[str, str], None]


class Schema:
    """The keys of one object in the order in which they are written."""

    def __init__(self, error: type[FormatError], *fields: Field) -> None:
        self.error = error
        self.fields = {field.key: field for field in fields}
        # Reading is the same loop for thousands of rows a frame: what it needs, flat.
        self._rows = {f.key: (f.attr or f.key, frozenset(f.kind.sure), f.kind.fits) for f in fields}
        self.attrs = [(field.attr or field.key, field.key, field.always) for field in fields]
        self.required = [field for field in fields if field.required]

    def fail(self, where: str, message: str) -> None:
        """Raise this object's error."""
        raise self.error(f"{where} {message}")

    def read(self, data: object, where: str, report: Report | None = None) -> dict[str, Any]:
        """Checked arguments for the class, unknown keys under ``extra``.

        Without ``report`` the first fault raises. With one, faulty values are left out and
        missing ones are empty.
        """
        report = report or self.fail
        if not isinstance(data, (dict, Mapping)):
            report(where, f"must be an object, found {shown(data)}")
            data = {}
        values: dict[str, Any] = {}
        extra: dict[str, Any] = {}
        rows = self._rows
        for key, value in data.items():
            row = rows.get(key)
            if row is None:
                if isinstance(key, str):
                    extra[key] = value
                else:
                    report(where, f"has the key {shown(key)}, which is no text")
            elif type(value) in row[1] or row[2](value):
                values[row[0]] = value
            else:
                wanted = self.fields[key].kind.wanted
                report(f"{where}.{key}", f"must be {wanted}, found {shown(value)}")
        for field in self.required:
            if field.key not in data:
                report(where, f"has no {field.key!r}")
            if (field.attr or field.key) not in values:
                values[field.attr or field.key] = field.kind.empty()
        values["extra"] = extra
        return values

    def write(self, record: object) -> dict[str, Any]:
        """The object of ``record``, known keys first; nested records are left to the caller."""
        out: dict[str, Any] = {}
        for attr, key, always in self.attrs:
            value = getattr(record, attr)
            if value is not None or always:
                out[key] = value
        extra: dict[str, Any] = record.extra  # type: ignore[attr-defined]  # every record has it
        for key, value in extra.items():
            # A known key in extra would change what the class itself says.
            out.setdefault(key, value)
        return out
