"""One forward pass as a frame, within its limits, and a frame every few steps."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ptoa_core.errors import PtoaWarning, SettingError
from ptoa_torch import ForwardError, TraceWatch, capture, from_module, watch_trace


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.p = nn.Embedding(9, 4), nn.Embedding(6, 4)
        self.l = nn.Linear(4, 3)

    def forward(self, ids):
        return self.l(self.e(ids) + self.p(torch.arange(ids.shape[1])))


def ids():
    return torch.tensor([[3, 1, 2]])


def test_every_block_has_its_output_and_a_table_where_it_has_one():
    """The values are those that the modules make."""
    net = Net()
    frame = capture(net, ids())
    assert [t.key for t in frame.tensors] == ["t0:out", "e0:out", "p0:out", "p0:table", "l0:out"]
    assert frame.uncaptured is None
    assert frame.tensor("l0:out").values() == pytest.approx(net(ids()).flatten().tolist())
    assert frame.tensor("p0:table").values() == pytest.approx(net.p.weight.flatten().tolist())
    assert frame.tensor("t0:out").values() == [3, 1, 2]


def test_a_tensor_is_cut_to_its_leading_corner():
    """It keeps its true shape and says what was sent."""
    (made,) = [t for t in capture(Net(), ids(), 4).tensors if t.key == "e0:out"]
    assert (made.shape, made.clipped, made.dataShape) == ([1, 3, 4], True, [1, 1, 4])


def test_over_the_budget_of_a_frame_only_the_shape_is_sent():
    """Its data has a shape of zeros."""
    frame = capture(Net(), ids(), max_frame_elems=16)
    last = frame.tensor("p0:out")
    assert (last.b64, last.clipped, last.dataShape, last.shape) == ("", True, [0, 0, 0], [1, 3, 4])


def test_blocks_without_a_tensor_are_listed():
    """Complex numbers have no place in float32."""

    class Complex(nn.Module):
        def forward(self, x):
            return torch.fft.rfft(x)

    frame = capture(Complex(), torch.ones(1, 4))
    assert frame.uncaptured == ["g0"]


def test_the_ids_of_a_given_spec_are_used():
    """A spec that was read before keeps its ids, and what it has more is listed."""
    spec = from_module(Net(), ids())
    spec.blocks[-1].id = "l7"
    frame = capture(Net(), ids(), spec=spec, step=4, loss=0.5)
    assert "l7:out" in [t.key for t in frame.tensors]
    assert (frame.step, frame.loss) == (4, 0.5)


@pytest.mark.parametrize(
    ("example", "options"),
    [
        pytest.param(None, {}, id="no-input"),
        pytest.param(ids(), {"max_elems": 0}, id="no-elements"),
        pytest.param(ids(), {"max_frame_elems": -1}, id="negative-budget"),
        pytest.param(ids(), {"max_elems": True}, id="a-flag-is-no-count"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(example, options):
    """With the value that was found."""
    with pytest.raises(SettingError):
        capture(Net(), example, **options)


def test_a_failing_forward_is_a_forward_error():
    """Nothing is invented in its place."""
    with pytest.raises(ForwardError):
        capture(Net(), torch.ones(1, 3))


def test_a_frame_every_few_steps_from_the_first_on():
    """The loss of the step goes with it."""
    frames = []
    with TraceWatch(Net(), ids(), frames.append, every=2) as watching:
        for step in range(5):
            watching.step(torch.tensor(float(step)))
    assert [(f.step, f.loss) for f in frames] == [(0, 0.0), (2, 2.0), (4, 4.0)]
    watching.step()
    assert len(frames) == 3


def test_a_frame_shows_the_weights_as_they_are():
    """Training goes on between frames."""
    net, frames = Net(), []
    watching = watch_trace(net, ids(), frames.append, every=1)
    watching.step()
    with torch.no_grad():
        net.l.weight.zero_()
        net.l.bias.zero_()
    watching.step()
    assert any(frames[0].tensor("l0:out").values())
    assert not any(frames[1].tensor("l0:out").values())


def test_a_push_that_raises_ends_the_watch_and_not_the_training():
    """One warning, then silence."""

    def push(frame):
        raise OSError("disk full")

    watching = TraceWatch(Net(), ids(), push, every=1)
    with pytest.warns(PtoaWarning, match="disk full"):
        watching.step()
    watching.step()
    assert watching.closed


@pytest.mark.parametrize("every", [0, -1, 1.5, True])
def test_every_must_count(every):
    """A whole number of at least one."""
    with pytest.raises(SettingError):
        TraceWatch(Net(), ids(), print, every=every)


def test_push_must_be_callable():
    """Said at once and not at the first frame."""
    with pytest.raises(SettingError):
        TraceWatch(Net(), ids(), None)
