"""The first NaN or Inf is named with who made it, and no one else is blamed."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch import nn

from ptoa_core.errors import PtoaWarning
from ptoa_torch.losses import LossTrail
from ptoa_torch.meter import Parcel
from ptoa_torch.watch import watch


@pytest.fixture(autouse=True)
def no_browser(monkeypatch):
    """No test opens a page."""
    monkeypatch.setenv("PTA_NO_BROWSER", "1")


def run(model, inputs, every=1, loss_of=None, between=None):
    """Train on each input once; returns what was warned of and the frames."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with watch(model, optimizer, every, open=False, run_file=False) as watching:
            for step, x in enumerate(inputs):
                output = model(x)
                loss = loss_of(output, step) if loss_of else output.pow(2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if between is not None:
                    between(step)
                watching.step(loss)
            frames = list(watching.frames)
    return [str(warning.message) for warning in caught if issubclass(warning.category, PtoaWarning)], frames


class Chain(nn.Module):
    """Linear, something that may break, linear."""

    def __init__(self, middle):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.middle, self.last = nn.Linear(4, 4), middle, nn.Linear(4, 1)

    def forward(self, x):
        return self.last(self.middle(self.first(x)))


class Log(nn.Module):
    """Makes NaN of negative numbers; no block, so it has no row of its own."""

    def forward(self, x):
        return torch.log(x)


GOOD = torch.linspace(-1, 1, 8).reshape(2, 4)


def test_the_block_that_makes_inf_of_finite_numbers_is_the_producer():
    model = Chain(nn.Linear(4, 4))
    with torch.no_grad():
        model.middle.weight.fill_(3e38)
    said, frames = run(model, [GOOD * 100] * 3)
    assert len(said) == 1
    assert "step 0: the output of block l1 (middle) is the first to hold" in said[0]
    found = frames[0].extra["firstNonFinite"]
    assert (found["what"], found["block"], found["producer"], found["step"]) == ("activation", "l1", True, 0)
    assert not any("firstNonFinite" in frame.extra for frame in frames[1:])


def test_a_block_that_reads_what_an_unseen_function_broke_is_no_producer():
    said, frames = run(Chain(Log()), [GOOD])
    assert "before block l1 (last), in what it reads" in said[0]
    assert "producer" not in frames[0].extra["firstNonFinite"]
    assert frames[0].extra["firstNonFinite"]["what"] == "input"


def test_the_models_own_input_is_named():
    bad = GOOD.clone()
    bad[0, 0] = math.nan
    said, frames = run(Chain(nn.ReLU()), [bad])
    assert "the model's input already holds NaN" in said[0]
    assert frames[0].extra["firstNonFinite"]["what"] == "input"


def test_a_block_whose_own_weights_were_not_finite_is_no_producer():
    model = Chain(nn.ReLU())
    with torch.no_grad():
        model.last.weight[0, 0] = math.nan
    said, frames = run(model, [GOOD])
    assert "the weights of block l1 (last) held NaN already" in said[0]
    assert frames[0].extra["firstNonFinite"] == {
        "what": "weight", "kind": "nan", "step": 0, "block": "l1", "producer": False,
    }  # fmt: skip


class Masked(nn.Module):
    """Adds a mask of -inf between two blocks, and takes a softmax of it."""

    def __init__(self, everything=False):
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 1)
        self.register_buffer("mask", torch.tensor([0.0, 0.0, 0.0, -math.inf]))
        if everything:
            self.mask.fill_(-math.inf)

    def forward(self, x, given=None):
        scores = self.first(x) + (self.mask if given is None else given)
        return self.last(torch.softmax(scores, -1))


def test_minus_infinity_of_a_mask_makes_no_producer(recwarn):
    model = Masked()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, optimizer, 1, open=False, run_file=False) as watching:
        for given in (None, model.mask):
            model(GOOD, given).sum().backward()
            optimizer.step()
            watching.step()
        assert not any("firstNonFinite" in frame.extra for frame in watching.frames)
    assert [w for w in recwarn if issubclass(w.category, PtoaWarning)] == []


