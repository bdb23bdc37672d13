"""The JSON of usual rows of a frame, without building objects first.

A row of two histograms takes the general encoder thirty microseconds, half of them for lists of
small numbers. What is written here is the same text for the rows that a watch makes; for
anything else the answer is None, and the general encoder writes it or refuses it.
"""

from __future__ import annotations

import json
from itertools import chain, islice
from math import isfinite
from typing import TYPE_CHECKING, Any

from ._f32 import shortest_texts
from .frames import BlockHealth, HeadPattern, TensorStats
from .jsontext import is_suspect
from .protocol import MAX_INTEGER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from .late import PlainRow, PlainStats, Rows

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_PARTS = tuple((name, f',"{name}":') for name in ("act", "hidden", "grad"))
_NUMBERS = tuple((name, f',"{name}":') for name in ("weightNorm", "weightGradNorm", "updateRatio"))
_FLOAT = {float}
_SIMPLE = frozenset(("histSample", "deadFrac", "calls", "backwards", "entropySample", "maxLogit"))


class _UnusualError(Exception):
    """Something that only the general encoder can write."""


class _Counts(dict[float, str]):
    """The texts of counts, remembered: a histogram holds the same few hundred again and again.

    A float finds the text of the integer that it is equal to, since a count is one.
    """

    def __missing__(self, count: Any) -> str:
        """The text of a count that was not asked for before."""
        if type(count) is not int or not 0 <= count <= MAX_INTEGER:
            raise _UnusualError
        text = repr(count)
        if len(self) < _MOST_KEPT:
            self[count] = text
        return text


class _Ids(dict[str, str]):
    """The texts of block ids, remembered: every frame of a run has the same."""

    def __missing__(self, name: str) -> str:
        """The text of an id that was not asked for before."""
        text = _ENCODER.encode(name)
        if not text.isascii():
            raise _UnusualError
        if len(self) < _MOST_KEPT:
            self[name] = text
        return text


_MOST_KEPT = 1 << 14
_TOGETHER = 32
_COUNTS = _Counts()
_IDS = _Ids()


def block_texts(block: object, *, single: bool) -> tuple[bytes, bytes] | None:
    """A row's JSON and the same without its patterns; None where it is no usual row.

    Args:
        block: A row.
        single: Whether numbers are spelt no longer than float32 needs.
    """
    if type(block) is not BlockHealth:
        return None
    try:
        first, last = _row(block, shortest_texts if single else _full_texts)
        lean = f"{first}{last}}}".encode("ascii")
        if block.headPattern is None:
            return lean, lean
        return f'{first},"headPattern":{_patterns(block.headPattern)}{last}}}'.encode("ascii"), lean
    except (_UnusualError, ValueError, TypeError, OverflowError):
        return None


def rows_texts(rows: Rows, *, single: bool) -> Iterator[tuple[bytes, bytes] | None]:
    """The JSON of each row and the same without its patterns; None for one that is no plain row.

    Args:
        rows: The rows of a frame.
        single: As in ``block_texts``.
    """
    spell = shortest_texts if single else _full_texts
    for first in range(0, len(rows), _TOGETHER):
        some = [rows.plain(index) for index in range(first, min(first + _TOGETHER, len(rows)))]
        numbers = [[] if row is None else _numbers_of(row) for row in some]
        spelt = iter(spell(list(chain.from_iterable(numbers))))
        for row, own in zip(some, numbers):  # noqa: B905  # of one length
            texts = list(islice(spelt, len(own)))
            yield None if row is None else _plain_row(row, texts)


def _numbers_of(row: PlainRow) -> list[float]:
    """The numbers of a row that are spelt, in their order."""
    numbers = [number for stats in row.stats for number in stats[1:5]]
    numbers += row.numbers.values()
    numbers += row.entropy or ()
    return numbers


def _plain_row(row: PlainRow, spelt: list[str]) -> tuple[bytes, bytes] | None:
    """The JSON of a row, whose numbers are spelt already, and the same without its patterns."""
    try:
        first = f'{{"id":{_IDS[row.id]}'
        place = 0
        for stats in row.stats:
            first += _plain_stats(stats, *spelt[place : place + 4])
            place += 4
        for key in row.numbers:
            first += f',"{key}":{spelt[place]}'
            place += 1
        if row.entropy:
            first += f',"headEntropy":[{",".join(spelt[place:])}]'
        last = _extra(row.extra) if row.extra else ""
        lean = f"{first}{last}}}".encode("ascii")
        if row.patterns is None:
            return lean, lean
        return f'{first},"headPattern":{_patterns(row.patterns)}{last}}}'.encode("ascii"), lean
    except (_UnusualError, ValueError, TypeError):
        return None


