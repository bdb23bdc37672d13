"""From a model to its spec: choosing a reader, judging what it read, drawing it.

With an example input one recorded pass is what is drawn, and torch.fx is tried beside it on
models of moderate size as a second opinion. Without one torch.fx is drawn, and where it fails
the module tree, with a warning that its connections are a guess.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import os
import sys
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer

from ptoa_core.errors import SettingError

from . import _compat, fx_trace
from .blocks import Drawing, Unit, draw
from .census import Census, census
from .errors import ForwardError
from .from_module import STRATEGIES, Analysis
from .hook_trace import Failure, Recording, record
from .inputs import Inputs, as_inputs
from .modes import evaluating, untouched
from .module_tree import read_rest, read_tree
from .places import Places
from .scores import Scores, scores_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ptoa_core.spec import ModelSpec

    from .graph import Graph
    from .regions import Region

__all__ = ["read", "read_recorded"]

_lazy_buffer: Any = UninitializedBuffer  # torch's own annotation of it says that it takes tensors
_MAX_NAMED = 4
_MAX_LINE = 200
# Without an example input there is only the trace to wait for; this many modules take about a second.
_MAX_TRACED = 1_000


def _check(model: Any, strategy: str) -> None:
    """Refuse what cannot be read."""
    if not isinstance(model, nn.Module):
        raise SettingError(
            f"model must be a torch.nn.Module, got {type(model).__name__}: pass an instance of it"
        )
    if strategy not in STRATEGIES:
        raise SettingError(f"strategy must be one of {', '.join(STRATEGIES)}, got {strategy!r}")


def _unwrapped(model: nn.Module) -> tuple[nn.Module, str]:
    """The model inside wrappers that only pass calls on, and the path that leads to it."""
    prefix = ""
    while True:
        if _compat.is_compiled(model) and hasattr(model, "_orig_mod"):
            name = "_orig_mod"
        elif isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            name = "module"
        else:
            return model, prefix
        model, prefix = getattr(model, name), f"{prefix}{name}."


def _names(model: nn.Module, name: str | None) -> tuple[str, str]:
    """The spec's name and where the model's class is defined."""
    cls = type(model)
    return name or getattr(
        model, "original_name", None
    ) or cls.__name__, f"{cls.__module__}:{cls.__qualname__}"


@dataclass(frozen=True)
class _Request:
    """What is to be read, and under which name."""

    model: nn.Module
    inputs: Inputs | None
    name: str
    source: str
    keep: bool
    parts: Census
    graphs: list[Graph] = field(default_factory=list)

    def drawn(self, graph: Graph) -> Drawing:
        """A graph of the model, drawn."""
        self.graphs.append(graph)
        return draw(graph, self.name, self.source, self.parts)

    def release(self) -> None:
        """Let go of everything that was drawn from."""
        for graph in self.graphs:
            graph.release()


def read(model: Any, example_input: Any, strategy: str, name: str | None, *, keep: bool = False) -> Analysis:
    """Read a model; `from_module.analyze` is this function for callers without torch.

    Args:
        model: As for `from_module.analyze`.
        example_input: As for `from_module.analyze`.
        strategy: As for `from_module.analyze`.
        name: As for `from_module.analyze`.
        keep: Copy tensors before they are overwritten in place, so that ``values`` are right.
    """
    _check(model, strategy)
    inner, prefix = _unwrapped(model)
    label, source = _names(inner, name)
    inputs = None if example_input is None else as_inputs(example_input)
    parts = census(inner)
    if inputs is not None and _compat.is_lazy(parts):
        inner = _materialised(inner, inputs)
        parts = census(inner)
    request = _Request(inner, inputs, label, source, keep, parts)
    with _collector_off():
        try:
            result = _READERS[strategy](request)
        finally:
            request.release()
    if prefix:
        bindings = result.spec.bindings
        bindings.update({block: (prefix + path).rstrip(".") for block, path in bindings.items()})
    return result


@contextlib.contextmanager
def _collector_off() -> Iterator[None]:
    """Run without the cyclic collector, which would walk the growing graph again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _materialised(model: nn.Module, inputs: Inputs) -> nn.Module:
    """A copy of a lazy model that has run once, which gives it its parameters; the model stays lazy.

    What has its shape already is shared and not copied, and torch cannot copy a lazy buffer.
    """
    parts = census(model)
    shared: dict[int, Any] = {}
    for _, tensor in (*parts.parameters, *parts.buffers):
        if not _compat.is_uninitialized(tensor):
            shared[id(tensor)] = tensor
        elif isinstance(tensor, UninitializedBuffer):
            shared[id(tensor)] = _lazy_buffer(requires_grad=False, device=tensor.device, dtype=tensor.dtype)
    made = copy.deepcopy(model, shared)
    with untouched(model, inputs), torch.no_grad(), evaluating(made), contextlib.suppress(Exception):
        made(*inputs.args, **inputs.kwargs)
    return made


