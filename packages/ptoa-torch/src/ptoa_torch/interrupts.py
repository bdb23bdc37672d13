"""Putting things back although Ctrl+C comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["surely"]


def surely(put_back: Callable[[], object]) -> None:
    """Put something back to the end, also when Ctrl+C comes meanwhile.

    Args:
        put_back: What puts it back; it may be begun again after it was interrupted.

    Example:
        >>> surely(lambda: print("put back"))
        put back
    """
    try:
        put_back()
    except KeyboardInterrupt:
        put_back()
        raise
