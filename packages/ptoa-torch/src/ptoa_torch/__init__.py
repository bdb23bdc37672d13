"""Read PyTorch models and watch them train.

Importing this package imports no torch: each function below imports what it needs when it is
called, and says which extra to install where torch is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .capture import TraceWatch, capture, watch_trace
from .errors import ForwardError
from .extras import torch_needed
from .from_module import Analysis, analyze, from_module
from .inputs import Inputs

# `watch` names a module and a function: Python binds the module here once, when it is first
# imported, and the function takes the name for good.
from .watch import Watch, watch

if TYPE_CHECKING:
    from ptoa_core.frames import TensorStats

    from .roles import Matcher, Role

__all__ = [
    "Analysis",
    "ForwardError",
    "Inputs",
    "TraceWatch",
    "Watch",
    "analyze",
    "capture",
    "classify_module",
    "from_module",
    "register_matcher",
    "tensor_stats",
    "watch",
    "watch_trace",
]
__version__ = "0.2.0.dev0"


def tensor_stats(t: Any, hist: bool = True, sat: str | None = None) -> TensorStats:
    """Statistics of one tensor, see `ptoa_torch.stats.tensor_stats`.

    Args:
        t: Any tensor.
        hist: Whether to count a histogram of 32 bins.
        sat: ``tanh`` or ``sigmoid`` to count saturated values.

    Raises:
        MissingExtraError: If PyTorch is not installed.
    """
    with torch_needed("tensor_stats(tensor)"):
        from .stats import tensor_stats as measure
    return measure(t, hist, sat)


def classify_module(module: Any) -> Role:
    """What one module is drawn as, see `ptoa_torch.matchers.classify_module`.

    Args:
        module: Any ``torch.nn.Module``.

    Raises:
        MissingExtraError: If PyTorch is not installed.
    """
    with torch_needed("classify_module(module)"):
        from .matchers import classify_module as classify
    return classify(module)


def register_matcher(
    match: Any, name: str = "", *, kind: str | None = None, params: Any = None, label: Any = None
) -> Matcher:
    """Add a row of your own for a module, see `ptoa_torch.roles.register_matcher`.

    Args:
        match: With ``kind``: a class, a tuple of them, or a function from a module to True or False.
            Without: a function from a module to its `ptoa_torch.roles.Role`, or None to pass.
        name: What the row is about, for error messages.
        kind: The block's kind.
        params: The block's params, or a function from the module to them.
        label: What the block is called, or a function from the module to it.

    Returns:
        The row; ``row.remove()`` takes it out again.

    Raises:
        SettingError: If the row can never be used.
        MissingExtraError: If PyTorch is not installed.
    """
    with torch_needed("register_matcher(match)"):
        from .roles import register_matcher as register
    return register(match, name, kind=kind, params=params, label=label)
