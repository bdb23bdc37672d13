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
from operator import neg
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ptoa_core.late import PlainStats
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
    unit_tops,
    whole,
    wide_type,
    widened,
)

if TYPE_CHECKING:
    from ptoa_core.frames import TensorStats

__all__ = ["HISTOGRAM_VALUES", "Meter", "Parcel", "Reading", "Receive", "row_norms"]

HISTOGRAM_VALUES = 512
_PIECE = 1 << 18  # 1 MiB of float32: stays in a core's cache over several passes
_DEVICE_PIECE = 1 << 24  # float32 counts up to here without a gap
_SMALL = 1 << 16
_MAX_ROWS = 256
_STRETCH = 4096
_QUICK = 7
_MAX_LINES = 64
_PER_ROW = HIST_BINS + 1  # the largest value itself has a bin of its own before it joins the last one
_SAMPLE_ROWS = 512
_SAMPLE_ROOM = 1 << 18
_NO_ENDS = [0.0] * _MAX_ROWS
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
        self._here: list[tuple[Sequence[float], Receive]] = []

    @property
    def sealed(self) -> bool:
        """Whether the copies have been started."""
        return bool(self._copies or self._here)

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
        for (device, dtype), waiting in self._waiting.items():
            if device.type == "cpu":
                self._here += [(numbers.reshape(-1).tolist(), receive) for numbers, receive in waiting]
                continue
            flat = torch.cat([numbers.reshape(-1).to(dtype) for numbers, _ in waiting])
            sizes = [(numbers.numel(), receive) for numbers, receive in waiting]
            self._copies.append((*_compat.copy_to_host(flat), sizes))
        self._waiting = {}

    def open(self) -> None:
        """Wait for the copies and hand the numbers out."""
        here, self._here = self._here, []
        for values, receive in here:
            receive(values)
        copies, self._copies = self._copies, []
        for host, done, sizes in copies:
            _compat.wait_for(done)
            numbers: list[float] = host.tolist()
            start = 0
            for size, receive in sizes:
                receive(numbers[start : start + size])
                start += size


class Reading:
    """What is known of one measured tensor; its numbers come when the parcel is opened.

    Attributes:
        row: Of which block of a frame the tensor is.
        part: Which part of the block's row it is.
        inputs: What is known of the tensors that the block read to make it.
    """

    # Kept on the class, since most readings never change most of them.
    total = finite = nonzero = nan = saturated = sample = row = _at = 0
    mean = deviation = largest = 0.0
    waits = False
    part = ""
    dead: float | None = None
    inputs: Sequence[Any] = ()
    _hist: Sequence[float] | None = None

    def __init__(self, sat: str | None) -> None:
        """Start without numbers."""
        self.sat = sat

    def put(self, found: Moments) -> None:
        """Add a piece."""
        (
            self.total,
            self.finite,
            self.mean,
            self.deviation,
            self.largest,
            self.nonzero,
            self.nan,
            self.saturated,
        ) = found if not self.total else Moments.merged((self.moments, found))

    def put_hist(self, counts: Sequence[float], at: int) -> None:
        """Take the counts of the bins, from a place among those of many tensors on."""
        self._hist, self._at = counts, at

    @property
    def hist(self) -> Sequence[float] | None:
        """The counts of the bins; None where they were not counted."""
        return None if self._hist is None else self._hist[self._at : self._at + HIST_BINS]

    @property
    def moments(self) -> Moments:
        """All pieces together."""
        return Moments(
            self.total,
            self.finite,
            self.mean,
            self.deviation,
            self.largest,
            self.nonzero,
            self.nan,
            self.saturated,
        )

    @property
    def is_finite(self) -> bool:
        """Whether there is neither NaN nor Inf."""
        return self.finite == self.total

    def plain(self, part: str, scale: float) -> PlainStats | None:
        """The numbers as they are written, divided by ``scale``; None where some are not known or finite."""
        if not self.finite:
            return None
        mean, largest = self.mean / scale, self.largest / scale
        std = self.deviation / math.sqrt(self.finite) / scale
        if not math.isfinite(mean + std + largest):
            return None
        hist = self.hist
        return PlainStats(
            part,
            mean,
            std,
            largest,
            (self.total - self.nonzero) / self.total,
            None if self.sat is None else self.saturated / self.total,
            self.nan,
            self.total - self.finite - self.nan,
            None if hist is None else whole(hist),
            self.sample,
            None if self.dead is None else round(self.dead, 7),
        )

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
    """A float32 table in memory that Python reads and writes without asking torch."""

    def __init__(self, rows: int, columns: int) -> None:
        """Make the table."""
        self.numbers = array("f", bytes(4 * rows * columns))
        self.table = torch.frombuffer(self.numbers, dtype=torch.float32).view(rows, columns)
        self._columns = columns

    def row(self, index: int, count: int) -> list[float]:
        """The first numbers of a row."""
        start = index * self._columns
        return self.numbers[start : start + count].tolist()

    def write(self, index: int, numbers: Sequence[float]) -> None:
        """Put numbers at the beginning of a row."""
        start = index * self._columns
        self.numbers[start : start + len(numbers)] = array("f", numbers)


