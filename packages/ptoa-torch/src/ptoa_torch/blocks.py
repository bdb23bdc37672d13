"""From the one graph to the blocks of a spec.

Nodes are walked in the order in which they ran. Each value is carried by at most one unit: a
node that is drawn, a sublayer, an input, or a parameter that starts a path. What rearranges or
scales one stream is not drawn and carries on what it read; what joins two streams is drawn,
whatever it is called, so that no edge is ever lost or invented.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ptoa_core.spec import Block, BlockParams, ModelSpec, Origin

from .facts import ParameterCount, mark_repeats, tell_unused, unused_by_path, work_of
from .functions import NORMS
from .graph import Call, Graph, Value
from .matchers import activation_role
from .nodes import Node, Nodes, copied, has_bias, linear_sizes, parameter_reads, weight_read
from .regions import Region, activation_name, common_call, find_attention, find_experts, find_mlps

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .census import Census

__all__ = ["Drawing", "Unit", "draw"]

_LETTERS = {
    "tokens": "t", "input": "i", "embedding": "e", "posenc": "p", "attention": "a", "mlp": "m", "norm": "n",
    "add": "r", "linear": "l", "activation": "f", "unembed": "u", "softmax": "s", "loss": "x", "group": "g",
}  # fmt: skip
_DRAWN = frozenset(
    {
        "attention",
        "linear",
        "embedding",
        "norm",
        "activation",
        "softmax",
        "loss",
        "leaf",
        "core",
        "posenc",
        "mlp",
    }
)
_LOOKUPS = frozenset({"index_select", "embedding", "getitem", "gather", "take"})
# Kinds whose parameters are their own weights, not a stream that flows in.
_WEIGHTED = frozenset({"linear", "embedding", "norm", "leaf", "activation", "attention", "posenc", "mlp"})
# Of these, one operand alone is the stream.
_LAYERS = frozenset({"linear", "norm", "embedding"})


@dataclass(eq=False, slots=True)
class Unit:
    """One block in the making.

    Attributes:
        order: When its result was ready, in nodes.
        inputs: The units it reads, in the order of its arguments.
        value: What it makes, as a value of the graph.
        modules: Paths of the modules that it stands for; the first one is hooked.
        parameters: The parameters that belong to it, by id.
    """

    kind: str
    order: float
    label: str
    params: BlockParams
    scope: Call
    inputs: list[Unit] = field(default_factory=list)
    value: Value | None = None
    nodes: list[Node] = field(default_factory=list)
    region: Region | None = None
    modules: list[str] = field(default_factory=list)
    module: nn.Module | None = None
    parameters: dict[int, Tensor] = field(default_factory=dict)
    table: Value | None = None
    ordinal: int = 0
    id: str = ""


@dataclass(eq=False)
class Drawing:
    """A spec with what it was drawn from.

    Attributes:
        values: Block id to the value that the block makes.
        units: Block id to its unit.
    """

    spec: ModelSpec
    values: dict[str, Value]
    units: dict[str, Unit]
    dropped: list[str] = field(default_factory=list)


def _parameters(module: nn.Module) -> Iterable[nn.Parameter]:
    """A module's parameters; a layer without submodules is asked directly, which is much quicker."""
    if module._modules:
        return module.parameters()
    return [parameter for parameter in module._parameters.values() if parameter is not None]


