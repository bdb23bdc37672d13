"""Counting the steps of an optimizer by its own hooks.

Between frames there is one hook, after the step, on the optimizer and none on the model. It
sees each real update once: also of an optimizer whose ``step`` calls ``super().step()``,
where torch runs the hooks for both, and not the calls that accumulation or a loss scaler skip.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from . import _compat

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

__all__ = ["StepHooks", "find_scaler", "hooked_optimizer", "learning_rate"]

_MAX_WRAPPERS = 4
_MAX_FRAMES = 16


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


class StepHooks:
    """The hooks of one optimizer: after every step, and before a step while `arm` holds.

    Args:
        optimizer: As `hooked_optimizer` gives it.
        before: Called before a step that a frame is made of, with the optimizer and whether
            the step was given a closure.
        after: Called after each step.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        before: Callable[[torch.optim.Optimizer, bool], object],
        after: Callable[[], object],
    ) -> None:
        """Register the hook after the step."""
        self._optimizer = optimizer
        self._before = before
        self._after = after
        # Only where a class of the optimizer overrides another's step can one step run the hooks twice.
        overrides = sum(
            "step" in vars(cls) for cls in type(optimizer).__mro__ if cls is not torch.optim.Optimizer
        )
        self._may_nest = overrides > 1
        self._post = optimizer.register_step_post_hook(self._stepped)
        self._pre: Any = None

    def arm(self) -> None:
        """Register the hook before the step."""
        if self._pre is None:
            self._pre = self._optimizer.register_step_pre_hook(self._stepping)

    def disarm(self) -> None:
        """Remove the hook before the step."""
        if self._pre is not None:
            self._pre.remove()
            self._pre = None

    def remove(self) -> None:
        """Remove both hooks."""
        self.disarm()
        self._post.remove()

    def _stepping(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Before a step."""
        if not (self._may_nest and _is_nested(sys._getframe(1), optimizer)):
            closure = kwargs.get("closure") or next((arg for arg in args if callable(arg)), None)
            self._before(optimizer, closure is not None)

    def _stepped(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """After a step."""
        if not (self._may_nest and _is_nested(sys._getframe(1), optimizer)):
            self._after()


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
