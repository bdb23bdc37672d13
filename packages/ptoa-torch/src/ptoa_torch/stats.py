"""The statistics of one tensor, exact for every kind of number that a tensor can hold.

A tensor is looked at as rows: a matrix whose rows are tensors of one size, or pieces of one
large tensor. Each row gives a few numbers (`exact_rows`), and rows of one tensor are merged
on the host (`Moments.merged`) by the pairwise update of Chan, Golub and LeVeque, so that
no square of a large mean is ever subtracted from another. Values are divided by the largest
finite one before anything is squared: neither 1e30 nor a denormal number overflows or
vanishes. The quicker way for finite float32 tensors on the CPU is in ``meter``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ptoa_core.frames import TensorStats
from ptoa_core.protocol import HIST_BINS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = [
    "EXACT_COLUMNS",
    "Moments",
    "dead_share",
    "exact_rows",
    "flat_view",
    "histogram_rows",
    "saturated_rows",
    "tensor_stats",
    "to_real",
    "unit_axis",
    "unit_tops",
    "whole",
    "wide_type",
    "widened",
]

EXACT_COLUMNS = 8
_ROW_LENGTH = 1 << 18
_HALF = HIST_BINS // 2
_SPARSE = frozenset(
    (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
)


class Moments(NamedTuple):
    """What is kept of some values: enough to merge them with others and to print them.

    ``deviation`` is the root of the summed squared distances from the mean, not its square,
    so that it stays finite wherever the values do.
    """

    total: int = 0
    finite: int = 0
    mean: float = 0.0
    deviation: float = 0.0
    largest: float = 0.0
    nonzero: int = 0
    nan: int = 0
    saturated: int = 0

    @classmethod
    def read(cls, total: int, row: Sequence[float]) -> Moments:
        """The moments of ``total`` values from one row of `exact_rows`."""
        finite, largest, mean, deviation, nonzero, nan, _, saturated = row
        return cls(
            total,
            int(finite),
            mean * largest,
            deviation * largest,
            largest,
            int(nonzero),
            int(nan),
            int(saturated),
        )

    @classmethod
    def merged(cls, parts: Iterable[Moments]) -> Moments:
        """The moments of all values together."""
        result = cls()
        for part in parts:
            result = part if result.total == 0 else result._with(part)
        return result

    def _with(self, other: Moments) -> Moments:
        """Two groups of values as one; equation 2.1 of Chan, Golub and LeVeque, 1983."""
        finite = self.finite + other.finite
        share = other.finite / finite if finite else 0.0
        apart = other.mean - self.mean
        between = apart * math.sqrt(self.finite * share)
        return Moments(
            self.total + other.total,
            finite,
            self.mean + apart * share,
            math.hypot(self.deviation, other.deviation, between),
            max(self.largest, other.largest),
            self.nonzero + other.nonzero,
            self.nan + other.nan,
            self.saturated + other.saturated,
        )

    @property
    def infinite(self) -> int:
        """How many values are infinite."""
        return self.total - self.finite - self.nan

    def stats(
        self, hist: Sequence[float] | None = None, *, sat: bool = False, sample: int = 0
    ) -> TensorStats:
        """The numbers as they stand in a frame; None where there was no finite value."""
        known = self.finite > 0
        result = TensorStats(
            self.mean if known else None,
            self.deviation / math.sqrt(self.finite) if known else None,
            self.largest if known else None,
            (self.total - self.nonzero) / self.total if self.total else None,
            self.nan,
            self.infinite,
            self.saturated / self.total if sat and self.total else None,
            whole(hist) if hist is not None and known else None,
        )
        if sample:
            result.extra["histSample"] = sample
        return result


def whole(counts: Sequence[float]) -> list[Any]:
    """Counts as whole numbers, which they may have ceased to be on their way from a device."""
    return list(counts) if type(counts[0]) is int else [int(count) for count in counts]


def to_real(tensor: Tensor) -> Tensor:
    """The tensor's values as a dense strided tensor of real numbers, cut from the graph.

    A complex tensor becomes its real and imaginary parts, each a value of its own.
    """
    tensor = tensor.detach()
    if tensor.layout in _SPARSE:
        tensor = tensor.to_dense()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor


def flat_view(tensor: Tensor) -> Tensor:
    """All values in one dimension, in any order; a copy only where memory has gaps or overlaps."""
    if tensor.is_contiguous():
        return tensor.view(-1)
    order = sorted(range(tensor.ndim), key=tensor.stride, reverse=True)
    turned = tensor.permute(order)
    return turned.view(-1) if turned.is_contiguous() else tensor.reshape(-1)


def wide_type(tensor: Tensor) -> torch.dtype:
    """A type that sums of the values may be taken in: float32 for it and half types, else float64."""
    narrow = tensor.is_floating_point() and tensor.dtype != torch.float64
    return torch.float32 if narrow or tensor.device.type == "mps" else torch.float64


def widened(rows: Tensor) -> Tensor:
    """The values in their `wide_type`."""
    return rows.to(wide_type(rows))


def saturated_rows(rows: Tensor, sat: str) -> Tensor:
    """How many values of each row are saturated: ``tanh`` beyond 0.99, ``sigmoid`` within 0.01 of an end."""
    low = -0.99 if sat == "tanh" else 0.01
    return ((rows > 0.99) | (rows < low)).sum(1)


def exact_rows(rows: Tensor, sat: str | None = None) -> Tensor:
    """Eight numbers a row that say everything about it but the histogram.

    Args:
        rows: Real values, float32 or float64; may hold NaN and Inf.
        sat: ``tanh`` or ``sigmoid`` to count saturated values too.

    Returns:
        On the device of ``rows`` and in its type, without waiting for it: finite values,
        largest magnitude among them, mean and deviation in units of that, values that are not
        zero, NaN, infinite, saturated.

    Shape:
        rows: ``(row, value)``
        return: ``(row, 8)``

    Example:
        >>> exact_rows(torch.tensor([[0.0, 2.0, float("nan")]]))[0, :5].tolist()
        [2.0, 2.0, 0.5, 0.7071067690849304, 2.0]
    """
    if not rows.shape[1]:
        return rows.new_zeros((rows.shape[0], EXACT_COLUMNS))
    finite = torch.isfinite(rows)
    clean = torch.where(finite, rows, torch.zeros((), dtype=rows.dtype, device=rows.device))
    largest = clean.abs().amax(1)
    unit = clean / torch.where(largest > 0, largest, torch.ones_like(largest))[:, None]
    count = finite.sum(1)
    mean = unit.sum(1) / count.clamp(min=1)
    apart = (unit - mean[:, None]) * finite
    nan = torch.isnan(rows).sum(1)
    saturated = torch.zeros_like(nan) if sat is None else saturated_rows(rows, sat)
    columns = (
        count,
        largest,
        mean,
        torch.linalg.vector_norm(apart, dim=1),
        (rows != 0).sum(1),
        nan,
        rows.shape[1] - count - nan,
        saturated,
    )
    return torch.stack([column.to(rows.dtype) for column in columns], dim=1)


def histogram_rows(rows: Tensor, largest: Tensor) -> Tensor:
    """Finite values of each row, counted in 32 equal bins over ``[-largest, largest]``.

    A bin holds its lower end and not its upper one, but for the last, which holds both.

    Shape:
        rows: ``(row, value)``
        largest: ``(row,)``, at least the largest finite magnitude of the row
        return: ``(row, 32)``

    Example:
        >>> counts = histogram_rows(torch.tensor([[-1.0, 0.0, 1.0]]), torch.ones(1))
        >>> counts.nonzero().tolist()
        [[0, 0], [0, 16], [0, 31]]
    """
    width = torch.where(largest > 0, largest, torch.ones_like(largest))[:, None]
    place = torch.floor(rows / width * _HALF) + _HALF
    place = torch.where(torch.isfinite(rows), place.clamp(max=HIST_BINS - 1), HIST_BINS).to(torch.int64)
    if rows.device.type != "cpu":
        # bincount waits for the device and has no deterministic form on CUDA.
        bins = torch.arange(HIST_BINS, device=rows.device)
        return (place.unsqueeze(-1) == bins).sum(1)
    per_row = HIST_BINS + 1
    place += torch.arange(rows.shape[0])[:, None] * per_row
    counts = torch.bincount(place.view(-1), minlength=rows.shape[0] * per_row)
    return counts.view(-1, per_row)[:, :HIST_BINS]


def dead_share(tensor: Tensor) -> Tensor | None:
    """The share of units that are not active once, a plain number between 0 and 1.

    A unit is active where its value is over zero: what a ReLU lets through, and what a smooth
    activation does not press down. An image's units are its channels, any other tensor's its
    last dimension. A unit that holds NaN counts as active.

    Args:
        tensor: The result of an activation.

    Returns:
        A 0-dimensional tensor on the device of ``tensor``, cut from the graph; None where there
        are no real values or no units.

    Shape:
        tensor: ``(*, unit)`` or ``(batch, unit, *, *)``
        return: ``()``

    Example:
        >>> dead_share(torch.tensor([[0.0, 1.0], [0.0, 0.0]]))
        tensor(0.5000)
    """
    unit = unit_axis(tensor)
    if unit is None or not tensor.is_floating_point() or tensor.layout != torch.strided or not tensor.numel():
        return None
    wide = tensor.detach() if tensor.element_size() > 1 else tensor.detach().float()
    return (unit_tops(wide.unsqueeze(0), unit + 1)[0] <= 0).float().mean()


def unit_tops(tensors: Tensor, unit: int) -> Tensor:
    """The largest value of each unit of some activations of one shape.

    Shape:
        tensors: ``(tensor, *)``
        return: ``(tensor, unit)``

    Example:
        >>> unit_tops(torch.tensor([[[1.0, -2.0], [0.0, -1.0]]]), 2)
        tensor([[ 1., -1.]])
    """
    # Two passes, each over neighbours in memory, are many times as fast as one over all axes.
    inner = list(range(unit + 1, tensors.ndim))
    tops = tensors.amax(inner) if inner else tensors
    outer = list(range(1, unit))
    return tops.amax(outer) if outer else tops


def unit_axis(tensor: Tensor) -> int | None:
    """The axis of an activation's units: an image's channels, else the last; None without a batch."""
    return None if tensor.ndim < 2 else 1 if tensor.ndim >= 4 else tensor.ndim - 1


def _pieces(flat: Tensor) -> Iterator[Tensor]:
    """The values as float64 rows of bounded length."""
    exact = torch.float32 if flat.device.type == "mps" else torch.float64
    for piece in flat.split(_ROW_LENGTH):
        yield piece.to(exact).view(1, -1)


def tensor_stats(t: Any, hist: bool = True, sat: str | None = None) -> TensorStats:
    """Mean, spread, largest magnitude and shares of one tensor's values, in their own unit.

    ``mean``, ``std`` (the population's), ``absMax`` and ``hist`` are over the finite values,
    ``zeroFrac`` and ``satFrac`` over all. All sums are taken in float64, so that a large mean
    does not swallow a small spread.

    Args:
        t: Any tensor: every dtype, sparse (values not stored are zeros), complex (real and
            imaginary parts are values of their own), non-contiguous, on any device. It is
            neither changed nor kept, and no graph is built.
        hist: Whether to count 32 equal bins over ``[-absMax, absMax]``, exactly.
        sat: ``"tanh"`` counts values beyond 0.99 in magnitude as saturated, ``"sigmoid"``
            those under 0.01 or over 0.99; None leaves ``satFrac`` out.

    Returns:
        The numbers. An empty tensor has None for mean, std, absMax and zeroFrac; one without
        a finite value has None for the first three. Neither has a histogram.

    Raises:
        TypeError: If ``t`` is no tensor, or one without values (a meta tensor).
        ValueError: If ``sat`` is another word.

    Source:
        README.md, "What watch measures"; ``FORMATS.md``, section 5.

    Example:
        >>> stats = tensor_stats(torch.tensor([0.0, 0.0, 3.0, float("inf")]))
        >>> stats.mean, stats.absMax, stats.zeroFrac, stats.infCount
        (1.0, 3.0, 0.5, 1)
    """
    if not isinstance(t, Tensor) or t.device.type == "meta":
        raise TypeError(f"tensor_stats takes a tensor that holds values, found {_described(t)}")
    if sat not in (None, "tanh", "sigmoid"):
        raise ValueError(f"sat must be 'tanh', 'sigmoid' or None, found {sat!r}")
    with torch.no_grad():
        flat = flat_view(to_real(t))
        parts = [Moments.read(row.shape[1], exact_rows(row, sat)[0].tolist()) for row in _pieces(flat)]
        moments = Moments.merged(parts)
        counts = _histogram(flat, moments.largest) if hist and moments.finite else None
    return moments.stats(counts, sat=sat is not None)


def _described(value: object) -> str:
    """What was given in place of a tensor with values."""
    return f"a meta tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)[:80]


def _histogram(flat: Tensor, largest: float) -> list[float]:
    """The bins of all values, piece by piece."""
    counts = torch.zeros(HIST_BINS, dtype=torch.int64, device=flat.device)
    for row in _pieces(flat):
        counts += histogram_rows(row, row.new_full((1,), largest))[0]
    result: list[float] = counts.tolist()
    return result