class _Drawer:
    """Walks the nodes of a graph once and makes units of them."""

    def __init__(self, graph: Graph, parts: Census) -> None:
        self.graph = graph
        self.parts = parts
        self.nodes = Nodes(graph)
        self.units: list[Unit] = []
        self._carried: dict[int, Unit | None] = {}
        self._starts: dict[int, Unit] = {}
        self._opened: set[int] = set()
        self._regions: dict[int, Unit] = {}
        self._inputs: dict[int, Unit] = {}
        find_experts(self.nodes)
        find_attention(self.nodes)
        find_mlps(self.nodes)
        self._make_convex()

    # ── regions that can be one block ─────────────────────────────────────────

    def _make_convex(self) -> None:
        """Take into a region what lies on a way from one of its nodes to another."""
        regions = {id(node.region): node.region for node in self.nodes.all if node.region is not None}
        for region in regions.values():
            first, last = region.nodes[0].index, region.nodes[-1].index
            tainted: list[Node] = []
            marks: set[int] = set()
            for node in self.nodes.all[first : last + 1]:
                reached = any(s.region is region or s.index in marks for s in self.nodes.sources(node))
                if node.region is not region and reached:
                    marks.add(node.index)
                    tainted.append(node)
            self._absorb(region, tainted)

    def _absorb(self, region: Region, tainted: list[Node]) -> None:
        """Give a region the tainted nodes that lead back into it."""
        leads: set[int] = set()
        for node in reversed(tainted):
            if any(r.region is region or r.index in leads for r in self.nodes.readers(node)):
                leads.add(node.index)
        taken = [node for node in tainted if node.index in leads and node.region is None]
        for node in taken:
            node.region = region
        if taken:
            region.nodes = sorted([*region.nodes, *taken], key=lambda node: node.index)

    # ── what carries a value ──────────────────────────────────────────────────

    def carrier(self, value: Value) -> Unit | None:
        """The unit whose result a value is; None for constants."""
        if value.op is None:
            if value.source == "input":
                return self._input(value)
            return self._start(value) if value.source == "param" else None
        return self._carried.get(id(value))

    def _input(self, value: Value) -> Unit:
        """The unit of one of the model's inputs."""
        unit = self._inputs.get(id(value))
        if unit is None:
            place = next(
                (i for i, given in enumerate(self.graph.inputs) if given is value), len(self._inputs)
            )
            unit = Unit("input", -1e6 + place, value.name, BlockParams(), self.graph.root, value=value)
            if value.shape:
                unit.params.in_ = value.shape[-1]
            self._inputs[id(value)] = unit
            self.units.append(unit)
        return unit

    def _start(self, value: Value) -> Unit:
        """The unit of a parameter that starts a path: a class token, queries, latents."""
        unit = self._starts.get(id(value.tensor))
        if unit is None:
            shape = value.shape or ()
            params = BlockParams(d=shape[-1] if shape else None, extra={"type": "parameter"})
            unit = Unit(
                "embedding", -1e5 + len(self._starts), value.name, params, self.graph.root, value=value
            )
            unit.parameters[id(value.tensor)] = value.tensor
            self._starts[id(value.tensor)] = unit
        return unit

    def _is_start(self, unit: Unit | None) -> bool:
        """Whether a unit is a bare parameter that no block reads as a stream yet."""
        if unit is None or id(unit) in self._opened:
            return False
        return self._starts.get(next(iter(unit.parameters), 0)) is unit

    def bare(self) -> list[Unit]:
        """What is drawn of a model in which nothing ran: its inputs, else the model itself."""
        if self.graph.inputs:
            return [self._input(value) for value in self.graph.inputs]
        name = type(self.graph.model).__name__
        self.units.append(Unit("group", 0, name, BlockParams(extra={"type": name}), self.graph.root))
        return self.units

    # ── the walk ──────────────────────────────────────────────────────────────

    def walk(self) -> None:
        """Make a unit of every node that is drawn and carry the others' values on."""
        for node in self.nodes.all:
            if node.region is not None:
                unit: Unit | None = self._region_unit(node.region)
                self._read(unit, node)
            elif not (node.live or node.learned):
                unit = None
            elif node.kind in _DRAWN and (node.live or node.call is not None or node.kind != "leaf"):
                unit = self._node_unit(node)
                self._read(unit, node)
            else:
                unit = self._pass(node)
            for value in node.makes:
                self._carried[id(value)] = unit

    def _read(self, unit: Unit | None, node: Node) -> None:
        """Give a unit the inputs that a node of it reads."""
        if unit is None:
            return
        weighted = node.kind in _WEIGHTED or node.region is not None
        streams = [value for _, value in node.reads if self._flows(value)]
        for _, value in node.reads:
            if weighted and value.op is None and value.source == "param" and self._is_own(node, value):
                continue
            computed = bool(streams) and not self._flows(value)
            if computed and (
                node.kind in _LAYERS or (weighted and node.region is None and node.call is None)
            ):
                continue  # a weight or bias that was computed from parameters
            self._connect(unit, self.carrier(value))

    def _is_own(self, node: Node, value: Value) -> bool:
        """Whether a parameter is a node's own weight, and not what it is computed from."""
        if node.live or node.region is not None or node.call is None:
            return True
        return any(parameter is value.tensor for parameter in _parameters(node.call.module))

    def _flows(self, value: Value) -> bool:
        """Whether a value depends on the model's input."""
        maker = self.nodes.maker(value)
        return value.source == "input" if maker is None else maker.live

    def _connect(self, unit: Unit, source: Unit | None) -> None:
        """Add an edge, once."""
        if source is None or source is unit or source in unit.inputs:
            return
        if self._is_start(source):
            self._opened.add(id(source))
            self.units.append(source)
        unit.inputs.append(source)

    def _new(self, kind: str, node: Node, label: str, params: BlockParams) -> Unit:
        """A unit of one node."""
        unit = Unit(kind, node.index, label, params, node.scope, nodes=[node])
        unit.value = node.makes[0] if node.makes else None
        if node.call is not None:
            unit.module, unit.modules, unit.ordinal = node.call.module, [node.call.path], node.call.ordinal
            unit.parameters.update([(id(p), p) for p in _parameters(node.call.module)])
            returned = next((v for v in node.call.outputs if self.nodes.maker(v) is node), None)
            unit.value = returned or unit.value
        own = (*parameter_reads(node), *(node.views if node.kind in _WEIGHTED else ()))
        unit.parameters.update([(id(v.tensor), v.tensor) for v in own if self._is_own(node, v)])
        self.units.append(unit)
        return unit

    def _node_unit(self, node: Node) -> Unit:
        """The unit of a node that is drawn."""
        kind, params = _describe(node)
        label = (node.path if node.call is not None and node.path else "") or _function_label(node)
        if kind == "group":
            label = str(params.extra.get("type") or label)
        unit = self._new(kind, node, node.label or label, params)
        if kind == "embedding" and self._reads_positions(node):
            unit.kind = "posenc"
            unit.params = BlockParams(variant=self._table_variant(node), maxLen=params.vocab, d=params.d)
            unit.table = _weight_value(node)
        return unit

    def _region_unit(self, region: Region) -> Unit:
        """The unit of a sublayer."""
        unit = self._regions.get(id(region))
        if unit is not None:
            return unit
        call = region.call
        scope = call.parent if call is not None and call.parent is not None else _enclosing(region.nodes)
        label = call.path if call is not None else f"{scope.path or 'model'} {region.kind}"
        unit = Unit(
            region.kind, region.last.index, label, region.params, scope, nodes=region.nodes, region=region
        )
        unit.value = region.last.makes[0] if region.last.makes else None
        if call is not None:
            unit.module, unit.ordinal = call.module, call.ordinal
            unit.value = next(
                (v for v in call.outputs if (m := self.nodes.maker(v)) is not None and m.region is region),
                unit.value,
            )
        home = (
            call.path if call is not None else region.last.call.path if region.last.call is not None else None
        )
        held = [node.call.path for node in region.nodes if node.call is not None]
        unit.modules = list(dict.fromkeys(path for path in ([home] if home is not None else []) + held))
        for node in region.nodes:
            owned = _parameters(node.call.module) if node.call is not None else ()
            unit.parameters.update((id(p), p) for p in owned)
            unit.parameters.update((id(v.tensor), v.tensor) for v in (*parameter_reads(node), *node.views))
        if call is not None:
            unit.parameters.update(
                (id(p), p) for p in call.module.parameters() if _covers(region, self.nodes, call)
            )
        self._regions[id(region)] = unit
        self.units.append(unit)
        return unit

    def carriers(self, drawn: set[int]) -> dict[int, int]:
        """Identity of each value to that of the drawn unit that carries it."""
        return {
            key: id(unit) for key, unit in self._carried.items() if unit is not None and id(unit) in drawn
        }

    # ── nodes that are drawn only when they join streams ──────────────────────

    def _pass(self, node: Node) -> Unit | None:
        """Carry on what a node reads, or draw it where it joins streams."""
        carriers: list[tuple[Value, Unit]] = []
        for _, value in node.reads:
            unit = self.carrier(value)
            if unit is not None and all(unit is not other for _, other in carriers):
                carriers.append((value, unit))
        starts = [pair for pair in carriers if self._is_start(pair[1])]
        streams = [pair for pair in carriers if not self._is_start(pair[1])]
        if node.kind == "add" and len(node.reads) >= 1 and streams:
            placed = self._positions(node, streams, starts)
            if placed is not None:
                return placed
        if not streams:
            for _, other in starts[1:]:
                starts[0][1].parameters.update(other.parameters)
            return starts[0][1] if starts else None
        if starts and node.name not in (
            "cat",
            "stack",
            "where",
            "setitem",
            "copy",
            "index_put",
            "masked_scatter",
        ):
            if len(streams) == 1:
                return self._with_parameters(node, streams[0][1], [unit for _, unit in starts])
        elif len(carriers) == 1:
            return self._fixed_table(node, carriers[0][1]) or carriers[0][1]
        return self._join(node, [unit for _, unit in carriers])

    def _join(self, node: Node, sources: list[Unit]) -> Unit:
        """The unit of a node that joins streams."""
        kind = "add" if node.kind == "add" else "group"
        params = BlockParams() if kind == "add" else BlockParams(extra={"type": node.name})
        unit = self._new(kind, node, "residual add" if kind == "add" else node.name, params)
        for source in sources:
            self._connect(unit, source)
        return unit

    def _with_parameters(self, node: Node, stream: Unit, starts: list[Unit]) -> Unit:
        """A stream that meets parameters: a bias of the linear before it, or a group of its own."""
        one_row = all(p.ndim <= 1 for start in starts for p in start.parameters.values())
        if node.kind == "regroup" or (
            node.kind == "add" and stream.kind in ("linear", "unembed") and one_row and stream.region is None
        ):
            if node.kind == "add":
                stream.params.bias = True
                stream.value = node.makes[0] if node.makes else stream.value
            for start in starts:
                stream.parameters.update(start.parameters)
            return stream
        module = node.scope.module
        owned = any(id(p) in start.parameters for p in module.parameters(recurse=False) for start in starts)
        name = (
            type(module).__name__
            if owned and node.scope.parent is not None and next(module.children(), None) is None
            else node.name
        )
        unit = self._new("group", node, name, BlockParams(extra={"type": name}))
        if name != node.name:
            unit.modules, unit.module = [node.scope.path], module
        for start in starts:
            unit.parameters.update(start.parameters)
        self._connect(unit, stream)
        return unit

    # ── positions ─────────────────────────────────────────────────────────────

    def name_tables(self) -> None:
        """Make tables that only attention with relative positions reads blocks of positions."""
        readers: dict[int, list[Unit]] = {}
        for unit in self.units:
            for source in unit.inputs:
                readers.setdefault(id(source), []).append(unit)
        for unit in self.units:
            if unit.kind not in ("norm", "embedding") or any(n.live for n in unit.nodes):
                continue
            read_by = readers.get(id(unit), [])
            if read_by and all(r.params.extra.get("positions") == "relative" for r in read_by):
                shape = unit.value.shape if unit.value is not None else None
                for source in unit.inputs:
                    unit.parameters.update(source.parameters)
                unit.kind, unit.inputs = "posenc", []
                unit.params = BlockParams(
                    variant="learned", d=unit.params.d or (shape[-1] if shape else None)
                )
                unit.params.maxLen = shape[-2] if shape and len(shape) > 1 else None
                unit.params.extra["positions"] = "relative"

    def _reads_positions(self, node: Node) -> bool:
        """Whether an embedding is looked up at positions and not at tokens."""
        index = _looked_up(node)
        if index is None or self._is_plain_input(index):
            return index is not None and "position" in (self._plain_input_name(index) or "")
        counted = _counts_up(index.tensor)
        if counted is None:
            return "pos" in node.path.lower() or node.path.rpartition(".")[2] == "wpe"
        return counted

    def _table_variant(self, node: Node) -> str:
        """Whether an embedding's table was learned or made of sines."""
        weight = _weight_value(node)
        return "sinusoidal" if weight is not None and _is_sinusoidal(weight.tensor) else "learned"

    def _plain_input_name(self, value: Value) -> str | None:
        """The name of the input that a value is, seen through rearrangements."""
        while value.op is not None:
            node = self.nodes.maker(value)
            if node is None or node.kind != "regroup" or not node.reads:
                return None
            value = node.reads[0][1]
        return value.name if value.source == "input" else None

    def _is_plain_input(self, value: Value) -> bool:
        """Whether a value is an input of the model as it was given."""
        return self._plain_input_name(value) is not None

    def _positions(
        self, node: Node, streams: list[tuple[Value, Unit]], starts: list[tuple[Value, Unit]]
    ) -> Unit | None:
        """The position block that an addition makes, where one side of it is a table of positions."""
        tables = [unit for _, unit in streams if unit.kind == "posenc" and not self._used(unit)]
        others = [unit for _, unit in streams if unit not in tables]
        if len(tables) == 1 and len(others) == 1:
            return self._add_to_table(node, tables[0], others[0])
        if len(streams) != 1:
            return None
        shape = streams[0][0].shape
        if starts and len(starts) == 1 and _is_table(starts[0][0].shape, shape):
            return self._parameter_table(node, streams[0][1], starts[0][1])
        constant = next(
            (v for _, v in node.reads if self.carrier(v) is None and _is_table(v.shape, shape)), None
        )
        if constant is not None and _is_sinusoidal(constant.tensor):
            return self._constant_table(node, streams[0][1], constant)
        return None

    def _used(self, unit: Unit) -> bool:
        """Whether a position block already carries the stream."""
        return any(source.kind not in ("tokens", "input") for source in unit.inputs)

    def _add_to_table(self, node: Node, table: Unit, stream: Unit) -> Unit:
        """Let a position block read the stream that its table is added to."""
        table.inputs.insert(0, stream)
        table.order = node.index
        table.value = node.makes[0] if node.makes else table.value
        return table

    def _parameter_table(self, node: Node, stream: Unit, start: Unit) -> Unit:
        """The block of a parameter that is added as positions."""
        table = next(iter(start.parameters.values()))
        shape = tuple(table.shape)
        params = BlockParams(variant="learned", maxLen=shape[-2] if len(shape) > 1 else None, d=shape[-1])
        unit = self._new("posenc", node, start.label, params)
        unit.parameters.update(start.parameters)
        unit.table = start.value
        self._connect(unit, stream)
        return unit

    def _constant_table(self, node: Node, stream: Unit, value: Value) -> Unit:
        """The block of a fixed table that is added as positions."""
        shape = value.shape or ()
        params = BlockParams(variant="sinusoidal", d=shape[-1] if shape else None)
        held = self._longest_table(value)
        params.maxLen = held[-2] if held and len(held) > 1 else None
        home = node.scope
        label = home.path or "positions"
        unit = self._new("posenc", node, label, params)
        self._connect(unit, stream)
        return unit

    def _fixed_table(self, node: Node, index: Unit) -> Unit | None:
        """The block of a fixed table that is looked up at positions counted from the input."""
        table = node.reads[0][1]
        if node.name not in _LOOKUPS or len(node.reads) < 2 or self.carrier(table) is not None:
            return None
        if not table.shape or len(table.shape) < 2 or not _is_sinusoidal(table.tensor):
            return None
        params = BlockParams(variant="sinusoidal", maxLen=table.shape[-2], d=table.shape[-1])
        unit = self._new("posenc", node, node.scope.path or "positions", params)
        self._connect(unit, index)
        return unit

    def _longest_table(self, value: Value) -> tuple[int, ...] | None:
        """The shape of the buffer that a table was cut from."""
        seen = 0
        while value.op is not None and seen < 12:
            node = self.nodes.maker(value)
            if node is None or not node.reads:
                return value.shape
            value, seen = max((v for _, v in node.reads), key=lambda v: len(v.shape or ())), seen + 1
        return value.shape


