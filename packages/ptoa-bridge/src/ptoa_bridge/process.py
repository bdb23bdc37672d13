"""What a process does to the bridges in it: it ends, it is told to end, it forks.

- At the interpreter's end, after an error or Ctrl+C too, every bridge is closed, so that
  tabs get their ``bye``.
- SIGTERM, and SIGHUP when the terminal or the SSH session closes, end a Python process on
  the spot. Where nobody has a handler for one, and a bridge is started on the main thread,
  ours closes the bridges and then lets the signal end the process as it would have. It goes
  away with the last bridge.
- A forked child has copies of all sockets and none of the threads. It closes its copies
  without a word to the clients, who belong to the parent, so that the port is free as soon
  as the parent closes it. These signals end the child on the spot again, as whoever forked
  it (a data loader, say) expects; they are held back while the process forks, since Python
  forgets a signal that reaches a child before its first instruction.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import threading
from typing import TYPE_CHECKING, Protocol

from .server import making_sockets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType

    Handler = Callable[[int, FrameType | None], object] | signal.Handlers

__all__ = ["Closable", "discharge", "enlist"]

_SIGNAL_SECONDS = 1.0
_ENDING = {getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)}


class Closable(Protocol):
    """What this module asks of a bridge."""

    def close(self) -> None:
        """Say ``bye`` and end."""

    def hang_up(self) -> None:
        """Say ``bye`` and end, without what might wait for a lock."""

    def abandon(self) -> None:
        """In a child: let go of everything that is the parent's."""


_running: set[Closable] = set()
_masks: list[set[int]] = []


def enlist(bridge: Closable) -> None:
    """Have ``bridge`` closed with the process, and abandoned in its children."""
    _running.add(bridge)
    if _on_main_thread():
        _hand_over(_ENDING, signal.SIG_DFL, _on_ending)


def discharge(bridge: Closable) -> None:
    """Forget ``bridge``, and with the last one our handlers."""
    _running.discard(bridge)
    if not _running and _on_main_thread():
        _hand_over(_ENDING, _on_ending, signal.SIG_DFL)


def _on_main_thread() -> bool:
    """Whether handlers may be set here."""
    return threading.current_thread() is threading.main_thread()


def _ours() -> set[signal.Signals]:
    """The signals whose handler is ours."""
    return {number for number in _ENDING if signal.getsignal(number) is _on_ending}


def _hand_over(numbers: Iterable[signal.Signals], old: Handler, new: Handler) -> None:
    """Change the handlers of those signals that have the old one."""
    with contextlib.suppress(ValueError):  # in a subinterpreter no handler can be set
        for number in numbers:
            if signal.getsignal(number) is old:
                signal.signal(number, new)


def _close_all() -> None:
    """Close every bridge of this process."""
    for bridge in list(_running):
        bridge.close()


def _on_ending(number: int, _frame: FrameType | None) -> None:
    """Close the bridges, then end as the signal asks."""
    # On a thread of its own: the main thread may have been interrupted while it held a lock
    # that closing needs. Then the tabs at least are told.
    closing = threading.Thread(target=_close_all, name="ptoa-ending", daemon=True)
    with contextlib.suppress(RuntimeError):
        closing.start()
        closing.join(_SIGNAL_SECONDS)
    for bridge in list(_running):
        bridge.hang_up()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _before_fork() -> None:
    """Let no socket be made, and no signal be lost, while the process forks."""
    making_sockets.acquire()
    if _ours():
        _masks.append(set(signal.pthread_sigmask(signal.SIG_BLOCK, _ours())))


def _after_fork() -> None:
    """In the parent as in the child: go on."""
    while _masks:
        signal.pthread_sigmask(signal.SIG_SETMASK, _masks.pop())
    making_sockets.release()


def _in_child() -> None:
    """Leave the bridges to the parent."""
    for bridge in list(_running):
        bridge.abandon()
    _running.clear()
    _hand_over(_ENDING, _on_ending, signal.SIG_DFL)
    _after_fork()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)
