"""What blocks say beside kind and edges: parameters counted once, reuse, repetition, and what is unused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ptoa_torch import from_module

X = torch.ones(2, 8)


class Layer(nn.Module):
    def __init__(self, hidden=16):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, hidden), nn.Linear(hidden, 8)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Stack(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def marks(model):
    """For each container its label, and what it says of repetition."""
    blocks = from_module(model, X).blocks
    labels = {b.id: (b.label or "").partition(" ")[0] for b in blocks}
    said = {}
    for block in blocks:
        extra = block.params.extra
        if block.kind == "group" and not block.inputs:
            said[labels[block.id]] = extra.get("repeats") or labels.get(extra.get("repeatOf", ""))
    return said


SHARED = Layer()


@pytest.mark.parametrize(
    ("layers", "want"),
    [
        pytest.param([Layer(), Layer(), Layer()], [3, "layers.0", "layers.0"], id="equal"),
        pytest.param([Layer(), Layer(24), Layer()], [None, None, None], id="one-is-wider"),
        pytest.param([Layer(24), Layer(), Layer()], [None, 2, "layers.1"], id="the-last-two"),
        pytest.param([Layer()], [None], id="alone"),
        pytest.param([Layer(), nn.ReLU(), Layer()], [None, None], id="not-in-a-row"),
    ],
)
def test_equal_layers_in_a_row_are_marked(layers, want):
    """The first says how many, each other one names the first."""
    assert list(marks(Stack(layers)).values()) == want


def test_the_same_layer_again_is_no_repetition():
    """It is reuse: the module's calls are counted, and its parameters once."""
    model = Stack([SHARED, SHARED])
    assert set(marks(model).values()) == {None}
    feeds = [b.params.extra for b in from_module(model, X).blocks if b.kind == "mlp"]
    assert [(e["calls"], e["paramCount"], "sharedWith" in e) for e in feeds] == [
        (2, 280, False),
        (2, 0, True),
    ]


def test_a_weight_that_two_layers_share_is_no_reuse():
    """Two modules, one weight: the second names the first, and says nothing of calls."""
    first, second = nn.Linear(8, 8), nn.Linear(8, 8)
    second.weight = first.weight
    extras = [
        b.params.extra
        for b in from_module(nn.Sequential(first, nn.Tanh(), second), X).blocks
        if b.kind == "linear"
    ]
    assert [(e["paramCount"], e.get("sharedWith"), "calls" in e) for e in extras] == [
        (72, None, False),
        (8, "l0", False),
    ]


class Exit(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.spare, self.alone = Layer(), nn.Linear(8, 5), nn.Parameter(torch.ones(3))

    def forward(self, x):
        x = self.used(x)
        return self.spare(x) if x.sum() > 1e9 else x


def test_what_no_block_uses_is_counted_and_named():
    """A container stands for the model where the unused part is its own."""
    model = Exit()
    blocks = from_module(model, X).blocks
    outer = blocks[0]
    assert (outer.kind, outer.label, outer.inputs, outer.group) == ("group", "Exit", [], None)
    assert (outer.params.extra["unused"], outer.params.extra["paramCount"]) == (["alone", "spare"], 48)
    assert sum(b.params.extra.get("paramCount", 0) for b in blocks) == sum(
        p.numel() for p in model.parameters()
    )


def test_what_a_layer_does_not_use_is_named_on_the_layer():
    """On the innermost container around it."""
    model = Stack([Layer(), Layer()])
    model.layers[1].extra = nn.Linear(8, 2)
    blocks = {b.label: b.params.extra for b in from_module(model, X).blocks if b.kind == "group"}
    assert blocks["layers.1 (Layer)"]["unused"] == ["layers.1.extra"]
    assert "unused" not in blocks["layers.0 (Layer)"]


def test_a_model_that_uses_everything_has_no_container_of_its_own():
    """Nothing is added to a picture that is complete."""
    assert [b.kind for b in from_module(nn.Linear(8, 2), X).blocks] == ["input", "linear"]
