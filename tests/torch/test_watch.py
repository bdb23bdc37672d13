"""What a frame says, against gradients, norms and statistics computed beside it."""

from __future__ import annotations

import base64
import copy
import gc
import math
import weakref
from array import array
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from ptoa_core.errors import PtoaWarning
from ptoa_torch import probe
from ptoa_torch.attention import PatternTurns
from ptoa_torch.stats import tensor_stats
from ptoa_torch.watch import watch

LR = 0.1


def small() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))


def batch(seed: int = 0, rows: int = 4) -> torch.Tensor:
    return torch.randn(rows, 8, generator=torch.Generator().manual_seed(seed))


def norm(tensors) -> float:
    return math.sqrt(sum(float((tensor.double() ** 2).sum()) for tensor in tensors))


def sgd(model: nn.Module, **options) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=LR, **options)


def started(model, optimizer=None, every=1, **options):
    return watch(model, optimizer, every, open=False, **{"run_file": False, **options})


def train(model, optimizer, watching=None, steps=1, loss_of=None, seed=0):
    """Plain training steps; returns the losses."""
    losses = []
    for step in range(steps):
        loss = loss_of(step) if loss_of else model(batch(seed + step)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if watching is not None:
            watching.step(loss)
        losses.append(loss.detach())
    return losses


def one_frame(model, optimizer=None, loss_of=None, **options):
    """The frame of one training step."""
    optimizer = optimizer or sgd(model)
    with started(model, optimizer, **options) as watching:
        train(model, optimizer, watching, loss_of=loss_of)
        return watching.frames[0]


# ── the model, read from its first forward ───────────────────────────────────


class Written(nn.Module):
    """One head of attention written out, with dropout on its probabilities."""

    def __init__(self, hides_future):
        super().__init__()
        self.num_heads, self.hides_future = 1, hides_future
        self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))
        self.drop = nn.Dropout(0.9)

    def forward(self, x):
        scores = self.query(x) @ self.key(x).transpose(-2, -1) / 8**0.5
        if self.hides_future:
            hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(hidden, float("-inf"))
        return self.drop(scores.softmax(-1)) @ self.value(x)


@pytest.mark.parametrize("hides_future", [True, False])
def test_what_dropout_zeroes_in_training_is_not_taken_for_what_a_mask_hides(hides_future):
    torch.manual_seed(0)
    model = Written(hides_future)
    optimizer = sgd(model)
    with started(model, optimizer) as watching:
        train(model, optimizer, watching, loss_of=lambda _: model(torch.randn(1, 6, 8)).pow(2).mean())
        attention = next(block for block in watching.spec.blocks if block.kind == "attention")
    assert attention.params.causal is hides_future


# ── numbers ──────────────────────────────────────────────────────────────────


def test_a_frame_holds_the_statistics_of_outputs_and_of_the_gradients_that_arrive_at_them():
    model = small()
    outputs = []
    x = batch()
    for layer in copy.deepcopy(model):
        x = layer(x)
        x.retain_grad()
        outputs.append(x)
    outputs[-1].pow(2).mean().backward()
    frame = one_frame(model)
    for row, output in zip(frame.blocks, outputs, strict=True):
        for found, tensor in ((row.act, output), (row.grad, output.grad)):
            exact = tensor_stats(tensor)
            assert found.mean == pytest.approx(exact.mean, rel=1e-5, abs=1e-8)
            assert found.std == pytest.approx(exact.std, rel=1e-5)
            assert found.absMax == pytest.approx(exact.absMax, rel=1e-7)
            assert found.zeroFrac == pytest.approx(exact.zeroFrac, rel=1e-7)
            assert found.hist == exact.hist


