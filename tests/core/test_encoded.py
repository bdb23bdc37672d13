"""A frame as bytes: encoded once, block by block, numbers that are not finite named."""

from __future__ import annotations

import json
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptoa_core.encoded import EncodedFrame, encode_frame, encode_trace
from ptoa_core.errors import FrameError, TensorError
from ptoa_core.frames import BlockHealth, FrameTensor, HeadPattern, HealthFrame, TensorStats, TraceFrame
from ptoa_core.jsontext import dumps, loads

NAN, INF = float("nan"), float("inf")


def stats(**keys):
    return TensorStats(
        **{"mean": 0.5, "std": 0.25, "absMax": 2.0, "zeroFrac": 0.0, "nanCount": 0, "infCount": 0, **keys}
    )


def test_finite_frame_is_its_canonical_json():
    frame = HealthFrame(
        3, 1.5, 0.25, [BlockHealth("µ", act=stats(hist=[1, 2])), BlockHealth("l0")], lr=0.1, memory=7
    )
    encoded = encode_frame(frame)
    assert encoded == EncodedFrame(3, dumps(frame).encode(), None)
    assert encode_frame(frame.to_dict()) == encoded
    assert encode_frame(encoded) is encoded
    assert encoded.decode() == frame


USUAL = {
    "bare": BlockHealth("l0"),
    "stats": BlockHealth("l0", act=stats(hist=[0, 5, 20_000]), grad=stats(satFrac=0.1), hidden=stats()),
    "numbers": BlockHealth("l0", weightNorm=1e-30, weightGradNorm=3.0, updateRatio=-0.0),
    "letters": BlockHealth('a "quoted" name\n'),
    "other-letters": BlockHealth("µ", act=stats()),
    "surrogate-pair": BlockHealth("\U0001f600"),
    "no-finite-value": BlockHealth("l0", act=stats(mean=None, std=None, absMax=None, nanCount=3)),
    "whole-numbers": BlockHealth("l0", act=stats(mean=1, std=2), weightNorm=7),
    "entropy": BlockHealth("a0", headEntropy=[0.5, 1.25]),
    "no-entropy": BlockHealth("a0", headEntropy=[]),
    "extension": BlockHealth("a0", act=stats(extra={"histSample": 9, "deadFrac": 0.5}), extra={"calls": 2}),
    "missing": BlockHealth("a0", extra={"missing": {"act": "did not run: é", "grad": "-"}}),
    "unknown-extension": BlockHealth("a0", act=stats(extra={"x": [1]}), extra={"y": None, "z": True}),
    "pattern": BlockHealth("a0", headPattern=[HeadPattern(0, 1, "AACAPw==")], extra={"calls": 3}),
    "odd-pattern": BlockHealth("a0", headPattern=[HeadPattern(0, 1, "AACAPw==", extra={"x": 1})]),
}


@pytest.mark.parametrize("block", USUAL.values(), ids=USUAL.keys())
def test_a_row_is_written_as_its_object_is(block):
    frame = HealthFrame(0, 1.0, 0.5, [block])
    assert encode_frame(frame) == encode_frame(frame.to_dict())


FLOATS = st.floats(allow_nan=True, allow_infinity=True)


@given(FLOATS, FLOATS, st.lists(st.integers(0, 2**60), max_size=5), st.integers(-5, 2**60))
def test_no_number_is_written_otherwise_than_in_its_object(mean, norm, hist, count):
    block = BlockHealth("l0", act=stats(mean=mean, hist=hist, nanCount=count), weightNorm=norm)
    frame = HealthFrame(0, 1.0, 0.5, [block])

    def written(item):
        try:
            return encode_frame(item)
        except FrameError as error:
            return str(error)

    assert written(frame) == written(frame.to_dict())


@pytest.mark.parametrize("name", ["__proto__", "\ud800", 5, None], ids=repr)
def test_a_row_that_no_reader_takes_is_refused_as_its_object_is(name):
    for block in (BlockHealth(name), BlockHealth("l0", extra={"missing": {name: "x"}})):
        frame = HealthFrame(0, 1.0, 0.5, [block])
        try:
            expected = encode_frame(frame.to_dict())
        except FrameError:
            with pytest.raises(FrameError):
                encode_frame(frame)
        else:
            assert encode_frame(frame) == expected


