"""The spec's classes: exact round trips, wrong types named, nothing lost."""

from __future__ import annotations

import inspect
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptoa_core import _html
from ptoa_core.errors import JsonError, SpecError
from ptoa_core.spec import Block, BlockParams, DatasetRef, ModelSpec, Origin, TrainConfig

FULL = {
    "v": 1,
    "name": "tiny µ",
    "blocks": [
        {"id": "g0", "kind": "group", "label": "layers.0 (Block)", "params": {}, "inputs": []},
        {"id": "t0", "kind": "tokens", "params": {"vocab": 4}, "inputs": [], "at": {"x": 1, "y": -2.5}},
        {
            "id": "a0",
            "kind": "attention",
            "params": {
                "vocab": 1,
                "d": 2,
                "variant": "v",
                "maxLen": 3,
                "heads": 4,
                "causal": False,
                "attnOnly": True,
                "hidden": 5,
                "in": 6,
                "out": 7,
                "bias": False,
                "tiedTo": "t0",
                "kvHeads": 2,
                "shape": [1, 2],
            },
            "inputs": ["t0", "t0"],
            "group": "g0",
            "colour": "red",
        },
    ],
    "output": "a0",
    "dataset": {
        "id": "d",
        "provenance": "yours",
        "seed": -1,
        "options": {"a": 1, "b": True, "c": "x"},
        "more": [1],
    },
    "train": {
        "optimizer": "sgd",
        "lr": 0.1,
        "weightDecay": 0,
        "batch": 1,
        "steps": 2,
        "seed": 3,
        "nesterov": True,
    },
    "origin": {"kind": "torch", "source": "m.py:GPT", "commit": None},
    "future": {"a": [1, {"b": None}]},
}


def test_every_key_survives_a_round_trip_in_its_order():
    again = ModelSpec.from_json(ModelSpec.from_dict(FULL).to_json()).to_dict()
    assert again == FULL
    assert json.dumps(again) == json.dumps(FULL)


def test_known_keys_are_written_in_the_order_of_the_formats():
    shuffled = {key: FULL[key] for key in reversed(FULL)}
    shuffled["blocks"] = [{key: block[key] for key in reversed(block)} for block in FULL["blocks"]]
    written = ModelSpec.from_dict(shuffled).to_dict()
    assert list(written) == ["v", "name", "blocks", "output", "dataset", "train", "origin", "future"]
    assert list(written["blocks"][2]) == ["id", "kind", "params", "inputs", "group", "colour"]


KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).map("x{}".format)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
EXTRA = st.dictionaries(KEYS, VALUES, max_size=3)


@given(st.lists(EXTRA, min_size=8, max_size=8))
def test_unknown_keys_survive_at_every_level(extras):
    data = json.loads(json.dumps(FULL))
    places = [
        data,
        *data["blocks"],
        data["blocks"][2]["params"],
        data["dataset"],
        data["train"],
        data["origin"],
    ]
    for place, extra in zip(places, extras, strict=True):
        place.update(extra)
    assert ModelSpec.from_json(ModelSpec.from_dict(data).to_json()).to_dict() == data


def test_defaults_are_those_of_a_spec_of_version_1():
    spec = ModelSpec.from_dict({"name": "x", "blocks": [{"id": "t0", "kind": "tokens"}], "output": "t0"})
    assert spec.to_dict() == {
        "v": 1,
        "name": "x",
        "blocks": [{"id": "t0", "kind": "tokens", "params": {}, "inputs": []}],
        "output": "t0",
        "origin": {"kind": "lab"},
    }


def changed(path, value):
    """``FULL`` with one value changed."""
    data = json.loads(json.dumps(FULL))
    place = data
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return data


