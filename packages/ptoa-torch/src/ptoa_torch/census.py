"""One look at every module, parameter and buffer of a model, shared by all that would look again.

Torch's own ``named_modules`` and its kin walk the tree by recursion, a generator for each level;
a reader that asks them ten times spends longer there than on reading.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["Census", "census"]


@dataclass(slots=True)
class Census:
    """What a model consists of, each part once, in the order in which torch names them.

    Attributes:
        modules: ``(path, module)``, the model itself first under ``""``.
        parameters: ``(name, parameter)``; a shared one under its first name.
        buffers: ``(name, buffer)``.
        depth: How many modules enclose the innermost one.
    """

    modules: list[tuple[str, nn.Module]] = field(default_factory=list)
    parameters: list[tuple[str, Tensor]] = field(default_factory=list)
    buffers: list[tuple[str, Tensor]] = field(default_factory=list)
    depth: int = 0


def census(model: nn.Module) -> Census:
    """Look at every part of a model, without calling any of its methods.

    Example:
        >>> from torch import nn
        >>> found = census(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, affine=False)))
        >>> [path for path, _ in found.modules], [name for name, _ in found.parameters]
        (['', '0', '1'], ['0.weight', '0.bias'])
        >>> [name for name, _ in found.buffers], found.depth
        (['1.running_mean', '1.running_var', '1.num_batches_tracked'], 1)
    """
    found = Census()
    seen: set[int] = set()
    stack: list[tuple[str, nn.Module, int]] = [("", model, 0)]
    while stack:
        path, module, depth = stack.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        found.modules.append((path, module))
        found.depth = max(found.depth, depth)
        prefix = f"{path}." if path else ""
        for held, into in ((module._parameters, found.parameters), (module._buffers, found.buffers)):
            for name, tensor in held.items() if held else ():
                if tensor is not None and id(tensor) not in seen:
                    seen.add(id(tensor))
                    into.append((prefix + name, tensor))
        children = module._modules
        if children:
            inner = [
                (prefix + name, child, depth + 1) for name, child in children.items() if child is not None
            ]
            stack.extend(reversed(inner))
    return found
