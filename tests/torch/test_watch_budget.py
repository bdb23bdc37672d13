"""What watching may cost: how often frames come, which blocks they have, what they say was paid."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ptoa_core.errors import SettingError
from ptoa_torch import attention, probe, session, timing
from ptoa_torch.budget import Budget, share_of
from ptoa_torch.meter import HISTOGRAM_VALUES, Meter, Parcel
from ptoa_torch.watch import watch


@pytest.mark.parametrize(
    ("given", "share"),
    [("1%", 0.01), (" 0.5 % ", 0.005), ("99.9%", 0.999), (0.01, 0.01), ("1e-3%", 1e-5), (None, None)],
)
def test_a_budget_is_a_number_or_a_percentage(given, share):
    assert share_of(given) == (share if share is None else pytest.approx(share))


BAD = ["", "%", "1", "one%", "1 % %", "-1%", "0%", "100%", "nan%", "inf%", 0, 1, 5, -0.1, True, False]
BAD += [float("nan"), float("inf"), b"1%", [0.01], {}, object]


@pytest.mark.parametrize("given", BAD, ids=repr)
def test_anything_else_is_refused_by_a_message_that_says_what_is_wanted(given):
    with pytest.raises(SettingError, match=r'"1%" or 0\.01, found'):
        share_of(given)


def test_a_watch_refuses_a_budget_before_anything_is_opened():
    model = nn.Linear(1, 1)
    with pytest.raises(SettingError, match="budget must be"):
        watch(model, open=False, run_file=False, budget="1 percent")
    with pytest.raises(SettingError, match="reduce=True"):
        watch(model, open=False, run_file=False, budget="1%", reduce=True)
    assert not model._forward_hooks
    assert "forward" not in vars(model)


# ── how often ────────────────────────────────────────────────────────────────


def settled(budget, cost, step, periods=1):
    """Settle so many times where a frame costs so much and a step takes so long."""
    for _ in range(periods):
        budget.settle(
            steps=budget.every,
            elapsed=budget.every * step + cost / 2,
            training=cost / 2,
            background=cost / 2,
        )
    return budget


@pytest.mark.parametrize(
    ("share", "cost", "every"),
    [(0.01, 0.0, 10), (0.01, 0.1, 10), (0.01, 0.11, 20), (0.01, 0.5, 50), (0.5, 3.0, 10), (0.1, 7.0, 70)],
)
def test_frames_come_as_seldom_as_the_budget_needs_and_not_much_more(share, cost, every):
    budget = settled(Budget(share, every=10), 99.0, 1.0)
    settled(budget, cost, 1.0, periods=100)
    assert every <= budget.every <= 1.35 * every
    assert budget.paid <= share * 1.001


def test_what_was_paid_too_much_is_made_good():
    budget = settled(Budget(0.01, every=10), 0.0, 1.0)
    settled(budget, 0.4, 1.0, periods=1)
    assert budget.paid == pytest.approx(0.04)
    assert budget.every == 80
    settled(budget, 0.4, 1.0, periods=30)
    assert budget.paid <= 0.01


def test_the_time_in_which_the_model_was_read_is_left_out():
    budget = settled(Budget(0.01, every=10), 1000.0, 1.0)
    assert (budget.every, budget.note(), budget.text(), budget.paid) == (10, None, None, None)


def test_frames_come_more_often_again_when_they_cost_less():
    budget = settled(Budget(0.01, every=10), 0.5, 1.0, periods=4)
    assert budget.every >= 50
    assert settled(budget, 0.05, 1.0, periods=20).every == 10


def test_one_slow_step_changes_nothing():
    budget = settled(Budget(0.01, every=10), 0.3, 1.0, periods=60)
    before = budget.every
    assert settled(budget, 0.3, 50.0).every == before


def test_blocks_take_turns_where_frames_would_come_very_seldom():
    budget = settled(Budget(0.01, every=10), 0.0, 1.0)
    for _ in range(60):
        settled(budget, 4.0 / budget.turns, 1.0)
    assert budget.turns == budget.note()["turns"] == 8
    assert 50 <= budget.every <= 70
    assert budget.paid <= 0.01


def test_where_turns_do_not_help_frames_come_still_more_seldom():
    budget = settled(Budget(0.01, every=10), 0.0, 1.0)
    settled(budget, 40.0, 1.0, periods=60)
    assert budget.turns == 8
    assert 4000 <= budget.every <= 5400


def test_all_blocks_are_back_when_frames_cost_less():
    budget = settled(Budget(0.01, every=10), 0.0, 1.0)
    settled(budget, 4.0, 1.0, periods=8)
    assert settled(budget, 0.01, 1.0, periods=20).turns == 1


def test_what_was_paid_is_over_the_time_that_training_took_by_itself():
    budget = settled(Budget(0.25, every=10), 7.0, 1.0)
    budget.settle(steps=10, elapsed=12.0, training=2.0, background=0.5)
    assert budget.paid == pytest.approx(2.5 / 10)
    expected = {"training": 2000.0, "background": 500.0, "share": 0.25, "budget": 0.25, "every": 10}
    assert budget.note() == expected
    assert budget.text() == "watching took 25.00% of the training's time, budget 25%"


# ── a watch with a clock of its own ──────────────────────────────────────────


class Clock:
    """Stands until it is moved."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    for module in (attention, probe, session, timing):
        monkeypatch.setattr(module, "clock", made)
    return made


