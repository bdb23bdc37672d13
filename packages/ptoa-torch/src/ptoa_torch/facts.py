"""What a drawing says of its blocks beside kind and edges: sizes, work, reuse and repetition.

Three things look alike in a picture and are not: one module that runs several times (`calls`),
a weight that two blocks have in common (`sharedWith`, and `tiedTo` of an output layer), and equal
blocks in a row, each with weights of its own (`repeats` and `repeatOf`). Each is marked as what
it is, and every parameter of the model is counted by exactly one block.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from ._compat import is_uninitialized
from .flops import flops_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import Tensor

    from ptoa_core.spec import Block

    from .census import Census
    from .nodes import Node, Nodes

__all__ = ["ParameterCount", "mark_repeats", "node_flops", "tell_unused", "unused_by_path", "work_of"]

_MAX_NAMED = 16
# Params that name another block, or the place of a block in the pass: equal blocks differ in them.
_OF_ONE_BLOCK = frozenset({"tiedTo", "sharedWith"})


# ── parameters ───────────────────────────────────────────────────────────────


class ParameterCount:
    """Counts each parameter once, with the first block that holds it."""

    def __init__(self) -> None:
        """Start with nothing counted."""
        self._holder: dict[int, str] = {}

    def count(self, block: str, parameters: Mapping[int, Tensor]) -> tuple[int, str | None]:
        """The numbers that are a block's own, and the block that it has some in common with.

        Args:
            block: The block's id.
            parameters: The parameters that it holds, by identity.
        """
        own = [p for key, p in parameters.items() if key not in self._holder and not is_uninitialized(p)]
        shared = next((self._holder[key] for key in parameters if key in self._holder), None)
        for key in parameters:
            self._holder.setdefault(key, block)
        return sum(int(p.numel()) for p in own), shared

    def __contains__(self, parameter: Tensor) -> bool:
        """Whether some block holds a parameter."""
        return id(parameter) in self._holder


def unused_by_path(
    parts: Census, counted: ParameterCount, paths: Iterable[str]
) -> dict[str, list[tuple[str, int]]]:
    """The parameters that no block holds, by the innermost of some module paths around them.

    Args:
        parts: What the model consists of.
        counted: What the blocks hold.
        paths: Paths of the modules that are drawn as containers.

    Returns:
        Path, ``""`` for the model itself, to ``(parameter's name, its count)``.
    """
    known = set(paths)
    found: dict[str, list[tuple[str, int]]] = {}
    for name, parameter in parts.parameters:
        if parameter in counted or is_uninitialized(parameter):
            continue
        home = name.rpartition(".")[0]
        while home and home not in known:
            home = home.rpartition(".")[0]
        found.setdefault(home, []).append((name, int(parameter.numel())))
    return found


def tell_unused(extra: dict[str, Any], rest: list[tuple[str, int]]) -> None:
    """Say on a container what of it no block holds."""
    extra["paramCount"] = sum(count for _, count in rest)
    names = list(dict.fromkeys(name.rpartition(".")[0] or name for name, _ in rest))
    extra["unused"] = [*names[:_MAX_NAMED], *(["…"] if len(names) > _MAX_NAMED else [])]


# ── work ─────────────────────────────────────────────────────────────────────


def node_flops(node: Node) -> int | None:
    """Operations of all functions of a node; None where one of them cannot be known."""
    total = 0
    for op in node.ops:
        count = flops_of(op)
        if count is None:
            return None
        total += count
    return total


def work_of(nodes: Nodes, owners: Mapping[int, int], carried: Mapping[int, int]) -> dict[int, int | None]:
    """Operations of the pass by block; what is not drawn counts with the block that carries or reads it.

    Args:
        nodes: The nodes of the pass.
        owners: Node's index to the key of the block that it is part of.
        carried: Identity of a value to the key of the block that carries it.

    Returns:
        Key to operations; None where part of a block's work cannot be known.
    """
    found: dict[int, int | None] = {}
    for node in nodes.all:
        count = node_flops(node)
        if count == 0:
            continue
        key = _owner(nodes, node, owners, carried)
        if key is not None:
            before = found.get(key, 0)
            found[key] = None if count is None or before is None else before + count
    return found


def _owner(nodes: Nodes, node: Node, owners: Mapping[int, int], carried: Mapping[int, int]) -> int | None:
    """The key of the block that a node's work counts with."""
    seen: set[int] = set()
    waiting = [node]
    while waiting:
        at = waiting.pop(0)
        if at.index in owners:
            return owners[at.index]
        held = next((carried[id(v)] for v in at.makes if id(v) in carried), None) if at is node else None
        if held is not None:
            return held
        seen.add(at.index)
        waiting.extend(reader for reader in nodes.readers(at) if reader.index not in seen)
    return None


# ── repetition ───────────────────────────────────────────────────────────────


def mark_repeats(blocks: list[Block], modules: Mapping[str, int]) -> None:
    """Mark equal containers in a row: the first says how many, the others which one they equal.

    Equal are two whose class is the same, and everything in them: kinds, labels and params.

    Args:
        blocks: The blocks of a spec, outer containers before inner ones before what is in them.
        modules: Container's id to the identity of its module; the same module again is no repetition.
    """
    children = _in_order(blocks, modules)
    signs: dict[str, int] = {}
    numbers: dict[tuple[Any, ...], int] = {}
    for block in reversed(blocks):
        if block.id in modules:
            inside = tuple(_sign(child, block, signs) for child in children.get(block.id, ()))
            kind = (block.label or "").rpartition(" (")[2]
            signs[block.id] = numbers.setdefault((kind, *inside), len(numbers))
    for inside_of in children.values():
        for sign, group in itertools.groupby(inside_of, key=lambda block: signs.get(block.id)):
            row = list(group)
            if sign is not None and len({modules[block.id] for block in row}) == len(row) > 1:
                row[0].params.extra["repeats"] = len(row)
                for block in row[1:]:
                    block.params.extra["repeatOf"] = row[0].id


def _in_order(blocks: list[Block], containers: Mapping[str, int]) -> dict[str | None, list[Block]]:
    """The blocks in each container, in the order of the first that runs in them."""
    by_id = {block.id: block for block in blocks}
    children: dict[str | None, list[Block]] = {}
    seen: set[str] = set()
    for leaf in blocks:
        block: Block | None = leaf if leaf.id not in containers else None
        while block is not None and block.id not in seen:
            seen.add(block.id)
            children.setdefault(block.group, []).append(block)
            block = by_id.get(block.group or "")
    return children


def _sign(child: Block, parent: Block, signs: Mapping[str, int]) -> Any:
    """What a child adds to its container's signature: its number, or kind, label, inputs and params."""
    if child.id in signs:
        return signs[child.id]
    path = (parent.label or "").rpartition(" (")[0]
    params = {k: str(v) for k, v in child.params.to_dict().items() if k not in _OF_ONE_BLOCK}
    return child.kind, (child.label or "").removeprefix(path), len(child.inputs), tuple(params.items())