def test_norms_and_update_ratio_are_those_of_the_step():
    model = small()
    before = copy.deepcopy(model)
    frame = one_frame(model)
    for index, row in ((0, frame.blocks[0]), (2, frame.blocks[2])):
        old, new = list(before[index].parameters()), list(model[index].parameters())
        grads = [parameter.grad for parameter in new]
        moved = [b.detach() - a.detach() for a, b in zip(old, new, strict=True)]
        assert row.weightNorm == pytest.approx(norm(p.detach() for p in old), rel=1e-6)
        assert row.weightGradNorm == pytest.approx(norm(grads), rel=1e-6)
        assert row.updateRatio == pytest.approx(norm(moved) / norm(p.detach() for p in old), rel=1e-4)
    assert frame.gradNorm == pytest.approx(norm(p.grad for p in model.parameters()), rel=1e-6)
    assert frame.blocks[1].weightNorm is None


class Raw(nn.Module):
    """Parameters that lie in no layer: a matrix, a scale, positions, a weight that a function is given."""

    def __init__(self):
        super().__init__()
        self.places, self.scale = nn.Parameter(torch.randn(4, 8)), nn.Parameter(torch.ones(8) / 2)
        self.matrix, self.weight = nn.Parameter(torch.randn(8, 6)), nn.Parameter(torch.randn(3, 6))
        self.layer = nn.Linear(3, 1)

    def forward(self, x):
        x = (x + self.places) * self.scale
        return self.layer(F.linear(x @ self.matrix, self.weight))


def test_parameters_that_lie_in_no_layer_are_measured_with_the_block_that_uses_them():
    torch.manual_seed(0)
    model = Raw()
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    frame = one_frame(model)
    norms = {round(norm([before[name]]), 4) for name in ("places", "matrix", "weight")}
    assert norms <= {round(row.weightNorm, 4) for row in frame.blocks if row.weightNorm is not None}
    for key, whole in (
        ("weightNorm", norm(before.values())),
        ("weightGradNorm", norm(p.grad for p in model.parameters())),
    ):
        found = [value for row in frame.blocks if (value := getattr(row, key)) is not None]
        assert math.hypot(*found) == pytest.approx(whole, rel=1e-5)
    assert frame.gradNorm == pytest.approx(norm(p.grad for p in model.parameters()), rel=1e-5)


def test_a_frame_holds_loss_learning_rate_time_and_step():
    model = small()
    optimizer = sgd(model)
    with started(model, optimizer, every=3) as watching:
        losses = train(model, optimizer, watching, steps=7)
        frames = list(watching.frames)
    assert [frame.step for frame in frames] == [0, 3, 6]
    assert [frame.loss for frame in frames] == [losses[step].item() for step in (0, 3, 6)]
    assert frames[0].lr == LR
    assert list(frames[1].timing) == ["data", "forward", "backward", "optim"]
    assert frames[0].t < frames[1].t < frames[2].t


def test_step_returns_the_frame_that_it_completed():
    model = small()
    optimizer = sgd(model)
    with started(model, optimizer, every=2) as watching:
        returned = []
        for step in range(3):
            model(batch(step)).sum().backward()
            optimizer.step()
            returned.append(watching.step(0.5))
    assert [frame and frame.step for frame in returned] == [0, None, 2]


@pytest.mark.parametrize("option", ["hist", "update_ratio"])
def test_an_option_removes_what_it_names(option):
    frame = one_frame(small(), **{option: False})
    row = frame.blocks[0]
    assert (row.act.hist is None) == (option == "hist")
    assert (row.updateRatio is None) == (option == "update_ratio")
    assert row.weightNorm is not None


@pytest.mark.parametrize(
    ("patterns", "rows"), [(["linear"], ["l0", "l1"]), (["f*"], ["f0"]), (["2"], ["l1"]), ([], [])], ids=str
)
def test_blocks_keeps_rows_by_id_kind_or_path(patterns, rows):
    assert [row.id for row in one_frame(small(), blocks=patterns).blocks] == rows


def test_an_activation_that_saturates_says_how_much():
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
    with torch.no_grad():
        model[0].weight.mul_(100)
    expected = tensor_stats(model(batch()), sat="tanh").satFrac
    assert one_frame(model).blocks[1].act.satFrac == expected > 0


