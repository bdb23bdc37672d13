"""A health frame as bytes, encoded once for every sink.

A frame of 500 blocks takes some ten milliseconds to encode, and the C encoder keeps the
interpreter's lock for the whole of one call. Encoding block by block keeps each call
short, so that the training thread is never held up by it. The rows that a watch makes are
written by ``_quick``, anything else by the general encoder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ._quick import block_texts, rows_texts
from .errors import FrameError, JsonError
from .frames import HealthFrame, TraceFrame, non_finite_name
from .jsontext import dumps, is_suspect, loads
from .late import LateFrame, Rows
from .protocol import MAX_DEPTH, MAX_INTEGER, MAX_LINE_BYTES
from .terminal import shown

__all__ = ["EncodedFrame", "encode_frame", "encode_trace"]

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_PATTERN_KEY = "headPattern"


class EncodedFrame(NamedTuple):
    """One health frame as canonical JSON.

    Attributes:
        step: The frame's step.
        text: UTF-8 JSON on one line, without the line's end.
        lean: The same without attention patterns; None when there are none.

    Example:
        >>> encode_frame(HealthFrame(3, 0.0, None)).text
        b'{"step":3,"t":0.0,"loss":null,"blocks":[]}'
    """

    step: int
    text: bytes
    lean: bytes | None

    def decode(self) -> HealthFrame:
        """The frame that was encoded; numbers that were not finite are None.

        Raises:
            FormatError: If it was encoded from an object that is no health frame.

        Example:
            >>> encode_frame(HealthFrame(3, 0.0, float("nan"))).decode().nonFinite
            {'loss': 'nan'}
        """
        return HealthFrame.from_dict(loads(self.text, what=f"frame of step {self.step}"))


def encode_frame(
    frame: HealthFrame | Mapping[str, Any] | EncodedFrame, *, single: bool = False
) -> EncodedFrame:
    """A health frame as bytes.

    Args:
        frame: A frame, its JSON object, or one that is encoded already. Of an object, only
            ``step`` and ``blocks`` are checked; the rest is written as it stands.
        single: Whether the statistics of a ``HealthFrame`` are written with no more digits than
            their float32 needs, since they are no more exact; a frame takes a fifth fewer bytes.

    Returns:
        The encoded frame. A number that is not finite is null, and ``nonFinite`` names it:
        ``loss``, ``timing.forward``, ``blocks.a0.weightNorm``, ``blocks.a0.act.mean``,
        ``blocks.a0.headEntropy.2``.

    Raises:
        FrameError: If ``step`` is no integer of at least 0, ``blocks`` is no list, or a
            value cannot be said in JSON.

    Source:
        ``FORMATS.md``, section 5.

    Example:
        >>> encode_frame({"step": 1, "t": 0.0, "loss": float("inf"), "blocks": []}).text
        b'{"step":1,"t":0.0,"loss":null,"blocks":[],"nonFinite":{"loss":"inf"}}'
    """
    if isinstance(frame, EncodedFrame):
        return frame
    try:
        return _encode(frame, single)
    except (JsonError, TypeError, ValueError, AttributeError, RecursionError) as error:
        if isinstance(error, FrameError):
            raise
        raise FrameError(f"the frame cannot be encoded: {error}") from error


def encode_trace(frame: TraceFrame | Mapping[str, Any]) -> bytes:
    """A trace frame as canonical JSON, tensor by tensor.

    Args:
        frame: A frame or its JSON object.

    Returns:
        UTF-8 JSON on one line.

    Raises:
        FrameError: If a value cannot be said in JSON.

    Source:
        ``FORMATS.md``, section 5.

    Example:
        >>> encode_trace(TraceFrame(0))
        b'{"step":0,"tensors":[]}'
    """
    try:
        data = frame.to_dict() if isinstance(frame, TraceFrame) else frame
        tensors = [dumps(tensor).encode("utf-8") for tensor in data.get("tensors", ())]
        return _joined({**data, "tensors": []}, "tensors", tensors)
    except (JsonError, TypeError, AttributeError) as error:
        raise FrameError(f"the trace cannot be encoded: {error}") from error


def _encode(frame: HealthFrame | Mapping[str, Any], single: bool) -> EncodedFrame:
    """Encode head and blocks apart, then join them."""
    rows = frame.late_rows if isinstance(frame, LateFrame) and not frame.nonFinite else None
    head, blocks = _parts(frame if rows is None else frame.head())  # type: ignore[union-attr]  # it is late
    step = head.get("step")
    if not isinstance(step, int) or isinstance(step, bool) or not 0 <= step <= MAX_INTEGER:
        raise FrameError(f"frame.step must be an integer of at least 0, found {shown(step)}")
    names: dict[str, str] = {}
    full: list[bytes] = []
    lean: list[bytes] = []
    for text, rest in _texts_of(blocks if rows is None else rows, names, single=single):
        full.append(text)
        lean.append(rest)
    head = _finite(head, "", names)
    if names:
        head["nonFinite"] = {**(head.get("nonFinite") or {}), **names}
    thinned = any(one is not other for one, other in zip(full, lean))  # noqa: B905  # of one length
    return EncodedFrame(
        step, _joined(head, "blocks", full), _joined(head, "blocks", lean) if thinned else None
    )


def _texts_of(
    rows: list[Any] | Rows, names: dict[str, str], *, single: bool
) -> Iterator[tuple[bytes, bytes]]:
    """The JSON of each row and the same without its patterns; what is not finite is added to ``names``."""
    if isinstance(rows, list):
        for block in rows:
            yield block_texts(block, single=single) or _block_texts(
                block if isinstance(block, dict) else block.to_dict(), names
            )
        return
    for index, texts in enumerate(rows_texts(rows, single=single)):
        yield texts or next(_texts_of([rows.block(index)], names, single=single))


def _parts(frame: HealthFrame | Mapping[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """The frame's own fields with an empty ``blocks`` in its place, and the blocks."""
    if isinstance(frame, HealthFrame) and frame.nonFinite:
        # Its blocks may owe a null to what the frame names.
        frame = frame.to_dict()
    if isinstance(frame, HealthFrame):
        blocks: Any = frame.blocks
        # Blocks are turned into objects one at a time by the caller.
        frame = _without_blocks(frame).to_dict()
    elif isinstance(frame, Mapping):
        blocks = frame.get("blocks", [])
    else:
        raise FrameError(f"a frame must be a HealthFrame or an object, found {shown(frame)}")
    if not isinstance(blocks, (list, tuple)):
        raise FrameError(f"frame.blocks must be a list, found {shown(blocks)}")
    return {**frame, "blocks": []}, list(blocks)


