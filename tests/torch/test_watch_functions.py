"""Blocks that are written as functions have rows like those that are modules."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from ptoa_torch.stats import tensor_stats
from ptoa_torch.watch import watch


@pytest.fixture(autouse=True)
def no_browser(monkeypatch):
    """No test opens a page."""
    monkeypatch.setenv("PTA_NO_BROWSER", "1")


def frames_of(model, x, steps=1, **options):
    """The frames of some steps on one batch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, optimizer, 1, open=False, run_file=False, **options) as watching:
        for _ in range(steps):
            optimizer.zero_grad()
            model(x).pow(2).sum().backward()
            optimizer.step()
            watching.step()
        return list(watching.frames)


def alike(found, tensor):
    """Whether a row's statistics are a tensor's, counted in float64."""
    exact = tensor_stats(tensor)
    assert found.mean == pytest.approx(exact.mean, rel=1e-4, abs=1e-7)
    assert found.std == pytest.approx(exact.std, rel=1e-4, abs=1e-7)
    assert found.zeroFrac == pytest.approx(exact.zeroFrac, rel=1e-6)
    return True


class Residual(nn.Module):
    """A block with everything between modules; keeps what it computed for the tests."""

    def __init__(self):
        super().__init__()
        self.norm, self.inner, self.outer = nn.BatchNorm1d(8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        self.seen = {}
        y = self.keep("relu", F.relu(self.inner(self.norm(x))))
        x = self.keep("sum", x + F.dropout(self.outer(y), 0.5, self.training))
        return self.keep("norm", F.layer_norm(x, (8,)))

    def keep(self, name, tensor):
        self.seen[name] = tensor
        if tensor.requires_grad:
            tensor.register_hook(lambda grad: self.seen.__setitem__(f"{name} grad", grad))
        return tensor


class Stack(nn.Module):
    def __init__(self, times=2):
        super().__init__()
        self.layers = nn.ModuleList(Residual() for _ in range(times))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def test_residual_adds_norms_and_activations_have_the_statistics_of_their_tensors():
    torch.manual_seed(0)
    model = Stack()
    frame = frames_of(model, torch.randn(6, 8), 2)[1]
    rows = {kind: [row for row in frame.blocks if row.id[0] == kind] for kind in "rmn"}
    assert [len(found) for found in rows.values()] == [2, 2, 2]
    for index, layer in enumerate(model.layers):
        seen = layer.seen
        assert alike(rows["r"][index].act, seen["sum"])
        assert alike(rows["r"][index].grad, seen["sum grad"])
        assert alike(rows["n"][index].act, seen["norm"])
        assert alike(rows["n"][index].grad, seen["norm grad"])
        assert alike(rows["m"][index].hidden, seen["relu"])
        assert rows["r"][index].weightNorm is None


class Twice(nn.Module):
    """One module with a function in it, called twice."""

    def __init__(self):
        super().__init__()
        self.layer = Residual()
        self.sums = []

    def forward(self, x):
        self.sums = []
        for _ in range(2):
            x = self.layer(x)
            self.sums.append(self.layer.seen["sum"].detach())
        return x


def test_a_function_in_a_module_that_is_called_twice_has_a_row_a_call():
    model = Twice()
    frame = frames_of(model, torch.randn(6, 8))[0]
    rows = [row for row in frame.blocks if row.id[0] == "r"]
    assert len(rows) == 2
    assert all(alike(row.act, made) for row, made in zip(rows, model.sums, strict=True))


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        y = self.fc(x)
        self.before = y.detach().clone()
        y += x
        self.after = y.detach().clone()
        return F.relu(y, inplace=True)


def test_each_state_of_a_tensor_that_is_overwritten_is_measured_as_it_was():
    model = InPlace()
    frame = frames_of(model, torch.randn(6, 8))[0]
    rows = {row.id[0]: row for row in frame.blocks}
    assert alike(rows["l"].act, model.before)
    assert alike(rows["r"].act, model.after)
    assert alike(rows["f"].act, F.relu(model.after))


class Fickle(nn.Module):
    """Adds once when it is read and twice from then on."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)
        self.more = False

    def forward(self, x):
        y = self.fc(x)
        if self.more:
            x = x + x
        return y + x


def test_functions_that_run_another_number_of_times_are_named_and_not_guessed_at():
    model, x = Fickle(), torch.randn(4, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, optimizer, 1, open=False, run_file=False) as watching:
        for step in range(2):
            model.more = step == 1
            model(x).sum().backward()
            optimizer.step()
            watching.step()
        first, second = ({row.id[0]: row for row in frame.blocks} for frame in watching.frames)
    assert first["r"].act is not None
    assert second["r"].act is None
    assert "another number of times" in second["r"].extra["missing"]["act"]
    assert second["l"].act is not None


class Checkpointed(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.first, self.layer, self.last = nn.Linear(8, 8), Residual(), nn.Linear(8, 1)
        self.reentrant = reentrant

    def forward(self, x):
        x = self.first(x)
        if self.reentrant is None:
            return self.last(self.layer(x))
        return self.last(checkpoint(self.layer, x, use_reentrant=self.reentrant))


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_function_in_a_checkpointed_module_counts_once_and_has_its_gradient(reentrant):
    x, frames = torch.randn(6, 8), {}
    for how in (None, reentrant):
        torch.manual_seed(0)
        frames[how] = frames_of(Checkpointed(how), x)[0]
    for plain, again in zip(frames[None].blocks, frames[reentrant].blocks, strict=True):
        assert again.act == plain.act
        assert again.grad == plain.grad
        assert "calls" not in again.extra
        assert "backwards" not in again.extra


def test_an_exception_in_a_forward_leaves_no_mode_and_no_hook():
    class Broken(Stack):
        def forward(self, x):
            x = super().forward(x)
            if self.fails:
                raise KeyboardInterrupt
            return x

    model = Broken()
    model.fails = False
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, optimizer, 1, open=False, run_file=False) as watching:
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
        watching.step()
        model.fails = True
        with pytest.raises(KeyboardInterrupt):
            model(torch.randn(4, 8))
        assert torch._C._len_torch_function_stack() == 0
        assert not any("forward" in vars(module) for module in model.modules())
        assert not any(module._forward_hooks for module in model.modules())


# ── dead units ────────────────────────────────────────────────────────────────


class Half(nn.Module):
    """A quarter of its units never pass the activation."""

    def __init__(self, kind, image=False):
        super().__init__()
        self.fc = nn.Conv2d(1, 8, 1) if image else nn.Linear(8, 8)
        self.act = kind
        with torch.no_grad():
            self.fc.weight.zero_()
            self.fc.bias.copy_(torch.tensor([-1.0, -1.0, 1, 1, 1, 1, 1, 1]))

    def forward(self, x):
        return self.act(self.fc(x))


@pytest.mark.parametrize(
    ("kind", "share"),
    [(nn.ReLU(), 0.25), (F.relu, 0.25), (nn.GELU(), 0.25), (F.silu, 0.25), (nn.Tanh(), None)],
    ids=["module", "function", "gelu", "silu", "tanh"],
)
@pytest.mark.parametrize("image", [False, True], ids=["rows", "images"])
def test_the_share_of_units_that_are_never_active_is_told_from_the_share_of_zeros(kind, share, image):
    x = torch.randn(4, 1, 3, 3) if image else torch.randn(4, 8)
    row = next(row for row in frames_of(Half(kind, image), x)[0].blocks if row.id[0] == "f")
    assert row.act.extra.get("deadFrac") == share


def test_a_healthy_relu_has_zeros_and_no_dead_unit():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    row = frames_of(model, torch.randn(256, 8))[0].blocks[1]
    assert row.act.zeroFrac > 0.3
    assert row.act.extra["deadFrac"] == 0.0


# ── what blocks say of themselves ─────────────────────────────────────────────


class Multihead(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        return x + self.attn(x, x, x, need_weights=False)[0]


def test_multihead_attention_is_one_block_with_the_weights_of_its_output_projection():
    torch.manual_seed(0)
    model = Multihead()
    weights = [parameter.detach().double() for parameter in model.parameters()]
    rows = {row.id[0]: row for row in frames_of(model, torch.randn(2, 3, 8))[0].blocks}
    assert rows["a"].weightNorm == pytest.approx(
        math.sqrt(sum(float((w**2).sum()) for w in weights)), rel=1e-5
    )
    assert len(rows["a"].headEntropy) == 2
    assert rows["r"].act is not None


class Unused(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.rare = nn.Linear(8, 8), nn.Linear(8, 8)
        self.skip = False

    def forward(self, x):
        return self.used(x) if self.skip else self.rare(self.used(x))


def test_a_block_that_did_not_run_says_so():
    model, x = Unused(), torch.randn(4, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, optimizer, 1, open=False, run_file=False) as watching:
        for step in range(2):
            model.skip = step == 1
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
            watching.step()
        missing = watching.frames[1].blocks[1].extra["missing"]
    assert missing["act"] == "did not run in this step"
    assert missing["weightGradNorm"] == "no gradient at the step"


# ── attention's largest logit ─────────────────────────────────────────────────


class Scored(nn.Module):
    """Attention in one of the usual ways; its scores are computed beside it."""

    def __init__(self, how):
        super().__init__()
        self.how, self.num_heads = how, 2
        self.qkv, self.proj = nn.Linear(8, 24), nn.Linear(8, 8)

    def scores(self, x):
        q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        mask = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        return q, k, v, (q @ k.transpose(-2, -1) / 2).masked_fill(mask, -math.inf)

    def forward(self, x):
        q, k, v, scores = self.scores(x)
        if self.how == "sdpa":
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            mixed = torch.softmax(scores, -1) @ v
        return self.proj(mixed.transpose(1, 2).flatten(2))


class Around(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.attn = Scored(how)

    def forward(self, x):
        return x + self.attn(x)


@pytest.mark.parametrize("how", ["sdpa", "softmax"])
def test_attention_has_its_largest_logit(how):
    torch.manual_seed(0)
    model, x = Around(how), torch.randn(3, 5, 8)
    right = [model.attn.scores(x)[3].max().item()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, optimizer, 1, open=False, run_file=False) as watching:
        for _ in range(2):
            optimizer.zero_grad()
            model(x).pow(2).sum().backward()
            optimizer.step()
            watching.step()
            right.append(model.attn.scores(x)[3].max().item())
        rows = [next(row for row in frame.blocks if row.id == "a0") for frame in watching.frames]
    assert [row.extra["maxLogit"] for row in rows] == pytest.approx(right[:2], rel=1e-5)


def test_multihead_attention_has_its_largest_logit():
    torch.manual_seed(0)
    model, x = Multihead(), torch.randn(2, 3, 8)
    q, k, _ = F.linear(x, model.attn.in_proj_weight, model.attn.in_proj_bias).chunk(3, -1)
    q, k = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in (q, k))
    right = (q @ k.transpose(-2, -1) / 2).max().item()
    row = next(row for row in frames_of(model, x)[0].blocks if row.id == "a0")
    assert row.extra["maxLogit"] == pytest.approx(right, rel=1e-5)
