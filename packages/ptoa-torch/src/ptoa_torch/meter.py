"""The statistics of all tensors of one frame: cheap where they are taken, read in one copy.

Three rules keep a frame step close to a bare one.

- Small tensors of one shape are copied into the rows of a kept buffer and measured together,
  since a call costs more than their values do; large ones are measured in pieces that stay
  in the cache. Copying at once also means that an in-place operation which follows cannot
  change what is measured.
- Finite float32 values on the CPU take the quick way: smallest, largest, sum, norm and a count
  of what is not zero. Smallest and largest show NaN and Inf; a norm about the mean is taken
  only where the mean is large. Whatever the quick way cannot say is measured by
  ``stats.exact_rows``, as everything on another device is.
- Numbers on a device wait in a `Parcel`, which leaves in one copy and is opened a step later.
  The quick way's few numbers lie in memory that Python and torch share, so they are looked at
  without a copy and without a call.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ptoa_core.protocol import HIST_BINS

from . import _compat
from .stats import (
    Moments,
    dead_share,
    exact_rows,
    flat_view,
    histogram_rows,
    saturated_rows,
    to_real,
    unit_axis,
    wide_type,
    widened,
)

if TYPE_CHECKING:
    from ptoa_core.frames import TensorStats

__all__ = ["HISTOGRAM_VALUES", "Meter", "Parcel", "Reading", "Receive", "row_norms"]

HISTOGRAM_VALUES = 1024
_PIECE = 1 << 18  # 1 MiB of float32: stays in a core's cache over several passes
_DEVICE_PIECE = 1 << 24  # float32 counts up to here without a gap
_SMALL = 1 << 16
_MAX_ROWS = 256
_STRETCH = 4096
_QUICK = 6
_WORD_GROUP = 128  # words whose bytes can be summed without a carry from byte to byte
_PAD = 8 * _WORD_GROUP
# Where a square neither vanishes nor overflows in float32, with room for a sum of them.
_LEAST, _MOST = 1e-17, 1e15
_SPREAD = 0.3  # below this share of the squares, the variance is taken about the mean

_vector_norm: Callable[..., Tensor] = torch.linalg.vector_norm
Receive = Callable[[Sequence[float]], object]


class Parcel:
    """Numbers on their way from a device: many small tensors in, one copy out.

    Example:
        >>> parcel, seen = Parcel(), []
        >>> parcel.put(torch.tensor([1.0, 2.0]), seen.extend)
        >>> parcel.seal(); parcel.open()
        >>> seen
        [1.0, 2.0]
    """

    def __init__(self) -> None:
        """Start empty."""
        self._waiting: dict[tuple[torch.device, torch.dtype], list[tuple[Tensor, Receive]]] = {}
        self._copies: list[tuple[Tensor, object, list[tuple[int, Receive]]]] = []

    @property
    def sealed(self) -> bool:
        """Whether the copies have been started."""
        return bool(self._copies)

    @property
    def on_host(self) -> bool:
        """Whether everything lies on the CPU, so that opening waits for nothing."""
        return all(device.type == "cpu" for device, _ in self._waiting)

    def put(self, numbers: Tensor, receive: Receive) -> None:
        """Have ``receive`` called with the numbers, flat, when the parcel is opened."""
        kind = numbers.device, _travels_as(numbers)
        self._waiting.setdefault(kind, []).append((numbers, receive))

    def seal(self) -> None:
        """Start one copy for each device that numbers wait on."""
        for (_, dtype), waiting in self._waiting.items():
            flat = torch.cat([numbers.reshape(-1).to(dtype) for numbers, _ in waiting])
            sizes = [(numbers.numel(), receive) for numbers, receive in waiting]
            self._copies.append((*_compat.copy_to_host(flat), sizes))
        self._waiting = {}

    def open(self) -> None:
        """Wait for the copies and hand the numbers out."""
        copies, self._copies = self._copies, []
        for host, done, sizes in copies:
            _compat.wait_for(done)
            values: list[float] = host.tolist()
            start = 0
            for size, receive in sizes:
                receive(values[start : start + size])
                start += size


class Reading:
    """What is known of one measured tensor; its numbers come when the parcel is opened."""

    __slots__ = ("dead", "hist", "parts", "sample", "sat", "waits")

    def __init__(self, sat: str | None) -> None:
        """Start without numbers."""
        self.parts: list[Moments] = []
        self.waits = False
        self.dead: float | None = None
        self.hist: Sequence[float] | None = None
        self.sample = 0
        self.sat = sat

    @property
    def moments(self) -> Moments:
        """All pieces together."""
        return self.parts[0] if len(self.parts) == 1 else Moments.merged(self.parts)

    @property
    def is_finite(self) -> bool:
        """Whether there is neither NaN nor Inf."""
        return all(part.finite == part.total for part in self.parts)

    def stats(self, scale: float = 1.0) -> TensorStats:
        """The numbers as they stand in a frame, divided by ``scale``."""
        moments = self.moments
        if scale != 1.0:
            moments = moments._replace(
                mean=moments.mean / scale,
                deviation=moments.deviation / scale,
                largest=moments.largest / scale,
            )
        result = moments.stats(self.hist, sat=self.sat is not None, sample=self.sample)
        if self.dead is not None:
            result.extra["deadFrac"] = round(self.dead, 7)
        return result


class _Shared:
    """A float32 table in memory that Python reads without asking torch."""

    def __init__(self, rows: int, columns: int) -> None:
        """Make the table."""
        self.numbers = array("f", bytes(4 * rows * columns))
        self.table = torch.frombuffer(self.numbers, dtype=torch.float32).view(rows, columns)
        self._columns = columns

    def row(self, index: int, count: int) -> array[float]:
        """The first numbers of a row."""
        start = index * self._columns
        return self.numbers[start : start + count]


class _Group:
    """A kept buffer for tensors of one shape."""

    def __init__(self, shape: torch.Size, dtype: torch.dtype, device: torch.device, sat: str | None) -> None:
        """Take the memory."""
        values = max(1, math.prod(shape))
        rows = max(1, min(_MAX_ROWS, _PIECE // values))
        self.matrix = torch.empty((rows, values), dtype=dtype, device=device)
        self.slots = self.matrix.view(rows, *shape).unbind(0)
        self.sat = sat
        self.readings: list[Reading] = []
        self.unit = unit_axis(torch.empty(shape, device="meta"))
        self.counts_dead = False


class Meter:
    """Measures tensors for a frame.

    Args:
        hist: Whether to count histograms: of all values up to three times ``HISTOGRAM_VALUES``,
            beyond that of at least that many, evenly spaced. ``histSample`` says how many.

    Example:
        >>> meter, parcel = Meter(), Parcel()
        >>> reading = meter.add(torch.tensor([1.0, 3.0]), parcel)
        >>> meter.flush(parcel); parcel.seal(); parcel.open()
        >>> reading.stats().mean
        2.0
    """

    def __init__(self, hist: bool = True) -> None:
        """Take no memory until something is measured."""
        self._hist = hist
        self._groups: dict[tuple[torch.Size, torch.dtype, torch.device, str | None], _Group] = {}
        self._quick = _Shared(_QUICK, _MAX_ROWS)
        self._floats = torch.empty(0)
        self._bytes = torch.empty(0, dtype=torch.bool)

    def add(self, tensor: Tensor, parcel: Parcel, sat: str | None = None) -> Reading:
        """Measure a tensor as it is at this moment.

        Args:
            tensor: Any tensor with values; neither kept nor changed.
            parcel: What takes the numbers that are still on a device.
            sat: As in `tensor_stats`.
        """
        tensor = tensor.detach() if _is_plain(tensor) else to_real(_compat.local_tensor(tensor))
        reading = Reading(sat)
        count = tensor.numel()
        if not 0 < count <= _SMALL:
            self._add_large(tensor, count, reading, parcel)
            return reading
        key = (tensor.shape, wide_type(tensor), tensor.device, sat)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(*key)
        readings = group.readings
        if len(readings) == len(group.slots):
            self._measure_group(group, parcel)
            readings = group.readings
        group.slots[len(readings)].copy_(tensor)
        readings.append(reading)
        return reading

    def count_dead(self, reading: Reading, tensor: Tensor, parcel: Parcel) -> None:
        """Have the share of units that are not active once counted too, as in `dead_share`.

        Args:
            reading: What the last `add` returned.
            tensor: The tensor that was given to it.
            parcel: What takes a number that is still on a device.
        """
        key = (tensor.shape, wide_type(tensor), tensor.device, reading.sat)
        group = self._groups.get(key)
        if group is not None and group.readings and group.readings[-1] is reading:
            reading.waits = tensor.is_floating_point() and group.unit is not None
            group.counts_dead = group.counts_dead or reading.waits
            return
        share = dead_share(tensor)
        if share is not None:
            parcel.put(share, lambda values: setattr(reading, "dead", values[0]))

    def flush(self, parcel: Parcel) -> None:
        """Measure what waits in the buffers."""
        for group in self._groups.values():
            if group.readings:
                self._measure_group(group, parcel)

    def forget(self) -> None:
        """Give the memory back."""
        self._groups = {}
        self._floats = torch.empty(0)
        self._bytes = torch.empty(0, dtype=torch.bool)

    # ── one tensor in pieces, many tensors in rows ────────────────────────────

    def _add_large(self, tensor: Tensor, count: int, reading: Reading, parcel: Parcel) -> None:
        """Measure a tensor piece by piece, then its histogram."""
        if not count:
            reading.parts.append(Moments())
            return
        flat = flat_view(tensor)
        size = _PIECE if flat.device.type == "cpu" else _DEVICE_PIECE
        largest = [
            self._measure(widened(piece).view(1, -1), [reading], reading.sat, parcel)
            for piece in flat.split(size)
        ]
        if self._hist:
            step = _stride(count, tensor.shape[-1])
            sample = widened(flat[::step]).view(1, -1)
            self._count(sample, torch.stack(largest).amax(0), [reading], count, parcel)

    def _measure_group(self, group: _Group, parcel: Parcel) -> None:
        """Measure the filled rows of a buffer and empty it."""
        readings, group.readings = group.readings, []
        rows = group.matrix[: len(readings)]
        largest = self._measure(rows, readings, group.sat, parcel)
        if group.counts_dead:
            group.counts_dead = False
            self._count_dead_rows(group, readings, parcel)
        if self._hist:
            count = rows.shape[1]
            step = _stride(count, group.slots[0].shape[-1] if group.slots[0].ndim else 1)
            self._count(rows[:, ::step], largest, readings, count, parcel)

    def _count_dead_rows(self, group: _Group, readings: list[Reading], parcel: Parcel) -> None:
        """Count the dead units of each row whose reading waits for them."""
        whole = group.matrix[: len(readings)].view(len(readings), *group.slots[0].shape)
        axes = [axis for axis in range(1, whole.ndim) if axis - 1 != group.unit]
        tops = whole.amax(axes) if axes else whole
        shares = (tops <= 0).sum(1)
        width = tops.shape[1]

        def receive(values: Sequence[float]) -> None:
            for reading, dead in zip(readings, values, strict=True):
                if reading.waits:
                    reading.dead = dead / width

        parcel.put(shares, receive)

    def _measure(self, rows: Tensor, readings: list[Reading], sat: str | None, parcel: Parcel) -> Tensor:
        """Add the moments of each row to its reading; returns the largest magnitude of each row."""
        if rows.dtype == torch.float32 and rows.device.type == "cpu":
            largest = self._measure_quickly(rows, readings, sat)
            if largest is not None:
                return largest
        # Torch adds float32 squares one by one on the CPU; the exact way is rare enough for float64.
        numbers = exact_rows(rows.double() if rows.device.type == "cpu" else rows, sat)
        width, count = numbers.shape[1], rows.shape[1]

        def receive(values: Sequence[float]) -> None:
            for index, reading in enumerate(readings):
                reading.parts.append(Moments.read(count, values[index * width : (index + 1) * width]))

        parcel.put(numbers, receive)
        return numbers[:, 1]

    # ── the quick way: finite float32 values on the CPU ───────────────────────

    def _measure_quickly(self, rows: Tensor, readings: list[Reading], sat: str | None) -> Tensor | None:
        """The moments of each row at once, or None where a row needs the exact way."""
        height, width = rows.shape
        low, high, total, norm, nonzero, saturated = (line[:height] for line in self._quick.table)
        torch.amin(rows, 1, out=low)
        torch.amax(rows, 1, out=high)
        lows, highs = self._quick.row(0, height), self._quick.row(1, height)
        # NaN and Inf fail the comparison.
        if not all(_LEAST < max(b, -a) < _MOST or a == b == 0.0 for a, b in zip(lows, highs, strict=True)):
            return None
        torch.sum(rows, 1, out=total)
        norm.copy_(_norms(rows))
        nonzero.copy_(self._nonzero(rows))
        if sat is not None:
            saturated.copy_(saturated_rows(rows, sat))
        means = [number / width for number in self._quick.row(2, height)]
        deviations = self._deviations(rows, means, norm, total)
        counts = self._quick.row(4, height)
        ends = self._quick.row(5, height) if sat is not None else [0.0] * height
        for index, reading in enumerate(readings):
            a, b = lows[index], highs[index]
            deviation = 0.0 if a == b else deviations[index]
            mean = a if a == b else means[index]
            reading.parts.append(
                Moments(width, width, mean, deviation, max(b, -a), int(counts[index]), 0, int(ends[index]))
            )
        return torch.maximum(high, -low)

    def _deviations(self, rows: Tensor, means: list[float], norm: Tensor, total: Tensor) -> list[float]:
        """Root of the summed squares about the mean, without subtracting two large numbers."""
        width = rows.shape[1]
        squares = [number * number for number in self._quick.row(3, len(means))]
        spread = [square - width * mean * mean for square, mean in zip(squares, means, strict=True)]
        if all(part >= _SPREAD * square for part, square in zip(spread, squares, strict=True)):
            return [math.sqrt(part) for part in spread]
        apart = self._scratch(rows)
        torch.sub(rows, (total / width)[:, None], out=apart)
        norm.copy_(_norms(apart))
        return list(self._quick.row(3, len(means)))

    def _scratch(self, rows: Tensor) -> Tensor:
        """Kept memory in the shape of the rows."""
        if self._floats.numel() < rows.numel():
            self._floats = torch.empty(max(rows.numel(), _PIECE))
        return self._floats[: rows.numel()].view(rows.shape)

    def _nonzero(self, rows: Tensor) -> Tensor:
        """How many values of each row are not zero: eight bytes summed at a time."""
        height, width = rows.shape
        padded = -(-width // _PAD) * _PAD
        if self._bytes.numel() < height * padded:
            self._bytes = torch.empty(max(height * padded, _PIECE), dtype=torch.bool)
        flags = self._bytes[: height * padded].view(height, padded)
        flags[:, :width].copy_(rows)
        if padded > width:
            flags[:, width:].zero_()
        words = flags.view(torch.int64).view(height, -1, _WORD_GROUP).sum(2)
        return words.view(torch.uint8).sum(1)

    # ── histograms ────────────────────────────────────────────────────────────

    def _count(
        self, rows: Tensor, largest: Tensor, readings: list[Reading], count: int, parcel: Parcel
    ) -> None:
        """Count the bins of each row."""
        sample = rows.shape[1] if rows.shape[1] < count else 0

        def receive(values: Sequence[float]) -> None:
            for index, reading in enumerate(readings):
                reading.hist = values[index * HIST_BINS : (index + 1) * HIST_BINS]
                reading.sample = sample

        quick = rows.dtype == torch.float32 and rows.device.type == "cpu" and len(readings[0].parts) > 0
        counts = _count_quickly(rows, largest) if quick else histogram_rows(rows, largest.to(rows.dtype))
        parcel.put(counts, receive)


def _is_plain(tensor: Tensor) -> bool:
    """Whether a tensor is of the kind that nearly all are, so that nothing has to be looked up."""
    plain = type(tensor) is Tensor and tensor.layout == torch.strided
    return plain and (tensor.dtype == torch.float32 or tensor.is_floating_point())


def _count_quickly(rows: Tensor, largest: Tensor) -> Tensor:
    """`histogram_rows` for finite float32 rows on the CPU whose magnitudes are no denormals."""
    half = HIST_BINS // 2
    per_row = HIST_BINS + 1
    width = torch.where(largest > 0, largest, 1.0) / half
    place = torch.div(rows, width[:, None]).floor_().to(torch.int16)
    place += (torch.arange(rows.shape[0], dtype=torch.int16) * per_row + half)[:, None]
    counts = torch.bincount(place.view(-1), minlength=rows.shape[0] * per_row).view(-1, per_row)
    counts[:, HIST_BINS - 1] += counts[:, HIST_BINS]  # the largest value itself
    return counts[:, :HIST_BINS]


def _travels_as(numbers: Tensor) -> torch.dtype:
    """The type of a copy: one for all numbers of a device; on the CPU counts stay whole numbers."""
    if numbers.device.type == "cpu" and not numbers.is_floating_point():
        return torch.int64
    return torch.float32 if numbers.device.type == "mps" else torch.float64


def _stride(count: int, last: int) -> int:
    """An odd step that leaves at least ``HISTOGRAM_VALUES`` values and visits every column."""
    step = (count // HISTOGRAM_VALUES - 1) | 1
    while step > 1 and math.gcd(step, last) != 1:
        step -= 2
    return max(step, 1)


def _norms(rows: Tensor) -> Tensor:
    """The L2 norm of each float32 row, summed in stretches so that rounding does not add up."""
    width = rows.shape[1]
    whole = width - width % _STRETCH
    if width <= 2 * _STRETCH:
        return _vector_norm(rows, dim=1)
    stretches = _vector_norm(rows[:, :whole].unflatten(1, (-1, _STRETCH)), dim=2)
    norms = _vector_norm(stretches, dim=1)
    return norms if whole == width else torch.hypot(norms, _vector_norm(rows[:, whole:], dim=1))


def row_norms(rows: Tensor) -> Tensor:
    """The L2 norm of each row, without overflow where the values themselves fit.

    Shape:
        rows: ``(row, value)``
        return: ``(row,)``, float64, on the device of ``rows``

    Example:
        >>> row_norms(torch.tensor([[3.0, 4.0], [3e30, 4e30], [3e-30, 4e-30]]))
        tensor([5.0000e+00, 5.0000e+30, 5.0000e-30], dtype=torch.float64)
    """
    wide = torch.float32 if rows.device.type == "mps" else torch.float64
    if rows.device.type != "cpu" or rows.dtype == torch.float64:
        return _vector_norm(rows, dim=1, dtype=wide)
    shared = _Shared(1, rows.shape[0])
    shared.table[0].copy_(_norms(rows.to(torch.float32)))
    if all(_LEAST < number < _MOST for number in shared.numbers):
        return shared.table[0].to(torch.float64)
    return _vector_norm(rows, dim=1, dtype=torch.float64)
