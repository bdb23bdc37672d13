"""Sublayers found by what flows through them: attention and feed-forward.

A sublayer is rarely one module of one class. Its projections may be fused, split over two
modules, or written inline in a layer's forward. What does not change is its flow: two
projections meet in a product, a softmax, and a product with a third; or a linear layer,
an activation and a linear layer back. So the flow is found first, grown to the projections,
and only then is asked whether one module call holds exactly that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ptoa_core.spec import BlockParams

from .functions import ACTIVATIONS, MATMUL
from .matchers import (
    activation_of,
    attention_by_attributes,
    causal_of,
    heads_of,
    is_mlp_name,
    kv_heads_of,
    set_activation,
)
from .nodes import Node, Nodes, copied, has_bias, linear_sizes, weight_read

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .graph import Call, Value

__all__ = [
    "Region",
    "activation_name",
    "common_call",
    "find_attention",
    "find_experts",
    "find_mlps",
    "parameter_only_rest",
]

_NEAR = 24
_PASSING = frozenset({"regroup", "norm", "arith"})
_SCALINGS = frozenset({"mul", "div", "sub", "neg"})
_CARRIERS = frozenset({"regroup", "arith", "add", "activation", "norm"})
_MAX_STEPS = 64


@dataclass(eq=False)
class Region:
    """Nodes that are one block.

    Attributes:
        kind: ``attention`` or ``mlp``.
        call: The module call that is this sublayer; None where it is written inline.
        last: The node whose result is the sublayer's.
        weights: The attention probabilities, where the pass computed them.
        scores: Query and key of a fused kernel without a mask of its own, with its causal flag.
    """

    kind: str
    nodes: list[Node]
    params: BlockParams
    call: Call | None
    last: Node
    weights: Value | None = None
    inner: Node | None = None

    def claim(self) -> None:
        """Mark the nodes as this region's."""
        for node in self.nodes:
            node.region = self


def common_call(nodes: Iterable[Node]) -> Call:
    """The innermost call that encloses all of the nodes."""
    calls = [node.scope for node in nodes]
    lowest = calls[0]
    for call in calls[1:]:
        a, b = lowest, call
        while a is not b:
            if a.index >= b.index:
                a = a.parent or a
            else:
                b = b.parent or b
            if a.parent is None and b.parent is None and a is not b:
                return a
        lowest = a
    return lowest


def _argument(node: Node, place: int, name: str) -> Value | None:
    """A function's argument by position or keyword, where it is a tensor."""
    return next((value for slot, value in node.reads if slot in (place, name)), None)


def _setting(node: Node, place: int, name: str) -> Any:
    """A function's argument by position or keyword, where it is no tensor."""
    for op in node.ops:
        if name in op.settings:
            return op.settings[name]
        if place in op.settings:
            return op.settings[place]
    return None


# ── attention ────────────────────────────────────────────────────────────────


@dataclass(eq=False)
class _Core:
    """Where queries, keys and values meet; ``beside`` cores like it where each head is a module."""

    seed: Node
    nodes: set[Node]
    query: Value | None
    key: Value | None
    value: Value | None
    last: Node
    weights: Value | None = None
    added: list[Value] = field(default_factory=list)
    mask: Value | None = None
    causal: bool | None = None
    others: list[Value] = field(default_factory=list)
    beside: int = 1


def _fused_core(node: Node) -> _Core:
    """The core of a fused kernel such as ``scaled_dot_product_attention``."""
    query = _argument(node, 0, "query") or _argument(node, 0, "q")
    key = _argument(node, 1, "key") or _argument(node, 1, "k")
    value = _argument(node, 2, "value") or _argument(node, 2, "v")
    mask = _argument(node, 3, "attn_mask")
    causal = _setting(node, 5, "is_causal") if node.name.startswith("scaled") else _setting(node, 5, "causal")
    core = _Core(node, {node}, query, key, value, node, mask=mask, causal=causal is True)
    if mask is not None:
        core.added = [mask]
        if not core.causal:
            core.causal = _mask_is_causal(mask.tensor)
    elif (
        not core.causal
        and query is not None
        and query.shape is not None
        and len(query.shape) > 2
        and query.shape[-2] < 2
    ):
        core.causal = None
    return core


def _mask_is_causal(mask: Any) -> bool | None:
    """Whether a mask hides exactly the future; None where its values cannot be looked at."""
    if not isinstance(mask, Tensor) or mask.device.type == "meta" or mask.ndim < 2:
        return None
    asked, seen = mask.shape[-2:]
    if asked < 2:
        return False if seen > 1 else None
    rows = mask.detach().reshape(-1, asked, seen)[:64]
    return _hides_the_future(rows if rows.dtype == torch.bool else rows > -1e4)


def _lower_triangle(allowed: Tensor) -> bool:
    """Whether some sample sees itself everywhere and never what comes after."""
    future = torch.triu(torch.ones(allowed.shape[-2:], dtype=torch.bool, device=allowed.device), 1)
    hidden = ~(allowed & future).flatten(1).any(1)
    itself = allowed.diagonal(dim1=-2, dim2=-1).all(-1)
    return bool((hidden & itself).any())


