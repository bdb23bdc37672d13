"""The module tree as a last resort: a chain that says it is a guess."""

from __future__ import annotations

from torch import nn

from ptoa_torch import from_module


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n_head, self.q_proj, self.v_proj = 2, nn.Linear(8, 8), nn.Linear(8, 8)


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe, self.drop = nn.Embedding(11, 8), nn.Embedding(5, 8), nn.Dropout()
        self.h = nn.ModuleList(nn.Sequential(nn.LayerNorm(8), Block()) for _ in range(2))
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.wte.weight
        self.loss = nn.CrossEntropyLoss()


def test_the_tree_is_a_chain_in_the_order_of_definition():
    """Embedding, positions, layers, head; dropout and losses are left out."""
    spec = from_module(GPT(), strategy="tree")
    leaves = [b for b in spec.blocks if b.inputs or b.kind in ("tokens", "input")]
    assert [(b.kind, b.inputs) for b in leaves] == [
        ("tokens", []), ("embedding", ["t0"]), ("posenc", ["e0"]), ("norm", ["p0"]), ("attention", ["n0"]),
        ("norm", ["a0"]), ("attention", ["n1"]), ("unembed", ["a1"]),
    ]  # fmt: skip
    assert spec.block("u0").params.tiedTo == "e0"
    assert [b.label for b in spec.blocks if b.kind == "group"] == ["h.0 (Sequential)", "h.1 (Sequential)"]


def test_a_model_without_modules_is_its_input():
    """Nothing is invented."""

    class Empty(nn.Module):
        pass

    spec = from_module(Empty(), strategy="tree")
    assert [b.kind for b in spec.blocks] == ["group"] or [b.kind for b in spec.blocks] == ["input", "group"]
    assert spec.output == spec.blocks[-1].id
