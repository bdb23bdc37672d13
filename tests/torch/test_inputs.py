"""Example inputs become arguments in one place."""

from __future__ import annotations

from collections import OrderedDict, UserDict

import pytest
import torch
from torch import nn

from ptoa_torch.hook_trace import input_names
from ptoa_torch.inputs import Inputs, as_inputs

x = torch.ones(1, 2)


@pytest.mark.parametrize(
    ("example", "args", "kwargs"),
    [
        pytest.param(x, (x,), {}, id="tensor"),
        pytest.param((x, 3), (x, 3), {}, id="tuple-is-positional"),
        pytest.param({"ids": x}, (), {"ids": x}, id="dict-is-keywords"),
        pytest.param(OrderedDict(ids=x), (), {"ids": x}, id="mapping"),
        pytest.param(UserDict(ids=x), (), {"ids": x}, id="batch-encoding-like"),
        pytest.param([x], ([x],), {}, id="list-is-one-argument"),
        pytest.param("text", ("text",), {}, id="anything-else-is-one-argument"),
        pytest.param(Inputs((x,), {"mask": None}), (x,), {"mask": None}, id="inputs"),
    ],
)
def test_each_form_of_example_input_is_read_as_arguments(example, args, kwargs):
    """The forms that version 0.1.0 took, and those around them."""
    got = as_inputs(example)
    assert got.args == args
    assert got.kwargs == kwargs


def test_as_inputs_copies_the_containers_of_the_caller():
    """What a model pops from its keyword arguments is not popped from the caller's dict."""
    given = Inputs((), {"a": 1})
    as_inputs(given).kwargs.clear()
    assert given.kwargs == {"a": 1}


def test_inputs_are_named_after_the_parameters_of_forward():
    """Nested tensors carry their place after the parameter's name."""

    class Net(nn.Module):
        def forward(self, ids, *rest, batch=None, **more):
            return ids

    found = input_names(Net(), Inputs((x, x, [x]), {"batch": {"img": [x, None]}, "other": x}))
    assert [name for name, _ in found] == ["ids", "rest.0", "rest.1.0", "batch.img.0", "other"]
