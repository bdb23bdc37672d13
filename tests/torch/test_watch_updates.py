"""Gradients are those that an update used, under everything that real training does with them."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn

from ptoa_torch.watch import watch

SCALERS = hasattr(torch.amp, "GradScaler")
IN_BACKWARD = hasattr(torch.Tensor, "register_post_accumulate_grad_hook")


@pytest.fixture(autouse=True)
def no_browser(monkeypatch):
    """No test opens a page."""
    monkeypatch.setenv("PTA_NO_BROWSER", "1")


def quiet(model, optimizer=None, every=1, **options):
    return watch(model, optimizer, every, open=False, run_file=False, **options)


def norm(tensors) -> float:
    """The L2 norm of several tensors as one, in float64."""
    return math.sqrt(sum(float((tensor.detach().double() ** 2).sum()) for tensor in tensors))


def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))


def batch(seed=0):
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(seed))


def right_norms(model, loss_of):
    """The norms of a plain backward of a copy of the model in float64."""
    exact = copy.deepcopy(model).double()
    loss_of(exact).backward()
    return [norm(p.grad for p in layer.parameters()) for layer in exact if list(layer.parameters())]


def shown(frame):
    return [row.weightGradNorm for row in frame.blocks if row.weightNorm is not None]


def square(model, seed=0):
    return model(batch(seed).to(next(model.parameters()).dtype)).pow(2).mean()


# ── no optimizer named: torch's own hooks tell of every one ───────────────────


def zeroed_before(model, watching, to_none):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    square(model).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=to_none)
    watching.step()


@pytest.mark.parametrize("to_none", [True, False], ids=["to-none", "to-zeros"])
def test_gradients_that_are_gone_before_w_step_are_those_of_the_optimizers_step(to_none):
    model = small()
    right = right_norms(model, square)
    with quiet(model) as watching:
        zeroed_before(model, watching, to_none)
        frame = watching.frames[0]
    assert shown(frame) == pytest.approx(right, rel=1e-5)
    assert frame.gradNorm == pytest.approx(math.hypot(*right), rel=1e-5)
    assert frame.lr == 0.1


@pytest.mark.parametrize("to_none", [True, False], ids=["to-none", "to-zeros"])
def test_gradients_that_no_hook_saw_and_that_are_gone_are_named_and_never_zero(to_none):
    model = small()
    with quiet(model) as watching:
        square(model).backward()
        with torch.no_grad():  # an update by hand
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
        model.zero_grad(set_to_none=to_none)
        watching.step()
        frame = watching.frames[0]
    assert shown(frame) == [None, None]
    assert frame.gradNorm is None
    assert "before it could be read" in frame.blocks[0].extra["missing"]["weightGradNorm"]
    assert frame.blocks[0].updateRatio > 0


def test_a_gradient_that_is_truly_zero_is_zero():
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with quiet(model, optimizer) as watching:
        (model(batch()).sum() * 0).backward()
        optimizer.step()
        watching.step()
        assert shown(watching.frames[0]) == [0.0, 0.0]


@pytest.mark.skipif(not IN_BACKWARD, reason="this torch has no hook after a gradient is complete")
def test_an_optimizer_that_steps_inside_backward_is_read_as_it_steps():
    model = small()
    right = right_norms(model, square)
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

    def step(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    with quiet(model) as watching:
        square(model).backward()
        watching.step()
        frame = watching.frames[0]
    assert shown(frame) == pytest.approx(right, rel=1e-5)
    assert all(row.updateRatio > 0 for row in frame.blocks if row.weightNorm is not None)


@pytest.mark.skipif(not SCALERS, reason="this torch scales no loss on the CPU")
def test_a_scaler_is_seen_without_the_optimizer_being_named():
    model = small()
    right = right_norms(model, square)
    optimizer, scaler = torch.optim.Adam(model.parameters()), torch.amp.GradScaler("cpu", init_scale=1024.0)
    with quiet(model) as watching:
        scaler.scale(square(model)).backward()
        scaler.step(optimizer)
        scaler.update()
        watching.step()
        frame = watching.frames[0]
    assert shown(frame) == pytest.approx(right, rel=1e-5)


@pytest.mark.skipif(not SCALERS, reason="this torch scales no loss on the CPU")
def test_a_step_that_the_scaler_skips_is_marked_where_only_w_step_counts():
    model = small()
    optimizer, scaler = torch.optim.Adam(model.parameters()), torch.amp.GradScaler("cpu", init_scale=1024.0)
    with quiet(model) as watching:
        for step in range(3):
            loss = square(model, step) * (math.inf if step == 1 else 1.0)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            watching.step()
        frames = list(watching.frames)
    assert [frame.extra.get("skipped") for frame in frames] == [None, True, None]
    assert frames[1].blocks[0].updateRatio is None
    assert frames[1].gradNorm is None


# ── several optimizers ────────────────────────────────────────────────────────


class Pair(nn.Module):
    """A generator and a discriminator in one module that is never called itself."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.G, self.D = nn.Linear(3, 2), nn.Linear(2, 1)


def adversaries(pair):
    return torch.optim.SGD(pair.G.parameters(), lr=0.1), torch.optim.SGD(pair.D.parameters(), lr=0.2)