def _hides_the_future(allowed: Tensor) -> bool | None:
    """Whether what may be seen is the past alone; None where one query, or a band, leaves it open."""
    asked, seen = allowed.shape[-2:]
    if asked < 2:
        return None
    if asked == seen:
        return _lower_triangle(allowed)
    return False if bool(allowed[:, 0].all(-1).any()) else None


def _weights_are_causal(weights: Any) -> bool | None:
    """Whether probabilities are exactly zero on the future; None where they cannot be looked at."""
    if not isinstance(weights, Tensor) or weights.device.type == "meta" or weights.ndim < 3:
        return None
    return _hides_the_future(weights.detach().reshape(-1, *weights.shape[-2:])[:64] > 0)


def _products_above(nodes: Nodes, softmax: Node) -> tuple[list[Node], list[Node]]:
    """Products of two streams that a softmax is taken of, and the nodes between, oldest first."""
    seen: set[int] = set()
    stack = list(nodes.sources(softmax))
    between: list[Node] = []
    products: list[Node] = []
    while stack and len(seen) < _MAX_STEPS:
        node = stack.pop()
        if node.index in seen:
            continue
        seen.add(node.index)
        if node.kind == "matmul":
            products.append(node)
        elif node.kind in ("regroup", "arith", "add", "activation"):
            between.append(node)
            stack.extend(nodes.sources(node))
    made = {node.index for node in products}
    path = []
    for node in sorted(between, key=lambda node: node.index):
        if any(source.index in made for source in nodes.sources(node)):
            made.add(node.index)
            path.append(node)
    return products, path


def _product_below(nodes: Nodes, softmax: Node) -> tuple[Node, list[Node], Value] | None:
    """The product that takes a softmax's probabilities, with the nodes between and the probabilities."""
    stack = [softmax]
    chain: list[Node] = []
    carried = {id(value) for value in softmax.makes}
    while stack and len(chain) < _MAX_STEPS:
        node = stack.pop(0)
        for reader in nodes.readers(node):
            if reader.kind == "matmul":
                weights = next(value for _, value in reader.reads if id(value) in carried)
                return reader, chain, weights
            if reader.kind in ("regroup", "arith") and reader not in chain:
                chain.append(reader)
                carried.update(id(value) for value in reader.makes)
                stack.append(reader)
    return None


def _softmax_core(nodes: Nodes, softmax: Node) -> _Core | None:
    """The core of an attention written out: product, softmax, product."""
    products, above = _products_above(nodes, softmax)
    if not products:
        return None
    below = _product_below(nodes, softmax)
    if below is None:
        return None
    last, chain, weights = below
    carried = {id(value) for node in (softmax, *chain) for value in node.makes}
    value = next((value for _, value in last.reads if id(value) not in carried), None)
    first = min(products, key=lambda node: node.index)
    operands = [value for _, value in first.reads][-2:]
    if len(operands) < 2 or value is None:
        return None
    inside = {node.index for node in (*products, *above)}
    added = [v for node in (*above, *products) if node.kind == "add" for v in _outside(nodes, node, inside)]
    added += [
        v
        for node in products
        if node.name in ("baddbmm", "addmm")
        for slot, v in node.reads
        if slot in (0, "input")
    ]
    core = _Core(
        softmax,
        {softmax, *products, *above, *chain, last},
        operands[0],
        operands[1],
        value,
        last,
        weights,
        added,
    )
    # In training dropout lies between the two: what the product takes may be zero without being hidden.
    found = [_weights_are_causal(made.tensor) for made in (*softmax.makes, weights)]
    core.causal = True if True in found else next((one for one in found if one is not None), None)
    core.others = [value for node in products if node is not first for _, value in node.reads]
    return core


def _outside(nodes: Nodes, node: Node, inside: set[int]) -> list[Value]:
    """The values that a node reads from outside a set of nodes."""
    return [v for _, v in node.reads if (m := nodes.maker(v)) is None or m.index not in inside]