# ── where the loss comes from ────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("given", "loss"),
    [
        (torch.tensor(0.25), 0.25),
        (torch.tensor([0.25]), 0.25),
        (0.25, 0.25),
        (3, 3.0),
        ({"loss": torch.tensor(0.25), "accuracy": 1.0}, 0.25),
        ({"total": 0.25}, 0.25),
        (None, None),
    ],
    ids=["tensor", "one-value", "number", "integer", "dict", "only-entry", "none"],
)
def test_a_loss_is_taken_in_every_shape(given, loss):
    model = small()
    optimizer = sgd(model)
    with started(model, optimizer) as watching:
        train(model, optimizer)
        watching.step(given)
        assert watching.frames[0].loss == loss


@pytest.mark.parametrize(
    "given", [torch.ones(3), "low", {"a": 1, "b": 2}, object()], ids=["vector", "text", "two", "object"]
)
def test_what_is_no_loss_is_left_out_and_named_once(given):
    model = small()
    optimizer = sgd(model)
    with started(model, optimizer) as watching:
        train(model, optimizer)
        with pytest.warns(PtoaWarning, match="no single value"):
            watching.step(given)
        train(model, optimizer)
        watching.step(given)  # a second warning would be an error
        assert watching.frames[0].loss is None


class WithLoss(nn.Module):
    """Returns its loss in one of the usual ways."""

    def __init__(self, how):
        super().__init__()
        self.how, self.fc = how, nn.Linear(8, 1)

    def forward(self, x):
        y = self.fc(x)
        loss = y.pow(2).mean()
        return {"tuple": (y, loss), "dict": {"loss": loss, "logits": y}, "loss": loss, "none": (y, None)}[
            self.how
        ]


@pytest.mark.parametrize("how", ["tuple", "dict", "loss"])
def test_a_scalar_loss_in_the_models_output_is_taken(how):
    model = WithLoss(how)
    expected = model.fc(batch()).pow(2).mean().item()

    def loss_of(_):
        output = model(batch())
        return {"tuple": lambda: output[1], "dict": lambda: output["loss"], "loss": lambda: output}[how]()

    optimizer = sgd(model)
    with started(model, optimizer) as watching:
        loss_of(0).backward()
        optimizer.step()
        assert watching.step() is not None
        assert watching.frames[0].loss == pytest.approx(expected)


def test_a_model_that_returns_no_loss_leaves_it_unknown():
    model = WithLoss("none")
    frame = one_frame(model, loss_of=lambda _: model(batch())[0].sum() * 1.0)
    assert frame.loss is not None
    optimizer = sgd(model)
    with started(model, optimizer) as watching:
        model(batch())[0].sum().backward()
        optimizer.step()
        watching.step()
        assert watching.frames[0].loss is None
        assert watching.frames[0].nonFinite is None


def test_the_graph_of_a_loss_is_not_kept():
    model = small()
    optimizer = sgd(model)
    with started(model, optimizer, every=2) as watching:
        for step in range(2):
            output = model(batch(step))
            saved = weakref.ref(output)  # the graph of the square keeps it
            loss = output.pow(2).mean()
            watching.step(loss)
            del loss, output
            gc.collect()
            assert saved() is None


# ── steps ────────────────────────────────────────────────────────────────────


def test_accumulated_gradients_count_as_one_step_and_say_how_many_losses_they_are_of():
    model = small()
    optimizer = sgd(model)
    plain = copy.deepcopy(model)
    for part in range(4):
        (plain(batch(part)).pow(2).mean() / 4).backward()
    with started(model, optimizer) as watching:
        for part in range(4):
            loss = model(batch(part)).pow(2).mean() / 4
            loss.backward()
            watching.log(loss)
        optimizer.step()
        frame = watching.step()
    assert watching.step_count == 1
    assert frame.gradNorm == pytest.approx(norm(p.grad for p in plain.parameters()), rel=1e-6)
    assert (frame.extra["forwards"], frame.extra["lossCount"]) == (4, 4)


