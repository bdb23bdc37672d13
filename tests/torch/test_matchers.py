"""The table of matchers: what a module is, judged alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ptoa_core.errors import SettingError
from ptoa_core.spec import BlockParams
from ptoa_torch import classify_module, from_module, register_matcher, roles
from ptoa_torch.roles import Role


class CausalSelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.n_head, self.c_attn, self.c_proj = 4, nn.Linear(16, 48), nn.Linear(16, 16)


class LlamaMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = nn.Linear(8, 24), nn.Linear(8, 24), nn.Linear(24, 8)
        self.act_fn = nn.SiLU()


class NewGELUActivation(nn.Module):
    pass


class Conv1D(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(3, 7)), nn.Parameter(torch.ones(7))


class RMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(5))


class Unknown(nn.Module):
    pass


def _facts(role):
    return {**role.params.to_dict(), "kind": role.kind, "role": role.role}


LLAMA_MLP = {"kind": "mlp", "d": 8, "hidden": 24, "gated": True, "variant": "silu"}


@pytest.mark.parametrize(
    ("module", "facts"),
    [
        pytest.param(nn.Linear(2, 3, bias=False), {"in": 2, "out": 3, "bias": False}, id="linear"),
        pytest.param(Conv1D(), {"kind": "linear", "in": 3, "out": 7}, id="conv1d-is-linear"),
        pytest.param(nn.Embedding(5, 2), {"kind": "embedding", "vocab": 5, "d": 2}, id="embedding"),
        pytest.param(nn.LayerNorm(6), {"kind": "norm", "variant": "layernorm", "d": 6}, id="layernorm"),
        pytest.param(RMSNorm(), {"kind": "norm", "variant": "rmsnorm", "d": 5}, id="own-rmsnorm"),
        pytest.param(nn.GELU(), {"kind": "activation", "variant": "gelu"}, id="gelu"),
        pytest.param(NewGELUActivation(), {"kind": "activation", "variant": "gelu"}, id="gelu-by-name"),
        pytest.param(nn.ELU(), {"kind": "group", "activation": "elu"}, id="elu"),
        pytest.param(nn.Softmax(-1), {"kind": "softmax"}, id="softmax"),
        pytest.param(nn.CrossEntropyLoss(), {"kind": "loss"}, id="loss"),
        pytest.param(nn.MultiheadAttention(8, 2), {"kind": "attention", "heads": 2, "d": 8}, id="multihead"),
        pytest.param(CausalSelfAttention(), {"kind": "attention", "heads": 4, "causal": True}, id="gpt"),
        pytest.param(LlamaMLP(), LLAMA_MLP, id="gated-mlp"),
        pytest.param(nn.BatchNorm1d(3), {"kind": "group", "type": "BatchNorm1d"}, id="batch-norm"),
        pytest.param(nn.Dropout(), {"role": "transparent"}, id="dropout"),
        pytest.param(nn.Sequential(nn.Linear(1, 1)), {"role": "container"}, id="container"),
        pytest.param(Unknown(), {"kind": "group", "type": "Unknown"}, id="unknown"),
    ],
)  # fmt: skip
def test_each_row_knows_its_modules(module, facts):
    """By class, attribute and shape."""
    got = _facts(classify_module(module))
    assert {key: got.get(key) for key in facts} == facts


@pytest.fixture(autouse=True)
def no_rows_of_ones_own(monkeypatch):
    """Each test starts without rows, and leaves none behind."""
    monkeypatch.setattr(roles, "_OWN", [])


class Mixer(nn.Sequential):
    pass


def _mixer():
    return nn.Sequential(Mixer(nn.Linear(4, 4), nn.ReLU()), nn.Linear(4, 2))


def _drawn():
    blocks = from_module(_mixer(), torch.ones(1, 4)).blocks
    return [(b.kind, b.label, b.params.d) for b in blocks if b.inputs]


MIXER_DRAWN = [("mlp", "0", 4), ("linear", "1", None)]


@pytest.mark.parametrize(
    "add",
    [
        pytest.param(lambda: register_matcher(_as_mixer), id="function-to-role"),
        pytest.param(lambda: register_matcher(Mixer, kind="mlp", params={"d": 4}), id="class"),
        pytest.param(lambda: register_matcher((Mixer, Unknown), kind="mlp", params={"d": 4}), id="classes"),
        pytest.param(
            lambda: register_matcher(lambda m: type(m) is Mixer, kind="mlp", params=BlockParams(d=4)),
            id="predicate",
        ),
        pytest.param(
            lambda: register_matcher(Mixer, kind="mlp", params=lambda m: {"d": m[0].in_features}),
            id="params-of-the-module",
        ),
    ],
)
def test_a_row_of_the_users_own_comes_first(add):
    """Also in what is drawn, however the row is given."""
    add()
    assert _drawn() == MIXER_DRAWN


def _as_mixer(module):
    return Role("block", "mlp", BlockParams(d=4)) if isinstance(module, Mixer) else None


def test_a_row_that_is_taken_out_counts_no_more():
    """And taking it out twice is no error."""
    row = register_matcher(Mixer, kind="mlp", params={"d": 4})
    row.remove()
    row.remove()
    assert [kind for kind, _, _ in _drawn()] == ["linear", "activation", "linear"]


def test_the_latest_row_is_asked_first():
    """A later one passes to an earlier one with None."""
    register_matcher(Mixer, kind="mlp", params={"d": 4})
    late = register_matcher(Mixer, kind="norm", params={"d": 4})
    assert [kind for kind, _, _ in _drawn()] == ["norm", "linear"]
    late.remove()
    register_matcher(lambda module: None)
    assert [kind for kind, _, _ in _drawn()] == ["mlp", "linear"]


def test_a_row_names_its_block_and_keeps_keys_of_its_own():
    """Labels and params of the user's own reach the spec."""
    register_matcher(
        Mixer, kind="group", label=lambda m: f"mixer of {len(m)}", params={"type": "Mixer", "rank": 2}
    )
    block = from_module(_mixer(), torch.ones(1, 4)).blocks[1]
    assert (block.label, block.params.extra["type"], block.params.extra["rank"]) == ("mixer of 2", "Mixer", 2)


