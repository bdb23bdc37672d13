"""What both callbacks share."""

from __future__ import annotations

import pytest

from ptoa_integrations.holder import WatchHolder, torch_optimizer


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
    real = object()
    assert torch_optimizer(wrapped(real)) is real


def test_no_optimizer_stays_none():
    assert torch_optimizer(None) is None


def test_a_holder_opens_nothing_until_training_begins():
    holder = WatchHolder(5, False, run_file=False)
    holder.log(loss=1.0)
    holder.close()
    assert holder.watch is None
