"""Sublayers, heads, positions and ties, compared with what the constructors were given."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ptoa_torch import analyze, from_module

V, D, H, T, L = 31, 16, 4, 6, 2


class Attention(nn.Module):
    """Attention with separate projections, so that each spelling of its core can be tried."""

    def __init__(self, core, kv_heads=H, bias=True):
        super().__init__()
        size = D // H
        self.num_heads, self.core, self.kv = H, core, kv_heads
        self.q, self.o = nn.Linear(D, D, bias=bias), nn.Linear(D, D, bias=bias)
        self.k, self.v = nn.Linear(D, kv_heads * size, bias=bias), nn.Linear(D, kv_heads * size, bias=bias)

    def forward(self, x):
        b, t, _ = x.shape
        q = self.q(x).view(b, t, H, -1).transpose(1, 2)
        k, v = (f(x).view(b, t, self.kv, -1).transpose(1, 2) for f in (self.k, self.v))
        if self.kv != H:
            k, v = (z.repeat_interleave(H // self.kv, 1) for z in (k, v))
        return self.o(self.core(q, k, v).transpose(1, 2).reshape(b, t, D))


def sdpa_causal(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def sdpa_full(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


def sdpa_mask(q, k, v):
    t = q.shape[-2]
    return F.scaled_dot_product_attention(q, k, v, torch.tril(torch.ones(t, t, dtype=torch.bool)))


def sdpa_float_mask(q, k, v):
    t = q.shape[-2]
    return F.scaled_dot_product_attention(q, k, v, torch.full((t, t), -math.inf).triu(1))


def sdpa_padding(q, k, v):
    mask = torch.ones(q.shape[0], 1, 1, q.shape[-2], dtype=torch.bool)
    mask[:, ..., -1] = False
    return F.scaled_dot_product_attention(q, k, v, mask)


def written_full(q, k, v):
    return torch.softmax(q @ k.transpose(-1, -2) / 2, -1) @ v


def written_causal(q, k, v):
    scores = q @ k.transpose(-1, -2)
    t = q.shape[-2]
    return F.softmax(scores.masked_fill(torch.ones(t, t).triu(1).bool(), -math.inf), -1) @ v


def written_bmm(q, k, v):
    b, h, t, d = q.shape
    q, k, v = (z.reshape(b * h, t, d) for z in (q, k, v))
    return torch.bmm(torch.softmax(torch.bmm(q, k.transpose(1, 2)), -1), v).view(b, h, t, d)


def written_einsum(q, k, v):
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k)
    return torch.einsum("bhqk,bhkd->bhqd", scores.softmax(-1), v)


@pytest.mark.parametrize(
    ("core", "causal"),
    [
        (sdpa_causal, True), (sdpa_full, False), (sdpa_mask, True), (sdpa_float_mask, True),
        (sdpa_padding, False),
        (written_full, False), (written_causal, True), (written_bmm, False), (written_einsum, False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kv_heads", [H, 2, 1])
def test_attention_is_found_by_its_flow(core, causal, kv_heads):
    """Heads, width, key heads and the causal flag come from what ran, whatever spelling the core has."""
    spec = from_module(Wrapped(Attention(core, kv_heads)), torch.randn(2, T, D))
    (block,) = [b for b in spec.blocks if b.kind == "attention"]
    assert (block.params.heads, block.params.d, block.params.causal, block.params.bias) == (
        H,
        D,
        causal,
        True,
    )
    assert block.params.extra.get("kvHeads") == (None if kv_heads == H else kv_heads)
    assert block.params.extra["headDim"] == D // H
    assert block.inputs == ["n0"]
    assert spec.bindings[block.id] == "body"
    assert [b.kind for b in spec.blocks] == ["input", "norm", "attention", "add"]


class Latent(nn.Module):
    """Keys and values of four heads from one narrow projection, a part of each key shared by all heads."""

    def __init__(self):
        super().__init__()
        self.query, self.down, self.norm = nn.Linear(32, 4 * 8), nn.Linear(32, 8 + 4), nn.LayerNorm(8)
        self.up, self.mix = nn.Linear(8, 4 * (4 + 8)), nn.Linear(32, 32)

    def forward(self, x):
        query = self.query(x).unflatten(-1, (4, 8)).transpose(1, 2)
        latent, shared = self.down(x).split([8, 4], -1)
        key, value = self.up(self.norm(latent)).unflatten(-1, (4, 12)).transpose(1, 2).split([4, 8], -1)
        key = torch.cat([key, shared[:, None].expand(*key.shape[:-1], 4)], -1)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.mix(mixed.transpose(1, 2).flatten(2))


def test_a_latent_gives_every_head_keys_of_its_own():
    """The width of the projection from the latent says nothing of heads, though it can be divided."""
    (block,) = (b for b in from_module(Latent(), torch.randn(2, 5, 32)).blocks if b.kind == "attention")
    assert (block.params.heads, block.params.extra["headDim"]) == (4, 8)
    assert "kvHeads" not in block.params.extra


class Wrapped(nn.Module):
    """A sublayer in a pre-norm residual branch."""

    def __init__(self, body):
        super().__init__()
        self.norm, self.body = nn.LayerNorm(D), body

    def forward(self, x):
        return x + self.body(self.norm(x))


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up, self.down = (nn.Linear(D, 3 * D), nn.Linear(D, 3 * D), nn.Linear(3 * D, D))

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class FusedGate(nn.Module):
    def __init__(self):
        super().__init__()
        self.both, self.down = nn.Linear(D, 6 * D), nn.Linear(3 * D, D)

    def forward(self, x):
        gate, up = self.both(x).chunk(2, -1)
        return self.down(up * F.silu(gate))


def sequential(*between):
    return nn.Sequential(nn.Linear(D, 3 * D), *between, nn.Linear(3 * D, D))


class InlineGelu(nn.Module):
    """The error function written out is no gate either."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(D, 3 * D), nn.Linear(3 * D, D)

    def forward(self, x):
        h = self.up(x)
        return self.down(h * 0.5 * (1.0 + torch.erf(h / math.sqrt(2.0))))


