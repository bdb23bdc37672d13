"""The measurement of one step, and the frame that comes of it when its numbers have arrived."""

from __future__ import annotations

import base64
import math
from array import array
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ptoa_core.frames import BlockHealth, HeadPattern, HealthFrame
from ptoa_core.late import LateFrame, PlainRow

from .meter import Parcel, Reading
from .parameters import Norms, root_sum_square

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .plan import Plan
    from .timing import Stopwatch
    from .updates import Lane

__all__ = ["Frame", "Row"]

_NEVER = "did not run in this step"
_OTHERS = "other blocks have their turn in this frame, to stay within the budget"
_MAX_LANES = 8
_NORMS = ("weightNorm", "weightGradNorm", "updateRatio")


class Row:
    """What one block gave in one step."""

    __slots__ = (
        "act",
        "awaited",
        "calls",
        "entropy",
        "grad",
        "grads",
        "hidden",
        "logit",
        "missing",
        "omitted",
        "pattern",
        "sample",
        "size",
    )

    def __init__(self, missing: Mapping[str, str]) -> None:
        """Start with what is known to be missing."""
        self.act: Reading | None = None
        self.grad: Reading | None = None
        self.hidden: Reading | None = None
        self.entropy: Sequence[float] | None = None
        self.logit: float | None = None
        self.pattern: Sequence[float] | None = None
        self.sample = self.size = self.calls = self.grads = 0
        self.awaited = self.omitted = False
        self.missing = missing

    def patterns(self) -> list[HeadPattern] | None:
        """The corner of each head's pattern."""
        return None if self.pattern is None else _patterns(self.pattern, self.size)

    def lacks(self, part: str, why: str) -> None:
        """Note why a part cannot be had."""
        self.missing = {**self.missing, part: why}

    def lacks_otherwise(self, part: str, why: str) -> None:
        """Note why a part cannot be had, where nothing has been noted."""
        if part not in self.missing:
            self.lacks(part, why)

    def lacks_not(self, part: str) -> None:
        """Note that a part can be had after all."""
        if part in self.missing:
            self.missing = {name: why for name, why in self.missing.items() if name != part}


