"""Small models that broke other readers, with their right edges written down by hand.

A block is written ``kind label < inputs``; containers are left out.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ptoa_torch import Inputs, analyze

PATTERNS = {}


def pattern(*rows, args=None, kwargs=None, output=None):
    """Register a model class with the rows of its right picture."""

    def register(build):
        PATTERNS[build.__name__] = (build, rows, args, kwargs or {}, output)
        return build

    return register


def _x():
    return torch.linspace(-1, 1, 16).reshape(2, 8)


def picture(spec):
    """The blocks of a spec as rows, containers left out."""
    outer = {block.group for block in spec.blocks}
    return [
        f"{block.id} {block.label} < {' '.join(block.inputs)}".strip()
        for block in spec.blocks
        if block.id not in outer
    ]


@dataclasses.dataclass
class _Out:
    logits: object
    loss: object = None


@pattern("i0 x <", "l0 a < i0", "l1 b < l0")
class dataclass_output(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        return _Out(self.b(self.a(x)))


@pattern("i0 x <", "l0 l < i0", "f0 act < l0", "l1 l < f0", "f1 act < l1")
class module_called_twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.l, self.act = nn.Linear(8, 8), nn.ReLU()

    def forward(self, x):
        return self.act(self.l(self.act(self.l(x))))


@pattern(
    "i0 x <", "i1 cond.img.emb <", "l0 l < i0", "l1 c < i1", "r0 residual add < l0 l1",
    kwargs={"cond": {"img": {"emb": torch.ones(2, 8)}}},
)  # fmt: skip
class nested_dict_kwargs(nn.Module):
    def __init__(self):
        super().__init__()
        self.l, self.c = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x, cond=None):
        return self.l(x) + self.c(cond["img"]["emb"])


@pattern(
    "i0 x <", "g0 Conv2d < i0", "g1 BatchNorm2d < g0", "r0 residual add < g1 i0", "f0 r < r0",
    args=(torch.ones(2, 3, 8, 8),),
)  # fmt: skip
class inplace_relu_after_inplace_add(nn.Module):
    def __init__(self):
        super().__init__()
        self.c, self.bn, self.r = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(inplace=True)

    def forward(self, x):
        out = self.bn(self.c(x))
        out += x
        return self.r(out)


@pattern("i0 x <", "l0 ps.0 < i0", "l1 ps.1 < l0", "g0 mul < l1")
class parameters_used_by_functions(nn.Module):
    def __init__(self):
        super().__init__()
        self.ps = nn.ParameterList([nn.Parameter(torch.ones(8, 8)) for _ in range(2)])
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x):
        for i in range(2):
            x = x @ self.ps[i]
        return x * self.scale


@pattern("i0 x <", "l0 a < i0", args=(torch.ones(2, 8),))
class branch_on_a_value(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return self.a(x) if x.sum() > 0 else self.b(x)


class _Fn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        return a.clamp(min=0)

    @staticmethod
    def backward(ctx, g):
        return g


@pattern("i0 x <", "l0 a < i0", "l1 b < l0")
class custom_autograd_function(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return self.b(_Fn.apply(self.a(x)))


@pattern("i0 x <", "l0 a < i0", "f0 relu < l0")
class module_made_in_forward(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8)

    def forward(self, x):
        return nn.ReLU()(self.a(x))


@pattern("i0 x <", "l0 a < i0", "l1 b < l0")
class called_by_forward(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.b.forward(self.a.forward(x))


class _Side(nn.Module):
    def __init__(self):
        super().__init__()
        self.l, self.cache = nn.Linear(8, 8), None

    def forward(self, x):
        self.cache = self.l(x)


@pattern("i0 x <", "l0 side.l < i0", "l1 o < l0")
class submodule_that_returns_none(nn.Module):
    def __init__(self):
        super().__init__()
        self.side, self.o = _Side(), nn.Linear(8, 2)

    def forward(self, x):
        self.side(x)
        return self.o(self.side.cache)


class _NT(NamedTuple):
    a: object
    b: object
    c: object


@pattern("i0 x <", "l0 o < i0")
class strings_and_numbers_in_the_output(nn.Module):
    def __init__(self):
        super().__init__()
        self.o = nn.Linear(8, 2)

    def forward(self, x):
        y = self.o(x)
        return _NT("ok", {"k": [y, None]}, 3)


@pattern("i0 x <", "g0 fft_rfft < i0", "g1 mul < g0", "g2 fft_irfft < g1", "l0 o < g2")
class complex_numbers(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.o = nn.Parameter(torch.ones(5, dtype=torch.cfloat)), nn.Linear(8, 2)

    def forward(self, x):
        return self.o(torch.fft.irfft(torch.fft.rfft(x) * self.w, n=8))


class _Star(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(8, 8)

    def forward(self, *args, **kw):
        return self.l(args[0]) + kw.get("b", 0)


@pattern(
    "i0 xs.0 <", "i1 b <", "l0 a.l < i0", "r0 residual add < l0 i1",
    args=(torch.ones(2, 8), torch.ones(2, 8)), kwargs={"b": torch.ones(8)},
)  # fmt: skip
class star_arguments(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = _Star()

    def forward(self, *xs, **kw):
        return self.a(*xs, **kw)


@pattern("i0 x <", "l0 input < i0", "l1 output < l0", "l2 name < l1")
class attributes_with_odd_names(nn.Module):
    def __init__(self):
        super().__init__()
        self.input, self.output, self.name = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.name(self.output(self.input(x)))


class _Data:
    def __init__(self, x):
        self.x = x


@pattern("i0 d.x <", "l0 l < i0", args=(_Data(torch.ones(4, 8)),))
class data_object(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(8, 8)

    def forward(self, d):
        return _Data(self.l(d.x)).x


@pattern(
    "i0 a <", "i1 b <", "l0 enc.0 < i0", "f0 enc.1 < l0", "l1 enc.0 < i1", "f1 enc.1 < l1",
    "g2 cat < f0 f1", "l2 o < g2",
    args=(torch.ones(2, 8), torch.ones(2, 8)),
)  # fmt: skip
class siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.o = nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(16, 1)

    def forward(self, a, b):
        return self.o(torch.cat([self.enc(a), self.enc(b)], -1))


@pattern("i0 x <", "l0 l < i0")
class optional_argument_that_nobody_gave(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(8, 8)

    def forward(self, x, targets=None):
        y = self.l(x)
        return (y, F.mse_loss(y, targets)) if targets is not None else (y, None)


@pattern(
    "i0 x <", "i1 targets <", "l0 l < i0", "x0 mse_loss < l0 i1",
    kwargs={"targets": torch.ones(2, 8)}, output="x0",
)  # fmt: skip
class optional_argument_that_was_given(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(8, 8)

    def forward(self, x, targets=None):
        y = self.l(x)
        return (y, F.mse_loss(y, targets)) if targets is not None else (y, None)


class _MyLinear(nn.Linear):
    pass


@pattern("i0 input <", "l0 0 < i0", "f0 1 < l0", "l1 2 < f0")
def subclass_of_a_layer():
    return nn.Sequential(_MyLinear(8, 8), nn.ReLU(), _MyLinear(8, 2))


@pattern("i0 input <", "l0 0 < i0", "l1 1 < l0")
def hook_that_changes_an_output():
    net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2))
    net[0].register_forward_hook(lambda module, given, made: made * 2)
    return net


@pattern("i0 x <", "l0 a < i0", "l1 b < l0")
class write_through_a_view(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        y = torch.zeros(2, 8)
        y[:, :4].copy_(self.a(x)[:, :4])
        return self.b(y)


@pattern("i0 x <", "l0 a < i0", "r0 residual add < i0 l0")
class wide_tensors_that_are_freed_between_calls(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8)

    def forward(self, x):
        for _ in range(50):
            torch.zeros(2, 8) + 1
        y = self.a(x)
        return x + y


@pytest.mark.parametrize("name", PATTERNS)
def test_right_edges(name):
    """Each pattern draws exactly its own edges, and its main output is right."""
    build, rows, args, kwargs, output = PATTERNS[name]
    found = analyze(build(), Inputs(args or (_x(),), kwargs))
    assert picture(found.spec) == list(rows)
    assert found.strategy in ("fx", "hooks")
    if output:
        assert found.spec.output == output


@pytest.mark.parametrize("name", PATTERNS)
def test_no_pattern_leaves_a_trace_on_its_model(name):
    """Attributes, hooks and tensors are as before; no proxy is left behind."""
    build, _, args, kwargs, _ = PATTERNS[name]
    net = build()
    before = [{k: id(v) for k, v in vars(m).items()} for m in net.modules()]
    hooks = [dict(m._forward_hooks) for m in net.modules()]
    state = {k: v.clone() for k, v in net.state_dict().items()}
    analyze(net, Inputs(args or (_x(),), kwargs))
    assert [{k: id(v) for k, v in vars(m).items()} for m in net.modules()] == before
    assert [dict(m._forward_hooks) for m in net.modules()] == hooks
    assert all(torch.equal(v, net.state_dict()[k]) for k, v in state.items())


def test_two_hundred_levels_of_nesting():
    """Deep nesting is drawn from the recorded pass, not guessed."""
    net = nn.Linear(4, 4)
    for _ in range(200):
        net = nn.Sequential(net)
    found = analyze(net, torch.ones(1, 4))
    assert found.strategy in ("hooks", "fx")
    assert picture(found.spec)[-1].endswith("< i0")


def test_models_on_the_meta_device_are_read_without_values():
    """Shapes are enough."""
    with torch.device("meta"):
        net = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
    found = analyze(net, torch.ones(2, 64, device="meta"))
    assert picture(found.spec) == ["i0 input <", "l0 0 < i0", "f0 1 < l0", "l1 2 < f0"]


@pytest.mark.filterwarnings("ignore:.*jit.script.*:DeprecationWarning")
def test_a_scripted_model_is_read_through_its_operators():
    """TorchScript runs no Python, so its operators are recorded instead of its modules."""
    net = torch.jit.script(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3)))
    found = analyze(net, torch.ones(2, 6))
    assert [block.kind for block in found.spec.blocks] == ["input", "linear", "activation", "linear"]
    assert [(b.params.in_, b.params.out) for b in found.spec.blocks if b.kind == "linear"] == [
        (6, 12),
        (12, 3),
    ]


@pytest.mark.filterwarnings("ignore:Lazy modules:UserWarning")
def test_a_lazy_model_stays_lazy():
    """It is read from a copy that ran once."""
    net = nn.Sequential(nn.LazyLinear(5), nn.ReLU())
    found = analyze(net, torch.ones(2, 3))
    assert (found.spec.block("l0").params.in_, found.spec.block("l0").params.out) == (3, 5)
    assert type(net[0]) is nn.LazyLinear


def test_writes_are_seen_on_tensors_that_do_not_count_them():
    """Inference tensors have no write counter."""
    with torch.inference_mode():
        found = analyze(nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True)), torch.ones(1, 4))
    assert picture(found.spec) == ["i0 input <", "l0 0 < i0", "f0 1 < l0"]


@pytest.mark.filterwarnings("ignore:.*jit.*:DeprecationWarning")
def test_a_scripted_child_is_read_through_its_operators():
    """Between Python modules on both sides."""
    child = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    found = analyze(nn.Sequential(child, nn.Linear(4, 2)), torch.ones(1, 4))
    assert picture(found.spec) == ["i0 input <", "l0 0.0 < i0", "f0 relu < l0", "l1 1 < f0"]