class Swish(nn.Module):
    """``x * sigmoid(x)`` written out is no gate."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(D, 3 * D), nn.Linear(3 * D, D)

    def forward(self, x):
        h = self.up(x)
        return self.down(h * torch.sigmoid(h))


@pytest.mark.parametrize(
    ("body", "variant", "gated"),
    [
        pytest.param(lambda: sequential(nn.GELU()), "gelu", None, id="sequential"),
        pytest.param(lambda: sequential(nn.ReLU(), nn.Dropout()), "relu", None, id="dropout-between"),
        pytest.param(InlineGelu, "gelu", None, id="gelu-written-out"),
        pytest.param(Gated, "silu", True, id="gate"),
        pytest.param(FusedGate, "silu", True, id="fused-gate"),
        pytest.param(Swish, "sigmoid", None, id="swish-is-no-gate"),
    ],
)  # fmt: skip
def test_feed_forward_is_found_by_its_flow(body, variant, gated):
    """Width, hidden width, activation and gate are those of the constructor."""
    spec = from_module(Wrapped(body()), torch.randn(2, T, D))
    (block,) = [b for b in spec.blocks if b.kind == "mlp"]
    assert (block.params.d, block.params.hidden, block.params.variant) == (D, 3 * D, variant)
    assert block.params.extra.get("gated") is gated
    assert block.inputs == ["n0"]
    assert not [b for b in spec.blocks if b.kind == "linear"]


def test_a_stack_of_layers_is_no_feed_forward():
    """A classifier's layers stay linear and activation blocks."""
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4), nn.ReLU(), nn.Linear(4, 2))
    kinds = [b.kind for b in from_module(net, torch.randn(1, 8)).blocks]
    assert kinds == ["input", "linear", "activation", "linear", "activation", "linear"]


def _three(layer, x):
    return layer(x).chunk(3, -1)


def _keys_are_queries(layer, x):
    both = layer(x)[..., :8]
    return both, both, x


