"""Waiting for Ctrl+C or SIGTERM, and ending a bridge cleanly when it comes."""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["stop_signals"]

# Windows does not wake a thread that waits for a lock when Ctrl+C is pressed.
_WAKE_SECONDS = 0.5


@contextlib.contextmanager
def stop_signals() -> Iterator[Callable[[], None]]:
    """Give a function that returns once the process was asked to end: Ctrl+C, SIGTERM, a closed terminal.

    The signals count from the moment the context is entered, so one that arrives while a server is
    still starting is not lost. Afterwards the handlers are as they were.
    """
    # put() may run in a signal handler while get() holds the queue; an Event would deadlock there.
    asked: queue.SimpleQueue[int] = queue.SimpleQueue()
    before = {}
    # Python lets only the main thread set handlers.
    if threading.current_thread() is threading.main_thread():
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            if hasattr(signal, name):
                number = getattr(signal, name)
                before[number] = signal.signal(number, lambda got, _frame: asked.put(got))
    try:
        yield lambda: _wait(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait(asked: queue.SimpleQueue[int]) -> None:
    """Return when something is in the queue."""
    while True:
        with contextlib.suppress(queue.Empty):
            asked.get(timeout=_WAKE_SECONDS)
            return
