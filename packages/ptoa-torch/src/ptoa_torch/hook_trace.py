"""One recorded forward pass: what really ran, in the order in which it ran.

Two things are watched. Every module's ``forward`` is shadowed by a wrapper in the instance, so
that calls through ``module(...)`` and ``module.forward(...)`` are both seen, with keyword
arguments and also when they raise; code in pre-hooks and hooks runs outside of the wrapper and
is recorded as the caller's. A ``TorchFunctionMode`` sees the functions between modules. Tensors
are told apart by identity and held until the pass ends, because the id of a freed tensor is
given to the next one and would draw an edge that does not exist.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from . import _compat
from .census import Census, census
from .functions import HANDED_OUT, QUIET, SDPA, SOFTMAX, Written, function_name, may_write, written_by
from .graph import Call, Graph, GraphBuilder, Op, flatten
from .interrupts import surely
from .modes import StateGuard, evaluating, untouched
from .process_wide import deeper_calls

if TYPE_CHECKING:
    from collections.abc import Callable

    from .inputs import Inputs

__all__ = ["Failure", "Recording", "input_names", "record"]


@dataclass(slots=True)
class Failure:
    """Where a forward pass ended early.

    Attributes:
        error: What the model raised.
        call: The innermost module call that was running.
        shapes: Shapes of the tensors that this call got.
        function: The torch function that raised, ``""`` where none did.
    """

    error: Exception
    call: Call
    shapes: list[tuple[int, ...]]
    function: str = ""


@dataclass(slots=True)
class Recording:
    """A recorded pass: its graph, what the model returned, and how it failed, if it did.

    Attributes:
        builder: What the graph can be continued with where the pass failed.
    """

    graph: Graph
    output: Any
    failure: Failure | None = None
    builder: GraphBuilder | None = None


@dataclass(slots=True)
class _Known:
    """What a torch function is called, and what is done about it.

    Attributes:
        quiet: Whether it is let through unseen.
        written: What it writes; None where it writes to an ``out`` at most.
    """

    name: str
    quiet: bool
    written: Written | None


_functions: dict[Any, _Known] = {}


def _look_up(func: Any) -> _Known:
    """What is known of a torch function; remembered by function, where it can be."""
    name, written = function_name(func), written_by(func)
    quiet = name in QUIET
    known = _Known(name, quiet, written if may_write(written) and (not quiet or name in HANDED_OUT) else None)
    with contextlib.suppress(TypeError):  # an unhashable callable
        _functions[func] = known
    return known


# What a pass without values may hold on to, in bytes; beyond it large activations are let go.
_MAX_HELD = 64 * 1024 * 1024


# The most items that are drawn from a generator which the model returns.
_MAX_ITEMS = 1_000


class _Recorder(TorchFunctionMode):
    """Drives a `GraphBuilder` with the functions and module calls of a running pass."""

    def __init__(self, model: nn.Module, guard: StateGuard, keep: bool) -> None:
        super().__init__()
        holds = None if keep else self._holds
        self.builder = GraphBuilder(
            model, "run", holds=holds, unwrap=_compat.unwrapped, base_of=_compat.base_of
        )
        self._keep = keep
        self._bytes = 0
        self._pins: list[object] = []
        self.failure: Failure | None = None
        self.guard = guard
        self._function = ""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Record one torch function; inside it the mode is off, so it counts as one."""
        kwargs = {} if kwargs is None else kwargs
        try:
            known = _functions[func]
        except (KeyError, TypeError):
            known = _look_up(func)
        targets: list[Tensor] = []
        if known.written is not None or "out" in kwargs:
            targets = self._about_to_write(known.written or written_by(func), args, kwargs)
        if known.quiet:
            return func(*args, **kwargs)
        op, given = self.builder.begin(known.name, args, kwargs, _compat.storage_key)
        try:
            versions: list[int] = [tensor._version for tensor in given]
        except RuntimeError:  # inference tensors keep no counter
            versions = [_compat.version_of(tensor) for tensor in given]
        if targets and self._keep:
            self._keep_values(targets)
        self._function = known.name
        result = func(*args, **kwargs)
        self._function = ""
        self._finish(op, result, given, versions, targets)
        return result

    def _about_to_write(
        self, written: Written, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[Tensor]:
        """The tensors that a function is about to write, saved where they are not the pass's own."""
        reached = [item for item in written(args, kwargs) if item is not None]
        targets = [tensor for _, tensor in flatten(reached)] if reached else []
        for target in targets:
            self.guard.before_write(target)
        return targets

    def _holds(self, tensor: Tensor, op: Op | None) -> bool:
        """Whether to hold on to a tensor that nobody will ask the values of: masks and indices always."""
        dtype = tensor.dtype
        if op is None or not (dtype.is_floating_point or dtype.is_complex):
            return True
        self._bytes += _nbytes(tensor)
        return self._bytes <= _MAX_HELD

    def _keep_values(self, targets: list[Tensor]) -> None:
        """Give the values of tensors that are about to be overwritten copies of their own."""
        for tensor in targets:
            if self.builder.known(tensor):
                value = self.builder.value_of(tensor)
                if value.source != "param" and value.tensor is tensor:
                    value.tensor = tensor.detach().clone()

    def _finish(
        self, op: Op, result: Any, given: list[Tensor], versions: list[int], targets: list[Tensor]
    ) -> None:
        """Record what the function made and what it wrote in place."""
        written = self._written(given, versions, targets)
        if isinstance(result, Tensor):
            made = [result]
            for tensor in given:
                if tensor is result:
                    made = []
                    break
        elif result is None or isinstance(result, (bool, int, float, str)):
            made = []
        else:
            ids = {id(tensor) for tensor in given}
            made = [tensor for _, tensor in flatten(result) if id(tensor) not in ids]
        if made or written:
            self.builder.finish(op, made, written)
            if op.name in SDPA or op.name in SOFTMAX:
                self._sample(op, given, made)

    def _written(
        self, given: list[Tensor], versions: list[int], targets: list[Tensor]
    ) -> list[tuple[Tensor, int | None]]:
        """The tensors that a function wrote in place, each with its storage's key."""
        try:
            if [tensor._version for tensor in given] == versions:
                return []
        except RuntimeError:  # inference tensors do not count their writes; the function's name has to do
            pass
        changed = [
            tensor
            for tensor, version in zip(given, versions, strict=True)
            if (
                any(tensor is target for target in targets)
                if version < 0
                else _compat.version_of(tensor) != version
            )
        ]
        # The key of a storage that is freed would be given to the next one.
        self._pins.extend(_compat.storage_pin(tensor) for tensor in changed)
        return [(tensor, _compat.storage_key(tensor)) for tensor in changed]

    def _sample(self, op: Op, given: list[Tensor], made: list[Tensor]) -> None:
        """Keep the pattern of one head of masks and probabilities that are too large to hold."""
        for (slot, value), tensor in zip(op.inputs, given, strict=True):
            if value.tensor is None and slot in (3, "attn_mask"):
                value.tensor = _pattern(tensor, -1e4)
        for value, tensor in zip(op.outputs, made, strict=False):
            if value.tensor is None and op.name in SOFTMAX:
                value.tensor = _pattern(tensor, 0.0)

    def shadow(self, module: nn.Module, path: str) -> Callable[..., Any]:
        """A stand-in for the module's forward that records the call around it."""
        # A compiled wrapper's forward goes through the compiler, which would not call what is shadowed.
        inner = getattr(module, "_orig_mod", None) if _compat.is_compiled(module) else None
        forward = module.forward if inner is None else inner
        builder = self.builder
        if _compat.is_scripted(module):
            forward = _ScriptRecorder(builder, self.guard).around(forward)

        def recorded(*args: Any, **kwargs: Any) -> Any:
            call = builder.enter(module, path, (args, kwargs))
            try:
                result = forward(*args, **kwargs)
            except BaseException as error:
                self.note(call, error)
                builder.close(call)
                raise
            builder.leave(call, result)
            return result

        # Callers that ask for forward's signature (transformers does) must see the real one.
        recorded.__wrapped__ = module.forward  # type: ignore[attr-defined]
        return recorded

    def note(self, call: Call, error: BaseException) -> None:
        """Remember the innermost call that an exception passed through."""
        if self.failure is None and isinstance(error, Exception):
            shapes = [tuple(tensor.shape) for _, tensor in flatten(call.arguments)]
            self.failure = Failure(error, call, shapes, self._function)


def _nbytes(tensor: Tensor) -> int:
    """How much memory a tensor's numbers take; nothing where that cannot be said."""
    try:
        return int(tensor.numel()) * tensor.element_size()
    except (RuntimeError, NotImplementedError):
        return 0


def _pattern(tensor: Tensor, floor: float) -> Tensor | None:
    """Where the first matrix of a batch is above a floor; None for a tensor without matrices."""
    if tensor.ndim < 2 or tensor.device.type == "meta":
        return None
    first = tensor.detach()[(0,) * (tensor.ndim - 2)]
    return (first if first.dtype == torch.bool else first > floor)[(None,) * (tensor.ndim - 2)]


class _ScriptRecorder(TorchDispatchMode):
    """Records the operators of a scripted module, whose calls Python never sees."""

    def __init__(self, builder: GraphBuilder, guard: StateGuard) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it unannotated
        self._builder = builder
        self.guard = guard

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Record one operator."""
        kwargs = kwargs or {}
        # The mode for functions is still on, and would record the same operator again.
        with torch._C.DisableTorchFunction():
            name = function_name(func)
            self.guard.before_call(func, args, kwargs)
            op = self._builder.op(name, args, kwargs)
            result = func(*args, **kwargs)
        made = [tensor for _, tensor in flatten(result)]
        if made:
            self._builder.finish(op, made)
        return result

    def around(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """A forward that runs under this recorder."""

        def watched(*args: Any, **kwargs: Any) -> Any:
            with self:
                return forward(*args, **kwargs)

        return watched


_scripted: Any = torch.jit.ScriptFunction  # torch's own annotation takes no assignment to a method
_scripted_call = _scripted.__call__
_recording: dict[int, _Recorder] = {}
_recording_lock = threading.Lock()


def _call_scripted(function: Any, *args: Any, **kwargs: Any) -> Any:
    """A scripted function's call, recorded where a pass runs in this thread."""
    recorder = _recording.get(threading.get_ident())
    if recorder is None:
        return _scripted_call(function, *args, **kwargs)
    builder = recorder.builder
    result = _ScriptRecorder(builder, recorder.guard).around(_scripted_call)(function, *args, **kwargs)
    made = [tensor for _, tensor in flatten(result)]
    if not all(map(builder.known, made)):  # the oldest releases tell no mode of what runs inside: one step
        builder.finish(builder.op(function.name, args, kwargs), made)
    return result


@contextlib.contextmanager
def _scripted_functions(recorder: _Recorder) -> Iterator[None]:
    """Record the operators of scripted functions, whose calls no mode is told of.

    Their class is shared by all threads, so it stays changed until the last pass ends.
    """
    thread = threading.get_ident()
    outer = _recording.get(thread)

    def put_back() -> None:
        with _recording_lock:
            _recording.pop(thread, None)
            if outer is not None:
                _recording[thread] = outer
            elif not _recording:
                _scripted.__call__ = _scripted_call

    try:
        with _recording_lock:
            _recording[thread] = recorder
            _scripted.__call__ = _call_scripted
        yield
    finally:
        surely(put_back)


def _parameter_names(model: nn.Module, count: int) -> list[str]:
    """Names of forward's positional parameters, as far as they can be known."""
    try:
        parameters = list(inspect.signature(model.forward).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "input")
    return [names[place] if place < len(names) else f"{rest}.{place - len(names)}" for place in range(count)]


def input_names(model: nn.Module, inputs: Inputs) -> list[tuple[str, Any]]:
    """Every tensor of the arguments with the name it goes by in forward's signature.

    Returns:
        ``(name, tensor)`` in the order of the arguments; a tensor inside a container has the
        dotted place after the parameter's name, as ``batch.tokens``.
    """
    named = [
        *zip(_parameter_names(model, len(inputs.args)), inputs.args, strict=True),
        *inputs.kwargs.items(),
    ]
    return [
        (f"{name}.{place}" if place else name, tensor)
        for name, item in named
        for place, tensor in flatten(item)
    ]


def _shadow_all(parts: Census, recorder: _Recorder) -> None:
    """Put a recording forward into every module below the model."""
    for path, module in parts.modules[1:]:
        module.__dict__["forward"] = recorder.shadow(module, path)


def _unshadow(parts: Census) -> None:
    """Take the recording forwards away; one of the model's own comes back with its other attributes."""
    for _, module in parts.modules[1:]:
        module.__dict__.pop("forward", None)


def _name_sources(parts: Census, builder: GraphBuilder) -> None:
    """Tell the builder the names of parameters and buffers."""
    for name, parameter in parts.parameters:
        builder.name_source(parameter, "param", name)
    for name, buffer in parts.buffers:
        builder.name_source(buffer, "buffer", name)


def record(model: nn.Module, inputs: Inputs, *, keep: bool = False, parts: Census | None = None) -> Recording:
    """Run the model once on example inputs, in eval mode and without gradients, and record it.

    The model, its inputs, the random state and the grad mode are afterwards as before, also
    when the pass raises. An exception of the model is returned, not raised: what ran up to it
    is in the graph. KeyboardInterrupt and SystemExit pass through.

    Args:
        model: The model; it and its inputs stay on their devices.
        inputs: The arguments of its forward.
        keep: Hold every tensor, and copy it before it is overwritten in place, so that every value
            of the graph holds what it held when it was made. Otherwise large activations are let
            go as soon as the model lets them go.
        parts: The model's census, where it was taken already.

    Returns:
        The graph with ``known`` "run", the model's output, and the failure if there was one.
    """
    parts = parts or census(model)
    with untouched(model, inputs, watch_writes=False, parts=parts) as guard:
        recorder = _Recorder(model, guard, keep)
        _name_sources(parts, recorder.builder)
        names = input_names(model, inputs)
        for name, tensor in names:
            recorder.builder.add_input(tensor, name)
        try:
            _shadow_all(parts, recorder)
            tensors = [tensor for _, tensor in (*parts.parameters, *parts.buffers, *names)]
            with (
                torch.no_grad(),
                evaluating(model, parts),
                _compat.eager(module for _, module in parts.modules),
                _compat.faking(tensors),
                _compat.no_warnings(),
                _scripted_functions(recorder),
                deeper_calls(8 * parts.depth),
            ):
                return _run(model, inputs, recorder)
        finally:
            surely(lambda: _unshadow(parts))


def _fed(model: nn.Module, inputs: Inputs, builder: GraphBuilder) -> tuple[list[Any], dict[str, Any]]:
    """The arguments, with every iterator in a wrapper that names what is drawn from it as an input."""
    end = object()

    def feed(name: str, items: Iterator[Any]) -> Iterator[Any]:
        for place in itertools.count():
            with torch._C.DisableTorchFunction():  # the caller's own work is no part of the model
                item = next(items, end)
            if item is end:
                return
            for inner, tensor in flatten(item):
                if not builder.known(tensor):
                    builder.add_input(tensor, f"{name}.{place}.{inner}".rstrip("."))
            yield item

    named = [
        *zip(_parameter_names(model, len(inputs.args)), inputs.args, strict=True),
        *inputs.kwargs.items(),
    ]
    fed = [feed(name, item) if isinstance(item, Iterator) else item for name, item in named]
    count = len(inputs.args)
    return fed[:count], dict(zip(inputs.kwargs, fed[count:], strict=True))


def _run(model: nn.Module, inputs: Inputs, recorder: _Recorder) -> Recording:
    """The pass itself."""
    builder, output = recorder.builder, None
    builder.graph.root.arguments = (inputs.args, inputs.kwargs)
    try:
        inside = (
            _ScriptRecorder(builder, recorder.guard)
            if _compat.is_scripted(model)
            else contextlib.nullcontext()
        )
        with recorder, inside:
            args, kwargs = _fed(model, inputs, builder)
            output = model(*args, **kwargs)
            if isinstance(output, Iterator):  # nothing runs in a generator before somebody asks it
                output = list(itertools.islice(output, _MAX_ITEMS))
            builder.leave(builder.graph.root, output)
    except Exception as error:  # noqa: BLE001 - the model is a stranger and may raise anything; it is handed on
        recorder.note(builder.graph.root, error)
        builder.done(None)
        return Recording(builder.graph, None, recorder.failure, builder)
    return Recording(builder.done(output), output, None)
