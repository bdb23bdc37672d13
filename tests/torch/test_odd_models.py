"""Models of odd makes, each drawn right and left alone: types, wrappers, transformations, writes.

A row is ``id label < inputs``; containers are left out. ``NET`` is what the plain model is drawn
as, so a case that expects it says that its make changes nothing in the picture.
"""

from __future__ import annotations

import contextlib
import copy
import threading
import warnings
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import prune
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from ptoa_core.validate import validate
from ptoa_torch import ForwardError, Inputs, analyze, from_module

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*jit.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*quantization.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*(prototype|beta state|Lazy modules|weight_norm).*"),
    pytest.mark.filterwarnings("ignore:.*(torch.nested|quantize_per_tensor).*"),
]

NET = ["i0 x <", "m0 model mlp < i0", "r0 residual add < i0 m0"]
CASES = {}


def case(*rows, warned=False):
    """Register a function that gives a model and its arguments, with the rows of its right picture."""

    def register(build):
        CASES[build.__name__] = (build, rows, warned)
        return build

    return register


def _x(*shape):
    return torch.linspace(-1, 1, 16).reshape(shape or (2, 8))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return x + self.b(F.gelu(self.a(x)))


def model(forward, **parts):
    """A model of the given parts, whose forward is a function of it and its arguments."""

    class Made(nn.Module):
        def __init__(self):
            super().__init__()
            for name, part in parts.items():
                if isinstance(part, torch.Tensor) and not isinstance(part, nn.Parameter):
                    self.register_buffer(name, part)
                else:
                    setattr(self, name, part)

    Made.forward = forward
    return Made()


# ── what numbers are made of ─────────────────────────────────────────────────


@case(*NET)
def bfloat16():
    return Net().bfloat16(), (_x().bfloat16(),)


@case(*NET)
def float64():
    return Net().double(), (_x().double(),)


@case("i0 x <", "l0 w < i0", "l1 l < l0")
def complex_numbers():
    weight = nn.Parameter(torch.eye(8, dtype=torch.cfloat))
    net = model(lambda self, x: self.l((x @ self.w).abs()), w=weight, l=nn.Linear(8, 4))
    return net, (_x().to(torch.cfloat),)


@case("i0 adj <", "i1 x <", "l0 l < i1", "g0 matmul < i0 l0")
def a_sparse_matrix():
    net = model(lambda self, adj, x: adj @ self.l(x), l=nn.Linear(8, 8))
    return net, (torch.eye(2).to_sparse(), _x())


@case("i0 x <", "l0 l < i0")
def sequences_of_different_lengths():
    parts = [torch.ones(3, 8), torch.ones(5, 8)]
    net = model(lambda self, x: torch.nested.to_padded_tensor(self.l(x), 0.0), l=nn.Linear(8, 8))
    return net, (torch.nested.nested_tensor(parts),)


@case(*NET)
def a_tensor_subclass():
    class Mine(torch.Tensor):
        pass

    return Net(), (_x().as_subclass(Mine),)


@case("i0 input <", "l0 0 < i0", "f0 1 < l0", "l1 2 < f0")
def dynamically_quantised():
    if "none" in torch.backends.quantized.engine:
        pytest.skip("this build of torch cannot quantise")
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    return torch.ao.quantization.quantize_dynamic(net, {nn.Linear}, dtype=torch.qint8), (_x(),)


# ── wrappers ─────────────────────────────────────────────────────────────────


@case(*NET)
def scripted():
    return torch.jit.script(Net()), (_x(),)


@case("i0 input.0 <", *NET[1:])
def traced():
    return torch.jit.trace(Net(), _x()), (_x(),)


@case(*NET)
def data_parallel():
    return nn.DataParallel(Net()), (_x(),)


