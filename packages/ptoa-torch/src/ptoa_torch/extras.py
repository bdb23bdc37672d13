"""The door to everything that needs PyTorch: where torch is missing, an error says which extra to install."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ptoa_core.errors import missing_extra

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["torch_needed"]


@contextlib.contextmanager
def torch_needed(needed_for: str) -> Iterator[None]:
    """Run imports that need torch; only torch itself missing is explained, other errors pass.

    Args:
        needed_for: What the user called, as they would write it.

    Raises:
        MissingExtraError: If torch is not installed.

    Example:
        >>> with torch_needed("capture(model, x)"):
        ...     import json
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise missing_extra("torch", needed_for) from None
