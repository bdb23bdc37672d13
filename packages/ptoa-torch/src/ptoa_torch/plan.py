"""Which module or function stands behind which row of a frame.

A plan is made once, when the model has been read. It names the modules and functions whose
results are measured, the modules that hold a block's parameters, and why something cannot be had.
Parameters themselves are looked up anew for each frame, since wrappers replace them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from . import _compat
from .matchers import classify_module

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ptoa_core.spec import Block, ModelSpec

    from .places import FunctionPlace

__all__ = ["Plan", "Target", "find_module", "make_plan", "unwrapped"]

_SATURATING = frozenset(("tanh", "sigmoid"))
_DYING = frozenset(("relu", "gelu", "silu"))


@dataclass(eq=False)
class Target:
    """A module or function that is measured when it is called.

    Attributes:
        module: The module; None for a function.
        rows: The rows of its calls, in the order of the calls.
        part: ``act``, or ``hidden`` for an mlp's inner activation.
        sat: As in ``tensor_stats``.
        takes_input: Whether its input is measured in the place of its output.
        units: Whether its last dimension (the second one of images) is units that may be dead.
        path: Where the module was found.
    """

    module: nn.Module | None
    rows: list[int]
    part: str = "act"
    sat: str | None = None
    takes_input: bool = False
    units: bool = False
    path: str = ""


@dataclass(eq=False)
class Plan:
    """Everything that a frame step needs to know of the model.

    Attributes:
        ids: The block of each row.
        paths: The module's path of each row.
        targets: Modules that are measured.
        functions: What is measured of functions, by scope, call of the scope, name and number.
        scopes: Modules in which such functions are written, and those that they call.
        attention: Modules whose probabilities are looked at, their row and number of heads.
        holders: For each row the modules whose own parameters are the block's.
        direct: For each row the parameters that are the block's apart from its modules: who holds
            them, and under which name.
        missing: For each row, the parts that cannot be had and why.
        everything: Every module that holds parameters.
        held: For each row the paths of the modules that hold its parameters.
        named: For each row the full names of its direct parameters.
    """

    ids: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    functions: dict[str, list[tuple[FunctionPlace, Target]]] = field(default_factory=dict)
    scopes: dict[str, nn.Module] = field(default_factory=dict)
    attention: list[tuple[nn.Module, int, int]] = field(default_factory=list)
    holders: list[list[nn.Module]] = field(default_factory=list)
    direct: list[list[tuple[nn.Module, str]]] = field(default_factory=list)
    missing: list[dict[str, str]] = field(default_factory=list)
    everything: list[nn.Module] = field(default_factory=list)
    held: list[list[str]] = field(default_factory=list)
    named: list[list[str]] = field(default_factory=list)

    def refresh(self, root: nn.Module) -> None:
        """Look all modules up anew, since some may have been replaced."""
        self.everything = [module for module in root.modules() if module._parameters]
        for target in self.targets:
            target.module = find_module(root, target.path) or target.module
        for row, paths in enumerate(self.held):
            self.holders[row] = _holders(root, paths)
            self.direct[row] = _direct(root, self.named[row])

    def names(self) -> Plan:
        """What is still needed when a frame has been measured: a frame keeps no module alive."""
        return Plan(ids=self.ids, paths=self.paths)

    def measured(self) -> list[tuple[int, Target]]:
        """Everything that is measured with its row, in their order, what is inside a block first."""
        functions = (target for found in self.functions.values() for _, target in found)
        rows = [(row, target) for target in (*self.targets, *functions) for row in target.rows]
        return sorted(rows, key=lambda item: (item[0], item[1].part == "act"))

    def parameters(self) -> tuple[list[Tensor], list[int]]:
        """Every parameter once, and the row that it belongs to; -1 for none.

        A tied parameter belongs to the first block that holds it.
        """
        seen: set[int] = set()  # a tensor itself is slow to look up
        found: list[Tensor] = []
        rows: list[int] = []
        for row, parameters in self._held_parameters():
            for parameter in parameters:
                if parameter is not None and id(parameter) not in seen:
                    seen.add(id(parameter))
                    if not _compat.is_uninitialized(parameter):
                        found.append(parameter)
                        rows.append(row)
        return found, rows

    def _held_parameters(self) -> Iterator[tuple[int, Iterable[Tensor | None]]]:
        """Each row with what it holds, those of no row last; what has been taken out of a module is None."""
        for row, modules in enumerate(self.holders):
            yield row, [module._parameters.get(name) for module, name in self.direct[row]]
            for module in modules:
                yield row, module._parameters.values()
        for module in self.everything:
            yield -1, module._parameters.values()


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside wrappers that only pass calls on: compiled, DataParallel, DistributedDataParallel."""
    while True:
        wrapper = isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel))
        if not (wrapper or _compat.is_compiled(model)):
            return model
        inner = model._modules.get("module" if wrapper else "_orig_mod")
        if inner is None:
            return model
        model = inner


def find_module(root: nn.Module, path: str) -> nn.Module | None:
    """The module at a path, through compiled wrappers."""
    module = root
    for name in filter(None, path.split(".")):
        if name == "_orig_mod" and "_orig_mod" not in module._modules:
            continue
        inner = module._modules.get(name)
        if inner is None and "_orig_mod" in module._modules:
            inner = module._modules["_orig_mod"]._modules.get(name)  # type: ignore[union-attr]  # a wrapper's is a module
        if inner is None:
            return None
        module = inner
    while _compat.is_compiled(module) and module._modules.get("_orig_mod") is not None:
        module = module._modules["_orig_mod"]  # type: ignore[assignment]  # not None, see above
    return module


