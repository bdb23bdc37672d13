"""`watch` in a loop that accelerate drives, on the real Accelerator."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
accelerate = pytest.importorskip("accelerate")

from ptoa_core.runs import RunFile  # noqa: E402  after what it may be skipped for
from ptoa_torch import watch  # noqa: E402

# What accelerate warns about is its own.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PTA_NO_BROWSER", "1")
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


def net(dtype=torch.float32):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).to(dtype)


def batches(count, dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(4, 4, generator=generator).to(dtype) for _ in range(count)]


def run(watched=True, *, clip=None, saved=None, compiled=False, evaluate=False, count=6, start=0, **settings):
    """Train as accelerate's guide does; gives the losses and the final weights."""
    accelerator = accelerate.Accelerator(cpu=True, **settings)
    model = net()
    model = torch.compile(model, backend="eager") if compiled else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    if saved:
        accelerator.load_state(saved)
    options = {"every": 1, "open": False, "run_file": "run.pta", "start_step": start}
    watching = watch(model, optimizer, **options) if watched else None
    losses = []
    for x in batches(count):
        with accelerator.accumulate(model):
            loss = model(x).pow(2).mean()
            accelerator.backward(loss)
            if clip and accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
        if watching:
            watching.step(loss)
        if evaluate:
            model.eval()
            with torch.no_grad():
                model(torch.full((2, 4), 9.0))
            model.train()
    if watching:
        watching.close()
    accelerator.save_state("state")
    weights = accelerator.unwrap_model(model).state_dict()
    return losses, {name: value.clone() for name, value in weights.items()}


def alone(accumulate=1, clip=None, count=6):
    """The same training by hand in float64: the gradient's norm at each update."""
    model = net(torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    norms = []
    for index, x in enumerate(batches(count, torch.float64)):
        (model(x).pow(2).mean() / accumulate).backward()
        if (index + 1) % accumulate == 0:
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip or 1e9).item()
            norms.append(min(norm, clip or norm))
            optimizer.step()
            optimizer.zero_grad()
    return norms


def frames_of():
    return list(RunFile.read("run.pta")[1])


def test_a_loop_is_watched():
    losses, _ = run()
    frames = frames_of()
    assert [frame.loss for frame in frames] == pytest.approx(losses)
    assert [frame.gradNorm for frame in frames] == pytest.approx(alone(), rel=1e-5)


def test_accumulated_batches_are_one_step_with_the_gradient_of_all():
    run(gradient_accumulation_steps=2)
    frames = frames_of()
    assert [frame.step for frame in frames] == [0, 1, 2]
    assert [frame.gradNorm for frame in frames] == pytest.approx(alone(accumulate=2), rel=1e-5)


def test_clipped_gradients_are_the_ones_shown():
    run(clip=0.4)
    wanted = alone(clip=0.4)
    assert min(wanted) < 0.4 == max(wanted)
    assert [frame.gradNorm for frame in frames_of()] == pytest.approx(wanted, rel=1e-4)


def test_mixed_precision_leaves_the_gradients_near_the_exact_ones():
    losses, _ = run(mixed_precision="bf16")
    frames = frames_of()
    assert [frame.loss for frame in frames] == pytest.approx(losses)
    assert [frame.gradNorm for frame in frames] == pytest.approx(alone(), rel=0.05)


def test_a_run_that_is_loaded_again_is_continued():
    run(count=3)
    run(count=3, saved="state", start=3)
    assert [(frame.step, frame.attempt or 1) for frame in frames_of()] == [
        *((n, 1) for n in range(3)),
        *((n, 2) for n in range(3, 6)),
    ]


@pytest.mark.skipif(not hasattr(torch.nn.Module, "compile"), reason="too old to compile here")
def test_a_compiled_model_is_compiled_as_often_as_without():
    graphs = []
    for watched in (False, True):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        run(watched, compiled=True)
        counters = torch._dynamo.utils.counters
        graphs.append((counters["stats"]["unique_graphs"], dict(counters["graph_break"])))
    assert graphs[0] == graphs[1]
    assert [frame.gradNorm for frame in frames_of()] == pytest.approx(alone(), rel=1e-5)


def test_an_evaluation_between_leaves_no_trace():
    run(count=2, evaluate=True)
    plain = [frame.to_dict()["blocks"] for frame in frames_of()]
    Path("run.pta").unlink()
    run(count=2)
    assert [frame.to_dict()["blocks"] for frame in frames_of()] == plain


@pytest.mark.parametrize(
    "settings",
    [{}, {"gradient_accumulation_steps": 2}, {"mixed_precision": "bf16"}],
    ids=["plain", "accumulated", "bf16"],
)
def test_watched_weights_are_bit_identical(settings):
    plain, watched = run(False, **settings), run(True, **settings)
    assert plain[0] == watched[0]
    assert all(torch.equal(value, watched[1][name]) for name, value in plain[1].items())