class Frame:
    """The measurement of one step.

    Attributes:
        step: The step's number.
        parcel: The numbers that are still on a device.
        losses: What was given or found, in order.
        order: What was measured, in order.
    """

    def __init__(self, step: int, started: float, plan: Plan, stopwatch: Stopwatch) -> None:
        """Start without numbers."""
        self.step = step
        self.started = started
        self.plan = plan
        self.parcel = Parcel()
        self.stopwatch = stopwatch
        self.rows: list[Row] = []
        self.order: list[Reading] = []
        self.forwards = 0
        self.given: list[float] = []
        self.found: list[float] = []
        self.val_loss: float | None = None
        self.scale = 1.0
        self.scaled: set[int] = set()
        self.late = False
        self.lanes: dict[int, Lane] = {}
        self.main: Lane | None = None
        self.unsound_loss: tuple[int, str] | None = None
        self.skipped = False
        self.notes: dict[str, Any] = {}
        self.owners: list[int] = []
        self.frozen: list[bool] = []
        self.norms = Norms()
        self.places: list[list[int]] = []
        self.ended = started
        self.zeroed = False
        self._turn = (0, 1)
        self.forget()

    def forget(self) -> None:
        """Drop what a forward gave, when another one of the same step is measured in its place."""
        self.rows = [Row(missing) for missing in self.plan.missing]
        if self.is_part:
            for index, target in self.plan.measured():
                if not self.takes(target.rows[0]):
                    self.rows[index].lacks("act", _OTHERS)
                    self.rows[index].lacks("grad", _OTHERS)
        self.order = []
        self.found = []
        self.calls: dict[int, int] = {}
        self.without_grad = False

    def share_out(self, turn: int, turns: int) -> None:
        """Measure only some blocks' activations and gradients: those whose turn it is.

        Args:
            turn: A number that goes up from frame to frame.
            turns: After how many frames each block has had its turn.
        """
        self._turn = turn % turns, turns
        self.forget()

    def takes(self, row: int) -> bool:
        """Whether it is a block's turn; of one with several rows the first is asked for."""
        turn, turns = self._turn
        return row % turns == turn

    @property
    def is_part(self) -> bool:
        """Whether blocks take turns."""
        return self._turn[1] > 1

    def put_number(self, value: float | Tensor | None, into: Callable[[float], object]) -> None:
        """Have ``into`` called with a number, at once or when it has arrived."""
        if isinstance(value, Tensor):
            self.parcel.put(value, lambda values: into(values[0]))
        elif value is not None:
            into(value)

    def set(self, name: str) -> Callable[[float], object]:
        """A function that sets one attribute."""
        return lambda value: setattr(self, name, value)

    # ── the frame, when its numbers have arrived ──────────────────────────────

    def build(self) -> HealthFrame:
        """Wait for the numbers and put the frame together."""
        self.parcel.seal()
        self.parcel.open()
        losses = self.given or self.found
        if len(losses) > 1:
            self.notes["lossCount"] = len(losses)
        if self.forwards > 1:
            self.notes["forwards"] = self.forwards
        if self.skipped:
            self.notes["skipped"] = True
        omitted = [block for block, row in zip(self.plan.ids, self.rows, strict=False) if row.omitted]
        if omitted:
            self.notes["patternsOmitted"] = omitted
        self.places = [[] for _ in self.rows]
        for place, row in enumerate(self.owners):
            if row >= 0:
                self.places[row].append(place)
        grads = self.norms.grad
        grads.update((place, grads[place] / self.scale) for place in self.scaled & grads.keys())
        if self.late and not any(grads.values()) and any(row.grads for row in self.rows):
            grads.clear()
            self.zeroed = True
        if len(self.lanes) > 1:
            self.notes["optimizers"] = [self._lane(lane) for lane in self.lanes.values()][:_MAX_LANES]
        norms = list(grads.values())
        self.plan = self.plan.names()
        return LateFrame(
            self,
            step=self.step,
            t=round((self.ended - self.started) * 1000, 3),
            loss=math.fsum(losses) / len(losses)
            if losses and all(map(math.isfinite, losses))
            else _unsound(losses),
            valLoss=self.val_loss,
            lr=None if self.main is None else self.main.lr,
            gradNorm=root_sum_square(norms) if norms else None,
            timing=self.stopwatch.milliseconds() or None,
            memory=torch.cuda.memory_allocated() if torch.cuda.is_initialized() else None,
            extra=dict(self.notes),
        )

    # ── the rows, asked for when the frame has been built ─────────────────────

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.rows)

    def plain(self, index: int) -> PlainRow | None:
        """The row of one block, where all its numbers are known and finite."""
        row = self.rows[index]
        stats = []
        for part, reading in (("act", row.act), ("hidden", row.hidden), ("grad", row.grad)):
            if reading is not None:
                found = reading.plain(part, self.scale if part == "grad" else 1.0)
                if found is None:
                    return None
                stats.append(found)
        numbers = self._numbers(index)
        if not math.isfinite(sum(numbers.values()) + sum(row.entropy or ())):
            return None
        return PlainRow(self.plan.ids[index], stats, numbers, row.entropy, row.patterns(), self._extra(row))

    def _lane(self, lane: Lane) -> dict[str, Any]:
        """What one of several optimizers did."""
        norms = [self.norms.grad[place] for place in lane.places if place in self.norms.grad]
        found = {"step": lane.step, "lr": lane.lr, "gradNorm": root_sum_square(norms) if norms else None}
        return {name: value for name, value in found.items() if value is not None}

    def block(self, index: int) -> BlockHealth:
        """The row of one block."""
        row = self.rows[index]
        return BlockHealth(
            self.plan.ids[index],
            None if row.act is None else row.act.stats(),
            None if row.grad is None else row.grad.stats(self.scale),
            **self._numbers(index),
            headEntropy=None if row.entropy is None else list(row.entropy),
            headPattern=row.patterns(),
            hidden=None if row.hidden is None else row.hidden.stats(),
            extra=self._extra(row),
        )

    def _extra(self, row: Row) -> dict[str, Any]:
        """The extension fields of a row."""
        if row.act is None:
            row.lacks_otherwise("act", _NEVER)
        elif row.grad is None:
            row.lacks_otherwise("grad", "no gradient arrived")
        extra: dict[str, Any] = {}
        if row.calls > 1:
            extra["calls"] = row.calls
        if row.grads > 1:
            extra["backwards"] = row.grads
        if row.sample:
            extra["entropySample"] = row.sample
        if row.missing:
            extra["missing"] = row.missing
        if row.logit is not None and math.isfinite(row.logit):
            extra["maxLogit"] = row.logit
        return extra

    def _numbers(self, index: int) -> dict[str, float]:
        """The norms of a block and its update ratio, those that are known."""
        places = self.places[index]
        if not places:
            return {}
        found = zip(_NORMS, self._norms(places, self.rows[index]), strict=True)
        return {name: number for name, number in found if number is not None}

    def _norms(self, places: list[int], row: Row) -> tuple[float | None, float | None, float | None]:
        """Weight norm, norm of its gradient, and update ratio of a block."""
        weights, grads, updates = self.norms.weight, self.norms.grad, self.norms.update
        if all(self.frozen[place] for place in places):
            row.lacks_otherwise("weightGradNorm", "frozen")
        found = [grads[place] for place in places if place in grads]
        if not found:
            row.lacks_otherwise("weightGradNorm", self._no_gradient(row, places))
        size = root_sum_square(weights[place] for place in places) if places[0] in weights else None
        moved = root_sum_square(updates[place] for place in places) if places[0] in updates else None
        ratio = moved / size if moved is not None and size and not self.skipped else None
        return size, root_sum_square(found) if found else None, ratio

    def _no_gradient(self, row: Row, places: list[int]) -> str:
        """Why a block's weights had no gradient when it was to be read."""
        if self.skipped and not self.lanes:
            return "no optimizer stepped"
        if self.lanes and not any(place in lane.places for lane in self.lanes.values() for place in places):
            return "its optimizer did not step"
        if row.grads:
            return "used or set to zero before it could be read"
        return "no gradient at the step"

    def name(self, row: int) -> str:
        """A block's id and path."""
        path = self.plan.paths[row]
        return f"{self.plan.ids[row]} ({path})" if path else self.plan.ids[row]


def _unsound(losses: Sequence[float]) -> float | None:
    """NaN or Inf as the mean of losses that are not all finite; None without any."""
    return sum(losses) / len(losses) if losses else None


def _patterns(values: Sequence[float], size: int) -> list[HeadPattern]:
    """A pattern a head from the numbers of all."""
    area = size * size
    numbers = array("f", values)
    if array("H", [1]).tobytes() == b"\x00\x01":
        numbers.byteswap()
    return [
        HeadPattern(
            head, size, base64.b64encode(numbers[head * area : (head + 1) * area].tobytes()).decode("ascii")
        )
        for head in range(len(values) // area)
    ]
