"""The norms of all parameters, of their gradients and of the last update, a few calls for all.

Parameters are copied into the rows of a kept buffer and measured together, as many at a time as
stay in the cache. The copy that is taken before the optimizer's step is also what the update is
measured against, so nothing is copied twice.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from . import _compat
from .meter import Parcel, row_norms
from .stats import to_real, wide_type

__all__ = ["Norms", "ParameterNorms", "Receive", "Shelf", "root_sum_square"]

_SMALL = 1 << 16
_PIECE = 1 << 18  # 1 MiB of float32: stays in a core's cache over several passes
_WIDTH = 256
# Where a sum of squares, float32 in its parts, has neither vanished nor overflowed.
_LEAST, _MOST = 1e-28, 1e30
_MAX_SHELVES = 4
_PLAIN = frozenset((Tensor, torch.nn.Parameter))
Receive = Callable[[dict[int, float]], object]
_vector_norm: Callable[..., Tensor] = torch.linalg.vector_norm


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


def _pieces(tensors: Sequence[Tensor]) -> tuple[list[Tensor], list[int]]:
    """The tensors, large ones in pieces that stay in the cache; and whose piece each is."""
    found: list[Tensor] = []
    owners: list[int] = []
    for owner, tensor in enumerate(tensors):
        if tensor.numel() > _PIECE and tensor.device.type == "cpu" and tensor.is_contiguous():
            found += tensor.view(-1).split(_PIECE)
            owners += [owner] * (len(found) - len(owners))
        else:
            found.append(tensor)
            owners.append(owner)
    return found, owners


class _Part(NamedTuple):
    """Kept copies of some pieces that are filled and measured together; ``lines`` say whose they are."""

    places: list[int]
    views: list[Tensor]
    rows: Tensor
    norms: Tensor | None
    lines: Sequence[int] = ()


class _Blocks:
    """Kept copies on a device, those of one shape side by side: a row a tensor."""

    def __init__(self, tensors: Sequence[Tensor], places: list[int], dtype: torch.dtype) -> None:
        """Take the memory."""
        shapes: dict[torch.Size, list[int]] = {}
        for place in places:
            shapes.setdefault(tensors[place].shape, []).append(place)
        self.parts: list[_Part] = []
        for shape, alike in shapes.items():
            block = torch.empty((len(alike), *shape), dtype=dtype, device=tensors[alike[0]].device)
            self.parts.append(_Part(alike, list(block.unbind(0)), block.view(len(alike), -1), None))

    def norms(self, parcel: Parcel, receive: Receive) -> None:
        """Send the norm of each tensor, by its place in the list."""
        for part in self.parts:
            parcel.put(row_norms(part.rows), partial(_receive_at, receive, part.places))


class _Packed:
    """Kept copies on the CPU, of any shape: each has whole rows of one width, padded with zeros."""

    def __init__(
        self, pieces: Sequence[Tensor], places: list[int], owners: Sequence[int], dtype: torch.dtype
    ) -> None:
        """Take the memory, and cut it into parts that stay in the cache."""
        heights = [-(-pieces[place].numel() // _WIDTH) for place in places]
        self._rows = torch.zeros((sum(heights), _WIDTH), dtype=dtype)
        self._norms = torch.empty(len(self._rows), dtype=dtype)
        counts: dict[int, int] = {}
        for place, height in zip(places, heights, strict=True):
            counts[owners[place]] = counts.get(owners[place], 0) + height
        self._tensors = list(counts)
        self._lines = torch.arange(len(counts)).repeat_interleave(torch.tensor(list(counts.values())))
        self.parts: list[_Part] = []
        line_of = {owner: line for line, owner in enumerate(self._tensors)}
        first = 0
        for group, height in _gathered(list(zip(places, heights, strict=True))):
            rows, norms = self._rows[first : first + height], self._norms[first : first + height]
            views = _laid_out(rows, [pieces[place] for place in group])
            lines = [line_of[owners[place]] for place in group]
            self.parts.append(_Part(group, views, rows, norms, lines))
            first += height

    def norms(self, parcel: Parcel, receive: Receive) -> None:
        """Give the norm of each tensor, by its place in the list; those of the rows have been taken."""
        norms = self._norms.double()
        squares = self._sums(norms)
        if not all(_LEAST < square < _MOST for square in squares):
            squares = self._sums(self._in_float64(norms, squares))
        receive(dict(zip(self._tensors, map(math.sqrt, squares), strict=True)))

    def _sums(self, norms: Tensor) -> list[float]:
        """The sum of each tensor's squares, from the norm of each row."""
        sums = torch.zeros(len(self._tensors), dtype=torch.float64)
        found: list[float] = sums.index_add_(0, self._lines, norms.square()).tolist()
        return found

    def _in_float64(self, norms: Tensor, squares: Sequence[float]) -> Tensor:
        """The norms of the rows, where a tensor's squares vanish or overflow in float32 from wider ones."""
        first = 0
        for part in self.parts:
            last = first + len(part.rows)
            if not all(_LEAST < squares[line] < _MOST for line in part.lines):
                norms[first:last] = _vector_norm(part.rows, dim=1, dtype=torch.float64)
            first = last
        return norms


