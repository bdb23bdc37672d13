"""Hugging Face models with tiny configs: the right answers are in the configs."""

from __future__ import annotations

import os

import pytest
import torch

from ptoa_core.validate import validate
from ptoa_torch import analyze

os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")

V, D, F, L, H = 97, 32, 72, 2, 4
BASE = {
    "vocab_size": V, "hidden_size": D, "intermediate_size": F, "num_hidden_layers": L,
    "num_attention_heads": H, "max_position_embeddings": 64,
}  # fmt: skip
GQA = {**BASE, "num_key_value_heads": 2}
TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


def ids(length=9):
    return torch.randint(3, V, (2, length), generator=torch.Generator().manual_seed(7))


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**GQA, **TOKENS))


def gpt2():
    config = transformers.GPT2Config(vocab_size=V, n_positions=64, n_embd=D, n_layer=L, n_head=H, **TOKENS)
    return transformers.GPT2LMHeadModel(config)


def bert():
    return transformers.BertForMaskedLM(transformers.BertConfig(**BASE))


def phi3():
    return transformers.Phi3ForCausalLM(transformers.Phi3Config(**GQA, **TOKENS))


def opt():
    config = transformers.OPTConfig(
        vocab_size=V, hidden_size=D, ffn_dim=F, num_hidden_layers=L, num_attention_heads=H,
        max_position_embeddings=64, word_embed_proj_dim=D, **TOKENS,
    )  # fmt: skip
    return transformers.OPTForCausalLM(config)


LLAMA = ({"kvHeads": 2, "positions": "rotary"}, {"gated": True, "variant": "silu", "hidden": F})
RMS, LAYER, BERT = ("rmsnorm", 2 * L + 1), ("layernorm", 2 * L + 1), ("layernorm", 2 * L + 2)


@pytest.mark.parametrize(
    ("build", "causal", "attention", "mlp", "norm", "positions", "tied"),
    [
        pytest.param(llama, True, *LLAMA, RMS, None, False, id="llama"),
        pytest.param(phi3, True, *LLAMA, RMS, None, False, id="phi3-fused"),
        pytest.param(gpt2, True, {}, {"variant": "gelu", "hidden": 4 * D}, LAYER, 64, True, id="gpt2"),
        pytest.param(opt, True, {}, {"variant": "relu", "hidden": F}, LAYER, 66, True, id="opt"),
        pytest.param(bert, False, {}, {"variant": "gelu", "hidden": F}, BERT, 64, True, id="bert"),
    ],
)  # fmt: skip
def test_blocks_are_those_of_the_config(build, causal, attention, mlp, norm, positions, tied):
    """Attention, feed-forward, norms, positions and head, all from what ran."""
    found = analyze(build(), ids())
    spec = found.spec
    assert validate(spec) == []
    heads = [b.params for b in spec.blocks if b.kind == "attention"]
    assert [(p.heads, p.d, p.causal) for p in heads] == [(H, D, causal)] * L
    assert [{k: p.to_dict().get(k) for k in attention} for p in heads] == [attention] * L
    feeds = [b.params.to_dict() for b in spec.blocks if b.kind == "mlp"]
    assert [{k: p.get(k) for k in mlp} for p in feeds] == [mlp] * L
    assert [b.params.variant for b in spec.blocks if b.kind == "norm"] == [norm[0]] * norm[1]
    tables = [b.params.maxLen for b in spec.blocks if b.kind == "posenc"]
    assert tables == ([positions] if positions else [])
    (head,) = [b.params for b in spec.blocks if b.kind == "unembed"]
    assert (head.vocab, head.d, head.tiedTo) == (V, D, "e0" if tied else None)


@pytest.mark.parametrize("build", [llama, gpt2, bert], ids=["llama", "gpt2", "bert"])
def test_the_model_and_its_config_are_as_before(build):
    """Flags, attributes, hooks, tensors and the attention implementation."""
    net = build()
    for place, module in enumerate(net.modules()):
        module.training = place % 3 != 1

    def look():
        return (
            [m.training for m in net.modules()],
            [{k: id(v) for k, v in vars(m).items() if k != "training"} for m in net.modules()],
            net.config.to_json_string(),
            net.config._attn_implementation,
        )

    before, tensors = look(), {k: v.clone() for k, v in net.state_dict().items()}
    analyze(net, ids())
    assert look() == before
    assert all(torch.equal(v, tensors[k]) for k, v in net.state_dict().items())


def test_parameters_are_counted_once():
    """The blocks' counts add up to the model's."""
    net = gpt2()
    spec = analyze(net, ids()).spec
    assert sum(b.params.extra.get("paramCount", 0) for b in spec.blocks) == sum(
        p.numel() for p in net.parameters()
    )
