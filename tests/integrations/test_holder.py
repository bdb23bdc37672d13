"""What both callbacks share."""

from __future__ import annotations

import pytest

from ptoa_integrations.holder import WatchHolder, torch_optimizer


class Steps:
    def step(self):
        pass


class Wrapper:
    def __init__(self, inner, name="optimizer"):
        setattr(self, name, inner)


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda real: real,
        Wrapper,
        lambda real: Wrapper(real, "_optimizer"),
        lambda real: Wrapper(Wrapper(real, "_optimizer")),
    ],
    ids=["bare", "accelerate", "lightning", "both"],
)
def test_the_real_optimizer_is_found_in_its_wrappers(wrapped):
    real = Steps()
    assert torch_optimizer(wrapped(real)) is real


@pytest.mark.parametrize(
    "given",
    [None, object(), Wrapper(object()), Wrapper(None)],
    ids=["none", "stand-in", "wrapped", "empty"],
)
def test_what_cannot_step_is_no_optimizer(given):
    assert torch_optimizer(given) is None


def test_a_holder_opens_nothing_until_training_begins():
    holder = WatchHolder(5, False, run_file=False)
    holder.log(loss=1.0)
    holder.close()
    assert holder.watch is None