def test_a_row_may_say_that_a_known_layer_is_looked_into():
    """A container is drawn as what runs inside of it."""
    register_matcher(lambda m: Role("container") if isinstance(m, nn.MultiheadAttention) else None)
    assert classify_module(nn.MultiheadAttention(8, 2)).role == "container"


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        pytest.param((3,), {}, "match must be a function", id="no-function"),
        pytest.param((Mixer,), {}, "to match a class, say which kind", id="class-without-kind"),
        pytest.param((Mixer,), {"kind": "tokens"}, "kind must be one of", id="kind-of-an-input"),
        pytest.param((Mixer,), {"kind": "conv"}, "got 'conv'", id="kind-of-no-spec"),
        pytest.param((3,), {"kind": "mlp"}, "match must be a module class", id="no-predicate"),
        pytest.param(((),), {"kind": "mlp"}, "match must be a module class", id="no-classes"),
        pytest.param((_as_mixer,), {"params": {"d": 4}}, "belong to a kind", id="params-without-kind"),
    ],
)
def test_a_row_that_can_never_be_used_is_refused_at_once(arguments, settings, message):
    """And is not added."""
    with pytest.raises(SettingError, match=message):
        register_matcher(*arguments, **settings)
    assert roles._OWN == []


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        pytest.param(lambda m: "mlp", "got 'mlp', wanted a Role or None", id="text"),
        pytest.param(lambda m: Role("blok"), "role must be one of", id="role"),
        pytest.param(lambda m: Role("block", "convolution"), "got 'convolution'", id="kind"),
        pytest.param(lambda m: Role("block", "mlp", {"d": 4}), "params must be BlockParams", id="params"),
        pytest.param(lambda m: Role("block", "mlp", BlockParams(d="wide")), "d", id="type-of-a-param"),
        pytest.param(lambda m: Role("block", "mlp", label=7), "label must be a text", id="label"),
        pytest.param(lambda m: m.nothing, "raised AttributeError on", id="raises"),
    ],
)  # fmt: skip
def test_a_wrong_answer_names_the_row_and_the_class(answer, message):
    """The error says which row it was and what it was asked about."""
    register_matcher(answer, "my row")
    with pytest.raises(SettingError, match=message) as caught:
        from_module(Mixer(nn.Linear(4, 4)), torch.ones(1, 4))
    assert "'my row'" in str(caught.value)
    assert "Mixer" in str(caught.value)