def _gathered(heights: Sequence[tuple[int, int]]) -> Iterator[tuple[list[int], int]]:
    """Neighbours together, as many as stay in the cache, with their rows."""
    group: list[int] = []
    total = 0
    for place, height in heights:
        if group and (total + height) * _WIDTH > _PIECE:
            yield group, total
            group, total = [], 0
        group.append(place)
        total += height
    yield group, total


def _laid_out(rows: Tensor, pieces: Sequence[Tensor]) -> list[Tensor]:
    """A view in the shape of each piece, each from the beginning of a row on."""
    flat, views, start = rows.view(-1), [], 0
    for piece in pieces:
        views.append(flat[start : start + piece.numel()].view(piece.shape))
        start += -(-piece.numel() // _WIDTH) * _WIDTH
    return views


class Shelf:
    """Kept copies of a fixed list of tensors."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        """Take memory in the shape of the tensors, in a type that sums may be taken in."""
        pieces, owners = _pieces(tensors)
        kinds: dict[tuple[torch.dtype, torch.device], list[int]] = {}
        for place, piece in enumerate(pieces):
            kinds.setdefault((wide_type(piece), piece.device), []).append(place)
        self._shapes = [piece.shape for piece in pieces]
        self._memories = [
            _Packed(pieces, places, owners, dtype) if device.type == "cpu" else _Blocks(pieces, places, dtype)
            for (dtype, device), places in kinds.items()
        ]

    def load(self, tensors: Sequence[Tensor], parcel: Parcel, receive: Receive) -> None:
        """Copy the tensors' values onto the shelf; send the norm of each, by its place in the list."""
        pieces, _ = _pieces(tensors)
        self._change(_compat.foreach_copy, pieces, parcel, receive)

    def subtract(self, tensors: Sequence[Tensor], parcel: Parcel, receive: Receive) -> None:
        """Subtract the tensors from what is on the shelf; send the norms of the differences."""
        pieces, _ = _pieces(tensors)
        if self._shapes == [piece.shape for piece in pieces]:
            self._change(torch._foreach_sub_, pieces, parcel, receive)

    def fits(self, tensors: Sequence[Tensor]) -> bool:
        """Whether the memory has the tensors' shapes."""
        return self._shapes == [piece.shape for piece in _pieces(tensors)[0]]

    def _change(
        self,
        function: Callable[[list[Tensor], list[Tensor]], object],
        pieces: Sequence[Tensor],
        parcel: Parcel,
        receive: Receive,
    ) -> None:
        """Fill the memory part by part, and take each part's norms while it is in the cache."""
        for memory in self._memories:
            for part in memory.parts:
                function(part.views, [pieces[place] for place in part.places])
                if part.norms is not None:
                    _vector_norm(part.rows, dim=1, out=part.norms)
            memory.norms(parcel, receive)


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
        self._before.load(tensors, parcel, norms.weight.update)

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
            self._before.subtract(
                [_local(parameter) for parameter in parameters], parcel, norms.update.update
            )

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
            self._shelf(chosen).load(
                chosen, parcel, lambda norms: receive({small[index]: norm for index, norm in norms.items()})
            )
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
