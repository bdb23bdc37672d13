"""The frames that are kept: one store for late tabs and for ``Watch.frames``.

Frames are kept compressed as they were encoded. When the store is over its bytes, the oldest
attention patterns go first; then the oldest frames are packed tighter, and only when that is not
enough dropped. Over its number of frames, the oldest frame goes. Each frame has a sequence number
that is never used again, so a reader can tell what it has seen whatever was dropped meanwhile.

zlib gives up the interpreter's lock in every call, and a thread that only computes hands it back
after five milliseconds: thousands of small frames would take most of a minute to unpack. So each
frame is raw DEFLATE that ends on a whole byte, and neighbours are unpacked in one call as the one
stream that they are when written in a row.

Source: RFC 1951, sections 3.2.3 and 3.2.4 (blocks, and those that are stored).
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, overload

from ._fork import register
from .encoded import EncodedFrame
from .errors import SettingError
from .frames import HealthFrame
from .protocol import HISTORY_BYTES, HISTORY_FRAMES

__all__ = ["FrameHistory"]

# What an entry takes in memory beside its compressed bytes.
_OVERHEAD = 300
_TIGHT = 6
_WBITS = -15  # raw DEFLATE, without a zlib or gzip wrapper
_LAST_BLOCK = b"\x03\x00"  # ends a stream, and holds nothing
_COMMA = b"\x00\x01\x00\xfe\xff,"  # a stored block of one byte


class _Entry(NamedTuple):
    """A kept frame: compressed, whole and (when it has patterns) lean."""

    step: int
    size: int
    data: bytes
    lean_size: int
    lean: bytes | None

    @property
    def nbytes(self) -> int:
        """Bytes that the entry takes."""
        return len(self.data) + len(self.lean or b"") + _OVERHEAD

    def text(self) -> bytes:
        """The frame's JSON."""
        return _unpacked(self.data, self.size)

    def packed(self) -> _Entry:
        """The entry in fewer bytes, at some milliseconds that only a full store is worth."""
        data = _packed(self.text(), _TIGHT)
        return self._replace(data=min(data, self.data, key=len))

    def thinned(self) -> _Entry:
        """The entry without its patterns."""
        if self.lean is None:
            return self
        return _Entry(self.step, self.lean_size, self.lean, 0, None)


def _entry(frame: EncodedFrame) -> _Entry:
    """Compress a frame; zlib gives up the interpreter's lock meanwhile."""
    if frame.lean is None:
        return _Entry(frame.step, len(frame.text), _packed(frame.text, 1), 0, None)
    # Packing base64 of floats saves a quarter and takes three times as long as encoding the
    # frame did, on the thread that live tabs wait for: a whole frame is stored as it is.
    data = _packed(frame.text, 0)
    return _Entry(frame.step, len(frame.text), data, len(frame.lean), _packed(frame.lean, 1))


def _packed(text: bytes, level: int) -> bytes:
    """A DEFLATE stream that is on a whole byte where its last, empty block begins."""
    packer = zlib.compressobj(level, zlib.DEFLATED, _WBITS)
    return packer.compress(text) + packer.flush(zlib.Z_SYNC_FLUSH) + _LAST_BLOCK


def _unpacked(data: bytes, size: int) -> bytes:
    """The text of a stream; ``size`` is its length."""
    return zlib.decompress(data, _WBITS, max(size, 1))


def _joined(entries: Iterable[_Entry]) -> bytes:
    """The texts of one entry or more with commas between, unpacked in one call."""
    parts: list[bytes | memoryview] = []
    size = -1
    for entry in entries:
        parts += (_COMMA, memoryview(entry.data)[: -len(_LAST_BLOCK)])
        size += entry.size + 1
    return _unpacked(b"".join((*parts[1:], _LAST_BLOCK)), size)