class _Growth:
    """Grows from a value up to the projections that it came through."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._known: dict[int, set[Node] | None] = {}

    def up(self, value: Value | None, depth: int = 0) -> set[Node] | None:
        """The nodes between a value and its projections; None where some way up has no projection."""
        node = None if value is None else self._nodes.maker(value)
        if node is None or node.region is not None or depth > _MAX_STEPS:
            return None
        if node.index not in self._known:
            self._known[node.index] = None
            self._known[node.index] = self._from(node, depth)
        return self._known[node.index]

    def _from(self, node: Node, depth: int) -> set[Node] | None:
        if node.kind == "linear" or _is_projection(node):
            return {node}
        if node.kind not in _CARRIERS and node.kind != "matmul":
            return None
        grown = {node}
        makers = [
            (value, maker) for _, value in node.reads if (maker := self._nodes.maker(value)) is not None
        ]
        # A table of positions is no stream, unless there is nothing else.
        streams = [value for value, maker in makers if maker.live] or [v for v, m in makers if m.learned]
        for value in streams:
            above = self.up(value, depth + 1)
            if above is None:
                return None
            grown |= above
        return grown if streams else None


def _is_projection(node: Node) -> bool:
    """Whether a convolution projects to queries, keys or values."""
    return node.kind == "leaf" and node.name.lower().startswith("conv")


def _projection_sizes(node: Node) -> tuple[int | None, int | None]:
    """The widths that a linear layer or a convolution reads and makes."""
    if node.kind == "linear":
        return linear_sizes(node)
    module = node.module
    if module is not None:
        return getattr(module, "in_channels", None), getattr(module, "out_channels", None)
    weight = weight_read(node)
    return (None, None) if weight is None or not weight.shape else (weight.shape[1], weight.shape[0])


def _joins(nodes: Nodes, add: Node, value: Value, inside: set[int]) -> bool:
    """Whether an addition takes a stream from outside of some nodes: what was given, or learned latents."""
    if value.source in ("param", "buffer", "const"):
        return False
    maker = nodes.maker(value)
    if maker is None or maker.index in inside:
        return maker is None
    return maker.live or (maker.learned and bool(add.makes) and value.shape == add.makes[0].shape)


def _is_sized(nodes: Nodes, call: Call, cores: list[_Core]) -> bool:
    """Whether a call is an attention sublayer and no more: no residual add or activation after the core."""
    after = {core.last.index for core in cores}
    own = _after_projections(nodes, call, cores)
    for node in nodes.inside(call):
        if not any(source.index in after for source in nodes.sources(node)):
            continue
        residual = node.kind == "add" and any(
            _joins(nodes, node, value, after | own) for _, value in node.reads
        )
        if residual or node.kind in ("activation", "loss", "embedding"):
            return False
        after.add(node.index)
    return True


def _after_projections(nodes: Nodes, call: Call, cores: list[_Core]) -> set[int]:
    """Indices of a call's nodes that come from the cores' projections: adding them stays inside."""
    growth = _Growth(nodes)
    own: set[int] = set()
    for value in (value for core in cores for value in (core.query, core.key, core.value)):
        own |= {n.index for n in growth.up(value) or () if n.kind == "linear" or _is_projection(n)}
    for node in nodes.inside(call):
        if any(source.index in own for source in nodes.sources(node)):
            own.add(node.index)
    return own - {node.index for core in cores for node in core.nodes}


def _fill(nodes: Nodes, call: Call, core: _Core) -> list[Node]:
    """The nodes of an attention-sized call without norms that belong to the layer around it."""
    inside = [node for node in nodes.inside(call) if node.region is None]
    projected: set[int] = set()
    for node in inside:
        if (
            node.kind == "linear"
            or _is_projection(node)
            or any(s.index in projected for s in nodes.sources(node))
        ):
            projected.add(node.index)
    leads: set[int] = set()
    for node in reversed(inside):
        if node.kind == "linear" or node is core.last or any(r.index in leads for r in nodes.readers(node)):
            leads.add(node.index)
    return [n for n in inside if n.kind != "norm" or (n.index in projected and n.index in leads)]


def _output_projection(nodes: Nodes, core: _Core, width: int | None) -> list[Node]:
    """The linear layer after a core, with what lies between, where it projects back to the stream."""
    chain: list[Node] = []
    node = core.last
    for _ in range(12):
        readers = {reader.index: reader for reader in nodes.readers(node)}
        if len(readers) != 1:
            return []
        node = next(iter(readers.values()))
        chain.append(node)
        if node.kind == "linear":
            return chain if width is None or linear_sizes(node)[1] == width else []
        if node.kind != "regroup":
            return []
    return []


def _first_linear(nodes: Nodes, value: Value | None, region: set[Node]) -> Node | None:
    """The linear node nearest above a value, inside a region."""
    node = None if value is None else nodes.maker(value)
    seen: set[int] = set()
    stack = [node] if node else []
    while stack:
        node = stack.pop(0)
        if node.index in seen or node not in region:
            continue
        if node.kind == "linear" or _is_projection(node):
            return node
        seen.add(node.index)
        stack.extend(nodes.sources(node))
    return None


def _entry_width(nodes: Nodes, linear: Node | None, region: set[Node]) -> int | None:
    """The width of the stream that a projection reads, through further projections below it."""
    while linear is not None:
        below = next(
            (
                above
                for _, value in linear.reads
                if (above := _first_linear(nodes, value, region)) is not None
            ),
            None,
        )
        if below is None:
            return _projection_sizes(linear)[0]
        linear = below
    return None


def _heads(core: _Core, call: Call | None, query_width: int | None) -> int | None:
    """The number of heads: from the shapes that met, else from what the module says."""
    told = None
    at: Call | None = call or core.seed.scope
    for _ in range(3):
        if told is None and at is not None and at.parent is not None:
            told, at = heads_of(at.module), at.parent
    size = core.query.shape[-1] if core.query is not None and core.query.shape else None
    if told is not None and size is not None and query_width == told * size:
        return told
    if core.weights is not None and core.weights.shape is not None:
        shape = core.weights.shape
        return (
            shape[-3]
            if len(shape) == 4
            else told
            if told is not None
            else shape[-3]
            if len(shape) > 4
            else _ratio(query_width, core)
        )
    if core.query is not None and core.query.shape is not None and len(core.query.shape) >= 4:
        return core.query.shape[-2 if core.seed.name.startswith("flash") else -3]
    return told if told is not None else _ratio(query_width, core)


def _query_width(nodes: Nodes, core: _Core, members: set[Node], query: Node | None) -> int | None:
    """The width of the queries; of a projection that makes keys and values as well, their part of it."""
    width = _projection_sizes(query)[1] if query else None
    shape = core.query.shape if core.query is not None else None
    if width is None or not shape or len(shape) > 3:
        return width
    parts = 1 + sum(_first_linear(nodes, value, members) is query for value in (core.key, core.value))
    # Queries that are the keys too, whole, come from one projection as well.
    return width // parts if width >= parts * shape[-1] else width


def _head_size(core: _Core, heads: int | None, width: int | None) -> int | None:
    """The size of a head: the last axis of the query, or the one before where positions come last."""
    shape = core.query.shape if core.query is not None else None
    if not shape:
        return None
    if width and heads and width % (heads * max(shape[-1], 1)) and len(shape) > 2:
        return shape[-2] if width % (heads * max(shape[-2], 1)) == 0 else None
    return shape[-1]


def _ratio(width: int | None, core: _Core) -> int | None:
    """Heads as the query projection's width over the width that met, for heads folded in the batch."""
    shape = core.query.shape if core.query is not None else None
    if width is None or not shape or not shape[-1] or width % shape[-1]:
        return None
    return width // shape[-1]


