"""Reading run files that a crash, a full disk or a stranger may have left."""

from __future__ import annotations

import math
import warnings
import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, overload

from ._disk import Path, open_regular
from ._header import as_header
from .errors import FileError, FormatError, PtoaWarning
from .frames import HealthFrame
from .jsontext import loads
from .protocol import MAX_LINE_BYTES
from .terminal import shown
from .validate import check

if TYPE_CHECKING:
    from .spec import ModelSpec

# What a file system leaves after a crash where data was never written, and white space.
_EMPTY = b"\0 \t\r\n"
_MOST_WARNINGS = 8
# No writer leaves as many, and looking through gigabytes of them takes minutes.
_MOST_BLANK_LINES = 10_000


class Line(NamedTuple):
    """One line of a file; ``whole`` when its end is there."""

    number: int
    text: bytes
    whole: bool


class _Notes:
    """Warnings about one file, the first few in full."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._count = 0

    def warn(self, message: str) -> None:
        """Say what was left out."""
        self._count += 1
        if self._count <= _MOST_WARNINGS:
            warnings.warn(f"{str(self._path)!r}, {message}", PtoaWarning, stacklevel=5)

    def close(self) -> None:
        """Say how many were not said."""
        left = self._count - _MOST_WARNINGS
        if left > 0:
            warnings.warn(f"{str(self._path)!r}: {left} more lines were left out", PtoaWarning, stacklevel=4)


def _lines(file: BinaryIO, notes: _Notes) -> Iterator[Line]:
    """The lines that hold something, up to one too long for the memory, or endless blank ones."""
    number = last = 0
    while text := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(text) > MAX_LINE_BYTES:
            notes.warn(f"line {number}: over {MAX_LINE_BYTES} bytes; it and what follows was not read")
            return
        kept = text.strip(_EMPTY)
        if kept:
            last = number
            yield Line(number, kept, text.endswith(b"\n"))
        elif number - last > _MOST_BLANK_LINES:
            notes.warn(f"line {number}: over {_MOST_BLANK_LINES} blank lines in a row; the rest was not read")
            return
        elif b"\0" in text:
            notes.warn(f"line {number}: only NUL bytes, as a crash leaves them; left out")


def _header(lines: Iterator[Line], path: Path) -> dict[str, Any]:
    """The header object from the first line; its spec is an object, not yet checked."""
    line = next(lines, None)
    if line is None:
        raise FileError(f"{str(path)!r} is empty; a run file is wanted")
    try:
        header = loads(line.text, what=f"line {line.number}", max_bytes=MAX_LINE_BYTES)
    except FormatError as error:
        raise FileError(f"{str(path)!r} is no run file: {error}") from error
    return as_header(header, path)


def read_header(path: Path) -> ModelSpec:
    """The spec of a run file, without reading its frames.

    Raises:
        FileError: If it is no run file.
        SpecError: If its spec cannot be used.
        OSError: If the file cannot be opened.

    Example:
        >>> read_header("/dev/null")
        Traceback (most recent call last):
        ptoa_core.errors.FileError: '/dev/null' is a device; a regular file is wanted
    """
    with open_regular(path) as file:
        notes = _Notes(path)
        spec = check(_header(_lines(file, notes), path)["spec"])
        notes.close()
        return spec


def health_data(line: bytes, what: str) -> dict[str, Any] | None:
    """The data of a health line; None for an event of another kind."""
    event = loads(line, what=what, max_bytes=MAX_LINE_BYTES)
    if not isinstance(event, dict):
        raise FileError(f"{what}: an event must be an object, found {shown(event)}")
    if event.get("event") != "health":
        return None
    data = event.get("data")
    if not isinstance(data, dict):
        raise FileError(f"{what}: the data of a health event must be an object, found {shown(data)}")
    return data


def _kept(line: Line, notes: _Notes) -> tuple[HealthFrame, dict[str, Any]] | None:
    """The frame of a line and its object; None, and perhaps a warning, when there is none."""
    what = f"line {line.number}"
    try:
        data = health_data(line.text, what)
        return None if data is None else (HealthFrame.from_dict(data), data)
    except FormatError as error:
        if line.whole:
            notes.warn(f"{what} was left out: {str(error).removeprefix(what + ': ')}")
        else:
            notes.warn(f"{what}: the last line was cut short and left out")
        return None


def iter_frames(path: Path) -> Iterator[HealthFrame]:
    """The frames of a run file in the order of its lines, one in memory at a time.

    Frames of every attempt are given; ``RunFile.read`` leaves out those that a later
    attempt replaced. What cannot be read is left out with a ``PtoaWarning``.

    Args:
        path: A run file.

    Raises:
        FileError: If it is no run file.
        SpecError: If its spec cannot be used.
        OSError: If the file cannot be read.

    Source:
        ``FORMATS.md``, section 6.

    Example:
        >>> import tempfile
        >>> from ptoa_core import Block, ModelSpec
        >>> from ptoa_core.runs import RunFile
        >>> run = RunFile(tempfile.mkdtemp() + "/run.pta", ModelSpec("x", [Block("t0", "tokens")], "t0"))
        >>> run.push_health(HealthFrame(0, 0.0, 1.5)); run.close()
        >>> [frame.loss for frame in iter_frames(run.path)]
        [1.5]
    """
    with open_regular(path) as file:
        notes = _Notes(path)
        lines = _lines(file, notes)
        check(_header(lines, path)["spec"])
        for line in lines:
            kept = _kept(line, notes)
            if kept is not None:
                yield kept[0]
        notes.close()


def read_run(path: Path) -> tuple[dict[str, Any], Sequence[HealthFrame]]:
    """The spec's object and the frames that stand."""
    frames = _RunFrames()
    with open_regular(path) as file:
        notes = _Notes(path)
        lines = _lines(file, notes)
        spec: dict[str, Any] = _header(lines, path)["spec"]
        check(spec)
        for line in lines:
            kept = _kept(line, notes)
            if kept is not None:
                frames.add(kept[0], line.text)
        notes.close()
    frames.settle()
    return spec, frames


