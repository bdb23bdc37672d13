"""A graph's operations gathered into nodes: one for each module or function that means something.

The operations inside a module that the table of matchers knows become one node; every other
operation is a node of its own with the role that its function has. Nothing is left out yet:
which nodes are drawn, and which only carry a value on, is decided in `blocks`.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import nn

from ptoa_core.spec import BlockParams

from .functions import (
    ACTIVATIONS,
    LEAF_FUNCTIONS,
    LINEAR,
    LOSSES,
    MATMUL,
    NORMS,
    REGROUP,
    SDPA,
    SOFTMAX,
    words,
)
from .matchers import Role, classify_module, leaf_role
from .roles import own_role

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .graph import Call, Graph, Op, Value

__all__ = [
    "Node",
    "Nodes",
    "copied",
    "has_bias",
    "linear_sizes",
    "parameter_reads",
    "structural_role",
    "weight_read",
]


@dataclass(eq=False, slots=True)
class Node:
    """One module call or function.

    Attributes:
        kind: A block kind, or ``regroup`` (same numbers, other arrangement), ``matmul``,
            ``core`` (scaled dot product attention), ``leaf`` (a group of its own) or ``arith``.
        scope: The module call that encloses it.
        reads: Values made outside of it, each with its place among the arguments.
        views: Parameters that it reads through a rearrangement, such as a transpose.
        live: Whether it depends on the model's input.
        learned: Whether it depends on a parameter.
        region: The sublayer it was found to belong to, if any.
        label: What a row of the user's own calls it.
    """

    index: int
    kind: str
    name: str
    scope: Call
    ops: list[Op]
    reads: list[tuple[int | str, Value]]
    makes: list[Value]
    call: Call | None = None
    params: BlockParams = field(default_factory=BlockParams)
    views: list[Value] = field(default_factory=list)
    live: bool = False
    learned: bool = False
    region: Any = None
    label: str | None = None

    @property
    def module(self) -> nn.Module | None:
        """The module it stands for, None for a function."""
        return None if self.call is None else self.call.module

    @property
    def path(self) -> str:
        """The module's path, or that of the module in which the function ran."""
        return self.scope.path if self.call is None else self.call.path


def copied(params: BlockParams) -> BlockParams:
    """Params of their own for a block, from those of a role that many share."""
    mine = BlockParams.__new__(BlockParams)
    mine.__dict__.update(params.__dict__)
    mine.extra = dict(params.extra)
    return mine


def parameter_reads(node: Node) -> list[Value]:
    """The parameters that a node reads directly."""
    return [value for _, value in node.reads if value.op is None and value.source == "param"]


_MAX_VIEWS = 12


