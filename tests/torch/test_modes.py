"""A model that is read is afterwards exactly as it was."""

from __future__ import annotations

import random
from collections import deque

import pytest
import torch
from torch import nn

import ptoa_torch.modes as modes
from ptoa_torch.modes import evaluating, untouched


def _net():
    return nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Sequential(nn.Dropout()))


def test_evaluating_puts_each_modules_own_flag_back():
    """A frozen child stays frozen, which model.train() would not leave so."""
    net = _net()
    net[1].eval()
    flags = [module.training for module in net.modules()]
    with evaluating(net):
        assert not any(module.training for module in net.modules())
    assert [module.training for module in net.modules()] == flags


def test_evaluating_does_not_run_an_overridden_train():
    """Adapters merge weights in train(); that must not happen on the way."""

    class Loud(nn.Linear):
        def train(self, mode=True):
            raise AssertionError("train was called")

    layer = Loud(2, 2)
    with evaluating(layer):
        assert layer.training is False
    assert layer.training is True


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_flags_come_back_after_an_exception(error):
    """Also Ctrl+C."""
    net = _net()
    with pytest.raises(error), evaluating(net):
        raise error
    assert all(module.training for module in net.modules())


def _append(net):
    net.history.append(1)


def _new_attribute(net):
    net.last = torch.ones(1)


def _drop_attribute(net):
    del net.note


def _take_out_and_back(net):
    note = net.note
    del net.note
    net.note = note


def _nested(net):
    net.table["deep"][0].add(5)


def _plain_object(net):
    net.state.count += 1


def _queue(net):
    net.queue.append(4)


def _hook(net):
    net.register_forward_hook(lambda *a: None)


def _swap_parameter(net):
    net.lin.weight = nn.Parameter(torch.zeros(2, 2))


def _write_parameter(net):
    with torch.no_grad():
        net.lin.weight.mul_(2)


def _write_through_data(net):
    net.lin.weight.data.zero_()


def _give_other_data(net):
    net.lin.weight.data = torch.zeros(2, 2)


def _change_the_type(net):
    net.double()


def _transpose_data(net):
    net.lin.weight.data = net.lin.weight.data.t()


def _write_view(net):
    with torch.no_grad():
        net.lin.weight[0].fill_(9)


def _write_out(net):
    with torch.no_grad():
        torch.add(net.lin.bias, 1, out=net.lin.bias)


def _batch_stats(net):
    net.norm.train()
    net.norm(torch.randn(4, 2))


def _buffer_in_place(net):
    net.steps += 1


def _big_buffer(net):
    net.big.add_(1)


def _max_norm(net):
    net.emb(torch.tensor([0, 1]))


def _requires_grad(net):
    net.lin.weight.requires_grad_(False)


def _grad(net):
    net.lin(torch.ones(1, 2)).sum().backward()


def _random(net):
    torch.randn(3)
    random.random()


def _modules(net):
    net.extra = nn.Linear(1, 1)


class _State:
    count = 0


class _Busy(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.norm = nn.Linear(2, 2), nn.BatchNorm1d(2)
        self.emb = nn.Embedding(3, 2, max_norm=0.01)
        self.register_buffer("steps", torch.zeros(()))
        self.register_buffer("big", torch.zeros(300, 300))
        self.history, self.note, self.queue = [0], "n", deque([1])
        self.table, self.state = {"deep": [{1}]}, _State()


def _look(net):
    return {
        "tensors": {k: v.clone() for k, v in net.state_dict().items()},
        "identity": [id(p) for p in net.parameters()],
        "storages": [t.data_ptr() for t in (*net.parameters(), *net.buffers())],
        "layouts": [(t.dtype, t.stride()) for t in (*net.parameters(), *net.buffers())],
        "versions": [t._version for t in (*net.parameters(), *net.buffers())],
        "flags": [p.requires_grad for p in net.parameters()],
        "grads": [p.grad is None for p in net.parameters()],
        "hooks": [list(m._forward_hooks) for m in net.modules()],
        "names": list(vars(net)),
        "plain": (list(net.history), net.note, list(net.queue), repr(net.table), net.state.count),
        "modules": [name for name, _ in net.named_modules()],
        "random": (torch.get_rng_state(), random.getstate()),
    }


def _same(a, b):
    for key in a:
        if key == "tensors":
            assert a[key].keys() == b[key].keys()
            assert all(torch.equal(a[key][name], b[key][name]) for name in a[key])
        elif key == "random":
            assert torch.equal(a[key][0], b[key][0])
            assert a[key][1] == b[key][1]
        else:
            assert a[key] == b[key], key


_CHANGES = [
    _append, _new_attribute, _drop_attribute, _take_out_and_back, _nested, _plain_object,
    _queue, _hook, _swap_parameter,
    _write_parameter, _write_through_data, _give_other_data, _change_the_type, _transpose_data,
    _write_view, _write_out, _batch_stats, _buffer_in_place,
    _big_buffer, _max_norm, _requires_grad, _grad, _random, _modules,
]  # fmt: skip


@pytest.mark.parametrize("change", _CHANGES, ids=lambda change: change.__name__.strip("_"))
def test_untouched_puts_back(change):
    """Whatever a forward may do to its model is undone."""
    net = _Busy()
    before = _look(net)
    with untouched(net):
        change(net)
    _same(before, _look(net))


@pytest.mark.parametrize("change", _CHANGES, ids=lambda change: change.__name__.strip("_"))
def test_each_change_is_seen_by_the_comparison(change):
    """The test above could fail: without the guard every change shows."""
    net = _Busy()
    before = _look(net)
    change(net)
    with pytest.raises((AssertionError, AttributeError)):
        _same(before, _look(net))


def test_untouched_puts_the_callers_inputs_back():
    """Tensors and containers that a forward writes to."""
    tensor, batch = torch.zeros(3), {"ids": [1]}
    with untouched(nn.Identity(), (tensor, batch)):
        tensor.add_(1)
        batch["ids"].append(2)
        batch["new"] = 3
    assert tensor.tolist() == [0, 0, 0]
    assert batch == {"ids": [1]}


def test_a_pending_graph_still_runs_backward_after_its_buffer_was_written():
    """The write counter comes back with the content, so autograd finds what it saved."""
    net = _Busy()
    loss = (net.lin(torch.ones(1, 2)) * net.steps).sum()
    with untouched(net):
        net.steps += 1
    loss.backward()


@pytest.mark.parametrize("caching", [True, False])
def test_casts_made_without_gradients_are_not_used_by_the_callers_forward(caching):
    """Autocast keeps the casts of weights until its outermost block ends."""
    net = nn.Linear(4, 1)
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=caching):
        with torch.no_grad(), untouched(net):
            net(torch.ones(2, 4))
        loss = net(torch.ones(2, 4)).float().sum()
        assert torch.is_autocast_cache_enabled() is caching
    loss.backward()
    assert net.weight.grad is not None


def test_untouched_works_after_an_exception():
    """KeyboardInterrupt is no Exception, and the model comes back all the same."""
    net = _Busy()

    def interrupted():
        net.history.append(1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), untouched(net):
        interrupted()
    assert net.history == [0]


def test_no_large_tensor_is_copied_up_front():
    """A parameter is copied only when it is about to be written."""
    guard = modes.StateGuard(nn.Linear(400, 400), None)
    assert guard.saved_bytes() == 0