def test_without_an_optimizer_step_counts():
    model = small()
    optimizer = sgd(model)
    before = copy.deepcopy(model)
    with started(model) as watching:
        train(model, optimizer, watching)
        frame = watching.frames[0]
    assert watching.step_count == 1
    grads = norm(p.grad for p in model.parameters())
    assert frame.gradNorm == pytest.approx(grads, rel=1e-6)
    old = norm(p.detach() for p in before[0].parameters())
    moved = norm((p - q).detach() for p, q in zip(model[0].parameters(), before[0].parameters(), strict=True))
    assert frame.blocks[0].weightNorm == pytest.approx(old, rel=1e-6)
    assert frame.blocks[0].updateRatio == pytest.approx(moved / old, rel=1e-4)


class Wrapper:
    """An optimizer's wrapper without hooks of its own."""

    def __init__(self, inner, name="inner"):
        self.__dict__[name] = inner
        self.step, self.zero_grad = inner.step, inner.zero_grad


def test_a_wrapper_that_hides_its_optimizer_is_counted_by_step():
    model = small()
    wrapper = Wrapper(sgd(model))
    with started(model, wrapper) as watching:
        train(model, wrapper, watching, steps=3)
        assert [frame.step for frame in watching.frames] == [0, 1, 2]


def test_a_wrapper_that_shows_its_optimizer_is_counted_by_its_real_steps():
    model = small()
    wrapper = Wrapper(sgd(model), "optimizer")
    with started(model, wrapper) as watching:
        train(model, wrapper, steps=3)
        watching.step()
        watching.step()
        assert watching.step_count == 3


@pytest.mark.parametrize("every", [1, 2, 5])
def test_an_optimizer_that_was_made_anew_is_counted_and_said_once(every):
    model = small()
    first = sgd(model)
    with started(model, first, every=every) as watching:
        train(model, first, watching, steps=3)
        second = torch.optim.Adam(model.parameters(), lr=0.5)
        with pytest.warns(PtoaWarning, match="another optimizer steps in the place") as caught:
            losses = train(model, second, watching, steps=14, seed=3)
        assert len(caught) == 1
        assert watching.step_count >= 14
        last = watching.frames[-1]
        assert last.lr == 0.5
        assert last.loss in [pytest.approx(float(loss)) for loss in losses]
        assert last.blocks[0].updateRatio is not None


def test_losses_of_accumulated_batches_and_other_models_steps_change_no_count():
    model, other = small(), small()
    optimizer, strange = sgd(model), sgd(other)
    with started(model, optimizer) as watching:
        for batch_number in range(16):
            loss = model(batch(batch_number)).pow(2).mean()
            loss.backward()
            other(batch()).sum().backward()
            strange.step()
            if batch_number % 8 == 7:
                optimizer.step()
                optimizer.zero_grad()
            watching.step(loss)
        assert watching.step_count == 2
        assert [frame.step for frame in watching.frames] == [0, 1]


def test_a_closure_gives_the_gradients_after_its_last_evaluation():
    model = small()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)

    def closure():
        optimizer.zero_grad()
        loss = model(batch()).pow(2).mean()
        loss.backward()
        return loss

    with started(model, optimizer) as watching:
        optimizer.step(closure)
        frame = watching.step()
        assert watching.step_count == 1
    assert frame.gradNorm == pytest.approx(norm(p.grad for p in model.parameters()), rel=1e-6)


def test_two_backward_passes_before_a_step_make_one_frame_of_their_sum():
    model = small()
    optimizer = sgd(model)
    plain = copy.deepcopy(model)
    y = plain(batch())
    (y.mean() + y.pow(2).mean()).backward()
    with started(model, optimizer) as watching:
        y = model(batch())
        y.mean().backward(retain_graph=True)
        y.pow(2).mean().backward()
        optimizer.step()
        frame = watching.step()
        assert len(watching.frames) == 1
    assert frame.gradNorm == pytest.approx(norm(p.grad for p in plain.parameters()), rel=1e-5)
    assert frame.blocks[0].extra["backwards"] == 2


