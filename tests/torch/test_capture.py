"""One forward pass as a frame, within its limits, and a frame every few steps."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

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


class Fused(nn.Module):
    """Attention by the fused kernel, with every argument that it takes."""

    def __init__(self, kv_heads=4, **options):
        super().__init__()
        self.num_heads, self.kv_heads, self.options = 4, kv_heads, options
        self.q, self.k, self.v = nn.Linear(16, 16), nn.Linear(16, 4 * kv_heads), nn.Linear(16, 4 * kv_heads)
        self.o = nn.Linear(16, 16)

    def parts(self, x):
        heads = (self.num_heads, self.kv_heads, self.kv_heads)
        made = zip((self.q(x), self.k(x), self.v(x)), heads, strict=True)
        return [part.unflatten(-1, (count, 4)).transpose(1, 2) for part, count in made]

    def forward(self, x):
        query, key, value = self.parts(x)
        more = {} if self.kv_heads == 4 else {"enable_gqa": True}
        mixed = functional.scaled_dot_product_attention(query, key, value, **self.options, **more)
        return x + self.o(mixed.transpose(1, 2).flatten(2))

    def expected(self, x):
        """The formula of the function's own documentation."""
        query, key, _ = self.parts(x)
        key = key.repeat_interleave(4 // self.kv_heads, 1)
        scores = query @ key.transpose(-2, -1) * (self.options.get("scale") or 0.5)
        mask = self.options.get("attn_mask")
        if self.options.get("is_causal"):
            mask = torch.ones(scores.shape[-2:]).tril().bool()
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype is torch.bool else scores + mask
        return scores.softmax(-1)


def _values(tensor):
    return torch.tensor(tensor.values()).reshape(tensor.dataShape or tensor.shape)


_BAND = torch.ones(6, 6).tril(1).bool()
_takes_scale = "scale=" in (functional.scaled_dot_product_attention.__doc__ or "")
_takes_gqa = "enable_gqa=" in (functional.scaled_dot_product_attention.__doc__ or "")


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="plain"),
        pytest.param({"is_causal": True}, id="causal"),
        pytest.param({"attn_mask": _BAND}, id="bool-mask"),
        pytest.param({"attn_mask": torch.arange(72.0).reshape(2, 1, 6, 6) / 9}, id="added-mask"),
        pytest.param(
            {"scale": 0.25},
            id="scale",
            marks=pytest.mark.skipif(not _takes_scale, reason="this torch has no scale"),
        ),
        pytest.param(
            {"kv_heads": 2, "is_causal": True},
            id="grouped-query",
            marks=pytest.mark.skipif(not _takes_gqa, reason="this torch has no grouped query"),
        ),
    ],
)
@torch.no_grad()
def test_probabilities_of_a_fused_kernel_are_computed_again(options):
    """They are those of the documented formula; a corner of them is cut like any other tensor."""
    torch.manual_seed(0)
    net, x = Fused(**options), torch.randn(2, 6, 16)
    expected = net.expected(x)
    whole = capture(net, x).tensor("a0:weights")
    assert (whole.shape, whole.clipped) == ([2, 4, 6, 6], False)
    torch.testing.assert_close(_values(whole), expected)
    part = capture(net, x, max_elems=20).tensor("a0:weights")
    assert (part.shape, part.dataShape) == ([2, 4, 6, 6], [1, 1, 3, 6])
    torch.testing.assert_close(_values(part), expected[:1, :1, :3])


@pytest.mark.filterwarnings("ignore:Converting mask without torch.bool dtype:UserWarning")
@pytest.mark.parametrize("batch_first", [True, False])
@torch.no_grad()
def test_multihead_attention_gives_a_pattern_for_each_head(batch_first):
    """Also where the module was asked for no weights."""

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(8)
            self.attn = nn.MultiheadAttention(8, 2, batch_first=batch_first)

        def forward(self, x):
            h = self.norm(x)
            return x + self.attn(h, h, h, attn_mask=self.mask(x), need_weights=False)[0]

        def mask(self, x):
            length = x.shape[1] if batch_first else x.shape[0]
            return torch.ones(length, length).triu(1).bool()

    net, x = Layer().eval(), torch.randn(3, 5, 8)
    h = net.norm(x)
    expected = net.attn(h, h, h, attn_mask=net.mask(x), average_attn_weights=False)[1]
    torch.testing.assert_close(_values(capture(net, x).tensor("a0:weights")), expected)


def test_tensors_without_numbers_are_uncaptured():
    """On the meta device there is nothing to send, and every block says so."""
    with torch.device("meta"):
        net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    frame = capture(net, torch.ones(1, 4, device="meta"))
    assert (frame.tensors, frame.uncaptured) == ([], ["i0", "l0", "f0"])


def _nested():
    return torch.nested.nested_tensor([torch.ones(3, 4), torch.ones(5, 4)])


@pytest.mark.filterwarnings("ignore:.*(prototype|torch.nested).*")
@pytest.mark.parametrize(
    ("make", "missing"),
    [
        pytest.param(lambda: torch.ones(2, 4).to_sparse(), ["i0"], id="sparse"),
        pytest.param(lambda: torch.ones(2, 4, dtype=torch.cfloat), ["i0", "l0"], id="complex"),
        pytest.param(_nested, ["i0", "l0"], id="nested"),
    ],
)
def test_what_float32_cannot_say_is_uncaptured(make, missing):
    """It is left out and its block is named; the others are there."""

    class Plain(nn.Module):
        def __init__(self, dtype):
            super().__init__()
            self.l, self.o = nn.Linear(4, 4, dtype=dtype), nn.Linear(4, 2)

        def forward(self, x):
            made = self.l(x.to_dense() if x.is_sparse else x)
            made = torch.nested.to_padded_tensor(made, 0.0) if made.is_nested else made
            return self.o(made.abs() if made.is_complex() else made)

    given = make()
    frame = capture(Plain(given.dtype), given)
    assert [tensor.key for tensor in frame.tensors if tensor.key == "l1:out"] == ["l1:out"]
    assert frame.uncaptured == missing