class Nodes:
    """All nodes of a graph in the order in which they ran, and who reads whom.

    Args:
        graph: What a reader recorded.
    """

    def __init__(self, graph: Graph) -> None:
        """Gather operations into nodes and link them."""
        self.graph = graph
        self._roles: dict[int, Role | None] = {}
        self.all: list[Node] = []
        self._made_by: dict[int, Node] = {}
        self._readers: dict[int, list[Node]] = {}
        self._starts: list[int] = []
        owners = self._owners()
        place = 0
        while place < len(graph.ops):
            op = graph.ops[place]
            owner = owners[place]
            ops = [op] if owner is None else graph.ops[owner[0].start : owner[0].end]
            self._add(ops, owner)
            place += len(ops)

    # ── which calls are one node ──────────────────────────────────────────────

    def _owners(self) -> list[tuple[Call, Role] | None]:
        """For each operation the outermost call that is one node, with its role."""
        owners: list[tuple[Call, Role] | None] = [None] * len(self.graph.ops)
        for call in self.graph.calls:
            if call.start >= call.end or owners[call.start] is not None:
                continue
            role = self._role(call)
            if role is not None and role.role != "container":
                owners[call.start : call.end] = [(call, role)] * (call.end - call.start)
        return owners

    def _role(self, call: Call) -> Role | None:
        """The role of a call that is one node; None where its inside is looked at."""
        ops = self.graph.ops[call.start : call.end]
        if len(ops) == 1 and ops[0].opaque and ops[0].call is call:
            judged = classify_module(call.module)
            return (
                Role("block", "group", BlockParams(extra={"type": type(call.module).__name__}))
                if judged.role == "container"
                else judged
            )
        key = id(call.module)
        if key not in self._roles:
            self._roles[key] = leaf_role(call.module)
        role = self._roles[key]
        if role is not None and _does_otherwise(call.module, role, ops):
            return None
        if role is None and call.parent is not None and next(call.module.children(), None) is None:
            return structural_role(call.module, ops)
        return role

    # ── making nodes ──────────────────────────────────────────────────────────

    def _add(self, ops: list[Op], owner: tuple[Call, Role] | None) -> None:
        """Append the node of some operations."""
        if len(ops) == 1:
            reads, makes = list(ops[0].inputs), list(ops[0].outputs)
        else:
            reads, makes = _between(ops)
        node = (
            self._module_node(ops, owner, reads, makes)
            if owner
            else self._function_node(ops[0], reads, makes)
        )
        for _, value in reads:
            source = None if value.op is None else self._made_by.get(id(value))
            if source is None:
                node.live |= value.source == "input"
                node.learned |= value.source == "param"
            else:
                node.live |= source.live
                node.learned |= source.learned
                if source.kind == "regroup" and source.learned and not source.live:
                    node.views.extend(source.views or parameter_reads(source))
                self._readers.setdefault(source.index, []).append(node)
        self.all.append(node)
        self._starts.append(ops[0].index)
        for value in makes:
            self._made_by[id(value)] = node

    def _module_node(self, ops: list[Op], owner: tuple[Call, Role], reads: Any, makes: Any) -> Node:
        """A node that stands for a whole module call."""
        call, role = owner
        kind = "regroup" if role.role == "transparent" else role.kind or "group"
        kind = "leaf" if kind == "group" else kind
        name = type(call.module).__name__
        scope = call.parent or call
        return Node(len(self.all), kind, name, scope, ops, reads, makes, call, role.params, label=role.label)

    def _function_node(self, op: Op, reads: Any, makes: Any) -> Node:
        """A node that stands for one function."""
        kind = self._function_kind(op)
        return Node(len(self.all), kind, op.name, op.call, [op], reads, makes)

    def _function_kind(self, op: Op) -> str:
        """The role of a function, seen with its arguments."""
        name = op.name
        if name in MATMUL and self._weight_of(op) is not None:
            return "linear"
        for kind, names in _KINDS:
            if name in names:
                return kind
        return "arith"

    def _weight_of(self, op: Op) -> Value | None:
        """The matrix of parameters that a product multiplies with, if it does."""
        for _, value in op.inputs:
            if (
                value.op is None
                and value.source == "param"
                and value.shape is not None
                and len(value.shape) >= 2
            ):
                return value
            source = self._made_by.get(id(value))
            if source is not None and source.kind == "regroup" and self._is_of_parameters(source):
                return value
        return None

    def _is_of_parameters(self, node: Node) -> bool:
        """Whether a node only rearranges or scales parameters: a weight, no stream that starts with one."""
        at: Node | None = node
        for _ in range(_MAX_VIEWS):
            if at is None or at.live or not at.learned or at.kind not in ("regroup", "arith", "add"):
                return False
            if parameter_reads(at):
                return True
            at = next(
                (m for _, v in at.reads if (m := self._made_by.get(id(v))) is not None and m.learned), None
            )
        return False

    # ── asking ────────────────────────────────────────────────────────────────

    def maker(self, value: Value) -> Node | None:
        """The node that made a value; None for what was there before."""
        return self._made_by.get(id(value))

    def readers(self, node: Node) -> list[Node]:
        """The nodes that read what a node made."""
        return self._readers.get(node.index, [])

    def sources(self, node: Node) -> Iterable[Node]:
        """The nodes whose values a node reads."""
        for _, value in node.reads:
            source = self._made_by.get(id(value))
            if source is not None:
                yield source

    def inside(self, call: Call) -> list[Node]:
        """The nodes that ran inside a call."""
        low = bisect.bisect_left(self._starts, call.start)
        high = bisect.bisect_left(self._starts, call.end)
        return self.all[low:high]