WRONG = [
    (("v",), 2, "spec.v is 2"),
    (("v",), "1", "spec.v must be an integer"),
    (("v",), True, "spec.v must be an integer"),
    (("name",), 5, "spec.name must be text"),
    (("name",), None, "spec.name must be text, found None"),
    (("blocks",), {}, "spec.blocks must be a list"),
    (("output",), ["a0"], "spec.output must be text, found a list of 1"),
    (("blocks", 1), "t0", r"spec.blocks\[1\] must be an object, found 't0'"),
    (("blocks", 1, "id"), 0, r"spec.blocks\[1\].id must be text, found 0"),
    (("blocks", 1, "kind"), None, r"spec.blocks\[1\].kind must be text"),
    (("blocks", 1, "inputs"), "t0", r"spec.blocks\[1\].inputs must be a list of texts"),
    (("blocks", 1, "inputs"), [0], r"spec.blocks\[1\].inputs must be a list of texts"),
    (("blocks", 1, "params"), [], r"spec.blocks\[1\].params must be an object"),
    (
        ("blocks", 1, "params", "vocab"),
        True,
        r"spec.blocks\[1\].params.vocab must be an integer of at least 0",
    ),
    (("blocks", 1, "params", "vocab"), -1, "vocab must be an integer of at least 0, found -1"),
    (("blocks", 1, "params", "vocab"), 4.0, "vocab must be an integer of at least 0, found 4.0"),
    (("blocks", 1, "params", "vocab"), 2**53, "vocab must be an integer"),
    (("blocks", 2, "params", "causal"), 1, r"params.causal must be true or false, found 1"),
    (("blocks", 2, "params", "in"), "6", r"params.in must be an integer"),
    (("blocks", 1, "at"), {"x": 1}, r"at must be an object \{"),
    (("blocks", 1, "at"), {"x": 1, "y": float("inf")}, r"at must be an object"),
    (("blocks", 1, "group"), 0, "group must be text"),
    (("dataset", "options"), {"a": []}, "spec.dataset.options must be an object of numbers"),
    (("dataset",), [], "spec.dataset must be an object"),
    (("train", "lr"), "0.1", "spec.train.lr must be a finite number"),
    (("train", "lr"), float("nan"), "spec.train.lr must be a finite number, found nan"),
    (("train", "batch"), 1.5, "spec.train.batch must be an integer"),
    (("origin", "kind"), 1, "spec.origin.kind must be text"),
    (("origin",), "lab", "spec.origin must be an object"),
]


@pytest.mark.parametrize(
    ("path", "value", "says"), WRONG, ids=[f"{'.'.join(map(str, p))}={v!r:.12}" for p, v, _ in WRONG]
)
def test_value_of_the_wrong_type_is_named_with_its_place(path, value, says):
    with pytest.raises(SpecError, match=says):
        ModelSpec.from_dict(changed(path, value))


@pytest.mark.parametrize(
    ("path", "says"),
    [
        (("name",), "spec has no 'name'"),
        (("blocks",), "spec has no 'blocks'"),
        (("output",), "spec has no 'output'"),
        (("blocks", 0, "id"), r"spec.blocks\[0\] has no 'id'"),
        (("blocks", 0, "kind"), r"spec.blocks\[0\] has no 'kind'"),
        (("dataset", "provenance"), "spec.dataset has no 'provenance'"),
        (("train", "seed"), "spec.train has no 'seed'"),
        (("origin", "kind"), "spec.origin has no 'kind'"),
    ],
)
def test_missing_key_is_named(path, says):
    data = json.loads(json.dumps(FULL))
    place = data
    for step in path[:-1]:
        place = place[step]
    del place[path[-1]]
    with pytest.raises(SpecError, match=says):
        ModelSpec.from_dict(data)


@pytest.mark.parametrize("data", [None, 5, "x", [], [FULL]])
def test_what_is_no_object_is_refused(data):
    with pytest.raises(SpecError, match="spec must be an object"):
        ModelSpec.from_dict(data)


def test_key_that_is_no_text_is_refused():
    with pytest.raises(SpecError, match="params has the key 5"):
        BlockParams.from_dict({5: 1})