def test_a_softmax_of_a_row_that_is_masked_as_a_whole_is_the_producer():
    said, frames = run(Masked(everything=True), [GOOD])
    assert "is the first to hold NaN, made from finite numbers" in said[0]
    assert frames[0].extra["firstNonFinite"]["block"][0] == "s"


class Root(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad * math.inf


class BadBackward(nn.Module):
    def forward(self, x):
        return Root.apply(x)


def test_a_gradient_is_named_where_it_arrives_first():
    said, frames = run(Chain(BadBackward()), [GOOD])
    assert "the gradient arriving at block l0 (first) is the first to hold Inf" in said[0]
    assert frames[0].extra["firstNonFinite"]["what"] == "gradient"


def test_a_loss_alone_is_named():
    said, frames = run(Chain(nn.ReLU()), [GOOD], loss_of=lambda out, _: out.sum() * 0 + math.nan)
    assert "step 0: the loss is NaN" in said[0]
    assert frames[0].extra["firstNonFinite"] == {"what": "loss", "kind": "nan", "step": 0}
    assert frames[0].nonFinite["loss"] == "nan"


def test_what_broke_between_two_frames_is_said_to_be_between_them():
    model = Chain(nn.ReLU())

    def spoil(step):
        if step == 3:
            with torch.no_grad():
                model.first.weight.fill_(math.nan)

    said, frames = run(model, [GOOD] * 11, every=5, between=spoil)
    assert len(said) == 1
    assert "between steps 0 and 5: the weights of block l0 (first)" in said[0]
    assert "the loss given to step() was NaN first at step 4" in said[0]
    assert frames[1].extra["firstNonFinite"] == {
        "what": "weight", "kind": "nan", "step": 5, "after": 0, "block": "l0", "producer": False,
    }  # fmt: skip


def test_a_loss_between_frames_that_passes_is_named_with_its_step():
    optimizer_skips = lambda out, step: out.pow(2).mean() * 0 + (math.inf if step == 3 else 1.0)  # noqa: E731
    said, frames = run(Chain(nn.ReLU()), [GOOD] * 6, every=5, loss_of=optimizer_skips)
    assert "step 3: the loss given to step() was Inf" in said[0]
    assert frames[1].extra["firstNonFinite"] == {"what": "loss", "kind": "inf", "step": 3}


# ── losses between frames ─────────────────────────────────────────────────────


def first_bad(losses):
    trail, parcel, found = LossTrail(), Parcel(), []
    for step, loss in enumerate(losses):
        trail.add(step, loss)
    trail.take(parcel, found.append)
    parcel.seal()
    parcel.open()
    return found


@pytest.mark.parametrize(
    ("losses", "found"),
    [
        ([], []),
        ([1.0, torch.tensor(2.0)], []),
        ([1.0, math.nan, math.inf], [(1, "nan")]),
        ([torch.tensor(1.0), torch.tensor([math.inf]), torch.tensor(math.nan)], [(1, "inf")]),
        ([torch.tensor(-math.inf, dtype=torch.float16)], [(0, "inf")]),
        ([torch.tensor(1e300, dtype=torch.float64)], []),
        ([math.nan, torch.tensor(math.nan)], [(0, "nan")]),
        ([torch.tensor(math.nan), math.inf], [(0, "nan")]),
        ([{"loss": torch.tensor(1.0)}, {"loss": torch.tensor(math.nan)}], [(1, "nan")]),
        ([None, "low", torch.ones(3), torch.tensor(2), object()], []),
        ([torch.tensor(0.0)] * 700 + [torch.tensor(math.nan)] * 2, [(700, "nan")]),
        ([torch.tensor(math.inf)] + [torch.tensor(math.nan)] * 600, [(0, "inf")]),
    ],
    ids=range(12),
)
def test_the_first_loss_that_is_not_finite_is_found(losses, found):
    assert first_bad(losses) == found


def test_losses_between_frames_keep_no_graph_and_no_memory_that_grows():
    trail, weight = LossTrail(), torch.ones(1, requires_grad=True)
    for step in range(2000):
        trail.add(step, (weight * step).sum())
    assert len(trail._held) < 300
    assert all(not isinstance(part, torch.Tensor) for _, place in trail._held for part in place)