# ── one function for each strategy ───────────────────────────────────────────


def _by_tree(request: _Request) -> Analysis:
    """The module tree; its connections are a guess and the analysis says so."""
    graph = read_tree(request.model)
    drawing = request.drawn(graph)
    text = f"{request.name}: the connections between blocks are a guess from the order of the modules"
    return Analysis(drawing.spec, "tree", aux=_aux(drawing, graph, request.parts), warnings=[text])


def _by_fx(request: _Request) -> Analysis:
    """The trace alone."""
    try:
        graph = fx_trace.trace(request.model, request.inputs, parts=request.parts)
        drawing = request.drawn(graph)
    except Exception as error:
        text = f"torch.fx cannot trace {request.name}: {_first_line(error)}; pass an example input"
        raise ForwardError(text) from error
    return Analysis(drawing.spec, "fx", aux=_aux(drawing, graph, request.parts))


def _by_hooks(request: _Request) -> Analysis:
    """The recorded pass alone."""
    if request.inputs is None:
        raise SettingError('strategy "hooks" records one forward pass, so it needs an example_input')
    recording = record(request.model, request.inputs, keep=request.keep, parts=request.parts)
    if recording.failure is not None:
        raise _forward_error(request, recording, recording.failure)
    return _recorded(request, recording)


def _auto(request: _Request) -> Analysis:
    """The recorded pass with the trace as a second opinion; without inputs the trace, else the tree."""
    if request.inputs is None:
        return _without_inputs(request)
    recording = record(request.model, request.inputs, keep=request.keep, parts=request.parts)
    if recording.failure is not None:
        return _as_far_as_it_ran(request, recording, recording.failure)
    result = _recorded(request, recording)
    traced = _second_opinion(request)
    if traced is not None:
        differences = _differences(request.drawn(traced).spec, result.spec)
        result.warnings.extend(differences)
        result.strategy = "hooks" if differences else "fx"
    return result


def _as_far_as_it_ran(request: _Request, recording: Recording, failure: Failure) -> Analysis:
    """What ran up to a failure, and after it what the module tree has that did not run."""
    error = _forward_error(request, recording, failure)
    if recording.builder is not None and recording.graph.ops:
        result = _recorded(request, Recording(read_rest(recording.builder), None))
        result.strategy, result.warnings = "tree", []
    else:
        result = _by_tree(request)
    rest = "the connections between the blocks that did not run are a guess from the order of the modules"
    result.warnings = [f"{error}; what ran until then is drawn", f"{request.name}: {rest}"]
    return result


def _without_inputs(request: _Request) -> Analysis:
    """The trace where there is one, else the tree with the reason."""
    if len(request.parts.modules) <= _MAX_TRACED:
        try:
            return _by_fx(request)
        except ForwardError as error:
            reason = str(error)
    else:
        reason = f"{request.name} has too many modules for torch.fx; pass an example input"
    result = _by_tree(request)
    result.warnings.insert(0, reason)
    return result


