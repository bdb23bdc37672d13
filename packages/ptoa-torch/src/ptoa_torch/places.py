"""Where a block lies that no module stands behind: which call of which function makes its value.

A residual add or ``F.relu`` is told apart from others like it by the module call in which it
runs and by how many calls of that function came before it there. Both are found again in any
later pass that runs the same way; `FunctionPlace.count` shows whether it did.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .graph import Graph, Value

__all__ = ["FunctionPlace", "Places"]


@dataclass(frozen=True)
class FunctionPlace:
    """One call of a torch function in a forward pass.

    Attributes:
        scope: Path of the module in whose forward it is written.
        ordinal: Which call of that module.
        name: The function's plain name.
        nth: Which call of that function there, from 0.
        count: How many calls of it there are there.
        output: Which of the tensors that it returns.
        inside: Paths of the modules that the scope calls.
    """

    scope: str
    ordinal: int
    name: str
    nth: int
    count: int
    output: int
    inside: tuple[str, ...]


class Places:
    """Finds the places of the values of one pass.

    Args:
        graph: The pass.
    """

    def __init__(self, graph: Graph) -> None:
        """Gather the calls of each function in each module call."""
        self._alike: dict[tuple[int, str], list[int]] = {}
        if graph.known != "guessed":
            for op in graph.ops:
                self._alike.setdefault((op.call.index, op.name), []).append(op.index)

    def of(self, value: Value | None, module: str | None = None) -> FunctionPlace | None:
        """The place of the function that made a value; None where a module call made it.

        Args:
            value: The block's value.
            module: Path of the module that stands behind the block, if one does.
        """
        op = None if value is None else value.op
        if value is None or op is None or op.opaque or not self._alike:
            return None
        call = op.call
        if module is not None and (not module or f"{call.path}.".startswith(f"{module}.")):
            return None
        alike = self._alike[call.index, op.name]
        return FunctionPlace(
            call.path,
            call.ordinal,
            op.name,
            alike.index(op.index),
            len(alike),
            next(place for place, made in enumerate(op.outputs) if made is value),
            tuple(dict.fromkeys(child.path for child in call.children)),
        )
