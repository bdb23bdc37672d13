"""Each real update is counted once."""

from __future__ import annotations

import pytest
import torch

from ptoa_torch.steps import StepCounter, StepWatch, find_scaler, hooked_optimizer, learning_rate


def parameter():
    made = torch.nn.Parameter(torch.ones(1))
    made.grad = torch.ones(1)
    return made


class Calls(torch.optim.SGD):
    """Calls the step that it overrides."""

    def step(self, closure=None):
        return super().step(closure)


class Nested(Calls):
    def step(self, closure=None):
        return super().step(closure)


@pytest.mark.parametrize("kind", [torch.optim.SGD, Calls, Nested])
def test_a_step_counts_once(kind):
    torch.optim.SGD([parameter()], lr=0.1)  # torch wraps a class's step when its first instance is made
    Calls([parameter()], lr=0.1)
    seen = []
    optimizer = kind([parameter()], lr=0.1)
    counter = StepCounter(optimizer, lambda: seen.append("after"))
    for _ in range(2):
        optimizer.step()
    assert seen == ["after"] * 2
    assert counter.steps == 2
    counter.remove()
    assert not optimizer._optimizer_step_post_hooks


@pytest.fixture
def watched():
    """What is seen of optimizers' steps, and the watch that sees it."""
    seen = []
    watch = StepWatch(lambda one, closure: seen.append((one, closure)), seen.append)
    yield watch, seen
    watch.disarm()


def test_every_optimizer_is_seen_only_while_armed(watched):
    watch, seen = watched
    one, other = (torch.optim.SGD([parameter()], lr=0.1) for _ in range(2))
    one.step()
    watch.arm()
    watch.arm()
    one.step()
    other.step()
    watch.disarm()
    watch.disarm()
    one.step()
    assert seen == [(one, False), one, (other, False), other]


@pytest.mark.parametrize("how", ["positional", "keyword"])
def test_a_closure_is_noticed(how, watched):
    watch, seen = watched
    optimizer = torch.optim.SGD([parameter()], lr=0.1)
    watch.arm()
    if how == "positional":
        optimizer.step(lambda: 0.0)
    else:
        optimizer.step(closure=lambda: 0.0)
    assert seen[0] == (optimizer, True)


def test_a_step_that_raises_is_not_counted_and_the_next_one_is():
    optimizer = Nested([parameter()], lr=0.1)
    counter = StepCounter(optimizer)
    with pytest.raises(ZeroDivisionError):
        optimizer.step(lambda: 1 / 0)
    optimizer.step()
    assert counter.steps == 1
    counter.remove()


class Hidden(torch.optim.Optimizer):
    """A wrapper that is an optimizer by name only."""

    def __init__(self, inner):
        self.optimizer = inner

    def step(self, closure=None):
        self.optimizer.step(closure)


def test_a_wrapper_without_hooks_is_looked_through():
    inner = torch.optim.SGD([parameter()], lr=0.1)
    assert hooked_optimizer(Hidden(inner)) is inner
    assert hooked_optimizer(Hidden(Hidden(inner))) is inner
    assert hooked_optimizer(Hidden(None)) is None


def test_a_loop_of_wrappers_ends():
    loop = Hidden(None)
    loop.optimizer = loop
    assert hooked_optimizer(loop) is None


def test_the_learning_rate_is_the_first_groups():
    assert learning_rate(torch.optim.SGD([parameter()], lr=0.1)) == 0.1
    assert learning_rate(
        torch.optim.Adam([parameter()], lr=torch.tensor(0.1), capturable=False)
    ).item() == pytest.approx(0.1)
    assert learning_rate(object()) is None


def test_no_scaler_is_found_where_none_steps():
    assert find_scaler() is None