# ── describing one node ──────────────────────────────────────────────────────


def _describe(node: Node) -> tuple[str, BlockParams]:
    """The kind and params of a drawn node."""
    if node.call is not None:
        return ("group" if node.kind == "leaf" else node.kind), copied(node.params)
    return _FUNCTIONS.get(node.kind, _group)(node)


def _group(node: Node) -> tuple[str, BlockParams]:
    module, extra = node.scope.module, {"type": node.name}
    if node.scope.parent is not None and any(
        id(v.tensor) in {id(p) for p in module.parameters(recurse=False)} for v in parameter_reads(node)
    ):
        extra["type"] = type(module).__name__
    return "group", BlockParams(extra=extra)


def _linear(node: Node) -> tuple[str, BlockParams]:
    width_in, width_out = linear_sizes(node)
    return "linear", BlockParams(in_=width_in, out=width_out, bias=bool(has_bias(node)))


def _embedding(node: Node) -> tuple[str, BlockParams]:
    weight = weight_read(node)
    shape = weight.shape if weight is not None and weight.shape else None
    return "embedding", BlockParams(vocab=shape[-2] if shape else None, d=shape[-1] if shape else None)


def _norm(node: Node) -> tuple[str, BlockParams]:
    variant = NORMS.get(node.name)
    if variant is None:
        return _group(node)
    weights = [v for v in parameter_reads(node) if v.shape]
    made = node.makes[0].shape if node.makes else None
    width = weights[0].shape[-1] if weights and weights[0].shape else made[-1] if made else None
    return "norm", BlockParams(d=width, variant=variant, bias=len(weights) > 1)


