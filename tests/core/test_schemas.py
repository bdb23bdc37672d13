"""The JSON Schemas say what the readers do, and the document lists what the code knows."""

from __future__ import annotations

import copy
import json
from importlib.resources import files
from pathlib import Path

import pytest

from ptoa_core.builder import SpecBuilder
from ptoa_core.encoded import encode_frame, encode_trace
from ptoa_core.errors import FormatError
from ptoa_core.frames import (
    BlockHealth,
    BridgeHello,
    Diagnosis,
    HeadPattern,
    HealthFrame,
    TensorStats,
    TraceFrame,
)
from ptoa_core.jsontext import dumps
from ptoa_core.kinds import BLOCK_KINDS, EXTENSION_PARAMS, KIND_LETTERS, KIND_PARAMS, VARIANTS
from ptoa_core.spec import DatasetRef, ModelSpec, TrainConfig
from ptoa_core.tensors import encode_tensor

jsonschema = pytest.importorskip("jsonschema")
referencing = pytest.importorskip("referencing")

NAMES = ["diagnosis", "health", "hello", "pta", "run", "spec", "trace"]
SCHEMAS = {
    name: json.loads((files("ptoa_core") / "schemas" / f"{name}.json").read_text(encoding="utf-8"))
    for name in NAMES
}
REGISTRY = referencing.Registry().with_resources(
    [(schema["$id"], referencing.Resource.from_contents(schema)) for schema in SCHEMAS.values()]
)


def fits(name, data):
    return jsonschema.Draft202012Validator(SCHEMAS[name], registry=REGISTRY).is_valid(data)


def spec():
    b = SpecBuilder("x")
    with b.group("layers.0", "Block"):
        a = b.attention(
            b.input(in_=8), d=8, heads=2, causal=False, kvHeads=1, shape=[1, 8], flops=1.5, known="run"
        )
    return b.build(
        a, dataset=DatasetRef("d", "real", 1, {"a": True}), train=TrainConfig("sgd", 0.1, 1, 2, 3, 0.5)
    )


STATS = TensorStats(0.5, 0.25, None, 0.0, 1, 2, 0.5, [0.0] * 32, {"histSample": 5})
FRAME = HealthFrame(
    0,
    1.0,
    float("nan"),
    [
        BlockHealth(
            "a0",
            STATS,
            STATS,
            1.0,
            None,
            0.5,
            [0.5],
            [HeadPattern(0, 1, "AACAPw==")],
            extra={"deadFrac": 0.5},
        )
    ],
    timing={"data": 1.0},
    memory=5,
    attempt=2,
    extra={"patternsOmitted": ["a1"], "skipped": False, "cost": {"ms": 1.0}},
)
TRACE = TraceFrame(
    0, [encode_tensor("a0:out", [[1, 2], [3, 4]], 2), encode_tensor("t0:out", 1.0)], 0.5, ["l0"]
)
SPEC = spec().to_dict()
GOOD = {
    "spec": [SPEC, ModelSpec("", [], "").to_dict()],
    "trace": [json.loads(encode_trace(TRACE)), json.loads(encode_trace(TraceFrame(0, loss=float("inf"))))],
    "health": [json.loads(encode_frame(FRAME).text), HealthFrame(0, 0.0, None).to_dict()],
    "diagnosis": [Diagnosis("r", "warn", ["a"], 0, "t", {"x": 1, "y": "z"}, "s", "r").to_dict()],
    "hello": [BridgeHello(spec()).to_dict()],
    "pta": [{"protocol": "pta-file", "v": 1, "spec": SPEC, "trace": TRACE.to_dict()}],
    "run": [
        {"protocol": "pta-run", "v": 1, "producer": {"name": "x", "version": "1"}, "spec": SPEC},
        {"event": "health", "data": json.loads(encode_frame(FRAME).text)},
        {"event": "future", "data": [1]},
    ],
}


@pytest.mark.parametrize("name", NAMES)
def test_schema_is_a_schema(name):
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[name])
    assert SCHEMAS[name]["$id"] == f"urn:papertoanything:{name}:1"


def test_every_schema_is_listed():
    assert sorted(path.name for path in (files("ptoa_core") / "schemas").iterdir()) == [
        f"{name}.json" for name in NAMES
    ]


@pytest.mark.parametrize(("name", "data"), [(name, data) for name in NAMES for data in GOOD[name]])
def test_what_is_written_fits_its_schema(name, data):
    validator = jsonschema.Draft202012Validator(SCHEMAS[name], registry=REGISTRY)
    assert [error.message for error in validator.iter_errors(json.loads(dumps(data)))] == []


READERS = {
    "spec": ModelSpec.from_dict,
    "trace": TraceFrame.from_dict,
    "health": HealthFrame.from_dict,
    "diagnosis": Diagnosis.from_dict,
    "hello": BridgeHello.from_dict,
}


def places(data, path=()):
    """Every path into a JSON value."""
    if path:
        yield path
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def replaced(data, path, value):
    data = copy.deepcopy(data)
    place = data
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return data


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("value", [[{}], {"x": 1}, "\x00q", -1, 0.5, True], ids=repr)
def test_schema_takes_nothing_that_the_reader_refuses(name, value):
    data = GOOD[name][0]
    for path in places(data):
        changed = replaced(data, path, value)
        try:
            READERS[name](changed)
        except FormatError:
            # What a schema cannot say: the length of b64 in values.
            if path[-1] in {"shape", "b64", "size", 0, 1} and {"tensors", "headPattern"} & set(path):
                continue
            assert not fits(name, changed), path


@pytest.mark.parametrize("name", NAMES)
def test_key_that_must_be_there_is_required_by_the_schema(name):
    for key in SCHEMAS[name].get("required", []):
        assert not fits(name, {k: v for k, v in GOOD[name][0].items() if k != key})


@pytest.fixture(scope="module")
def document():
    root = Path(__file__).resolve().parents[2]
    return (root / "packages/ptoa-core/FORMATS.md").read_text(encoding="utf-8")


def test_document_lists_every_extension_param(document):
    section = document.partition("### Extension params")[2].partition("### ")[0]
    assert [name for name in EXTENSION_PARAMS if f"`{name}`" not in section] == []
    params = SCHEMAS["spec"]["$defs"]["block"]["properties"]["params"]["properties"]
    assert [name for name in EXTENSION_PARAMS if name not in params] == []


def test_document_lists_every_kind_with_its_letter_params_and_variants(document):
    section = document.partition("### Extension params")[0]
    rows = {line.split("`")[1]: line for line in section.splitlines() if line.startswith("| `")}
    for kind in BLOCK_KINDS:
        assert f"| `{KIND_LETTERS[kind]}` |" in rows[kind]
        assert [name for name in KIND_PARAMS[kind] if f"`{name}`" not in rows[kind]] == []
    for kind in ("norm", "posenc", "activation"):
        assert [name for name in VARIANTS[kind] if f"`{name}`" not in rows[kind]] == []


def test_document_and_schema_list_the_same_extension_fields(document):
    section = document.partition("### Extension fields")[2].partition("\n\nMore may follow")[0]
    listed = {line.split("`")[1] for line in section.splitlines() if line.startswith("| `")}
    known = set(SCHEMAS["health"]["properties"])
    for part in SCHEMAS["health"]["$defs"].values():
        known |= set(part["properties"])
    own = "step t loss valLoss lr gradNorm timing memory blocks id act hidden grad weightNorm weightGradNorm"
    own += " updateRatio headEntropy headPattern mean std absMax zeroFrac satFrac nanCount infCount hist"
    assert known - set(own.split()) == listed
