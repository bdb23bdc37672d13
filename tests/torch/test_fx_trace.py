"""Symbolic traces: modules stay whole, defaults stay defaults, nothing stays behind."""

from __future__ import annotations

import pytest
import torch
from torch import fx, nn

from ptoa_torch import from_module
from ptoa_torch.fx_trace import trace


class Stores(nn.Module):
    def __init__(self):
        super().__init__()
        self.l, self.history, self.kept = nn.Linear(4, 4), [], {"all": []}

    def forward(self, x):
        h = self.l(x)
        self.history.append(h)
        self.kept["all"].append(h)
        self.last = h
        return h


def test_no_proxy_is_left_on_the_model():
    """Lists, dicts and attributes are as before."""
    net = Stores()
    graph = trace(net)
    assert [op.call.path for op in graph.ops] == ["l"]
    assert (net.history, net.kept, hasattr(net, "last")) == ([], {"all": []}, False)
    assert not any(isinstance(v, fx.Proxy) for v in vars(net).values())


def test_the_state_comes_back_after_a_trace_that_failed():
    """A branch on a value raises inside torch.fx."""

    class Fails(Stores):
        def forward(self, x):
            super().forward(x)
            return x if x.sum() > 0 else -x

    net = Fails()
    with pytest.raises(Exception, match="control flow"):
        trace(net)
    assert net.history == []
    assert all(module.training for module in net.modules())


def test_an_argument_that_nobody_gave_keeps_its_default():
    """A traced default would never be None."""

    class Optional(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x, mask=None):
            return self.a(x) if mask is None else self.b(x * mask)

    assert [b.label for b in from_module(Optional()).blocks if b.kind != "group"] == ["x", "a"]


def test_a_traced_residual_has_its_edges():
    """As it would have with an example input."""

    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(4), nn.Linear(4, 8), nn.Linear(8, 4)

        def forward(self, x):
            return x + self.down(torch.relu(self.up(self.norm(x))))

    spec = from_module(Residual(), strategy="fx")
    assert [(b.kind, b.inputs) for b in spec.blocks] == [
        ("input", []), ("norm", ["i0"]), ("mlp", ["n0"]), ("add", ["i0", "m0"]),
    ]  # fmt: skip


def test_a_subclass_of_a_layer_stays_one_block():
    """torch.fx alone would trace into it."""

    class MyLinear(nn.Linear):
        pass

    assert [b.kind for b in from_module(nn.Sequential(MyLinear(4, 2))).blocks] == ["input", "linear"]