def test_forwards_without_gradients_or_in_eval_leave_no_trace():
    model = small()
    optimizer = sgd(model)
    plain = one_frame(copy.deepcopy(model))
    with started(model, optimizer) as watching:
        model.eval()
        model(batch(7))
        with torch.no_grad():
            model(batch(8))
        model.train()
        with torch.no_grad():
            model(batch(9))
        with torch.inference_mode():
            model(batch(10))
        train(model, optimizer, watching)
        [frame] = watching.frames
    assert frame.blocks[0].act == plain.blocks[0].act
    assert "forwards" not in frame.extra


def test_a_model_that_trains_in_eval_mode_is_measured_from_its_second_frame_on():
    model = small().eval()
    optimizer = sgd(model)
    with started(model, optimizer) as watching:
        train(model, optimizer, watching, steps=2)
        first, second = watching.frames
    assert first.blocks[0].act is None
    assert first.blocks[0].extra["missing"]["act"]
    assert second.blocks[0].act is not None


# ── scaled gradients ─────────────────────────────────────────────────────────


def scaler_of(scale: float, **options):
    if not hasattr(torch.amp, "GradScaler"):
        pytest.skip("this torch scales no losses on the CPU")
    return torch.amp.GradScaler("cpu", init_scale=scale, **options)


@pytest.mark.parametrize(
    "make",
    [
        lambda m: torch.optim.Adam(m.parameters(), lr=LR),
        lambda m: torch.optim.Adam(m.parameters(), lr=LR, fused=True),
        sgd,
    ],
    ids=["adam", "fused-adam", "sgd"],
)
@pytest.mark.parametrize("clip", [False, True], ids=["plain", "clipped"])
def test_gradients_under_a_loss_scaler_are_those_of_a_run_without(make, clip):
    model, scaler = small(), scaler_of(1024.0)
    plain = copy.deepcopy(model)
    y = plain(batch()).pow(2).mean()
    arriving = []
    plain[2].register_full_backward_hook(lambda m, i, o: arriving.append(o[0]))
    plain(batch()).pow(2).mean().backward()
    del y
    if clip:
        torch.nn.utils.clip_grad_norm_(plain.parameters(), 0.01)
    optimizer = make(model)
    with started(model, optimizer) as watching:
        scaler.scale(model(batch()).pow(2).mean()).backward()
        if clip:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        scaler.step(optimizer)
        scaler.update()
        frame = watching.step()
    assert frame.gradNorm == pytest.approx(norm(p.grad for p in plain.parameters()), rel=1e-5)
    assert frame.blocks[0].weightGradNorm == pytest.approx(
        norm(p.grad for p in plain[0].parameters()), rel=1e-5
    )
    assert frame.blocks[2].grad.absMax == pytest.approx(arriving[0].abs().max().item(), rel=1e-5)


