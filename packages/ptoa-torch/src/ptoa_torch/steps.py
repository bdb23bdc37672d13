"""The steps of optimizers, seen by torch's own hooks.

Between frames there is one hook after the step of each optimizer that was named, which counts.
It sees each real update once: also of an optimizer whose ``step`` calls ``super().step()``,
where torch runs the hooks for both, and not the calls that accumulation or a loss scaler skip.

On frame steps every torch optimizer is listened to (`StepWatch`), since gradients are those that
an update used only at the moment when the optimizer that owns the parameters steps: before that
they may be scaled or of one micro-batch, and afterwards they may have been set to zero.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from . import _compat

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

__all__ = ["StepCounter", "StepWatch", "Successor", "find_scaler", "hooked_optimizer", "learning_rate"]

_MAX_WRAPPERS = 4
_MAX_FRAMES = 16
_PATIENCE = 3


def hooked_optimizer(optimizer: Any) -> torch.optim.Optimizer | None:
    """The torch optimizer behind wrappers, whose steps run its hooks; None where there is none.

    Example:
        >>> plain = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
        >>> hooked_optimizer(plain) is plain, hooked_optimizer(object()) is None
        (True, True)
    """
    for _ in range(_MAX_WRAPPERS):
        if _runs_hooks(optimizer):
            found: torch.optim.Optimizer = optimizer
            return found
        optimizer = getattr(optimizer, "optimizer", None)
    return None


def _runs_hooks(optimizer: Any) -> bool:
    """Whether torch wrapped the step of this optimizer; a wrapper that skips its base's init is not."""
    return (
        isinstance(optimizer, torch.optim.Optimizer)
        and "_optimizer_step_post_hooks" in vars(optimizer)
        and getattr(type(optimizer).step, "hooked", False)
    )


def learning_rate(optimizer: Any) -> float | Tensor | None:
    """The learning rate of the first group; a tensor where the optimizer keeps one."""
    groups = getattr(optimizer, "param_groups", None)
    rate = groups[0].get("lr") if groups else None
    return rate if isinstance(rate, Tensor) else None if rate is None else float(rate)


class StepCounter:
    """Counts the steps of one optimizer by a hook after each.

    Args:
        optimizer: As `hooked_optimizer` gives it.
        after: Called after each step.

    Attributes:
        optimizer: The optimizer.
        steps: Steps so far.

    Example:
        >>> plain = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
        >>> counter = StepCounter(plain)
        >>> plain.step(); counter.steps
        1
    """

    def __init__(self, optimizer: torch.optim.Optimizer, after: Callable[[], object] | None = None) -> None:
        """Register the hook."""
        self.steps = 0
        self._after = after
        self._attach(optimizer)

    def _attach(self, optimizer: torch.optim.Optimizer) -> None:
        """Register the hook."""
        self.optimizer = optimizer
        # Only where a class of the optimizer overrides another's step can one step run the hooks twice.
        overrides = sum(
            "step" in vars(cls) for cls in type(optimizer).__mro__ if cls is not torch.optim.Optimizer
        )
        self._may_nest = overrides > 1
        self._handle = optimizer.register_step_post_hook(self._stepped)

    def follow(self, optimizer: torch.optim.Optimizer) -> None:
        """Count the steps of another optimizer from now on, which steps in this one's place."""
        self._handle.remove()
        self._attach(optimizer)

    def remove(self) -> None:
        """Remove the hook."""
        self._handle.remove()

    def _stepped(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """After a step."""
        if self._may_nest and _is_nested(sys._getframe(1), optimizer):
            return
        self.steps += 1
        if self._after is not None:
            self._after()


class Successor:
    """Looks for the optimizer that steps in the place of one that was made anew, and steps no more.

    Losses that are handed over step after step, none of which is counted, may be those of
    accumulated batches. Only after some of them are the steps of all optimizers listened to,
    until one is seen: the one that is counted, or another that holds all that it holds of the model.

    Args:
        counter: Counts the optimizer that was named.
        root: The model.
        found: Called with the successor when it has stepped.
    """

    def __init__(
        self, counter: StepCounter, root: torch.nn.Module, found: Callable[[torch.optim.Optimizer], object]
    ) -> None:
        """Listen to nothing yet."""
        self._counter = counter
        self._root = root
        self._found = found
        self._last = counter.steps
        self._waited = 0
        self._seen: torch.optim.Optimizer | None = None
        self._handle: Any = None

    def loss_was_given(self) -> None:
        """A loss was handed over, after a step or, once more, after none."""
        if self._counter.steps != self._last:
            self._last = self._counter.steps
            self.end()
        elif self._seen is not None:
            seen = self._seen
            self.end()
            self._found(seen)
        else:
            self._waited += 1
            if self._waited == _PATIENCE:
                self._handle = register_optimizer_step_post_hook(self._stepped)

    def end(self) -> None:
        """Listen no more."""
        self._waited, self._seen = 0, None
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _stepped(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """After a step of any optimizer; torch is walking over its hooks, so none may be removed here."""
        named = self._counter.optimizer
        here = {id(parameter) for parameter in self._root.parameters()}
        wanted, held = ({id(p) for g in one.param_groups for p in g["params"]} for one in (named, optimizer))
        if optimizer is not named and held & here and (wanted & here) <= held:
            self._seen = optimizer


class StepWatch:
    """Hooks before and after the step of every torch optimizer, while `arm` holds.

    Args:
        before: Called before a step with the optimizer and whether it was given a closure;
            twice where a step calls the one that it overrides.
        after: Called after a step with the optimizer.
    """

    def __init__(
        self,
        before: Callable[[torch.optim.Optimizer, bool], object],
        after: Callable[[torch.optim.Optimizer], object],
    ) -> None:
        """Register nothing yet."""
        self._before = before
        self._after = after
        self._handles: list[Any] = []

    def arm(self) -> None:
        """Register the hooks."""
        if not self._handles:
            self._handles = [
                register_optimizer_step_pre_hook(self._stepping),
                register_optimizer_step_post_hook(self._stepped),
            ]

    def disarm(self) -> None:
        """Remove the hooks."""
        while self._handles:
            self._handles.pop().remove()

    def _stepping(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Before a step."""
        # On torch 2.0 the optimizer itself is among the arguments.
        given = [kwargs.get("closure"), *(arg for arg in args if arg is not optimizer)]
        self._before(optimizer, any(callable(item) for item in given))

    def _stepped(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """After a step."""
        self._after(optimizer)


def _is_nested(wrapper: FrameType, optimizer: Any) -> bool:
    """Whether torch's wrapper of a step was called from another one of the same optimizer."""
    frame = wrapper.f_back
    for _ in range(_MAX_FRAMES):
        if frame is None:
            return False
        if frame.f_code is wrapper.f_code:
            args = frame.f_locals.get("args", ())
            return bool(args) and args[0] is optimizer
        frame = frame.f_back
    return False


def find_scaler() -> Any:
    """The loss scaler whose ``step`` is running above this call; None where there is none."""
    classes = _compat.grad_scalers()
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_MAX_FRAMES):
        if frame is None:
            return None
        holder = frame.f_locals.get("self") if frame.f_code.co_name in ("step", "_maybe_opt_step") else None
        if isinstance(holder, classes):
            return holder
        frame = frame.f_back
    return None
