"""Attention probabilities as they are seen, against ones computed by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ptoa_torch import attention
from ptoa_torch.attention import (
    AttentionMode,
    attention_entropy,
    corner,
    multihead_probabilities,
    probabilities,
    sample_of,
)


def made(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def plain(query, key, mask=None, scale=None):
    scores = query.double() @ key.double().transpose(-2, -1) * (scale or 1 / math.sqrt(query.shape[-1]))
    return torch.softmax(scores if mask is None else scores + mask.double(), -1)


def look(heads: int, run):
    """What a mode shows of a call."""
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []

    def fail(error: Exception) -> None:
        raise error

    with AttentionMode(heads, lambda sample, first, largest: seen.append((sample, first)), fail):
        run()
    return seen


def test_entropy_is_the_mean_of_shannons_over_sequences_and_queries():
    probs = torch.softmax(made(3, 2, 4, 5), -1)
    rows = probs.double().tolist()
    expected = [
        -sum(p * math.log(p) for batch in rows for row in batch[head] for p in row) / (3 * 4)
        for head in range(2)
    ]
    assert attention_entropy(probs).tolist() == pytest.approx(expected, rel=1e-6)


def test_a_key_that_is_masked_adds_nothing_to_the_entropy():
    probs = torch.tensor([[[[0.5, 0.5, 0.0]]]])
    assert attention_entropy(probs).item() == pytest.approx(math.log(2))


def test_weights_averaged_over_heads_are_refused():
    with pytest.raises(ValueError, match=r"\(2, 3, 4\)"):
        attention_entropy(torch.zeros(2, 3, 4))


def test_the_corner_is_of_the_first_sequence():
    probs = made(2, 3, 40, 50)
    assert torch.equal(corner(probs), probs[0, :, :32, :32])
    assert corner(probs[:, :, :5, :7]).shape == (3, 5, 5)


MASKS = {
    "none": None,
    "bool": torch.ones(6, 6).tril().bool(),
    "float": torch.zeros(6, 6).masked_fill(torch.ones(6, 6).triu(1).bool(), -math.inf),
    "per-sequence": torch.arange(6).expand(2, 1, 6, 6) < torch.tensor([6, 3]).view(2, 1, 1, 1),
    "one-row": torch.tensor([[True, True, True, False, False, False]]),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
def test_probabilities_are_those_that_scaled_dot_product_attention_weighs_by(mask):
    query, key, value = made(2, 3, 6, 4), made(2, 3, 6, 4, seed=1), torch.eye(6).expand(2, 3, 6, 6)
    # With the identity as values, the function returns its own probabilities.
    own = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    assert torch.allclose(probabilities(query, key, attn_mask=mask), own, atol=1e-6)


def test_probabilities_follow_causality_scale_and_grouped_queries():
    query, key = made(2, 4, 6, 8), made(2, 2, 6, 8, seed=1)
    mask = torch.zeros(6, 6).masked_fill(torch.ones(6, 6).triu(1).bool(), -math.inf)
    expected = plain(query, key.repeat_interleave(2, 1), mask, scale=0.3)
    found = probabilities(query, key, is_causal=True, scale=0.3, enable_gqa=True)
    assert torch.allclose(found.double(), expected, atol=1e-6)


def test_a_query_without_any_key_weighs_nothing():
    found = probabilities(made(1, 1, 2, 4), made(1, 1, 3, 4), attn_mask=torch.zeros(2, 3, dtype=torch.bool))
    assert torch.equal(found, torch.zeros(1, 1, 2, 3))


def test_a_softmax_inside_is_shown_a_head_each():
    scores = made(2, 3, 5, 5)
    for run in (
        lambda: F.softmax(scores, -1),
        lambda: torch.softmax(scores, -1),
        lambda: scores.softmax(-1),
        lambda: nn.Softmax(-1)(scores),
        lambda: F.softmax(scores.flatten(0, 1), -1),
    ):
        [(sample, first)] = look(3, run)
        assert torch.allclose(sample, torch.softmax(scores, -1))
        assert torch.allclose(first, torch.softmax(scores, -1))


def test_scaled_dot_product_attention_is_shown_and_its_result_unchanged():
    query, key, value = (made(2, 3, 5, 4, seed=seed) for seed in range(3))
    results = []
    [(sample, _)] = look(
        3, lambda: results.append(F.scaled_dot_product_attention(query, key, value, is_causal=True))
    )
    assert torch.equal(results[0], F.scaled_dot_product_attention(query, key, value, is_causal=True))
    assert torch.allclose(sample, probabilities(query, key, is_causal=True))


def test_only_the_first_probabilities_of_a_call_are_shown():
    scores = made(1, 2, 3, 3)
    assert len(look(2, lambda: (torch.softmax(scores, -1), torch.softmax(scores, -1)))) == 1


@pytest.mark.parametrize("shape", [(4, 10), (7, 5, 5), (1, 4, 5, 5)], ids=str)
def test_a_softmax_of_another_shape_is_left_out(shape):
    assert look(3, lambda: torch.softmax(made(*shape), -1)) == []


def test_a_long_sequence_is_looked_at_in_part(monkeypatch):
    monkeypatch.setattr(attention, "MAX_VALUES", 2 * 64 * 64 // 4)
    query, key, value = (made(1, 2, 64, 4, seed=seed) for seed in range(3))
    whole = plain(query, key).float()
    for run in (
        lambda: F.scaled_dot_product_attention(query, key, value),
        lambda: torch.softmax(query @ key.transpose(-2, -1) / 2, -1),
    ):
        [(sample, first)] = look(2, run)
        assert torch.allclose(sample, whole[:, :, ::4], atol=1e-6)
        assert torch.allclose(first[:, :, :32], whole[:, :, :32], atol=1e-6)


def test_a_failing_look_does_not_reach_the_model():
    failures: list[Exception] = []

    def show(*_: object) -> None:
        raise RuntimeError("disk full")

    with AttentionMode(2, show, failures.append):
        result = torch.softmax(made(1, 2, 3, 3), -1)
        torch.softmax(result, -1)
    assert [str(error) for error in failures] == ["disk full"]


def test_a_graph_is_neither_cut_nor_kept():
    scores = made(1, 2, 3, 3).requires_grad_()
    results = []
    [(sample, _)] = look(2, lambda: results.append(torch.softmax(scores, -1)))
    results[0].pow(2).sum().backward()
    assert scores.grad is not None
    assert not sample.requires_grad


@pytest.mark.parametrize("batch_first", [True, False], ids=["batch-first", "sequence-first"])
@pytest.mark.parametrize("mask", ["none", "causal", "padding", "per-head", "float"])
def test_multihead_attention_is_computed_again_as_it_returns_it(batch_first, mask):
    torch.manual_seed(0)
    module = nn.MultiheadAttention(16, 4, batch_first=batch_first)
    x = made(3, 5, 16) if batch_first else made(5, 3, 16)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2, [False] * 5])
    options = {
        "none": {},
        "causal": {"attn_mask": torch.ones(5, 5).triu(1).bool()},
        "padding": {"key_padding_mask": padding},
        "per-head": {"attn_mask": made(12, 5, 5)},
        "float": {"attn_mask": made(5, 5)},
    }[mask]
    _, weights = module(x, x, x, average_attn_weights=False, **options)
    assert torch.allclose(multihead_probabilities(module, (x, x, x), options), weights, atol=1e-6)


def test_multihead_attention_with_other_key_widths_is_computed_again():
    torch.manual_seed(0)
    module = nn.MultiheadAttention(16, 4, kdim=6, vdim=7, batch_first=True, bias=False)
    query, key, value = made(2, 3, 16), made(2, 5, 6), made(2, 5, 7)
    _, weights = module(query, key, value, average_attn_weights=False)
    found = multihead_probabilities(module, (query,), {"key": key, "value": value})
    assert torch.allclose(found, weights, atol=1e-6)


def test_a_single_sequence_without_a_batch_is_understood():
    torch.manual_seed(0)
    module = nn.MultiheadAttention(8, 2)
    x = made(4, 8)
    _, weights = module(x, x, x, average_attn_weights=False)
    assert torch.allclose(multihead_probabilities(module, (x, x, x), {})[0], weights, atol=1e-6)


def test_added_keys_are_left_out():
    module = nn.MultiheadAttention(8, 2, add_bias_kv=True)
    x = made(4, 1, 8)
    assert multihead_probabilities(module, (x, x, x), {}) is None


def test_at_least_one_sequence_is_looked_at():
    assert sample_of(4, 64, 4096, 4096) == 1
    assert sample_of(0, 1, 1, 1) == 1


# ── the room for patterns ────────────────────────────────────────────────────


def frames_of(turns, count, rows, heads=12, size=32):
    for _ in range(count):
        turns.begin()
        yield [row for row in range(rows) if turns.takes(row, heads=heads, size=size)]


def test_where_all_patterns_have_room_every_frame_has_all():
    assert list(frames_of(attention.PatternTurns(), 3, 24)) == [list(range(24))] * 3


def test_blocks_take_turns_and_each_comes_as_often_as_any_other():
    seen = [row for frame in frames_of(attention.PatternTurns(), 100, 100) for row in frame]
    counts = [seen.count(row) for row in range(100)]
    assert min(counts) > 0
    assert max(counts) - min(counts) <= 1


def test_a_frame_never_has_more_than_its_room():
    for frame in frames_of(attention.PatternTurns(room=200_000), 20, 9):
        assert 0 < len(frame) * 12 * (5464 + 30) <= 200_000


def test_a_block_without_room_of_its_own_is_left_out_and_keeps_no_other_from_coming():
    turns = attention.PatternTurns(room=100_000)
    for _ in range(3):
        turns.begin()
        assert not turns.takes(0, heads=40, size=32)
        assert turns.takes(1, heads=2, size=32)