def scaled_step(model, optimizer, scaler, spoil=False):
    loss = model(batch()).pow(2).mean()
    scaler.scale(loss * math.inf if spoil else loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()


@pytest.mark.filterwarnings("ignore:ptoa")
def test_a_step_that_the_scaler_skips_is_no_step_and_the_next_frame_says_so():
    model, scaler = small(), scaler_of(1024.0)
    optimizer = sgd(model)
    with started(model, optimizer) as watching:
        scaled_step(model, optimizer, scaler, spoil=True)
        watching.step()
        assert watching.step_count == 0
        scaled_step(model, optimizer, scaler)
        frame = watching.step()
    assert (frame.step, frame.extra["skippedSteps"]) == (0, 1)
    assert frame.blocks[0].grad.infCount == frame.blocks[0].grad.nanCount == 0
    assert math.isfinite(frame.gradNorm)


@pytest.mark.filterwarnings("ignore:ptoa")
def test_a_fused_step_that_changes_nothing_is_marked_and_has_no_update():
    model, scaler = small(), scaler_of(1024.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=LR, fused=True)
    with started(model, optimizer) as watching:
        scaled_step(model, optimizer, scaler, spoil=True)
        frame = watching.step()
    assert frame.extra["skipped"] is True
    assert frame.blocks[0].updateRatio is None


# ── models that broke other watchers ─────────────────────────────────────────


def test_a_frozen_block_says_so():
    model = small()
    model[0].requires_grad_(False)
    row = one_frame(model).blocks[0]
    assert row.act is not None
    assert row.weightGradNorm is None
    assert row.extra["missing"] == {"grad": "its output needs no gradient", "weightGradNorm": "frozen"}


def test_an_inplace_operation_after_a_block_does_not_change_what_was_measured():
    model = small()
    expected = tensor_stats(model[0](batch()))
    model[1] = nn.ReLU(inplace=True)
    row = one_frame(model).blocks[0]
    assert row.act.absMax == pytest.approx(expected.absMax, rel=1e-7)
    assert row.act.zeroFrac == 0.0
    assert row.grad is not None


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.act = nn.Linear(8, 8), nn.Linear(8, 8), nn.ReLU()

    def forward(self, x):
        return self.act(self.b(self.act(self.a(x))))


def test_a_module_that_is_called_twice_has_a_row_a_call():
    torch.manual_seed(0)
    model = Twice()
    first = model.act(model.a(batch()))
    second = model.act(model.b(first))
    rows = {row.id: row for row in one_frame(model).blocks}
    assert rows["f0"].act.mean == pytest.approx(first.mean().item(), rel=1e-5)
    assert rows["f1"].act.mean == pytest.approx(second.mean().item(), rel=1e-5)
    assert rows["f0"].grad.absMax != rows["f1"].grad.absMax


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens):
        return self.head(self.table(tokens))


def test_tied_weights_count_once():
    torch.manual_seed(0)
    model = Tied()
    tokens = torch.arange(6).view(2, 3)
    frame = one_frame(model, loss_of=lambda _: model(tokens).pow(2).mean())
    assert frame.gradNorm == pytest.approx(norm([model.table.weight.grad]), rel=1e-6)
    assert [row.weightNorm is not None for row in frame.blocks] == [True, False]


@pytest.mark.parametrize("optimizer", [torch.optim.SparseAdam, torch.optim.SGD], ids=["sparse-adam", "sgd"])
def test_a_sparse_gradient_has_the_norm_of_its_sum(optimizer):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(10, 4, sparse=True))
    tokens = torch.tensor([[1, 1, 2]])
    frame = one_frame(model, optimizer(model.parameters(), lr=LR), lambda _: model(tokens).sum())
    assert frame.gradNorm == pytest.approx(math.sqrt(4 * (2**2 + 1**2)))


class Checkpointed(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.reentrant = reentrant
        self.first, self.block, self.last = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 1)

    def forward(self, x):
        x = self.first(x)
        return self.last(checkpoint(self.block, x, use_reentrant=self.reentrant))


@pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "non-reentrant"])
def test_a_checkpointed_block_counts_once_and_has_its_gradient(reentrant):
    torch.manual_seed(0)
    model = Checkpointed(reentrant)
    x = model.first(batch())
    inner = model.block(x)
    inner.retain_grad()
    model.last(inner).pow(2).mean().backward()
    model.zero_grad()
    frame = one_frame(model)
    row = next(row for row in frame.blocks if row.id == "l1")
    assert row.act.absMax == pytest.approx(inner.abs().max().item(), rel=1e-6)
    assert row.grad.absMax == pytest.approx(inner.grad.abs().max().item(), rel=1e-5)
    assert "calls" not in row.extra
    assert "backwards" not in row.extra
    assert "forwards" not in frame.extra


