"""Finding the loss in what a user has at hand, without keeping its graph alive."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from .meter import Parcel

__all__ = ["LossTrail", "loss_in_output", "loss_value"]

_MAX_HELD = 256
_Place = tuple[torch.UntypedStorage, int, torch.dtype]
_IN_MEMORY: dict[torch.dtype, Any] = {torch.float32: ctypes.c_float, torch.float64: ctypes.c_double}


def loss_value(loss: Any) -> float | Tensor | None:
    """A loss as a number or as a tensor of one value cut from its graph; None where it is neither.

    A mapping gives what it holds under ``loss``, or its only value.

    Example:
        >>> loss_value({"loss": 0.5, "accuracy": 0.9})
        0.5
    """
    if isinstance(loss, Mapping):
        inner = loss.get("loss", next(iter(loss.values())) if len(loss) == 1 else None)
        return None if isinstance(inner, Mapping) and inner is loss else loss_value(inner)
    if isinstance(loss, Tensor):
        real = loss.numel() == 1 and not loss.is_complex()
        return loss.detach() if real else None
    try:
        return None if loss is None or isinstance(loss, (str, bytes)) else float(loss)
    except (TypeError, ValueError, OverflowError):
        return None


def loss_in_output(output: Any) -> Tensor | None:
    """The one scalar that a model returned to be trained on, cut from its graph; None where there is none.

    Looks at the output itself, at ``loss`` of a mapping or object, and at the members of a
    tuple or list; of several scalars none is taken.
    """
    if isinstance(output, Tensor):
        candidates: list[Any] = [output]
    elif isinstance(output, Mapping):
        candidates = [output.get("loss")]
    elif isinstance(output, (tuple, list)) and not hasattr(output, "loss"):
        candidates = list(output)
    else:
        candidates = [getattr(output, "loss", None)]
    scalars = [item for item in candidates if _is_scalar(item)]
    return scalars[0].detach() if len(scalars) == 1 else None


def _is_scalar(item: Any) -> bool:
    """Whether something is a loss that gradients come from."""
    return isinstance(item, Tensor) and item.requires_grad and math.prod(item.shape) == 1 and item.ndim <= 1


class LossTrail:
    """The losses between two frames, folded on their device into the first step that was not finite.

    Between frames a loss costs a reference to its memory: no operation runs, nothing is read and no
    graph is kept until the next frame, or until a few hundred have gathered.

    Example:
        >>> from ptoa_torch.meter import Parcel
        >>> trail, parcel, found = LossTrail(), Parcel(), []
        >>> for step, loss in enumerate((1.0, float("nan"), 2.0)):
        ...     trail.add(step, torch.tensor(loss))
        >>> trail.take(parcel, found.append); parcel.seal(); parcel.open()
        >>> found
        [(1, 'nan')]
    """

    def __init__(self) -> None:
        """Start without losses."""
        self._held: list[tuple[int, _Place]] = []
        self._folded: Tensor | None = None
        self._known: tuple[int, str] | None = None

    def add(self, step: int, loss: Any) -> None:
        """Remember the loss of a step."""
        if isinstance(loss, Mapping):
            loss = loss_value(loss)
        if isinstance(loss, Tensor):
            if type(loss) is Tensor and loss.numel() == 1 and loss.is_floating_point():
                place = loss.untyped_storage(), int(loss.storage_offset()), loss.dtype
                self._held.append((step, place))
                if len(self._held) >= _MAX_HELD:
                    self._fold()
        elif self._known is None and isinstance(loss, float) and not math.isfinite(loss):
            self._known = step, "nan" if math.isnan(loss) else "inf"

    def take(self, parcel: Parcel, receive: Callable[[tuple[int, str]], object]) -> None:
        """Have ``receive`` called with the first step whose loss was not finite, and what it was."""
        self._fold()
        folded, self._folded = self._folded, None
        known, self._known = self._known, None
        if folded is not None:
            parcel.put(folded, lambda numbers: _tell(int(numbers[0]), numbers[1], known, receive))
        elif known is not None:
            receive(known)

    @torch.no_grad()
    def _fold(self) -> None:
        """Reduce what is held to two numbers: the first step that was not finite, or -1, and its loss."""
        held, self._held = self._held, []
        if not held:
            return
        device = held[-1][1][0].device
        if device.type == "cpu" and self._folded is None and all(map(_is_in_memory, held)):
            found = ((step, value) for step, place in held if not math.isfinite(value := _read(*place)))
            step, value = next(found, (-1, 0.0))
            if step >= 0 and (self._known is None or step < self._known[0]):
                self._known = step, "nan" if math.isnan(value) else "inf"
            return
        wide = torch.float32 if device.type == "mps" else torch.float64
        losses = torch.cat([_value(*place).to(device, wide) for _, place in held])
        steps = torch.tensor([step for step, _ in held], dtype=wide, pin_memory=device.type == "cuda")
        bad = ~torch.isfinite(losses)
        # Taken by a mask: to index with a number on a device would wait for it.
        first = torch.arange(len(held), device=device) == bad.to(torch.uint8).argmax()
        at = torch.where(first, steps.to(device, non_blocking=True), 0).sum()
        folded = torch.stack([torch.where(bad.any(), at, -1), torch.where(first, losses, 0).sum()])
        if self._folded is not None:
            folded = torch.where(self._folded[0] >= 0, self._folded.to(device), folded)
        self._folded = folded


def _is_in_memory(held: tuple[int, _Place]) -> bool:
    """Whether a number can be read where it lies, without asking torch."""
    storage, _, dtype = held[1]
    return storage.device.type == "cpu" and dtype in _IN_MEMORY


def _read(storage: torch.UntypedStorage, offset: int, dtype: torch.dtype) -> float:
    """The number at a place in the CPU's memory."""
    kind = _IN_MEMORY[dtype]
    number: float = kind.from_address(storage.data_ptr() + offset * ctypes.sizeof(kind)).value
    return number


def _value(storage: torch.UntypedStorage, offset: int, dtype: torch.dtype) -> Tensor:
    """The number at a place in memory."""
    number = torch.empty(0, dtype=dtype, device=storage.device)
    number.set_(storage, offset, (1,), (1,))
    return number


def _tell(
    step: int, loss: float, known: tuple[int, str] | None, receive: Callable[[tuple[int, str]], object]
) -> None:
    """Hand on the earlier of two steps."""
    found = [] if step < 0 else [(step, "nan" if math.isnan(loss) else "inf")]
    found += [] if known is None else [known]
    if found:
        receive(min(found))
