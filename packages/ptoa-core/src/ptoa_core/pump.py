"""Frames from the training thread to the sinks, without the training thread waiting.

``push_health`` puts a frame into a bounded queue and returns; one daemon thread encodes it
once and gives it to each sink. When the thread cannot keep up, frames are dropped and
counted: a gap in a chart is better than a slower training run.
"""

from __future__ import annotations

import atexit
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from queue import SimpleQueue
from typing import Any
from weakref import WeakSet

from ._fork import register
from .encoded import EncodedFrame, encode_frame
from .errors import PtoaWarning
from .frames import HealthFrame
from .late import LateFrame
from .sinks import FrameSink

__all__ = ["FramePump", "OnError"]

_Frame = HealthFrame | EncodedFrame | Mapping[str, Any]
# A frame with its weight, a mark to set once everything before it is given, or the end.
_Item = tuple[_Frame, int] | threading.Event | None
OnError = Callable[[FrameSink | None, BaseException], object]


class FramePump:
    """Gives frames to sinks from a thread of its own, in the order in which they were pushed.

    A sink that raises is reported once and given nothing more; the others go on. After
    ``os.fork`` the child's pump does nothing. What is queued at the interpreter's end is
    still delivered, for at most three seconds. The pump does not close its sinks.

    Args:
        sinks: What takes the frames, in this order.
        on_error: Called on the pump's thread with the sink and its exception; with None and
            the exception when a frame could not be encoded, the first time only. Without
            it, a ``PtoaWarning`` says so.
        max_blocks: The most rows of blocks in waiting frames.
        max_frames: The most waiting frames.
        name: The thread's name.
        single: As in ``encode_frame``.

    Attributes:
        dropped: How many frames were not taken because the queue was full.
        busy: Seconds that encoding and giving to the sinks took so far.

    Example:
        >>> from ptoa_core.sinks import CallableSink
        >>> seen = []
        >>> pump = FramePump([CallableSink(lambda frame: seen.append(frame.step))])
        >>> pump.push_health(HealthFrame(3, 0.0, None))
        >>> pump.close()
        True
        >>> seen
        [3]
    """

    def __init__(
        self,
        sinks: Iterable[FrameSink],
        *,
        on_error: OnError | None = None,
        max_blocks: int = 500_000,
        max_frames: int = 8_192,
        name: str = "ptoa-pump",
        single: bool = False,
    ) -> None:
        """Start the thread."""
        self.dropped = 0
        self.busy = 0.0
        self._sinks = list(sinks)
        self._on_error = on_error or _warn
        self._single = single
        self._max_frames = max_frames
        self._max_blocks = max_blocks
        # What was put is counted by the pushing threads, what was taken by the pump's own
        # thread: neither waits for the other.
        self._put_frames = self._put_blocks = 0
        self._taken_frames = self._taken_blocks = 0
        self._queue: SimpleQueue[_Item] = SimpleQueue()
        # A signal handler may close on the thread that it has interrupted in the middle of a push.
        self._pushing = threading.RLock()
        self._encoding_failed = False
        self._open = True
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        register(self)
        _PUMPS.add(self)
        self._thread.start()

    def _after_fork(self) -> None:
        """The thread is not in the child: take nothing, wait for nothing."""
        self._open = False
        self._queue = SimpleQueue()
        self._pushing = threading.RLock()
        self._taken_frames = self._put_frames

    def push_health(self, frame: _Frame) -> None:
        """Queue one frame and return; it is copied, so the caller may use it again.

        The rows of its blocks are not copied: they must not change afterwards.

        Args:
            frame: A frame, its JSON object, or one that is encoded already.

        Example:
            >>> pump = FramePump([])
            >>> pump.push_health({"step": 0, "t": 0.0, "loss": None, "blocks": []})
            >>> pump.close()
            True
        """
        kept, weight = _copied(frame)
        with self._pushing:
            if not self._open:
                return
            if not self._fits(weight):
                self.dropped += 1
                return
            self._put_frames += 1
            self._put_blocks += weight
            self._queue.put((kept, weight))

    def _fits(self, weight: int) -> bool:
        """Whether the queue has room; an empty one takes a frame of any size."""
        waiting = self._put_frames - self._taken_frames
        blocks = self._put_blocks - self._taken_blocks
        return waiting == 0 or (waiting < self._max_frames and blocks + weight <= self._max_blocks)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until everything that was pushed so far has been given to the sinks.

        Args:
            timeout: Seconds to wait at most; None waits without end.

        Returns:
            Whether it was all given in time. False at once when a sink asks for it, since
            the pump's own thread cannot wait for itself.

        Example:
            >>> FramePump([]).flush(timeout=1)
            True
        """
        if self._thread is threading.current_thread():
            return False
        reached = threading.Event()
        with self._pushing:
            if not self._open:
                return self._join(timeout)
            self._queue.put(reached)
        return reached.wait(timeout)

    def close(self, timeout: float = 3.0) -> bool:
        """Take nothing more, deliver what waits, and end the thread.

        Args:
            timeout: Seconds to wait at most. What is left after them is still delivered
                by the daemon thread while the process lives.

        Returns:
            Whether everything was delivered in time. A second call waits again.

        Example:
            >>> pump = FramePump([])
            >>> pump.close(), pump.close()
            (True, True)
        """
        with self._pushing:
            if self._open:
                self._open = False
                self._queue.put(None)
        return self._join(timeout)

    def _join(self, timeout: float | None) -> bool:
        """Wait for the thread's end; True when it gave everything."""
        # A sink may close the pump from the pump's own thread, which cannot wait for itself.
        if self._thread is not threading.current_thread() and self._thread.is_alive():
            self._thread.join(timeout)
        return self._taken_frames == self._put_frames and not self._thread.is_alive()

    def _run(self) -> None:
        """The thread: deliver until the end is reached."""
        while (item := self._queue.get()) is not None:
            if isinstance(item, threading.Event):
                item.set()
                continue
            frame, weight = item
            started = time.perf_counter()
            self._deliver(frame)
            self.busy += time.perf_counter() - started
            self._taken_blocks += weight
            self._taken_frames += 1
            del item, frame  # a waiting thread must not keep the last frame alive

    def _deliver(self, frame: _Frame) -> None:
        """Encode one frame and give it to each sink that still takes frames."""
        try:
            encoded = encode_frame(frame, single=self._single)
        except Exception as error:  # noqa: BLE001  # a frame is a user's object; the thread must live on
            if not self._encoding_failed:
                self._encoding_failed = True
                self._report(None, error)
            return
        for sink in list(self._sinks):
            try:
                sink.push_health(encoded)
            # A sink is a user's code: whatever it raises, even SystemExit, ends only itself.
            except BaseException as error:  # noqa: BLE001, PERF203
                self._sinks.remove(sink)
                self._report(sink, error)

    def _report(self, sink: FrameSink | None, error: BaseException) -> None:
        """Say once what failed; a failing report ends nothing."""
        try:
            self._on_error(sink, error)
        except Exception:  # noqa: BLE001  # there is nobody left to tell
            return