def _folded(layer, x):
    return [part.unflatten(-1, (2, 4)).transpose(1, 2).flatten(0, 1) for part in layer(x).chunk(3, -1)]


@pytest.mark.parametrize("kernel", [sdpa_full, written_full])
@pytest.mark.parametrize(
    ("split", "made", "heads"),
    [(_three, 24, 1), (_keys_are_queries, 8, 1), (_folded, 24, 2)],
    ids=["one-projection-of-three-parts", "keys-are-queries", "heads-in-the-batch"],
)
def test_heads_are_counted_where_no_axis_is_theirs(split, made, heads, kernel):
    """Queries, keys and values of three axes, from one projection."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.make, self.mix = nn.Linear(8, made), nn.Linear(8, 8)

        def forward(self, x):
            found = kernel(*split(self.make, x))
            return self.mix(found.unflatten(0, (2, -1)).transpose(1, 2).flatten(2))

    attention = next(b for b in from_module(Net(), torch.randn(2, 5, 8)).blocks if b.kind == "attention")
    assert attention.params.heads == heads
    assert "kvHeads" not in attention.params.extra


def test_a_softmax_gate_is_no_attention():
    """A mixture weighted by a softmax has no product of two streams above it."""

    class Mix(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate, self.a = nn.Linear(D, 3), nn.Linear(D, 3 * D)

        def forward(self, x):
            parts = self.a(x).view(*x.shape[:-1], 3, D)
            return (torch.softmax(self.gate(x), -1).unsqueeze(-2) @ parts).squeeze(-2)

    kinds = {b.kind for b in from_module(Mix(), torch.randn(2, D)).blocks}
    assert "attention" not in kinds


class GPT(nn.Module):
    def __init__(self, tie=True, position="learned"):
        super().__init__()
        self.wte, self.head = nn.Embedding(V, D), nn.Linear(D, V, bias=False)
        if tie:
            self.head.weight = self.wte.weight
        self.position = position
        if position == "learned":
            self.table = nn.Embedding(T * 2, D)
        elif position == "parameter":
            self.table = nn.Parameter(torch.randn(1, T, D))
        elif position == "sinusoidal":
            at = torch.arange(T * 2).unsqueeze(1) * torch.exp(torch.arange(0, D, 2) * (-math.log(1e4) / D))
            self.register_buffer("table", torch.stack([at.sin(), at.cos()], -1).flatten(1))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(D, H, 3 * D, batch_first=True, norm_first=True) for _ in range(L)
        )

    def forward(self, ids, targets=None):
        x = self.wte(ids)
        t = ids.shape[1]
        if self.position == "learned":
            x = x + self.table(torch.arange(t, device=ids.device))
        elif self.position == "parameter":
            x = x + self.table
        elif self.position == "sinusoidal":
            x = x + self.table[:t]
        mask = nn.Transformer.generate_square_subsequent_mask(t)
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=True)
        logits = self.head(x)
        if targets is None:
            return logits
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def ids():
    return torch.randint(0, V, (2, T), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("position", "variant", "length"),
    [
        ("learned", "learned", 2 * T),
        ("parameter", "learned", T),
        ("sinusoidal", "sinusoidal", 2 * T),
        ("none", None, None),
    ],
)
def test_positions_are_one_block_that_reads_the_embedding(position, variant, length):
    """Whatever the table is, the sum with it is a posenc block."""
    spec = from_module(GPT(position=position), ids())
    tables = [b for b in spec.blocks if b.kind == "posenc"]
    assert [(b.params.variant, b.params.maxLen, b.params.d, b.inputs) for b in tables] == (
        [(variant, length, D, ["e0"])] if variant else []
    )
    assert sum(b.kind == "add" for b in spec.blocks) == 2 * L


@pytest.mark.parametrize("tie", [True, False])
def test_the_head_says_whether_it_is_tied(tie):
    """A tied head names its embedding and holds no parameters of its own."""
    spec = from_module(GPT(tie), ids())
    head = spec.block("u0")
    assert (head.params.vocab, head.params.d) == (V, D)
    assert (head.params.tiedTo, head.params.bias) == (("e0", None) if tie else (None, False))
    assert head.params.extra["paramCount"] == (0 if tie else V * D)


@pytest.mark.parametrize("tie", [True, False])
def test_parameter_counts_add_up_to_the_model(tie):
    """Shared weights are counted once."""
    net = GPT(tie)
    spec = from_module(net, ids())
    total = sum(b.params.extra.get("paramCount", 0) for b in spec.blocks)
    assert total == sum(p.numel() for p in net.parameters())


def test_encoder_layers_have_their_inline_feed_forward():
    """linear1 and linear2 of nn.TransformerEncoderLayer are one mlp in the layer's container."""
    spec = from_module(GPT(), ids())
    mlps = [b for b in spec.blocks if b.kind == "mlp"]
    assert [(b.params.d, b.params.hidden, b.params.variant) for b in mlps] == [(D, 3 * D, "relu")] * L
    assert [spec.block(b.group).label for b in mlps] == [
        f"layers.{i} (TransformerEncoderLayer)" for i in range(L)
    ]
    assert [spec.bindings[b.id] for b in mlps] == [f"layers.{i}.linear2" for i in range(L)]
    assert all(b.params.causal is True for b in spec.blocks if b.kind == "attention")


