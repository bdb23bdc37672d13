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
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from . import _compat
from .functions import QUIET, function_name, writes_in_place
from .graph import Call, Graph, GraphBuilder, Op, flatten
from .modes import StateGuard, evaluating, untouched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
    """A recorded pass: its graph, what the model returned, and how it failed, if it did."""

    graph: Graph
    output: Any
    failure: Failure | None = None


_names: dict[Any, tuple[str, bool]] = {}


def _named(func: Any) -> tuple[str, bool]:
    """A function's plain name, and whether to let it through unseen; remembered by function."""
    try:
        entry = _names.get(func)
    except TypeError:  # an unhashable callable
        return function_name(func), False
    if entry is None:
        name = function_name(func)
        entry = _names[func] = (name, name in QUIET)
    return entry


class _Recorder(TorchFunctionMode):
    """Drives a `GraphBuilder` with the functions and module calls of a running pass."""

    def __init__(self, model: nn.Module, guard: StateGuard, keep: bool) -> None:
        super().__init__()
        self.builder = GraphBuilder(model, "run")
        self._keep = keep
        self.failure: Failure | None = None
        self.guard = guard
        self._function = ""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Record one torch function; inside it the mode is off, so it counts as one."""
        kwargs = kwargs or {}
        name, quiet = _named(func)
        if quiet:
            return func(*args, **kwargs)
        self.guard.before_call(func, name, args, kwargs)
        op = self.builder.op(name, args, kwargs, _compat.storage_key)
        given = [value.tensor for _, value in op.inputs]
        versions = [(tensor, _compat.version_of(tensor)) for tensor in given]
        target = args[0] if args and writes_in_place(func, kwargs) else None
        if self._keep:
            self._keep_value(target)
        self._function = name
        result = func(*args, **kwargs)
        self._function = ""
        self._finish(op, result, versions, target)
        return result

    def _keep_value(self, tensor: Any) -> None:
        """Give the value of a tensor that is about to be overwritten a copy of its own."""
        if isinstance(tensor, Tensor) and self.builder.known(tensor):
            value = self.builder.value_of(tensor)
            if value.source != "param" and value.tensor is tensor:
                value.tensor = tensor.detach().clone()

    def _finish(self, op: Op, result: Any, versions: list[tuple[Tensor, int]], target: Any) -> None:
        """Record what the function made and what it wrote in place."""
        # Inference tensors do not count their writes; there the function's name has to do.
        written = [
            (tensor, _compat.storage_key(tensor))
            for tensor, version in versions
            if _compat.version_of(tensor) != version or (version < 0 and tensor is target)
        ]
        given = {id(tensor) for tensor, _ in versions}
        if isinstance(result, Tensor):
            made = [] if id(result) in given else [result]
        elif result is None or isinstance(result, (bool, int, float, str)):
            made = []
        else:
            made = [tensor for _, tensor in flatten(result) if id(tensor) not in given]
        if made or written:
            self.builder.finish(op, made, written)

    def shadow(self, module: nn.Module, path: str) -> Callable[..., Any]:
        """A stand-in for the module's forward that records the call around it."""
        forward = module.forward
        builder = self.builder
        inside = (
            _ScriptRecorder(builder, self.guard) if _compat.is_scripted(module) else contextlib.nullcontext()
        )

        def recorded(*args: Any, **kwargs: Any) -> Any:
            call = builder.enter(module, path, (args, kwargs))
            try:
                with inside:
                    result = forward(*args, **kwargs)
            except BaseException as error:
                self.note(call, error)
                builder.close(call)
                raise
            builder.leave(call, result)
            return result

        # Callers that ask for forward's signature (transformers does) must see the real one.
        recorded.__wrapped__ = forward  # type: ignore[attr-defined]
        return recorded

    def note(self, call: Call, error: BaseException) -> None:
        """Remember the innermost call that an exception passed through."""
        if self.failure is None and isinstance(error, Exception):
            shapes = [tuple(tensor.shape) for _, tensor in flatten(call.arguments)]
            self.failure = Failure(error, call, shapes, self._function)


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
            self.guard.before_call(func, name, args, kwargs)
            op = self._builder.op(name, args, kwargs)
            result = func(*args, **kwargs)
        made = [tensor for _, tensor in flatten(result)]
        if made:
            self._builder.finish(op, made)
        return result


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


def _shadow_all(model: nn.Module, recorder: _Recorder) -> list[nn.Module]:
    """Put a recording forward into every module below the model; return those that took it."""
    shadowed = []
    for path, module in model.named_modules():
        if module is not model:
            module.__dict__["forward"] = recorder.shadow(module, path)
            shadowed.append(module)
    return shadowed


def _name_sources(model: nn.Module, builder: GraphBuilder) -> None:
    """Tell the builder the names of parameters and buffers."""
    for name, parameter in model.named_parameters():
        builder.name_source(parameter, "param", name)
    for name, buffer in model.named_buffers():
        builder.name_source(buffer, "buffer", name)


@contextlib.contextmanager
def _deep_calls(model: nn.Module) -> Iterator[None]:
    """Room on the interpreter's stack for the recorded calls of deeply nested modules."""
    limit = sys.getrecursionlimit()
    depth = max((path.count(".") for path, _ in model.named_modules()), default=0)
    sys.setrecursionlimit(limit + 8 * depth)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def record(model: nn.Module, inputs: Inputs, *, keep: bool = False) -> Recording:
    """Run the model once on example inputs, in eval mode and without gradients, and record it.

    The model, its inputs, the random state and the grad mode are afterwards as before, also
    when the pass raises. An exception of the model is returned, not raised: what ran up to it
    is in the graph. KeyboardInterrupt and SystemExit pass through.

    Args:
        model: The model; it and its inputs stay on their devices.
        inputs: The arguments of its forward.
        keep: Copy a tensor before it is overwritten in place, so that every value of the graph
            holds what it held when it was made.

    Returns:
        The graph with ``known`` "run", the model's output, and the failure if there was one.
    """
    with untouched(model, inputs, watch_writes=False) as guard:
        recorder = _Recorder(model, guard, keep)
        _name_sources(model, recorder.builder)
        names = input_names(model, inputs)
        shadowed = _shadow_all(model, recorder)
        for name, tensor in names:
            recorder.builder.add_input(tensor, name)
        try:
            with (
                torch.no_grad(),
                evaluating(model),
                _compat.eager(model),
                _compat.no_autocast_cache(),
                _compat.no_warnings(),
                _deep_calls(model),
            ):
                return _run(model, inputs, recorder)
        finally:
            for module in shadowed:
                module.__dict__.pop("forward", None)


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
            output = model(*inputs.args, **inputs.kwargs)
            builder.leave(builder.graph.root, output)
    except Exception as error:  # noqa: BLE001 - the model is a stranger and may raise anything; it is handed on
        recorder.note(builder.graph.root, error)
        builder.done(None)
        return Recording(builder.graph, None, recorder.failure)
    return Recording(builder.done(output), output, None)