class _Group:
    """A kept buffer for tensors of one shape."""

    def __init__(self, shape: torch.Size, dtype: torch.dtype, device: torch.device, sat: str | None) -> None:
        """Take the memory."""
        values = max(1, math.prod(shape))
        rows = max(1, min(_MAX_ROWS, _PIECE // values))
        self.matrix = torch.empty((rows, values), dtype=dtype, device=device)
        self.slots = self.matrix.view(rows, *shape).unbind(0)
        self.shape = shape
        self.steps = [_stride(values, shape[-1] if shape else 1, coarse=coarse) for coarse in (False, True)]
        self.sat = sat
        self.readings: list[Reading] = []
        self.unit = unit_axis(torch.empty(shape, device="meta"))
        self.counts_dead = False


class _Samples:
    """The values whose bins are counted, of many tensors: on the CPU, finite float32 and no denormals."""

    def __init__(self) -> None:
        """Take the memory."""
        self._room = torch.empty(_SAMPLE_ROOM)
        self._first = (torch.arange(_SAMPLE_ROWS) * _PER_ROW + HIST_BINS // 2).float()[:, None]
        self._readings: list[Reading] = []
        self._filled = 0

    def add(self, rows: Tensor, widths: Tensor, readings: list[Reading], count: int) -> None:
        """Take in rows of values, with the width of each one's bins.

        Shape:
            rows: ``(row, value)``
            widths: ``(row, 1)``
        """
        height, width = rows.shape
        if self._filled + height * width > _SAMPLE_ROOM or len(self._readings) + height > _SAMPLE_ROWS:
            self.count()
        known = len(self._readings)
        start, self._filled = self._filled, self._filled + height * width
        places = self._room[start : self._filled].view(height, width)
        torch.div(rows, widths, out=places).floor_().add_(self._first[known : known + height])
        self._readings += readings
        if width < count:
            for reading in readings:
                reading.sample = width

    def count(self) -> None:
        """Give each reading its histogram."""
        if not self._readings:
            return
        places = self._room[: self._filled].to(torch.int32)
        counts = torch.bincount(places, minlength=len(self._readings) * _PER_ROW).view(-1, _PER_ROW)
        counts[:, HIST_BINS - 1] += counts[:, HIST_BINS]  # the largest value itself
        flat = counts[:, :HIST_BINS].reshape(-1).tolist()
        for index, reading in enumerate(self._readings):
            reading.put_hist(flat, index * HIST_BINS)
        self._readings, self._filled = [], 0


class _Lines:
    """Where the numbers of rows of one shape go; most in memory that Python shares."""

    __slots__ = (
        "filled",
        "flags",
        "high",
        "low",
        "nonzero",
        "norm",
        "saturated",
        "stretches",
        "sums",
        "total",
        "words",
    )

    def __init__(self, table: Tensor, height: int, width: int, room: Tensor) -> None:
        """Cut the memory.

        Args:
            table: A row a number.
            height: How many rows there are.
            width: How many values each has.
            room: Bytes for one flag a value.
        """
        self.low, self.high, self.total, self.norm, self.nonzero, self.saturated = table[:6, :height]
        padded = -(-width // _PAD) * _PAD
        flags = room[: height * padded].view(height, padded)
        self.filled = width == padded
        self.flags = flags if self.filled else flags[:, :width]
        self.words = flags.view(torch.int64).view(-1, _WORD_GROUP)
        self.sums = torch.empty(len(self.words), dtype=torch.int64)
        whole = width % _STRETCH == 0 and width > _STRETCH
        self.stretches = torch.empty(height * width // _STRETCH) if whole else None


class Meter:
    """Measures tensors for a frame.

    Args:
        hist: Whether to count histograms: of all values up to three times ``HISTOGRAM_VALUES``,
            beyond that of at least that many, evenly spaced. ``histSample`` says how many.

    Attributes:
        is_coarse: Whether histograms are of a quarter of those values.

    Example:
        >>> meter, parcel = Meter(), Parcel()
        >>> reading = meter.add(torch.tensor([1.0, 3.0]), parcel)
        >>> meter.flush(parcel); parcel.seal(); parcel.open()
        >>> reading.stats().mean
        2.0
    """

    def __init__(self, hist: bool = True) -> None:
        """Take no memory until something is measured."""
        self.is_coarse = False
        self._hist = hist
        self._groups: dict[tuple[torch.Size, torch.dtype, torch.device, str | None], _Group] = {}
        self._plain: dict[tuple[torch.Size, str | None], _Group] = {}
        self._last: _Group | None = None
        self._quick = _Shared(_QUICK, _MAX_ROWS)
        self._lines: dict[tuple[int, int], _Lines] = {}
        self._samples: _Samples | None = None
        self._floats = torch.empty(0)
        self._flags = torch.empty(0, dtype=torch.bool)

    def add(self, tensor: Tensor, parcel: Parcel, sat: str | None = None) -> Reading:
        """Measure a tensor as it is at this moment.

        Args:
            tensor: Any tensor with values; neither kept nor changed.
            parcel: What takes the numbers that are still on a device.
            sat: As in `tensor_stats`.
        """
        reading = Reading(sat)
        plain = type(tensor) is Tensor and tensor.dtype is torch.float32 and tensor.is_cpu
        group = self._plain.get((tensor.shape, sat)) if plain else None
        if group is None or tensor.layout is not torch.strided:
            tensor = tensor.detach() if _is_plain(tensor) else to_real(_compat.local_tensor(tensor))
            count = tensor.numel()
            if not 0 < count <= _SMALL:
                self._last = None
                self._add_large(tensor, count, reading, parcel)
                return reading
            group = self._group(tensor, sat, plain=plain)
        elif tensor.requires_grad and torch.is_grad_enabled():
            tensor = tensor.detach()
        if len(group.readings) == len(group.slots):
            self._measure_group(group, parcel)
        group.slots[len(group.readings)].copy_(tensor)
        group.readings.append(reading)
        self._last = group
        return reading

    def _group(self, tensor: Tensor, sat: str | None, *, plain: bool) -> _Group:
        """The buffer for tensors like this one."""
        key = (tensor.shape, wide_type(tensor), tensor.device, sat)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(*key)
        if plain:
            self._plain[tensor.shape, sat] = group
        return group

    def count_dead(self, reading: Reading, tensor: Tensor, parcel: Parcel) -> None:
        """Have the share of units that are not active once counted too, as in `dead_share`.

        Args:
            reading: What the last `add` returned.
            tensor: The tensor that was given to it.
            parcel: What takes a number that is still on a device.
        """
        group = self._last
        if group is not None and group.readings[-1] is reading:
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
        if self._samples is not None:
            self._samples.count()

    def forget(self) -> None:
        """Give the memory back."""
        self._groups, self._plain, self._last = {}, {}, None
        self._samples = None
        self._floats = torch.empty(0)
        self._flags = torch.empty(0, dtype=torch.bool)
        self._lines = {}

    # ── one tensor in pieces, many tensors in rows ────────────────────────────

    def _add_large(self, tensor: Tensor, count: int, reading: Reading, parcel: Parcel) -> None:
        """Measure a tensor piece by piece, then its histogram."""
        if not count:
            return
        flat = flat_view(tensor)
        size = _PIECE if flat.device.type == "cpu" else _DEVICE_PIECE
        found = [
            self._measure(widened(piece).view(1, -1), [reading], reading.sat, parcel)
            for piece in flat.split(size)
        ]
        if self._hist:
            sample = widened(flat[:: _stride(count, tensor.shape[-1], coarse=self.is_coarse)]).view(1, -1)
            known = [largest[0] for largest in found if isinstance(largest, list)]
            if len(known) == len(found):
                self._sample(sample, [max(known)], [reading], count)
            else:
                largest = torch.stack([torch.as_tensor(item, device=flat.device).view(1) for item in found])
                self._count(sample, largest.amax(0), [reading], count, parcel)

    def _measure_group(self, group: _Group, parcel: Parcel) -> None:
        """Measure the filled rows of a buffer and empty it."""
        readings, group.readings = group.readings, []
        rows = group.matrix[: len(readings)]
        largest = self._measure(rows, readings, group.sat, parcel)
        if group.counts_dead:
            group.counts_dead = False
            self._count_dead_rows(group, readings, parcel)
        if self._hist:
            sample = rows[:, :: group.steps[self.is_coarse]]
            if isinstance(largest, list):
                self._sample(sample, largest, readings, rows.shape[1])
            else:
                self._count(sample, largest, readings, rows.shape[1], parcel)

    def _count_dead_rows(self, group: _Group, readings: list[Reading], parcel: Parcel) -> None:
        """Count the dead units of each row whose reading waits for them."""
        whole = group.matrix[: len(readings)].view(len(readings), *group.shape)
        tops = unit_tops(whole, 1 if group.unit is None else group.unit + 1)
        width = tops.shape[1]

        def receive(values: Sequence[float]) -> None:
            for reading, dead in zip(readings, values, strict=True):
                if reading.waits:
                    reading.dead = dead / width

        parcel.put((tops <= 0).sum(1), receive)

    def _measure(
        self, rows: Tensor, readings: list[Reading], sat: str | None, parcel: Parcel
    ) -> Tensor | list[float]:
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
                reading.put(Moments.read(count, values[index * width : (index + 1) * width]))

        parcel.put(numbers, receive)
        return numbers[:, 1]

    # ── the quick way: finite float32 values on the CPU ───────────────────────

    def _measure_quickly(self, rows: Tensor, readings: list[Reading], sat: str | None) -> list[float] | None:
        """The moments of each row at once, or None where a row needs the exact way."""
        height, width = rows.shape
        lines = self._lines_of(height, width)
        torch.amin(rows, 1, out=lines.low)
        torch.amax(rows, 1, out=lines.high)
        lows, highs = self._quick.row(0, height), self._quick.row(1, height)
        largest = list(map(max, highs, map(neg, lows)))
        if not all(_LEAST < number < _MOST or number == 0.0 for number in largest):  # NaN is neither
            return None
        torch.sum(rows, 1, out=lines.total)
        _norms(rows, lines.norm, lines.stretches)
        self._count_nonzero(rows, lines)
        ends: Sequence[float] = _NO_ENDS[:height]
        if sat is not None:
            lines.saturated.copy_(saturated_rows(rows, sat))
            ends = self._quick.row(5, height)
        means = [number / width for number in self._quick.row(2, height)]
        deviations = self._deviations(rows, means, lines)
        counts = self._quick.row(4, height)
        for reading, low, high, mean, deviation, top, nonzero, end in zip(
            readings, lows, highs, means, deviations, largest, counts, ends, strict=True
        ):
            if low == high:
                mean, deviation = low, 0.0
            if reading.total:
                found = Moments(width, width, mean, deviation, top, int(nonzero), 0, int(end))
                reading.put(found)
                continue
            reading.total = reading.finite = width
            reading.mean, reading.deviation, reading.largest = mean, deviation, top
            reading.nonzero, reading.saturated = int(nonzero), int(end)
        return largest

    def _lines_of(self, height: int, width: int) -> _Lines:
        """Where the numbers of such rows go."""
        lines = self._lines.get((height, width))
        if lines is None:
            if len(self._lines) >= _MAX_LINES:
                self._lines.clear()
            needed = height * -(-width // _PAD) * _PAD
            if self._flags.numel() < needed:
                self._flags = torch.empty(max(needed, _PIECE), dtype=torch.bool)
                self._lines.clear()
            lines = self._lines[height, width] = _Lines(self._quick.table, height, width, self._flags)
        return lines

    def _deviations(self, rows: Tensor, means: list[float], lines: _Lines) -> list[float]:
        """Root of the summed squares about the mean, without subtracting two large numbers."""
        width = rows.shape[1]
        squares = [number * number for number in self._quick.row(3, len(means))]
        spread = [square - width * mean * mean for square, mean in zip(squares, means, strict=True)]
        if all(part >= _SPREAD * square for part, square in zip(spread, squares, strict=True)):
            return list(map(math.sqrt, spread))
        apart = self._scratch(rows)
        torch.sub(rows, (lines.total / width)[:, None], out=apart)
        _norms(apart, lines.norm, lines.stretches)
        return self._quick.row(3, len(means))

    def _scratch(self, rows: Tensor) -> Tensor:
        """Kept memory in the shape of the rows."""
        if self._floats.numel() < rows.numel():
            self._floats = torch.empty(max(rows.numel(), _PIECE))
        return self._floats[: rows.numel()].view(rows.shape)

    def _count_nonzero(self, rows: Tensor, lines: _Lines) -> None:
        """How many values of each row are not zero: eight bytes summed at a time."""
        if not lines.filled:
            lines.words.zero_()
        lines.flags.copy_(rows)
        torch.sum(lines.words, 1, out=lines.sums)
        bytes_ = lines.sums.view(torch.uint8).view(len(rows), -1)
        torch.sum(bytes_, 1, dtype=torch.float32, out=lines.nonzero)

    # ── histograms ────────────────────────────────────────────────────────────

    def _sample(self, rows: Tensor, largest: list[float], readings: list[Reading], count: int) -> None:
        """Have the bins of rows counted whose largest magnitudes are known."""
        self._samples = self._samples or _Samples()
        half = HIST_BINS // 2
        self._quick.write(6, [number / half or 1.0 for number in largest])
        self._samples.add(rows, self._quick.table[6, : len(largest), None], readings, count)

    def _count(
        self, rows: Tensor, largest: Tensor, readings: list[Reading], count: int, parcel: Parcel
    ) -> None:
        """Count the bins of each row."""
        sample = rows.shape[1] if rows.shape[1] < count else 0

        def receive(values: Sequence[float]) -> None:
            for index, reading in enumerate(readings):
                reading.put_hist(values, index * HIST_BINS)
                reading.sample = sample

        parcel.put(histogram_rows(rows, largest.to(rows.dtype)), receive)


def _is_plain(tensor: Tensor) -> bool:
    """Whether a tensor is of the kind that nearly all are, so that nothing has to be looked up."""
    plain = type(tensor) is Tensor and tensor.layout == torch.strided
    return plain and (tensor.dtype == torch.float32 or tensor.is_floating_point())


def _travels_as(numbers: Tensor) -> torch.dtype:
    """The type of a copy: one for all numbers of a device; on the CPU nothing is copied."""
    if numbers.device.type == "cpu":
        return numbers.dtype
    return torch.float32 if numbers.device.type == "mps" else torch.float64


def _stride(count: int, last: int, *, coarse: bool) -> int:
    """An odd step that leaves at least ``HISTOGRAM_VALUES`` values, or a quarter, and visits every column."""
    step = (count // (HISTOGRAM_VALUES // 4 if coarse else HISTOGRAM_VALUES) - 1) | 1
    while step > 1 and math.gcd(step, last) != 1:
        step -= 2
    return max(step, 1)


def _norms(rows: Tensor, out: Tensor, kept: Tensor | None = None) -> None:
    """The L2 norm of each float32 row, summed in stretches so that rounding does not add up.

    Args:
        rows: The rows.
        out: Takes the norms.
        kept: Memory for the norm of each stretch, where a row is a whole number of them.
    """
    height, width = rows.shape
    if kept is not None:
        _vector_norm(rows.view(-1, _STRETCH), dim=1, out=kept)
        _vector_norm(kept.view(height, -1), dim=1, out=out)
        return
    if width <= 2 * _STRETCH:
        _vector_norm(rows, dim=1, out=out)
        return
    whole = width - width % _STRETCH
    stretches = _vector_norm(rows[:, :whole].unflatten(1, (-1, _STRETCH)), dim=2)
    _vector_norm(stretches, dim=1, out=out)
    if whole < width:
        torch.hypot(out, _vector_norm(rows[:, whole:], dim=1), out=out)


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
    _norms(rows.to(torch.float32), shared.table[0])
    if all(_LEAST < number < _MOST for number in shared.numbers):
        return shared.table[0].to(torch.float64)
    return _vector_norm(rows, dim=1, dtype=torch.float64)