def _kv_heads(nodes: Nodes, core: _Core, region: set[Node], heads: int, call: Call | None) -> int | None:
    """The number of key heads: from the widths of the projections, else from what the module says."""
    q, k, v = (_first_linear(nodes, value, region) for value in (core.query, core.key, core.value))
    size = core.query.shape[-1] if core.query is not None and core.query.shape else None
    if k is not None and v is not None and _is_latent(nodes, k, v, q, region):
        return heads  # every head has keys and values of its own, made from the latent
    if size and k is not None and q is not None:
        width = _projection_sizes(k)[1] or 0
        parts, spare = divmod(width, size)
        if spare == 0 and k is not q and k is not v and parts and heads % parts == 0:
            return parts
        if spare == 0 and k is q and q is v and parts > heads and (parts - heads) % 2 == 0:
            return (parts - heads) // 2
        if spare == 0 and k is v and k is not q and parts % 2 == 0 and heads % (parts // 2) == 0:
            return parts // 2
    module = (call or core.seed.scope).module
    return kv_heads_of(module)


def _is_latent(nodes: Nodes, key: Node, value: Node, query: Node | None, region: set[Node]) -> bool:
    """Whether keys and values are projected from something narrow that was projected before."""
    if key is query:
        return False
    below = [_first_linear(nodes, read, region) for _, read in value.reads]
    return any(one is not None and (one is key or key is value) for one in below)


def _is_rotation(nodes: Nodes, node: Node) -> bool:
    """Whether a node on the way to the scores turns queries: a sum of two products, or complex numbers."""
    if node.name in ("view_as_complex", "apply_rotary_emb"):
        return True
    if node.kind != "add" and node.name not in ("sub", "addcmul"):
        return False
    makers = [nodes.maker(value) for _, value in node.reads]
    # Both sides hold the query; a learned bias that is added to it turns nothing.
    return len(makers) == 2 and all(m is not None and m.name == "mul" and m.live for m in makers)


def _added_positions(nodes: Nodes, value: Value) -> str | None:
    """What a term that is added to the scores says of positions."""
    maker = nodes.maker(value)
    if value.source == "param" or (maker is not None and maker.learned and (not maker.live or maker.region)):
        return "relative"
    if maker is not None and maker.live and maker.learned and _comes_from_a_table(nodes, maker):
        return "relative"
    return "alibi" if _is_alibi(value.tensor) else None


def _comes_from_a_table(nodes: Nodes, node: Node) -> bool:
    """Whether a bias of the scores is looked up in a table, or made of queries and a table of positions."""
    seen: set[int] = set()
    stack = [node]
    while stack and len(seen) < _MAX_STEPS:
        at = stack.pop()
        if at.index in seen:
            continue
        seen.add(at.index)
        learned = [m for m in nodes.sources(at) if m.learned and not m.live]
        if at.kind == "embedding" or (at.name in MATMUL and learned):
            return True
        if at.kind in ("regroup", "arith", "add"):
            stack.extend(nodes.sources(at))
    return False


def _positions(nodes: Nodes, core: _Core, chain: set[Node], calls: set[Call]) -> str | None:
    """How positions enter the scores: rotated queries, or a term added to the scores."""
    if any(_is_rotation(nodes, node) for node in chain):
        return "rotary"
    if core.others:
        return "relative"
    found = [said for value in core.added if (said := _added_positions(nodes, value)) is not None]
    if found:
        return found[0]
    return "rotary" if any("rotary" in type(call.module).__name__.lower() for call in calls) else None


def _is_alibi(bias: Any) -> bool:
    """Whether an additive term falls or rises linearly with the key's position."""
    if (
        not isinstance(bias, Tensor)
        or bias.device.type == "meta"
        or not bias.is_floating_point()
        or bias.ndim < 2
        or bias.shape[-1] < 4
    ):
        return False
    row = bias.detach().reshape(-1, bias.shape[-1])[-1].double()
    row = row[row > -1e4]
    if row.numel() < 4:
        return False
    steps = row.diff()
    slope = steps.mean()
    return bool(slope.abs() > 1e-9 and (steps - slope).abs().max() < 1e-2 * slope.abs())


def _attention_params(
    nodes: Nodes, core: _Core, members: set[Node], call: Call | None, chain: set[Node]
) -> BlockParams:
    """What is known of an attention block."""
    query = _first_linear(nodes, core.query, members)
    params = BlockParams(d=_entry_width(nodes, query, members), causal=core.causal)
    if params.d is None and core.query is not None and core.query.shape:
        shape = core.query.shape
        params.d = shape[-1] * shape[-3] if len(shape) == 4 else shape[-1]
    params.heads = _heads(core, call, _query_width(nodes, core, members, query))
    if query is not None:
        params.bias = has_bias(query)
    if params.causal is None:
        params.causal = causal_of((call or core.seed.scope).module)
    if params.heads:
        kv_heads = _kv_heads(nodes, core, members, params.heads, call)
        if kv_heads is not None and 0 < kv_heads != params.heads:
            params.extra["kvHeads"] = kv_heads * core.beside
    size = _head_size(core, params.heads, _projection_sizes(query)[1] if query else None)
    if size is not None:
        params.extra["headDim"] = size
    if params.heads:
        params.heads *= core.beside
    positions = _positions(nodes, core, chain, {node.scope for node in members})
    if positions:
        params.extra["positions"] = positions
    return params


def _attention_region(nodes: Nodes, cores: list[_Core]) -> Region | None:
    """The attention block around cores of one call."""
    core = cores[0]
    growth = _Growth(nodes)
    members: set[Node] = {node for c in cores for node in c.nodes}
    chain = growth.up(core.query) or set()
    for c in cores:
        for value in (c.query, c.key, c.value, *c.others):
            members |= growth.up(value) or set()
    call = common_call(members)
    members |= {
        node
        for c in cores
        for value in c.added
        for node in _tables(nodes, value)
        if call.start <= node.ops[0].index < call.end
    }
    sized = call.parent is not None and _is_sized(nodes, call, cores)
    if sized:
        members |= set(_fill(nodes, call, core))
    query = _first_linear(nodes, core.query, members)
    width = _projection_sizes(query)[0] if query else None
    projection = (
        []
        if _leads_to_linear(nodes, core.last, members)
        else _output_projection(nodes, core, _entry_width(nodes, query, members) or width)
    )
    members |= set(projection)
    params = _attention_params(nodes, core, members, call if sized else None, chain)
    last = projection[-1] if projection else max(members, key=lambda node: node.index) if sized else core.last
    ordered = sorted(members, key=lambda node: node.index)
    weights = core.weights if core.beside == 1 else None
    return Region("attention", ordered, params, call if sized else None, last, weights)


def _tables(nodes: Nodes, value: Value) -> list[Node]:
    """The nodes that compute a learned bias of the scores from parameters alone."""
    found: list[Node] = []
    seen: set[int] = set()
    stack = [nodes.maker(value)]
    while stack:
        node = stack.pop()
        if node is None or node.live or not node.learned or node.region is not None or node.index in seen:
            continue
        seen.add(node.index)
        found.append(node)
        stack.extend(nodes.sources(node))
    return found


def _leads_to_linear(nodes: Nodes, node: Node, members: set[Node]) -> bool:
    """Whether a linear node follows inside a region."""
    seen: set[int] = set()
    stack = [node]
    while stack:
        for reader in nodes.readers(stack.pop()):
            if reader in members and reader.index not in seen:
                if reader.kind == "linear":
                    return True
                seen.add(reader.index)
                stack.append(reader)
    return False


def _mha_settings(node: Node) -> None:
    """What a call of ``nn.MultiheadAttention`` says of its mask."""
    for op in node.ops:
        mask = next((value for slot, value in op.inputs if slot == "attn_mask"), None)
        if op.name != "multi_head_attention_forward":
            continue
        if op.settings.get("is_causal") is True:
            node.params.causal = True
        else:
            node.params.causal = False if mask is None else _mask_is_causal(mask.tensor)


def find_attention(nodes: Nodes) -> list[Region]:
    """Every attention sublayer of a pass, claimed and in order.

    Args:
        nodes: The nodes of the pass.

    Returns:
        Regions with heads, width, causal flag and positions filled in as far as they are known.
    """
    by_call: dict[int, list[_Core]] = {}
    taken: set[int] = set()
    for node in nodes.all:
        if node.kind == "attention" and node.call is not None:
            node.params = copied(node.params)
            _mha_settings(node)
        core = (
            _fused_core(node)
            if node.kind == "core"
            else _softmax_core(nodes, node)
            if node.kind == "softmax"
            else None
        )
        if core is not None and not any(n.index in taken for n in core.nodes):
            taken.update(n.index for n in core.nodes)
            by_call.setdefault(_home(core).index, []).append(core)
    regions = []
    for group in _groups(nodes, by_call):
        region = _attention_region(nodes, group)
        if region is not None:
            region.claim()
            regions.append(region)
    return regions + _functional_attention(nodes) + _told_attention(nodes)


def _groups(nodes: Nodes, by_call: dict[int, list[_Core]]) -> Iterator[list[_Core]]:
    """Cores that are one sublayer: those of one call that holds no more, or one module a head."""
    heads: dict[int, list[_Core]] = {}
    for cores in by_call.values():
        home = _home(cores[0])
        joint = _concatenation(nodes, cores[0]) if len(cores) == 1 and home.parent is not None else None
        if joint is not None:
            heads.setdefault(joint.index, []).append(cores[0])
        elif home.parent is not None and len(cores) > 1 and _is_sized(nodes, home, cores):
            yield cores
        else:
            yield from _by_projections(nodes, cores)
    for place, cores in heads.items():
        whole = len(nodes.all[place].reads) == len(cores) and len({_kin(core) for core in cores}) == 1
        whole = whole and len({id(_home(core).module) for core in cores}) == len(cores)
        if whole:
            for core in cores:
                core.beside = len(cores)
        yield from [cores] if whole else [[core] for core in cores]


def _by_projections(nodes: Nodes, cores: list[_Core]) -> list[list[_Core]]:
    """Cores of one call, those together that have a projection in common: they are steps of one attention."""
    growth = _Growth(nodes)
    groups: list[tuple[set[Node], list[_Core]]] = []
    for core in cores:
        grown = [growth.up(value) or set() for value in (core.query, core.key, core.value, *core.others)]
        own = {n for nodes_up in grown for n in nodes_up if n.kind == "linear" or _is_projection(n)}
        joined = [group for group in groups if not own.isdisjoint(group[0])]
        groups = [group for group in groups if group not in joined]
        own = own.union(*(group[0] for group in joined))
        groups.append((own, [c for group in joined for c in group[1]] + [core]))
    return [group for _, group in groups]


def _kin(core: _Core) -> tuple[type[nn.Module], int]:
    """The class of the module in which a core ran, and the call around it."""
    home = _home(core)
    return type(home.module), home.parent.index if home.parent is not None else -1


def _concatenation(nodes: Nodes, core: _Core) -> Node | None:
    """The node that puts a core's result beside others, where nothing else reads it."""
    node = core.last
    for _ in range(6):
        readers = {reader.index: reader for reader in nodes.readers(node)}
        if len(readers) != 1:
            return None
        node = next(iter(readers.values()))
        if node.name == "cat":
            return node
        if node.kind != "regroup":
            return None
    return None


def _functional_attention(nodes: Nodes) -> list[Region]:
    """Calls of ``multi_head_attention_forward`` outside of ``nn.MultiheadAttention``."""
    regions = []
    for node in nodes.all:
        if node.kind != "attention" or node.call is not None or node.region is not None:
            continue
        op = node.ops[0]
        width, heads = (_setting(node, 3, "embed_dim_to_check"), _setting(node, 4, "num_heads"))
        mask = next((value for slot, value in op.inputs if slot == "attn_mask"), None)
        params = BlockParams(d=width, heads=heads)
        params.causal = mask is not None and _mask_is_causal(mask.tensor) is True
        positions = None if mask is None else _added_positions(nodes, mask)
        if positions is not None:
            params.extra["positions"] = positions
        core = _Core(node, {node}, None, None, None, node)
        sized = node.scope.parent is not None and _is_sized(nodes, node.scope, [core])
        inside = [n for n in nodes.inside(node.scope) if n.region is None] if sized else [node]
        region = Region("attention", inside, params, node.scope if sized else None, inside[-1])
        region.claim()
        regions.append(region)
    return regions


def _told_attention(nodes: Nodes) -> list[Region]:
    """Attention that no core shows (linear, sparse or compiled kernels), told by the module's attributes."""
    regions = []
    for call in nodes.graph.calls:
        if call.parent is None or not call.module._modules or call.start >= call.end:
            continue
        role = attention_by_attributes(call.module)
        inside = nodes.inside(call) if role is not None else []
        if role is None or not inside or inside[0].call is call:
            continue
        if any(node.region is not None or node.kind == "attention" for node in inside):
            continue
        core = _Core(inside[-1], set(inside), None, None, None, inside[-1])
        projection = [] if inside[-1].kind == "linear" else _output_projection(nodes, core, role.params.d)
        members = sorted({*inside, *projection}, key=lambda node: node.index)
        region = Region("attention", members, role.params, call, members[-1])
        region.claim()
        regions.append(region)
    return regions


def _home(core: _Core) -> Call:
    """The innermost call in which a core ran."""
    return common_call(core.nodes)


# ── feed-forward ─────────────────────────────────────────────────────────────


def _is_activation(node: Node) -> bool:
    """Whether a node is an activation function, in the vocabulary or not."""
    return node.kind == "activation" or (node.kind == "leaf" and "activation" in node.params.extra)


def activation_name(node: Node) -> str | None:
    """The activation that a node computes."""
    if node.params.variant or "activation" in node.params.extra:
        return node.params.variant or str(node.params.extra["activation"])
    return ACTIVATIONS.get(node.name, node.name) if node.kind == "activation" else None


def _is_depthwise(node: Node) -> bool:
    """Whether a node is a convolution that mixes no channels."""
    module = node.module
    return (
        node.kind == "leaf"
        and getattr(module, "groups", 1) > 1
        and getattr(module, "groups", 0) == getattr(module, "out_channels", -1)
    )


def _is_leaf_norm(node: Node) -> bool:
    """Whether a node is a norm outside of the vocabulary, such as a batch norm."""
    return node.kind == "leaf" and "Norm" in str(node.params.extra.get("type", ""))


def _up_to_linear(nodes: Nodes, value: Value | None) -> list[Node] | None:
    """The nodes from a value up to the linear node it came from, that one last."""
    chain: list[Node] = []
    while value is not None and len(chain) < 12:
        node = nodes.maker(value)
        if node is None or node.region is not None:
            return None
        chain.append(node)
        if node.kind == "linear":
            return chain
        alone = node.kind in ("add", "arith") and parameter_only_rest(nodes, node)
        if node.kind != "regroup" and not alone and not _is_depthwise(node) and not _is_leaf_norm(node):
            return None
        value = next((v for _, v in node.reads if (m := nodes.maker(v)) is not None and m.live), None)
    return None


def parameter_only_rest(nodes: Nodes, node: Node) -> bool:
    """Whether all but one of the values that a node reads are parameters or constants."""
    streams = [
        v for _, v in node.reads if ((m := nodes.maker(v)) is not None and m.live) or v.source == "input"
    ]
    return len(streams) == 1


@dataclass(eq=False)
class _Feed:
    """A feed-forward path: up, activation, down."""

    nodes: list[Node]
    up: Node
    down: Node
    gated: bool


_PARTS = frozenset({"chunk", "split", "tensor_split", "getitem", "narrow", "unbind", "select"})


def _gate(nodes: Nodes, product: Node, after: list[Node], up: Node) -> list[Node] | None:
    """The nodes of a gate's other side, up to its linear; empty for ``x * f(x)``, None for something else."""
    carried = {id(value) for node in after for value in node.makes}
    other = next((value for _, value in product.reads if id(value) not in carried), None)
    if other is None or any(other is value for _, value in after[0].reads):
        return []
    side = _up_to_linear(nodes, other)
    whole = side is not None and side[-1] is up and not any(node.name in _PARTS for node in side)
    return [] if whole else side


def _down_to_linear(nodes: Nodes, act: Node, up: list[Node]) -> _Feed | None:
    """The path from an activation down to the next linear node, through a gate where there is one."""
    chain: list[Node] = [*up, act]
    gated = activation_name(act) == "glu"
    node = act
    for _ in range(12):
        readers = {reader.index: reader for reader in nodes.readers(node)}
        if len(readers) != 1:
            return None
        node = next(iter(readers.values()))
        if node.region is not None:
            return None
        chain.append(node)
        if node.kind == "linear":
            return _Feed(chain, up[-1], node, gated)
        if node.name == "mul" and not parameter_only_rest(nodes, node):
            side = _gate(nodes, node, chain[len(up) : -1], up[-1])
            if side is None:
                return None
            chain[-1:-1] = side
            gated = gated or bool(side)
        elif (
            node.kind not in _PASSING
            and not _is_leaf_norm(node)
            and not (node.kind == "add" and parameter_only_rest(nodes, node))
        ):
            return None
    return None


def _stream(nodes: Nodes, values: list[Value], kinds: frozenset[str] | None) -> set[int]:
    """Ids of the values that some values came from, nearest first, through nodes of some kinds.

    A part that was cut off is a stream of its own: what it was cut from is not looked at.
    """
    found: set[int] = set()
    waiting = list(values)
    while waiting and len(found) < _NEAR:
        value = waiting.pop(0)
        if id(value) in found:
            continue
        found.add(id(value))
        node = nodes.maker(value)
        if node is None or node.name in _PARTS or (kinds is not None and node.kind not in kinds):
            continue
        if kinds is not None and node.kind == "arith" and node.name not in _SCALINGS:
            continue
        waiting.extend(v for _, v in node.reads)
    return found


def _returns_to_stream(nodes: Nodes, feed: _Feed) -> bool:
    """Whether a feed-forward path's result is added to what it read, through nothing that mixes features."""
    stack, seen = [feed.down], {feed.down.index}
    while stack and len(seen) < _NEAR:
        for reader in nodes.readers(stack.pop()):
            if reader.kind == "add" and not parameter_only_rest(nodes, reader):
                own = _stream(nodes, [v for _, v in feed.up.reads], None)
                others = [v for _, v in reader.reads if (m := nodes.maker(v)) is None or m.index not in seen]
                return not own.isdisjoint(_stream(nodes, others, _PASSING | {"add"}))
            scales = reader.kind == "leaf" and "Scale" in reader.name
            passes = reader.kind in _PASSING or scales or _is_leaf_norm(reader)
            if passes and reader.index not in seen:
                seen.add(reader.index)
                stack.append(reader)
    return False


def _filled_call(nodes: Nodes, members: set[Node]) -> Call | None:
    """The innermost call around nodes, where it holds nothing else that computes."""
    call = common_call(members)
    if call.parent is None:
        return None
    for node in nodes.inside(call):
        if node not in members and node.live and node.kind != "regroup":
            return None
    return call


def _is_feed_forward(nodes: Nodes, feed: _Feed, call: Call | None) -> bool:
    """Whether up, activation and down are a sublayer and not just neighbours in a stack of layers."""
    width_in, width_out = linear_sizes(feed.up)[0], linear_sizes(feed.down)[1]
    named = call is not None and (
        is_mlp_name(type(call.module).__name__) or is_mlp_name(call.path.rpartition(".")[2])
    )
    if width_in != width_out or width_in is None:
        return named
    return named or _returns_to_stream(nodes, feed)


def find_mlps(nodes: Nodes) -> list[Region]:
    """Every feed-forward sublayer of a pass that no other region holds, claimed and in order.

    A linear layer, an activation and a linear layer back to the same width are one where their
    result is added to the stream, or where one module call with a name for it holds them.
    """
    regions = []
    for act in nodes.all:
        if act.region is not None or not _is_activation(act):
            continue
        up = _up_to_linear(
            nodes, next((v for _, v in act.reads if (m := nodes.maker(v)) is not None and m.live), None)
        )
        feed = _down_to_linear(nodes, act, up) if up else None
        if feed is None or any(node.region is not None for node in feed.nodes):
            continue
        call = _filled_call(nodes, set(feed.nodes))
        if not _is_feed_forward(nodes, feed, call):
            continue
        params = BlockParams(
            d=linear_sizes(feed.up)[0], hidden=linear_sizes(feed.down)[0], bias=has_bias(feed.up)
        )
        name = activation_name(act)
        set_activation(params, "sigmoid" if name == "glu" else name)
        if feed.gated:
            params.extra["gated"] = True
        members = list({node.index: node for node in feed.nodes}.values())
        if call is not None:
            members = [node for node in nodes.inside(call) if node.region is None]
        region = Region(
            "mlp", sorted(members, key=lambda node: node.index), params, call, feed.down, inner=act
        )
        region.claim()
        regions.append(region)
    return regions


# ── mixtures of experts ──────────────────────────────────────────────────────


def _expert_linears(module: nn.Module) -> list[tuple[int, int]]:
    """The sizes of the linear layers of one expert, in their order."""
    sizes = []
    for child in module.modules():
        size = getattr(child, "in_features", None), getattr(child, "out_features", None)
        if isinstance(size[0], int) and isinstance(size[1], int):
            sizes.append((size[0], size[1]))
    return sizes


def _stacked_experts(experts: nn.Module) -> list[tuple[int, ...]]:
    """Shapes of the parameters that hold all experts at once, the experts along the first axis."""
    return [tuple(p.shape) for p in experts.parameters(recurse=False) if p.ndim == 3]


# A module with one of these submodules may be a mixture of experts.
_EXPERT_PARTS = frozenset({"experts", "router", "gate"})


def _expert_params(module: nn.Module, width: int | None) -> BlockParams | None:
    """What is known of a mixture of experts from its parts; None where they do not look like one."""
    experts: Any = getattr(module, "experts", None)
    params = BlockParams(d=width)
    if isinstance(experts, (nn.ModuleList, nn.ModuleDict)) and len(experts) > 1:
        held = [expert for expert in experts.children() if next(expert.parameters(), None) is not None]
        count, first = len(held), (held or [nn.Identity()])[0]
        sizes = _expert_linears(first)
        act_home = first
    elif isinstance(experts, nn.Module) and _stacked_experts(experts):
        shapes = _stacked_experts(experts)
        count, act_home = shapes[0][0], experts
        sizes = [(shape[1], shape[2]) for shape in shapes]
    elif len(shapes := [shape for child in module.children() for shape in _stacked_experts(child)]) > 1:
        count, act_home = shapes[0][0], module
        sizes = [(shape[1], shape[2]) for shape in shapes]
    else:
        return None
    width = width or (sizes[0][0] if sizes else None)
    hidden = [size for pair in sizes for size in pair if size != width]
    params.d, params.hidden = width, min(hidden, default=width)
    name = next((act for child in act_home.modules() if (act := activation_of(child))), None)
    set_activation(params, name or _configured_activation(module))
    if len(sizes) == 3 or any(size == 2 * (params.hidden or 0) for pair in sizes for size in pair):
        params.extra["gated"] = True
    params.extra["experts"] = count
    chosen = next(
        (
            k
            for n in ("top_k", "topk", "num_experts_per_tok")
            if isinstance(k := getattr(module, n, None), int)
        ),
        None,
    )
    if chosen is not None:
        params.extra["topK"] = chosen
    return params


_CONFIG_NAMES = {"gelu_new": "gelu", "gelu_fast": "gelu", "gelu_pytorch_tanh": "gelu", "swish": "silu"}


def _configured_activation(module: nn.Module) -> str | None:
    """The activation that a module's config names."""
    for part in (module, *module.children()):
        config = getattr(part, "config", None)
        name = getattr(config, "hidden_act", None) or getattr(config, "activation_function", None)
        if isinstance(name, str):
            return _CONFIG_NAMES.get(name, name)
    return None


def _stream_width(call: Call, inside: list[Node]) -> int | None:
    """The width of the stream that leaves a call."""
    for value in call.outputs:
        if value.shape:
            return value.shape[-1]
    return next((n.makes[-1].shape[-1] for n in reversed(inside) if n.makes and n.makes[-1].shape), None)


def find_experts(nodes: Nodes) -> list[Region]:
    """Every mixture of experts of a pass: a call whose module holds ``experts``, claimed and in order."""
    regions: list[Region] = []
    until = -1
    for call in nodes.graph.calls:
        if call.start < until or call.parent is None or _EXPERT_PARTS.isdisjoint(call.module._modules.keys()):
            continue
        inside = [node for node in nodes.inside(call) if node.region is None]
        params = _expert_params(call.module, _stream_width(call, inside))
        if params is None or not inside:
            continue
        until = call.end
        region = Region("mlp", inside, params, call, inside[-1])
        region.claim()
        regions.append(region)
    return regions
