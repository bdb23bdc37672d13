"""The one graph: nested containers are entered, values are moments of a tensor."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import pytest
import torch
from torch import nn

from ptoa_torch._compat import base_of
from ptoa_torch.functions import function_name, written_by
from ptoa_torch.graph import GraphBuilder, flatten


@dataclasses.dataclass
class _Out:
    logits: object
    loss: object = None


class _Data:
    def __init__(self, x):
        self.x = x
        self.me = self


class _Pair(NamedTuple):
    a: object
    b: object


@pytest.mark.parametrize(
    ("wrap", "places"),
    [
        pytest.param(lambda t: t, [""], id="bare"),
        pytest.param(lambda t: (t, [t, None]), ["0", "1.0"], id="tuple-list-none"),
        pytest.param(lambda t: {"k": {"e": t}}, ["k.e"], id="nested-dict"),
        pytest.param(lambda t: _Pair(t, "text"), ["0"], id="namedtuple-and-string"),
        pytest.param(_Out, ["logits"], id="dataclass"),
        pytest.param(_Data, ["x"], id="object-that-holds-itself"),
        pytest.param(lambda t: (t for _ in range(1)), [], id="generator-is-not-consumed"),
        pytest.param(lambda t: nn.Linear(1, 1), [], id="module"),
        pytest.param(lambda t: 3, [], id="number"),
        pytest.param(type, [], id="class"),
    ],
)
def test_flatten_finds_every_tensor_with_its_place(wrap, places):
    """Containers are entered, everything else is left alone."""
    tensor = torch.ones(1)
    found = list(flatten(wrap(tensor)))
    assert [place for place, _ in found] == places
    assert all(part is tensor for _, part in found)


def test_flatten_ends_on_a_list_that_holds_itself():
    """A circle is walked once."""
    ring = [torch.ones(1)]
    ring.append(ring)
    assert len(list(flatten(ring))) == 1


def test_flatten_does_not_consume_a_generator():
    """A generator among the outputs still has everything to give."""
    stream = iter([torch.ones(1)])
    assert list(flatten({"stream": stream})) == []
    assert next(stream) is not None


@pytest.mark.parametrize(
    ("func", "name", "writes"),
    [
        pytest.param(torch.add, "add", False, id="add"),
        pytest.param(torch.Tensor.__iadd__, "add", True, id="iadd"),
        pytest.param(torch.Tensor.add_, "add", True, id="add_"),
        pytest.param(torch.Tensor.__setitem__, "setitem", True, id="setitem"),
        pytest.param(torch.Tensor.__getitem__, "getitem", False, id="getitem"),
        pytest.param(torch.Tensor.__invert__, "invert", False, id="invert-begins-like-in-place"),
        pytest.param(torch.relu_, "relu", True, id="relu_"),
        pytest.param(torch.Tensor.shape.__get__, "shape", False, id="property"),
        pytest.param(torch.concat, "cat", False, id="alias"),
    ],
)
def test_functions_have_one_name_and_say_whether_they_write(func, name, writes):
    """Every spelling of a function is one row of the tables."""
    assert function_name(func) == name
    given = torch.ones(1)
    assert any(item is given for item in written_by(func)((given,), {})) is writes


def test_a_written_tensor_is_a_new_value_and_views_of_it_follow():
    """Reading a tensor after a write through a view depends on the write."""
    builder = GraphBuilder(nn.Identity(), "run")
    base, view = torch.zeros(4), torch.zeros(2)
    before = builder.add_input(base, "x")
    write = builder.op("copy", (view,), {})
    builder.finish(write, [], [(view, 7)])
    assert builder.value_of(base, storage=7).op is write
    assert builder.value_of(base, storage=8) is before


def test_metadata_arguments_make_no_edge():
    """A tensor of which only shape or dtype is read is no input."""
    builder = GraphBuilder(nn.Identity(), "run")
    a, b = torch.ones(1), torch.ones(1)
    assert [slot for slot, _ in builder.op("type_as", (a, b), {}).inputs] == [0]
    assert builder.op("zeros_like", (a,), {}).inputs == []


def test_a_view_that_was_not_seen_made_is_still_one_of_its_tensor():
    """Torch before 2.1 indexes without telling; the view's base tells, also where that was a view itself."""
    whole = torch.ones(4, 4)
    given = whole.flatten()
    builder = GraphBuilder(nn.Identity(), "run", base_of=base_of)
    value = builder.add_input(given, "x")
    op = builder.op("relu", (given[:2],), {})
    builder.finish(op, [torch.ones(2)])
    assert [made.name for made in builder.graph.ops] == ["getitem", "relu"]
    assert builder.graph.ops[0].inputs == [(0, value)]
    assert op.inputs[0][1].op is builder.graph.ops[0]
