"""From a model to its spec: choosing a reader, judging what it read, drawing it.

With an example input one recorded pass is what is drawn, and torch.fx is tried beside it on
models of moderate size as a second opinion. Without one torch.fx is drawn, and where it fails
the module tree, with a warning that its connections are a guess.
"""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

from ptoa_core.errors import SettingError
from ptoa_core.spec import ModelSpec
from torch import Tensor, nn

from . import _compat, fx_trace
from .blocks import Drawing, draw
from .errors import ForwardError
from .from_module import STRATEGIES, Analysis
from .graph import Graph
from .hook_trace import Failure, Recording, record
from .inputs import Inputs, as_inputs
from .module_tree import read_tree

__all__ = ["read"]

_MAX_NAMED = 4


def _check(model: Any, strategy: str) -> None:
    """Refuse what cannot be read."""
    if not isinstance(model, nn.Module):
        raise SettingError(f"model must be a torch.nn.Module, got {type(model).__name__}: pass an instance of your model class")
    if strategy not in STRATEGIES:
        raise SettingError(f"strategy must be one of {', '.join(STRATEGIES)}, got {strategy!r}")


def _unwrapped(model: nn.Module) -> tuple[nn.Module, str]:
    """The model inside wrappers that only pass calls on, and the path that leads to it."""
    prefix = ""
    while True:
        if _compat.is_compiled(model) and "_orig_mod" in model._modules:
            name = "_orig_mod"
        elif isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            name = "module"
        else:
            return model, prefix
        model, prefix = getattr(model, name), f"{prefix}{name}."


def _names(model: nn.Module, name: str | None) -> tuple[str, str]:
    """The spec's name and where the model's class is defined."""
    cls = type(model)
    return name or getattr(model, "original_name", None) or cls.__name__, f"{cls.__module__}:{cls.__qualname__}"


def read(model: Any, example_input: Any, strategy: str, name: str | None) -> Analysis:
    """Read a model, see `from_module.analyze`, which is this function without torch imported."""
    _check(model, strategy)
    inner, prefix = _unwrapped(model)
    label, source = _names(inner, name)
    if example_input is not None and _compat.is_lazy(inner):
        # The first forward of a lazy module changes its class and makes its parameters.
        inner = copy.deepcopy(inner)
    inputs = None if example_input is None else as_inputs(example_input)
    result = _READERS[strategy](inner, inputs, label, source)
    if prefix:
        bindings = result.spec.bindings
        bindings.update({block: (prefix + path).rstrip(".") for block, path in bindings.items()})
    return result


# ── one function for each strategy ───────────────────────────────────────────


def _by_tree(model: nn.Module, inputs: Inputs | None, name: str, source: str) -> Analysis:
    """The module tree; its connections are a guess and the analysis says so."""
    drawing = draw(read_tree(model), name, source)
    text = f"{name}: the connections between blocks are a guess from the order of the modules"
    return Analysis(drawing.spec, "tree", aux=_aux(drawing), warnings=[text])


def _by_fx(model: nn.Module, inputs: Inputs | None, name: str, source: str) -> Analysis:
    """The trace alone."""
    try:
        drawing = draw(fx_trace.trace(model, inputs), name, source)
    except Exception as error:
        raise ForwardError(f"torch.fx cannot trace {name}: {_first_line(error)}; pass an example input and leave the strategy at auto") from error
    return Analysis(drawing.spec, "fx", aux=_aux(drawing))


def _by_hooks(model: nn.Module, inputs: Inputs | None, name: str, source: str) -> Analysis:
    """The recorded pass alone."""
    if inputs is None:
        raise SettingError('strategy "hooks" records one forward pass, so it needs an example_input')
    recording = record(model, inputs)
    if recording.failure is not None:
        raise _forward_error(recording, name, source)
    return _recorded(recording, "hooks", name, source)


def _auto(model: nn.Module, inputs: Inputs | None, name: str, source: str) -> Analysis:
    """The recorded pass with the trace as a second opinion; without inputs the trace, else the tree."""
    if inputs is None:
        return _without_inputs(model, name, source)
    recording = record(model, inputs)
    if recording.failure is not None:
        error = _forward_error(recording, name, source)
        result = _by_tree(model, inputs, name, source)
        result.warnings.insert(0, f"{error}; what is drawn comes from the module tree")
        return result
    result = _recorded(recording, "hooks", name, source)
    traced = _second_opinion(model, inputs)
    if traced is not None:
        differences = _differences(draw(traced, name, source).spec, result.spec)
        result.warnings.extend(differences)
        result.strategy = "hooks" if differences else "fx"
    return result