def make_plan(
    root: nn.Module,
    spec: ModelSpec,
    aux: Mapping[str, Mapping[str, Any]],
    *,
    attention: bool = True,
    blocks: Sequence[str] | None = None,
) -> Plan:
    """The plan for a model that was read.

    Args:
        root: The model, `unwrapped`.
        spec: What was read; inputs, and groups of other blocks, have no row.
        aux: As in ``Analysis.aux``.
        attention: Whether attention probabilities are wanted.
        blocks: Patterns of ids, kinds or paths; only blocks that match one have a row.

    Example:
        >>> from ptoa_torch import from_module
        >>> net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        >>> make_plan(net, from_module(net), {}).ids
        ['l0', 'f0']
    """
    plan = Plan(everything=[module for module in root.modules() if module._parameters])
    by_module: dict[int, Target] = {}
    for block in spec.blocks:
        facts = aux.get(block.id, {})
        bound_path = spec.bindings.get(block.id)
        place = facts.get("function")
        paths = list(facts.get("modules", ())) or ([] if bound_path is None else [bound_path])
        names = paths or ([] if place is None else [place.scope])
        if not names or not _wanted(block, names, blocks):
            continue
        path = names[0] if bound_path is None else bound_path
        row = _new_row(plan, block, path)
        plan.held[row] = paths
        plan.holders[row] = _holders(root, paths)
        plan.named[row] = list(facts.get("parameters", ()))
        plan.direct[row] = _direct(root, plan.named[row])
        bound = find_module(root, path) if paths else None
        if place is not None:
            _add_function(
                plan,
                root,
                place,
                Target(None, [row], sat=_sat(block), units=block.kind == "activation" and _has_units(block)),
            )
        elif bound is None:
            plan.missing[row]["act"] = "its module is not in the model"
        else:
            _add_module(plan, row, block, bound, path, by_module)
        if block.kind == "mlp":
            _add_hidden(plan, root, row, block, facts, bound)
        if attention and block.kind == "attention" and block.params.heads and bound is not None:
            plan.attention.append((bound, row, block.params.heads))
    return plan


def _wanted(block: Block, paths: Sequence[str], patterns: Sequence[str] | None) -> bool:
    """Whether a block matches one of the patterns."""
    names = (block.id, block.kind, *paths)
    return patterns is None or any(fnmatchcase(name, pattern) for pattern in patterns for name in names)


def _new_row(plan: Plan, block: Block, path: str) -> int:
    """A row without anything in it."""
    plan.ids.append(block.id)
    plan.paths.append(path)
    plan.holders.append([])
    plan.direct.append([])
    plan.named.append([])
    plan.held.append([])
    plan.missing.append({})
    return len(plan.ids) - 1


def _holders(root: nn.Module, paths: Sequence[str]) -> list[nn.Module]:
    """The modules at some paths, and below them, that hold parameters."""
    found = [module for module in (find_module(root, path) for path in paths) if module is not None]
    return [part for module in found for part in module.modules() if part._parameters]


def _direct(root: nn.Module, names: Iterable[str]) -> list[tuple[nn.Module, str]]:
    """The modules that hold some parameters, and the names there."""
    split = (name.rpartition(".") for name in names)
    found = ((find_module(root, path), name) for path, _, name in split)
    return [(module, name) for module, name in found if module is not None]


def _sat(block: Block) -> str | None:
    """How a block's values saturate, where it is an activation."""
    return (
        block.params.variant if block.kind == "activation" and block.params.variant in _SATURATING else None
    )


def _has_units(block: Block) -> bool:
    """Whether the units of a block's activation may die."""
    return block.params.variant in _DYING


def _add_module(
    plan: Plan, row: int, block: Block, module: nn.Module, path: str, by_module: dict[int, Target]
) -> None:
    """Have the output of a block's module measured, a row a call."""
    target = by_module.get(id(module))
    if target is not None:
        target.rows.append(row)
        return
    units = block.kind == "activation" and _has_units(block)
    target = by_module[id(module)] = Target(module, [row], sat=_sat(block), units=units, path=path)
    plan.targets.append(target)


def _add_function(plan: Plan, root: nn.Module, place: FunctionPlace, target: Target) -> None:
    """Have what a function makes measured; its scope and the modules called there have to be known."""
    plan.functions.setdefault(place.scope, []).append((place, target))
    for path in (place.scope, *place.inside):
        module = find_module(root, path)
        if module is not None:
            plan.scopes[path] = module


def _add_hidden(
    plan: Plan, root: nn.Module, row: int, block: Block, facts: Mapping[str, Any], mlp: nn.Module | None
) -> None:
    """Have an mlp's inner activation measured."""
    sat = block.params.variant if block.params.variant in _SATURATING else None
    place = facts.get("inner_function")
    if place is not None:
        _add_function(plan, root, place, Target(None, [row], "hidden", sat, units=_has_units(block)))
        return
    inner = find_module(root, facts["inner"]) if "inner" in facts else None
    hidden = None if mlp is None else _inner_target(mlp, inner, row, sat)
    if hidden is None:
        plan.missing[row]["hidden"] = "no module computes it"
    else:
        hidden.units = _has_units(block)
        hidden.path = next((name for name, part in root.named_modules() if part is hidden.module), "")
        plan.targets.append(hidden)


def _inner_target(mlp: nn.Module, inner: nn.Module | None, row: int, sat: str | None) -> Target | None:
    """The module that computes an mlp's inner activation, else the one that reads it."""
    if inner is None:
        parts = [module for module in mlp.modules() if module is not mlp]
        inner = next((module for module in parts if classify_module(module).kind == "activation"), None)
        if inner is None:
            readers = [module for module in parts if classify_module(module).kind == "linear"]
            return Target(readers[-1], [row], "hidden", sat, takes_input=True) if len(readers) > 1 else None
    return Target(inner, [row], "hidden", sat)
