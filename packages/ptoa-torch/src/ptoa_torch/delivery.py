"""Where a watch's frames go, and what a watch says.

A thread of `ptoa_core.pump.FramePump` encodes each frame, writes the run file and feeds the
bridge. Training comes first: what goes wrong in here says so once, as a warning, and training
goes on. This module needs no torch.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from typing import TYPE_CHECKING, Any

from ptoa_core.errors import PtoaWarning
from ptoa_core.history import FrameHistory
from ptoa_core.pump import FramePump
from ptoa_core.runs import RunFile, default_run_path
from ptoa_core.sinks import CallableSink, FrameSink
from ptoa_core.terminal import escape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ptoa_core.frames import HealthFrame
    from ptoa_core.spec import ModelSpec

__all__ = ["Delivery", "note", "text_of"]

_FLUSH_SECONDS = 2.0
_CLOSE_SECONDS = 3.0


class Delivery:
    """Where a watch's frames go and what it says: bridge, run file, sinks, console.

    Attributes:
        server: The bridge; None where none could be started.
        spec: The model's spec; None until it is read.
        run: The run file.

    Args:
        run_file: True for a name of its own, a path, or False.
        sinks: Functions that are given each frame.
        server: A bridge that already runs.
    """

    def __init__(
        self,
        run_file: bool | str | os.PathLike[str] | None,
        sinks: Sequence[Callable[[HealthFrame], object]],
        server: Any,
    ) -> None:
        """Open nothing yet."""
        self.server = server
        self.spec: ModelSpec | None = None
        self.run: RunFile | None = None
        self._own_server = server is None
        self._run_option = run_file
        self._sinks = list(sinks)
        self._history = FrameHistory()
        self._pump: FramePump | None = None
        self._said: set[str] = set()
        self._complaints: list[str] = []
        self._frames_made = 0
        self._saw_loss = False

    def begin(self, spec: ModelSpec) -> None:
        """Show the model, open the run file, start the thread that delivers frames."""
        self.spec = spec
        try:
            if self.server is not None:
                self.server.begin(spec)
        except Exception as error:  # noqa: BLE001  # a spec that cannot be shown does not end training
            self.warn("begin", f"the model cannot be shown: {text_of(error)}")
        self.run = self._open_run(spec)
        sinks: list[FrameSink] = [_Store(self._history) if self.server is None else self.server]
        if self.run is not None:
            sinks.append(self.run)
        sinks.extend(CallableSink(function) for function in self._sinks)
        self._pump = FramePump(sinks, on_error=self._sink_failed, single=True)

    def _open_run(self, spec: ModelSpec) -> RunFile | None:
        """The run file; None where none is wanted or none can be made."""
        option = self._run_option
        if option is None or option is False:
            return None
        path = default_run_path(spec.name) if option is True else os.fspath(option)
        try:
            return RunFile(path, spec, resume=option is not True)
        except (OSError, ValueError) as error:
            self.warn("run file", f"no run file is written to {path!r}: {text_of(error)}")
            return None

    def frames(self) -> Sequence[HealthFrame]:
        """The frames that are kept, oldest first."""
        if self._pump is not None:
            self._pump.flush(_FLUSH_SECONDS)
        if self.server is None:
            return self._history.frames()
        self.server.health_since(sys.maxsize)  # waits until the bridge has stored what it was given
        kept: Sequence[HealthFrame] = self.server.history.frames()
        return kept

    @property
    def busy(self) -> float:
        """Seconds that the thread that delivers frames took so far."""
        return 0.0 if self._pump is None else self._pump.busy

    def push(self, frame: HealthFrame) -> None:
        """Give a frame to the thread that delivers it; without a model that was read there is none."""
        if self._pump is not None:
            self._pump.push_health(frame)

    def deliver(self, frame: HealthFrame) -> None:
        """Give a frame that was measured on its way."""
        self._frames_made += 1
        self._saw_loss = self._saw_loss or frame.loss is not None
        self.push(frame)

    def close(self) -> None:
        """Deliver what waits, close the run file and a bridge that was started here."""
        if self._pump is not None:
            self._pump.close(_CLOSE_SECONDS)
        with contextlib.suppress(OSError):
            if self.run is not None:
                self.run.close()
        if self._own_server and self.server is not None:
            self.server.close()
        self.voice()

    # ── what is said ──────────────────────────────────────────────────────────

    def warn(self, key: str, text: str) -> None:
        """Warn once about one thing; a filter that makes warnings errors does not end training."""
        if key in self._said:
            return
        self._said.add(key)
        try:
            warnings.warn(f"ptoa: {escape(text)}", PtoaWarning, stacklevel=2)
        except PtoaWarning as error:
            sys.stderr.write(f"{error}\n")

    def voice(self) -> None:
        """Say what failed on the other thread."""
        if self._complaints:
            waiting, self._complaints = self._complaints, []
            for text in waiting:
                self.warn(text, text)

    def _sink_failed(self, sink: FrameSink | None, error: BaseException) -> None:
        """Remember what failed on the other thread; it is said at the next step."""
        name = "a frame" if sink is None else _sink_name(sink, self.run)
        self._complaints.append(f"{name} gets no more frames: {text_of(error)}")

    def say_goodbye(self, step_count: int, paid: str | None = None) -> None:
        """Print what the watch leaves behind, and what it cost."""
        steps = f"{step_count} step{'' if step_count == 1 else 's'}"
        frames = f"{self._frames_made} frame{'' if self._frames_made == 1 else 's'}"
        dropped = f", {self._pump.dropped} dropped" if self._pump is not None and self._pump.dropped else ""
        where = f"; run file {escape(self.run.path)}" if self.run is not None else ""
        cost = "" if paid is None else f"; {paid}"
        hint = "; no loss was seen: hand it over with w.step(loss)"
        asked = hint if self._frames_made and not self._saw_loss else ""
        note(f"watched {steps}, {frames}{dropped}{where}{cost}{asked}")


class _Store:
    """A sink that keeps frames where there is no bridge."""

    def __init__(self, history: FrameHistory) -> None:
        """Keep them in ``history``."""
        self._history = history

    def push_health(self, frame: Any) -> None:
        """Keep one frame."""
        self._history.append(frame)

    def close(self) -> None:
        """Nothing to finish."""


def text_of(error: BaseException) -> str:
    """An exception on one line.

    Example:
        >>> text_of(ValueError("too long")), text_of(KeyboardInterrupt())
        ('ValueError: too long', 'KeyboardInterrupt')
    """
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _sink_name(sink: FrameSink, run: RunFile | None) -> str:
    """How a sink is called to the user."""
    return f"the run file {run.path!r}" if run is not None and sink is run else repr(sink)


def note(text: str) -> None:
    """Print one line; where nothing can be printed, nothing is."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.write(f"ptoa: {text}\n")
        sys.stdout.flush()
