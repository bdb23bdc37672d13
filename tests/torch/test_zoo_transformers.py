"""Hugging Face models of many families with tiny configs: every right answer is in the config.

A row says what a model must be read as: its attention, feed-forward layers, norms, positions,
embedding, output layer and residual additions. What its config does not settle is not asked.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any, NamedTuple

import pytest
import torch

from ptoa_core.validate import validate
from ptoa_torch import analyze
from ptoa_torch.inputs import as_inputs

os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers")
flop_counter = pytest.importorskip("torch.utils.flop_counter")
pytestmark = pytest.mark.filterwarnings("ignore")

V, D, F, L, H = 97, 32, 72, 2, 4
TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
BASE = {
    "vocab_size": V, "hidden_size": D, "intermediate_size": F, "num_hidden_layers": L,
    "num_attention_heads": H, "max_position_embeddings": 64,
}  # fmt: skip
GQA = {**BASE, "num_key_value_heads": 2, **TOKENS}
GPT = {"vocab_size": V, "n_positions": 64, "n_embd": D, "n_layer": L, "n_head": H, **TOKENS}
VISION = {
    "hidden_size": D, "intermediate_size": F, "num_hidden_layers": L, "num_attention_heads": H,
    "image_size": 32, "patch_size": 8,
}  # fmt: skip
BART = {
    "vocab_size": V, "d_model": D, "encoder_layers": L, "decoder_layers": L, "encoder_attention_heads": H,
    "decoder_attention_heads": H, "encoder_ffn_dim": F, "decoder_ffn_dim": F, "max_position_embeddings": 64,
    "decoder_start_token_id": 2, **TOKENS,
}  # fmt: skip
T5 = {
    "vocab_size": V, "d_model": D, "d_kv": 8, "d_ff": F, "num_layers": L, "num_decoder_layers": L,
    "num_heads": H, "decoder_start_token_id": 0,
}  # fmt: skip
AUDIO = {
    "vocab_size": 32, "hidden_size": D, "num_hidden_layers": L, "num_attention_heads": H,
    "intermediate_size": F, "conv_dim": (16, 16), "conv_stride": (5, 2), "conv_kernel": (10, 3),
    "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2,
}  # fmt: skip


def ids(length=9):
    return torch.randint(3, V, (2, length), generator=torch.Generator().manual_seed(7))


def noise(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7))


TEXT, PAIR = ids, (lambda: {"input_ids": ids(), "decoder_input_ids": ids(5)})
IMAGE, WAVE = (lambda: noise(2, 3, 32, 32)), (lambda: noise(2, 800))


class Row(NamedTuple):
    """One model, and what its config says of it; None is not asked.

    ``causal`` counts the attention blocks that hide the future; ``mlp`` is hidden size, activation
    and whether it is gated.
    """

    name: str
    config: str
    settings: dict[str, Any]
    attention: int | None = None
    causal: int | None = None
    kv: int | None = None
    mlps: int | None = None
    mlp: tuple[int, str | None, bool] | None = None
    norms: dict[str, int] | None = None
    positions: str | None = None
    tied: bool | None = None
    adds: int | None = None
    experts: int | None = None
    given: Any = TEXT
    counted: bool = True  # torch's own counter knows every product of the model


def decoder(name, config=None, settings=None, **facts):
    """A row of a decoder with the usual answers, unless they are given."""
    usual = {
        "attention": L,
        "causal": L,
        "mlps": L,
        "mlp": (F, "silu", True),
        "positions": "rotary",
        "adds": 2 * L,
    }
    return Row(name, config or name.replace("ForCausalLM", "Config"), settings or GQA, **{**usual, **facts})


def encoder(name, config, settings=None, **facts):
    """A row of an encoder with the usual answers, unless they are given."""
    usual = {"attention": L, "causal": 0, "mlps": L, "mlp": (F, "gelu", False)}
    return Row(name, config, settings or BASE, **{**usual, **facts})


def pair(name, config, settings, **facts):
    """A row of an encoder and a decoder with the usual answers, unless they are given."""
    usual = {"attention": 3 * L, "causal": L, "mlps": 2 * L, "adds": 5 * L, "given": PAIR}
    return Row(name, config, settings, **{**usual, **facts})


RMS, LAYER = {"rmsnorm": 2 * L + 1}, {"layernorm": 2 * L + 1}
HEAD = {**GQA, "head_dim": 8}
MOE = {**GQA, "num_local_experts": 4, "num_experts_per_tok": 2}
OWN_GPT = {"mlp": (4 * D, "gelu", False), "norms": LAYER, "positions": "learned", "tied": True}
LATENT = {
    **BASE, **TOKENS, "num_key_value_heads": 4, "moe_intermediate_size": 24, "n_shared_experts": 1,
    "n_routed_experts": 4, "kv_lora_rank": 8, "q_lora_rank": 16, "qk_rope_head_dim": 4, "v_head_dim": 8,
    "qk_nope_head_dim": 8, "num_experts_per_tok": 2, "first_k_dense_replace": 2,
}  # fmt: skip
RECURRENT = {
    "vocab_size": V, "hidden_size": D, "intermediate_size": 2 * F, "num_hidden_layers": 3,
    "num_attention_heads": H, "num_key_value_heads": 1, "lru_width": D, "attention_window_size": 16, **TOKENS,
}  # fmt: skip
DEBERTA = {
    **BASE,
    "type_vocab_size": 0,
    "relative_attention": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "position_buckets": 16,
}

ROWS = [
    decoder("LlamaForCausalLM", kv=2, norms=RMS, tied=False),
    decoder("MistralForCausalLM", kv=2, norms=RMS, settings={**GQA, "sliding_window": 4}),
    decoder("Qwen3ForCausalLM", kv=2, settings=HEAD),
    decoder("GemmaForCausalLM", kv=2, norms=RMS, mlp=(F, "gelu", True), tied=True, settings=HEAD),
    decoder("Gemma3ForCausalLM", "Gemma3TextConfig", kv=2, mlp=(F, "gelu", True), settings=HEAD),
    decoder("OlmoForCausalLM", kv=2, norms=LAYER),
    decoder("StableLmForCausalLM", kv=2, norms=LAYER),
    decoder("CohereForCausalLM", kv=2, norms={"layernorm": L + 1}, adds=None),
    decoder("NemotronForCausalLM", kv=2, norms=LAYER, mlp=(F, "relu2", False)),
    decoder("PhiForCausalLM", norms={"layernorm": L + 1}, mlp=(F, "gelu", False), adds=None),
    decoder(
        "GPTNeoXForCausalLM", norms=LAYER, mlp=(F, "gelu", False), settings={**BASE, **TOKENS}, adds=None
    ),
    decoder("GPT2LMHeadModel", "GPT2Config", GPT, **OWN_GPT),
    decoder("GPTBigCodeForCausalLM", settings=GPT, kv=1, **OWN_GPT),
    decoder("GPTJForCausalLM", settings={**GPT, "rotary_dim": 4}, mlp=(4 * D, "gelu", False), adds=None),
    decoder(
        "MptForCausalLM",
        settings={"d_model": D, "n_heads": H, "n_layers": L, "vocab_size": V},
        norms=LAYER,
        mlp=(4 * D, "gelu", False),
        positions="alibi",
    ),
    decoder(
        "BloomForCausalLM",
        settings={"vocab_size": V, "hidden_size": D, "n_layer": L, "n_head": H},
        mlp=(4 * D, "gelu", False),
        positions="alibi",
        norms={"layernorm": 2 * L + 2},
    ),
    decoder(
        "FalconForCausalLM",
        settings={**BASE, **TOKENS, "num_kv_heads": 2, "new_decoder_architecture": True},
        kv=2,
        mlp=(4 * D, "gelu", False),
        adds=None,
    ),
    decoder("MixtralForCausalLM", kv=2, norms=RMS, experts=4, settings=MOE, counted=False),
    decoder("DeepseekV3ForCausalLM", settings={**LATENT, "n_group": 2, "topk_group": 1}),
    decoder("DeepseekV2ForCausalLM", settings=LATENT),
    decoder(
        "RecurrentGemmaForCausalLM",
        settings=RECURRENT,
        attention=1,
        causal=1,
        kv=1,
        mlps=3,
        norms={"rmsnorm": 7},
        mlp=(F, "gelu", True),
        adds=6,
        counted=False,
    ),
    decoder(
        "MambaForCausalLM",
        settings={"vocab_size": V, "hidden_size": D, "state_size": 4, "num_hidden_layers": L},
        attention=0,
        causal=0,
        mlps=0,
        mlp=None,
        norms={"rmsnorm": L + 1},
        positions=None,
        adds=L,
    ),
    decoder(
        "Lfm2ForCausalLM",
        settings={**GQA, "num_hidden_layers": 3, "full_attn_idxs": [1], "block_auto_adjust_ff_dim": False},
        attention=1,
        causal=1,
        kv=2,
        mlps=3,
        adds=6,
    ),
    encoder("BertForMaskedLM", "BertConfig", norms={"layernorm": 2 * L + 2}, positions="learned", tied=True),
    encoder(
        "RobertaForMaskedLM", "RobertaConfig", norms={"layernorm": 2 * L + 2}, positions="learned", tied=True
    ),
    encoder("DebertaV2ForMaskedLM", "DebertaV2Config", DEBERTA, positions="relative", tied=True),
    encoder("MPNetForMaskedLM", "MPNetConfig", positions="relative", tied=True),
    encoder("RoFormerForMaskedLM", "RoFormerConfig", positions="rotary", tied=True),
    encoder(
        "NystromformerForMaskedLM",
        "NystromformerConfig",
        {**BASE, "num_landmarks": 4, "segment_means_seq_len": 8},
        norms={"layernorm": 2 * L + 2},
        given=lambda: ids(8),
    ),
    encoder(
        "FNetModel",
        "FNetConfig",
        {"vocab_size": V, "hidden_size": D, "intermediate_size": F, "num_hidden_layers": L},
        attention=0,
        positions="learned",
        norms={"layernorm": 2 * L + 1},
    ),
    encoder(
        "AlbertForMaskedLM", "AlbertConfig", {**BASE, "embedding_size": 16}, tied=True, positions="learned"
    ),
    encoder("EuroBertForMaskedLM", "EuroBertConfig", GQA, kv=2, mlp=(F, "silu", True), positions="rotary"),
    pair(
        "BartForConditionalGeneration",
        "BartConfig",
        BART,
        mlp=(F, "gelu", False),
        positions="learned",
        tied=True,
    ),
    pair(
        "PegasusForConditionalGeneration",
        "PegasusConfig",
        BART,
        mlp=(F, "gelu", False),
        positions="sinusoidal",
    ),
    pair(
        "M2M100ForConditionalGeneration", "M2M100Config", BART, mlp=(F, "relu", False), positions="sinusoidal"
    ),
    pair(
        "T5ForConditionalGeneration",
        "T5Config",
        T5,
        mlp=(F, "relu", False),
        positions="relative",
        tied=True,
        norms={"rmsnorm": 5 * L + 2},
    ),
    encoder("ViTForImageClassification", "ViTConfig", VISION, norms=LAYER, positions="learned", given=IMAGE),
    encoder(
        "Dinov2Model",
        "Dinov2Config",
        {**VISION, "mlp_ratio": 3},
        mlp=(3 * D, "gelu", False),
        norms=LAYER,
        positions="learned",
        adds=2 * L,
        given=IMAGE,
    ),
    encoder(
        "BeitModel",
        "BeitConfig",
        {**VISION, "use_relative_position_bias": True},
        positions="relative",
        given=IMAGE,
    ),
    encoder(
        "PvtModel",
        "PvtConfig",
        {
            "image_size": 32,
            "depths": [1, 1],
            "hidden_sizes": [8, 16],
            "num_attention_heads": [1, 2],
            "num_encoder_blocks": 2,
            "patch_sizes": [4, 2],
            "strides": [4, 2],
            "sequence_reduction_ratios": [2, 1],
            "mlp_ratios": [4, 4],
        },
        mlp=None,
        positions="learned",
        given=IMAGE,
    ),
    encoder(
        "PerceiverModel",
        "PerceiverConfig",
        {
            "num_latents": 6,
            "d_latents": D,
            "d_model": D,
            "num_blocks": 1,
            "num_self_attends_per_block": L,
            "num_self_attention_heads": H,
            "num_cross_attention_heads": H,
        },
        attention=L + 1,
        mlps=L + 1,
        mlp=(D, "gelu", False),
        norms={"layernorm": 3 + 2 * L},
        adds=2 * L + 2,
        given=lambda: noise(2, 11, D),
        counted=False,
    ),
    encoder("Wav2Vec2ForCTC", "Wav2Vec2Config", AUDIO, positions="convolutional", given=WAVE),
    encoder("WavLMForCTC", "WavLMConfig", AUDIO, positions="relative", given=WAVE),
]


def read(row):
    """The model of a row, its input and what was read; a family that this release lacks is skipped."""
    if not hasattr(transformers, row.name) or not hasattr(transformers, row.config):
        pytest.skip(f"{row.name} is not in transformers {transformers.__version__}")
    torch.manual_seed(0)
    model = getattr(transformers, row.name)(getattr(transformers, row.config)(**row.settings))
    given = row.given()
    return model, given, analyze(model, given)


def facts(spec):
    """What the blocks of a spec say, in the words of a row."""
    by_kind = {
        kind: [b.params for b in spec.blocks if b.kind == kind] for kind in {b.kind for b in spec.blocks}
    }
    attention, mlps = by_kind.get("attention", []), by_kind.get("mlp", [])
    extra = [b.params.extra for b in spec.blocks]
    norms = Counter(params.variant for params in by_kind.get("norm", []))
    tables = [p.extra.get("positions") or p.variant for p in by_kind.get("posenc", [])]
    return {
        "attention": len(attention),
        "heads": {p.heads for p in attention},
        "causal": sum(p.causal is True for p in attention),
        "kv": {p.extra.get("kvHeads") for p in attention},
        "mlps": len(mlps),
        "mlp": {(p.hidden, p.variant or p.extra.get("activation"), bool(p.extra.get("gated"))) for p in mlps},
        "norms": dict(norms),
        "positions": {*tables, *(e["positions"] for e in extra if "positions" in e)},
        "tied": {p.tiedTo is not None for p in by_kind.get("unembed", [])},
        "adds": len(by_kind.get("add", [])),
        "experts": {e["experts"] for e in extra if "experts" in e},
    }


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_a_model_is_read_as_its_config_says(row):
    """Sublayers, norms, positions, head and additions; sound, and without a warning."""
    model, given, found = read(row)
    got = facts(found.spec)
    wanted = {name: getattr(row, name) for name in ("attention", "causal", "mlps", "norms", "adds")}
    assert {name: got[name] for name in wanted if wanted[name] is not None} == {
        name: want for name, want in wanted.items() if want is not None
    }
    for name in ("kv", "mlp", "tied", "experts"):
        want = getattr(row, name)
        assert want is None or got[name] == {want}, name
    assert row.positions is None or row.positions in got["positions"]
    assert validate(found.spec) == []
    assert found.warnings == []
    counts = [block.params.extra.get("paramCount", 0) for block in found.spec.blocks]
    assert sum(counts) == sum(parameter.numel() for parameter in model.parameters())
    if row.counted:
        assert sum(b.params.extra.get("flops", 0) for b in found.spec.blocks) == counted(model, given)


def counted(model, given):
    """The operations of one pass by torch's own counter, which does not look into fused kernels."""
    inputs = as_inputs(given)
    with flop_counter.FlopCounterMode(display=False) as counter, torch.no_grad(), unfused():
        model.eval()(*inputs.args, **inputs.kwargs)
    return counter.get_total_flops()


