"""From a model to its spec.

With an example input one recorded pass is what is drawn, and torch.fx is tried beside it on
models of moderate size as a second opinion. Without one the trace of torch.fx is drawn, and where
it fails the module tree, with a warning that its connections are a guess.

This module imports without torch; what needs it is in `reading`.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ptoa_core.errors import PtoaWarning

from .extras import torch_needed

if TYPE_CHECKING:
    from ptoa_core.spec import ModelSpec

__all__ = ["STRATEGIES", "Analysis", "analyze", "from_module"]

STRATEGIES = ("auto", "fx", "hooks", "tree")


@dataclass
class Analysis:
    """A spec with how it was read and the tensors that were seen.

    Attributes:
        spec: The model's spec.
        strategy: The reader that it stands on: ``fx`` (a trace, and with an example input one
            that the recorded pass confirmed), ``hooks`` (the recorded pass) or ``tree``.
        values: Block id to the tensor that the block made; empty without a recorded pass.
        aux: Block id to further things known of it: ``parameters`` (names of those of its parameters
            that lie in none of its modules), ``weights`` (attention probabilities, after
            softmax), ``scores`` (the same where a fused kernel kept them, to be computed again on
            demand), ``table`` (of positions), ``modules`` (paths of all its modules),
            ``inner`` (path of the module that computes an mlp's inner activation), ``hidden`` (that
            activation), ``function`` and ``inner_function`` (`places.FunctionPlace` of what a
            function computes), ``ops`` (numbers of an attention's operations in the pass), ``reads``
            (the tensors that it was made from).
        warnings: What a reader of the picture should know.
        output: What the model returned; None without a recorded pass.
    """

    spec: ModelSpec
    strategy: str
    values: dict[str, Any] = field(default_factory=dict)
    aux: dict[str, dict[str, Any]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    output: Any = None


def analyze(
    model: Any, example_input: Any = None, *, strategy: str = "auto", name: str | None = None
) -> Analysis:
    """Read a model: its spec, how it was read, and the tensors of the pass.

    Args:
        model: Any ``torch.nn.Module``. It is left exactly as it was; nothing is moved between devices.
        example_input: A tensor, a tuple of positional arguments, a mapping of keyword
            arguments, or `Inputs`; None to read without running.
        strategy: ``auto``; ``hooks`` for the recorded pass alone, ``fx`` for the trace alone,
            ``tree`` for the module tree.
        name: The spec's name; the class name by default.

    Returns:
        The analysis. Blocks in ``spec.bindings`` have a module whose path is given there.

    Raises:
        SettingError: If ``model`` is no module, the strategy is unknown, or ``hooks`` is asked
            for without an example input.
        ForwardError: If ``hooks`` is asked for and the model raises, or ``fx`` is asked for and
            it cannot be traced.
        MissingExtraError: If PyTorch is not installed.

    Source:
        README.md, "How a model becomes blocks".

    Example:
        >>> import torch
        >>> from torch import nn
        >>> found = analyze(nn.Sequential(nn.Linear(4, 8), nn.ReLU()), torch.ones(1, 4))
        >>> found.strategy, [block.kind for block in found.spec.blocks]
        ('fx', ['input', 'linear', 'activation'])
        >>> found.values["l0"].shape
        torch.Size([1, 8])
    """
    with torch_needed("analyze(model)"):
        from .reading import read
    return read(model, example_input, strategy, name, keep=True)


def from_module(
    model: Any, example_input: Any = None, *, strategy: str = "auto", name: str | None = None
) -> ModelSpec:
    """The spec of a model: its blocks and how they connect.

    Args:
        model: Any ``torch.nn.Module``. It is left exactly as it was; nothing is moved between devices.
        example_input: A tensor, a tuple of positional arguments, a mapping of keyword
            arguments, or `Inputs`; None to read without running.
        strategy: ``auto``, ``fx``, ``hooks`` or ``tree``, see `analyze`.
        name: The spec's name; the class name by default.

    Returns:
        The spec. ``bindings`` names the module behind each block that has one.

    Raises:
        SettingError: If an argument cannot be used.
        ForwardError: If one reader was asked for by name and it failed.
        MissingExtraError: If PyTorch is not installed.

    Warns:
        PtoaWarning: If the connections are a guess.

    Source:
        README.md, "How a model becomes blocks".

    Example:
        >>> import torch
        >>> from torch import nn
        >>> spec = from_module(nn.Sequential(nn.Linear(4, 8), nn.ReLU()), torch.ones(1, 4))
        >>> spec.output, spec.bindings
        ('f0', {'l0': '0', 'f0': '1'})
    """
    with torch_needed("from_module(model)"):
        from .reading import read
    found = read(model, example_input, strategy, name)
    if found.strategy == "tree" and strategy != "tree":
        warnings.warn("; ".join(found.warnings), PtoaWarning, stacklevel=2)
    return found.spec
