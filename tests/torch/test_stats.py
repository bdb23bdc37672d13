"""`tensor_stats` against plain Python arithmetic in float64."""

from __future__ import annotations

import math

import pytest
import torch

from ptoa_torch.stats import Moments, exact_rows, flat_view, histogram_rows, tensor_stats

BINS = 32


def reference(values: list[float]) -> dict[str, object]:
    """The statistics by sums that round once, and bins by comparing with each edge."""
    finite = [value for value in values if math.isfinite(value)]
    largest = max(map(abs, finite))
    mean = math.fsum(finite) / len(finite)
    scale = largest or 1.0
    spread = math.fsum(((value - mean) / scale) ** 2 for value in finite) / len(finite)
    hist = [0] * BINS
    for value in finite:
        hist[min(BINS - 1, math.floor(value / scale * BINS / 2) + BINS // 2)] += 1
    return {
        "mean": mean,
        "std": math.sqrt(spread) * scale,
        "absMax": largest,
        "zeroFrac": sum(value == 0 for value in values) / len(values),
        "nan": sum(map(math.isnan, values)),
        "inf": sum(map(math.isinf, values)),
        "hist": hist,
    }


def seeded(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


KINDS = {
    "random": seeded(5000).float(),
    "float64": seeded(5000),
    "constant": torch.full((300,), 0.1),
    "one-element": torch.tensor([-2.5]),
    "scalar": torch.tensor(3.0),
    "zeros": torch.zeros(7),
    "huge": (seeded(500) * 1e37).float(),
    "huge-float64": seeded(500) * 1e300,
    "range": torch.tensor([1e-30, 1e30, -1.0, 0.0]),
    "denormal": (seeded(500) * 1e-41).float(),
    "large-mean": (seeded(5000) + 1e4).float(),
    "half": seeded(2000).half(),
    "bfloat16": seeded(2000).bfloat16(),
    "int64": torch.arange(-50, 70),
    "int8": torch.arange(-128, 128, dtype=torch.int8),
    "uint8": torch.arange(256).to(torch.uint8),
    "bool": torch.tensor([True, False, True, True]),
    "nan-and-inf": torch.tensor([float("nan"), 1.0, float("inf"), -float("inf"), 0.0, -3.0]),
    "two-dims": seeded(30, 40).float(),
    "transposed": seeded(30, 40).float().T,
    "gaps": seeded(60, 40).float()[::3, ::2],
    "expanded": torch.tensor([[1.0], [2.0]]).expand(2, 50),
    "channels-last": seeded(2, 3, 4, 5).float().to(memory_format=torch.channels_last),
    "needs-grad": seeded(10).float().requires_grad_(),
}


@pytest.mark.parametrize("tensor", KINDS.values(), ids=KINDS.keys())
def test_every_statistic_equals_float64_arithmetic(tensor):
    expected = reference([float(value) for value in tensor.detach().reshape(-1).tolist()])
    stats = tensor_stats(tensor)
    assert stats.mean == pytest.approx(expected["mean"], rel=1e-12, abs=1e-12 * expected["absMax"])
    assert stats.std == pytest.approx(expected["std"], rel=1e-12, abs=1e-14 * expected["absMax"])
    assert stats.absMax == expected["absMax"]
    assert stats.zeroFrac == expected["zeroFrac"]
    assert (stats.nanCount, stats.infCount) == (expected["nan"], expected["inf"])
    assert stats.hist == expected["hist"]


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_float8_is_measured_by_its_values(name):
    if not hasattr(torch, name):
        pytest.skip("this torch has no such type")
    tensor = torch.tensor([0.0, 0.5, -2.0, 1.0]).to(getattr(torch, name))
    stats = tensor_stats(tensor)
    assert (stats.mean, stats.absMax, stats.zeroFrac) == (-0.125, 2.0, 0.25)


def test_complex_values_count_as_their_real_and_imaginary_parts():
    stats = tensor_stats(torch.tensor([3 + 4j, 0j]))
    assert (stats.mean, stats.absMax, stats.zeroFrac) == (1.75, 4.0, 0.5)
    assert sum(stats.hist) == 4


def test_values_that_a_sparse_tensor_does_not_store_are_zeros():
    sparse = torch.sparse_coo_tensor(
        torch.tensor([[0, 0, 2]]), torch.tensor([1.0, 2.0, -1.0]), (4,), check_invariants=True
    )
    stats = tensor_stats(sparse)
    assert (stats.mean, stats.absMax, stats.zeroFrac) == (0.5, 3.0, 0.5)


def test_an_empty_tensor_has_no_statistics_and_no_histogram():
    stats = tensor_stats(torch.empty(0, 3))
    assert (stats.mean, stats.std, stats.absMax, stats.zeroFrac, stats.hist) == (None,) * 5
    assert (stats.nanCount, stats.infCount) == (0, 0)


def test_a_tensor_of_nan_has_counts_only():
    stats = tensor_stats(torch.full((3,), float("nan")))
    assert (stats.mean, stats.std, stats.absMax, stats.hist) == (None,) * 4
    assert (stats.zeroFrac, stats.nanCount) == (0.0, 3)


def test_a_tensor_of_several_pieces_is_measured_as_one():
    tensor = torch.cat([torch.full((300_000,), 1e4), torch.full((300_000,), 1e4 + 1)])
    stats = tensor_stats(tensor)
    assert (stats.mean, stats.std) == (10000.5, pytest.approx(0.5, rel=1e-10))
    assert sum(stats.hist) == 600_000


def test_hist_false_leaves_the_histogram_out():
    assert tensor_stats(torch.ones(3), hist=False).hist is None


@pytest.mark.parametrize(
    ("sat", "values", "share"),
    [
        ("tanh", [0.995, -0.995, 0.98, 0.0], 0.5),
        ("sigmoid", [0.005, 0.995, 0.5, 0.02], 0.5),
        (None, [0.999], None),
    ],
    ids=["tanh", "sigmoid", "none"],
)
def test_the_saturated_share_is_counted_over_all_values(sat, values, share):
    assert tensor_stats(torch.tensor(values), sat=sat).satFrac == share


@pytest.mark.parametrize("wrong", [[1.0, 2.0], None, "tensor", torch.empty(3, device="meta")], ids=repr)
def test_what_holds_no_values_is_refused(wrong):
    with pytest.raises(TypeError, match="takes a tensor that holds values"):
        tensor_stats(wrong)


def test_an_unknown_saturation_is_refused():
    with pytest.raises(ValueError, match="'relu'"):
        tensor_stats(torch.ones(1), sat="relu")


def test_measuring_changes_neither_the_tensor_nor_the_random_state():
    tensor = torch.randn(100, requires_grad=True)
    before, version, state = tensor.detach().clone(), tensor._version, torch.get_rng_state()
    tensor_stats(tensor)
    assert torch.equal(tensor, before)
    assert tensor._version == version
    assert tensor.grad_fn is None
    assert torch.equal(torch.get_rng_state(), state)


def test_merging_moments_equals_measuring_at_once():
    values = seeded(1000) * 3 + 7
    whole = Moments.read(1000, exact_rows(values.view(1, -1))[0].tolist())
    parts = [Moments.read(len(part), exact_rows(part.view(1, -1))[0].tolist()) for part in values.split(170)]
    assert Moments.merged(parts) == pytest.approx(whole, rel=1e-12)


def test_merging_with_nothing_changes_nothing():
    part = Moments(3, 2, 1.0, 0.5, 2.0, 2, 1, 0)
    assert Moments.merged([Moments(), part]) == part


@pytest.mark.parametrize("value", [-1.0, -0.5, -1e-30, 0.0, 1e-30, 0.5, 1.0])
def test_a_bin_holds_its_lower_end(value):
    counts = histogram_rows(torch.tensor([[value]], dtype=torch.float64), torch.ones(1, dtype=torch.float64))
    assert counts.argmax().item() == min(31, math.floor(value * 16) + 16)


def test_values_without_gaps_are_looked_at_in_place():
    tensor = torch.randn(3, 4, 5).permute(2, 0, 1)
    assert flat_view(tensor).data_ptr() == tensor.data_ptr()
    assert flat_view(tensor[::2]).numel() == tensor[::2].numel()