class FrameHistory:
    """The last frames, within a number of frames and of bytes.

    Safe to use from several threads: any number of readers, and appends from any thread.
    In the child of a fork it holds what it held, under a lock of its own.

    Args:
        max_frames: The most frames that are kept.
        max_bytes: The most bytes that they take, compressed.

    Raises:
        SettingError: If a limit is below 1.

    Source:
        ``FORMATS.md``, section 7.

    Example:
        >>> from ptoa_core.encoded import encode_frame
        >>> history = FrameHistory(max_frames=2)
        >>> [history.append(encode_frame(HealthFrame(step, 0.0, None))) for step in (0, 10, 20)]
        [0, 1, 2]
        >>> [frame.step for frame in history.frames()]
        [10, 20]
    """

    def __init__(self, max_frames: int = HISTORY_FRAMES, max_bytes: int = HISTORY_BYTES) -> None:
        """Start empty."""
        if max_frames < 1 or max_bytes < 1:
            raise SettingError(
                f"limits of at least 1 are wanted, found {max_frames} frames, {max_bytes} bytes"
            )
        self._max_frames = max_frames
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._entries: dict[int, _Entry] = {}
        self._steps: dict[int, int] = {}
        self._first = 0
        self._next = 0
        self._thick = 0  # no entry before this number has patterns
        self._loose = 0  # every entry before this number is packed tightly
        self._nbytes = 0
        register(self)

    def _after_fork(self) -> None:
        """A lock that no thread of the parent holds."""
        self._lock = threading.Lock()

    def append(self, frame: EncodedFrame) -> int:
        """Keep a frame.

        Args:
            frame: An encoded frame.

        Returns:
            Its sequence number: one more than that of the frame before, from 0.

        Example:
            >>> from ptoa_core.encoded import encode_frame
            >>> FrameHistory().append(encode_frame(HealthFrame(0, 0.0, None)))
            0
        """
        entry = _entry(frame)
        with self._lock:
            seq = self._next
            self._next += 1
            self._entries[seq] = entry
            self._steps[entry.step] = seq
            self._nbytes += entry.nbytes
            self._shrink()
        return seq

    def _shrink(self) -> None:
        """Drop what is over the limits; amortised one step an append."""
        while self._nbytes > self._max_bytes and self._thick < self._next - 1:
            self._thick = max(self._thick, self._first)
            entry = self._entries[self._thick]
            thin = entry.thinned()
            self._entries[self._thick] = thin
            self._nbytes += thin.nbytes - entry.nbytes
            self._thick += 1
        while self._nbytes > self._max_bytes and self._loose < self._next - 1:
            self._loose = max(self._loose, self._first)
            entry = self._entries[self._loose]
            tight = self._entries[self._loose] = entry.packed()
            self._nbytes += tight.nbytes - entry.nbytes
            self._loose += 1
        # The newest frame stays even when it is over the limit by itself.
        while len(self._entries) > self._max_frames or (
            self._nbytes > self._max_bytes and len(self._entries) > 1
        ):
            self._drop_first()

    def _drop_first(self) -> None:
        """Forget the oldest frame."""
        entry = self._entries.pop(self._first)
        self._nbytes -= entry.nbytes
        if self._steps.get(entry.step) == self._first:
            del self._steps[entry.step]
        self._first += 1

    def clear(self) -> None:
        """Forget every frame; sequence numbers go on.

        Example:
            >>> history = FrameHistory()
            >>> history.clear()
            >>> len(history)
            0
        """
        with self._lock:
            self._entries = {}
            self._steps = {}
            self._first = self._thick = self._loose = self._next
            self._nbytes = 0

    @property
    def first_seq(self) -> int:
        """The sequence number of the oldest frame that is kept; ``next_seq`` when there is none."""
        return self._first

    @property
    def next_seq(self) -> int:
        """The sequence number that the next frame will have."""
        return self._next

    @property
    def nbytes(self) -> int:
        """Bytes that the kept frames take, compressed."""
        return self._nbytes

    def __len__(self) -> int:
        """How many frames are kept."""
        return len(self._entries)

    def read(self, seq: int) -> bytes | None:
        """The JSON text of one frame; None when it was dropped or never there.

        Example:
            >>> FrameHistory().read(0) is None
            True
        """
        entry = self._entries.get(seq)
        return None if entry is None else entry.text()

    def size_of(self, seq: int) -> int:
        """Bytes of one frame's JSON text, without unpacking it; 0 when it is not kept.

        Example:
            >>> FrameHistory().size_of(0)
            0
        """
        entry = self._entries.get(seq)
        return 0 if entry is None else entry.size

    def step_of(self, seq: int) -> int | None:
        """The step of one frame, without unpacking it; None when it is not kept.

        Example:
            >>> FrameHistory().step_of(0) is None
            True
        """
        entry = self._entries.get(seq)
        return None if entry is None else entry.step

    def seq_of_step(self, step: int) -> int | None:
        """The sequence number of the latest frame of that step; None when none is kept.

        Example:
            >>> FrameHistory().seq_of_step(3) is None
            True
        """
        return self._steps.get(step)

    def iter_since(self, step: int) -> Iterator[bytes]:
        """The JSON texts of the frames with a later step, oldest first, one unpacked at a time.

        Frames that are dropped while iterating are skipped; frames that come are included.

        Args:
            step: The last step that the reader has; -1 for all.

        Example:
            >>> list(FrameHistory().iter_since(-1))
            []
        """
        for entry in self._since(step):
            yield entry.text()

    def joined_since(self, step: int, size: int) -> Iterator[bytes]:
        """The same texts, several together with commas between them, unpacked in one call.

        Args:
            step: The last step that the reader has; -1 for all.
            size: Texts come together up to this many bytes; a longer one comes alone.

        Example:
            >>> from ptoa_core.encoded import encode_frame
            >>> history = FrameHistory()
            >>> for step in (0, 10, 20):
            ...     _ = history.append(encode_frame(HealthFrame(step, 0.0, None)))
            >>> [texts.count(b'"step"') for texts in history.joined_since(-1, 100)]
            [2, 1]
        """
        group: list[_Entry] = []
        room = size
        for entry in self._since(step):
            if group and entry.size > room:
                yield _joined(group)
                group, room = [], size
            group.append(entry)
            room -= entry.size
        if group:
            yield _joined(group)

    def _since(self, step: int) -> Iterator[_Entry]:
        """The entries with a later step, as they are when each one's turn comes."""
        seq = self._first
        while seq < self._next:
            seq = max(seq, self._first)
            entry = self._entries.get(seq)
            if entry is not None and entry.step > step:
                yield entry
            seq += 1

    def frames(self) -> Sequence[HealthFrame]:
        """A live view of the kept frames that decodes one when it is asked for.

        Example:
            >>> len(FrameHistory().frames())
            0
        """
        return _Frames(self)


class _Frames(Sequence[HealthFrame]):
    """The frames of a history, oldest first."""

    def __init__(self, history: FrameHistory) -> None:
        self._history = history

    def __len__(self) -> int:
        return len(self._history)

    @overload
    def __getitem__(self, index: int) -> HealthFrame: ...

    @overload
    def __getitem__(self, index: slice) -> list[HealthFrame]: ...

    def __getitem__(self, index: int | slice) -> HealthFrame | list[HealthFrame]:
        first, stop = self._history.first_seq, self._history.next_seq
        if isinstance(index, slice):
            texts = map(self._history.read, range(first, stop)[index])
            return [_decoded(text) for text in texts if text is not None]
        text = self._history.read(range(first, stop)[index])
        if text is None:
            raise IndexError(f"frame {index} is no longer kept")
        return _decoded(text)

    def __iter__(self) -> Iterator[HealthFrame]:
        return map(_decoded, self._history.iter_since(-1))

    def __repr__(self) -> str:
        return f"<{len(self)} frames>"


def _decoded(text: bytes) -> HealthFrame:
    """The frame of a kept text."""
    return EncodedFrame(0, text, None).decode()
