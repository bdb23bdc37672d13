"""Frames: exact round trips, wrong types named, tensors checked when they are read."""

from __future__ import annotations

import base64
import inspect
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptoa_core.errors import FormatError, FrameError, SpecError, TensorError
from ptoa_core.frames import (
    BlockHealth,
    BridgeHello,
    Diagnosis,
    FrameTensor,
    HeadPattern,
    HealthFrame,
    TensorStats,
    TraceFrame,
)
from ptoa_core.spec import Block, ModelSpec


def b64(*values):
    return base64.b64encode(struct.pack(f"<{len(values)}f", *values)).decode()


STATS = {
    "mean": 0.5,
    "std": 0.25,
    "absMax": 2,
    "zeroFrac": 0.125,
    "satFrac": 0.5,
    "nanCount": 1,
    "infCount": 0,
    "hist": [1, 2.5],
}
FULL = {
    "step": 7,
    "t": 12.5,
    "loss": 4.25,
    "valLoss": 4,
    "lr": 0.001,
    "gradNorm": 1.5,
    "timing": {"data": 1.0, "forward": 2},
    "memory": 1024,
    "blocks": [
        {
            "id": "a0",
            "act": {**STATS, "histSample": 100},
            "hidden": {key: STATS[key] for key in STATS if key not in {"satFrac", "hist"}},
            "grad": {**STATS, "mean": None},
            "weightNorm": 1.0,
            "weightGradNorm": 2.0,
            "updateRatio": 0.5,
            "headEntropy": [0.5, None],
            "headPattern": [{"head": 0, "size": 1, "b64": b64(1.0), "layer": 3}],
            "deadFrac": 0.25,
            "notes": ["frozen"],
        },
        {"id": "l0"},
    ],
    "nonFinite": {"blocks.a0.headEntropy.1": "nan", "blocks.a0.grad.mean": "inf"},
    "attempt": 2,
    "cost": {"ms": 0.5},
}


def test_health_frame_survives_a_round_trip_key_by_key():
    written = HealthFrame.from_dict(FULL).to_dict()
    assert written == FULL
    assert json.dumps(written) == json.dumps(FULL)


TRACE = {
    "step": 3,
    "loss": 0.5,
    "tensors": [
        {"key": "e0:out", "shape": [2], "b64": b64(1, 2), "clipped": False, "note": 1},
        {"key": "t0:out", "shape": [4, 4], "b64": b64(1, 2), "clipped": True, "dataShape": [1, 2]},
    ],
    "uncaptured": ["l0"],
    "device": "cpu",
}


def test_trace_frame_survives_a_round_trip():
    frame = TraceFrame.from_dict(TRACE)
    assert frame.to_dict() == TRACE
    assert frame.clipped == ["t0:out"]
    assert frame.tensor("t0:out").values() == [1.0, 2.0]


def test_hello_and_diagnosis_survive_a_round_trip():
    hello = BridgeHello(ModelSpec("x", [Block("t0", "tokens")], "t0"), extra={"port": 1})
    assert BridgeHello.from_dict(hello.to_dict()) == hello
    assert hello.to_dict()["producer"]["name"] == "papertoanything"
    diagnosis = Diagnosis("r", "warn", ["a"], 3, "t", {"x": 1.5, "y": "z"}, "s", "r", {"more": 1})
    assert Diagnosis.from_dict(diagnosis.to_dict()) == diagnosis


ORDER = {
    FrameTensor: "key shape b64 clipped dataShape extra",
    TraceFrame: "step tensors loss uncaptured extra",
    TensorStats: "mean std absMax zeroFrac nanCount infCount satFrac hist extra",
    HeadPattern: "head size b64 extra",
    BlockHealth: "id act grad weightNorm weightGradNorm updateRatio headEntropy headPattern hidden extra",
    HealthFrame: "step t loss blocks valLoss lr gradNorm timing memory nonFinite attempt extra",
    Diagnosis: "rule severity blocks since title evidence suggestion reference extra",
    BridgeHello: "spec producer protocol v extra",
}


@pytest.mark.parametrize("cls", ORDER, ids=lambda cls: cls.__name__)
def test_positional_order_is_that_of_0_1_0(cls):
    assert " ".join(inspect.signature(cls).parameters) == ORDER[cls]


