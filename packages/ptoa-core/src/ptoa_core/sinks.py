"""What takes frames: the one interface between measuring a step and showing it.

The bridge, the run file and a user's own function are all sinks; what measures a step
knows nothing else of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from .encoded import EncodedFrame
from .frames import HealthFrame

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CallableSink", "FrameSink", "Pushable"]

# What a sink must be ready to take. An EncodedFrame is encoded once for all sinks.
Pushable = HealthFrame | EncodedFrame


class FrameSink(Protocol):
    """Anything that takes health frames.

    ``push_health`` may be called from a thread of ours, one call at a time. A sink that
    raises is left out from then on; training is never disturbed.
    """

    def push_health(self, frame: Pushable) -> None:
        """Take one frame."""

    def close(self) -> None:
        """Finish; no frame comes after this."""


class CallableSink:
    """A user's function as a sink: it is given each frame as a ``HealthFrame``.

    Args:
        fn: Called with one ``HealthFrame`` a frame, on a thread of ours.

    Example:
        >>> seen = []
        >>> CallableSink(seen.append).push_health(HealthFrame(0, 0.0, 1.5))
        >>> seen[0].loss
        1.5
    """

    def __init__(self, fn: Callable[[HealthFrame], object]) -> None:
        """Keep ``fn``."""
        self._fn = fn

    def push_health(self, frame: Pushable) -> None:
        """Call the function with the frame.

        Example:
            >>> CallableSink(lambda frame: print(frame.step)).push_health(HealthFrame(7, 0.0, None))
            7
        """
        self._fn(frame.decode() if isinstance(frame, EncodedFrame) else frame)

    def close(self) -> None:
        """Nothing to finish.

        Example:
            >>> CallableSink(print).close()
        """

    def __repr__(self) -> str:
        """Name the function, for a message about a sink that failed."""
        return f"CallableSink({getattr(self._fn, '__name__', self._fn)!r})"