def test_a_frozen_part_that_runs_without_gradients_has_its_activations():
    class Backbone(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(8, 8), nn.Linear(8, 1)

        def forward(self, x):
            with torch.no_grad():
                x = self.body(x)
            return self.head(x)

    rows = one_frame(Backbone()).blocks
    assert rows[0].act is not None
    assert rows[0].extra["missing"]["grad"] == "its output needs no gradient"


class Generated(nn.Module):
    """Returns something that is no tensor."""

    def __init__(self, how):
        super().__init__()
        self.how, self.scale = how, nn.Parameter(torch.ones(8))

    def forward(self, x):
        return {"none": None, "text": "x", "iterator": iter([x]), "nested": [[{"q": (None, x)}]]}[self.how]


@pytest.mark.parametrize("how", ["none", "text", "iterator", "nested"])
def test_outputs_of_every_shape_are_left_as_they_are(how):
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.odd, self.fc = Generated(how), nn.Linear(8, 1)
            self.seen = []

        def forward(self, x):
            output = self.odd(x)
            self.seen.append(list(output) if how == "iterator" else output)
            return self.fc(x)

    model = Odd()
    frame = one_frame(model)
    assert frame.loss is not None
    if how == "iterator":
        assert len(model.seen[-1]) == 1


# ── mlp and attention ────────────────────────────────────────────────────────


class Heads(nn.Module):
    def __init__(self, how, heads=2, width=8):
        super().__init__()
        self.how, self.num_heads = how, heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def probs(self, x):
        q, k, v = (
            part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1)
        )
        mask = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        return (
            q,
            k,
            v,
            torch.softmax((q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).masked_fill(mask, -math.inf), -1),
        )

    def forward(self, x):
        q, k, v, probs = self.probs(x)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True) if self.how == "sdpa" else probs @ v
        return self.proj(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.norm, self.attn = nn.LayerNorm(8), Heads(how)
        self.mlp = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, x):
        x = x + self.attn(self.norm(x))
        return x + self.mlp(x)


@pytest.mark.parametrize("how", ["sdpa", "softmax"])
def test_attention_gives_entropy_and_pattern_of_each_head(how):
    torch.manual_seed(0)
    model = Block(how)
    x = torch.randn(3, 5, 8)
    probs = model.attn.probs(model.norm(x))[3].detach()
    frame = one_frame(model, loss_of=lambda _: model(x).pow(2).mean())
    row = next(row for row in frame.blocks if row.id == "a0")
    entropy = -(probs.double() * (probs.double() + 1e-300).log()).sum(-1).mean((0, 2))
    assert row.headEntropy == pytest.approx(entropy.tolist(), rel=1e-5)
    assert row.extra["entropySample"] == 3
    assert [pattern.head for pattern in row.headPattern] == [0, 1]
    values = array("f", base64.b64decode(row.headPattern[1].b64))
    assert list(values) == pytest.approx(probs[0, 1].flatten().tolist(), abs=1e-6)