def changed(data, path, value):
    data = json.loads(json.dumps(data))
    place = data
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return data


HEALTH_WRONG = [
    (("step",), -1, "frame.step"),
    (("step",), 1.5, "frame.step"),
    (("step",), True, "frame.step"),
    (("step",), "1", "frame.step"),
    (("step",), None, "frame.step"),
    (("t",), "x", "frame.t"),
    (("loss",), "nan", "frame.loss must be a number or null, found 'nan'"),
    (("loss",), True, "frame.loss"),
    (("timing",), [1], "frame.timing"),
    (("timing", "data"), "x", "frame.timing"),
    (("memory",), -5, "frame.memory"),
    (("blocks",), {}, "frame.blocks must be a list"),
    (("blocks", 0), 5, "block must be an object"),
    (("blocks", 0, "id"), 5, "block.id"),
    (("blocks", 0, "act"), [], "block.act must be an object"),
    (("blocks", 0, "act", "nanCount"), 1.5, "act.nanCount"),
    (("blocks", 0, "act", "hist"), [1, "2"], "act.hist"),
    (("blocks", 0, "act", "hist"), {}, "act.hist"),
    (("blocks", 0, "headEntropy"), ["x"], "block.headEntropy"),
    (("blocks", 0, "headPattern"), {}, "block.headPattern"),
    (("blocks", 0, "headPattern", 0, "size"), 33, "at most 32"),
    (("blocks", 0, "headPattern", 0, "size"), 2, "4 bytes, 16 are wanted"),
    (("blocks", 0, "headPattern", 0, "b64"), "!!!!", "alphabet"),
    (("nonFinite",), {"loss": 1}, "frame.nonFinite"),
    (("attempt",), 0, "frame.attempt"),
]


@pytest.mark.parametrize(
    ("path", "value", "says"),
    HEALTH_WRONG,
    ids=[f"{'.'.join(map(str, p))}={v!r:.10}" for p, v, _ in HEALTH_WRONG],
)
def test_wrong_value_in_a_health_frame_is_named(path, value, says):
    with pytest.raises((FrameError, TensorError), match=says):
        HealthFrame.from_dict(changed(FULL, path, value))


@pytest.mark.parametrize("data", [None, 5, [], "x", {}, {"step": 1}, {"t": 1.0}])
def test_what_is_no_health_frame_is_refused(data):
    with pytest.raises(FrameError):
        HealthFrame.from_dict(data)


def tensor(shape, count, **keys):
    return {"key": "k", "shape": shape, "b64": b64(*range(count)), "clipped": False, **keys}


BAD_TENSORS = {
    "fewer": (tensor([2, 3], 4), "'k': b64 holds 16 bytes, 24 are wanted"),
    "more": (tensor([2], 3), "12 bytes, 8 are wanted"),
    "none": (tensor([2, 2], 0), "0 bytes, 16 are wanted"),
    "scalar": (tensor([], 2), "8 bytes, 4 are wanted"),
    "half-a-value": (tensor([1], 0, b64="AAAA"), "3 bytes, 4 are wanted"),
    "larger-corner": (tensor([2, 2], 16, clipped=True, dataShape=[4, 4]), "no corner"),
    "other-rank": (tensor([4, 4], 2, clipped=True, dataShape=[2]), "no corner"),
    "unclipped-corner": (tensor([4, 4], 4, dataShape=[2, 2]), "has a dataShape but is not clipped"),
    "corner-mismatch": (tensor([4, 4], 3, clipped=True, dataShape=[2, 2]), "12 bytes, 16 are wanted"),
    "no-corner": (tensor([4, 4], 3, clipped=True), "clipped without a dataShape"),
    "huge": (tensor([2**52, 2**52], 1), "are wanted"),
    "many-axes": (tensor([1] * 65, 1), "shape has 65 axes, at most 64 are read"),
    "many-huge-axes": (tensor([2**53 - 1] * 1_000_000, 0), "shape has 1000000 axes"),
    "negative": (tensor([-1], 0), "shape must be a list of integers of at least 0"),
    "fraction": (tensor([1.0], 1), "shape must be"),
    "b64-number": (tensor([1], 1, b64=5), "b64 must be text"),
    "clipped-number": (tensor([1], 1, clipped=0), "clipped must be true or false"),
    "no-key": ({"shape": [1], "b64": b64(1)}, "has no 'key'"),
    "no-object": (5, "must be an object"),
}


