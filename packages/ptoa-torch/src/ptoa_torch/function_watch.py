"""Functions as they are called on a frame step: residual adds, functional activations and norms.

A function mode sees every torch function while the model's forward runs; the modules in which
blocks are written as functions, and those that they call, say where the forward is by a wrap
of their own forward. A function is the one that a plan means when it is the same call of the
same name in the same call of the same module. Where a pass makes another number of such calls
than the pass that was read, which one is which is not known, and `FunctionWatch.odd` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from .functions import function_name
from .graph import flatten

if TYPE_CHECKING:
    from .places import FunctionPlace
    from .plan import Target

__all__ = ["FunctionWatch"]

_Saw = Callable[["Target", tuple[Any, ...], dict[str, Any], Tensor], object]

_names: dict[Any, str] = {}


def _named(func: Any) -> str:
    """A function's plain name, remembered by function."""
    try:
        return _names[func]
    except KeyError:
        _names[func] = name = function_name(func)
        return name
    except TypeError:  # an unhashable callable
        return function_name(func)


class _Scope:
    """One call of a module in which blocks are written as functions."""

    __slots__ = ("counts", "places")

    def __init__(self, places: dict[str, list[tuple[FunctionPlace, Target]]]) -> None:
        """Start with no function seen."""
        self.places = places
        self.counts = dict.fromkeys(places, 0)


class FunctionWatch(TorchFunctionMode):
    """Shows what the functions of a plan make while it is entered.

    Args:
        functions: As `plan.Plan.functions`.
        saw: Called with a target, the function's arguments, and the tensor that it made.

    Attributes:
        odd: Rows of functions that were called another number of times than when the model was read.
    """

    def __init__(self, functions: dict[str, list[tuple[FunctionPlace, Target]]], saw: _Saw) -> None:
        """Sort the places by call and name."""
        super().__init__()
        self._saw = saw
        self._calls: dict[str, int] = {}
        self._scope: _Scope | None = None
        self._known: dict[tuple[str, int], dict[str, list[tuple[FunctionPlace, Target]]]] = {}
        self._again = False
        self.odd: set[int] = set()
        for scope, found in functions.items():
            for place, target in found:
                names = self._known.setdefault((scope, place.ordinal), {})
                names.setdefault(place.name, []).append((place, target))

    def begin(self) -> None:
        """Forget a pass that came before, and be in the model itself."""
        self.odd = set()
        self._again = False
        self._calls = {}
        self._scope = self._enter("")

    @property
    def outside(self) -> bool:
        """Whether no pass is on."""
        return self._scope is None

    def begin_again(self) -> None:
        """A checkpointed part runs again: the order of the calls of one module is not that of the pass."""
        self._again = True
        self._calls = {}

    def end(self) -> None:
        """Be done with a pass that ran to its end."""
        self._check(self._scope)
        self._scope = None

    def around(self, path: str) -> Callable[..., Any]:
        """What goes around the forward of the module at a path."""

        def inside(forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            outer, self._scope = self._scope, self._enter(path)
            try:
                result = forward(*args, **kwargs)
                self._check(self._scope)
                return result
            finally:
                self._scope = outer

        return inside

    def _enter(self, path: str) -> _Scope | None:
        """The scope of a module's next call; None where no function in it is meant."""
        ordinal = self._calls.get(path, 0)
        self._calls[path] = ordinal + 1
        if self._again and (path, 1) in self._known:
            return None
        places = self._known.get((path, ordinal))
        return None if places is None else _Scope(places)

    def _check(self, scope: _Scope | None) -> None:
        """Note the rows of functions that were called more or less often than when the model was read."""
        if scope is None:
            return
        for name, found in scope.places.items():
            if scope.counts[name] != found[0][0].count:
                self.odd.update(row for _, target in found for row in target.rows)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Let the call through, then look whether it is meant."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        scope = self._scope
        if scope is not None:
            name = _named(func)
            if name in scope.places:
                self._count(scope, name, args, kwargs, result)
        return result

    def _count(
        self, scope: _Scope, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        """Count a call and show what it made if it is one that is meant."""
        nth = scope.counts[name]
        scope.counts[name] = nth + 1
        for place, target in scope.places[name]:
            if place.nth == nth:
                made = _tensors(result)
                if place.output < len(made):
                    self._saw(target, args, kwargs, made[place.output])


def _tensors(result: Any) -> list[Tensor]:
    """The tensors that a function returned."""
    if isinstance(result, Tensor):
        return [result]
    found: Iterable[tuple[str, Any]] = flatten(result)
    return [tensor for _, tensor in found]
