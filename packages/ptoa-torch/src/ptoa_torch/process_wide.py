"""Settings of the whole process, changed while we need it by passes that may overlap in several threads.

Were each pass to put back what it found, the second of two that overlap would find the first
one's change, and leave it behind for good: a compiler that never compiles again, warnings
that nobody hears.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import TYPE_CHECKING

from .interrupts import surely

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

__all__ = ["ProcessWide", "deeper_calls"]

# A signal handler may read a model in the middle of either.
_lock = threading.RLock()


class ProcessWide:
    """A change of the whole process: made by the first thread that needs it, undone by the last that leaves.

    Args:
        change: Makes the change when it is entered and undoes it when it is left.

    Example:
        >>> @contextlib.contextmanager
        ... def louder():
        ...     print("on")
        ...     yield
        ...     print("off")
        >>> loud = ProcessWide(louder)
        >>> with loud(), loud():
        ...     print("both are inside")
        on
        both are inside
        off
    """

    def __init__(self, change: Callable[[], AbstractContextManager[object]]) -> None:
        """Change nothing yet."""
        self._change = change
        self._inside: set[object] = set()
        self._changed = contextlib.ExitStack()
        self._is_changed = False

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """The change holds inside."""
        token = object()
        try:
            with _lock:
                self._inside.add(token)
                if not self._is_changed:
                    self._is_changed = True
                    self._changed.enter_context(self._change())
            yield
        finally:
            surely(lambda: self._leave(token))

    def _leave(self, token: object) -> None:
        """Undo the change where nobody else needs it."""
        with _lock:
            self._inside.discard(token)
            if not self._inside and self._is_changed:
                self._changed.close()
                self._is_changed = False


@contextlib.contextmanager
def deeper_calls(frames: int) -> Iterator[None]:
    """Room for so many more Python calls on the stack; what several threads ask for is added up.

    Args:
        frames: How many.

    Example:
        >>> before = sys.getrecursionlimit()
        >>> with deeper_calls(100):
        ...     print(sys.getrecursionlimit() - before)
        100
    """
    taken = 0

    def give_back() -> None:
        nonlocal taken
        with _lock:
            sys.setrecursionlimit(sys.getrecursionlimit() - taken)
            taken = 0

    try:
        with _lock:
            sys.setrecursionlimit(sys.getrecursionlimit() + frames)
            taken = frames
        yield
    finally:
        surely(give_back)