def _without_inputs(model: nn.Module, name: str, source: str) -> Analysis:
    """The trace where there is one, else the tree with the reason."""
    if sum(1 for _ in model.modules()) <= 10 * fx_trace.MAX_MODULES:
        try:
            return _by_fx(model, None, name, source)
        except ForwardError as error:
            reason = str(error)
    else:
        reason = f"{name} has too many modules for torch.fx; pass an example input"
    result = _by_tree(model, None, name, source)
    result.warnings.insert(0, reason)
    return result


_READERS = {"auto": _auto, "fx": _by_fx, "hooks": _by_hooks, "tree": _by_tree}


# ── parts ────────────────────────────────────────────────────────────────────


def _second_opinion(model: nn.Module, inputs: Inputs) -> Graph | None:
    """The trace of a model of moderate size; None where it cannot be traced."""
    if sum(1 for _ in model.modules()) > fx_trace.MAX_MODULES:
        return None
    try:
        return fx_trace.trace(model, inputs)
    except Exception:  # a model that cannot be traced raises anything at all; the recorded pass stands
        return None


def _differences(traced: ModelSpec, ran: ModelSpec) -> list[str]:
    """Where a trace holds other blocks than the recorded pass, in words."""
    def rows(spec: ModelSpec) -> Counter[tuple[str, str]]:
        return Counter((block.kind, block.label or "") for block in spec.blocks if block.kind not in ("input", "tokens", "group"))

    lost, extra = rows(ran) - rows(traced), rows(traced) - rows(ran)
    found = []
    for counter, text in ((extra, "torch.fx traces {} that did not run"), (lost, "torch.fx does not see {} that ran")):
        names = sorted({f"{kind} {label}" for kind, label in counter})
        if names:
            shown = ", ".join(names[:_MAX_NAMED]) + (f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else "")
            found.append(text.format(shown) + "; the recorded pass is drawn")
    return found


def _recorded(recording: Recording, strategy: str, name: str, source: str) -> Analysis:
    """The analysis of a recorded pass."""
    drawing = draw(recording.graph, name, source)
    values = {block: value.tensor for block, value in drawing.values.items() if isinstance(value.tensor, Tensor)}
    result = Analysis(drawing.spec, strategy, values, _aux(drawing), output=recording.output)
    if drawing.dropped:
        shown = ", ".join(drawing.dropped[:_MAX_NAMED])
        result.warnings.append(f"ran, but does not reach the output, so it is not drawn: {shown}")
    return result


def _aux(drawing: Drawing) -> dict[str, dict[str, Any]]:
    """What is known of blocks beside their params."""
    found: dict[str, dict[str, Any]] = {}
    for block, unit in drawing.units.items():
        facts: dict[str, Any] = {}
        if unit.modules:
            facts["modules"] = list(unit.modules)
        if unit.region is not None and unit.region.weights is not None and isinstance(unit.region.weights.tensor, Tensor):
            facts["weights"] = unit.region.weights.tensor
        if unit.region is not None and unit.region.inner is not None and unit.region.inner.call is not None:
            facts["inner"] = unit.region.inner.call.path
        if unit.table is not None and isinstance(unit.table.tensor, Tensor):
            facts["table"] = unit.table.tensor
        if facts:
            found[block] = facts
    return found


def _first_line(error: BaseException) -> str:
    """The first line of an exception, with its class."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:200]}" if text else type(error).__name__


def _place(failure: Failure, name: str) -> str:
    """The module that was running, in words."""
    call = failure.call
    where = f"{call.path} ({type(call.module).__name__})" if call.path else name
    shapes = ", ".join(str(list(shape)) for shape in failure.shapes) or "no tensors"
    function = f" in {failure.function}" if failure.function else ""
    return f"{where}, which got {shapes}, raised{function}"


def _forward_error(recording: Recording, name: str, source: str) -> ForwardError:
    """The error of a failed pass, with what ran up to it drawn."""
    failure = recording.failure
    if failure is None:
        raise ValueError("the recorded pass did not fail")
    spec = draw(recording.graph, name, source).spec if recording.graph.ops else None
    error = ForwardError(f"{_place(failure, name)} {_first_line(failure.error)}", failure.call.path, spec)
    error.__cause__ = failure.error
    return error
