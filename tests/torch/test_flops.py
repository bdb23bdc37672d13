"""Operations of a pass: formulas by hand, and torch's own counter as a second answer."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ptoa_torch import Inputs, analyze, from_module


class Fn(nn.Module):
    """A function as a model."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def total(model, *args):
    """The operations of all blocks."""
    return sum(b.params.extra.get("flops", 0) for b in from_module(model, Inputs(args, {})).blocks)


B, T, D, H = 2, 5, 8, 4
X, W = torch.ones(B, T, D), torch.ones(D, 6)
HEADS = torch.ones(B, H, T, D)


@pytest.mark.parametrize(
    ("model", "args", "want"),
    [
        pytest.param(nn.Linear(D, 6), (X,), 2 * B * T * D * 6, id="linear"),
        pytest.param(nn.Linear(D, 6, bias=False), (torch.ones(D),), 2 * D * 6, id="linear-of-one-vector"),
        pytest.param(Fn(torch.matmul), (X, W), 2 * B * T * D * 6, id="matmul"),
        pytest.param(Fn(lambda x, w: w.__rmatmul__(x)), (X, W), 2 * B * T * D * 6, id="matmul-reflected"),
        pytest.param(Fn(torch.mv), (torch.ones(3, 4), torch.ones(4)), 2 * 3 * 4, id="matrix-vector"),
        pytest.param(Fn(torch.bmm), (X, torch.ones(B, D, 3)), 2 * B * T * D * 3, id="bmm"),
        pytest.param(Fn(torch.addmm), (torch.ones(6), X[0], W), 2 * T * D * 6, id="addmm"),
        pytest.param(
            Fn(torch.baddbmm), (torch.ones(B, T, 3), X, torch.ones(B, D, 3)), 2 * B * T * D * 3, id="baddbmm"
        ),
        pytest.param(
            Fn(torch.addbmm), (torch.ones(T, 3), X, torch.ones(B, D, 3)), 2 * B * T * D * 3, id="addbmm"
        ),
        pytest.param(
            Fn(lambda a, b: torch.einsum("bid,bjd->bij", a, b)), (X, X), 2 * B * T * T * D, id="einsum"
        ),
        pytest.param(
            Fn(lambda a, b: torch.einsum("i,j->ij", a, b)), (X[0, 0], X[0, 0]), 0, id="einsum-outer"
        ),
        pytest.param(
            Fn(lambda a, b, c: torch.einsum("ij,jk,kl->il", a, b, c)),
            (torch.ones(2, 3), torch.ones(3, 4), torch.ones(4, 5)),
            2 * 2 * 3 * 4 + 2 * 2 * 4 * 5,
            id="einsum-of-three",
        ),
        pytest.param(Fn(lambda a, b: torch.tensordot(a, b, 1)), (X, W), 2 * B * T * D * 6, id="tensordot"),
        pytest.param(nn.Bilinear(D, 3, 6), (X, torch.ones(B, T, 3)), 2 * B * T * D * 3 * 6, id="bilinear"),
        pytest.param(
            nn.Conv2d(4, 6, 3, padding=1), (torch.ones(B, 4, 7, 7),), 2 * B * 49 * 6 * 4 * 9, id="convolution"
        ),
        pytest.param(
            nn.Conv2d(4, 8, 3, groups=4),
            (torch.ones(B, 4, 7, 7),),
            2 * B * 25 * 8 * 9,
            id="grouped-convolution",
        ),
        pytest.param(
            nn.ConvTranspose1d(4, 6, 2, 2), (torch.ones(B, 4, 5),), 2 * B * 5 * 4 * 6 * 2, id="transposed"
        ),
        pytest.param(
            Fn(F.scaled_dot_product_attention),
            (HEADS, HEADS, HEADS),
            4 * B * H * T * T * D,
            id="fused-attention",
        ),
        pytest.param(
            Fn(F.scaled_dot_product_attention),
            (HEADS, HEADS[:, :, :3], HEADS[:, :, :3, :6]),
            2 * B * H * T * 3 * (D + 6),
            id="attention-over-other-sizes",
        ),
        pytest.param(
            nn.LSTM(D, 6, 2, batch_first=True), (X,), 2 * B * T * 4 * 6 * (D + 6 + 6 + 6), id="recurrent"
        ),
        pytest.param(nn.GRUCell(D, 6), (X[0],), 2 * T * 3 * 6 * (D + 6), id="recurrent-cell"),
        pytest.param(nn.LayerNorm(D), (X,), 0, id="norm"),
        pytest.param(nn.Sequential(nn.ReLU(), nn.Softmax(-1)), (X,), 0, id="number-by-number"),
    ],
)
def test_operations_are_two_for_each_multiply_add(model, args, want):
    """The formula of each function, written out."""
    assert total(model, *args) == want