def _activation(node: Node) -> tuple[str, BlockParams]:
    role = activation_role(activation_name(node) or node.name, node.name)
    return role.kind or "group", BlockParams(variant=role.params.variant, extra=dict(role.params.extra))


def _softmax(node: Node) -> tuple[str, BlockParams]:
    return "softmax", BlockParams(extra={} if node.name == "softmax" else {"type": node.name})


def _loss(node: Node) -> tuple[str, BlockParams]:
    return "loss", BlockParams(extra={"type": node.name})


def _attention(node: Node) -> tuple[str, BlockParams]:
    return "attention", BlockParams(**{**node.params.__dict__, "extra": dict(node.params.extra)})


_FUNCTIONS = {
    "linear": _linear, "embedding": _embedding, "norm": _norm, "activation": _activation,
    "softmax": _softmax, "loss": _loss, "attention": _attention, "core": _attention,
}  # fmt: skip


def _function_label(node: Node) -> str:
    """What a function is called on its block: the parameter's home, else its own name."""
    weight = weight_read(node)
    if node.kind in ("linear", "embedding") and weight is not None and weight.name:
        return weight.name.removesuffix("weight").rstrip(".") or node.name
    return node.name


def _looked_up(node: Node) -> Value | None:
    """The indices that an embedding looks up, also where its module makes them."""
    for op in node.ops:
        if op.name == "embedding":
            return next((v for slot, v in op.inputs if slot in (0, "input")), None)
    return next((v for slot, v in node.reads if slot in (0, "input")), None)


