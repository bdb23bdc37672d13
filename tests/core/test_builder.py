"""Writing a spec by hand: what comes out is right, what is wrong is refused where it is written."""

from __future__ import annotations

import pytest

from ptoa_core.builder import SpecBuilder
from ptoa_core.errors import SettingError, SpecError
from ptoa_core.kinds import BLOCK_KINDS, EXTENSION_PARAMS, KIND_LETTERS, KIND_PARAMS, BlockIds
from ptoa_core.spec import DatasetRef, Origin, TrainConfig
from ptoa_core.validate import validate


def tiny():
    b = SpecBuilder("tiny")
    t = b.tokens(vocab=100)
    e = b.embedding(t, vocab=100, d=16)
    p = b.posenc(variant="learned", max_len=8, d=16)
    x = b.add(e, p)
    for layer in range(2):
        with b.group(f"layers.{layer}", "Block"):
            with b.group(f"layers.{layer}.attn"):
                a = b.attention(b.norm(x, d=16, variant="layernorm"), d=16, heads=2, causal=True, kvHeads=1)
            x = b.add(x, a)
            x = b.add(x, b.mlp(b.norm(x, d=16), d=16, hidden=64, variant="gelu", bias=False))
    u = b.unembed(x, vocab=100, d=16, tied_to=e)
    return b, u, b.loss(u)


def test_spec_is_without_problems_and_in_the_order_of_the_formats():
    b, u, _ = tiny()
    spec = b.build(output=u)
    assert validate(spec) == []
    assert [block.id for block in spec.blocks] == (
        "g0 g1 g2 g3 t0 e0 p0 r0 n0 a0 r1 n1 m0 r2 n2 a1 r3 n3 m1 r4 u0 x0".split()
    )
    assert spec.output == "u0"


def test_blocks_say_what_was_written():
    b, _, x = tiny()
    spec = b.build(x)
    assert spec.block("g0").to_dict() == {
        "id": "g0",
        "kind": "group",
        "label": "layers.0 (Block)",
        "params": {},
        "inputs": [],
    }
    assert spec.block("g1").group == "g0"
    assert spec.block("g1").label == "layers.0.attn"
    assert spec.block("a0").to_dict() == {
        "id": "a0",
        "kind": "attention",
        "params": {"d": 16, "heads": 2, "causal": True, "kvHeads": 1},
        "inputs": ["n0"],
        "group": "g1",
    }
    assert spec.block("r1").group == "g0"
    assert spec.block("u0").params.tiedTo == "e0"
    assert spec.block("p0").params.to_dict() == {"variant": "learned", "maxLen": 8, "d": 16}


def test_every_kind_has_a_method():
    b = SpecBuilder("all")
    made = {
        "tokens": b.tokens(vocab=4),
        "input": b.input(in_=4),
        "embedding": b.embedding(),
        "posenc": b.posenc(),
    }
    for kind in ("attention", "mlp", "norm", "linear", "activation", "unembed", "softmax", "loss"):
        made[kind] = getattr(b, kind)(made["input"])
    made["add"] = b.add(made["input"], made["tokens"])
    made["group"] = b.leaf("Conv2d", made["input"], kernel=[3, 3], label="conv")
    assert set(made) == set(BLOCK_KINDS)
    spec = b.build()
    assert {kind: spec.block(block_id).kind for kind, block_id in made.items()} == {
        kind: kind for kind in BLOCK_KINDS
    }
    assert made == {kind: letter + "0" for kind, letter in KIND_LETTERS.items()}
    assert spec.block("g0").label == "conv"
    assert spec.block("g0").params.to_dict() == {"type": "Conv2d", "kernel": [3, 3]}


def test_spec_carries_where_it_is_from_and_how_it_is_trained():
    b, u, _ = tiny()
    train = TrainConfig("sgd", 0.1, 8, 100, 0)
    spec = b.build(u, origin=Origin("template", "gpt"), dataset=DatasetRef("d", "yours"), train=train)
    assert (spec.origin.source, spec.dataset.id, spec.train) == ("gpt", "d", train)


def test_builder_goes_on_after_building():
    b = SpecBuilder("x")
    t = b.tokens(vocab=4)
    first = b.build()
    b.embedding(t, vocab=4, d=2)
    second = b.build()
    first.blocks[0].label = "mine"
    assert (first.output, second.output) == ("t0", "e0")
    assert len(first.blocks) == 1
    assert second.block("t0").label is None


