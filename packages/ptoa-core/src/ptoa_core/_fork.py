"""Objects with a lock or a thread, made fit for the child after ``os.fork``.

A child has one thread: the one that forked. A lock that another thread held stays locked
for ever in the child, and a file is still shared with the parent.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    """What a child must make new."""

    def _after_fork(self) -> None:
        """Renew locks, forget threads and files of the parent; called in the child only."""


_KNOWN: WeakSet[Forkable] = WeakSet()


def register(thing: Forkable) -> None:
    """Have ``_after_fork`` called in every child."""
    _KNOWN.add(thing)


def _in_child() -> None:
    """Tell every object that it is in a child."""
    for thing in list(_KNOWN):
        thing._after_fork()  # noqa: SLF001  # the protocol of this module


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
