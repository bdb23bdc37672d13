"""The table of matchers: what a module is, judged alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import ptoa_torch.matchers as matchers
from ptoa_core.spec import BlockParams
from ptoa_torch import classify_module, from_module, register_matcher
from ptoa_torch.matchers import Role


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


def test_a_row_of_the_users_own_comes_first(monkeypatch):
    """Also in what is drawn."""
    monkeypatch.setattr(matchers, "_OWN", [])

    class Mixer(nn.Sequential):
        pass

    register_matcher(lambda m: Role("block", "mlp", BlockParams(d=4)) if isinstance(m, Mixer) else None)
    spec = from_module(nn.Sequential(Mixer(nn.Linear(4, 4), nn.ReLU())), torch.ones(1, 4))
    assert [(b.kind, b.params.d) for b in spec.blocks][1:] == [("mlp", 4)]
