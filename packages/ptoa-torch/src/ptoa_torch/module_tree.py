"""The fallback: a chain of blocks from the module tree alone, when nothing can be run or traced.

The tree says which modules there are and nothing about how they are connected, so the order of
definition stands in for the flow and every block is marked ``known`` "guessed".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from torch import nn

from .graph import Graph, GraphBuilder
from .matchers import classify_module

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["read_rest", "read_tree"]

_POSITION_NAME = re.compile(r"pos|wpe", re.IGNORECASE)


class _Mark:
    """Stands for a tensor that nobody has seen."""


def _blocks(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The outermost modules that are one block each, in the order of definition."""
    seen: set[int] = set()
    stack: list[tuple[str, nn.Module, bool]] = [("", model, True)]
    while stack:
        path, module, is_root = stack.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        role = classify_module(module)
        if role.role == "block" and not (is_root and next(module.children(), None) is not None):
            yield path, module
        elif role.role != "transparent":
            prefix = f"{path}." if path else ""
            stack.extend(
                (prefix + name, child, False) for name, child in reversed(list(module.named_children()))
            )


def _parents(path: str, model: nn.Module) -> list[tuple[str, nn.Module]]:
    """The callable modules around a path, outermost first; containers that are never called are left out."""
    found = []
    parts = path.split(".")
    for count in range(1, len(parts)):
        outer = ".".join(parts[:count])
        module = model.get_submodule(outer)
        if not isinstance(module, (nn.ModuleList, nn.ModuleDict)):
            found.append((outer, module))
    return found


def read_tree(model: nn.Module) -> Graph:
    """The module tree as a graph: blocks in the order of definition, one after the other.

    Embeddings read the input; the first other block reads what the embeddings make; losses and
    dropout are left out.

    Args:
        model: Any module. It is not run.

    Returns:
        A graph with ``known`` "guessed" and without shapes.
    """
    builder = GraphBuilder(model, "guessed", _Mark, lambda _mark: (None, None))
    given = _Mark()
    builder.add_input(given, "input")
    return builder.done(_chain(builder, _blocks(model), given, given))


def read_rest(builder: GraphBuilder) -> Graph:
    """The graph of a pass that failed, with the modules that it did not reach as a guess after it.

    Args:
        builder: What recorded the pass, up to its failure.

    Returns:
        Its graph. What ran is ``known`` "run"; the rest, in the order of definition, "guessed".
    """
    graph = builder.graph
    reached = {id(call.module) for call in graph.calls if call.end > call.start}
    builder.guess_on(_Mark)
    given, stream = _Mark(), _Mark()
    last = next((value for op in reversed(graph.ops) for value in reversed(op.outputs)), None)
    first = graph.inputs[0] if graph.inputs else builder.add_input(given, "input")
    builder.stand_for(given, first)
    builder.stand_for(stream, last or first)
    rest = ((path, module) for path, module in _blocks(graph.model) if id(module) not in reached)
    return builder.done(_chain(builder, rest, given, stream))


def _chain(builder: GraphBuilder, blocks: Iterable[tuple[str, nn.Module]], given: Any, stream: Any) -> Any:
    """Append blocks one after the other; return the stream after them."""
    opened: list[Any] = []
    for path, module in blocks:
        role = classify_module(module)
        if role.kind == "loss":
            continue
        _open(builder, opened, _parents(path, builder.graph.model) if path else [])
        stream = _step(builder, path, module, role.kind == "embedding", given, stream)
    while opened:
        builder.close(opened.pop())
    return stream


def _open(builder: GraphBuilder, opened: list[Any], wanted: list[tuple[str, nn.Module]]) -> None:
    """Close and open module calls until the wanted ones are open."""
    keep = 0
    while keep < min(len(opened), len(wanted)) and opened[keep].path == wanted[keep][0]:
        keep += 1
    while len(opened) > keep:
        builder.close(opened.pop())
    for path, module in wanted[keep:]:
        opened.append(builder.enter(module, path))


def _step(
    builder: GraphBuilder, path: str, module: nn.Module, is_table: bool, given: Any, stream: Any
) -> Any:
    """Append one block; return the stream after it."""
    reads_input = is_table and not _POSITION_NAME.search(path)
    call = builder.enter(module, path, [given if reads_input else stream]) if path else builder.graph.root
    if not path:
        call.arguments = [stream]
    made = _Mark()
    builder.leave(call, [made])
    if reads_input and stream is not given:
        op = builder.op("add", (stream, made), {})
        made = _Mark()
        builder.finish(op, [made])
    return made
