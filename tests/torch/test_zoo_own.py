"""Architectures written by hand, as people write them, with what their constructors say of them.

None of the classes has a name that tells what it is, where its computation does.
"""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ptoa_core.validate import validate
from ptoa_torch import Inputs, analyze

V, D, H, T = 40, 32, 4, 6
CASES = {}


def case(**facts):
    """Register a model class, built without arguments, with what it must be read as."""

    def register(build):
        CASES[build.__name__] = (build, facts)
        return build

    return register


def ids(length=T):
    return torch.arange(2 * length).reshape(2, length) % V


def noise(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7))


def split(x, heads=H):
    """A batch of sequences with its heads apart."""
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)


def join(x):
    """The heads side by side again."""
    return x.transpose(1, 2).flatten(2)


class Standardised(nn.Module):
    """A layer norm that is called something else."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.ones(D)), nn.Parameter(torch.zeros(D))

    def forward(self, x):
        return self.a * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6) + self.b


class Rotated(nn.Module):
    """Attention with rotated queries, one head of keys, and a mask made on the way."""

    def __init__(self):
        super().__init__()
        self.q, self.o = nn.Linear(D, D, bias=False), nn.Linear(D, D, bias=False)
        self.kv = nn.Linear(D, 2 * D // H, bias=False)

    def forward(self, x):
        size, length = D // H, x.shape[1]
        angle = torch.outer(torch.arange(length).float(), 10000 ** (-torch.arange(0, size, 2) / size))
        angle = torch.cat([angle, angle], -1)

        def turn(z):
            half = torch.cat([-z[..., size // 2 :], z[..., : size // 2]], -1)
            return z * angle.cos() + half * angle.sin()

        q, (k, v) = split(self.q(x)), split(self.kv(x), 1).chunk(2, -1)
        scores = turn(q) @ turn(k).transpose(-1, -2) * size**-0.5
        scores = scores + torch.full((length, length), float("-inf")).triu(1)
        return self.o(join(scores.softmax(-1) @ v))


@case(
    attention=[(D, H, True)],
    kv=[1],
    positions="rotary",
    norms={"layernorm": 2},
    adds=2,
    mlps=[(3 * D, "silu", True)],
    unembed=(V, D),
)
class decoder_with_names_that_say_nothing(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.n1, self.n2, self.a = nn.Embedding(V, D), Standardised(), Standardised(), Rotated()
        self.g, self.u, self.d = nn.Linear(D, 3 * D), nn.Linear(D, 3 * D), nn.Linear(3 * D, D)
        self.h = nn.Linear(D, V, bias=False)

    def forward(self, x):
        x = self.e(x)
        x = x + self.a(self.n1(x))
        y = self.n2(x)
        return self.h(x + self.d(F.silu(self.g(y)) * self.u(y)))


class OneHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.k, self.q, self.v = (nn.Linear(D, D // H, bias=False) for _ in range(3))
        self.register_buffer("tril", torch.tril(torch.ones(16, 16)))

    def forward(self, x):
        length = x.shape[1]
        scores = self.q(x) @ self.k(x).transpose(-2, -1) * (D // H) ** -0.5
        scores = scores.masked_fill(self.tril[:length, :length] == 0, float("-inf"))
        return scores.softmax(-1) @ self.v(x)


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads, self.proj = nn.ModuleList([OneHead() for _ in range(H)]), nn.Linear(D, D)

    def forward(self, x):
        return self.proj(torch.cat([head(x) for head in self.heads], -1))


@case(attention=[(D, H, True)], positions="learned", adds=1, mlps=[], norms={"layernorm": 1}, unembed=(V, D))
class a_module_for_each_head(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places, self.n = nn.Embedding(V, D), nn.Embedding(16, D), nn.LayerNorm(D)
        self.sa, self.h = Heads(), nn.Linear(D, V)

    def forward(self, x):
        x = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        return self.h(x + self.sa(self.n(x)))


class Biased(nn.Module):
    """Attention with a learned table of distances."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(D, D, bias=False) for _ in range(4))
        self.table = nn.Embedding(15, H)

    def forward(self, x):
        place = torch.arange(x.shape[1])
        bias = self.table((place[None] - place[:, None]).clamp(-7, 7) + 7).permute(2, 0, 1)[None]
        scores = torch.einsum("bhid,bhjd->bhij", split(self.q(x)), split(self.k(x))) + bias
        return self.o(join(torch.einsum("bhij,bhjd->bhid", scores.softmax(-1), split(self.v(x)))))