_READERS = {"auto": _auto, "fx": _by_fx, "hooks": _by_hooks, "tree": _by_tree}


# ── parts ────────────────────────────────────────────────────────────────────


def _second_opinion(request: _Request) -> Graph | None:
    """The trace of a model of moderate size; None where it cannot be traced."""
    if len(request.parts.modules) > fx_trace.MAX_MODULES:
        return None
    try:
        return fx_trace.trace(request.model, request.inputs, parts=request.parts)
    except Exception:  # noqa: BLE001 - what cannot be traced raises anything at all; the recorded pass stands
        return None


def _rows(spec: ModelSpec) -> Counter[tuple[str, str]]:
    """The blocks of a spec by kind and label; inputs and groups aside, which readers name differently."""
    return Counter(
        (block.kind, block.label or "")
        for block in spec.blocks
        if block.kind not in ("input", "tokens", "group")
    )


def _edges(spec: ModelSpec) -> set[tuple[str, str]]:
    """The edges between the blocks of `_rows`, each as the names of both ends."""
    names = {
        block.id: f"{block.kind} {block.label or ''}"
        for block in spec.blocks
        if block.kind not in ("input", "tokens", "group")
    }
    return {
        (names[source], names[block.id])
        for block in spec.blocks
        for source in block.inputs
        if block.id in names and source in names
    }


def _differences(traced: ModelSpec, ran: ModelSpec) -> list[str]:
    """Where a trace holds other blocks than the recorded pass, or connects them otherwise, in words."""
    lost, extra = _rows(ran) - _rows(traced), _rows(traced) - _rows(ran)
    if not lost and not extra:
        moved = sorted(f"{source} to {target}" for source, target in _edges(ran) - _edges(traced))
        return [f"torch.fx does not connect {_few(moved)}; the recorded pass is drawn"] if moved else []
    same_kinds = Counter(kind for kind, _ in lost.elements()) == Counter(kind for kind, _ in extra.elements())
    if same_kinds and not set(traced.bindings.values()) - set(ran.bindings.values()):
        return []
    found = []
    for counter, text in (
        (extra, "torch.fx traces {} that did not run"),
        (lost, "torch.fx does not see {} that ran"),
    ):
        names = sorted({f"{kind} {label}" for kind, label in counter})
        if names:
            found.append(text.format(_few(names)) + "; the recorded pass is drawn")
    return found


def _few(names: list[str]) -> str:
    """The first of some names, and how many more there are."""
    more = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


def _recorded(request: _Request, recording: Recording) -> Analysis:
    """The analysis of a recorded pass."""
    drawing = request.drawn(recording.graph)
    values = {
        block: value.tensor for block, value in drawing.values.items() if isinstance(value.tensor, Tensor)
    }
    aux = _aux(drawing, recording.graph, request.parts)
    result = Analysis(drawing.spec, "hooks", values, aux, output=recording.output)
    if drawing.dropped:
        shown = ", ".join(drawing.dropped[:_MAX_NAMED])
        result.warnings.append(f"ran, but does not reach the output, so it is not drawn: {shown}")
    return result


def read_recorded(model: nn.Module, recording: Recording) -> Analysis:
    """The analysis of a forward that ran for another reason; nothing is run again."""
    label, source = _names(model, None)
    with _collector_off():
        return _recorded(_Request(model, None, label, source, keep=True, parts=census(model)), recording)


def _aux(drawing: Drawing, graph: Graph, parts: Census) -> dict[str, dict[str, Any]]:
    """What is known of blocks beside their params."""
    places = Places(graph)
    found = {block: _facts(unit, places) for block, unit in drawing.units.items()}
    names = {id(parameter): name for name, parameter in parts.parameters}
    for block, unit in drawing.units.items():
        found[block].update({"parameters": direct} if (direct := _direct(unit, names)) else {})
    return {block: facts for block, facts in found.items() if facts}


