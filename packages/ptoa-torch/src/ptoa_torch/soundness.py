"""Which block first made NaN or Inf out of numbers that were finite.

Blocks are looked at in the order in which they ran. The first one whose result is not finite is
the producer, if all that it read was finite. What it read is mostly the very tensor that another
block made, whose numbers are known anyway (`Trail`); only of other tensors the smallest and
largest value are taken. A mask's -inf makes no producer: minus infinity that a block read as well
is passed on, and is no fault. Neither is a block whose own weights were not finite before.
"""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .frame import Frame
    from .meter import Parcel, Reading

__all__ = ["Ends", "Finding", "Trail", "first_unsound"]

_MAX_INPUTS = 8


class Ends:
    """The smallest and largest value of a tensor, when they have arrived; NaN where it holds one."""

    __slots__ = ("given", "high", "low")

    def __init__(self, *, given: bool) -> None:
        """Finite until it is known; ``given`` says that the model itself was called with the tensor."""
        self.low = self.high = 0.0
        self.given = given

    def receive(self, values: Sequence[float]) -> None:
        """Take the two numbers."""
        self.low, self.high = values


class Trail:
    """Remembers which tensor which reading is of, for the length of one forward.

    Args:
        given: What the model was called with.
    """

    def __init__(self, given: Iterable[Any] = ()) -> None:
        """Start with no tensor but those."""
        self._given = {id(tensor) for tensor in _floats(given)}
        self._known: dict[int, tuple[weakref.ref[Tensor], int, Reading]] = {}

    def made(self, tensor: Tensor, reading: Reading) -> None:
        """A tensor was measured as it is at this moment."""
        self._known[id(tensor)] = weakref.ref(tensor), _version(tensor), reading

    def read(self, given: Iterable[Any], made: Tensor, parcel: Parcel) -> list[Reading | Ends]:
        """What is known of the tensors that a block read to make one.

        Args:
            given: Its arguments, as they are after it ran.
            made: What it made; an argument that is the same tensor was overwritten by it.
            parcel: What takes the numbers that have to be taken for this.
        """
        found: list[Reading | Ends] = []
        rest: list[Any] = []
        for item in given:
            reading = None if item is made else self._unwritten(item)
            if reading is None:
                rest.append(item)
            else:
                found.append(reading)
        for tensor in _floats(rest):
            reading = self._reading(tensor, overwritten=tensor is made)
            if reading is not None:
                found.append(reading)
            elif tensor is not made and not isinstance(tensor, nn.Parameter) and len(found) < _MAX_INPUTS:
                found.append(_ends(tensor, parcel, given=id(tensor) in self._given))
        return found

    def _unwritten(self, item: Any) -> Reading | None:
        """The numbers of a tensor that is as it was when it was measured."""
        entry = self._known.get(id(item))
        if entry is None:
            return None
        tensor = entry[0]()
        return entry[2] if tensor is not None and tensor is item and entry[1] == _version(tensor) else None

    def _reading(self, tensor: Tensor, *, overwritten: bool) -> Reading | None:
        """The numbers of a tensor, or of the one that it is a view of."""
        for candidate in (tensor, tensor._base):
            entry = None if candidate is None else self._known.get(id(candidate))
            if entry is not None and entry[0]() is candidate:
                # What a block wrote itself came after what it read.
                return entry[2] if overwritten or entry[1] == _version(tensor) else None
        return None


def _version(tensor: Tensor) -> int:
    """How many in-place writes a tensor has seen; inference tensors count none."""
    return -1 if tensor.is_inference() else tensor._version


def _floats(given: Iterable[Any]) -> Iterable[Tensor]:
    """The floating-point tensors among arguments and the lists of them."""
    for item in given:
        members = item if isinstance(item, (tuple, list)) else (item,)
        for tensor in members:
            if isinstance(tensor, Tensor) and tensor.is_floating_point() and tensor.layout == torch.strided:
                yield tensor


def _ends(tensor: Tensor, parcel: Parcel, *, given: bool) -> Ends:
    """The ends of a tensor, on their way."""
    ends = Ends(given=given)
    if tensor.numel() and tensor.device.type != "meta":
        low, high = torch.aminmax(tensor.detach() if tensor.element_size() > 1 else tensor.detach().float())
        parcel.put(torch.stack([low, high]), ends.receive)
    return ends


@dataclass
class Finding:
    """What is known of the first NaN or Inf.

    Attributes:
        what: ``activation``, ``gradient``, ``weight``, ``loss`` or ``input``.
        kind: ``nan`` or ``inf``.
        text: What to tell the user, to follow on the step.
        block: The block's id, where one is to be named.
        path: Its module's path.
        producer: Whether that block made it from finite numbers.
        earlier: Whether it was there before the step that was looked at.
        step: The step of a loss, where it is another than the frame's.
    """

    what: str
    kind: str
    text: str
    block: str | None = None
    path: str = ""
    producer: bool = False
    earlier: bool = False
    step: int | None = None

    def to_dict(self, step: int, after: int | None) -> dict[str, Any]:
        """The frame's extension object.

        Args:
            step: The frame's step.
            after: The step of the frame before, in which all was finite.
        """
        found: dict[str, Any] = {
            "what": self.what,
            "kind": self.kind,
            "step": step if self.step is None else self.step,
        }
        if self.block is not None:
            found.update(block=self.block, producer=self.producer)
        if self.earlier and after is not None:
            found["after"] = after
        return found


