"""Symbolic tracing by torch.fx, into the same graph as a recorded pass.

A trace needs no example input, but it sees what the code would do and not what it does: a
branch on a default argument, a swallowed exception. It is therefore drawn only where there is
no example input, and is otherwise a second opinion. Tracing runs the model's Python code with
proxies for tensors, so it happens inside `modes.untouched`: whatever the code stores on the
model meanwhile is put back.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx, nn
from torch.overrides import TorchFunctionMode

from . import _compat
from .census import Census, census
from .functions import HANDED_OUT, QUIET, function_name
from .graph import Graph, GraphBuilder, describe_tensor, flatten
from .matchers import leaf_role
from .modes import StateGuard, evaluating, untouched
from .roles import own_role

if TYPE_CHECKING:
    from .inputs import Inputs

__all__ = ["MAX_MODULES", "trace"]

# Tracing costs grow with the square of the number of modules; above this it is not waited for.
MAX_MODULES = 200
_SAME_NUMBERS = frozenset({"T", "mT", "H", "mH", "data", "real", "imag"})


def _describe(item: Any) -> tuple[tuple[int, ...] | None, str | None]:
    """Shape and dtype of a tensor; a proxy has neither."""
    return describe_tensor(item) if isinstance(item, Tensor) else (None, None)


def _resolved(item: Any) -> Any:
    """An argument with lazily made attribute proxies replaced by what they are an attribute of."""
    if isinstance(item, fx.proxy.Attribute):
        return item.root if item.attr in _SAME_NUMBERS else None
    if isinstance(item, (list, tuple)):
        return [_resolved(part) for part in item]
    if isinstance(item, dict):
        return {key: _resolved(part) for key, part in item.items()}
    return item


class _Tracer(fx.Tracer):
    """Drives a `GraphBuilder` while torch.fx traces."""

    def __init__(self, builder: GraphBuilder, model: nn.Module, given: set[str], *, ran: bool) -> None:
        super().__init__()
        self._builder = builder
        self._paths: dict[int, str] = {id(module): path for path, module in model.named_modules()}
        self._tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        # Asked before tracing: while torch.fx traces, a module's own parameters read as proxies.
        self._leaves = {id(module): leaf_role(module) is not None for module in model.modules()}
        self._opened = {id(module) for module in model.modules() if ran and _has_own_forward(module)}
        self._given = given
        self.refused: Exception | None = None

    def to_bool(self, obj: fx.Proxy) -> bool:
        """Refuse a branch on a value, and remember it: the model's own code may swallow the error."""
        try:
            return super().to_bool(obj)
        except fx.proxy.TraceError as error:
            self.refused = error
            raise

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Modules that one row of the table knows stay whole, subclasses too where no pass shows more."""
        if id(m) in self._opened:
            return False
        return self._leaves[id(m)] or (
            super().is_leaf_module(m, module_qualified_name) and not list(m.children())
        )

    def path_of_module(self, mod: nn.Module) -> str:
        """The module's path, looked up instead of searched for."""
        try:
            return self._paths[id(mod)]
        except KeyError:
            raise NameError("module is not installed as a submodule") from None

    def call_module(self, m: nn.Module, forward: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a module call around whatever it traces to."""
        call = self._builder.enter(m, self.path_of_module(m), (_resolved(args), _resolved(kwargs)))
        result = super().call_module(m, forward, args, kwargs)
        self._builder.leave(call, result)
        return result

    def create_proxy(self, kind: str, target: Any, args: Any, kwargs: Any, *rest: Any, **options: Any) -> Any:
        """Record a function as it is traced."""
        proxy = super().create_proxy(kind, target, args, kwargs, *rest, **options)
        if kind == "placeholder":
            if target in self._given:
                self._builder.add_input(proxy, str(target).lstrip("*"))
        elif kind == "get_attr":
            tensor = self._tensors.get(target)
            if tensor is not None:
                source = "param" if isinstance(tensor, nn.Parameter) else "buffer"
                self._builder.name_source(proxy, source, target, tensor)
        elif kind in ("call_function", "call_method"):
            name = function_name(target)
            if not name.startswith("_assert"):
                op = self._builder.op(name, tuple(_resolved(args)), _resolved(kwargs))
                self._builder.finish(op, [proxy])
        return proxy


class _Constants(TorchFunctionMode):
    """Records functions that run on real tensors while tracing, such as a slice of a parameter."""

    def __init__(self, builder: GraphBuilder, guard: StateGuard) -> None:
        super().__init__()
        self._builder = builder
        self._guard = guard

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Record the function unless a proxy takes part, which records itself."""
        kwargs = kwargs or {}
        name = function_name(func)
        if next(flatten((args, kwargs), fx.Proxy), None) is not None:
            return func(*args, **kwargs)
        if name not in QUIET or name in HANDED_OUT:
            self._guard.before_call(func, args, kwargs)
        if name in QUIET:
            return func(*args, **kwargs)
        op = self._builder.op(name, args, kwargs)
        result = func(*args, **kwargs)
        made = [tensor for _, tensor in flatten(result, Tensor)]
        if made:
            self._builder.finish(op, made)
        return result


def _has_own_forward(module: nn.Module) -> bool:
    """Whether a module's forward is the user's: what it does beside the layer is seen by looking inside."""
    home = getattr(module.forward, "__module__", None) or "torch."
    return not home.startswith("torch.") and own_role(module) is None


_STARS: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


def _defaults(model: nn.Module, inputs: Inputs | None) -> tuple[dict[str, Any], set[str]]:
    """Arguments of forward that keep their default, and the names of those that are traced.

    A default that is traced becomes a proxy, which is never None, and the branch for a given
    argument is taken without a word; so what nobody passes keeps its value.
    """
    parameters = list(inspect.signature(model.forward).parameters.values())
    passed = None if inputs is None else {p.name for p in parameters[: len(inputs.args)]} | set(inputs.kwargs)
    fixed: dict[str, Any] = {}
    given: set[str] = set()
    for parameter in parameters:
        optional = parameter.default is not parameter.empty
        if optional and (passed is None or parameter.name not in passed):
            fixed[parameter.name] = parameter.default
        else:
            given.add(_STARS.get(parameter.kind, "") + parameter.name)
    return fixed, given


def trace(model: nn.Module, inputs: Inputs | None = None, *, parts: Census | None = None) -> Graph:
    """The model's forward as torch.fx sees it, in eval mode.

    Args:
        model: The model; it is left as it was, also when tracing fails.
        inputs: Example arguments, which only say which parameters of forward are passed.
        parts: The model's census, where it was taken already.

    Returns:
        A graph with ``known`` "traced"; only parameters have shapes.

    Raises:
        Exception: Whatever torch.fx or the model's own code raises on proxies.
    """
    builder = GraphBuilder(model, "traced", (fx.Proxy, Tensor), _describe)
    parts = parts or census(model)
    for name, parameter in parts.parameters:
        builder.name_source(parameter, "param", name)
    for name, buffer in parts.buffers:
        builder.name_source(buffer, "buffer", name)
    with (
        untouched(model, watch_writes=False, parts=parts) as guard,
        torch.no_grad(),
        evaluating(model, parts),
        _compat.eager(module for _, module in parts.modules),
        _compat.faking([tensor for _, tensor in (*parts.parameters, *parts.buffers)]),
    ):
        fixed, given = _defaults(model, inputs)
        tracer = _Tracer(builder, model, given, ran=inputs is not None)
        with _Constants(builder, guard):
            traced = tracer.trace(model, concrete_args=fixed or None)
        if tracer.refused is not None:
            raise tracer.refused
        return builder.done(_result_of(traced, builder))


def _result_of(traced: fx.Graph, builder: GraphBuilder) -> list[Any]:
    """The proxies that the traced forward returns."""
    output = next(node for node in traced.nodes if node.op == "output")
    wanted = {id(node): place for place, node in enumerate(output.all_input_nodes)}
    found: dict[int, Any] = {}
    for proxy in builder.held():
        if isinstance(proxy, fx.Proxy) and id(proxy.node) in wanted:
            found[wanted[id(proxy.node)]] = proxy
    return [found[place] for place in sorted(found)]
