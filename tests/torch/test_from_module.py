"""Choosing a reader, judging it, and what happens when a model cannot be run."""

from __future__ import annotations

import gc
import inspect
import random
import re
import sys

import pytest
import torch
from torch import nn

import ptoa_torch
from ptoa_core.errors import MissingExtraError, PtoaError, PtoaWarning, SettingError
from ptoa_core.validate import validate
from ptoa_torch import ForwardError, Inputs, analyze, from_module


class Chain(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(8, 8), nn.Linear(9, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.c(self.b(self.a(x)))


class Branch(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        try:
            if x.sum() > 0:
                return self.a(x)
        except Exception:
            pass
        return self.b(x)


def test_a_model_that_can_be_traced_and_run_is_known_to_have_run():
    """The trace confirms the pass, the pass gives the shapes."""
    found = analyze(nn.Sequential(nn.Linear(8, 4)), torch.ones(2, 8))
    assert found.strategy == "fx"
    assert found.warnings == []
    assert found.spec.block("l0").params.extra["known"] == "run"
    assert found.spec.block("l0").params.extra["shape"] == [2, 4]


def test_a_tracing_error_that_the_model_swallows_is_still_an_error():
    """A try/except around a branch on a value must not make the trace look right."""
    found = analyze(Branch(), torch.ones(1, 8))
    assert [b.label for b in found.spec.blocks if b.kind != "group"] == ["x", "a"]
    assert found.strategy == "hooks"
    with pytest.raises(ForwardError, match="control flow"):
        from_module(Branch(), strategy="fx")


def test_where_the_trace_took_another_branch_the_recorded_pass_is_drawn():
    """A proxy is no tensor, so the trace goes another way, and the analysis says so."""

    class Asks(Branch):
        def forward(self, x):
            return self.a(x) if isinstance(x, torch.Tensor) else self.b(x)

    found = analyze(Asks(), torch.ones(1, 8))
    assert [b.label for b in found.spec.blocks if b.kind != "group"] == ["x", "a"]
    assert found.strategy == "hooks"
    assert found.warnings == [
        "torch.fx traces linear b that did not run; the recorded pass is drawn",
        "torch.fx does not see linear a that ran; the recorded pass is drawn",
    ]


def test_without_an_input_the_trace_is_drawn():
    """Blocks are known as traced."""
    spec = from_module(nn.Sequential(nn.Linear(8, 4), nn.ReLU()))
    assert [b.kind for b in spec.blocks] == ["input", "linear", "activation"]
    assert {b.params.extra["known"] for b in spec.blocks} == {"traced"}


def test_without_an_input_and_without_a_trace_the_tree_is_drawn_with_a_warning():
    """Its connections are a guess and every block says so."""

    class Asserting(Chain):
        def forward(self, x):
            assert x.shape[1] < 9
            return self.a(x)

    with pytest.warns(PtoaWarning, match="guess"):
        spec = from_module(Asserting())
    assert {b.params.extra["known"] for b in spec.blocks} == {"guessed"}
    assert [b.kind for b in spec.blocks] == ["input", "linear", "linear", "linear"]


def test_of_a_failing_forward_what_ran_is_drawn_and_the_rest_is_guessed():
    """The warning has the module, its class and the shapes it got; each block says how it is known."""
    with pytest.warns(PtoaWarning, match=r"b \(Linear\), which got \[2, 8\].*are a guess"):
        spec = from_module(Chain(), torch.ones(2, 8))
    assert [(b.label, b.inputs, b.params.extra["known"]) for b in spec.blocks] == [
        ("x", [], "run"),
        ("a", ["i0"], "run"),
        ("b", ["l0"], "guessed"),
        ("c", ["l1"], "guessed"),
    ]
    assert (spec.output, spec.block("l0").params.extra["shape"]) == ("l2", [2, 8])
    assert validate(spec) == []


def test_of_a_forward_that_fails_at_once_the_tree_is_drawn():
    """Nothing ran, so everything is a guess."""
    with pytest.warns(PtoaWarning, match=r"0 \(Linear\), which got \[2, 8\]"):
        spec = from_module(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), torch.ones(2, 8))
    assert {b.params.extra["known"] for b in spec.blocks} == {"guessed"}
    assert [b.label for b in spec.blocks] == ["input", "0", "1"]


def test_hooks_alone_raise_a_forward_error_with_what_ran():
    """The cause is the model's own exception; the drawing ends where the pass did."""
    with pytest.raises(ForwardError, match=r"b \(Linear\), which got \[2, 8\]") as caught:
        from_module(Chain(), torch.ones(2, 8), strategy="hooks")
    assert isinstance(caught.value, PtoaError)
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert caught.value.path == "b"
    assert [b.label for b in caught.value.spec.blocks] == ["x", "a"]


def test_keyboard_interrupt_passes_and_leaves_no_trace():
    """Ctrl+C is not an error of the model."""

    class Interrupted(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.seen = nn.Linear(8, 8), []

        def forward(self, x):
            self.seen.append(self.a(x))
            raise KeyboardInterrupt

    net = Interrupted().train()
    before = [sorted(vars(m)) for m in net.modules()]
    with pytest.raises(KeyboardInterrupt):
        analyze(net, torch.ones(1, 8))
    assert net.seen == []
    assert [sorted(vars(m)) for m in net.modules()] == before
    assert all(m.training for m in net.modules())
    assert torch.is_grad_enabled()
    assert torch._C._len_torch_function_stack() == 0


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        pytest.param(("text",), {}, "torch.nn.Module", id="no-module"),
        pytest.param((nn.Linear,), {}, "torch.nn.Module", id="class-instead-of-instance"),
        pytest.param((nn.Linear(1, 1),), {"strategy": "magic"}, "'magic'", id="unknown-strategy"),
        pytest.param((nn.Linear(1, 1),), {"strategy": "hooks"}, "example_input", id="hooks-without-input"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(args, kwargs, words):
    """One error that says what was found."""
    with pytest.raises(SettingError, match=words):
        from_module(*args, **kwargs)


def test_fx_alone_says_why_it_cannot_trace():
    """The cause is kept."""

    class Value(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(ForwardError, match="cannot trace Value") as caught:
        from_module(Value(), strategy="fx")
    assert caught.value.__cause__ is not None


def test_every_spec_is_valid():
    """Whatever the reader, the validator finds nothing."""
    net = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, enable_nested_tensor=False
    )
    for strategy in ("hooks", "tree"):
        assert validate(from_module(net, torch.ones(1, 3, 8), strategy=strategy)) == []


def test_a_wrapper_is_looked_through_and_bindings_lead_through_it():
    """The path in a binding is one of the model that was passed."""
    net = nn.DataParallel(nn.Sequential(nn.Linear(4, 4)), device_ids=[])
    spec = from_module(net, torch.ones(1, 4))
    assert spec.name == "Sequential"
    assert isinstance(net.get_submodule(spec.bindings["l0"]), nn.Linear)


def test_a_single_layer_is_a_model():
    """Its binding is the empty path, the module itself."""
    spec = from_module(nn.Linear(4, 2), torch.ones(1, 4))
    assert [b.kind for b in spec.blocks] == ["input", "linear"]
    assert spec.bindings == {"l0": ""}


def test_the_name_and_the_origin_say_where_the_model_comes_from():
    """The name may be chosen."""
    assert from_module(nn.Linear(1, 1), torch.ones(1, 1), name="mine").name == "mine"
    assert from_module(nn.Linear(1, 1), torch.ones(1, 1)).origin.source == "torch.nn.modules.linear:Linear"


def test_values_are_what_each_block_made_also_where_it_was_overwritten():
    """An in-place activation does not rewrite what the layer before it made."""
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))
    x = torch.randn(3, 4)
    found = analyze(net, x)
    torch.testing.assert_close(found.values["l0"], net[0](x).detach())
    torch.testing.assert_close(found.values["f0"], net(x).detach())


def test_attention_probabilities_are_kept_where_a_softmax_made_them():
    """One matrix a head, rows that sum to one."""

    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.o = nn.Linear(8, 24), nn.Linear(8, 8)

        def forward(self, x):
            q, k, v = (z.view(*x.shape[:2], 2, 4).transpose(1, 2) for z in self.qkv(x).chunk(3, -1))
            w = (q @ k.transpose(-1, -2)).softmax(-1)
            return self.o((w @ v).transpose(1, 2).flatten(2))

    found = analyze(nn.Sequential(Head()), torch.randn(2, 5, 8))
    weights = found.aux["a0"]["weights"]
    assert weights.shape == (2, 2, 5, 5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, 5))


def test_random_state_is_as_before():
    """Dropout is off in the pass, but a model may draw noise all the same."""

    class Noise(nn.Module):
        def forward(self, x):
            random.random()
            return x + torch.randn_like(x)

    before = torch.get_rng_state(), random.getstate()
    analyze(Noise(), torch.ones(2, 2))
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == random.getstate()


def test_ten_times_the_modules_take_about_ten_times_the_operations():
    """Reading is linear: counted in calls of Python functions, not in seconds."""

    def calls(count):
        net = nn.Sequential(*[nn.Linear(2, 2) for _ in range(count)])
        seen = 0

        def count_call(frame, event, arg):
            nonlocal seen
            seen += event == "call"

        sys.setprofile(count_call)
        try:
            from_module(net, torch.ones(1, 2))
        finally:
            sys.setprofile(None)
        return seen

    assert calls(2500) < 11 * calls(250)


def test_inputs_give_positional_and_keyword_arguments():
    """As the compatibility page has it."""

    class Both(nn.Module):
        def forward(self, a, *, b):
            return a + b

    spec = from_module(Both(), Inputs((torch.ones(2),), {"b": torch.ones(2)}))
    assert [b.label for b in spec.blocks] == ["a", "b", "residual add"]


def test_without_torch_the_error_names_the_extra(monkeypatch):
    """Only torch itself missing is explained so."""
    for name in [n for n in sys.modules if n.startswith("ptoa_torch.reading")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(ptoa_torch, "reading", None, raising=False)
    with pytest.raises(MissingExtraError, match=r"papertoanything\[torch\]"):
        from_module(object())


class _Hooked(nn.Module):
    """A hook sends the first layer's result through another one, which torch.fx never calls."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.other = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.a.register_forward_hook(lambda _module, _given, made: self.other(made))

    def forward(self, x):
        return self.b(self.a(x))


class _Connected(nn.Module):
    """The same layers in another order where no tensor comes."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        if isinstance(x, torch.Tensor):
            return self.c(self.a(x) + self.b(x))
        return self.c(self.a(x)) + self.b(x)


@pytest.mark.parametrize(
    ("build", "rows", "words"),
    [
        pytest.param(
            _Hooked, ["x <", "a < i0", "other < l0", "b < l1"], "does not see linear other", id="a-lost-hook"
        ),
        pytest.param(
            _Connected,
            ["x <", "a < i0", "b < i0", "residual add < l0 l1", "c < r0"],
            "does not connect .*add to linear c",
            id="other-edges",
        ),
    ],
)
def test_where_the_trace_differs_the_recorded_pass_is_drawn(build, rows, words):
    """The analysis says in words what torch.fx has otherwise."""
    found = analyze(build(), torch.ones(2, 8))
    assert [f"{b.label} < {' '.join(b.inputs)}".strip() for b in found.spec.blocks] == rows
    assert found.strategy == "hooks"
    assert [bool(re.search(words, text)) for text in found.warnings] == [True]


def test_the_error_of_a_pass_names_the_line_of_the_model():
    """File and line of the failing call in the model's own code, not in torch's."""
    with pytest.raises(ForwardError) as caught:
        from_module(Chain(), torch.ones(2, 8), strategy="hooks")
    line = inspect.getsourcelines(Chain.forward)[1] + 1
    assert f"{__file__}:{line}, in forward: return self.c(self.b(self.a(x)))" in str(caught.value)


def test_a_reading_leaves_nothing_for_the_cyclic_collector():
    """Tensors of the pass go at once, and a later collection has nothing to do."""
    net, x = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)), torch.ones(2, 8)
    from_module(net, x, strategy="hooks")
    gc.collect()
    was_on = gc.isenabled()
    gc.disable()
    try:
        from_module(net, x, strategy="hooks")
        assert gc.collect() == 0
    finally:
        if was_on:
            gc.enable()
