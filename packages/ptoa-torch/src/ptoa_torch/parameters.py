"""The norms of all parameters, of their gradients and of the last update, a few calls for all.

Small parameters of one shape are copied into the rows of a kept buffer and measured together,
as activations are in ``meter``. The copy that is taken before the optimizer's step is also
what the update is measured against, so nothing is copied twice.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from . import _compat
from .meter import Parcel, row_norms
from .stats import to_real, wide_type

__all__ = ["Norms", "ParameterNorms", "Receive", "Shelf", "root_sum_square"]

_SMALL = 1 << 16
_MAX_SHELVES = 4
_PLAIN = frozenset((Tensor, torch.nn.Parameter))
Receive = Callable[[dict[int, float]], object]
_Key = tuple[torch.Size, torch.dtype, torch.device]


def root_sum_square(norms: Iterable[float]) -> float:
    """The norm of several tensors taken as one, from the norm of each.

    Example:
        >>> root_sum_square([3.0, 4.0])
        5.0
    """
    return math.hypot(*norms)


def _local(tensor: Tensor) -> Tensor:
    """A parameter's values on this process as real numbers, as stored: no copy for usual ones."""
    if type(tensor) in _PLAIN and tensor.layout == torch.strided and not tensor.is_complex():
        return tensor  # measured without gradients, so nothing has to be cut
    tensor = _compat.local_tensor(tensor.detach())
    if tensor.layout != torch.strided:
        # Entries of one index are summed first: the norm of the parts is not the norm of the sum.
        tensor = tensor.coalesce().values() if tensor.layout == torch.sparse_coo else to_real(tensor)
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


class Shelf:
    """Kept copies of a fixed list of tensors, those of one shape side by side."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        """Take memory in the shape of the tensors, in a type that sums may be taken in."""
        places: dict[_Key, list[int]] = {}
        for index, tensor in enumerate(tensors):
            places.setdefault((tensor.shape, wide_type(tensor), tensor.device), []).append(index)
        self._rows: list[Tensor] = []
        self._indices = list(places.values())
        views: dict[int, Tensor] = {}
        for (shape, dtype, device), indices in places.items():
            block = torch.empty((len(indices), *shape), dtype=dtype, device=device)
            self._rows.append(block.view(len(indices), -1))
            views.update(zip(indices, block.unbind(0), strict=True))
        self._views = [views[index] for index in range(len(tensors))]

    def load(self, tensors: Sequence[Tensor]) -> None:
        """Copy the tensors' values onto the shelf."""
        if tensors:
            _compat.foreach_copy(self._views, list(tensors))

    def subtract(self, tensors: Sequence[Tensor]) -> None:
        """Subtract the tensors from what is on the shelf."""
        if tensors:
            torch._foreach_sub_(self._views, list(tensors))

    def fits(self, tensors: Sequence[Tensor]) -> bool:
        """Whether the memory has the tensors' shapes."""
        return all(view.shape == tensor.shape for view, tensor in zip(self._views, tensors, strict=True))

    def norms(self, parcel: Parcel, receive: Receive) -> None:
        """Send the norm of each tensor, by its place in the list."""
        for rows, indices in zip(self._rows, self._indices, strict=True):
            parcel.put(row_norms(rows), partial(_receive_at, receive, indices))


def _receive_at(receive: Receive, places: Sequence[int], values: Sequence[float]) -> None:
    """Hand on numbers with their places."""
    receive(dict(zip(places, values, strict=True)))


@dataclass
class Norms:
    """The norms of one frame, by the parameter's place in the list.

    Attributes:
        weight: Norms before the step.
        grad: Norms of the gradients as the optimizer got them; those without one are absent.
        update: Norms of what the step added.
    """

    weight: dict[int, float] = field(default_factory=dict)
    grad: dict[int, float] = field(default_factory=dict)
    update: dict[int, float] = field(default_factory=dict)

    def all(self) -> tuple[dict[int, float], dict[int, float], dict[int, float]]:
        """The three."""
        return self.weight, self.grad, self.update


class ParameterNorms:
    """Measures a model's parameters, frame after frame, over the same memory."""

    def __init__(self) -> None:
        """Start without memory."""
        # Weak, so that a parameter that was replaced is freed; ids would be given to others.
        self._known: list[weakref.ref[Tensor]] = []
        self._before: Shelf | None = None
        self._small: dict[tuple[int, ...], Shelf] = {}

    @torch.no_grad()
    def keep_weights(self, parameters: Sequence[Tensor], norms: Norms, parcel: Parcel) -> None:
        """Copy the weights, and measure them."""
        tensors = [_local(parameter) for parameter in parameters]
        if self._before is None or not self._are_known(parameters) or not self._before.fits(tensors):
            self._before, self._known = Shelf(tensors), [weakref.ref(parameter) for parameter in parameters]
        self._before.load(tensors)
        self._before.norms(parcel, norms.weight.update)

    @torch.no_grad()
    def measure_weights(self, parameters: Sequence[Tensor], norms: Norms, parcel: Parcel) -> None:
        """Measure the weights without keeping a copy of the large ones."""
        self._measure([_local(parameter) for parameter in parameters], parcel, norms.weight.update)

    @torch.no_grad()
    def measure_grads(
        self,
        parameters: Sequence[Tensor],
        norms: Norms,
        parcel: Parcel,
        chosen: Iterable[int] | None = None,
    ) -> None:
        """Measure the gradients as they are at this moment, of all parameters or of those at some places."""
        found = [
            (place, grad)
            for place in (range(len(parameters)) if chosen is None else chosen)
            if (grad := parameters[place].grad) is not None
        ]
        places = [place for place, _ in found]

        def receive(numbers: dict[int, float]) -> None:
            norms.grad.update((places[index], number) for index, number in numbers.items())

        self._measure([_local(grad) for _, grad in found], parcel, receive)

    @torch.no_grad()
    def measure_update(self, parameters: Sequence[Tensor], norms: Norms, parcel: Parcel) -> None:
        """Measure how far the weights have moved since they were kept."""
        if self._before is not None and self._are_known(parameters):
            self._before.subtract([_local(parameter) for parameter in parameters])
            self._before.norms(parcel, norms.update.update)

    def _are_known(self, parameters: Sequence[Tensor]) -> bool:
        """Whether these are the parameters whose weights were kept."""
        return len(parameters) == len(self._known) and all(
            kept() is parameter for kept, parameter in zip(self._known, parameters, strict=True)
        )

    def _measure(self, tensors: Sequence[Tensor], parcel: Parcel, receive: Receive) -> None:
        """Norms of tensors: small ones over a shelf, large ones where they are."""
        small = [index for index, tensor in enumerate(tensors) if tensor.numel() <= _SMALL]
        if small:
            chosen = [tensors[index] for index in small]
            shelf = self._shelf(chosen)
            shelf.load(chosen)
            shelf.norms(parcel, lambda norms: receive({small[index]: norm for index, norm in norms.items()}))
        for index, tensor in enumerate(tensors):
            if tensor.numel() > _SMALL:
                parcel.put(row_norms(tensor.reshape(1, -1)), partial(_receive_at, receive, [index]))

    def _shelf(self, tensors: Sequence[Tensor]) -> Shelf:
        """A shelf for tensors of these shapes, kept while the shapes stay."""
        key = tuple(hash((tensor.shape, tensor.dtype, tensor.device)) for tensor in tensors)
        if key not in self._small:
            if len(self._small) >= _MAX_SHELVES:
                self._small.clear()
            self._small[key] = Shelf(tensors)
        return self._small[key]
