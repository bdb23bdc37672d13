"""Attention as it is computed: the probabilities of a module, seen without changing it.

While an attention module's forward runs on a frame step, a function mode looks at each torch
function: a softmax whose result has one matrix a head, or ``scaled_dot_product_attention``,
whose probabilities are computed again from a bounded sample of its query, key and mask.
``nn.MultiheadAttention`` runs as one function, so its probabilities are computed again from
its arguments. A kernel that hides them otherwise, or weights that are averaged over heads,
give nothing: the entropy of an average is not the average entropy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  # its usual name
from torch.overrides import TorchFunctionMode

from ptoa_core.protocol import PATTERN_SIZE

from .timing import clock

__all__ = [
    "ENTROPY_VALUES",
    "MAX_VALUES",
    "PATTERN_BYTES",
    "AttentionMode",
    "PatternTurns",
    "Show",
    "attention_entropy",
    "corner",
    "multihead_probabilities",
    "probabilities",
    "sample_of",
    "shown_by",
]

ENTROPY_VALUES = 1 << 14
MAX_VALUES = 1 << 17
PATTERN_BYTES = 2_000_000  # of one frame, as they are written
_HEAD_BYTES = 48  # what is written of a head beside its numbers
_SOFTMAX = frozenset((F.softmax, torch.softmax, Tensor.softmax))
_TINY = 1e-30


def attention_entropy(probs: Tensor) -> Tensor:
    """Mean entropy of each head's attention rows, in nats.

    A head at 0 looks at a single key from everywhere; a head at ``log(key)`` looks at every
    key alike. Under a causal mask row ``i`` cannot exceed ``log(i + 1)``.

    Args:
        probs: Probabilities after softmax and before dropout; rows are taken to sum to 1.

    Returns:
        Float32 on the device of ``probs``, cut from the graph. A probability of exactly 0
        adds nothing; NaN is passed on.

    Shape:
        probs: ``(batch, head, query, key)``
        return: ``(head,)``

    Raises:
        ValueError: If ``probs`` has no four dimensions; weights averaged over heads have three.

    Source:
        C. E. Shannon, "A Mathematical Theory of Communication", 1948, section 6.

    Example:
        >>> attention_entropy(torch.full((1, 2, 5, 4), 0.25))  # ln 4
        tensor([1.3863, 1.3863])
    """
    if probs.ndim != 4:
        raise ValueError(f"probs must be (batch, head, query, key), found shape {tuple(probs.shape)}")
    wide = probs.detach().to(torch.float32)
    # p * log(p + tiny) is three times as fast as entr and differs by less than 1e-28.
    return (wide + _TINY).log().mul_(wide).sum((0, 2, 3)) / -(wide.shape[0] * wide.shape[2])


def sample_of(sequences: int, heads: int, queries: int, keys: int) -> int:
    """How many of the first sequences are looked at: at least one, else within ``ENTROPY_VALUES``.

    Example:
        >>> sample_of(16, 2, 32, 32), sample_of(8, 6, 256, 256)
        (8, 1)
    """
    return max(1, min(sequences, ENTROPY_VALUES // max(1, heads * queries * keys)))


def corner(probs: Tensor) -> Tensor:
    """The top-left of each head's pattern for the first sequence, float32.

    Shape:
        probs: ``(batch, head, query, key)``
        return: ``(head, size, size)``, size at most 32

    Example:
        >>> corner(torch.ones(2, 3, 40, 8)).shape
        torch.Size([3, 8, 8])
    """
    size = min(PATTERN_SIZE, probs.shape[2], probs.shape[3])
    return probs[0, :, :size, :size].detach().to(torch.float32)


class PatternTurns:
    """Which blocks' patterns a frame carries, where not all have room: they take turns.

    Args:
        room: Bytes of the patterns of one frame, as they are written.

    Example:
        >>> turns = PatternTurns(room=20_000)
        >>> for _ in range(3):
        ...     turns.begin()
        ...     [turns.takes(row, heads=2, size=32) for row in range(3)]
        [True, False, False]
        [False, True, False]
        [False, False, True]
    """

    def __init__(self, room: int = PATTERN_BYTES) -> None:
        """Know no block yet."""
        self._room = room
        self._left = room
        self._costs: dict[int, int] = {}
        self._chosen: set[int] = set()
        self._last = -1

    def begin(self) -> None:
        """A new frame: the blocks after those of the last one come first."""
        rows = sorted(
            (row for row, cost in self._costs.items() if cost <= self._room),
            key=lambda row: (row <= self._last, row),
        )
        self._left, self._chosen = self._room, set()
        for row in rows:
            if self._costs[row] > self._left:
                break
            self._take(row)
            self._chosen.add(row)

    def takes(self, row: int, *, heads: int, size: int) -> bool:
        """Whether a block's patterns go into this frame."""
        known = row in self._costs
        cost = heads * (4 * -(-size * size * 4 // 3) + _HEAD_BYTES)
        self._costs[row] = cost
        if known or cost > self._left:
            return row in self._chosen
        self._take(row)
        return True

    def _take(self, row: int) -> None:
        """Give a block its room."""
        self._left -= self._costs[row]
        self._last = row


def probabilities(
    query: Tensor,
    key: Tensor,
    value: Tensor | None = None,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    rows: Tensor | slice | None = None,
    largest: list[Tensor] | None = None,
) -> Tensor | None:
    """What ``scaled_dot_product_attention`` would weigh its values by, for the first sequences.

    Takes that function's arguments; dropout is left out. ``rows`` are the queries to look
    at, all by default; ``largest`` is given the largest score before softmax.
    None where the shapes are not ``(batch, head, query, feature)``.

    Example:
        >>> probabilities(torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 2, 4), is_causal=True)
        tensor([[[[1.0000, 0.0000],
                  [0.5000, 0.5000]]]])
    """
    if query.ndim != 4 or key.ndim != 4:
        return None
    queries = query.shape[2]
    if rows is not None:
        query = query[:, :, rows]
    count = sample_of(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    query, key = query.detach()[:count].float(), key.detach()[:count].float()
    if key.shape[1] != query.shape[1]:
        key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = (query * factor) @ key.transpose(-2, -1)
    if is_causal:
        places = torch.arange(queries, device=key.device)
        places = places if rows is None else places[rows]
        scores.masked_fill_(torch.arange(key.shape[2], device=key.device) > places[:, None], -math.inf)
    if attn_mask is not None:
        mask = attn_mask.detach()
        taken = rows is not None and mask.ndim > 1 and mask.shape[-2] > 1
        scores = _masked(scores, mask[..., rows, :] if taken else mask)
    if largest is not None:
        largest.append(scores.amax())
    probs = torch.softmax(scores, -1)
    if attn_mask is None:
        return probs
    # A row without any key weighs nothing; softmax alone would make it NaN.
    return probs.masked_fill((scores == -math.inf).all(-1, keepdim=True), 0.0)


def _masked(scores: Tensor, mask: Tensor) -> Tensor:
    """Scores under a mask: a bool one says who takes part, any other is added."""
    if mask.ndim == 4 and mask.shape[0] > 1:
        mask = mask[: scores.shape[0]]
    if mask.dtype == torch.bool:
        return scores.masked_fill(~mask, -math.inf)
    return scores + mask.float()


def multihead_probabilities(
    module: nn.MultiheadAttention,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    largest: list[Tensor] | None = None,
) -> Tensor | None:
    """The probabilities of an ``nn.MultiheadAttention`` call, computed again from its arguments.

    ``largest`` is given the largest score before softmax. None for key biases and zero attention,
    which few use and whose order is an inner matter.
    """
    names = ("query", "key", "value", "key_padding_mask", "need_weights", "attn_mask")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    query, key = given["query"], given["key"]
    if module.bias_k is not None or module.add_zero_attn or query.is_nested or query.ndim not in (2, 3):
        return None
    if query.ndim == 2:
        query, key = query.unsqueeze(0), key.unsqueeze(0)
    elif not module.batch_first:
        query, key = query.transpose(0, 1), key.transpose(0, 1)
    count = sample_of(query.shape[0], module.num_heads, query.shape[1], key.shape[1])
    query, key = _projected(module, query.detach()[:count], key.detach()[:count])
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    for mask in _multihead_masks(module, given, query.shape[0]):
        scores = scores.masked_fill(mask, -math.inf) if mask.dtype == torch.bool else scores + mask.float()
    if largest is not None:
        largest.append(scores.amax())
    return torch.softmax(scores, -1)


def _projected(module: nn.MultiheadAttention, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """Query and key after the input projections, a head at a time, float32."""
    size = module.embed_dim
    packed: Tensor | None = module.in_proj_weight  # None where query and key differ in width
    bias: Tensor | None = module.in_proj_bias
    if packed is None:
        to_query, to_key = module.q_proj_weight.detach().float(), module.k_proj_weight.detach().float()
    else:
        to_query, to_key = packed.detach()[: 2 * size].float().split(size)
    biases = (None, None) if bias is None else bias.detach()[: 2 * size].float().split(size)
    pairs = ((query, to_query, biases[0]), (key, to_key, biases[1]))
    made = [F.linear(item.float(), weight, offset) for item, weight, offset in pairs]
    first, second = (item.unflatten(-1, (module.num_heads, -1)).transpose(1, 2) for item in made)
    return first, second


def _multihead_masks(module: nn.MultiheadAttention, given: Mapping[str, Any], count: int) -> list[Tensor]:
    """The masks of a call, each in a shape that fits ``(batch, head, query, key)``; True means left out."""
    masks: list[Tensor] = []
    attention, padding = given.get("attn_mask"), given.get("key_padding_mask")
    if attention is not None:
        attention = attention.detach()
        masks.append(
            attention.unflatten(0, (-1, module.num_heads))[:count] if attention.ndim == 3 else attention
        )
    if padding is not None:
        padding = padding.detach() if padding.ndim == 2 else padding.detach().unsqueeze(0)
        masks.append(padding[:count, None, None, :])
    return masks


Show = Callable[[Tensor, Tensor, Tensor], object]


class AttentionMode(TorchFunctionMode):
    """Shows the first probabilities that are computed while it is entered.

    Args:
        heads: The module's number of heads, by which its probabilities are told from others.
        show: Called once with two tensors ``(batch, head, query, key)``, the sample for the
            entropy and one that holds at least the corner, and with the largest score of the
            sample before softmax.
        fail: Called with an exception of our own, which never reaches the model.
        spent: Called with the seconds that looking took.
    """

    def __init__(
        self,
        heads: int,
        show: Show,
        fail: Callable[[Exception], object],
        spent: Callable[[float], object] | None = None,
    ) -> None:
        """Remember whom to show them to."""
        super().__init__()
        self._heads = heads
        self._show = show
        self._fail = fail
        self._spent = spent
        self._seen = False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Let the call through, then look at it."""
        result = func(*args, **(kwargs or {}))
        if not self._seen and (func in _SOFTMAX or func is F.scaled_dot_product_attention):
            started = clock()
            try:
                self._look(func, args, kwargs or {}, result)
            except Exception as error:  # noqa: BLE001  # looking must not end the user's forward
                self._seen = True
                self._fail(error)
            if self._spent is not None:
                self._spent(clock() - started)
        return result

    def _look(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Show the probabilities, if these are."""
        # An outer mode would take our own calls for the model's.
        off = torch._C.DisableTorchFunction()
        with off, torch.no_grad(), torch.autocast(result.device.type, enabled=False):
            found = shown_by(func, args, kwargs, result, heads=self._heads)
            if found is not None:
                self._seen = True
                self._show(*found)


def shown_by(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, *, heads: int
) -> tuple[Tensor, Tensor, Tensor] | None:
    """The sample, the corner and the largest score of a call that computed probabilities.

    None where it was another softmax.

    Args:
        func: A softmax, or ``scaled_dot_product_attention``.
        args: What it was given.
        kwargs: What it was given by name.
        result: What it made.
        heads: The module's number of heads.
    """
    if func is F.scaled_dot_product_attention:
        return _computed_again(*args, **kwargs)
    scores = args[0] if args else kwargs["input"]
    return _as_computed(scores, result, heads)


def _row_step(heads: int, queries: int, keys: int) -> int:
    """Every how many queries one is looked at, so that one sequence stays affordable."""
    return max(1, -(-heads * queries * keys // MAX_VALUES))


def _computed_again(
    query: Tensor, key: Tensor, *args: Any, **kwargs: Any
) -> tuple[Tensor, Tensor, Tensor] | None:
    """The sample, the corner and the largest score of a ``scaled_dot_product_attention`` call."""
    if query.ndim != 4 or key.ndim != 4:
        return None
    step = _row_step(query.shape[1], query.shape[2], key.shape[2])
    largest: list[Tensor] = []
    rows = None if step == 1 else slice(None, None, step)
    sample = probabilities(query, key, *args, **kwargs, rows=rows, largest=largest)
    first = slice(PATTERN_SIZE)
    corners = sample if step == 1 else probabilities(query[:1], key[:1], *args, **kwargs, rows=first)
    return None if sample is None or corners is None else (sample, corners, largest[0])


def _as_computed(scores: Tensor, result: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor] | None:
    """The sample, the corner and the largest score of a softmax; None when it is something else's."""
    if result.ndim == 3 and heads > 0 and result.shape[0] % heads == 0:
        scores, result = scores.unflatten(0, (-1, heads)), result.unflatten(0, (-1, heads))
    if result.ndim != 4 or result.shape[1] != heads:
        return None
    result = result.detach()
    step = _row_step(heads, *result.shape[2:])
    sample = result[:, :, ::step]
    count = sample_of(len(sample), *sample.shape[1:])
    return sample[:count], result, scores.detach()[:count, :, ::step].amax()