def _plain_stats(stats: PlainStats, mean: str, std: str, largest: str, zeros: str) -> str:
    """The JSON of one tensor's statistics."""
    part, _, _, _, _, sat, nan, inf, hist, sample, dead = stats
    ends = "" if sat is None else f',"satFrac":{sat!r}'
    counts = "" if hist is None else f',"hist":[{",".join(map(_COUNTS.__getitem__, hist))}]'
    sampled = f',"histSample":{sample}' if sample else ""
    gone = "" if dead is None else f',"deadFrac":{dead!r}'
    return (
        f',"{part}":{{"mean":{mean},"std":{std},"absMax":{largest},"zeroFrac":{zeros}{ends}'
        f',"nanCount":{nan},"infCount":{inf}{counts}{sampled}{gone}}}'
    )


def _full_texts(values: list[float]) -> list[str]:
    """Numbers with all their digits."""
    return list(map(repr, values))


def _row(block: BlockHealth, spell: Callable[[list[float]], list[str]]) -> tuple[str, str]:
    """The JSON of a row: what comes before its patterns, and what comes after them."""
    if type(block.id) is not str:
        raise _UnusualError
    row = block.__dict__
    parts = [(key, row[name]) for name, key in _PARTS if row[name] is not None]
    numbers = [(key, row[name]) for name, key in _NUMBERS if row[name] is not None]
    entropy = block.headEntropy or []
    if block.headEntropy is not None and (type(entropy) is not list or not entropy):
        raise _UnusualError
    values = [number for _, stats in parts for number in _values(stats)]
    values += [number for _, number in numbers]
    values += entropy
    if not set(map(type, values)) <= _FLOAT or not isfinite(sum(values)):
        raise _UnusualError
    spelt = iter(spell(values) if values else ())
    text = f'{{"id":{_ENCODER.encode(block.id)}'
    for key, stats in parts:
        text += key + _stats(stats, spelt)
    for key, _ in numbers:
        text += key + next(spelt)
    if entropy:
        text += f',"headEntropy":[{",".join(spelt)}]'
    return text, _extra(block.extra) if block.extra else ""


def _values(stats: Any) -> tuple[float, float, float, float]:
    """The numbers of one tensor's statistics that always stand there."""
    if type(stats) is not TensorStats:
        raise _UnusualError
    return stats.mean, stats.std, stats.absMax, stats.zeroFrac  # type: ignore[return-value]  # looked at by the caller


def _stats(stats: TensorStats, spelt: Iterator[str]) -> str:
    """The JSON of one tensor's statistics, whose numbers are spelt already."""
    mean, std, largest, zeros = next(spelt), next(spelt), next(spelt), next(spelt)
    text = f'{{"mean":{mean},"std":{std},"absMax":{largest},"zeroFrac":{zeros}'
    if stats.satFrac is not None:
        text += f',"satFrac":{_number(stats.satFrac)}'
    text += f',"nanCount":{_COUNTS[stats.nanCount]},"infCount":{_COUNTS[stats.infCount]}'
    if stats.hist is not None:
        counts: Any = stats.hist  # whole numbers, or the table says that they are none
        text += f',"hist":[{",".join(map(_COUNTS.__getitem__, counts))}]'
    return text + _extra(stats.extra) + "}"


def _number(value: Any) -> str:
    """The JSON of one number."""
    kind = type(value)
    if (kind is float and isfinite(value)) or (kind is int and -MAX_INTEGER <= value <= MAX_INTEGER):
        return repr(value)
    raise _UnusualError


def _extra(extra: Mapping[str, Any]) -> str:
    """The JSON of the extension fields that a watch writes."""
    text = ""
    for key, value in extra.items():
        if key in _SIMPLE:
            text += f',"{key}":{_number(value)}'
        elif key == "missing" and type(value) is dict:
            text += f',"missing":{_texts(value)}'
        else:
            raise _UnusualError
    return text


def _texts(found: dict[Any, Any]) -> str:
    """The JSON of an object of texts."""
    if not all(type(key) is type(text) is str for key, text in found.items()):
        raise _UnusualError
    made = _ENCODER.encode(found)
    if is_suspect(made.encode("ascii")):
        raise _UnusualError
    return made


def _patterns(patterns: list[HeadPattern]) -> str:
    """The JSON of the patterns of a row."""
    made = []
    for pattern in patterns:
        if type(pattern) is not HeadPattern or pattern.extra or not pattern.b64.isascii():
            raise _UnusualError
        head, size = _number(pattern.head), _number(pattern.size)
        made.append(f'{{"head":{head},"size":{size},"b64":{_ENCODER.encode(pattern.b64)}}}')
    return f"[{','.join(made)}]"