def _weight_value(node: Node) -> Value | None:
    """The table of a position embedding."""
    weight = weight_read(node)
    if (
        weight is None
        and node.module is not None
        and isinstance(getattr(node.module, "weight", None), Tensor)
    ):
        return Value(source="param", tensor=node.module.weight)
    return weight


def _enclosing(nodes: list[Node]) -> Call:
    """The innermost call around nodes."""
    return common_call(nodes)


def _covers(region: Region, nodes: Nodes, call: Call) -> bool:
    """Whether a region holds every node of its call, so that all of the module's parameters are its own."""
    return all(node.region is region or not (node.live or node.learned) for node in nodes.inside(call))


# ── tables of positions ──────────────────────────────────────────────────────


def _is_table(table: tuple[int, ...] | None, stream: tuple[int, ...] | None) -> bool:
    """Whether a shape is that of one vector for each place of a stream."""
    if not table or not stream or len(table) < 2 or len(stream) < 2:
        return False
    if table[-1] != stream[-1] or table[-2] != stream[-2] or stream[-2] < 2:
        return False
    return all(size in (1, other) for size, other in zip(table[:-2][::-1], stream[:-2][::-1], strict=False))


def _counts_up(index: Any) -> bool | None:
    """Whether indices rise by one along some row; None where they cannot be looked at."""
    if not isinstance(index, Tensor) or index.device.type == "meta" or index.numel() == 0:
        return None
    if index.ndim == 0 or index.shape[-1] < 2:
        return None
    steps = index.detach().reshape(-1, index.shape[-1])[:64].diff(dim=-1)
    return bool((steps == 1).all(-1).any())


