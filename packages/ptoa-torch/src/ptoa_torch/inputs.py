"""How a model is called: the one place that turns an example input into arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Inputs", "as_inputs"]


@dataclass
class Inputs:
    """The arguments of one forward pass, where a tensor, tuple or dict alone cannot say them.

    Attributes:
        args: Positional arguments.
        kwargs: Keyword arguments.

    Source:
        README.md, "What it does"; the compatibility page of version 0.1.0.

    Example:
        >>> Inputs((1,), {"mask": None}).kwargs
        {'mask': None}
    """

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


def as_inputs(example_input: Any) -> Inputs:
    """The arguments that an example input stands for.

    A tuple is the positional arguments, a mapping the keyword arguments, an `Inputs` both;
    anything else (a tensor, a list, a data object) is the one positional argument.

    Example:
        >>> as_inputs({"x": 1})
        Inputs(args=(), kwargs={'x': 1})
        >>> as_inputs([1, 2])
        Inputs(args=([1, 2],), kwargs={})
    """
    if isinstance(example_input, Inputs):
        return Inputs(tuple(example_input.args), dict(example_input.kwargs))
    if isinstance(example_input, tuple):
        return Inputs(example_input)
    if isinstance(example_input, Mapping):
        return Inputs((), {str(key): item for key, item in example_input.items()})
    return Inputs((example_input,))