def test_extra_cannot_change_a_known_key():
    assert BlockParams(d=4, extra={"d": 5, "q": 1}).to_dict() == {"d": 4, "q": 1}


ORDER = {
    BlockParams: "vocab d variant maxLen heads causal attnOnly hidden in_ out bias tiedTo extra",
    Block: "id kind params inputs label group at extra",
    DatasetRef: "id provenance seed options extra",
    TrainConfig: "optimizer lr batch steps seed weightDecay extra",
    Origin: "kind source extra",
    ModelSpec: "name blocks output origin v dataset train bindings extra",
}


@pytest.mark.parametrize("cls", ORDER, ids=lambda cls: cls.__name__)
def test_positional_order_is_that_of_0_1_0(cls):
    assert " ".join(inspect.signature(cls).parameters) == ORDER[cls]


def test_bindings_are_neither_written_nor_compared():
    spec = ModelSpec("x", [], "")
    bound = ModelSpec("x", [], "", bindings={"t0": "wte"})
    assert bound == spec
    assert "wte" not in bound.to_json() + repr(bound)


def test_block_finds_by_id():
    spec = ModelSpec.from_dict(FULL)
    assert spec.block("a0") is spec.blocks[2]
    with pytest.raises(KeyError, match="no block 'q' in spec 'tiny µ'"):
        spec.block("q")


def test_blocks_do_not_share_lists_or_params():
    first, second = Block("a", "add"), Block("b", "add")
    first.inputs.append("x")
    first.params.extra["k"] = 1
    assert second.inputs == []
    assert second.params.extra == {}


def test_indented_text_is_for_people_and_reads_back():
    text = ModelSpec.from_dict(FULL).to_json(indent=2)
    assert text.startswith('{\n  "v": 1')
    assert "µ" in text
    assert ModelSpec.from_json(text).to_dict() == FULL


def test_unwritable_extension_is_named():
    spec = ModelSpec("x", [Block("t0", "tokens", BlockParams(extra={"shape": {1}}))], "t0")
    with pytest.raises(JsonError, match=r"\$.blocks\[0\].params.shape is a set"):
        spec.to_json()


def test_notebook_table_escapes_everything_a_stranger_wrote(monkeypatch):
    monkeypatch.setattr(_html, "_renderers", list)
    evil = "<script>\u202e&'\""
    spec = ModelSpec(evil, [Block(evil, evil, BlockParams(extra={evil: evil}), [evil], evil)], evil)
    page = spec._repr_html_()
    assert "<script" not in page
    assert "\u202e" not in page
    assert page.count("&lt;script&gt;") == 7


def test_notebook_table_is_bounded(monkeypatch):
    monkeypatch.setattr(_html, "_renderers", list)
    spec = ModelSpec("x", [Block(f"t{i}", "tokens", label="y" * 10_000) for i in range(1500)], "t0")
    page = spec._repr_html_()
    assert page.count("<tr>") == 1001
    assert "and 500 more blocks" in page
    assert len(page) < 1_000_000


def test_notebook_shows_the_table_when_a_renderer_fails(monkeypatch):
    def broken(spec):
        raise RuntimeError(spec.name)

    monkeypatch.setattr(_html, "_renderers", lambda: [broken])
    assert "<table>" in ModelSpec("x", [], "")._repr_html_()


def test_notebook_uses_an_installed_renderer(monkeypatch):
    class Entry:
        def __init__(self, load):
            self.load = load

    def missing():
        raise ImportError("half installed")

    def installed(group):
        assert group == "ptoa_core.renderers"
        return [Entry(missing), Entry(lambda: lambda spec: f"<p>{len(spec.name)}</p>")]

    monkeypatch.setattr("importlib.metadata.entry_points", installed)
    assert ModelSpec("xyz", [], "")._repr_html_() == "<p>3</p>"
