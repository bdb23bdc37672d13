"""A compiled model stays compiled: no graph is broken or compiled anew by a watch."""

from __future__ import annotations

import shutil

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ptoa_torch.watch import watch

dynamo = pytest.importorskip("torch._dynamo")


def compiles():
    """Whether this torch compiles on this Python: the oldest do not on the newest."""
    try:
        torch.compile(nn.Identity(), backend="eager")
    except (AttributeError, RuntimeError):
        return False
    return True


pytestmark = [
    pytest.mark.skipif(not compiles(), reason="this torch compiles nothing on this Python"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

BACKEND = "aot_eager"


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Nothing compiled in one test is met by another."""
    monkeypatch.setenv("PTA_NO_BROWSER", "1")
    dynamo.reset()
    dynamo.utils.counters.clear()
    yield
    dynamo.reset()


class Dense(nn.Linear):
    """A forward of the user's own: compiling a module of torch in place compiles nothing."""

    def forward(self, x):
        return F.linear(x, self.weight, self.bias)


class Net(nn.Module):
    """Has what an extra pass could leave behind: dropout, batch statistics, a counter, a cache."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.drop = Dense(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.3)
        self.act, self.last = nn.ReLU(), nn.Linear(16, 1)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        y = self.drop(self.act(self.norm(self.first(x))))
        return self.last(y + y.mean(1, keepdim=True))


class Heads(nn.Module):
    """Attention and a residual addition, returning its loss."""

    def __init__(self):
        super().__init__()
        self.num_heads, self.qkv, self.proj = 2, nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(
            q, k, v, is_causal=True, dropout_p=0.1 if self.training else 0.0
        )
        return self.proj(mixed.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.attn, self.drop = nn.LayerNorm(8), Heads(), nn.Dropout(0.1)

    def forward(self, x):
        out = x + self.drop(self.attn(self.norm(x)))
        return out, out.pow(2).mean()


def made(make=Net):
    torch.manual_seed(0)
    model = make()
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def watched_after_wrapping(model, start):
    compiled = torch.compile(model, backend=BACKEND)
    return compiled, start(compiled)


def original_watched_after_wrapping(model, start):
    compiled = torch.compile(model, backend=BACKEND)
    return compiled, start(model)


def watched_after_the_first_call(model, start):
    compiled = torch.compile(model, backend=BACKEND)
    compiled(torch.ones(4, 8))
    return compiled, start(compiled)


def watched_before_wrapping(model, start):
    watching = start(model)
    return torch.compile(model, backend=BACKEND), watching


def compiled_in_place(model, start):
    model.compile(backend=BACKEND)
    return model, start(model)


def compiled_in_place_after(model, start):
    watching = start(model)
    model.compile(backend=BACKEND)
    return model, watching


def child_compiled(model, start):
    model.first = torch.compile(model.first, backend=BACKEND)
    return model, start(model)


def child_compiled_in_place(model, start):
    model.first.compile(backend=BACKEND)
    return model, start(model)


WAYS = [
    watched_after_wrapping,
    original_watched_after_wrapping,
    watched_after_the_first_call,
    watched_before_wrapping,
    compiled_in_place,
    compiled_in_place_after,
    child_compiled,
    child_compiled_in_place,
]


def run(way, watched, **options):
    model, optimizer = made()
    if "place" in way.__name__ and not hasattr(model, "compile"):
        pytest.skip("this torch compiles no module in place")
    started = {"open": False, "run_file": False, "every": 2, **options}
    running, watching = way(model, lambda m: watch(m, optimizer, **started) if watched else None)
    losses = []
    for _ in range(6):
        loss = running(torch.randn(4, 8)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if watching is not None:
            watching.step(loss)
        losses.append(loss.detach())
    frames = list(watching.frames) if watching is not None else []
    counted = dynamo.utils.counters
    found = dict(counted["stats"]), dict(counted["graph_break"]), dict(counted["frames"])
    if watching is not None:
        watching.close()
        plain_modules = (module for module in model.modules() if type(module).__name__ != "OptimizedModule")
        assert not any("forward" in vars(module) for module in plain_modules)
    return losses, frames, found, (model.state_dict(), torch.get_rng_state())


def both(way, **options):
    """One run without a watch and one with it."""
    plain = run(way, watched=False)
    dynamo.reset()
    dynamo.utils.counters.clear()
    return plain, run(way, watched=True, **options)


def assert_equal_training(plain, watched):
    """Losses, parameters, buffers, random state and what was compiled are the same."""
    assert plain[2][0]["unique_graphs"] > 0
    assert watched[2] == plain[2]
    assert all(torch.equal(a, b) for a, b in zip(plain[0], watched[0], strict=True))
    (state, random), (state2, random2) = plain[3], watched[3]
    assert all(torch.equal(a, b) for a, b in zip(state.values(), state2.values(), strict=True))
    assert torch.equal(random, random2)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_watch_adds_no_compilation_and_no_graph_break_and_changes_no_bit(way):
    plain, watched = both(way)
    assert_equal_training(plain, watched)
    assert [frame.step for frame in watched[1]] == [0, 2, 4]
    for frame, loss in zip(watched[1], plain[0][::2], strict=True):
        assert frame.loss == loss.item()
        assert frame.gradNorm is not None
        row = frame.blocks[0]
        assert row.weightNorm is not None
        assert row.weightGradNorm is not None
        assert row.updateRatio is not None
        assert row.grad is None
        assert "compiled" in row.extra["missing"]["grad"]
    for frame in watched[1][1:]:
        assert all(row.act is not None for row in frame.blocks)
        assert frame.extra["cost"]["eagerPass"] > 0


def test_activations_of_a_compiled_model_are_those_of_the_model_without_the_compiler():
    frames = {}
    for compiled in (False, True):
        dynamo.reset()
        way = watched_after_wrapping if compiled else (lambda model, start: (model, start(model)))
        way.__name__ = "wrapped"
        frames[compiled] = run(way, watched=True)[1]
    for plain, seen in zip(frames[False], frames[True], strict=True):
        assert [row.id for row in plain.blocks] == [row.id for row in seen.blocks]
        assert all(a.act == b.act for a, b in zip(plain.blocks, seen.blocks, strict=True))
        assert plain.gradNorm == pytest.approx(seen.gradNorm, rel=1e-5)


def test_compiled_false_runs_nothing_more_and_says_so():
    plain, watched = both(watched_after_wrapping, compiled=False)
    assert_equal_training(plain, watched)
    for frame in watched[1]:
        assert "cost" not in frame.extra
        assert "compiled=False" in frame.blocks[0].extra["missing"]["act"]
        assert frame.blocks[0].weightGradNorm is not None


def test_attention_and_the_loss_in_the_output_of_a_compiled_model_are_seen():
    model, optimizer = made(Layer)
    compiled = torch.compile(model, backend=BACKEND)
    with watch(compiled, optimizer, 1, open=False, run_file=False) as watching:
        _, loss = compiled(torch.randn(2, 5, 8))
        loss.backward()
        optimizer.step()
        watching.step()
        frame = watching.frames[0]
    rows = {row.id[0]: row for row in frame.blocks}
    assert frame.loss == loss.item()
    assert len(rows["a"].headEntropy) == 2
    assert rows["r"].act is not None


def has_compiler():
    """Whether there is a C++ compiler, which inductor needs."""
    return shutil.which("g++") is not None


@pytest.mark.skipif(not has_compiler(), reason="inductor needs a C++ compiler")
def test_training_by_inductor_with_dropout_stays_bit_equal(monkeypatch):
    monkeypatch.setitem(globals(), "BACKEND", "inductor")
    plain, watched = both(watched_after_wrapping)
    assert_equal_training(plain, watched)
    assert all(row.act is not None for frame in watched[1] for row in frame.blocks)


def test_a_compiled_child_lacks_its_gradient_and_its_neighbours_are_measured_as_always():
    model, optimizer = made()
    model.first = torch.compile(model.first, backend=BACKEND)
    with watch(model, optimizer, 1, open=False, run_file=False) as watching:
        for _ in range(2):
            model(torch.randn(4, 8)).sum().backward()
            optimizer.step()
            watching.step()
        rows = {row.id: row for row in watching.frames[0].blocks}
    assert rows["l0"].act is not None
    assert "compiled" in rows["l0"].extra["missing"]["grad"]
    assert rows["f0"].grad is not None
    assert rows["l0"].weightGradNorm is not None
    assert rows["f0"].act is not None