def _between(ops: list[Op]) -> tuple[list[tuple[int | str, Value]], list[Value]]:
    """What several operations read from outside, each value once, and all that they make."""
    makes = [value for op in ops for value in op.outputs]
    seen = {id(value) for value in makes}
    reads: list[tuple[int | str, Value]] = []
    for op in ops:
        for slot, value in op.inputs:
            if id(value) not in seen:
                seen.add(id(value))
                reads.append((slot, value))
    return reads, makes


_KINDS: tuple[tuple[str, frozenset[str]], ...] = (
    ("regroup", REGROUP),
    ("linear", LINEAR),
    ("add", frozenset({"add"})),
    ("activation", frozenset(ACTIVATIONS)),
    ("core", SDPA),
    ("attention", frozenset({"multi_head_attention_forward", "_native_multi_head_attention"})),
    ("softmax", SOFTMAX),
    ("embedding", frozenset({"embedding"})),
    ("norm", frozenset(NORMS)),
    ("loss", LOSSES),
    ("matmul", MATMUL),
    ("leaf", LEAF_FUNCTIONS),
)


# ── custom modules without submodules ────────────────────────────────────────

_SPREAD = words(
    """
    rsqrt sqrt norm vector_norm linalg_vector_norm linalg_norm normalize layer_norm rms_norm var std
    var_mean group_norm batch_norm instance_norm pow square
    """
)
_MEAN = words(
    """
    mean norm vector_norm linalg_vector_norm linalg_norm normalize layer_norm rms_norm var std
    var_mean group_norm batch_norm instance_norm
    """
)
_CENTRED = frozenset(["sub", "var", "std", "var_mean"])
# Minus the mean, by the deviation: a norm whatever its class is called.
_STANDARDISED = frozenset(["mean", "sub", "div"])
_DEVIATION = frozenset(["std", "var", "sqrt"])
_LAYERS = frozenset(["linear", "norm", "embedding"])
_HEAVY = (
    LINEAR
    | MATMUL
    | SDPA
    | {"embedding", "multi_head_attention_forward", "softmax"}
    | {n for n in LEAF_FUNCTIONS if "conv" in n}
)


def _norm_role(module: nn.Module, ops: list[Op]) -> Role | None:
    """A normalisation written by hand: a spread of the input, and nothing heavier."""
    names = {op.name for op in ops}
    told = "norm" in type(module).__name__.lower() or names & {"rsqrt", "layer_norm", "rms_norm"}
    if not (names & _SPREAD and names & _MEAN) or not (
        told or (names >= _STANDARDISED and names & _DEVIATION)
    ):
        return None
    if any(max(p.ndim, 1) > 1 and p.numel() != max(p.shape) for p in module.parameters()):
        return None
    if names & {"group_norm", "batch_norm", "instance_norm"}:
        return Role("block", "group", BlockParams(extra={"type": type(module).__name__}))
    if "layer_norm" in names:
        variant = "layernorm"
    else:
        variant = "layernorm" if names & _CENTRED and "rms_norm" not in names else "rmsnorm"
    width = next((p.numel() for p in module.parameters()), None)
    if width is None:
        shape = next((value.shape for op in reversed(ops) for value in op.outputs if value.shape), None)
        width = shape[-1] if shape else None
    return Role(
        "block", "norm", BlockParams(d=width, variant=variant, bias=getattr(module, "bias", None) is not None)
    )