def test_a_loss_in_the_forward_is_the_output():
    """Everything leads to it."""
    found = analyze(GPT(), {"ids": ids(), "targets": ids()})
    assert found.spec.output == "x0"
    assert found.spec.block("x0").inputs[0] == "u0"


def test_token_ids_that_count_up_are_still_tokens():
    """An example input of arange does not make a position table of the vocabulary."""
    spec = from_module(GPT(), torch.arange(T).unsqueeze(0))
    assert spec.block("t0").params.vocab == V
    assert [b.params.vocab for b in spec.blocks if b.kind == "embedding"] == [V]


def test_blocks_are_written_containers_first_and_then_in_topological_order():
    """Every input and every group refers to an earlier block."""
    spec = from_module(GPT(), ids())
    seen: set[str] = set()
    for block in spec.blocks:
        assert set(block.inputs) <= seen
        assert block.group is None or block.group in seen
        seen.add(block.id)
    outer = {b.group for b in spec.blocks} - {None}
    assert [b.id in outer for b in spec.blocks] == sorted((b.id in outer for b in spec.blocks), reverse=True)


def test_reuse_is_said_on_each_block():
    """One module called twice, and a block that shares it."""

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.l = nn.Linear(4, 4)

        def forward(self, x):
            return self.l(self.l(x))

    spec = from_module(Twice(), torch.ones(1, 4))
    first, second = spec.block("l0").params.extra, spec.block("l1").params.extra
    assert (first["calls"], first["paramCount"], "sharedWith" in first) == (2, 20, False)
    assert (second["calls"], second["paramCount"], second["sharedWith"]) == (2, 0, "l0")


def test_a_parameter_that_starts_a_path_is_an_embedding_without_inputs():
    """A class token."""

    class ClassToken(nn.Module):
        def __init__(self):
            super().__init__()
            self.cls = nn.Parameter(torch.zeros(1, 1, D))

        def forward(self, x):
            return torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1)

    spec = from_module(ClassToken(), torch.ones(2, T, D))
    token = next(b for b in spec.blocks if b.kind == "embedding")
    assert (token.inputs, token.params.extra["type"], token.params.d) == ([], "parameter", D)
    assert spec.block(spec.output).inputs == [token.id, "i0"]


