"""``validate`` lists every problem and raises none; ``check`` raises for those that count."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptoa_core.errors import SpecError
from ptoa_core.protocol import MAX_BLOCKS
from ptoa_core.spec import Block, BlockParams, ModelSpec
from ptoa_core.validate import Problem, check, validate


def block(block_id, kind="add", inputs=(), **keys):
    return {"id": block_id, "kind": kind, "params": {}, "inputs": list(inputs), **keys}


GOOD = {
    "v": 1,
    "name": "x",
    "blocks": [
        block("g0", "group"),
        block("t0", "tokens"),
        block("e0", "embedding", ["t0"], group="g0"),
        block("u0", "unembed", ["e0"]),
    ],
    "output": "u0",
    "origin": {"kind": "lab"},
}


def with_(edit):
    data = copy.deepcopy(GOOD)
    edit(data)
    return data


def codes(spec):
    return [(problem.code, problem.where, problem.severity) for problem in validate(spec)]


def test_good_spec_has_no_problems():
    assert validate(GOOD) == []
    assert validate(ModelSpec.from_dict(GOOD)) == []


ONE = {
    "duplicate-id": (lambda d: d["blocks"].append(block("t0")), "duplicate-id", "spec.blocks[4].id", "error"),
    "empty-id": (lambda d: d["blocks"].append(block("")), "empty-id", "spec.blocks[4].id", "error"),
    "dangling-input": (
        lambda d: d["blocks"][2]["inputs"].append("ghost"),
        "dangling-input",
        "spec.blocks[2].inputs[1]",
        "error",
    ),
    "reads-itself": (
        lambda d: d["blocks"].append(block("r0", inputs=["r0"])),
        "cycle",
        "spec.blocks[4].inputs",
        "error",
    ),
    "missing-output": (lambda d: d.update(output="ghost"), "missing-output", "spec.output", "error"),
    "dangling-group": (
        lambda d: d["blocks"][2].update(group="g9"),
        "dangling-group",
        "spec.blocks[2].group",
        "error",
    ),
    "not-a-group": (
        lambda d: d["blocks"][2].update(group="t0"),
        "not-a-group",
        "spec.blocks[2].group",
        "error",
    ),
    "group-circle": (
        lambda d: d["blocks"][0].update(group="g0"),
        "group-circle",
        "spec.blocks[0].group",
        "error",
    ),
    "unknown-kind": (
        lambda d: d["blocks"][2].update(kind="conv"),
        "unknown-kind",
        "spec.blocks[2].kind",
        "warning",
    ),
    "unknown-variant": (
        lambda d: d["blocks"].append(block("n0", "norm", params={"variant": "batchnorm"})),
        "unknown-variant",
        "spec.blocks[4].params.variant",
        "warning",
    ),
    "variant-of-a-kind-without": (
        lambda d: d["blocks"][1]["params"].update(variant="relu"),
        "unknown-variant",
        "spec.blocks[1].params.variant",
        "warning",
    ),
    "input-order": (
        lambda d: d["blocks"].insert(1, block("r0", inputs=["t0"])),
        "input-order",
        "spec.blocks[1].inputs[0]",
        "warning",
    ),
    "dangling-tie": (
        lambda d: d["blocks"][3]["params"].update(tiedTo="e9"),
        "dangling-tie",
        "spec.blocks[3].params.tiedTo",
        "warning",
    ),
    "missing-v": (lambda d: d.pop("v"), "missing", "spec.v", "warning"),
    "missing-origin": (lambda d: d.pop("origin"), "missing", "spec.origin", "warning"),
    "missing-params": (lambda d: d["blocks"][1].pop("params"), "missing", "spec.blocks[1].params", "warning"),
    "wrong-type": (
        lambda d: d["blocks"][1]["params"].update(d="x"),
        "type",
        "spec.blocks[1].params.d",
        "error",
    ),
    "newer-version": (lambda d: d.update(v=2), "type", "spec.v", "error"),
    "not-json": (lambda d: d.update(future={1, 2}), "not-json", "spec", "error"),
    "nan-in-extension": (
        lambda d: d["blocks"][1]["params"].update(flops=float("nan")),
        "not-json",
        "spec",
        "error",
    ),
}


@pytest.mark.parametrize(("edit", "code", "where", "severity"), ONE.values(), ids=ONE)
def test_one_fault_is_one_problem_at_its_place(edit, code, where, severity):
    spec = with_(edit)
    assert codes(spec) == [(code, where, severity)]
    if severity == "error":
        with pytest.raises(SpecError):
            check(spec if code == "type" else ModelSpec.from_dict(spec))
    else:
        assert check(spec).to_dict()["name"] == "x"


def test_message_names_the_id():
    spec = with_(lambda d: d["blocks"][2]["inputs"].append("ghost"))
    with pytest.raises(SpecError, match="'ghost'") as caught:
        check(spec)
    assert [problem.code for problem in caught.value.problems] == ["dangling-input"]


def test_every_problem_is_listed_errors_first():
    def edit(data):
        data["name"] = 5
        data["output"] = "nowhere"
        data["blocks"][1]["kind"] = "conv"
        data["blocks"][2]["inputs"] = ["ghost", "u0"]
        data["blocks"].append("no block")
        data["blocks"].append(block("t0", group="e0"))

    found = codes(with_(edit))
    assert {code for code, _, _ in found} == {
        "type",
        "missing-output",
        "unknown-kind",
        "dangling-input",
        "cycle",
        "duplicate-id",
        "not-a-group",
        "input-order",
        "empty-id",
    }
    severities = [severity for _, _, severity in found]
    assert severities == sorted(severities)


def test_each_circle_is_one_problem():
    blocks = [
        block("a", inputs=["c"]),
        block("b", inputs=["a"]),
        block("c", inputs=["b"]),
        block("d", inputs=["e"]),
        block("e", inputs=["d"]),
        block("f", inputs=["c", "e"]),
    ]
    spec = {**GOOD, "blocks": blocks, "output": "f"}
    circles = [problem.message for problem in validate(spec) if problem.code == "cycle"]
    assert len(circles) == 2
    assert {frozenset(name for name in "abcdef" if f"'{name}'" in message) for message in circles} == {
        frozenset("abc"),
        frozenset("de"),
    }


def test_groups_inside_each_other_are_a_circle():
    spec = {
        **GOOD,
        "blocks": [block("g0", "group", group="g1"), block("g1", "group", group="g0"), block("t0", "tokens")],
    }
    spec["output"] = "t0"
    assert codes(spec) == [("group-circle", "spec.blocks[0].group", "error")]


def test_long_chain_needs_no_recursion():
    blocks = [Block("b0", "input"), *(Block(f"b{i}", "add", inputs=[f"b{i - 1}"]) for i in range(1, 5_000))]
    assert validate(ModelSpec("x", blocks, "b4999")) == []
    blocks[0].inputs = ["b4999"]
    assert "cycle" in [problem.code for problem in validate(ModelSpec("x", blocks, "b4999"))]


def test_too_many_blocks_are_refused_without_looking_at_them():
    spec = ModelSpec("x", [Block("t0", "tokens")] * (MAX_BLOCKS + 1), "t0")
    assert codes(spec) == [("too-many-blocks", "spec.blocks", "error")]


def test_a_spec_with_a_million_faults_raises_a_short_error():
    spec = {**GOOD, "blocks": [block("r0", inputs=["ghost"] * 1_000_000)], "output": "r0"}
    with pytest.raises(SpecError) as caught:
        check(spec)
    assert len(str(caught.value)) < 2_000
    assert len(caught.value.problems) == 100


class Hostile:
    """Raises whatever is done with it."""

    def __getattribute__(self, name):
        raise ZeroDivisionError(name)


class HostileMapping(dict):
    def items(self):
        raise ZeroDivisionError


ODD = [
    None,
    5,
    "x",
    b"x",
    [],
    [1],
    {},
    object(),
    ModelSpec,
    Hostile(),
    HostileMapping(),
    lambda: None,
    float("nan"),
    {"blocks": None},
    {"blocks": [None, 5, {}, []], "output": [], "name": {}},
    {1: 2},
    {"blocks": [{1: 2}]},
    {
        "v": 1,
        "name": "x",
        "blocks": [{"id": "a", "kind": "add", "inputs": [[]], "params": {"d": {}}}],
        "output": "a",
    },
    ModelSpec(None, None, None),
    ModelSpec("x", 5, "y"),
    ModelSpec("x", [None], "y"),
    ModelSpec("x", [Block(1, 2)], 3),
    ModelSpec("x", [Block("a", "add", None)], "a"),
    ModelSpec("x", [Block("a", "add", BlockParams(d="x"))], "a"),
    ModelSpec("x", [Block("a", "add", inputs=None)], "a"),
    ModelSpec("x", [Block([], {}, inputs=[[]])], "a"),
    ModelSpec("x", [Block("a", "add", BlockParams(extra=None))], "a"),
    ModelSpec("x", [], "a", origin=None),
    ModelSpec("x", [Block("a", "add", BlockParams(extra={1: 2}))], "a"),
]


@pytest.mark.parametrize("place", range(len(ODD)))
def test_odd_input_is_a_problem_never_an_exception(place):
    found = validate(ODD[place])
    assert found
    assert all(isinstance(problem, Problem) for problem in found)
    assert found[0].severity == "error"


SCRAPS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=3)
    | st.sampled_from(["t0", "e0", "g0"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "kind", "params", "inputs", "group", "at", "v", "d", "x", "q"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(SCRAPS, st.sampled_from(["v", "name", "blocks", "output", "origin", "dataset", "train"]))
def test_any_json_in_any_place_never_raises(scrap, key):
    problems = validate({**GOOD, key: scrap})
    try:
        check({**GOOD, key: scrap})
    except SpecError:
        assert any(problem.severity == "error" for problem in problems)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.lists(st.integers(0, 9), max_size=3)), min_size=1, max_size=10)
)
def test_cycles_are_found_exactly_where_inputs_never_end(graph):
    edges = {f"b{i}": [f"b{j}" for j in inputs if j < len(graph)] for i, (_, inputs) in enumerate(graph)}
    spec = ModelSpec("x", [Block(name, "add", inputs=inputs) for name, inputs in edges.items()], "b0")
    ended = set()
    for _ in edges:
        ended |= {name for name, inputs in edges.items() if ended.issuperset(inputs)}
    found = any(problem.code == "cycle" for problem in validate(spec))
    assert found == (len(ended) < len(edges))
