"""Server-sent events: their bytes, the order they were sent in, and each tab's place in it.

There is one log for all tabs, and a tab is a cursor into it: whoever reads slowly holds a
number, not a queue. Frames of health are kept by the shared ``FrameHistory``; the log adds
what that does not hold (``spec``, ``frame`` and ``bye``), each with its place among the
frames, and a few megabytes of the newest text so that tabs which keep up cost no
decompression.

A tab gets ``hello`` and the latest trace, then everything that is sent after it came. With
``Last-Event-ID`` it first gets what it missed, in the order of sending. Steps may repeat (a
trace and a frame of one step, a run continued from a checkpoint), so an id can stand for
several events; the tab goes on after the one that cannot leave a hole, and a frame it had
seen may come twice.

Nothing here touches a socket, a thread or a clock: one thread owns the log and its tabs.

Source: FORMATS.md, section 7; HTML Living Standard, section 9.2, "Server-sent events".
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ptoa_core.protocol import MAX_INTEGER

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ptoa_core.history import FrameHistory

__all__ = ["KEEP_ALIVE", "RECENT_BYTES", "RETRY", "EventLog", "Tab", "event_pieces", "last_event_id"]

RECENT_BYTES = 4 * 1024 * 1024
RETRY = b"retry: 1000\n\n"
KEEP_ALIVE = b": keep-alive\n\n"

# `spec` and `frame` events that tabs have still to take, beyond the newest.
_CONTROL_BYTES = 64 * 1024 * 1024


def event_pieces(name: str, data: Sequence[bytes], step: int | None = None) -> tuple[bytes, ...]:
    r"""The bytes of one event, in pieces, so that large data is not copied.

    Args:
        name: The event's name.
        data: Pieces of one line of UTF-8 JSON.
        step: The id, where the event has one.

    Returns:
        The event with the empty line that ends it.

    Example:
        >>> b"".join(event_pieces("health", [b'{"step":3}'], 3))
        b'event: health\nid: 3\ndata: {"step":3}\n\n'
    """
    head = f"event: {name}\n" if step is None else f"event: {name}\nid: {step}\n"
    return (head.encode("ascii") + b"data: ", *data, b"\n\n")


def last_event_id(text: str | None) -> int | None:
    """The step in a ``Last-Event-ID`` field, or ``None`` for a new client.

    Args:
        text: The field's value, or ``None`` when there was none.

    Returns:
        A plain decimal integer from 0 to 2**53 - 1; everything else comes from no event of
        ours, and whoever sends it starts afresh.

    Example:
        >>> last_event_id("40"), last_event_id("abc"), last_event_id("9" * 400)
        (40, None, None)
    """
    if text is None or re.fullmatch(r"[0-9]{1,16}", text) is None:
        return None
    step = int(text)
    return step if step <= MAX_INTEGER else None


@dataclass(frozen=True)
class _Control:
    """An event that no history keeps: ``spec``, ``frame`` or ``bye``.

    ``at`` is the number of the first health frame that was sent after it. ``greeting`` is
    the hello that a tab gets in its place, when it has had none.
    """

    at: int
    name: str
    data: tuple[bytes, ...]
    step: int | None
    size: int
    greeting: tuple[bytes, ...]


class EventLog:
    """What has been sent, in order, and what a tab with a given cursor gets next.

    Attributes:
        hello: Pieces of the hello's JSON; empty before there is a spec.
        trace: Pieces of the latest trace frame's JSON; empty before there is one.
        next_seq: The number that the next health frame will have.

    Args:
        history: The store of health frames, which other threads may fill meanwhile.
    """

    def __init__(self, history: FrameHistory) -> None:
        """Begin at the history's end."""
        self.next_seq = history.next_seq
        self.hello: tuple[bytes, ...] = ()
        self._history = history
        self._recent: deque[tuple[int, int, bytes]] = deque()
        self._recent_bytes = 0
        self._controls: deque[_Control] = deque()
        self._first_control = 0
        self._trace: _Control | None = None
        self._total = 0
        self._newest = 0

    @property
    def trace(self) -> tuple[bytes, ...]:
        """Pieces of the latest trace frame's JSON; empty before there is one."""
        return self._trace.data if self._trace is not None else ()

    @property
    def next_control(self) -> int:
        """The number that the next event outside the history will have."""
        return self._first_control + len(self._controls)

    def add_health(self, seq: int, step: int, text: bytes) -> None:
        """Send a health frame that the history holds under ``seq``."""
        self._count(len(text))
        self.next_seq = seq + 1
        self._recent.append((seq, step, text))
        self._recent_bytes += len(text)
        while len(self._recent) > 1 and self._recent_bytes - self._newest > RECENT_BYTES:
            self._recent_bytes -= len(self._recent.popleft()[2])

    def add_trace(self, data: tuple[bytes, ...], step: int) -> None:
        """Send a trace frame and keep it as the latest."""
        self._trace = self._add_control("frame", data, step)

    def add_spec(self, hello: tuple[bytes, ...], spec: bytes) -> None:
        """Send a spec, and greet new tabs with it."""
        self.hello = hello
        self._add_control("spec", (spec,), greeting=hello)

    def restart(self, tabs: Iterable[Tab]) -> None:
        """Forget the frames and the trace of an earlier watch, whose history was cleared."""
        self._trace = None
        self._recent.clear()
        self._recent_bytes = 0
        for tab in tabs:
            tab.seq = self.next_seq
            tab.missed = None

    def add_bye(self) -> None:
        """Send the last event."""
        self._add_control("bye", (b"{}",))

    def new_tab(self, last_id: int | None) -> Tab:
        """A cursor for a client that has just come.

        Args:
            last_id: The step of the last event that it got, ``None`` for a new client.

        Returns:
            A tab that begins with ``hello``, if there is a spec.
        """
        tab = Tab(self, self.next_seq, self.next_control)
        tab.missed = self._trace
        if last_id is not None:
            tab.seq, tab.missed = self._resume(last_id)
        return tab

    def after(self, tab: Tab) -> tuple[tuple[bytes, ...], int] | None:
        """Take the next event for a tab and move its cursor.

        Returns:
            The event's pieces and its size as counted against the tab; ``None`` when there
            is nothing yet. Nothing follows ``bye``, or a frame that was kept no longer: the
            tab is then ``ended``.
        """
        if tab.missed is not None and tab.missed.at <= tab.seq:
            missed, tab.missed = tab.missed, None
            return event_pieces(missed.name, missed.data, missed.step), 0
        if tab.control < self.next_control:
            control = self._controls[tab.control - self._first_control]
            if control.at <= tab.seq:
                return self._take_control(tab, control)
        return self._take_health(tab) if tab.seq < self.next_seq else None

    def behind(self, tab: Tab) -> int:
        """Bytes that wait for a tab beyond the newest event, without what it missed before it came."""
        return max(0, self._total - self._newest - tab.passed)

    def prune(self, tabs: Iterable[Tab]) -> None:
        """Forget what every tab has taken, and end the tabs that hold too much."""
        open_tabs = [tab for tab in tabs if not tab.ended]
        while self._controls:
            waiting = [tab for tab in open_tabs if tab.control <= self._first_control]
            if waiting and self._control_bytes() <= _CONTROL_BYTES:
                return
            for tab in waiting:
                tab.ended = tab.dropped = True
            self._controls.popleft()
            self._first_control += 1

    @property
    def total(self) -> int:
        """Bytes of data sent since the log began."""
        return self._total

    def _control_bytes(self) -> int:
        """Bytes of the events outside the history, without the newest of them."""
        return sum(control.size for control in self._controls) - self._controls[-1].size

    def _count(self, size: int) -> None:
        """Note the size of the newest event."""
        self._newest = size
        self._total += size

    def _add_control(
        self,
        name: str,
        data: tuple[bytes, ...],
        step: int | None = None,
        greeting: tuple[bytes, ...] = (),
    ) -> _Control:
        """Send an event that the history does not keep."""
        control = _Control(self.next_seq, name, data, step, sum(map(len, data)), greeting)
        self._count(control.size)
        self._controls.append(control)
        return control

    def _resume(self, step: int) -> tuple[int, _Control | None]:
        """Where a tab goes on after an event with this id, and the trace it has missed."""
        seq = self._history.seq_of_step(step)
        trace = self._trace
        after_frame = None if seq is None else min(seq + 1, self.next_seq)
        if trace is not None and trace.step == step and (after_frame is None or trace.at < after_frame):
            return trace.at, None
        # An id that is kept no longer, or is of an earlier watch: all that is kept was missed.
        start = min(self._history.first_seq, self.next_seq) if after_frame is None else after_frame
        return start, trace if trace is not None and (after_frame is None or trace.at >= start) else None

    def _take_control(self, tab: Tab, control: _Control) -> tuple[tuple[bytes, ...], int]:
        """An event outside the history; a spec greets a tab that has had none."""
        tab.control += 1
        tab.ended = control.name == "bye"
        if control.greeting and not tab.greeted:
            tab.greeted = True
            return event_pieces("hello", control.greeting), control.size
        return event_pieces(control.name, control.data, control.step), control.size

    def _take_health(self, tab: Tab) -> tuple[tuple[bytes, ...], int] | None:
        """A health frame, from the newest texts or from the history."""
        seq, tab.seq = tab.seq, tab.seq + 1
        step, text = self._read(seq)
        if step is None or text is None:
            tab.ended = True
            return None
        return event_pieces("health", (text,), step), len(text) if seq >= tab.live_from else 0

    def _read(self, seq: int) -> tuple[int | None, bytes | None]:
        """Step and text of a frame; None where it is kept no longer."""
        if self._recent and seq >= self._recent[0][0]:
            _, step, text = self._recent[seq - self._recent[0][0]]
            return step, text
        return self._history.step_of(seq), self._history.read(seq)