def test_patterns_beyond_the_room_of_a_frame_take_turns_and_are_named(monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(probe, "PatternTurns", partial(PatternTurns, room=400))  # one block's 5 by 5, twice
    model = nn.Sequential(Block("sdpa"), Block("softmax"), Block("sdpa"))
    optimizer = sgd(model)
    with started(model, optimizer) as watching:
        train(model, optimizer, watching, 4, loss_of=lambda _: model(torch.randn(3, 5, 8)).pow(2).mean())
    shown = []
    for frame in watching.frames:
        rows = [row for row in frame.blocks if row.headEntropy is not None]
        shown += [row.id for row in rows if row.headPattern is not None]
        assert frame.extra["patternsOmitted"] == [row.id for row in rows if row.headPattern is None]
        assert len(rows) == 3
    assert shown == ["a0", "a1", "a2", "a0"]


def test_attention_false_looks_at_no_probabilities():
    model = Block("softmax")
    frame = one_frame(model, loss_of=lambda _: model(torch.randn(1, 4, 8)).mean(), attention=False)
    assert all(row.headEntropy is None and row.headPattern is None for row in frame.blocks)


def test_an_mlp_shows_its_inner_activation():
    torch.manual_seed(0)
    model = Block("sdpa")
    with torch.no_grad():
        model.mlp[0].bias.fill_(-100.0)
    frame = one_frame(model, loss_of=lambda _: model(torch.randn(2, 4, 8)).pow(2).mean())
    row = next(row for row in frame.blocks if row.id == "m0")
    assert row.hidden.zeroFrac == 1.0
    assert row.act.zeroFrac < 1.0


# ── NaN and Inf ──────────────────────────────────────────────────────────────


def test_the_first_block_that_makes_nan_or_inf_is_named_once():
    model = small()
    with torch.no_grad():
        model[0].weight.fill_(3e38)  # finite, unlike what comes of it
    optimizer = sgd(model)
    with started(model, optimizer) as watching:
        first = r"step 0: the output of block l0 \(0\) is the first to hold"
        with pytest.warns(PtoaWarning, match=first) as caught:
            train(model, optimizer, watching, steps=3)
        assert len(caught) == 1
        assert watching.frames[0].loss is None
        assert watching.frames[0].nonFinite["loss"] in ("nan", "inf")


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda m, x: x.fill_(math.nan), "input already holds"),
        (lambda m, x: m[2].weight.data.fill_(math.inf), r"the weights of block l1 \(2\) held Inf already"),
    ],
    ids=["input", "weights"],
)
def test_what_was_not_finite_before_is_no_ones_fault(spoil, text):
    model = small()
    x = batch()
    spoil(model, x)
    optimizer = sgd(model)
    with started(model, optimizer) as watching, pytest.warns(PtoaWarning, match=text):
        train(model, optimizer, watching, loss_of=lambda _: model(x).mean())


def test_a_gradient_that_is_not_finite_is_named():
    model = small()
    optimizer = sgd(model)
    with (
        started(model, optimizer) as watching,
        pytest.warns(PtoaWarning, match=r"gradient arriving at block l1"),
    ):
        train(model, optimizer, watching, loss_of=lambda _: (model(batch()) * 0).abs().sqrt().sum())


def test_warn_nonfinite_false_says_nothing():
    model = small()
    frame = one_frame(model, loss_of=lambda _: model(batch()).mean() * math.nan, warn_nonfinite=False)
    assert frame.nonFinite["loss"] == "nan"


# ── validation ───────────────────────────────────────────────────────────────


def test_a_validation_function_is_called_every_val_every_steps_on_one_frame_each():
    model = small()
    optimizer = sgd(model)
    calls = []

    def validate():
        calls.append(torch.is_grad_enabled())
        model.eval()
        torch.rand(1)
        return model(batch(99)).mean()

    state = torch.get_rng_state()
    with started(model, optimizer, every=2, val_loss=validate, val_every=4) as watching:
        train(model, optimizer, watching, steps=7)
        frames = list(watching.frames)
    assert calls == [False, False]
    assert [frame.valLoss is not None for frame in frames] == [True, False, True, False]
    assert all(module.training for module in model.modules())
    assert torch.equal(torch.get_rng_state(), state)


def test_a_failing_validation_is_named_once_and_training_goes_on():
    model = small()
    optimizer = sgd(model)

    def validate():
        raise RuntimeError("no data")

    with started(model, optimizer, val_loss=validate, val_every=1) as watching:
        with pytest.warns(PtoaWarning, match="val_loss .*no data") as caught:
            train(model, optimizer, watching, steps=3)
        assert len(caught) == 1
        assert len(watching.frames) == 3


def test_a_number_and_log_give_a_validation_loss():
    model = small()
    optimizer = sgd(model)
    with started(model, optimizer, val_loss=0.5, val_every=2) as watching:
        train(model, optimizer, watching)
        watching.log(val_loss=torch.tensor(0.75))
        train(model, optimizer, watching)
        assert [frame.valLoss for frame in watching.frames] == [0.5, 0.75]