def _is_sinusoidal(table: Any) -> bool:
    """Whether every row is made of sine and cosine pairs: their squares add up to half the width."""
    if not isinstance(table, Tensor) or table.device.type == "meta" or not table.is_floating_point():
        return False
    rows = table.detach().reshape(-1, table.shape[-1])[:64].double()
    total = rows.square().sum(-1)
    if not bool(torch.isfinite(total).all()) or float(rows.abs().max()) > 1.0 + 1e-6:
        return False
    return bool(((total - table.shape[-1] / 2).abs() <= 1.0 + 1e-3 * table.shape[-1]).float().mean() > 0.9)


# ── the spec ─────────────────────────────────────────────────────────────────


def _live_units(units: list[Unit], outputs: list[Unit]) -> list[Unit]:
    """The units from which an output is reached."""
    kept: set[int] = set()
    stack = list(outputs)
    while stack:
        unit = stack.pop()
        if id(unit) not in kept:
            kept.add(id(unit))
            stack.extend(unit.inputs)
    return [unit for unit in units if id(unit) in kept]


def _sorted_units(units: list[Unit]) -> list[Unit]:
    """Units in topological order, the earlier ready first; a circle is opened before its earliest unit."""
    waiting = {id(unit): sum(1 for _ in unit.inputs) for unit in units}
    readers: dict[int, list[Unit]] = {}
    for unit in units:
        for source in unit.inputs:
            readers.setdefault(id(source), []).append(unit)
    heap = [(unit.order, place, unit) for place, unit in enumerate(units) if not unit.inputs]
    heapq.heapify(heap)
    done: list[Unit] = []
    placed: set[int] = set()
    count = len(units)
    while len(done) < len(units):
        if not heap:
            stuck = min((u for u in units if id(u) not in placed), key=lambda u: u.order)
            stuck.inputs = [source for source in stuck.inputs if id(source) in placed]
            heap.append((stuck.order, count, stuck))
        unit = heapq.heappop(heap)[2]
        if id(unit) in placed:
            continue
        done.append(unit)
        placed.add(id(unit))
        for reader in readers.get(id(unit), ()):
            waiting[id(reader)] -= 1
            if waiting[id(reader)] == 0:
                count += 1
                heapq.heappush(heap, (reader.order, count, reader))
    return done


