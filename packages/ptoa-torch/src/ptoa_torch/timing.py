"""When the parts of a step began and ended, without waiting for a device.

On the CPU the clock is the host's, and the time that measuring itself took is taken off. On
CUDA each mark is an event, whose times are read when the frame's numbers have arrived;
waiting for data happens on the host there too.
"""

from __future__ import annotations

import time
from typing import Any

import torch

__all__ = ["Stopwatch", "clock"]

clock = time.perf_counter

# A part of a step: its first mark and its last.
_PARTS = {
    "data": ("ended", "forward"),
    "forward": ("forward", "forwarded"),
    "backward": ("forwarded", "backwarded"),
    "optim": ("stepping", "stepped"),
}


class Stopwatch:
    """Marks of one step.

    Args:
        cuda: Whether the model is on a CUDA device.
        ended: When the step before ended, by `clock`; None where that is not known.

    Example:
        >>> watch = Stopwatch(cuda=False, ended=None)
        >>> watch.mark("stepping"); watch.mark("stepped")
        >>> list(watch.milliseconds())
        ['optim']
    """

    def __init__(self, cuda: bool, ended: float | None) -> None:
        """Start with the end of the last step."""
        self._marks: dict[str, float] = {} if ended is None else {"ended": ended}
        self._events: dict[str, Any] = {}
        self._cuda = cuda
        self._own: dict[str, float] = {}

    def mark(self, name: str, moment: float | None = None) -> None:
        """Note that something happens now, or happened at another moment; a second mark takes its place."""
        self._marks[name] = clock() if moment is None else moment
        if self._cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._events[name] = event

    def spent(self, part: str, seconds: float) -> None:
        """Take off time that measuring took inside a part."""
        self._own[part] = self._own.get(part, 0.0) + seconds

    def forget(self, part: str) -> None:
        """Take nothing off a part of what measuring took before it began."""
        self._own.pop(part, None)

    @property
    def own(self) -> float:
        """The seconds that measuring took, in whatever part."""
        return sum(self._own.values())

    def milliseconds(self) -> dict[str, float]:
        """The duration of each part whose two ends are known."""
        found: dict[str, float] = {}
        for part, (first, last) in _PARTS.items():
            if first in self._events and last in self._events:
                found[part] = max(0.0, self._events[first].elapsed_time(self._events[last]))
            elif first in self._marks and last in self._marks:
                seconds = self._marks[last] - self._marks[first] - self._own.get(part, 0.0)
                found[part] = max(0.0, seconds * 1000)
        return {part: round(value, 4) for part, value in found.items()}
