"""How many floating-point operations a recorded function took, from the shapes that met in it.

Counted are products, two operations for each multiply-add: linear layers, matrix products,
convolutions, attention and recurrent layers. What works on one number at a time (activations,
norms, additions, softmax) is not, as is usual where a model's work is told by one number. A table,
a row a function; a function in no row counts nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from .graph import Op, Value

__all__ = ["flops_of"]

_Shape = tuple[int, ...]


class _UnseenError(Exception):
    """A shape or setting that a count needs was not seen."""


def _shape(value: Value | None) -> _Shape:
    """A value's shape."""
    if value is None or value.shape is None:
        raise _UnseenError
    return value.shape


def _given(op: Op, place: int, name: str) -> _Shape:
    """The shape of an argument, by position or keyword."""
    return _shape(next((value for slot, value in op.inputs if slot in (place, name)), None))


def _made(op: Op) -> _Shape:
    """The shape of the first result."""
    return _shape(op.outputs[0] if op.outputs else None)


def _setting(op: Op, place: int, name: str) -> object:
    """An argument that is no tensor, by position or keyword."""
    return op.settings.get(name, op.settings.get(place))


def _product(left: _Shape, right: _Shape, made: _Shape) -> int:
    """Operations of a matrix product of two shapes, batched or not, in the order of either operand."""
    if not left or not right:
        raise _UnseenError
    inner = right[-1] if len(right) == 1 else right[-2]
    common = left[-1] if left[-1] == inner else right[-1]
    return 2 * math.prod(made) * common


def _matmul(op: Op) -> int:
    left, right = (_shape(value) for _, value in op.inputs[:2])
    return _product(left, right, _made(op))


def _added_product(op: Op) -> int:
    left, right = _given(op, 1, "mat1" if op.name == "addmm" else "batch1"), _shape(op.inputs[-1][1])
    return 2 * math.prod(left) * right[-1]


def _linear(op: Op) -> int:
    return 2 * math.prod(_made(op)) * _given(op, 1, "weight")[-1]


def _bilinear(op: Op) -> int:
    return 2 * math.prod(_made(op)) * math.prod(_given(op, 2, "weight")[1:])


def _tensordot(op: Op) -> int:
    # Each number of the result is a sum over the axes that the two operands have in common.
    left, right = (math.prod(_shape(value)) for _, value in op.inputs[:2])
    made = math.prod(_made(op))
    return 2 * made * math.isqrt(left * right // made) if made else 0


def _einsum(op: Op) -> int:
    """Operations of a sum over products, its operands taken from the left, two at a time."""
    text = _setting(op, 0, "equation")
    shapes = [_shape(value) for _, value in op.inputs]
    if not isinstance(text, str) or "." in text or len(text.split("->")[0].split(",")) != len(shapes):
        raise _UnseenError
    given, _, result = text.replace(" ", "").partition("->")
    terms = given.split(",")
    sizes = {
        letter: size
        for term, shape in zip(terms, shapes, strict=True)
        for letter, size in zip(term, shape, strict=False)
    }
    if "->" not in text:
        result = "".join(letter for letter in sorted(sizes) if given.count(letter) == 1)
    total, left = 0, set(terms[0])
    for place, term in enumerate(terms[1:], 2):
        wanted = set("".join(terms[place:]) + result)
        both = left | set(term)
        if both - wanted:  # without a sum it is a product number by number
            total += 2 * math.prod(sizes[letter] for letter in both)
        left = both & wanted
    return total


def _convolution(op: Op) -> int:
    weight, made = _given(op, 1, "weight"), _made(op)
    return 2 * math.prod(weight) * math.prod(made) // max(weight[0], 1)


def _transposed(op: Op) -> int:
    weight, given = _given(op, 1, "weight"), _given(op, 0, "input")
    return 2 * math.prod(weight) * math.prod(given) // max(weight[0], 1)


def _general_convolution(op: Op) -> int:
    return _transposed(op) if _setting(op, 6, "transposed") is True else _convolution(op)


def _scores(query: _Shape, key: _Shape, value: _Shape) -> int:
    """Operations of attention: queries with keys, and probabilities with values."""
    return 2 * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def _attention(op: Op) -> int:
    return _scores(_given(op, 0, "query"), _given(op, 1, "key"), _given(op, 2, "value"))


def _flash_attention(op: Op) -> int:
    query, key, value = _given(op, 0, "q"), _given(op, 1, "k"), _given(op, 2, "v")
    return 2 * math.prod(query[:-1]) * key[-3] * (query[-1] + value[-1])


def _multi_head(op: Op) -> int:
    """Operations of `nn.MultiheadAttention`: three projections, attention, and the output's."""
    query, key, value = (_given(op, place, name) for place, name in enumerate(("query", "key", "value")))
    batch = query[1] if len(query) == 3 else 1
    asked, seen, width = query[0] * batch, key[0] * batch, query[-1]
    # A learned key and a zero key stand beside those that were given.
    keys = (
        key[0]
        + (_setting(op, 9, "add_zero_attn") is True)
        + any(slot in (7, "bias_k") for slot, _ in op.inputs)
    )
    projected = 2 * width * (2 * asked * width + seen * (key[-1] + value[-1]))
    return projected + 4 * asked * keys * width


def _recurrent(op: Op) -> int:
    """Operations of recurrent layers: every weight is used once a step."""
    given = _given(op, 0, "input")
    steps = math.prod(given[:-1])
    return (
        2
        * steps
        * sum(
            math.prod(v.shape) for _, v in op.inputs if v.source == "param" and v.shape and len(v.shape) == 2
        )
    )


_COUNTS: dict[str, Callable[[Op], int]] = {
    "linear": _linear,
    "bilinear": _bilinear,
    "einsum": _einsum,
    "tensordot": _tensordot,
    "addmm": _added_product,
    "addbmm": _added_product,
    "baddbmm": _added_product,
    "scaled_dot_product_attention": _attention,
    "flex_attention": _attention,
    "flash_attn_func": _flash_attention,
    "multi_head_attention_forward": _multi_head,
    "convolution": _general_convolution,
    "_convolution": _general_convolution,
    **dict.fromkeys(("matmul", "bmm", "mm", "mv", "dot", "_grouped_mm", "grouped_mm"), _matmul),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _convolution),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _transposed),
    **dict.fromkeys(
        ("lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"),
        _recurrent,
    ),
}  # fmt: skip


def flops_of(op: Op) -> int | None:
    """Floating-point operations that one recorded function took, two for each multiply-add.

    Args:
        op: A function of a recorded pass, with the shapes of what it read and made.

    Returns:
        The count; 0 for a function without products; None where it cannot be known, because
        the inside of a module with parameters was not seen or a shape is missing.

    Source:
        FORMATS.md, section 1 (``flops``).

    Example:
        >>> import torch
        >>> from .hook_trace import record
        >>> from .inputs import Inputs
        >>> graph = record(torch.nn.Linear(4, 8), Inputs((torch.ones(3, 4),), {})).graph
        >>> [(op.name, flops_of(op)) for op in graph.ops]
        [('linear', 192)]
    """
    if op.opaque:
        return None if next(op.call.module.parameters(), None) is not None else 0
    count = _COUNTS.get(op.name)
    if count is None:
        return 0
    try:
        return count(op)
    except (_UnseenError, IndexError, ValueError):
        return None