def _mark_tokens(drawer: _Drawer) -> None:
    """Make inputs that an embedding looks up ``tokens``, with its vocabulary."""
    for unit in drawer.units:
        if unit.kind != "embedding" or not unit.nodes:
            continue
        for source in unit.inputs:
            dtype = source.value.dtype if source.value is not None else None
            if source.kind == "input" and (dtype is None or dtype.startswith(("int", "uint"))):
                source.kind, source.params = "tokens", BlockParams(vocab=unit.params.vocab)


def _mark_unembed(units: list[Unit], outputs: list[Unit]) -> None:
    """Make the linear layers that lead back to the vocabulary ``unembed``."""
    tables: dict[int, Unit] = {}
    for unit in units:
        if unit.kind == "embedding" and unit.nodes:
            for key in unit.parameters:
                tables.setdefault(key, unit)
    vocabularies = {
        unit.params.vocab
        for unit in units
        if unit.kind == "embedding" and any(s.kind == "tokens" for s in unit.inputs)
    }
    ends = _end_linears(outputs)
    for unit in units:
        if unit.kind != "linear":
            continue
        tied = next(
            (tables[key] for key, p in unit.parameters.items() if key in tables and p.ndim == 2), None
        )
        if tied is None and not (unit.params.out in vocabularies and id(unit) in ends):
            continue
        params = BlockParams(vocab=unit.params.out, d=unit.params.in_, extra=unit.params.extra)
        if tied is not None:
            params.extra["_tied"] = tied
        else:
            params.bias = unit.params.bias
        unit.kind, unit.params = "unembed", params


def _end_linears(outputs: list[Unit]) -> set[int]:
    """Ids of the linear units after which only functions without weights come."""
    ends: set[int] = set()
    stack, seen = list(outputs), set()
    while stack:
        unit = stack.pop()
        if id(unit) in seen:
            continue
        seen.add(id(unit))
        if unit.kind == "linear":
            ends.add(id(unit))
        elif unit.kind in ("loss", "softmax", "activation", "add", "group") and not unit.parameters:
            stack.extend(unit.inputs)
    return ends


def _containers(units: list[Unit]) -> tuple[list[Block], dict[int, str], dict[str, Call]]:
    """The groups around the units, outer before inner; the id for each call, and the call for each id."""
    needed: dict[int, Call] = {}
    for unit in units:
        call: Call | None = unit.scope
        while call is not None and call.parent is not None and call.index not in needed:
            needed[call.index] = call
            call = call.parent
    ids: dict[int, str] = {}
    blocks = []
    for index in sorted(needed):
        call = needed[index]
        ids[index] = f"g{len(ids)}"
        label = f"{call.path} ({type(call.module).__name__})"
        parent = ids.get(call.parent.index) if call.parent is not None else None
        blocks.append(Block(ids[index], "group", label=label, group=parent))
    return blocks, ids, {ids[index]: call for index, call in needed.items()}


def _finish_params(unit: Unit, graph: Graph, counts: dict[int, int], counted: ParameterCount) -> BlockParams:
    """The params of a block with what every block says of itself."""
    params, extra = unit.params, unit.params.extra
    tied = extra.pop("_tied", None)
    if tied is not None:
        params.tiedTo = tied.id
    home = unit.module if unit.module is not None or unit.region is None else unit.scope.module
    if unit.kind not in ("tokens", "input") and home is not graph.model and counts.get(id(home), 0) > 1:
        extra["calls"] = counts[id(home)]
    if unit.value is not None and unit.value.shape is not None:
        extra["shape"] = list(unit.value.shape)
        if unit.value.dtype:
            extra["dtype"] = unit.value.dtype
    if unit.parameters:
        extra["paramCount"], shared = counted.count(unit.id, unit.parameters)
        if shared is not None and tied is None:
            extra["sharedWith"] = shared
    return params


