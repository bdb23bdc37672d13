"""Tensors on the wire: float32, base64, cut to their leading corner when they are large.

A tensor is known by what it can do, so that neither torch nor NumPy is imported here. It
is cut before anything is copied: the corner of a tensor of gigabytes costs the corner.
"""

from __future__ import annotations

import binascii
import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from ._f32 import decode_f32, encode_f32
from .errors import SettingError, TensorError
from .frames import FrameTensor
from .protocol import DEFAULT_MAX_ELEMS, MAX_DEPTH
from .terminal import shown

__all__ = ["clip_shape", "decode_f32", "encode_f32", "encode_tensor", "frame_tensor_from_values"]


def clip_shape(shape: Sequence[int], max_elems: int) -> list[int]:
    """The leading corner of ``shape`` with at most ``max_elems`` values.

    Leading axes are cut first, so that trailing axes (features) stay whole while they fit.

    Args:
        shape: Sizes of the axes.
        max_elems: The most values to keep; 0 keeps none.

    Returns:
        One size an axis, none larger than in ``shape``. A shape without axes is one value
        and stays as it is; so does one with an axis of size 0.

    Raises:
        SettingError: If ``max_elems`` or a size is negative.

    Source:
        ``FORMATS.md``, section 4.

    Example:
        >>> clip_shape([4, 8, 16], 64), clip_shape([4, 1000], 64)
        ([1, 4, 16], [1, 64])
    """
    if max_elems < 0 or any(size < 0 for size in shape):
        raise SettingError(f"sizes of at least 0 are wanted, found {list(shape)} and max_elems={max_elems}")
    if 0 in shape:
        return list(shape)
    kept: list[int] = []
    left = max_elems
    for size in reversed(shape):
        kept.append(min(size, left))
        left //= max(kept[-1], 1)
    return kept[::-1]


def encode_tensor(key: str, t: Any, max_elems: int = DEFAULT_MAX_ELEMS) -> FrameTensor:
    """A tensor, array or nested list as it goes into a trace frame.

    Args:
        key: Its name in the frame, such as ``e0:out``.
        t: A torch tensor (any device, strided, not complex), a NumPy array or what
            offers ``__array__``, nested lists or tuples of numbers, or one number. It is
            detached from the graph and read, never changed.
        max_elems: The most values to send.

    Returns:
        The values as float32, with the true ``shape`` and, when cut, ``dataShape``. Wider
        types are rounded to float32; integers above 2**24 lose their last digits.

    Raises:
        TensorError: If it is sparse, nested, complex, without storage, ragged, or holds
            something other than numbers.
        SettingError: If ``max_elems`` is negative.

    Source:
        ``FORMATS.md``, section 4.

    Example:
        >>> encode_tensor("e0:out", [[1, 2], [3, 4]], max_elems=2).dataShape
        [1, 2]
    """
    for offers, encode in _READERS:
        if offers(t):
            return encode(key, t, max_elems)
    raise TensorError(f"{key}: a tensor, an array or nested lists of numbers are wanted, found {shown(t)}")


def frame_tensor_from_values(
    key: str, shape: Sequence[int], flat: Sequence[float], max_elems: int = DEFAULT_MAX_ELEMS
) -> FrameTensor:
    """Values in row-major order as they go into a trace frame.

    Args:
        key: Their name in the frame.
        shape: Sizes of the axes.
        flat: ``prod(shape)`` numbers.
        max_elems: The most values to send.

    Returns:
        The tensor, cut to its leading corner when it holds more than ``max_elems``.

    Raises:
        TensorError: If the number of values is not that of ``shape``.
        SettingError: If ``max_elems`` or a size is negative.

    Source:
        ``FORMATS.md``, section 4.

    Example:
        >>> frame_tensor_from_values("x:out", [2, 3], [1, 2, 3, 4, 5, 6], max_elems=2).values()
        [1.0, 2.0]
    """
    if len(flat) != math.prod(shape):
        raise TensorError(f"{key}: {len(flat)} values for shape {list(shape)}")
    kept = clip_shape(shape, max_elems)
    values = flat if kept == list(shape) else [flat[index] for index in _corner(shape, kept)]
    return _framed(key, shape, kept, encode_f32(values))


def _framed(key: str, shape: Iterable[int], kept: list[int], b64: str) -> FrameTensor:
    """The frame's tensor, marked as clipped when ``kept`` is not ``shape``."""
    true = [int(size) for size in shape]
    clipped = kept != true
    return FrameTensor(key, true, b64, clipped, kept if clipped else None)


def _corner(shape: Sequence[int], kept: Sequence[int]) -> list[int]:
    """Row-major positions of the corner's values."""
    positions = [0]
    for size, keep in zip(shape, kept):  # noqa: B905  # of one length by construction
        positions = [start * size + step for start in positions for step in range(keep)]
    return positions