class _Adapted(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, 2, bias=False)
        self.up = nn.Linear(2, base.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + 2.0 * self.up(self.down(x))


@case(
    "i0 x <",
    "l0 a.base < i0",
    "l1 a.down < i0",
    "l2 a.up < l1",
    "r0 residual add < l0 l2",
    "f0 gelu < r0",
    "l3 b < f0",
    "r1 residual add < i0 l3",
)
def a_low_rank_adapter():
    net = Net()
    net.a = _Adapted(net.a)
    return net, (_x(),)


def _with(change, *args):
    net = Net()
    change(net.a, *args)
    return net, (_x(),)


@case(*NET)
def weight_norm_of_old():
    return _with(nn.utils.weight_norm)


@case(*NET)
def spectral_norm_of_old():
    return _with(nn.utils.spectral_norm)


@case(*NET)
def spectral_norm_as_a_parametrization():
    return _with(nn.utils.parametrizations.spectral_norm)


@case(*NET)
def orthogonal_as_a_parametrization():
    return _with(nn.utils.parametrizations.orthogonal)


@case(*NET)
def pruned():
    return _with(prune.l1_unstructured, "weight", 0.3)


@case("i0 input <", "g0 Conv2d < i0", "g1 BatchNorm2d < g0", "l0 3 < g1")
def lazy_with_lazy_buffers():
    net = nn.Sequential(nn.LazyConv2d(4, 2), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(5))
    return net, (torch.ones(2, 3, 4, 4),)


# ── what runs inside ─────────────────────────────────────────────────────────


@case("i0 x <", "l0 l < i0", "n0 layer_norm < l0", "l1 linear < n0")
def modules_made_in_forward():
    return model(lambda self, x: nn.Linear(8, 4)(nn.LayerNorm(8)(self.l(x))), l=nn.Linear(8, 8)), (_x(),)


@case("i0 x <", "l0 l < i0", "f0 relu < l0", "l1 o < f0")
def vmap_inside():
    def forward(self, x):
        return self.o(torch.func.vmap(lambda row: torch.relu(self.l(row)))(x))

    return model(forward, l=nn.Linear(8, 8), o=nn.Linear(8, 2)), (_x(),)


@case("i0 x <", "l0 l < i0", "g0 autograd_grad < l0 i0", "l1 o < g0")
def gradient_by_torch_func():
    def forward(self, x):
        return self.o(torch.func.grad(lambda t: self.l(t).sum())(x))

    return model(forward, l=nn.Linear(8, 1), o=nn.Linear(8, 2)), (_x(),)


@case("i0 x <", "l0 a < i0", "g0 autograd_grad < l0 i0", "g1 sub < i0 g0", "l1 b < g1")
def gradient_by_autograd():
    def forward(self, x):
        with torch.enable_grad():
            point = x.detach().requires_grad_()
            slope = torch.autograd.grad(self.a(point).sum(), point)[0]
        return self.b(x - slope)

    return model(forward, a=nn.Linear(8, 1), b=nn.Linear(8, 4)), (_x(),)


@case("i0 x <", "l0 l < i0", "l1 o < l0")
def other_weights_by_functional_call():
    def forward(self, x):
        doubled = {name: 2 * weight for name, weight in self.l.named_parameters()}
        return self.o(torch.func.functional_call(self.l, doubled, (x,)))

    return model(forward, l=nn.Linear(8, 8), o=nn.Linear(8, 2)), (_x(),)


@case("i0 x <", "m0 n mlp < i0", "r0 residual add < i0 m0", "l0 o < r0")
def checkpointed():
    forward = lambda self, x: self.o(checkpoint(self.n, x, use_reentrant=False))  # noqa: E731
    return model(forward, n=Net(), o=nn.Linear(8, 2)), (_x(),)


@case("i0 x <", "m0 n mlp < i0", "r0 residual add < i0 m0", "l0 o < r0")
def checkpointed_with_reentry():
    forward = lambda self, x: self.o(checkpoint(self.n, x, use_reentrant=True))  # noqa: E731
    return model(forward, n=Net(), o=nn.Linear(8, 2)), (_x().requires_grad_(),)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return x * y

    @staticmethod
    def backward(ctx, grad):
        return grad, grad


@case("i0 x <", "l0 a < i0", "l1 b < i0", "g0 mul < l0 l1")
def a_function_of_its_own():
    net = model(lambda self, x: _Product.apply(self.a(x), self.b(x)), a=nn.Linear(8, 8), b=nn.Linear(8, 8))
    return net, (_x(),)


@case("i0 x <", "l0 a < i0", "l1 b < l0")
def an_operator_of_a_library():
    library = torch.library.Library("ptoa_odd", "DEF")
    library.define("triple(Tensor x) -> Tensor")
    library.impl("triple", lambda x: x * 3, "CPU")
    net = model(
        lambda self, x: self.b(torch.ops.ptoa_odd.triple(self.a(x))), a=nn.Linear(8, 8), b=nn.Linear(8, 4)
    )
    net.library = library
    return net, (_x(),)


class _Passing(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@case("i0 x <", "l0 a < i0")
def a_dispatch_mode_of_the_users():
    def forward(self, x):
        with _Passing():
            return self.a(x)

    return model(forward, a=nn.Linear(8, 4)), (_x(),)


@case("i0 x <", "l0 a < i0", "f0 relu < l0", "l1 b < f0")
def inference_mode_inside():
    def forward(self, x):
        with torch.inference_mode():
            hidden = F.relu(self.a(x), inplace=True)
        return self.b(hidden.clone())

    return model(forward, a=nn.Linear(8, 8), b=nn.Linear(8, 4)), (_x(),)


@case("i0 x <", "l0 a < i0", "l1 b < l0")
def a_part_on_another_thread():
    def forward(self, x):
        made = []
        thread = threading.Thread(target=lambda: made.append(self.a(x)))
        thread.start()
        thread.join()
        return self.b(made[0])

    return model(forward, a=nn.Linear(8, 8), b=nn.Linear(8, 8)), (_x(),)


@case("i0 items.0 <", "i1 items.1 <", "l0 a < i0", "l1 a < i1", "r0 residual add < l0 l1")
def a_generator_as_input():
    net = model(lambda self, items: self.a(next(items)) + self.a(next(items)), a=nn.Linear(8, 4))
    return net, (iter([_x(), _x()]),)


@case("i0 x <", "l0 a < i0", "l1 a < i0")
def a_generator_as_output():
    return model(lambda self, x: (self.a(x) for _ in range(2)), a=nn.Linear(8, 4)), (_x(),)


@case("e0 a <")
def strings_as_input():
    def forward(self, texts):
        return {"made": self.a(torch.tensor([len(text) for text in texts])), "texts": texts, "none": None}

    return model(forward, a=nn.Embedding(9, 4)), (["ab", "c"],)


# ── writes to what was there before ──────────────────────────────────────────


@case("i0 x <", "l0 a < i0")
def writes_many_parameters_at_once():
    def forward(self, x):
        torch._foreach_mul_(list(self.a.parameters()), 0.5)
        return self.a(x)

    return model(forward, a=nn.Linear(8, 8)), (_x(),)


@case("i0 x <", "l0 a < i0")
def writes_through_numpy():
    pytest.importorskip("numpy")

    def forward(self, x):
        self.big.numpy()[0, 0] += 1
        return self.a(x)

    return model(forward, a=nn.Linear(8, 8), big=torch.zeros(300, 300)), (_x(),)


@case("i0 x <", "l0 a < i0", warned=True)
def takes_a_training_step():
    def forward(self, x):
        with torch.enable_grad():
            self.a(x).sum().backward()
        torch.optim.SGD(self.a.parameters(), 0.1).step()
        return self.a(x)

    return model(forward, a=nn.Linear(8, 8)), (_x(),)


@case("i0 x <", "l0 a < i0", "l1 ema < i0", "r0 residual add < l0 l1")
def keeps_a_running_average():
    def forward(self, x):
        for mine, average in zip(self.a.parameters(), self.ema.parameters(), strict=True):
            average.lerp_(mine, 0.1)
        return self.a(x) + self.ema(x)

    layer = nn.Linear(8, 8)
    return model(forward, a=layer, ema=copy.deepcopy(layer)), (_x(),)


@case("i0 x <", "l0 a < i0", "g0 BatchNorm1d < l0")
def switches_itself_to_training():
    def forward(self, x):
        self.n.train()
        return self.n(self.a(x))

    return model(forward, a=nn.Linear(8, 8), n=nn.BatchNorm1d(8)), (_x(),)


def _gate(x, gate):
    return torch.relu(x) * gate


def tells_of_scripted_functions():
    """Whether this torch tells a mode of the operators of a scripted function that it has made quicker."""
    told = []

    class Listener(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            told.append(function)
            return function(*args, **(kwargs or {}))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer releases want other ways to compile
        gate, x = torch.jit.script(_gate), _x()
    for _ in range(4):
        gate(x, x)
    with Listener():
        gate(x, x)
    return bool(told)


# Where it does not, the function is one step with its own name.
INSIDE = ("f0 relu < l0", "g0 mul < f0 i0") if tells_of_scripted_functions() else ("g0 _gate < l0 i0",)


@case("i0 x <", "l0 a < i0", *INSIDE, "l1 b < g0")
def calls_a_scripted_function():
    gate = torch.jit.script(_gate)
    return model(lambda self, x: self.b(gate(self.a(x), x)), a=nn.Linear(8, 8), b=nn.Linear(8, 4)), (_x(),)


def test_scripted_functions_are_as_before_when_every_pass_has_ended():
    """Passes in several threads overlap, and one is interrupted; no later call is looked at."""
    before, gate = torch.jit.ScriptFunction.__call__, torch.jit.script(_gate)
    inside, end = threading.Barrier(3), threading.Barrier(3)

    def forward(self, x):
        inside.wait(30)
        end.wait(30)
        return gate(self.a(x), x)

    rows = []

    def read():
        rows.append(picture(from_module(model(forward, a=nn.Linear(8, 8)), _x(), strategy="hooks")))

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    inside.wait(30)
    assert torch.equal(gate(_x(), _x()), torch.relu(_x()) * _x())
    end.wait(30)
    for thread in threads:
        thread.join(30)

    def interrupted(self, x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        from_module(model(interrupted), _x())
    assert rows == [["i0 x <", "l0 a < i0", *INSIDE]] * 2
    assert torch.jit.ScriptFunction.__call__ is before


# ── models that give or get little ──────────────────────────────────────────


@case("i0 x <")
def runs_nothing_and_returns_nothing():
    return model(lambda self, x: None, a=nn.Linear(8, 8)), (_x(),)


@case("g0 Made <")
def takes_nothing_and_returns_nothing():
    return model(lambda self: None), ()


@case("i0 x.0 <", "i1 x.1 <", "g0 stack < i0 i1", "l0 a < g0")
def draws_from_a_generator_that_computes():
    net = model(lambda self, x: self.a(torch.stack(list(x))), a=nn.Linear(8, 8))
    return net, (((_x() * scale) for scale in (1, 2)),)


# ── layers whose own forward does otherwise ──────────────────────────────────


def _then(layer, forward, tail=8):
    """A layer whose forward is overridden in the instance, and a linear after it."""
    own = layer.forward
    layer.forward = lambda x: forward(own, x)
    return nn.Sequential(layer, nn.Linear(tail, 4)), (_x(),)


@case("i0 input <", "l0 0 < i0", "f0 relu < l0", "l1 1 < f0")
def a_linear_subclass_that_activates():
    class Mine(nn.Linear):
        def forward(self, x):
            return F.relu(super().forward(x))

    return nn.Sequential(Mine(8, 8), nn.Linear(8, 4)), (_x(),)


@case("i0 input <", "n0 layer_norm < i0", "f0 gelu < n0", "l0 1 < f0")
def a_norm_that_activates():
    return _then(nn.LayerNorm(8), lambda own, x: F.gelu(own(x)))


@case("i0 input <", "g1 Conv1d < i0", "f0 relu < g1", "l0 1 < f0")
def a_convolution_that_activates():
    return _then(nn.Conv1d(2, 2, 3), lambda own, x: F.relu(own(x)), tail=6)


@case("i0 input <", "l0 1 < i0")
def a_linear_that_never_multiplies():
    return _then(nn.Linear(8, 8), lambda _own, x: torch.sin(x))


@case("i0 input <", "l0 0 < i0", "l1 0 < l0", "l2 1 < l1")
def a_linear_that_multiplies_twice():
    return _then(nn.Linear(8, 8), lambda own, x: own(own(x)))


@case("i0 input <", "l0 0 < i0", "l1 1 < l0")
def a_linear_that_only_rounds_its_weight():
    class Rounded(nn.Linear):
        def forward(self, x):
            return F.linear(x.clamp(-1, 1), (self.weight * 8).round() / 8, self.bias)

    return nn.Sequential(Rounded(8, 8), nn.Linear(8, 4)), (_x(),)


@case("t0 input <", "e0 Embedding < t0")
def an_embedding_alone_that_limits_its_rows():
    return nn.Embedding(5, 8, max_norm=0.1), (torch.arange(4)[None],)


def _look(net):
    """Everything that reading a model must leave as it was."""
    tensors = [t for t in (*net.parameters(), *net.buffers()) if not nn.parameter.is_lazy(t)]
    return {
        "values": [t.detach().clone() for t in tensors],
        "flags": [(t.requires_grad, t.grad is None, t._version) for t in tensors],
        "attributes": [{name: id(part) for name, part in vars(m).items()} for m in net.modules()],
        "training": [m.training for m in net.modules()],
        "random": torch.get_rng_state(),
    }


@pytest.mark.parametrize("name", CASES)
def test_an_odd_model_is_drawn_right_and_left_as_it_was(name):
    """The right blocks and edges; values, write counters, flags, attributes and random state as before."""
    build, rows, warned = CASES[name]
    net, args = build()
    before = _look(net)
    found = analyze(net, Inputs(args))
    after = _look(net)
    assert picture(found.spec) == list(rows)
    assert [problem for problem in validate(found.spec) if problem.severity == "error"] == []
    assert found.strategy in ("fx", "hooks")
    assert bool(found.warnings) is warned
    assert all(torch.equal(a, b) for a, b in zip(before["values"], after["values"], strict=True))
    assert torch.equal(before.pop("random"), after.pop("random"))
    del before["values"], after["values"]
    assert before == after


def picture(spec):
    """The blocks of a spec as rows, containers left out."""
    outer = {block.group for block in spec.blocks}
    return [
        f"{block.id} {block.label} < {' '.join(block.inputs)}".strip()
        for block in spec.blocks
        if block.id not in outer
    ]


# ── large ones ───────────────────────────────────────────────────────────────


class _Attention(nn.Module):
    def __init__(self, width, heads, kv_heads):
        super().__init__()
        self.num_heads, self.kv_heads, size = heads, kv_heads, width // heads
        self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, size * kv_heads, bias=False) for _ in range(2))

    def forward(self, x):
        heads = (self.num_heads, self.kv_heads, self.kv_heads)
        made = zip((self.q(x), self.k(x), self.v(x)), heads, strict=True)
        query, key, value = (part.unflatten(-1, (count, -1)).transpose(1, 2) for part, count in made)
        share = self.num_heads // self.kv_heads
        key, value = (part.unsqueeze(2).expand(-1, -1, share, -1, -1).flatten(1, 2) for part in (key, value))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.o(mixed.transpose(1, 2).flatten(2))


class _GatedMlp(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class _Llama(nn.Module):
    """The sizes of a model of 70 billion parameters."""

    def __init__(self, layers, width=8192, hidden=28672, vocab=128256):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))
        self.attentions = nn.ModuleList(_Attention(width, 64, 8) for _ in range(layers))
        self.mlps = nn.ModuleList(_GatedMlp(width, hidden) for _ in range(layers))
        self.head = nn.Linear(width, vocab, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + torch.zeros(1, device=tokens.device)
        for place, (attention, mlp) in enumerate(zip(self.attentions, self.mlps, strict=True)):
            x = x + attention(self.norms[2 * place](x))
            x = x + mlp(self.norms[2 * place + 1](x))
        return self.head(x)


def _fake():
    pytest.importorskip("torch._subclasses.fake_tensor")
    return torch._subclasses.fake_tensor.FakeTensorMode()


@pytest.mark.parametrize("make", [lambda: torch.device("meta"), _fake], ids=["meta", "fake"])
@pytest.mark.filterwarnings("ignore:.*")
def test_a_model_of_seventy_billion_parameters_is_read_without_its_memory(make):
    """No tensor of it is ever made, and every parameter is counted."""
    resource = pytest.importorskip("resource")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with make():
        net = _Llama(80)
        tokens = torch.zeros(1, 16, dtype=torch.long)
    spec = from_module(net, tokens)
    total = sum(parameter.numel() for parameter in net.parameters())
    assert total > 70e9
    assert sum(block.params.extra.get("paramCount", 0) for block in spec.blocks) == total
    attention = [block.params for block in spec.blocks if block.kind == "attention"]
    assert len(attention) == 80
    assert {(p.heads, p.extra["kvHeads"], p.causal) for p in attention} == {(64, 8, True)}
    assert sum(block.kind == "mlp" for block in spec.blocks) == 80
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1_000_000  # kilobytes


def test_activations_that_nobody_asks_for_are_let_go(monkeypatch):
    """Beyond what may be held a tensor lives as long as the model keeps it, and edges stay right."""
    monkeypatch.setattr("ptoa_torch.hook_trace._MAX_HELD", 0)
    alive = []

    def forward(self, x):
        for layer in self.layers:
            x = layer(x) + x
            alive.append(weakref.ref(x))
        return x

    net = model(forward, layers=nn.ModuleList(nn.Linear(8, 8) for _ in range(20)))
    spec = from_module(net, _x(), strategy="hooks")
    assert sum(ref() is not None for ref in alive) <= 1
    rows, stream = ["i0 x <"], "i0"
    for place in range(20):
        rows.append(f"l{place} layers.{place} < {stream}")
        rows.append(f"r{place} residual add < l{place} {stream}")
        stream = f"r{place}"
    assert picture(spec) == rows


def test_masks_and_probabilities_are_judged_also_where_they_are_let_go(monkeypatch):
    """Causal attention is causal, whether a mask or a softmax says so."""
    monkeypatch.setattr("ptoa_torch.hook_trace._MAX_HELD", 0)

    def forward(self, x):
        query, key, value = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        mask = torch.full((6, 6), float("-inf")).triu(1)
        if self.fused:
            mixed = F.scaled_dot_product_attention(query, key, value, mask)
        else:
            mixed = (query @ key.transpose(-2, -1) / 2 + mask).softmax(-1) @ value
        return x + self.out(mixed.transpose(1, 2).flatten(2))

    for fused in (True, False):
        net = model(forward, qkv=nn.Linear(8, 24), out=nn.Linear(8, 8), fused=fused)
        spec = from_module(net, torch.ones(1, 6, 8), strategy="hooks")
        assert spec.block("a0").params.causal is True


# ── compiled ─────────────────────────────────────────────────────────────────

_compiles = pytest.mark.skipif(not hasattr(nn.Module, "compile"), reason="this torch compiles no modules")


@_compiles
@pytest.mark.parametrize("where", ["wrapper", "method", "child", "forward"])
def test_a_compiled_model_is_read_without_compiling(where):
    """It is drawn as the model that it was made from, and no backend is asked."""
    asked = []

    def backend(graph, _example):
        asked.append(graph)
        return graph.forward

    net = Net()
    if where == "wrapper":
        net = torch.compile(net, backend=backend)
    elif where == "method":
        net.compile(backend=backend)
    elif where == "child":
        net.a = torch.compile(net.a, backend=backend)
    else:
        net.forward = torch.compile(net.forward, backend=backend)
    spec = from_module(net, _x())
    assert asked == []
    assert [(block.kind, block.inputs) for block in spec.blocks if block.kind != "group"] == [
        ("input", []),
        ("mlp", ["i0"]),
        ("add", ["i0", "m0"]),
    ]


# ── interrupts ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, RuntimeError, MemoryError])
@pytest.mark.parametrize("strategy", ["auto", "hooks"])
def test_whatever_ends_a_pass_the_model_is_as_it_was(error, strategy):
    """Parameters, buffers, flags, attributes, hooks, random state, grad mode and the caller's input."""

    def forward(self, x):
        self.a.weight.data.zero_()
        self.steps += 1
        self.note = torch.rand(2)
        x.add_(1)
        self.n.train()(self.a(x))
        raise error

    net = model(forward, a=nn.Linear(8, 8), n=nn.BatchNorm1d(8), steps=torch.zeros(()))
    net.n.eval()
    x = _x()
    before = _look(net)
    with contextlib.suppress(error, ForwardError):
        analyze(net, x, strategy=strategy)
    after = _look(net)
    assert all(torch.equal(a, b) for a, b in zip(before.pop("values"), after.pop("values"), strict=True))
    assert torch.equal(before.pop("random"), after.pop("random"))
    assert before == after
    assert torch.equal(x, _x())
    assert torch.is_grad_enabled()
    assert torch._C._len_torch_function_stack() == 0