def as_f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=4, max_size=4))
def test_a_statistic_keeps_its_float32_in_at_most_nine_digits(values):
    keys = ("mean", "std", "absMax", "zeroFrac")
    block = BlockHealth("l0", act=stats(**dict(zip(keys, values, strict=True))))
    text = encode_frame(HealthFrame(0, 1.0, 0.5, [block]), single=True).text
    found = loads(text)["blocks"][0]["act"]
    assert [as_f32(found[key]) for key in keys] == values
    for key, value in zip(keys, values, strict=True):
        digits = repr(float(found[key])).split("e")[0].replace("-", "").replace(".", "").strip("0")
        assert len(digits) <= 9 or abs(value) < 2.0**-126


@pytest.mark.parametrize("value", [0.0, -0.0, 1e39, -1e300, 1e-50, 5e-324, 1e-40, 16777217.0], ids=repr)
def test_what_float32_cannot_hold_is_written_in_full(value):
    block = BlockHealth("l0", weightNorm=value, updateRatio=0.1)
    [row] = loads(encode_frame(HealthFrame(0, 1.0, 0.5, [block]), single=True).text)["blocks"]
    assert (row["weightNorm"], row["updateRatio"]) == (as_f32(value) if value == 16777217.0 else value, 0.1)


def test_a_loss_keeps_all_its_digits():
    frame = HealthFrame(0, 1.0, 0.1 + 0.2, lr=1 / 3)
    assert encode_frame(frame, single=True) == encode_frame(frame)


def test_counts_of_a_histogram_are_written_as_whole_numbers():
    frame = HealthFrame(0, 1.0, 0.5, [BlockHealth("l0", act=stats(hist=[3.0, 4.0]))])
    whole = HealthFrame(0, 1.0, 0.5, [BlockHealth("l0", act=stats(hist=[3, 4]))])
    assert b'"hist":[3,4]' in encode_frame(whole).text
    assert loads(encode_frame(frame).text)["blocks"][0]["act"]["hist"] == [3, 4]


def test_lean_text_is_the_same_without_patterns():
    pattern = [HeadPattern(0, 1, "AACAPw==")]
    frame = HealthFrame(
        3, 1.5, 0.25, [BlockHealth("a0", headPattern=pattern, extra={"x": 1}), BlockHealth("l0")]
    )
    encoded = encode_frame(frame)
    assert encoded.text == dumps(frame).encode()
    assert loads(encoded.lean) == {**frame.to_dict(), "blocks": [{"id": "a0", "x": 1}, {"id": "l0"}]}
    assert encoded.decode() == frame


def test_every_number_that_is_not_finite_is_null_and_named():
    frame = HealthFrame(
        0,
        1.0,
        NAN,
        [
            BlockHealth("l0", weightNorm=1.0),
            BlockHealth(
                "a.0", act=stats(mean=NAN, hist=[1.0, INF]), headEntropy=[0.5, NAN], updateRatio=-INF
            ),
        ],
        gradNorm=INF,
        timing={"forward": NAN, "data": 1.0},
        extra={"cost": {"ms": INF}},
    )
    encoded = encode_frame(frame)
    data = loads(encoded.text)
    assert data["nonFinite"] == {
        "loss": "nan",
        "gradNorm": "inf",
        "timing.forward": "nan",
        "cost.ms": "inf",
        "blocks.a.0.act.mean": "nan",
        "blocks.a.0.act.hist.1": "inf",
        "blocks.a.0.headEntropy.1": "nan",
        "blocks.a.0.updateRatio": "-inf",
    }
    assert (data["loss"], data["gradNorm"], data["timing"]) == (None, None, {"forward": None, "data": 1.0})
    assert data["blocks"][1]["act"]["hist"] == [1.0, None]
    assert data["blocks"][1]["updateRatio"] is None
    assert frame.loss is not None
    assert math.isnan(frame.loss)


def test_encoding_what_was_decoded_changes_nothing():
    frame = HealthFrame(0, 1.0, NAN, [BlockHealth("l0", weightNorm=INF, act=stats(mean=NAN))], gradNorm=INF)
    encoded = encode_frame(frame)
    again = encode_frame(encoded.decode())
    assert loads(again.text) == loads(encoded.text)


