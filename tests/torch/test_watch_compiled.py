"""A compiled model stays compiled: no graph is broken or compiled anew by a watch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

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


class Net(nn.Module):
    """A class of the user's own: the compiler leaves torch's containers alone."""

    def __init__(self):
        super().__init__()
        self.first, self.act, self.last = nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)

    def forward(self, x):
        return self.last(self.act(self.first(x)))


def made():
    torch.manual_seed(0)
    model = Net()
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


WAYS = [
    watched_after_wrapping,
    original_watched_after_wrapping,
    watched_after_the_first_call,
    watched_before_wrapping,
    compiled_in_place,
    compiled_in_place_after,
]


def run(way, watched):
    model, optimizer = made()
    if "place" in way.__name__ and not hasattr(model, "compile"):
        pytest.skip("this torch compiles no module in place")
    started = {"open": False, "run_file": False, "every": 2}
    running, watching = way(model, lambda m: watch(m, optimizer, **started) if watched else None)
    losses = []
    for step in range(6):
        loss = running(torch.full((4, 8), float(step))).pow(2).mean()
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
    return losses, frames, found


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_watch_adds_no_compilation_and_no_graph_break(way):
    losses, _, expected = run(way, watched=False)
    dynamo.reset()
    dynamo.utils.counters.clear()
    watched_losses, frames, found = run(way, watched=True)
    assert found == expected
    assert expected[0]["unique_graphs"] == 1
    assert all(torch.equal(a, b) for a, b in zip(losses, watched_losses, strict=True))
    assert [frame.step for frame in frames] == [0, 2, 4]
    for frame, loss in zip(frames, losses[::2], strict=True):
        assert frame.loss == loss.item()
        assert frame.gradNorm is not None
        assert frame.blocks[0].weightNorm is not None
        assert frame.blocks[0].updateRatio is not None
        assert frame.blocks[0].grad is None
        assert "compiled" in frame.blocks[0].extra["missing"]["grad"]


def test_a_compiled_child_lacks_its_gradient_and_its_neighbours_are_measured_as_always():
    model, optimizer = made()
    model.first = torch.compile(model.first, backend=BACKEND)
    with watch(model, optimizer, 1, open=False, run_file=False) as watching:
        for _ in range(2):
            model(torch.ones(4, 8)).sum().backward()
            optimizer.step()
            watching.step()
        rows = {row.id: row for row in watching.frames[0].blocks}
    assert rows["l0"].act is not None
    assert "compiled" in rows["l0"].extra["missing"]["grad"]
    assert rows["f0"].grad is not None
    assert rows["l0"].weightGradNorm is not None
    assert rows["f0"].act is not None