def first_unsound(frame: Frame) -> Finding | None:
    """The first thing in a frame that is not finite; None where all is."""
    return (
        _activation(frame) or (None if frame.skipped else _gradient(frame)) or _weight(frame) or _loss(frame)
    )


def _kind(nan: float) -> str:
    """The word for NaN or Inf."""
    return "nan" if nan else "inf"


def _said(kind: str) -> str:
    """NaN or Inf as they are spelt to a user."""
    return {"nan": "NaN", "inf": "Inf"}[kind]


def _activation(frame: Frame) -> Finding | None:
    """The first result of a block that is not finite, if it is anyone's fault."""
    acts = {seen.row: seen for seen in frame.order if seen.part == "act"}
    for seen in frame.order:
        if seen.part == "grad" or seen.is_finite:
            continue
        moments = seen.moments
        nan, endless = _held(acts.get(seen.row, seen).inputs)
        if not moments.nan and endless in ("masked", "passed"):
            continue  # minus infinity comes and goes as a mask does
        kind = _kind(moments.nan)
        name = frame.name(seen.row)
        if nan or endless == "endless":
            return Finding("input", kind, _unclear(acts.get(seen.row, seen).inputs, name, _said(kind)))
        weights = [frame.norms.weight.get(place, 0.0) for place in frame.places[seen.row]]
        if not all(map(math.isfinite, weights)):
            return _weight(frame)
        part = "the inner activation" if seen.part == "hidden" else "the output"
        text = f"{part} of block {name} is the first to hold {_said(kind)}, made from finite numbers"
        return Finding(
            "activation", kind, text, frame.plan.ids[seen.row], frame.plan.paths[seen.row], producer=True
        )
    return None


def _unclear(inputs: Sequence[Reading | Ends], name: str, said: str) -> str:
    """What to say where a block reads what is not finite, and no block before it made that."""
    for item in inputs:
        if isinstance(item, Ends) and item.given and not -math.inf <= item.low <= item.high < math.inf:
            return f"the model's input already holds {said}; block {name} is the first to read it"
    return f"{said} comes up before block {name}, in what it reads"


def _held(inputs: Sequence[Reading | Ends]) -> tuple[bool, str]:
    """Whether inputs hold NaN, and what infinity: none, ``masked``, ``passed`` on, or ``endless``."""
    nan, endless = False, ""
    for item in inputs:
        if isinstance(item, Ends):
            nan = nan or math.isnan(item.low)
            if item.high == math.inf:
                endless = "endless"
            elif item.low == -math.inf:
                endless = endless or "masked"
        else:
            nan = nan or item.moments.nan > 0
            if item.moments.infinite:
                endless = endless or "passed"  # the block that made it was looked at before
    return nan, endless


def _gradient(frame: Frame) -> Finding | None:
    """The first gradient that is not finite, in the order in which they arrived."""
    for seen in frame.order:
        if seen.part == "grad" and not seen.is_finite:
            kind = _kind(seen.moments.nan)
            text = f"the gradient arriving at block {frame.name(seen.row)} is the first to hold {_said(kind)}"
            return Finding("gradient", kind, text, frame.plan.ids[seen.row], frame.plan.paths[seen.row])
    for place, norm in frame.norms.grad.items():
        if not math.isfinite(norm):
            kind = _kind(math.isnan(norm))
            row = frame.owners[place]
            owner = f"block {frame.name(row)}" if row >= 0 else "a parameter outside the blocks"
            block = frame.plan.ids[row] if row >= 0 else None
            return Finding("gradient", kind, f"the weight gradient of {owner} holds {_said(kind)}", block)
    return None


def _weight(frame: Frame) -> Finding | None:
    """The first block whose weights were not finite before the step."""
    rows: list[int] = []
    kind = "inf"
    for place, norm in frame.norms.weight.items():
        if not math.isfinite(norm):
            row = frame.owners[place]
            if not rows:
                kind = _kind(math.isnan(norm))
            if row not in rows:
                rows.append(row)
    if not rows:
        return None
    first = rows[0]
    named = f"the weights of block {frame.name(first)}" if first >= 0 else "a parameter outside the blocks"
    others = f" and of {len(rows) - 1} more" if len(rows) > 1 else ""
    text = f"{named}{others} held {_said(kind)} already"
    return Finding("weight", kind, text, frame.plan.ids[first] if first >= 0 else None, earlier=True)


def _loss(frame: Frame) -> Finding | None:
    """A loss that is not finite."""
    for value in (*frame.given, *frame.found):
        if not math.isfinite(value):
            kind = _kind(math.isnan(value))
            return Finding("loss", kind, f"the loss is {_said(kind)}")
    return None