def test_unknown_loss_is_null_and_not_named():
    assert encode_frame(HealthFrame(0, 1.0, None)).text == b'{"step":0,"t":1.0,"loss":null,"blocks":[]}'


def test_names_that_the_frame_gives_itself_are_kept():
    frame = HealthFrame(0, 1.0, None, gradNorm=NAN, nonFinite={"loss": "inf"})
    assert loads(encode_frame(frame).text)["nonFinite"] == {"loss": "inf", "gradNorm": "nan"}


def test_object_is_written_as_it_stands():
    data = {
        "blocks": [{"id": "t0", "headPattern": [{"head": 0, "size": 1, "b64": "A" * 9}]}],
        "step": 2,
        "q": [None],
    }
    assert loads(encode_frame(data).text) == data
    assert loads(encode_frame({"step": 0}).text) == {"step": 0, "blocks": []}


REFUSED = {
    "none": None,
    "number": 5,
    "text": "x",
    "list": [],
    "empty": {},
    "no-step": {"blocks": []},
    "step-text": {"step": "1"},
    "step-negative": {"step": -1},
    "step-true": {"step": True},
    "step-huge": {"step": 2**53},
    "step-fraction": HealthFrame(1.5, 0.0, None),
    "blocks-text": {"step": 0, "blocks": "ab"},
    "blocks-of-text": {"step": 0, "blocks": ["ab"]},
    "surrogate": {"step": 0, "name": "\ud800"},
    "surrogate-in-block": {"step": 0, "blocks": [{"id": "\ud800"}]},
    "set": {"step": 0, "blocks": [{"id": {1}}]},
    "number-as-key": {"step": 0, 5: 1},
    "proto": {"step": 0, "__proto__": 1},
    "too-deep": {"step": 0, "blocks": [{"id": "a", "x": [[[[[NAN]]]]] * 1 if False else None}], "x": None},
    "no-stats": HealthFrame(0, 0.0, None, [BlockHealth("a", act=5)]),
}
DEEP: list = []
for _ in range(70):
    DEEP = [DEEP]
REFUSED["too-deep"] = {"step": 0, "x": DEEP}
REFUSED["too-deep-with-nan"] = {"step": 0, "blocks": [{"id": "a", "x": [NAN, DEEP]}]}


@pytest.mark.parametrize("frame", REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_a_frame_is_refused(frame):
    with pytest.raises(FrameError):
        encode_frame(frame)


def test_trace_is_its_canonical_json_tensor_by_tensor():
    frame = TraceFrame(
        3, [FrameTensor("e0:out", [1], "AACAPw=="), FrameTensor("t0:out", [0], "")], 0.5, ["l0"]
    )
    assert encode_trace(frame) == dumps(frame).encode()
    assert encode_trace(frame.to_dict()) == dumps(frame).encode()
    assert json.loads(encode_trace(TraceFrame(0, loss=NAN)))["nonFinite"] == {"loss": "nan"}


@pytest.mark.parametrize(
    "frame", [None, 5, {"tensors": 5}, {"tensors": [{1}]}, {"loss": NAN}, TraceFrame(0, [None])]
)
def test_what_cannot_be_a_trace_is_refused(frame):
    with pytest.raises((FrameError, TensorError)):
        encode_trace(frame)


NUMBERS = st.none() | st.floats() | st.integers(0, 2**40)


@given(
    st.integers(0, 2**53 - 1),
    NUMBERS,
    st.lists(
        st.tuples(
            st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
            NUMBERS,
            st.lists(NUMBERS, max_size=3),
        ),
        max_size=3,
    ),
)
def test_every_frame_encodes_to_strict_json_that_decodes(step, loss, rows):
    blocks = [BlockHealth(name, weightNorm=norm, headEntropy=entropy) for name, norm, entropy in rows]
    frame = HealthFrame(step, 0.0, loss, blocks)
    encoded = encode_frame(frame)
    assert b"\n" not in encoded.text
    back = encoded.decode()
    assert back.step == step
    for block, kept in zip(blocks, back.blocks, strict=True):
        finite = [None if isinstance(x, float) and not math.isfinite(x) else x for x in block.headEntropy]
        assert kept.headEntropy == finite
