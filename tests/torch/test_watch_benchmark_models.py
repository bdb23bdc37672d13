"""The models of the benchmark train to the same bits with a watch and without."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

from ptoa_torch.watch import watch

PATH = Path(__file__).parents[1] / "benchmarks" / "bench_watch.py"
STEPS = {"tiny": 50, "mlp": 50, "gpt": 1, "resnet": 3}  # a step of the large ones takes a second


@pytest.fixture(scope="module")
def bench():
    """The benchmark's module."""
    if not PATH.exists():
        pytest.skip("the benchmarks are not at hand")
    spec = importlib.util.spec_from_file_location("bench_watch_models", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def trained(bench, name, watched):
    """Losses, parameters, buffers, optimizer state and random state after some steps."""
    torch.manual_seed(0)
    model, loss_of = bench.MODELS[name][1]()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    watching = watch(model, optimizer, 7, open=False, run_file=False) if watched else None
    losses = []
    for _ in range(STEPS[name]):
        loss = loss_of(model)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if watching is not None:
            watching.step(loss)
        losses.append(loss.detach())
    if watching is not None:
        assert len(watching.frames) == -(-STEPS[name] // 7)
        watching.close()
    state = optimizer.state_dict()["state"]
    moments = [state[key][part] for key in state for part in sorted(state[key])]
    return [*losses, *model.state_dict().values(), *moments, torch.get_rng_state()]


@pytest.mark.parametrize("name", STEPS)
def test_a_watch_changes_no_bit_of_what_is_trained(bench, name, monkeypatch):
    monkeypatch.setenv("PTA_NO_BROWSER", "1")
    plain, watched = trained(bench, name, False), trained(bench, name, True)
    assert len(plain) == len(watched)
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))