def gan_step(pair, g, d, noise):
    """One step of each; the discriminator's loss reaches the generator too. Returns the used norms."""
    d.zero_grad()
    (pair.D(torch.ones(4, 2)).mean() - pair.D(pair.G(noise)).mean()).backward()
    used_d = norm(p.grad for p in pair.D.parameters())
    d.step()
    g.zero_grad()
    pair.D(pair.G(noise)).mean().backward()
    used_g = norm(p.grad for p in pair.G.parameters())
    g.step()
    return used_g, used_d


@pytest.mark.parametrize("first", ["generator", "discriminator"])
def test_each_optimizer_has_a_lane_and_the_gradients_of_its_own_step(first):
    pair = Pair()
    g, d = adversaries(pair)
    noise = torch.randn(4, 3)
    with quiet(pair, [g, d] if first == "generator" else [d, g]) as watching:
        used = [gan_step(pair, g, d, noise) for _ in range(3)]
        assert watching.step_count == 3
    frame = watching.frames[2]
    lanes = {lane["lr"]: lane for lane in frame.extra["optimizers"]}
    # Where the discriminator's steps count, the generator's last step is that of the round before.
    now = used[2] if first == "generator" else (used[1][0], used[2][1])
    assert lanes[0.1]["gradNorm"] == pytest.approx(now[0], rel=1e-5)
    assert lanes[0.2]["gradNorm"] == pytest.approx(now[1], rel=1e-5)
    assert (lanes[0.1]["step"], lanes[0.2]["step"]) == ((2, 2) if first == "generator" else (1, 2))
    assert frame.lr == (0.1 if first == "generator" else 0.2)
    rows = {row.id: row for row in frame.blocks}
    assert sorted(row.weightGradNorm for row in rows.values()) == pytest.approx(sorted(now), rel=1e-5)


def test_two_watches_see_each_their_own_optimizer():
    pair = Pair()
    g, d = adversaries(pair)
    noise = torch.randn(4, 3)
    with quiet(pair.G, g) as on_g, quiet(pair.D, d) as on_d:
        used = [gan_step(pair, g, d, noise) for _ in range(2)]
        on_g.step(), on_d.step()
        assert (on_g.step_count, on_d.step_count) == (2, 2)
        assert [f.gradNorm for f in on_g.frames] == pytest.approx([g for g, _ in used], rel=1e-5)
        assert [f.gradNorm for f in on_d.frames] == pytest.approx([d for _, d in used], rel=1e-5)


def test_a_block_whose_optimizer_did_not_step_says_so():
    pair = Pair()
    g, d = adversaries(pair)
    with quiet(pair, [g, d]) as watching:
        pair.D(pair.G(torch.ones(4, 3))).mean().backward()
        g.step()
        watching.step()
        rows = dict(zip(("G", "D"), watching.frames[0].blocks, strict=True))
    assert rows["G"].weightGradNorm > 0
    assert rows["D"].weightGradNorm is None
    assert rows["D"].extra["missing"]["weightGradNorm"] == "its optimizer did not step"


def test_parameters_that_no_optimizer_owns_have_the_gradients_of_the_step():
    model = small()
    right = right_norms(model, square)
    optimizer = torch.optim.SGD(model[2].parameters(), lr=0.1)
    with quiet(model, optimizer) as watching:
        square(model).backward()
        optimizer.step()
        watching.step()
        frame = watching.frames[0]
    assert shown(frame) == pytest.approx(right, rel=1e-5)
    assert [row.updateRatio > 0 for row in frame.blocks if row.weightNorm is not None] == [False, True]


# ── clipping, accumulation ────────────────────────────────────────────────────


def test_the_gradient_is_the_clipped_one_that_the_optimizer_used():
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with quiet(model, optimizer) as watching:
        (square(model) * 100).backward()
        before = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        watching.step()
        assert before > 0.5
        assert watching.frames[0].gradNorm == pytest.approx(0.5, rel=1e-4)


def test_accumulated_gradients_are_their_sum_and_only_real_updates_count():
    """As accelerate does it: the wrapper's step is called for every batch and passed on for the last."""
    model = small()
    right = right_norms(model, lambda exact: sum(square(exact, seed) for seed in range(4)))
    inner = torch.optim.SGD(model.parameters(), lr=0.1)

    class Wrapper:
        optimizer = inner

        def step(self, last):
            if last:
                inner.step()

    wrapper = Wrapper()
    with quiet(model, wrapper) as watching:
        for seed in range(4):
            square(model, seed).backward()
            wrapper.step(seed == 3)
        watching.step()
        assert watching.step_count == 1
        frame = watching.frames[0]
    assert shown(frame) == pytest.approx(right, rel=1e-5)
    assert frame.extra["forwards"] == 4


# ── a cast that was made without gradients ────────────────────────────────────


@pytest.mark.parametrize("watched", [False, True])
def test_autocast_around_the_first_forward_keeps_its_gradients(watched):
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watching = quiet(model, optimizer) if watched else None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(batch()).float().pow(2).mean()
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    if watching is not None:
        watching.close()
