"""The JSON of usual rows of a frame, without building objects first.

A row of two histograms takes the general encoder thirty microseconds, half of them for lists of
small numbers. What is written here is the same text for the rows that a watch makes; for
anything else the answer is None, and the general encoder writes it or refuses it.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import TYPE_CHECKING, Any

from ._f32 import shortest_texts
from .frames import BlockHealth, HeadPattern, TensorStats
from .jsontext import is_suspect
from .protocol import MAX_INTEGER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

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


_MOST_KEPT = 1 << 14
_COUNTS = _Counts()


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