def _is_torch(value: Any) -> bool:
    """A torch tensor, which can only exist when torch has been imported."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


# What a torch tensor may say about itself that leaves no plain values to send.
_TORCH_REFUSALS = (
    ("is_nested", "nested"),
    ("is_meta", "without storage (meta)"),
    ("is_quantized", "quantized"),
)


def _encode_torch(key: str, tensor: Any, max_elems: int) -> FrameTensor:
    """The corner of a torch tensor, read through its own storage."""
    if str(tensor.layout) != "torch.strided":
        raise TensorError(f"{key}: the tensor is {tensor.layout}; call to_dense() first")
    if tensor.is_complex():
        raise TensorError(f"{key}: the tensor is {tensor.dtype}; send its .real, .imag or .abs()")
    for attr, name in _TORCH_REFUSALS:
        if getattr(tensor, attr, False):
            raise TensorError(f"{key}: the tensor is {name}, so it has no values to send")
    shape = [int(size) for size in tensor.shape]
    kept = clip_shape(shape, max_elems)
    try:
        corner = tensor.detach()[tuple(slice(0, keep) for keep in kept)]
        # Values on the CPU in float32, by methods of the tensor, so that torch is not imported here.
        b64 = _torch_b64(corner.resolve_neg().float().cpu().contiguous())
    except (RuntimeError, TypeError, NotImplementedError) as error:
        raise TensorError(f"{key}: {tensor.dtype} on {tensor.device} cannot be read: {error}") from error
    return _framed(key, shape, kept, b64)


def _torch_b64(flat: Any) -> str:
    """The text of a contiguous float32 tensor on the CPU.

    Not through ``.numpy()``: NumPy may be missing, or of a version that torch was not built for.
    """
    # A subclass may stand for values that are not in its own memory.
    if type(flat) is not sys.modules["torch"].Tensor:
        return encode_f32(flat.flatten().tolist())
    import ctypes

    size = flat.numel() * 4
    address = flat.data_ptr() if size else 0
    if size and not address:
        raise RuntimeError("it has no memory")
    raw = ctypes.string_at(address, size) if size else b""
    return _base64(raw if sys.byteorder == "little" else _swapped(raw))


def _swapped(raw: bytes) -> bytes:
    """Float32 bytes in the other order."""
    from array import array

    values = array("f", raw)
    values.byteswap()
    return values.tobytes()


def _is_array(value: Any) -> bool:
    """A NumPy array or scalar, or anything that becomes one without a copy of ours."""
    return hasattr(value, "__array__") or hasattr(value, "__array_interface__")


def _encode_array(key: str, value: Any, max_elems: int) -> FrameTensor:
    """The corner of an array."""
    array = value if hasattr(value, "astype") and hasattr(value, "dtype") else value.__array__()
    if array.dtype.kind not in "biufV" or array.dtype.names:
        raise TensorError(f"{key}: an array of numbers is wanted, found dtype {array.dtype}")
    shape = [int(size) for size in array.shape]
    kept = clip_shape(shape, max_elems)
    corner = array[tuple(slice(0, keep) for keep in kept)]
    try:
        raw = corner.astype("<f4").tobytes()
    except (TypeError, ValueError) as error:
        raise TensorError(f"{key}: dtype {array.dtype} cannot be read as float32: {error}") from error
    return _framed(key, shape, kept, _base64(raw))


def _base64(raw: bytes) -> str:
    """Standard base64 in one line."""
    return binascii.b2a_base64(raw, newline=False).decode("ascii")


def _is_nested(value: Any) -> bool:
    """Nested sequences of numbers, or one number."""
    return isinstance(value, (int, float)) or _is_sequence(value)


def _is_sequence(value: Any) -> bool:
    """A sequence that is not text."""
    return isinstance(value, (list, tuple)) or (
        isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray))
    )


def _encode_nested(key: str, value: Any, max_elems: int) -> FrameTensor:
    """The corner of nested sequences."""
    shape = _nested_shape(key, value)
    kept = clip_shape(shape, max_elems)
    level = [value]
    for keep in kept:
        level = [item for row in level for item in row[:keep]]
    try:
        b64 = encode_f32(level)
    except TensorError as error:
        raise TensorError(f"{key}: {error}") from None
    return _framed(key, shape, kept, b64)


def _nested_shape(key: str, value: Any) -> list[int]:
    """The sizes of the axes, the same in every row."""
    shape: list[int] = []
    level = [value]
    while level and _is_sequence(level[0]):
        if len(shape) == MAX_DEPTH:
            raise TensorError(f"{key}: nested over {MAX_DEPTH} deep, or holds itself")
        sizes = {len(row) if _is_sequence(row) else None for row in level}
        if len(sizes) > 1:
            raise TensorError(f"{key}: rows differ in length or depth at axis {len(shape)}")
        shape.append(len(level[0]))
        # Only sequences can be ragged; rows of numbers are left to the encoder.
        level = (
            [item for row in level for item in (row if _is_sequence(row[0]) else row[:1])]
            if shape[-1]
            else []
        )
    return shape


_READERS = (
    (_is_torch, _encode_torch),
    (_is_array, _encode_array),
    (_is_nested, _encode_nested),
)
