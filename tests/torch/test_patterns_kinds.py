"""More small models, one a kind of thing that people write, with their right edges written down by hand.

A block is written ``kind label < inputs``; containers are left out. The registry and its checks are
those of the first list of patterns.
"""

from __future__ import annotations

import typing

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from ptoa_torch import Inputs, from_module

KINDS = {}


def kind(*rows, args=None, kwargs=None):
    """Register a model class with the rows of its right picture."""

    def register(build):
        KINDS[build.__name__] = (build, rows, args, kwargs or {})
        return build

    return register


def _x():
    return torch.linspace(-1, 1, 16).reshape(2, 8)


def _ids():
    return torch.arange(10).reshape(2, 5)


def picture(spec):
    """The blocks of a spec as rows, containers left out."""
    outer = {block.group for block in spec.blocks}
    return [
        f"{block.id} {block.label} < {' '.join(block.inputs)}".strip()
        for block in spec.blocks
        if block.id not in outer
    ]


class _Tower(nn.Module):
    def __init__(self, gate):
        super().__init__()
        self.fc, self.gate, self.tail = nn.Linear(8, 8), gate, nn.Linear(8, 8)

    def forward(self, x):
        return self.gate(self.tail(self.gate(self.fc(x))))


@kind(
    "i0 x <",
    "l0 left.fc < i0",
    "g2 PReLU < l0",
    "l1 left.tail < g2",
    "g3 PReLU < l1",
    "l2 right.fc < i0",
    "g4 PReLU < l2",
    "l3 right.tail < g4",
    "g5 PReLU < l3",
    "r0 residual add < g3 g5",
)
class one_activation_in_two_towers(nn.Module):
    def __init__(self):
        super().__init__()
        gate = nn.PReLU()
        self.left, self.right = _Tower(gate), _Tower(gate)

    def forward(self, x):
        return self.left(x) + self.right(x)