def _direct(unit: Unit, names: Mapping[int, str]) -> list[str]:
    """The names of a block's parameters that lie in none of its modules."""
    if unit.module is not None and len(unit.modules) == 1:
        return []
    found = (names[one] for one in unit.parameters if one in names)
    return [
        name
        for name in found
        if not any(not path or name.startswith(f"{path}.") for path in unit.modules)
    ]


def _facts(unit: Unit, places: Places) -> dict[str, Any]:
    """What is known of one block; see `Analysis.aux`."""
    facts: dict[str, Any] = {"modules": list(unit.modules), "reads": _reads(unit)}
    facts.update(_attention_facts(unit) if unit.kind == "attention" else {})
    facts.update(_region_facts(unit.region, places) if unit.region is not None else {})
    if unit.module is None:
        facts["function"] = places.of(unit.value, unit.modules[0] if unit.modules else None)
    if unit.table is not None and isinstance(unit.table.tensor, Tensor):
        facts["table"] = unit.table.tensor
    # By type: a traced value that is compared with a list would have torch.fx trace the comparison.
    known = {name: fact for name, fact in facts.items() if fact is not None}
    return {name: fact for name, fact in known.items() if type(fact) is not list or fact}


def _attention_facts(unit: Unit) -> dict[str, Any]:
    """The operations of an attention block, and what its probabilities can be computed from again."""
    weights = None if unit.region is None else unit.region.weights
    kept = weights is not None and isinstance(weights.tensor, Tensor)
    ops = [op.index for node in unit.nodes for op in node.ops]
    return {"ops": ops, "scores": None if kept else _scores(unit)}


def _region_facts(region: Region, places: Places) -> dict[str, Any]:
    """The probabilities of an attention region, and where an mlp's inner activation is computed."""
    facts: dict[str, Any] = {}
    if region.weights is not None and isinstance(region.weights.tensor, Tensor):
        facts["weights"] = region.weights.tensor
    if region.inner is not None and region.inner.call is not None:
        facts["inner"] = region.inner.call.path
    elif region.inner is not None and region.inner.makes:
        facts["inner_function"] = places.of(region.inner.makes[0])
    if region.inner is not None and region.inner.makes:
        facts["hidden"] = region.inner.makes[0].tensor
    return facts


def _reads(unit: Unit) -> list[Tensor]:
    """The tensors that a block was made from, its own parameters aside."""
    made = {id(value) for node in unit.nodes for value in node.makes}
    read = (value for node in unit.nodes for _, value in node.reads if id(value) not in made)
    return [value.tensor for value in read if value.source != "param" and isinstance(value.tensor, Tensor)]


def _scores(unit: Unit) -> Scores | None:
    """The probabilities of an attention block whose kernel kept them, to be computed again."""
    return next((scores for node in unit.nodes if (scores := scores_of(node)) is not None), None)


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


_OWN_CODE = tuple(
    str(Path(found.__file__ or "").parent) + os.sep for found in (torch, sys.modules[__package__])
)


def _source_line(error: BaseException) -> str:
    """The innermost line of the model's own code that an exception passed through."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(_OWN_CODE)]
    if not own:
        return ""
    frame = own[-1]
    text = f": {frame.line[:_MAX_LINE]}" if frame.line else ""
    return f"; at {frame.filename}:{frame.lineno}, in {frame.name}{text}"


def _forward_error(request: _Request, recording: Recording, failure: Failure) -> ForwardError:
    """The error of a failed pass, with what ran up to it drawn."""
    spec = request.drawn(recording.graph).spec if recording.graph.ops else None
    where = f"{_place(failure, request.name)} {_first_line(failure.error)}"
    text = where + _source_line(failure.error)
    error = ForwardError(text, failure.call.path, spec)
    error.__cause__ = failure.error
    return error