def test_rotary_positions_are_said_on_the_attention():
    """Queries turned by cosine and sine tables."""

    def rotated(q, k, v):
        angle = torch.arange(q.shape[-2]).unsqueeze(1) * torch.ones(D // H)

        def turn(z):
            half = torch.cat([-z[..., z.shape[-1] // 2 :], z[..., : z.shape[-1] // 2]], -1)
            return z * angle.cos() + half * angle.sin()

        return F.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True)

    spec = from_module(Wrapped(Attention(rotated)), torch.randn(2, T, D))
    assert spec.block("a0").params.extra["positions"] == "rotary"
    assert [b.kind for b in spec.blocks] == ["input", "norm", "attention", "add"]


class MoE(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(D, 3)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(D, 2 * D), nn.GELU(), nn.Linear(2 * D, D)) for _ in range(3)
        )

    def forward(self, x):
        weight, chosen = self.router(x).softmax(-1).max(-1)
        y = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            at = chosen == i
            if at.any():
                y[at] = weight[at].unsqueeze(-1) * expert(x[at])
        return y


def test_a_mixture_of_experts_is_one_block():
    """The router and whichever experts ran."""
    spec = from_module(Wrapped(MoE()), torch.randn(2, T, D))
    (block,) = [b for b in spec.blocks if b.kind == "mlp"]
    assert (block.params.d, block.params.hidden, block.params.variant) == (D, 2 * D, "gelu")
    assert block.params.extra["experts"] == 3
    assert block.inputs == ["n0"]


CONV = {"kernel": 3, "stride": 2, "channels": 5}


@pytest.mark.parametrize(
    ("layer", "shape", "label", "extra"),
    [
        pytest.param(lambda: nn.Conv2d(3, 5, 3, 2), (1, 3, 9, 9), "Conv2d", CONV, id="conv"),
        pytest.param(lambda: nn.Conv2d(3, 5, (3, 1)), (1, 3, 9, 9), "Conv2d", {"kernel": [3, 1]}, id="long"),
        pytest.param(lambda: nn.BatchNorm2d(3), (2, 3, 4, 4), "BatchNorm2d", {"channels": 3}, id="batch"),
        pytest.param(lambda: nn.LSTM(3, 4), (2, 5, 3), "LSTM", {}, id="lstm"),
        pytest.param(nn.LeakyReLU, (2, 3), "LeakyReLU", {"activation": "leaky_relu"}, id="leaky"),
    ],
)  # fmt: skip
def test_what_the_vocabulary_lacks_is_a_group_with_its_class_name(layer, shape, label, extra):
    """Its sizes are extension params."""
    spec = from_module(nn.Sequential(layer()), torch.ones(shape))
    block = spec.block(spec.output)
    assert (block.kind, block.label, block.params.extra["type"]) == ("group", label, label)
    assert {key: block.params.extra[key] for key in extra} == extra


class LinearAttention(nn.Module):
    """No softmax: the flow shows no core, the attributes and projections say what it is."""

    def __init__(self):
        super().__init__()
        self.num_heads, self.qkv_proj, self.out_proj = H, nn.Linear(D, 3 * D), nn.Linear(D, D)

    def forward(self, x):
        q, k, v = self.qkv_proj(x).chunk(3, -1)
        return self.out_proj(q @ (k.transpose(-1, -2) @ v))


def test_attention_without_a_softmax_is_told_by_its_attributes():
    """Its projections are not drawn beside it."""
    spec = from_module(Wrapped(LinearAttention()), torch.randn(2, T, D))
    assert [b.kind for b in spec.blocks] == ["input", "norm", "attention", "add"]
    assert (spec.block("a0").params.heads, spec.block("a0").params.causal) == (H, None)


def test_a_table_of_positions_that_turns_queries_is_no_stream():
    """Rotary tables looked up in an embedding are learned by class, not by flow."""

    class Rotary(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.body = nn.Embedding(T, D // H), Attention(self.turned)

        def turned(self, q, k, v):
            table = self.table(torch.arange(q.shape[-2]))
            turn = lambda z: z * table + z.flip(-1) * table  # noqa: E731
            return F.scaled_dot_product_attention(turn(q), turn(k), v)

        def forward(self, x):
            return self.body(x)

    spec = from_module(Wrapped(Rotary()), torch.randn(2, T, D))
    block = next(b for b in spec.blocks if b.kind == "attention")
    assert block.params.extra["positions"] == "rotary"
    assert (block.params.heads, block.params.d) == (H, D)
