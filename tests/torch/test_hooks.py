"""Hooks and wraps that come off on every path and do not travel with a copy."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest
import torch
from torch import nn

from ptoa_torch.hooks import ForwardWrap, Hook, HookSet


class Doubler(nn.Module):
    def forward(self, x, *, extra=0):
        return x * 2 + extra


def plus_one(forward, args, kwargs):
    return forward(*args, **kwargs) + 1


@pytest.mark.parametrize(
    "travel", [copy.deepcopy, lambda item: pickle.loads(pickle.dumps(item))], ids=["copy", "pickle"]
)
def test_a_hook_travels_as_nothing(travel):
    seen = []
    model = Doubler()
    model.register_forward_hook(Hook(lambda *given: seen.append(given)))
    model.register_forward_pre_hook(Hook(lambda *given: seen.append(given)))
    travelled = travel(model)
    assert travelled(torch.ones(1)).item() == 2
    assert seen == []
    model(torch.ones(1))
    assert len(seen) == 2


def test_a_pickled_hook_names_nothing_of_ours():
    assert b"ptoa" not in pickle.dumps(Hook(print))


def test_what_a_hook_reacts_with_does_not_replace_the_output():
    model = Doubler()
    model.register_forward_hook(Hook(lambda *_: "something else"))
    assert model(torch.ones(1)).item() == 2


@pytest.mark.parametrize(
    "travel", [copy.deepcopy, lambda item: pickle.loads(pickle.dumps(item))], ids=["copy", "pickle"]
)
@pytest.mark.parametrize("nested", [False, True], ids=["root", "nested"])
def test_a_wrap_travels_as_the_forward_it_wraps(travel, nested):
    inner = Doubler()
    model = nn.Sequential(inner) if nested else inner
    wrap = ForwardWrap(inner, plus_one)
    travelled = travel(model)
    with torch.no_grad():
        assert travelled(torch.ones(1)).item() == 2
        assert model(torch.ones(1)).item() == 3
    wrap.remove()
    assert travelled(torch.ones(1)).item() == 2


def test_a_travelled_forward_belongs_to_the_copy():
    model = nn.Linear(1, 1)
    ForwardWrap(model, lambda forward, args, kwargs: forward(*args, **kwargs))
    made = copy.deepcopy(model)
    with torch.no_grad():
        made.weight.fill_(0.0)
        made.bias.fill_(5.0)
    assert made(torch.ones(1)).item() == 5.0


def test_a_wrap_keeps_the_signature_and_passes_keywords():
    model = Doubler()
    ForwardWrap(model, plus_one)
    assert str(inspect.signature(model.forward)) == "(x, *, extra=0)"
    assert model(torch.ones(1), extra=10).item() == 13


def test_removing_a_wrap_leaves_no_attribute():
    model = Doubler()
    ForwardWrap(model, plus_one).remove()
    assert "forward" not in vars(model)


def test_removing_a_wrap_puts_a_forward_of_the_instance_back():
    model = Doubler()
    own = model.forward = lambda x: x * 10
    ForwardWrap(model, plus_one).remove()
    assert model.forward is own


def test_a_wrap_under_another_one_becomes_a_way_through():
    model = Doubler()
    wrap = ForwardWrap(model, plus_one)
    below = model.forward
    model.forward = lambda x: below(x) * 100
    wrap.remove()
    assert model(torch.ones(1)).item() == 200


def test_a_set_takes_everything_off():
    model, hooks = nn.Sequential(Doubler()), HookSet()
    hooks.before(model[0], lambda *_: None)
    hooks.after(model[0], lambda *_: None)
    hooks.around(model, plus_one)
    assert model(torch.ones(1)).item() == 3
    hooks.remove()
    assert not model[0]._forward_hooks
    assert not model[0]._forward_pre_hooks
    assert "forward" not in vars(model)


def test_a_hook_with_a_key_is_made_once_and_is_off_between_times():
    layer, hooks, seen = nn.Linear(1, 1), HookSet(), []
    for name in ("first", "second"):
        hooks.after(layer, lambda *_, name=name: seen.append(name), key="layer")
        layer(torch.ones(1, 1))
        hooks.remove()
        layer(torch.ones(1, 1))
    assert seen == ["first", "first"]
    assert not layer._forward_hooks
    assert not layer._forward_hooks_with_kwargs


def test_a_hook_with_a_key_follows_its_module_to_new_tables():
    layer, hooks, seen = nn.Linear(1, 1), HookSet(), []
    hooks.before(layer, lambda *_: seen.append(1), key="layer")
    hooks.remove()
    layer._forward_pre_hooks = type(layer._forward_pre_hooks)()
    hooks.before(layer, lambda *_: seen.append(2), key="layer")
    layer(torch.ones(1, 1))
    assert seen == [2]
    hooks.forget()
    assert not layer._forward_pre_hooks