@pytest.mark.parametrize(("data", "says"), BAD_TENSORS.values(), ids=BAD_TENSORS)
def test_tensor_that_does_not_agree_with_itself_is_refused(data, says):
    with pytest.raises(TensorError, match=says):
        TraceFrame.from_dict({"step": 0, "tensors": [data]})
    if isinstance(data, dict):
        with pytest.raises(TensorError):
            FrameTensor.from_dict(data)


def test_values_check_what_was_built_by_hand():
    with pytest.raises(TensorError, match="8 are wanted"):
        FrameTensor("k", [2], "AACAPw==").values()
    with pytest.raises(TensorError, match="16 are wanted"):
        HeadPattern(0, 2, "AACAPw==").values()


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ({"protocol": "pta-file", "v": 1, "spec": {}}, FrameError),
        ({"protocol": "pta-bridge", "v": 2, "spec": {}}, FrameError),
        ({"protocol": "pta-bridge", "v": 1}, FrameError),
        ({"protocol": "pta-bridge", "v": 1, "spec": 5}, FrameError),
        ({"protocol": "pta-bridge", "v": 1, "spec": {}}, SpecError),
        (None, FrameError),
        ({"protocol": "pta-bridge", "v": 1, "producer": {"name": 1}, "spec": {}}, FrameError),
    ],
    ids=range(7),
)
def test_what_is_no_hello_is_refused(data, error):
    with pytest.raises(error):
        BridgeHello.from_dict(data)


def test_severity_of_a_diagnosis_is_one_of_three():
    with pytest.raises(FrameError, match="one of info, warn, error, found 'fatal'"):
        Diagnosis.from_dict(Diagnosis("r", "fatal", [], 0, "t", {}).to_dict())


def test_lookups_name_what_is_not_there():
    with pytest.raises(KeyError, match="no block 'q' in the frame of step 7"):
        HealthFrame.from_dict(FULL).block("q")
    with pytest.raises(KeyError, match="no tensor 'q' in the trace of step 3"):
        TraceFrame.from_dict(TRACE).tensor("q")
    assert HealthFrame.from_dict(FULL).block("l0").id == "l0"


def test_loss_of_a_trace_that_is_not_finite_is_null_and_named():
    data = TraceFrame(0, loss=float("-inf"), extra={"nonFinite": {"x": "nan"}}).to_dict()
    assert data["loss"] is None
    assert data["nonFinite"] == {"x": "nan", "loss": "-inf"}
    assert TraceFrame.from_dict(data).loss is None


def test_number_that_is_named_as_not_finite_is_written_as_null():
    names = {
        "gradNorm": "inf",
        "blocks.a0.weightNorm": "nan",
        "blocks.a0.act.mean": "nan",
        "blocks.q.weightNorm": "nan",
    }
    data = HealthFrame(0, 0.0, None, [BlockHealth("a0"), BlockHealth("b0")], nonFinite=names).to_dict()
    assert data["gradNorm"] is None
    assert data["blocks"] == [{"id": "a0", "weightNorm": None}, {"id": "b0"}]
    assert HealthFrame.from_dict(data).to_dict() == data


SCRAPS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*FULL, *STATS, "q"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(SCRAPS, st.sampled_from(list(FULL)), st.sampled_from(list(FULL["blocks"][0])))
def test_any_json_in_any_place_gives_our_errors(scrap, key, block_key):
    for read, data in (
        (HealthFrame.from_dict, {**FULL, key: scrap}),
        (HealthFrame.from_dict, {**FULL, "blocks": [{**FULL["blocks"][0], block_key: scrap}]}),
        (TraceFrame.from_dict, {**TRACE, "tensors": [scrap]}),
        (FrameTensor.from_dict, scrap),
        (Diagnosis.from_dict, scrap),
        (BridgeHello.from_dict, scrap),
    ):
        try:
            read(data).to_dict()
        except FormatError:
            continue
