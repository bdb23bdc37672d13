"""The one graph that every reader produces and that one mapping turns into blocks.

A forward pass is a list of `Op` in the order in which they ran. Module calls are scopes over
that list: a `Call` covers the contiguous range of operations that ran between its entry and
its return, so that "everything inside this module" is a slice, and a module called twice is
two calls. A `Value` is one tensor at one moment; an in-place write makes a new value of the
same tensor. `GraphBuilder` is the only thing that makes these objects: the recorded pass
drives it with tensors, torch.fx with proxies, the module tree with made-up values.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from .functions import METADATA, METADATA_ARGUMENTS

__all__ = ["Call", "Graph", "GraphBuilder", "Op", "Value", "describe_tensor", "flatten"]

_MAX_DEPTH = 8
_MAX_LEAVES = 20_000
_PLAIN = (str, bytes, int, float, complex, bool, type(None), type)


@dataclass(eq=False, slots=True)
class Value:
    """One tensor at one moment of the pass.

    Attributes:
        op: What produced it; None for what was there before (inputs, parameters, constants).
        source: ``input``, ``param``, ``buffer`` or ``const`` where ``op`` is None.
        name: The input's or parameter's name, where it has one.
        shape: Its shape, or None where the reader saw no tensor.
        dtype: Its dtype without ``torch.``, or None.
        tensor: The tensor itself, or what is kept of it; None where it was too large to hold on to.
        ref: Tells the builder when a tensor that is not held is gone, since its id is given to the next.
    """

    op: Op | None = None
    source: str = ""
    name: str = ""
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    tensor: Any = None
    ref: Any = None


@dataclass(eq=False, slots=True)
class Op:
    """One function call, or one module call of which nothing inside was seen.

    Attributes:
        name: The function's name, ``add`` for ``torch.add``, ``+`` and ``+=`` alike.
        call: The module call in which it ran.
        inputs: The values read, each with its place: a position or a keyword.
        outputs: The values made.
        settings: Keyword and positional arguments that are no tensors.
        opaque: Whether it stands for a module whose inside was not seen.
    """

    index: int
    name: str
    call: Call
    inputs: list[tuple[int | str, Value]]
    outputs: list[Value] = field(default_factory=list)
    settings: dict[int | str, Any] = field(default_factory=dict)
    opaque: bool = False


@dataclass(eq=False, slots=True)
class Call:
    """One call of one module: the operations ``start`` to ``end`` ran inside it.

    Attributes:
        path: Dotted path of the module in the model, ``""`` for the model itself.
        ordinal: How many calls of the same module came before.
    """

    index: int
    path: str
    module: nn.Module
    parent: Call | None
    start: int
    end: int = -1
    ordinal: int = 0
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    children: list[Call] = field(default_factory=list)
    arguments: Any = None

    @property
    def depth(self) -> int:
        """How many calls enclose this one."""
        depth, call = 0, self.parent
        while call is not None:
            depth, call = depth + 1, call.parent
        return depth


@dataclass(eq=False, slots=True)
class Graph:
    """A forward pass: operations, the module calls around them, inputs and outputs.

    Attributes:
        known: ``run`` for a recorded pass, ``traced`` for torch.fx, ``guessed`` for the tree.
        ran: How many operations are known so, where others were added as a guess; None for all.
    """

    model: nn.Module
    known: str
    root: Call
    ops: list[Op] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    ran: int | None = None

    def known_of(self, op: Op | None) -> str:
        """How one operation is known."""
        guessed = self.ran is not None and op is not None and op.index >= self.ran
        return "guessed" if guessed else self.known

    def release(self) -> None:
        """Take the graph apart when it is drawn, so that its tensors go at once.

        Its parts refer to each other in circles, and would otherwise wait for the cyclic collector.
        """
        for op in self.ops:
            op.inputs, op.outputs = [], []
        for call in self.calls:
            call.parent, call.inputs, call.outputs, call.children = None, [], [], []

    def calls_of(self) -> dict[int, int]:
        """How often each module was called and did something, by its id."""
        counts: dict[int, int] = {}
        for call in self.calls:
            if call.start == call.end:
                continue
            counts[id(call.module)] = counts.get(id(call.module), 0) + 1
        return counts


def _children(item: Any) -> Iterable[tuple[str, Any]]:
    """The named parts of a container or a plain data object; nothing for anything else."""
    if isinstance(item, Mapping):
        return [(str(key), part) for key, part in item.items()]
    if isinstance(item, (list, tuple, set, frozenset)):
        return [(str(place), part) for place, part in enumerate(item)]
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        return [(f.name, getattr(item, f.name, None)) for f in dataclasses.fields(item)]
    if isinstance(item, nn.Module) or callable(item):
        return ()
    attributes = getattr(item, "__dict__", None)
    return list(attributes.items()) if isinstance(attributes, dict) else ()


def flatten(item: Any, leaf: type | tuple[type, ...] = Tensor) -> Iterator[tuple[str, Any]]:
    """Every tensor inside nested containers and data objects, with its dotted place.

    Lists, tuples, named tuples, dicts, dataclasses and objects with attributes are entered;
    modules, functions, generators and strings are not. Containers that hold themselves end.

    Args:
        item: A tensor, or anything that may hold tensors.
        leaf: What counts as a tensor; torch.fx passes its proxy class.

    Yields:
        ``(place, tensor)``; the place of a bare tensor is ``""``.

    Example:
        >>> import torch
        >>> [place for place, _ in flatten({"a": torch.ones(1), "b": [None, torch.ones(2)]})]
        ['a', 'b.1']
    """
    if isinstance(item, leaf):
        yield "", item
        return
    if isinstance(item, _PLAIN):
        return
    seen: set[int] = set()
    stack: list[tuple[str, Any, int]] = [("", item, 0)]
    found = 0
    while stack and found < _MAX_LEAVES:
        place, part, depth = stack.pop()
        if isinstance(part, leaf):
            found += 1
            yield place, part
        elif not isinstance(part, _PLAIN) and depth < _MAX_DEPTH and id(part) not in seen:
            seen.add(id(part))
            prefix = f"{place}." if place else ""
            stack.extend((prefix + key, inner, depth + 1) for key, inner in reversed(list(_children(part))))


class GraphBuilder:
    """Builds a `Graph` from what a reader sees, in the order in which it sees it.

    Args:
        model: The model that is read.
        known: How its blocks are known, see `Graph`.
        leaf: The class of what flows: tensors, or a tracer's proxies.
        describe: Shape and dtype of one of these.
        holds: Whether to hold on to a tensor, given what made it; all are held by default. The
            others are forgotten when they are freed.
        unwrap: The tensor inside a wrapper that transformations put around it.
        base_of: The tensor that another is a view of; torch before 2.1 indexes without telling.
    """

    def __init__(
        self,
        model: nn.Module,
        known: str,
        leaf: type | tuple[type, ...] = Tensor,
        describe: Callable[[Any], tuple[tuple[int, ...] | None, str | None]] | None = None,
        holds: Callable[[Any, Op | None], bool] | None = None,
        unwrap: Callable[[Any], Any] | None = None,
        base_of: Callable[[Any], Any] | None = None,
    ) -> None:
        """Start with the model itself as the outermost call."""
        self.leaf = leaf
        self._describe = describe or describe_tensor
        self._holds = holds
        self._unwrap = unwrap
        self._base_of = base_of
        self._bases: dict[int, Any] = {}
        self._values: dict[int, Value] = {}
        self._held: list[Any] = []
        self._written: dict[int, Value] = {}
        self._named: dict[int, tuple[str, str, Any]] = {}
        self._counts: dict[int, int] = {}
        root = Call(0, "", model, None, 0)
        self.graph = Graph(model, known, root, calls=[root])
        self.current = root

    def name_source(self, tensor: Any, source: str, name: str, stands_for: Any = None) -> None:
        """Say what a tensor is that was there before the pass: a parameter or a buffer.

        Args:
            tensor: The tensor, or a tracer's proxy of it.
            source: ``param`` or ``buffer``.
            name: Its name in the model.
            stands_for: The tensor itself, where ``tensor`` is a proxy.
        """
        self._named.setdefault(id(tensor), (source, name, tensor if stands_for is None else stands_for))
        self._held.append(tensor)
        self._name_base(tensor)

    def _name_base(self, tensor: Any) -> None:
        """Remember what a tensor that was there before is itself a view of: so are views of it."""
        base = None if self._base_of is None else self._base_of(tensor)
        if base is not None:
            self._bases.setdefault(id(base), tensor)
            self._held.append(base)

    def add_input(self, tensor: Any, name: str) -> Value:
        """Register one of the model's inputs."""
        value = self._new(tensor, source="input", name=name)
        self._name_base(tensor)
        self.graph.inputs.append(value)
        return value

    def _new(self, tensor: Any, op: Op | None = None, source: str = "", name: str = "") -> Value:
        """A new value of a tensor, which is held, or whose end is noticed, so that its id stays its own."""
        inner = tensor if op is None or self._unwrap is None else self._unwrap(tensor)
        shape, dtype = self._describe(inner)
        key = id(tensor)
        if op is None or self._holds is None or self._holds(tensor, op):
            value = Value(op, source, name, shape, dtype, inner)
        else:
            value = Value(op, source, name, shape, dtype)
            value.ref = weakref.ref(tensor, lambda _: self._values.pop(key, None))
        self._values[key] = value
        if inner is not tensor:
            self._values[id(inner)] = value
            self._held += (inner, tensor)
        return value

    def guess_on(self, leaf: type) -> None:
        """Mark what is added from here on as a guess, of which marks flow instead of tensors."""
        self.graph.ran = len(self.graph.ops)
        self.leaf = leaf
        self._describe = lambda _mark: (None, None)
        self._unwrap = self._base_of = None

    def stand_for(self, mark: Any, value: Value) -> None:
        """Let something else be read as a value that is there already."""
        self._values[id(mark)] = value
        self._held.append(mark)

    def held(self) -> list[Any]:
        """Everything that flowed and is held, in the order in which it was seen."""
        return [value.tensor for value in self._values.values()]

    def known(self, tensor: Any) -> bool:
        """Whether the pass has seen this tensor made or handed in."""
        return id(tensor) in self._named or self._find(tensor) is not None

    def _find(self, tensor: Any) -> Value | None:
        """The value of a tensor that was seen, itself, inside a wrapper, or as what it is a view of."""
        value = self._values.get(id(tensor))
        if value is not None or id(tensor) in self._named:
            return value
        inner = tensor if self._unwrap is None else self._unwrap(tensor)
        if inner is not tensor and self.known(inner):
            self._values[id(tensor)] = value = self.value_of(inner)
            self._held.append(tensor)
            return value
        base = None if self._base_of is None else self._base_of(tensor)
        base = self._bases.get(id(base), base)
        if base is not None and self.known(base):
            op = Op(-1, "getitem", self.current, [(0, self.value_of(base))])
            self.finish(op, [tensor])
            return op.outputs[0]
        return None

    def value_of(self, tensor: Any, storage: int | None = None) -> Value:
        """The latest value of a tensor; what nothing produced is a parameter, buffer or constant."""
        value = self._find(tensor)
        if value is None:
            source, name, real = self._named.get(id(tensor), ("const", "", tensor))
            value = self._values[id(tensor)] = self._new(real, source=source, name=name)
            self._held.append(tensor)
        if storage is not None:
            return self._after_write(value, storage)
        return value

    def _after_write(self, value: Value, storage: int) -> Value:
        """The write to the value's storage, where one came after the value was made."""
        write = self._written.get(storage)
        if write is None or write.op is None:
            return value
        made = -1 if value.op is None else value.op.index
        return write if write.op.index > made else value

    @property
    def any_written(self) -> bool:
        """Whether some storage was written in place, so that views of it must be asked about."""
        return bool(self._written)

    def op(
        self,
        name: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        storage_of: Callable[[Any], int | None] | None = None,
    ) -> Op:
        """Begin an operation: its inputs are looked up before it runs.

        Args:
            name: The function's plain name.
            args: Its positional arguments.
            kwargs: Its keyword arguments.
            storage_of: Gives a tensor's storage key; asked only once something was written.
        """
        return self.begin(name, args, kwargs, storage_of)[0]

    def begin(
        self,
        name: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        storage_of: Callable[[Any], int | None] | None = None,
    ) -> tuple[Op, list[Any]]:
        """Begin an operation, as `op` does; returns also the tensors that it reads."""
        inputs: list[tuple[int | str, Value]] = []
        settings: dict[int | str, Any] = {}
        given: list[Any] = []
        leaf, values = self.leaf, self._values
        ask = storage_of if self._written else None
        skipped = METADATA_ARGUMENTS.get(name, ())
        silent = name in METADATA
        arguments: Any = enumerate(args) if not kwargs else (*enumerate(args), *kwargs.items())
        for slot, argument in arguments:
            if isinstance(argument, leaf):
                found: Any = (argument,)
            else:
                found = isinstance(argument, (list, tuple, dict)) and [t for _, t in flatten(argument, leaf)]
                if not found:
                    settings[slot] = argument
                    continue
            if silent or slot in skipped:
                continue
            for tensor in found:
                value = values.get(id(tensor))
                if value is None or ask is not None:
                    value = self.value_of(tensor, ask(tensor) if ask else None)
                inputs.append((slot, value))
                given.append(tensor)
        return Op(-1, name, self.current, inputs, [], settings), given

    def finish(self, op: Op, outputs: Iterable[Any], written: Iterable[tuple[Any, int | None]] = ()) -> None:
        """End an operation with the tensors it made and those it wrote in place."""
        op.index = len(self.graph.ops)
        self.graph.ops.append(op)
        changed = set()
        for tensor, storage in written:
            changed.add(id(tensor))
            value = self._new(tensor, op)
            op.outputs.append(value)
            if storage is not None:
                self._written[storage] = value
        op.outputs.extend([self._new(tensor, op) for tensor in outputs if id(tensor) not in changed])

    def enter(self, module: nn.Module, path: str, arguments: Any = None) -> Call:
        """Begin a module call."""
        graph, outer = self.graph, self.current
        ordinal = self._counts.get(id(module), 0)
        self._counts[id(module)] = ordinal + 1
        place = len(graph.ops)
        call = Call(len(graph.calls), path, module, outer, place, -1, ordinal, [], [], [], arguments)
        graph.calls.append(call)
        outer.children.append(call)
        self.current = call
        return call

    def leave(self, call: Call, result: Any) -> None:
        """End a module call. What it returns and nothing was seen to make came from it unseen."""
        if isinstance(result, self.leaf):
            value = self._values.get(id(result))
            if value is not None:
                call.outputs = [value]
                call.end = len(self.graph.ops)
                call.arguments = None
                self.current = call.parent or self.graph.root
                return
        tensors = [tensor for _, tensor in flatten(result, self.leaf)]
        unseen = [tensor for tensor in tensors if not self.known(tensor)]
        if unseen:
            self._opaque(call, unseen)
        call.outputs = [self.value_of(tensor) for tensor in tensors]
        self.close(call)

    def _opaque(self, call: Call, made: list[Any]) -> None:
        """One operation for a call whose results appeared without being seen made."""
        given = [tensor for _, tensor in flatten(call.arguments, self.leaf)]
        op = self.op("module", tuple(given), {})
        op.opaque = True
        self.finish(op, made)

    def close(self, call: Call) -> None:
        """Mark the end of a call, also when it failed."""
        call.end = len(self.graph.ops)
        call.arguments = None
        self.current = call.parent or self.graph.root

    def done(self, result: Any) -> Graph:
        """The finished graph, with the model's outputs named."""
        graph = self.graph
        for _, tensor in flatten(result, self.leaf):
            value = self.value_of(tensor)
            graph.outputs.append(value)
        for call in graph.calls:
            if call.end < 0:
                call.end = len(graph.ops)
        self._holds = None  # it belongs to the reader, which has the builder: a circle
        return graph


_dtype_names: dict[Any, str] = {}


def describe_tensor(tensor: Any) -> tuple[tuple[int, ...] | None, str | None]:
    """Shape and dtype of a tensor; a shape that cannot be said in integers is None."""
    dtype = tensor.dtype
    name = _dtype_names.get(dtype)
    if name is None:
        name = _dtype_names[dtype] = str(dtype).removeprefix("torch.")
    try:
        return tuple(map(int, tensor.shape)), name
    except (RuntimeError, TypeError, ValueError, AttributeError):  # nested tensors, symbolic sizes
        return None, name
