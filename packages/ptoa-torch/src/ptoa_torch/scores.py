"""Attention probabilities that a fused kernel did not return, computed again from what it was given.

Only what a frame can hold is computed: the leading heads and query rows, against all keys, a few
rows at a time, so that memory stays bounded whatever the length of the sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from .attention import multihead_probabilities, probabilities

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .nodes import Node

__all__ = ["Scores", "scores_of"]

# The most values of scores that are computed at once.
_MAX_VALUES = 1 << 22


@dataclass(frozen=True)
class Scores:
    """Attention probabilities that can be asked for.

    Attributes:
        shape: ``(batch, head, query, key)``.
        corner: Given the sizes to keep of each axis, the leading corner with those sizes.
    """

    shape: tuple[int, ...]
    corner: Callable[[Sequence[int]], Tensor | None]


def _arguments(node: Node, name: str, order: Sequence[str]) -> dict[str, Any]:
    """The arguments of one function of a node, by name."""
    op = next((op for op in node.ops if op.name == name), None)
    if op is None:
        return {}
    given = {slot: value.tensor for slot, value in op.inputs} | op.settings
    return {order[slot] if isinstance(slot, int) else slot: item for slot, item in given.items()
            if not isinstance(slot, int) or slot < len(order)}  # fmt: skip


_FUSED = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
_MULTIHEAD = ("query", "key", "value", "embed_dim_to_check", "num_heads")


def scores_of(node: Node) -> Scores | None:
    """The probabilities behind a node; None where they cannot be computed again.

    Args:
        node: A node that is a fused kernel (``scaled_dot_product_attention``) or a call of
            ``nn.MultiheadAttention``.
    """
    if node.kind == "core":
        return _fused(_arguments(node, "scaled_dot_product_attention", _FUSED))
    if isinstance(node.module, nn.MultiheadAttention):
        return _multihead(node.module, _arguments(node, "multi_head_attention_forward", _MULTIHEAD))
    return None


def _batched(tensor: Tensor, axes: int) -> Tensor:
    """A tensor with axes of size one in front, to a number of axes."""
    return tensor[(None,) * (axes - tensor.ndim)]


def _fused(given: dict[str, Any]) -> Scores | None:
    """The probabilities of a fused kernel's arguments."""
    query, key, mask = given.get("query"), given.get("key"), given.get("attn_mask")
    if not isinstance(query, Tensor) or not isinstance(key, Tensor) or query.is_nested:
        return None
    if query.ndim not in (3, 4) or key.ndim != query.ndim:
        return None
    query, key = _batched(query, 4), _batched(key, 4)
    shape = (*query.shape[:3], key.shape[2])
    mask = None if mask is None else _batched(mask, 4).expand(shape)

    def corner(kept: Sequence[int]) -> Tensor:
        batch, heads, rows, keys = kept
        share = max(1, query.shape[1] // key.shape[1])
        step = max(1, _MAX_VALUES // max(1, shape[3]))
        made = torch.zeros(*kept, device=query.device)
        for b in range(batch):
            for h in range(heads):
                own = slice(b, b + 1), slice(h, h + 1)
                shared = slice(b, b + 1), slice(h // share, h // share + 1)
                for start in range(0, rows, step):
                    part = probabilities(
                        query[own], key[shared], None, None if mask is None else mask[own],
                        is_causal=given.get("is_causal") is True, scale=given.get("scale"),
                        rows=torch.arange(start, min(rows, start + step), device=query.device),
                    )  # fmt: skip
                    if part is not None:
                        made[b, h, start : start + step] = part[0, 0, :, :keys]
        return made

    return Scores(shape, corner)


def _multihead(module: nn.MultiheadAttention, given: dict[str, Any]) -> Scores | None:
    """The probabilities of ``nn.MultiheadAttention``, from what its function was given."""
    query, key, mask = given.get("query"), given.get("key"), given.get("attn_mask")
    if not isinstance(query, Tensor) or not isinstance(key, Tensor):
        return None
    if query.ndim == 3 and module.batch_first:  # the function itself takes the length first
        query, key = query.transpose(0, 1), key.transpose(0, 1)
    length = 1 if module.batch_first and query.ndim == 3 else 0
    count = 1 if query.ndim < 3 else query.shape[1 - length]
    shape = (count, module.num_heads, query.shape[length], key.shape[length])

    def corner(kept: Sequence[int]) -> Tensor | None:
        batch, heads, rows, keys = kept
        few = query.narrow(length, 0, rows)
        shorter = mask[..., :rows, :] if isinstance(mask, Tensor) else None
        options = {"attn_mask": shorter, "key_padding_mask": given.get("key_padding_mask")}
        found = multihead_probabilities(module, (few, key), options)
        return None if found is None else found[:batch, :heads, :rows, :keys]

    return Scores(shape, corner)
