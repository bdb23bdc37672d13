"""Errors of reading a model, in the family of `ptoa_core.errors`.

::

    PtoaError
      ForwardError(PtoaError, RuntimeError)   the model's own forward raised; the cause is kept
"""

from __future__ import annotations

from typing import Any

from ptoa_core.errors import PtoaError

__all__ = ["ForwardError"]


class ForwardError(PtoaError, RuntimeError):
    """The model's forward raised on the example input.

    The message names the module, its class and the shapes it got; ``__cause__`` is the
    exception that the model raised, with its own traceback.

    Attributes:
        path: Dotted path of the innermost module that was running, ``""`` for the model itself.
        spec: What ran up to the failure, drawn; None where nothing ran.
    """

    def __init__(self, message: str, path: str = "", spec: Any = None) -> None:
        """Keep the place and what was drawn beside the message."""
        super().__init__(message)
        self.path = path
        self.spec = spec