@kind("t0 index <", "e0 e < t0", "l0 l < e0", "u0 h < l0", args=(_ids(),))
class tied_weights(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.l, self.h = nn.Embedding(20, 8), nn.Linear(8, 8), nn.Linear(8, 20, bias=False)
        self.h.weight = self.e.weight

    def forward(self, index):
        return self.h(self.l(self.e(index)))


@kind(
    "i0 items.0.a <",
    "i1 items.1.a <",
    "l0 l < i0",
    "l1 l < i1",
    "r0 residual add < l0 l1",
    args=([{"a": _x()}, {"a": _x() + 1}],),
)
class list_of_dicts(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(8, 4)

    def forward(self, items):
        return self.l(items[0]["a"]) + self.l(items[1]["a"])


class _Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(8, 8)

    def forward(self, *, hidden, scale=1.0):
        return self.l(hidden) * scale


@kind("i0 x <", "l0 a.l < i0", "l1 b < l0")
class submodule_called_with_keywords_alone(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = _Named(), nn.Linear(8, 4)

    def forward(self, x):
        return self.b(self.a(hidden=x, scale=2.0))


@kind(
    "i0 x <",
    "g0 LSTM < i0",
    "l0 out < g0",
    "l1 out < g0",
    "r0 residual add < l0 l1",
    args=(torch.ones(2, 5, 8),),
)
class recurrent_layer_with_its_state(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.LSTM(8, 6, batch_first=True), nn.Linear(6, 2)

    def forward(self, x):
        y, (h, _) = self.rnn(x)
        return self.out(y[:, -1]) + self.out(h[-1])


@kind("i0 x <", "g0 GRUCell < i0", "g1 GRUCell < i0 g0", "g2 GRUCell < i0 g1", args=(torch.ones(2, 3, 8),))
class recurrent_cell_in_a_loop(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(8, 6)

    def forward(self, x):
        h = torch.zeros(x.shape[0], 6)
        for step in range(x.shape[1]):
            h = self.cell(x[:, step], h)
        return h


@kind("i0 x <", "l0 a < i0", "f0 relu < l0", "l1 b < f0")
class branch_on_a_shape(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        if x.shape[0] > 1:
            x = torch.relu(self.a(x))
        return self.b(x)


@kind(
    "t0 index <", "i0 targets <", "e0 e < t0", "u0 h < e0", "x0 cross_entropy < u0 i0", args=(_ids(), _ids())
)
class language_model_with_a_loss(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.h = nn.Embedding(10, 8), nn.Linear(8, 10)

    def forward(self, index, targets=None):
        logits = self.h(self.e(index))
        loss = None if targets is None else F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        return logits, loss


class _Pair(typing.NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


@kind("i0 x <", "l0 a < i0", "l1 b < l0")
class named_tuple_output(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 4), nn.Linear(4, 2)

    def forward(self, x):
        y = self.a(x)
        return _Pair(self.b(y), y)


@kind("i0 x <", "l0 l < i0", "r0 residual add < l0 i0")
class what_is_given_is_given_back(nn.Module):
    def __init__(self):
        super().__init__()
        self.same, self.l = nn.Identity(), nn.Linear(8, 8)

    def forward(self, x):
        return self.l(self.same(x)) + self.same(x)


@kind("i0 x <", "l0 a < i0", "l1 b < l0", "l2 c < l0", "g0 mul < l2 l0", "r0 residual add < l1 g0")
class one_output_in_many_places(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        y = self.a(x)
        return self.b(y) + self.c(y) * y


@kind("i0 x <", "l0 body.0 < i0", "n0 body.1 < l0", args=(_x().bfloat16(),))
class bfloat16_on_the_cpu(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)).bfloat16()

    def forward(self, x):
        return self.body(x)


@kind("i0 x <", "l0 a < i0", "l1 b < l0")
class spectral_norm_on_a_layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))
        self.b = nn.Linear(8, 2)

    def forward(self, x):
        return self.b(self.a(x))


@kind("i0 x <", "l0 a < i0", "l1 b < i0", "r0 residual add < l0 l1", "l2 c < r0")
class hook_that_changes_the_output(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)
        self.a.register_forward_hook(lambda module, args, output: output + self.b(args[0]))

    def forward(self, x):
        return self.c(self.a(x))


@kind("i0 x <", "n0 n < i0", "a0 a < n0", "r0 residual add < i0 a0", args=(torch.ones(2, 5, 8),))
class attention_without_its_weights(nn.Module):
    def __init__(self):
        super().__init__()
        self.n, self.a = nn.LayerNorm(8), nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        y = self.n(x)
        return x + self.a(y, y, y, need_weights=False)[0]


@kind("i0 x <", "l0 a.0 < i0", "f0 a.1 < l0", "l1 b < f0")
class checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 4)

    def forward(self, x):
        return self.b(checkpoint(self.a, x, use_reentrant=False))


@kind("i0 x <", "l0 a < i0")
class state_that_counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.seen = nn.Linear(8, 8), 0
        self.register_buffer("total", torch.zeros(8))

    def forward(self, x):
        self.seen += 1
        y = self.a(x)
        self.total += y.detach().sum(0)
        return y


class _Called(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(8, 8)

    def __call__(self, x, extra):
        return super().__call__(x + extra)

    def forward(self, x):
        return self.l(x)


@kind("i0 x <", "i1 y <", "r0 residual add < i0 i1", "l0 c.l < r0", args=(_x(), _x() + 1))
class call_with_a_signature_of_its_own(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = _Called()

    def forward(self, x, y):
        return self.c(x, y)


@kind("i0 x <", "l0 a < i0", "l1 b < l0", "r0 residual add < l1 l0")
class activation_kept_on_the_module(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        self.kept = self.a(x)
        return self.b(self.kept) + self.kept


class _Scaled(nn.Linear):
    def forward(self, x):
        return super().forward(x) * 2


@kind("i0 x <", "l0 a < i0", "l1 b < l0")
class subclass_of_a_layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = _Scaled(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.b(self.a(x))


@kind(
    "i0 x <",
    "a0 e.self_attn < i0",
    "r0 residual add < i0 a0",
    "n0 e.norm1 < r0",
    "m0 e mlp < n0",
    "r1 residual add < n0 m0",
    "n1 e.norm2 < r1",
    args=(torch.ones(2, 5, 8),),
)
class encoder_layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, x):
        return self.e(x)


@kind(
    "i0 x <",
    "g0 Conv2d < i0",
    "g1 ConvTranspose2d < g0",
    "g2 cat < i0 g1",
    "g3 Conv2d < g2",
    args=(torch.ones(2, 3, 8, 8),),
)
class skip_by_concatenation(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.up, self.out = (
            nn.Conv2d(3, 4, 3, 2, 1),
            nn.ConvTranspose2d(4, 3, 2, 2),
            nn.Conv2d(6, 1, 1),
        )

    def forward(self, x):
        return self.out(torch.cat([x, self.up(self.down(x))], 1))


def _read(name):
    build, rows, args, kwargs = KINDS[name]
    return build(), rows, Inputs(args if args is not None else (_x(),), kwargs)


@pytest.mark.parametrize("name", KINDS)
def test_right_edges(name):
    """What is drawn is what ran, no more and no less."""
    model, rows, inputs = _read(name)
    assert picture(from_module(model, inputs)) == list(rows)


@pytest.mark.parametrize("name", KINDS)
def test_every_parameter_is_counted_once(name):
    """The counts of all blocks add up to the model's."""
    model, _, inputs = _read(name)
    counts = [block.params.extra.get("paramCount", 0) for block in from_module(model, inputs).blocks]
    assert sum(counts) == sum(parameter.numel() for parameter in model.parameters())


def test_one_activation_in_two_towers_is_one_module_that_runs_four_times():
    """Its parameter is counted where it ran first."""
    model, _, inputs = _read("one_activation_in_two_towers")
    marks = [
        b.params.extra for b in from_module(model, inputs).blocks if b.params.extra.get("type") == "PReLU"
    ]
    assert [m["calls"] for m in marks] == [4] * 4
    assert [m["paramCount"] for m in marks] == [1, 0, 0, 0]
    assert [m.get("sharedWith") for m in marks] == [None, "g2", "g2", "g2"]


def test_a_tied_weight_is_no_repeated_call():
    """The output layer says the embedding it is tied to, and nothing of calls."""
    model, _, inputs = _read("tied_weights")
    head = next(b for b in from_module(model, inputs).blocks if b.kind == "unembed")
    assert (head.params.tiedTo, head.params.extra["paramCount"]) == ("e0", 0)
    assert not {"calls", "sharedWith", "repeatOf"} & set(head.params.extra)
