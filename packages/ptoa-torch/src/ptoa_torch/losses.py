"""Finding the loss in what a user has at hand, without keeping its graph alive."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

__all__ = ["loss_in_output", "loss_value"]


def loss_value(loss: Any) -> float | Tensor | None:
    """A loss as a number or as a tensor of one value cut from its graph; None where it is neither.

    A mapping gives what it holds under ``loss``, or its only value.

    Example:
        >>> loss_value({"loss": 0.5, "accuracy": 0.9})
        0.5
    """
    if isinstance(loss, Mapping):
        inner = loss.get("loss", next(iter(loss.values())) if len(loss) == 1 else None)
        return None if isinstance(inner, Mapping) and inner is loss else loss_value(inner)
    if isinstance(loss, Tensor):
        real = loss.numel() == 1 and not loss.is_complex()
        return loss.detach() if real else None
    try:
        return None if loss is None or isinstance(loss, (str, bytes)) else float(loss)
    except (TypeError, ValueError, OverflowError):
        return None


def loss_in_output(output: Any) -> Tensor | None:
    """The one scalar that a model returned to be trained on, cut from its graph; None where there is none.

    Looks at the output itself, at ``loss`` of a mapping or object, and at the members of a
    tuple or list; of several scalars none is taken.
    """
    if isinstance(output, Tensor):
        candidates: list[Any] = [output]
    elif isinstance(output, Mapping):
        candidates = [output.get("loss")]
    elif isinstance(output, (tuple, list)) and not hasattr(output, "loss"):
        candidates = list(output)
    else:
        candidates = [getattr(output, "loss", None)]
    scalars = [item for item in candidates if _is_scalar(item)]
    return scalars[0].detach() if len(scalars) == 1 else None


def _is_scalar(item: Any) -> bool:
    """Whether something is a loss that gradients come from."""
    return isinstance(item, Tensor) and item.requires_grad and math.prod(item.shape) == 1 and item.ndim <= 1
