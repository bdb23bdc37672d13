"""What each option takes away from a frame step, counted in torch's operations."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from ptoa_torch.watch import watch


class Counted(TorchDispatchMode):
    """Counts operations by name."""

    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names[func._schema.name.removeprefix("aten::")] += 1
        return func(*args, **(kwargs or {}))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.num_heads = 2
        self.qkv, self.proj = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x):
        query, key, value = (t.unflatten(-1, (2, 4)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(query, key, value)
        return self.proj(mixed.transpose(1, 2).flatten(2))


def frame_step(steps=1, **options):
    """The operations of a frame step with some options, the third of its watch."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), Attention(), nn.Linear(8, 8), nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watching = watch(model, optimizer, 1, open=False, run_file=False, **options)

    def step():
        loss = model(torch.ones(2, 3, 8)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watching.step(loss)

    try:
        step()
        step()
        with Counted() as counted:
            step()
        return counted.names, watching.frames[-1]
    finally:
        watching.close()


@pytest.fixture(scope="module")
def everything():
    return frame_step()


@pytest.mark.parametrize(
    ("options", "gone"),
    [
        ({"hist": False}, {"bincount", "floor_"}),
        ({"update_ratio": False}, {"_foreach_sub_"}),
        ({"attention": False}, {"log"}),  # of the entropy; old releases compute attention by a softmax
    ],
    ids=["hist", "update_ratio", "attention"],
)
def test_an_option_takes_its_operations_away_and_adds_none(everything, options, gone):
    full, _ = everything
    names, _ = frame_step(**options)
    assert gone <= full.keys()
    assert not gone & names.keys()
    assert not names - full


def test_blocks_that_are_not_chosen_cost_nothing(everything):
    full, _ = everything
    none, frame = frame_step(blocks=["no such block"], update_ratio=False)
    assert frame.blocks == []
    for name in ("amin", "amax", "bincount", "log"):
        assert name in full
        assert name not in none


@pytest.mark.parametrize("chosen", [["l0"], ["linear"], ["0"], ["l*"]], ids=str)
def test_blocks_are_chosen_by_id_kind_path_or_pattern(chosen):
    _, frame = frame_step(blocks=chosen)
    assert {row.id for row in frame.blocks} == ({"l0"} if chosen in (["l0"], ["0"]) else {"l0", "l1"})
    assert all(row.act is not None for row in frame.blocks)


def test_a_frame_step_on_the_cpu_reads_no_number_by_a_call(everything):
    full, _ = everything
    assert "_local_scalar_dense" not in full


def chain(depth, *, watched):
    """How many operations a frame step of a chain of linear layers and activations has."""
    torch.manual_seed(0)
    layers = [layer for _ in range(depth) for layer in (nn.Linear(8, 8), nn.ReLU())]
    for layer in layers[::2]:
        nn.init.eye_(layer.weight)  # what comes in at one end comes out at the other
        nn.init.zeros_(layer.bias)
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=True)
    watching = watch(model, optimizer, 1, open=False, run_file=False) if watched else None

    def step():
        loss = model(torch.ones(4, 8)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if watching is not None:
            watching.step(loss)

    try:
        step()
        step()
        with Counted() as counted:
            step()
        return counted.names.total()
    finally:
        if watching is not None:
            watching.close()


@pytest.mark.skipif(not hasattr(torch, "_foreach_copy_"), reason="this torch copies parameters one by one")
def test_one_more_block_costs_no_more_than_a_copy_of_its_output_and_one_of_its_gradient():
    few, many = (chain(depth, watched=True) - chain(depth, watched=False) for depth in (20, 60))
    rows = 2 * (60 - 20)
    assert many - few <= 2 * rows + 20  # and now and then a buffer is full