def test_multi_head_attention_counts_its_projections_and_its_scores():
    """Three projections and one out of it, 2 * m * n * k each, and 4 * B * T * S * d between."""
    model = nn.MultiheadAttention(8, 2, batch_first=True, kdim=6, vdim=4)
    seen = 7
    want = 2 * B * (2 * T * 8 * 8 + seen * 8 * (6 + 4)) + 4 * B * T * seen * 8
    assert total(model, X, torch.ones(B, seen, 6), torch.ones(B, seen, 4)) == want


class Scratch(nn.Module):
    """Attention written out, and a position product that depends on nothing."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(D, D) for _ in range(4))
        self.register_buffer("turn", torch.ones(3, 2))

    def forward(self, x):
        angle = torch.arange(x.shape[1])[:, None].float() @ self.turn[:1]
        scores = self.q(x) @ self.k(x).transpose(1, 2) * D**-0.5 + angle.sum()
        return self.o(scores.softmax(-1) @ self.v(x))


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(Scratch, id="attention-written-out"),
        pytest.param(lambda: nn.TransformerEncoderLayer(D, 2, 16, batch_first=True), id="encoder-layer"),
        pytest.param(
            lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(D, 2, 16, batch_first=True), 3),
            id="encoder",
        ),
        pytest.param(lambda: nn.Sequential(nn.Linear(D, 3), nn.GELU(), nn.Linear(3, D)), id="layers"),
    ],
)
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_torchs_own_counter_says_the_same(build, monkeypatch):
    """It looks into no fused kernel, so the counted pass runs without them."""
    counter_of = pytest.importorskip(
        "torch.utils.flop_counter", reason="this torch has no counter of its own"
    )
    model = build().eval()
    found = total(model, X)
    monkeypatch.setattr(F, "scaled_dot_product_attention", _plain)
    # With a gradient to come no layer takes the fused fast path, which the counter cannot see into.
    with counter_of.FlopCounterMode(display=False) as counter:
        model(X)
    assert found == counter.get_total_flops() > 0


def _plain(query, key, value, *_args, **_settings):
    return (query @ key.transpose(-1, -2)).softmax(-1) @ value


def test_work_that_is_not_drawn_counts_with_the_block_that_reads_it():
    """The product of positions belongs to the attention it turns."""
    blocks = from_module(Scratch(), X).blocks
    (attention,) = [b for b in blocks if b.kind == "attention"]
    assert attention.params.extra["flops"] == 2 * B * T * D * D * 4 + 4 * B * T * T * D + 2 * T * 2


def test_a_trace_that_did_not_run_says_no_operations():
    """They are those of a recorded pass."""
    assert all("flops" not in b.params.extra for b in from_module(nn.Linear(D, 2)).blocks)


def test_a_module_whose_inside_was_not_seen_says_no_operations():
    """A count that is partly unknown is left out, not given too low."""

    class Hidden(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(D, D))

        def forward(self, x):
            with torch._C.DisableTorchFunction():
                return torch.from_numpy((x @ self.w).numpy())

    found = analyze(nn.Sequential(Hidden(), nn.Linear(D, 2)), X)
    assert [b.params.extra.get("flops") for b in found.spec.blocks if b.inputs] == [None, 2 * B * T * D * 2]
