"""The quick statistics of a frame against the exact ones."""

from __future__ import annotations

import pytest
import torch

from ptoa_torch.meter import HISTOGRAM_VALUES, Meter, Parcel, row_norms
from ptoa_torch.stats import dead_share, tensor_stats


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


CASES = {
    "activations": normal(16, 32, 64),
    "large": normal(700, 1000) * 2 + 5,
    "large-odd": normal(300_007),
    "mean-far-off": normal(5, 7) + 1e3,
    "relu": torch.relu(normal(64, 64)),
    "half": normal(1000).half(),
    "large-bfloat16": normal(300_000).bfloat16(),
    "zeros": torch.zeros(5),
    "constant": torch.full((70_000,), 7.0),
    "huge": normal(500_000) * 1e30,
    "denormal": normal(1000) * 1e-41,
    "nan": torch.tensor([1.0, float("nan"), 2.0]),
    "large-inf": torch.cat([normal(400_000), torch.tensor([float("inf")])]),
    "integers": torch.arange(10),
    "scalar": torch.tensor(3.0),
    "empty": torch.empty(0),
    "channels-last": normal(8, 3, 60, 70).to(memory_format=torch.channels_last),
    "expanded": normal(5, 1).expand(5, 40_000),
    "float64": normal(100).double() * 1e200,
}


def measured(*tensors: torch.Tensor, hist: bool = True, sat: str | None = None):
    meter, parcel = Meter(hist), Parcel()
    readings = [meter.add(tensor, parcel, sat) for tensor in tensors]
    meter.flush(parcel)
    parcel.seal()
    parcel.open()
    return [reading.stats() for reading in readings]


@pytest.mark.parametrize("tensor", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("quick", [True, False], ids=["quick", "as-on-a-device"])
def test_a_frame_gives_the_same_statistics_as_tensor_stats(tensor, quick, monkeypatch):
    if not quick:
        monkeypatch.setattr(Meter, "_measure_quickly", lambda *_: None)
    [stats], exact = measured(tensor), tensor_stats(tensor)
    scale = exact.absMax or 1.0
    assert stats.mean == pytest.approx(exact.mean, abs=3e-7 * scale)
    assert stats.std == (None if exact.std is None else pytest.approx(exact.std, rel=5e-6))
    assert stats.absMax == exact.absMax
    assert (stats.zeroFrac, stats.nanCount, stats.infCount) == (
        exact.zeroFrac,
        exact.nanCount,
        exact.infCount,
    )
    if not stats.extra:
        assert stats.hist == exact.hist


def test_a_histogram_of_a_large_tensor_says_how_many_values_it_counts():
    [stats] = measured(normal(100, 1000))
    assert stats.extra["histSample"] == sum(stats.hist)
    assert sum(stats.hist) >= HISTOGRAM_VALUES


def test_a_histogram_of_a_small_tensor_counts_every_value():
    [stats] = measured(normal(3 * HISTOGRAM_VALUES - 1))
    assert sum(stats.hist) == 3 * HISTOGRAM_VALUES - 1
    assert stats.extra == {}


def test_more_tensors_of_one_shape_than_rows_are_all_measured():
    tensors = [torch.full((4,), float(index)) for index in range(600)]
    assert [stats.mean for stats in measured(*tensors)] == [float(index) for index in range(600)]


def test_what_is_measured_is_the_moment_of_the_call():
    meter, parcel, tensor = Meter(), Parcel(), torch.tensor([-1.0, 3.0])
    reading = meter.add(tensor, parcel)
    tensor.relu_()
    meter.flush(parcel)
    parcel.seal()
    parcel.open()
    assert reading.stats().mean == 1.0


def test_saturation_is_counted_in_small_and_large_tensors():
    small, large = torch.tensor([0.995, 0.0]), torch.tensor([0.995, 0.0]).repeat(100_000)
    assert [stats.satFrac for stats in measured(small, large, sat="tanh")] == [0.5, 0.5]


@pytest.mark.parametrize("shape", [(16, 8), (4, 5, 8), (2, 8, 5, 5), (9,), (0, 3), (3000, 40)], ids=str)
def test_dead_units_are_counted_together_as_they_are_alone(shape):
    meter, parcel = Meter(), Parcel()
    tensors = [torch.relu(normal(*shape) - 1.5 - index) for index in range(3)]
    readings = []
    for tensor in tensors:
        readings.append(meter.add(tensor, parcel))
        meter.count_dead(readings[-1], tensor, parcel)
    plain = meter.add(tensors[0], parcel)
    meter.flush(parcel)
    parcel.seal()
    parcel.open()
    alone = [dead_share(tensor) for tensor in tensors]
    expected = [None if share is None else pytest.approx(share.item()) for share in alone]
    assert [reading.dead for reading in readings] == expected
    assert plain.dead is None


def test_hist_false_counts_nothing():
    assert measured(normal(4), normal(200_000), hist=False)[1].hist is None


def test_a_scale_divides_what_has_the_unit_of_the_values():
    meter, parcel = Meter(), Parcel()
    reading = meter.add(torch.tensor([0.0, 8.0]), parcel)
    meter.flush(parcel)
    parcel.seal()
    parcel.open()
    stats = reading.stats(4.0)
    assert (stats.mean, stats.std, stats.absMax, stats.zeroFrac) == (1.0, 1.0, 2.0, 0.5)


def test_measuring_a_tensor_of_a_graph_builds_no_graph():
    tensor = (normal(4).requires_grad_() * 2) + 1
    meter, parcel = Meter(), Parcel()
    meter.add(tensor, parcel)
    meter.flush(parcel)
    parcel.seal()
    assert all(not group.matrix.requires_grad for group in meter._groups.values())


def test_numbers_arrive_in_the_order_in_which_they_were_put():
    parcel, seen = Parcel(), []
    parcel.put(torch.tensor([[1, 2]]), seen.extend)
    parcel.put(torch.tensor(3.5), seen.extend)
    parcel.put(torch.empty(0), lambda values: seen.append(list(values)))
    parcel.seal()
    parcel.open()
    assert seen == [1.0, 2.0, 3.5, []]


@pytest.mark.parametrize("factor", [1.0, 1e30, 1e-30, 1e-43, 0.0], ids=str)
@pytest.mark.parametrize("width", [1, 5, 8193, 100_000])
def test_a_norm_neither_overflows_nor_vanishes(factor, width):
    rows = normal(2, width) * factor
    expected = [sum(value * value for value in row) ** 0.5 for row in rows.double().tolist()]
    assert row_norms(rows).tolist() == pytest.approx(expected, rel=2e-6)