def _does_otherwise(module: nn.Module, role: Role, ops: list[Op]) -> bool:
    """Whether a forward of the user's own made a layer something else than its class says.

    It activates what the layer makes, multiplies with the weight twice, or never reads a parameter.
    """
    usual = len(ops) == 1 and (ops[0].opaque or ops[0].name in _HEAVY or ops[0].name in NORMS)
    if usual or not (role.kind in _LAYERS or isinstance(module, nn.modules.conv._ConvNd)):
        return False
    if own_role(module) is not None:
        return False
    weight = module._parameters.get("weight")
    if weight is None or any(op.opaque for op in ops):
        return False
    used = [op for op in ops if any(value.tensor is weight for _, value in op.inputs)]
    heavy = sum(op.name in _HEAVY or op.name in NORMS for op in used)
    activated = any(op.name in ACTIVATIONS for op in ops)
    return heavy > 1 or (heavy == 1 and activated) or not (used or _reads_parameters(ops))


def _reads_parameters(ops: list[Op]) -> bool:
    """Whether any of some operations reads a parameter, or does what a layer's weight is needed for."""
    return any(op.name in _HEAVY for op in ops) or any(
        value.op is None and value.source != "input" for op in ops for _, value in op.inputs
    )


_MAX_LOOP = 16


def _is_loop(names: list[str]) -> bool:
    """Whether the same functions run in the same order at least three times on end, as in a recurrence."""
    for length in range(3, min(_MAX_LOOP, len(names) // 3) + 1):
        same = 0
        for place in range(len(names) - length):
            same = same + 1 if names[place] == names[place + length] else 0
            if same == 2 * length and {"add", "mul"} <= set(names[place : place + length]):
                return True
    return False


def structural_role(module: nn.Module, ops: list[Op]) -> Role | None:
    """The role of a module without submodules, told by the functions that ran in it.

    Returns:
        A norm, a single linear, embedding or convolution, a group for longer arithmetic with
        parameters; None where its functions say more when they are seen one by one.
    """
    names = [op.name for op in ops]
    heavy = [name for name in names if name in _HEAVY]
    if not heavy:
        norm = _norm_role(module, ops)
        if norm is not None:
            return norm
    if next(module.parameters(), None) is None:
        return None
    if _is_loop(names):
        return Role("block", "group", BlockParams(extra={"type": type(module).__name__}))
    if heavy:
        return None
    arithmetic = [name for name in names if name not in REGROUP and name not in ("add", "cat", "interpolate")]
    if len(arithmetic) >= 3:
        return Role("block", "group", BlockParams(extra={"type": type(module).__name__}))
    return None


def weight_read(node: Node) -> Value | None:
    """The largest parameter that a linear node multiplies with."""
    weights = [value for value in parameter_reads(node) if value.shape is not None and len(value.shape) >= 2]
    weights += [value for value in node.views if value.shape is not None and len(value.shape) >= 2]
    return max(weights, key=lambda value: _numel(value.shape), default=None)


def _numel(shape: tuple[int, ...] | None) -> int:
    """How many numbers a shape holds."""
    total = 1
    for size in shape or ():
        total *= size
    return total


def linear_sizes(node: Node) -> tuple[int | None, int | None]:
    """The widths that a linear node reads and makes, from its module, its weight or its tensors."""
    if node.params.in_ is not None:
        return node.params.in_, node.params.out
    weight = weight_read(node)
    if node.name == "linear" and weight is not None and weight.shape is not None:
        return weight.shape[-1], weight.shape[-2]
    given = next(
        (v.shape for _, v in node.reads if v.source != "param" and v.shape and len(v.shape) > 1), None
    )
    width = given[-1] if given else None
    made = node.makes[0].shape if node.makes else None
    result = made[-1] if made else None
    if weight is None or weight.shape is None or not width or not result:
        return width, result
    # A product with heads on one side has their width there: the wider side is whole.
    total = _numel(weight.shape)
    return (width, total // width) if width >= result else (total // result, result)


def has_bias(node: Node) -> bool | None:
    """Whether a linear node adds a bias of its own."""
    if node.params.bias is not None:
        return node.params.bias
    return any(value.shape is not None and len(value.shape) == 1 for value in parameter_reads(node))
