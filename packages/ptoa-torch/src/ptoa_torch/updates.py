"""What an update did: the weights before it, the gradients that it used, how far it moved them.

Gradients are read when the optimizer that owns them is about to step, once in a frame for each
optimizer, and divided by the loss scale where they still hold it (a fused optimizer divides
them itself, later). With several optimizers each has a lane of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from . import _compat
from .meter import Parcel
from .parameters import ParameterNorms
from .ranks import Place, is_sharded, share_of, sum_over_ranks
from .steps import find_scaler, learning_rate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import nn

    from .frame import Frame
    from .plan import Plan
    from .steps import StepCounter

__all__ = ["Lane", "Updates"]

_NORMS = 3  # a parameter's weight, gradient and update


@dataclass(eq=False)
class Lane:
    """What one optimizer did in a frame.

    Attributes:
        places: The parameters that are its own, by their place in the frame's list.
        step: The step that it was about to make, from 0; None where its steps are not counted.
        lr: Its learning rate.
    """

    places: list[int] = field(default_factory=list)
    step: int | None = None
    lr: float | None = None
    closure: bool = False


class Updates:
    """Measures the parameters of one model around its optimizers' steps.

    Args:
        ratio: Whether to copy the weights, to see how far a step moves them.
        counters: The optimizers whose steps are counted; the first one's steps make frames.
        place: Which of several processes this one is.
        reduce: Whether norms are summed over all processes, which all must ask for.
    """

    def __init__(
        self,
        ratio: bool,
        counters: Sequence[StepCounter],
        place: Place = Place(),  # noqa: B008  # a frozen value
        *,
        reduce: bool = False,
    ) -> None:
        """Take no memory yet."""
        self._place = place
        self._reduce = reduce
        self._own = Parcel()
        self._ratio = ratio
        self._counters = counters
        self._norms = ParameterNorms()
        self._parameters: list[Tensor] = []
        self._writes: int | None = None
        self._counted = 0
        self._seen_stepping = False
        self._named = self._main = counters[0].optimizer if counters else None

    def forget(self) -> None:
        """Give the memory back."""
        self._norms = ParameterNorms()
        self._parameters = []

    def keep_weights(self, frame: Frame, plan: Plan) -> None:
        """Measure the weights before the step; keep a copy of them where the ratio is wanted."""
        self._parameters, frame.owners = plan.parameters()
        frame.frozen = [not parameter.requires_grad for parameter in self._parameters]
        keep = self._norms.keep_weights if self._ratio else self._norms.measure_weights
        keep(self._parameters, frame.norms, self._parcel(frame))

    def before(self, frame: Frame, optimizer: torch.optim.Optimizer, closure: bool) -> bool:
        """An optimizer is about to step; returns whether it is one of this model's, and the first time."""
        if id(optimizer) in frame.lanes:
            return False
        self._follow(optimizer)
        counter = next((c for c in self._counters if c.optimizer is optimizer), None)
        places = self._owned(optimizer)
        if not places and counter is None:
            return False
        scaler = find_scaler()
        if optimizer is self._main and scaler is None:
            places += self._left_over(frame, places)
        step = frame.step if optimizer is self._main else None if counter is None else counter.steps
        lane = frame.lanes[id(optimizer)] = Lane(places, step, closure=closure)
        self._seen_stepping = True
        if closure:
            frame.notes["closure"] = True
        else:
            self._norms.measure_grads(self._parameters, frame.norms, self._parcel(frame), places)
        if scaler is not None:
            self._read_scaling(frame, optimizer, scaler, lane)
        if frame.main is None or optimizer is self._main:
            frame.main = lane
        frame.put_number(learning_rate(optimizer), lambda value: setattr(lane, "lr", value))
        return True

    def after(self, frame: Frame, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer has stepped; the gradients of a closure's last run are there only now."""
        lane = frame.lanes.get(id(optimizer))
        if lane is not None and lane.closure:
            lane.closure = False
            self._norms.measure_grads(self._parameters, frame.norms, self._parcel(frame), lane.places)

    def unseen_step(self, frame: Frame) -> None:
        """A step is said to be over: where no optimizer was seen in it, gradients as they are after it."""
        if frame.lanes:
            return
        if self._seen_stepping:
            frame.skipped = True  # its optimizer is one that is seen when it steps
            return
        frame.late = True
        self._norms.measure_grads(self._parameters, frame.norms, self._parcel(frame))

    def moved(self, frame: Frame) -> None:
        """Measure how far the weights have moved since they were kept."""
        if self._ratio and frame.owners:
            self._norms.measure_update(self._parameters, frame.norms, self._parcel(frame))

    def _follow(self, optimizer: torch.optim.Optimizer) -> None:
        """Count the steps of an inner optimizer where the one that was named never steps itself.

        SAM and its like are optimizers by their class, and leave the step to another that they hold.
        """
        main = self._counters[0] if self._counters else None
        if main is None or optimizer is main.optimizer:
            return
        wanted, held = (
            {id(parameter) for group in one.param_groups for parameter in group["params"]}
            for one in (main.optimizer, optimizer)
        )
        if optimizer is self._named or (not main.steps and wanted and wanted <= held):
            self.follow(optimizer)

    def follow(self, optimizer: torch.optim.Optimizer) -> None:
        """Take the steps of another optimizer for those of the one that was named."""
        self._counters[0].follow(optimizer)
        self._main = optimizer

    # ── several processes ─────────────────────────────────────────────────────

    def _parcel(self, frame: Frame) -> Parcel:
        """Where norms wait: with the frame's numbers, or apart when other processes add to them."""
        return self._own if self._reduce else frame.parcel

    def over_ranks(self, frame: Frame, root: nn.Module, aside: Callable[[str], Any]) -> None:
        """Sum norms over all processes where that is wanted; else name the part that this one holds."""
        if self._reduce:
            self._add_up(frame, list(root.parameters()), aside)
        elif self._place.size > 1 and is_sharded(root):
            frame.notes["shard"] = {"rank": self._place.rank, "of": self._place.size}

    def _add_up(self, frame: Frame, parameters: list[nn.Parameter], aside: Callable[[str], Any]) -> None:
        """Put norms over all processes in the place of this one's; the others wait, whatever fails here."""
        numbers = [0.0] * (2 * _NORMS * len(parameters))
        at: dict[int, int] = {}
        with aside("norms of this process"):
            self._own.seal()
            self._own.open()
            where = {id(parameter): index for index, parameter in enumerate(parameters)}
            at = {place: where[id(parameter)] for place, parameter in enumerate(self._parameters)}
            shares = [share_of(parameter, self._place.size) for parameter in parameters]
            for kind, norms in enumerate(frame.norms.all()):
                for place, norm in norms.items():
                    slot = 2 * (_NORMS * at[place] + kind)
                    numbers[slot : slot + 2] = norm * norm * shares[at[place]], 1.0
        with aside("norms over all processes"):
            numbers = sum_over_ranks(numbers, (parameter.device for parameter in parameters))
            for kind, norms in enumerate(frame.norms.all()):
                slots = {place: 2 * (_NORMS * index + kind) for place, index in at.items()}
                found = {place: numbers[slot] for place, slot in slots.items() if numbers[slot + 1]}
                norms.update((place, math.sqrt(square)) for place, square in found.items())
            frame.notes["reduced"] = self._place.size

    # ── whose gradients, and by what they are scaled ──────────────────────────

    def _owned(self, optimizer: torch.optim.Optimizer) -> list[int]:
        """The places of an optimizer's parameters."""
        own = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        return [place for place, parameter in enumerate(self._parameters) if id(parameter) in own]

    def _left_over(self, frame: Frame, places: list[int]) -> list[int]:
        """The places that no other optimizer is known to own."""
        taken = set(places).union(*(lane.places for lane in frame.lanes.values()))
        for counter in self._counters[1:]:
            taken.update(self._owned(counter.optimizer))
        return [place for place in range(len(self._parameters)) if place not in taken]

    def _read_scaling(self, frame: Frame, optimizer: Any, scaler: Any, lane: Lane) -> None:
        """Note by what gradients are scaled, and whether the step will be skipped."""
        scale = getattr(scaler, "_scale", None)
        if isinstance(scale, Tensor):
            frame.put_number(scale.detach().clone(), frame.set("scale"))
            if getattr(optimizer, "grad_scale", None) is not None:
                frame.scaled.update(lane.places)
            self._count_skips(frame, scale)
        found_inf = getattr(optimizer, "found_inf", None)
        if isinstance(found_inf, Tensor):
            frame.put_number(found_inf.detach().clone(), lambda value: setattr(frame, "skipped", bool(value)))

    def _count_skips(self, frame: Frame, scale: Tensor) -> None:
        """Note how many attempts were skipped since the last frame: writes to the scale beyond the steps."""
        writes = _compat.version_of(scale)
        if self._writes is None:
            # More writes than this step had attempts are from before the watch.
            skipped = writes if writes < frame.forwards else 0
        else:
            skipped = writes - self._writes - (frame.step - self._counted)
        self._writes, self._counted = writes, frame.step
        if skipped > 0:
            frame.notes["skippedSteps"] = skipped