@case(
    attention=[(D, H, False)],
    positions="relative",
    adds=2,
    mlps=[(96, "relu", False)],
    norms={"layernorm": 2},
)
class encoder_with_distances(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.n1, self.a, self.n2 = nn.Embedding(V, D), nn.LayerNorm(D), Biased(), nn.LayerNorm(D)
        self.f = nn.Sequential(nn.Linear(D, 96), nn.ReLU(), nn.Dropout(), nn.Linear(96, D))

    def forward(self, x):
        x = self.e(x)
        x = x + self.a(self.n1(x))
        return x + self.f(self.n2(x))


class Sloped(nn.Module):
    """Attention with a fixed slope for each head."""

    def __init__(self):
        super().__init__()
        self.qkv, self.o = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.register_buffer("slope", torch.tensor([2.0**-i for i in range(1, H + 1)]).view(1, H, 1, 1))

    def forward(self, x):
        q, k, v = (split(part) for part in self.qkv(x).chunk(3, -1))
        place = torch.arange(x.shape[1])
        scores = q @ k.transpose(-1, -2) / math.sqrt(D // H) + self.slope * (place[None] - place[:, None])
        hidden = torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool), 1)
        return self.o(join(scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v))


@case(attention=[(D, H, True)], positions="alibi", adds=1, mlps=[], norms={"layernorm": 1}, unembed=(V, D))
class decoder_with_slopes(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.n, self.a, self.h = nn.Embedding(V, D), nn.LayerNorm(D), Sloped(), nn.Linear(D, V)

    def forward(self, x):
        x = self.e(x)
        return self.h(x + self.a(self.n(x)))


class Modulated(nn.Module):
    """A block of a diffusion transformer: norms shifted and scaled by what conditions them."""

    def __init__(self):
        super().__init__()
        self.n1, self.n2 = (nn.LayerNorm(D, elementwise_affine=False) for _ in range(2))
        self.a, self.c = (
            nn.MultiheadAttention(D, H, batch_first=True),
            nn.Sequential(nn.SiLU(), nn.Linear(D, 6 * D)),
        )
        self.f = nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, D))

    def forward(self, x, c):
        a, b, g, d, e, h = self.c(c).unsqueeze(1).chunk(6, -1)
        y = self.n1(x) * (1 + b) + a
        x = x + g * self.a(y, y, y, need_weights=False)[0]
        return x + h * self.f(self.n2(x) * (1 + e) + d)


@case(
    attention=[(D, H, False)] * 2,
    mlps=[(4 * D, "gelu", False)] * 2,
    norms={"layernorm": 5},
    positions="learned",
    given=(noise(2, 3, 16, 16), torch.tensor([1, 2])),
)
class diffusion_transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch, self.place = nn.Conv2d(3, D, 4, 4), nn.Parameter(torch.randn(1, 16, D))
        self.y, self.blocks = nn.Embedding(10, D), nn.ModuleList([Modulated(), Modulated()])
        self.n, self.out = nn.LayerNorm(D), nn.Linear(D, 48)

    def forward(self, x, y):
        x, c = self.patch(x).flatten(2).transpose(1, 2) + self.place, self.y(y)
        for block in self.blocks:
            x = block(x, c)
        return self.out(self.n(x))


class Spatial(nn.Module):
    """Attention over the places of an image, its projections being convolutions."""

    def __init__(self):
        super().__init__()
        self.n, self.qkv, self.o = nn.GroupNorm(4, D), nn.Conv2d(D, 3 * D, 1), nn.Conv2d(D, D, 1)

    def forward(self, x):
        q, k, v = self.qkv(self.n(x)).reshape(x.shape[0], 3, H, D // H, -1).unbind(1)
        weights = torch.softmax(torch.einsum("bhcn,bhcm->bhnm", q, k) * (D // H) ** -0.5, -1)
        return x + self.o(torch.einsum("bhnm,bhcm->bhcn", weights, v).reshape(x.shape))


@case(attention=[(D, H, False)], mlps=[], norms={}, adds=1, given=(noise(2, 3, 8, 8),))
class image_attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c, self.a, self.o = nn.Conv2d(3, D, 3, padding=1), Spatial(), nn.Conv2d(D, 3, 3, padding=1)

    def forward(self, x):
        return self.o(self.a(self.c(x)))


class Coupling(nn.Module):
    """One half of the features is moved by what the other half says; no sublayer of a transformer."""

    def __init__(self):
        super().__init__()
        self.s = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 3))
        self.t = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x):
        a, b = x.chunk(2, -1)
        return torch.cat([b * torch.exp(self.s(a)) + self.t(a), a], -1)


@case(attention=[], mlps=[], norms={}, adds=2, linears=8, given=(noise(2, 6),))
class normalising_flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = Coupling(), Coupling()

    def forward(self, x):
        return self.b(self.a(x))