class Tab:
    """One client of ``/events``: an iterator of byte pieces that asks the log for the next.

    It gives ``b""`` when there is nothing to send yet, and ends after ``bye`` or where a
    frame that it should have had is kept no longer.

    Attributes:
        seq: The number of the next health frame to send.
        control: The number of the next event outside the history.
        live_from: Frames before this one were missed, and are not counted as lag.
        passed: Bytes of events that were taken whole since the tab came.
        greeted: Whether ``hello`` was sent.
        ended: Whether nothing more will come.
        dropped: Whether the log gave the tab up, because too much waited for it.
        missed: The trace that is sent when its place is reached.
    """

    def __init__(self, log: EventLog, seq: int, control: int) -> None:
        """Stand at the end of ``log``, with a greeting to send."""
        self.seq = self.live_from = seq
        self.control = control
        self.passed = log.total
        self.greeted = bool(log.hello)
        self.ended = self.dropped = False
        self.missed: _Control | None = None
        self._log = log
        self._taking = 0
        self._pieces: deque[bytes] = deque([RETRY])
        if self.greeted:
            self._pieces.extend(event_pieces("hello", log.hello))

    def __iter__(self) -> Tab:
        """The tab itself."""
        return self

    def __next__(self) -> bytes:
        """The next piece, or ``b""`` when there is none yet."""
        if not self._pieces:
            self._take()
        if self._pieces:
            return self._pieces.popleft()
        if self.ended:
            raise StopIteration
        return b""

    def _take(self) -> None:
        """Ask the log for the next event."""
        self.passed += self._taking
        self._taking = 0
        if self.ended:
            return
        event = self._log.after(self)
        if event is None:
            # Level again; sizes may have shrunk meanwhile, where old patterns made room.
            self.passed = self._log.total
            return
        pieces, self._taking = event
        self._pieces.extend(pieces)