def test_group_is_left_also_when_its_body_raises():
    b = SpecBuilder("x")
    with pytest.raises(ZeroDivisionError), b.group("layers.0"):
        raise ZeroDivisionError
    assert b.build(b.tokens(vocab=4)).block("t0").group is None


REFUSED = {
    "unknown-input": (
        lambda b: b.norm("e9", d=4),
        "an input of norm is 'e9', which is no block so far; the last ones: i0",
    ),
    "no-text-input": (lambda b: b.norm(5, d=4), "an input of norm is 5"),
    "list-as-input": (lambda b: b.norm(["i0"], d=4), "an input of norm is a list of 1"),
    "extra-list": (lambda b: b.norm("i0", extra=["x"]), "extra of norm is a list of 1"),
    "group-as-input": (lambda b: [b.norm(g) for g in enter(b)], "an input of norm is 'g0'"),
    "variant": (
        lambda b: b.norm("i0", variant="batchnorm"),
        "variant of norm is 'batchnorm'; one of layernorm, rmsnorm",
    ),
    "param": (
        lambda b: b.linear("i0", inn=4),
        r"linear has no param 'inn'; a name of your own goes into extra=\{'inn': ",
    ),
    "heads": (lambda b: b.attention("i0", d=10, heads=3), "heads=3 does not divide d=10"),
    "add-of-one": (lambda b: b.add("i0"), "add sums two or more blocks, found 1"),
    "leaf-without-input": (lambda b: b.leaf("Conv2d"), "a group block without inputs is a container"),
    "tie": (lambda b: b.unembed("i0", tied_to="e9"), "tied_to is 'e9'"),
    "output": (lambda b: b.build(output="u9"), "output is 'u9'"),
}


def enter(b):
    with b.group("g") as group:
        return [group]


@pytest.mark.parametrize(("write", "says"), REFUSED.values(), ids=REFUSED)
def test_mistake_is_refused_where_it_is_written(write, says):
    b = SpecBuilder("x")
    b.input(in_=4)
    with pytest.raises(SettingError, match=says):
        write(b)


def test_spec_without_blocks_is_refused():
    with pytest.raises(SettingError, match="the spec 'x' has no blocks yet"):
        SpecBuilder("x").build()


@pytest.mark.parametrize("params", [{"d": "16"}, {"d": -1}, {"d": 1.5}, {"bias": 1}])
def test_param_of_the_wrong_type_is_refused_when_it_is_built(params):
    b = SpecBuilder("x")
    b.norm(b.input(in_=4), **params)
    with pytest.raises(SpecError, match=r"^norm n0: .*params\.(d|bias) must be"):
        b.build()


@pytest.mark.parametrize("params", [{"d": "16", "heads": 2}, {"d": 16, "heads": "2"}, {"d": 1.5, "heads": 2}])
def test_heads_of_the_wrong_type_are_refused_when_it_is_built(params):
    b = SpecBuilder("x")
    b.attention(b.input(in_=4), **params)
    with pytest.raises(SpecError, match=r"^attention a0: .* must be an integer"):
        b.build()


def test_own_params_go_into_extra():
    b = SpecBuilder("x")
    b.input(in_=4, extra={"note": 1}, dtype="float32")
    assert b.build().blocks[0].params.extra == {"dtype": "float32", "note": 1}


def test_head_size_of_its_own_is_allowed():
    b = SpecBuilder("x")
    b.attention(b.input(in_=10), d=10, heads=3, headDim=8)
    assert validate(b.build()) == []


def test_letters_and_params_cover_every_kind():
    assert len(set(KIND_LETTERS.values())) == len(KIND_LETTERS) == 14
    assert set(KIND_PARAMS) == set(BLOCK_KINDS)
    assert len(set(EXTENSION_PARAMS)) == len(EXTENSION_PARAMS)


def test_ids_count_per_letter():
    ids = BlockIds()
    assert [ids.new(kind) for kind in ("add", "norm", "add", "loss", "add")] == ["r0", "n0", "r1", "x0", "r2"]
    with pytest.raises(KeyError):
        ids.new("conv")