def draw(graph: Graph, name: str, source: str, parts: Census) -> Drawing:
    """The spec of a graph.

    Args:
        graph: What a reader recorded.
        name: The spec's name.
        source: Where the model comes from, ``module:QualName``.
        parts: What the model consists of.

    Returns:
        The spec, with `ModelSpec.bindings` from block to module path, and what each block stands for.
    """
    drawer = _Drawer(graph, parts)
    drawer.walk()
    drawer.name_tables()
    outputs = [unit for value in graph.outputs if (unit := drawer.carrier(value)) is not None]
    outputs = list(dict.fromkeys(outputs))
    if not drawer.units:
        outputs = drawer.bare()
    elif not outputs:
        outputs = [max(drawer.units, key=lambda unit: unit.order)]
    present = {id(unit) for unit in drawer.units}
    drawer.units.extend(unit for unit in outputs if id(unit) not in present)
    kept = _live_units(drawer.units, outputs)
    drawn = {id(unit) for unit in kept}
    dropped = [
        unit.label
        for unit in drawer.units
        if id(unit) not in drawn and unit.parameters and any(node.live for node in unit.nodes)
    ]
    _mark_tokens(drawer)
    _mark_unembed(kept, outputs)
    drawing = _assemble(drawer, _sorted_units(kept), outputs, name, source, dropped)
    for node in drawer.nodes.all:
        node.region = None  # a circle, which would wait for the cyclic collector
    return drawing


def _assemble(
    drawer: _Drawer, units: list[Unit], outputs: list[Unit], name: str, source: str, dropped: list[str]
) -> Drawing:
    """Number the units and write them down as blocks."""
    graph = drawer.graph
    blocks, groups, calls = _containers(units)
    numbers: dict[str, int] = {"g": len(blocks)}
    for unit in units:
        letter = _LETTERS.get(unit.kind, "g")
        unit.id = f"{letter}{numbers.get(letter, 0)}"
        numbers[letter] = numbers.get(letter, 0) + 1
    counts, counted = graph.calls_of(), ParameterCount()
    work = _work(drawer, units)
    first: dict[int, str] = {}
    bindings: dict[str, str] = {}
    for unit in units:
        params = _finish_params(unit, graph, counts, counted)
        if unit.module is not None:
            shared = first.setdefault(id(unit.module), unit.id)
            if shared != unit.id:
                params.extra["sharedWith"] = shared
        if work.get(id(unit)):
            params.extra["flops"] = work[id(unit)]
        params.extra["known"] = graph.known_of(unit.nodes[0].ops[0] if unit.nodes else None)
        if unit.modules:
            bindings[unit.id] = unit.modules[0]
        inputs = [source.id for source in unit.inputs if source.id]
        blocks.append(
            Block(unit.id, unit.kind, params, inputs, unit.label or None, groups.get(unit.scope.index))
        )
    mark_repeats(blocks, {block: id(call.module) for block, call in calls.items()})
    _place_unused(drawer, blocks, calls, counted)
    end = _main_output(outputs, units)
    spec = ModelSpec(name, blocks, end, Origin("torch", source), bindings=bindings)
    values = {unit.id: unit.value for unit in units if unit.value is not None}
    return Drawing(spec, values, {unit.id: unit for unit in units}, dropped)


def _work(drawer: _Drawer, units: list[Unit]) -> dict[int, int | None]:
    """Operations of the recorded pass by unit; nothing for a pass that did not run."""
    if drawer.graph.known != "run":
        return {}
    drawn = {id(unit) for unit in units}
    owners = {node.index: id(unit) for unit in units for node in unit.nodes}
    return work_of(drawer.nodes, owners, drawer.carriers(drawn))


def _place_unused(
    drawer: _Drawer, blocks: list[Block], calls: dict[str, Call], counted: ParameterCount
) -> None:
    """Count what no block holds with the innermost container around it, or with one for the model."""
    if not drawer.graph.outputs:  # the pass ended early: what did not run may well be used
        return
    by_path = {call.path: block for block, call in reversed(calls.items())}
    unused = unused_by_path(drawer.parts, counted, by_path)
    if "" in unused:
        outer = Block(f"g{sum(1 for block in blocks if block.kind == 'group')}", "group")
        outer.label = type(drawer.graph.model).__name__
        for block in blocks:
            block.group = block.group or outer.id
        blocks.insert(0, outer)
        by_path[""] = outer.id
    holders = {block.id: block for block in blocks}
    for path, rest in unused.items():
        tell_unused(holders[by_path[path]].params.extra, rest)


def _main_output(outputs: list[Unit], units: list[Unit]) -> str:
    """The id of the block that the model's first output comes from; a loss before anything else."""
    for unit in outputs:
        if unit.kind == "loss" and unit.id:
            return unit.id
    return next((unit.id for unit in outputs if unit.id), units[-1].id if units else "")
