"""Norms of parameters, gradients and updates against plain arithmetic."""

from __future__ import annotations

import math
from unittest import mock

import pytest
import torch

from ptoa_torch import parameters as parameters_module
from ptoa_torch.meter import Parcel
from ptoa_torch.parameters import Norms, ParameterNorms, Shelf, root_sum_square


def norm(tensor: torch.Tensor) -> float:
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    values = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return math.sqrt(math.fsum(value * value for value in values.double().flatten().tolist()))


def wide_norm(tensor: torch.Tensor) -> float:
    return math.hypot(*tensor.double().flatten().tolist())


def parameters():
    generator = torch.Generator().manual_seed(0)
    shapes = [(3, 4), (4,), (3, 4), (), (300, 400), (300, 400), (0,)]
    made = [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]
    made.append(torch.nn.Parameter(torch.randn(5, generator=generator).half() * 1000))
    made.append(torch.nn.Parameter(torch.randn(5, dtype=torch.float64, generator=generator) * 1e200))
    made.append(torch.nn.Parameter(torch.randn(4, dtype=torch.complex64, generator=generator)))
    return made


def opened(parcel):
    parcel.seal()
    parcel.open()


def approx(values):
    return {place: pytest.approx(norm(value), rel=1e-6) for place, value in enumerate(values)}


@pytest.mark.parametrize("how", ["keep_weights", "measure_weights"])
def test_weight_norms_are_those_of_each_parameter(how):
    made, meter, norms, parcel = parameters(), ParameterNorms(), Norms(), Parcel()
    getattr(meter, how)(made, norms, parcel)
    opened(parcel)
    assert norms.weight == approx(parameter.detach() for parameter in made)


def test_an_update_is_measured_against_the_kept_weights():
    made, meter = parameters(), ParameterNorms()
    for _ in range(2):
        norms, parcel = Norms(), Parcel()
        meter.keep_weights(made, norms, parcel)
        before = [parameter.detach().clone() for parameter in made]
        with torch.no_grad():
            for parameter in made:
                parameter.mul_(1.25)
        meter.measure_update(made, norms, parcel)
        opened(parcel)
        moved = [parameter.detach() - old for parameter, old in zip(made, before, strict=True)]
        assert norms.update == {
            place: pytest.approx(norm(item), rel=1e-4) for place, item in enumerate(moved)
        }


def test_a_parameter_without_a_gradient_is_absent():
    made, norms, parcel = parameters(), Norms(), Parcel()
    for place in (0, 4):
        made[place].grad = torch.full_like(made[place], 0.5)
    ParameterNorms().measure_grads(made, norms, parcel)
    opened(parcel)
    assert norms.grad == {0: pytest.approx(math.sqrt(12) / 2), 4: pytest.approx(math.sqrt(120_000) / 2)}


def test_a_sparse_gradient_is_summed_before_its_norm_is_taken():
    table = torch.nn.Parameter(torch.zeros(5, 2))
    index = torch.tensor([[1, 1, 3]])
    table.grad = torch.sparse_coo_tensor(index, torch.ones(3, 2), (5, 2), check_invariants=True)
    norms, parcel = Norms(), Parcel()
    ParameterNorms().measure_grads([table], norms, parcel)
    opened(parcel)
    assert norms.grad[0] == pytest.approx(math.sqrt(2 * 2**2 + 2 * 1**2))


def test_replaced_parameters_are_measured_anew():
    meter = ParameterNorms()
    meter.keep_weights([torch.nn.Parameter(torch.ones(3))], Norms(), Parcel())
    other, norms, parcel = [torch.nn.Parameter(torch.full((5,), 2.0))], Norms(), Parcel()
    meter.measure_update(other, norms, parcel)
    meter.keep_weights(other, norms, parcel)
    opened(parcel)
    assert norms.update == {}
    assert norms.weight[0] == pytest.approx(math.sqrt(20))


def test_parameters_that_take_the_place_of_freed_ones_are_not_taken_for_them():
    """A freed parameter's address is given to the next one, sooner or later."""
    meter = ParameterNorms()
    for size in range(1, 200):
        norms, parcel = Norms(), Parcel()
        meter.measure_update([torch.nn.Parameter(torch.ones(size))], norms, parcel)
        meter.keep_weights([torch.nn.Parameter(torch.ones(size))], norms, parcel)
        opened(parcel)
        assert norms.update == {}


def test_an_empty_list_is_measured():
    parcel, norms = Parcel(), Norms()
    meter = ParameterNorms()
    meter.keep_weights([], norms, parcel)
    meter.measure_update([], norms, parcel)
    meter.measure_grads([], norms, parcel)
    opened(parcel)
    assert norms == Norms()


def test_a_shelf_measures_what_it_is_given_and_what_is_subtracted():
    generator = torch.Generator().manual_seed(1)
    shapes = [(2, 3), (3,), (700, 900), (1,), (255,), (256,), (257,), (0,)]
    first, second = ([torch.randn(shape, generator=generator) for shape in shapes] for _ in range(2))
    shelf, parcel, found = Shelf(first), Parcel(), [{}, {}]
    shelf.load(first, parcel, found[0].update)
    shelf.subtract(second, parcel, found[1].update)
    opened(parcel)
    assert found[0] == approx(first)
    assert found[1] == approx([one - other for one, other in zip(first, second, strict=True)])


@pytest.mark.parametrize("factor", [1e30, 1e-30, 1e-43], ids=str)
def test_a_shelf_neither_overflows_nor_lets_vanish(factor):
    made, found, parcel = [torch.ones(400_000) * factor, torch.zeros(3), torch.ones(7)], {}, Parcel()
    Shelf(made).load(made, parcel, found.update)
    opened(parcel)
    assert found == approx(made)


def test_many_norms_out_of_range_are_taken_together():
    made = [torch.ones(5) * 10.0 ** -(20 + place) for place in range(20)]
    made += [torch.zeros(3), torch.full((4,), 1e38), torch.full((4,), 1e150, dtype=torch.float64)]
    shelf, found = Shelf(made), {}
    with mock.patch.object(parameters_module, "row_norms", wraps=parameters_module.row_norms) as one_by_one:
        shelf.load(made, Parcel(), found.update)
    assert found == {place: pytest.approx(wide_norm(value), rel=1e-6) for place, value in enumerate(made)}
    assert one_by_one.call_count == 0


@pytest.mark.parametrize("other", [(3, 2), (6,), (2, 4), (2, 3, 1)], ids=str)
def test_a_shelf_does_not_take_tensors_of_other_shapes(other):
    shelf, found = Shelf([torch.ones(2, 3), torch.ones(3)]), {}
    given = [torch.ones(other), torch.ones(3)]
    assert not shelf.fits(given)
    shelf.subtract(given, Parcel(), found.update)
    assert found == {}


def test_several_tensors_have_one_norm():
    assert root_sum_square([]) == 0.0
    assert root_sum_square([3e200, 4e200]) == pytest.approx(5e200)
    assert math.isnan(root_sum_square([math.nan, 1.0]))