class _Kept(NamedTuple):
    """One frame of a run: where it stands, and its line, compressed."""

    step: int
    attempt: int
    line: bytes


class _RunFrames(Sequence[HealthFrame]):
    """Frames of a run, kept compressed and decoded when asked for.

    A frame of 200 blocks takes a megabyte as objects; a run has thousands.
    """

    def __init__(self) -> None:
        self._kept: list[_Kept] = []

    def add(self, frame: HealthFrame, line: bytes) -> None:
        """Keep a frame."""
        self._kept.append(_Kept(frame.step, frame.attempt or 1, zlib.compress(line, 1)))

    def settle(self) -> None:
        """Drop what a later attempt trained again: every step from that attempt's first one on.

        Lines may stand in any order of attempts and steps, as two writers or a stranger leave them.
        """
        first: dict[int, int] = {}
        for kept in self._kept:
            first.setdefault(kept.attempt, kept.step)
        ends: dict[int, float] = {}
        end = math.inf
        for attempt in sorted(first, reverse=True):
            ends[attempt] = end
            end = min(end, first[attempt])
        self._kept = [kept for kept in self._kept if kept.step < ends[kept.attempt]]

    def __len__(self) -> int:
        return len(self._kept)

    @overload
    def __getitem__(self, index: int) -> HealthFrame: ...

    @overload
    def __getitem__(self, index: slice) -> list[HealthFrame]: ...

    def __getitem__(self, index: int | slice) -> HealthFrame | list[HealthFrame]:
        if isinstance(index, slice):
            return [_unpacked(kept.line) for kept in self._kept[index]]
        return _unpacked(self._kept[index].line)

    def __eq__(self, other: object) -> bool:
        """Equal to any sequence of equal frames, as a list of frames would be."""
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # a list of frames has none either

    def __repr__(self) -> str:
        return f"<{len(self)} frames>"


def _unpacked(data: bytes) -> HealthFrame:
    """The frame of a kept line."""
    found = health_data(zlib.decompress(data), "kept line")
    return HealthFrame.from_dict(found or {})


def lines_backward(file: BinaryIO, size: int) -> Iterator[bytes]:
    """The pieces between line ends, last first; the first piece is what follows the last line end."""
    chunk = 1 << 16
    tail = b""
    end = size
    while end > 0:
        start = max(0, end - chunk)
        file.seek(start)
        tail, *pieces = (file.read(end - start) + tail).split(b"\n")
        yield from reversed(pieces)
        if len(tail) > MAX_LINE_BYTES:
            return
        end = start
        chunk = min(chunk * 2, MAX_LINE_BYTES)
    yield tail


def last_attempt(lines: Iterator[bytes]) -> int | None:
    """The attempt that the last frame among ``lines`` (last first) belongs to; None without one."""
    for line in lines:
        try:
            data = health_data(line.strip(_EMPTY), "line")
        except FormatError:
            continue
        if data is not None:
            attempt = data.get("attempt", 1)
            return attempt if isinstance(attempt, int) and attempt >= 1 else 1
    return None


def is_whole_event(line: bytes) -> bool:
    """Whether a line without its end is a whole event."""
    try:
        return isinstance(loads(line, max_bytes=MAX_LINE_BYTES), dict)
    except FormatError:
        return False