def _copied(frame: _Frame) -> tuple[_Frame, int]:
    """The frame, safe from changes by the caller, and its number of rows."""
    if isinstance(frame, EncodedFrame):
        return frame, 1
    if isinstance(frame, LateFrame) and frame.late_rows is not None:
        late = LateFrame.__new__(LateFrame)
        late.__dict__.update(frame.__dict__)
        return late, len(frame.rows) + 1
    if isinstance(frame, HealthFrame):
        # copy.copy would take longer than all the rest of a push.
        kept = HealthFrame.__new__(HealthFrame)
        kept.__dict__.update(frame.__dict__)
        kept.blocks = list(frame.blocks)
        return kept, len(kept.blocks) + 1
    if isinstance(frame, Mapping):
        blocks = frame.get("blocks")
        if isinstance(blocks, list):
            return {**frame, "blocks": list(blocks)}, len(blocks) + 1
    return frame, 1


def _warn(sink: FrameSink | None, error: BaseException) -> None:
    """Warn that a sink stands aside, or that a frame could not be encoded."""
    what = "a frame was left out" if sink is None else f"{sink!r} gets no more frames"
    warnings.warn(f"{what}: {type(error).__name__}: {error}", PtoaWarning, stacklevel=2)


_PUMPS: WeakSet[FramePump] = WeakSet()


def _close_all() -> None:
    """Deliver what waits at the interpreter's end."""
    deadline = time.monotonic() + 3.0
    for pump in list(_PUMPS):
        pump.close(max(0.0, deadline - time.monotonic()))


atexit.register(_close_all)