def trained(clock, monkeypatch, steps, *, cost, step=10.0, model=None, **options):
    """Train with steps and frames that take so many seconds; returns the frames and how often it measured."""
    model = model or nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    flush = Meter.flush

    def slow(meter, parcel):
        clock.now += cost
        return flush(meter, parcel)

    monkeypatch.setattr(Meter, "flush", slow)
    with watch(model, optimizer, open=False, run_file=False, **options) as watching:
        for _ in range(steps):
            loss = model(torch.randn(8, 4)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            clock.now += step
            optimizer.step()
            watching.step(loss)
        return list(watching.frames)


def test_a_watch_measures_as_seldom_as_its_budget_needs(clock, monkeypatch, capsys):
    frames = trained(clock, monkeypatch, 81, cost=39.0, every=2, budget="50%")
    steps = [frame.step for frame in frames]
    assert steps[:3] == [0, 2, 4]
    cost = frames[-1].extra["cost"]
    assert all(step % 2 == 0 for step in steps)
    assert 8 <= cost["every"] <= 16
    assert cost["share"] <= 0.6
    assert len(steps) < 80 / 8 + 3
    assert cost["training"] == pytest.approx(39_000, rel=1e-3)
    assert 0 <= cost["background"] < 39_000
    assert cost["budget"] == 0.5
    assert "budget 50%" in capsys.readouterr().out


def test_without_a_budget_nothing_is_said_and_frames_come_as_asked_for(clock, monkeypatch, capsys):
    frames = trained(clock, monkeypatch, 9, cost=40.0, every=2)
    assert [frame.step for frame in frames] == [0, 2, 4, 6, 8]
    assert all("cost" not in frame.extra for frame in frames)
    assert "budget" not in capsys.readouterr().out


def test_the_users_own_validation_is_not_paid_by_the_budget(clock, monkeypatch):
    def validate():
        clock.now += 1000.0
        return 1.0

    frames = trained(clock, monkeypatch, 30, cost=1.0, every=2, budget=0.5, val_loss=validate, val_every=4)
    assert [frame.step for frame in frames] == list(range(0, 30, 2))


def test_blocks_whose_turn_it_is_not_say_so_and_all_have_their_turn(clock, monkeypatch):
    frames = trained(clock, monkeypatch, 1800, cost=400.0, every=1, budget="50%")
    parts = [frame for frame in frames if frame.extra.get("cost", {}).get("turns") == 8]
    assert len(parts) >= 4
    for frame in parts:
        for row in frame.blocks:
            has = row.act is not None
            assert has == (row.grad is not None)
            assert has != ("turn" in row.extra.get("missing", {}).get("act", ""))
        assert sum(row.act is not None for row in frame.blocks) <= 1
        assert frame.gradNorm is not None
    seen = {row.id for frame in parts for row in frame.blocks if row.act is not None}
    assert seen == {row.id for row in frames[0].blocks}


def test_a_coarse_histogram_counts_fewer_values():
    meter = Meter()
    samples = []
    for coarse in (False, True):
        meter.is_coarse = coarse
        parcel = Parcel()
        readings = [meter.add(torch.randn(8, 1000), parcel), meter.add(torch.randn(100, 1000), parcel)]
        meter.flush(parcel)
        parcel.seal()
        parcel.open()
        samples.append([reading.stats().extra["histSample"] for reading in readings])
    for fine, coarse in zip(*samples, strict=True):
        assert fine >= HISTOGRAM_VALUES > coarse >= HISTOGRAM_VALUES // 4


def test_watching_under_a_budget_changes_no_bit():
    results = []
    for options in (None, {"budget": "1%"}, {"budget": 0.9}):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 1))
        optimizer = torch.optim.AdamW(model.parameters())
        watching = None
        if options is not None:
            watching = watch(model, optimizer, 1, open=False, run_file=False, **options)
        for _ in range(12):
            loss = model(torch.randn(8, 4)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if watching is not None:
            watching.close()
        results.append([*model.state_dict().values(), torch.get_rng_state()])
    for other in results[1:]:
        assert all(torch.equal(one, two) for one, two in zip(results[0], other, strict=True))