class Latents(nn.Module):
    """Learned latents that read the input, their attention written out."""

    def __init__(self):
        super().__init__()
        self.latents = nn.Parameter(noise(5, D))
        self.nz, self.nx = nn.LayerNorm(D), nn.LayerNorm(D)
        self.q, self.k, self.v, self.o = (nn.Linear(D, D) for _ in range(4))

    def forward(self, x):
        z = self.latents.expand(x.shape[0], -1, -1)
        y = self.nx(x)
        q, k, v = split(self.q(self.nz(z))), split(self.k(y)), split(self.v(y))
        return z + self.o(join((q @ k.transpose(-1, -2)).softmax(-1) @ v))


@case(attention=[(D, H, False)], mlps=[], norms={"layernorm": 2}, adds=1, posencs=0, given=(noise(2, 7, D),))
class latents_that_read(nn.Module):
    def __init__(self):
        super().__init__()
        self.read, self.h = Latents(), nn.Linear(D, 3)

    def forward(self, x):
        return self.h(self.read(x).mean(1))


@case(
    attention=[(D, H, False)],
    mlps=[(64, "relu", False)],
    positions="learned",
    adds=2,
    norms={"layernorm": 2},
    given=(noise(2, 3, 32, 32),),
)
class positions_made_to_fit_the_image(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch, self.place = nn.Conv2d(3, D, 8, 8), nn.Parameter(torch.randn(1, D, 2, 2))
        self.layer = nn.TransformerEncoderLayer(D, H, 64, batch_first=True)

    def forward(self, x):
        x = self.patch(x)
        place = F.interpolate(self.place, x.shape[-2:], mode="bilinear")
        return self.layer(x.flatten(2).transpose(1, 2) + place.flatten(2).transpose(1, 2))


class Recurrence(nn.Module):
    """A state that is carried on step by step, in one module."""

    def __init__(self):
        super().__init__()
        self.w, self.decay = nn.Parameter(noise(D, D)), nn.Parameter(torch.ones(D))

    def forward(self, x):
        state, steps = torch.zeros(x.shape[0], D), []
        for place in range(x.shape[1]):
            state = torch.sigmoid(self.decay) * state + x[:, place] @ self.w
            steps.append(state)
        return torch.stack(steps, 1)


@case(attention=[], mlps=[], norms={"layernorm": 1}, adds=1, unembed=(V, D))
class recurrence_written_as_a_loop(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.n, self.r, self.h = nn.Embedding(V, D), nn.LayerNorm(D), Recurrence(), nn.Linear(D, V)

    def forward(self, x):
        x = self.e(x)
        return self.h(x + self.r(self.n(x)))


def read(name):
    """A case's model, its input, the facts and what was read."""
    build, facts = CASES[name]
    torch.manual_seed(0)
    model, given = build(), facts.get("given", (ids(),))
    return model, facts, analyze(model, Inputs(given, {}))


@pytest.mark.parametrize("name", CASES)
def test_a_model_is_read_as_its_constructor_says(name):
    """Sublayers with their sizes, norms, positions and additions, whatever the classes are called."""
    model, facts, found = read(name)
    of = {
        kind: [b.params for b in found.spec.blocks if b.kind == kind]
        for kind in ("attention", "mlp", "norm", "add", "posenc", "linear", "unembed")
    }
    got = {
        "attention": [(p.d, p.heads, p.causal) for p in of["attention"]],
        "kv": [p.extra.get("kvHeads") for p in of["attention"]],
        "mlps": [(p.hidden, p.variant, bool(p.extra.get("gated"))) for p in of["mlp"]],
        "norms": dict(Counter(p.variant for p in of["norm"])),
        "adds": len(of["add"]),
        "posencs": len(of["posenc"]),
        "linears": len(of["linear"]),
        "unembed": next(((p.vocab, p.d) for p in of["unembed"]), None),
    }
    wanted = {key: value for key, value in facts.items() if key not in ("given", "positions")}
    assert {key: got[key] for key in wanted} == wanted
    said = {p.variant for p in of["posenc"]} | {p.extra.get("positions") for p in of["attention"]}
    assert facts.get("positions") in said | {None}
    assert validate(found.spec) == []
    counts = [block.params.extra.get("paramCount", 0) for block in found.spec.blocks]
    assert sum(counts) == sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", CASES)
def test_every_block_is_on_a_way_from_an_input_to_the_output(name):
    """A parameter that starts a path counts as an input of its own."""
    spec = read(name)[2].spec
    outer = {block.group for block in spec.blocks}
    inputs = {block.id: block.inputs for block in spec.blocks if block.id not in outer}
    starts = [b.id for b in spec.blocks if b.id in inputs and not b.inputs]
    kinds = {block.id: block.kind for block in spec.blocks}
    assert {kinds[start] for start in starts} <= {"tokens", "input", "embedding", "posenc"}
    reached, waiting = set(), [spec.output]
    while waiting:
        block = waiting.pop()
        if block not in reached:
            reached.add(block)
            waiting.extend(inputs[block])
    assert reached == set(inputs)