def _without_blocks(frame: HealthFrame) -> HealthFrame:
    """A shallow copy of the frame without its blocks."""
    from copy import copy

    bare = copy(frame)
    bare.blocks = []
    return bare


def _without_pattern(block: Mapping[str, Any]) -> dict[str, Any]:
    """The block without its attention patterns."""
    return {key: value for key, value in block.items() if key != _PATTERN_KEY}


def _block_texts(block: dict[str, Any], names: dict[str, str]) -> tuple[bytes, bytes]:
    """A block's JSON, and the same without its patterns."""
    if _PATTERN_KEY not in block:
        text = _block_text(block, names)
        return text, text
    lean = _block_text(_without_pattern(block), {})
    # Base64 looks like large numbers here and there, which would cost more than encoding it.
    return _block_text(block, names, closely=not _is_plain(block[_PATTERN_KEY])), lean


def _is_plain(patterns: Any) -> bool:
    """Whether patterns hold nothing but what our own have, so that no number in them is too large."""
    return isinstance(patterns, list) and all(
        isinstance(pattern, dict)
        and pattern.keys() == {"head", "size", "b64"}
        and type(pattern["b64"]) is str
        and all(type(pattern[key]) is int and abs(pattern[key]) <= MAX_INTEGER for key in ("head", "size"))
        for pattern in patterns
    )


def _block_text(block: dict[str, Any], names: dict[str, str], *, closely: bool = True) -> bytes:
    """A block's JSON; what is not finite in it is added to ``names``."""
    try:
        text = _ENCODER.encode(block).encode("utf-8")
    except ValueError:
        block = _finite(block, f"blocks.{block.get('id')}.", names)
    else:
        if not closely or not is_suspect(text):
            return text
    # Slower, and names the place of what no reader takes.
    return dumps(block).encode("utf-8")


def _finite(value: Any, prefix: str, names: dict[str, str], depth: int = MAX_DEPTH) -> Any:
    """``value`` with null for each number that is not finite, each added to ``names``."""
    if isinstance(value, float):
        name = non_finite_name(value)
        if name is None:
            return value
        names[prefix[:-1]] = name
        return None
    if depth == 0:
        raise FrameError(f"frame.{prefix[:-1]} is nested over {MAX_DEPTH} deep, or holds itself")
    if isinstance(value, Mapping):
        return {key: _finite(item, f"{prefix}{key}.", names, depth - 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item, f"{prefix}{index}.", names, depth - 1) for index, item in enumerate(value)]
    return value


def _joined(head: Mapping[str, Any], key: str, items: list[bytes]) -> bytes:
    """The JSON of ``head`` with ``items`` in the list that it has empty under ``key``."""
    parts: list[bytes] = []
    for name, value in head.items():
        # The name is checked together with its value; the braces around them go.
        part = dumps({name: value}).encode("utf-8")[1:-1]
        parts.append(part[:-1] + b",".join(items) + b"]" if name == key else part)
    text = b"{" + b",".join(parts) + b"}"
    if len(text) > MAX_LINE_BYTES:
        raise FrameError(f"the frame takes {len(text)} bytes, at most {MAX_LINE_BYTES} are read")
    return text