def unfused():
    """Attention without fused kernels, as this torch says it."""
    if hasattr(torch.nn, "attention"):
        return torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
    return torch.backends.cuda.sdp_kernel(enable_flash=False, enable_mem_efficient=False)


def test_equal_layers_in_a_row_say_so():
    """Each layer has weights of its own; the first says how many they are."""
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**GQA, "num_hidden_layers": 5}))
    blocks = analyze(model, ids()).spec.blocks
    first = next(b for b in blocks if b.label == "model.layers.0 (LlamaDecoderLayer)")
    assert first.params.extra["repeats"] == 5
    assert [b.params.extra.get("repeatOf") for b in blocks].count(first.id) == 4


def test_one_layer_that_runs_three_times_is_no_repetition():
    """ALBERT applies one layer's weights again and again: the same module, counted once."""
    row = next(row for row in ROWS if row.name == "AlbertForMaskedLM")
    blocks = read(row._replace(settings={**row.settings, "num_hidden_layers": 3}))[2].spec.blocks
    attention = [b.params.extra for b in blocks if b.kind == "attention"]
    assert [extra["calls"] for extra in attention] == [3, 3, 3]
    assert [extra["paramCount"] > 0 for extra in attention] == [True, False, False]
    assert not any("repeats" in b.params.extra for b in blocks)
