"""Float32 values as text: standard base64 of their little-endian bytes."""

from __future__ import annotations

import binascii
import math
import sys
from array import array
from typing import TYPE_CHECKING

from .errors import TensorError
from .terminal import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_BYTES_EACH = 4
# Below the one a float32 has fewer digits, above the other there is none.
_LEAST_F32, _MOST_F32 = 2.0**-126, (2 - 2.0**-23) * 2.0**127


def encode_f32(values: Iterable[float]) -> str:
    """Standard base64, with padding, of values as little-endian float32.

    Args:
        values: Numbers. A number beyond float32's range becomes infinite, as in NumPy.

    Returns:
        Text of ``4 * ceil(4 * n / 3)`` characters for ``n`` values.

    Raises:
        TensorError: If an item is no number.

    Source:
        ``FORMATS.md``, section 4.

    Example:
        >>> encode_f32([1.0, 2.0])
        'AACAPwAAAEA='
    """
    if isinstance(values, (bytes, bytearray)):  # an array takes these for its memory
        raise TensorError(f"numbers are wanted, found {shown(values)}")
    try:
        packed = array("f", values)
    except (TypeError, OverflowError) as error:
        raise TensorError(f"numbers are wanted: {error}") from None
    if sys.byteorder == "big":
        packed.byteswap()
    return binascii.b2a_base64(packed.tobytes(), newline=False).decode("ascii")


def decode_f32(b64: str) -> list[float]:
    """The values of a text that ``encode_f32`` makes.

    Args:
        b64: Standard base64 with its padding and nothing else: no line breaks, no
            characters of the URL-safe alphabet.

    Returns:
        One float a value; NaN and infinite values as they were sent.

    Raises:
        TensorError: If the text is not strict base64, or not a whole number of float32.

    Source:
        ``FORMATS.md``, section 4.

    Example:
        >>> decode_f32("AACAPwAAAEA=")
        [1.0, 2.0]
    """
    raw = _strict_base64(b64, "tensor")
    if len(raw) % _BYTES_EACH:
        raise TensorError(f"tensor: b64 holds {len(raw)} bytes, which is no whole number of float32")
    values = array("f", raw)
    if sys.byteorder == "big":
        values.byteswap()
    return values.tolist()


def shortest_texts(values: Sequence[float]) -> list[str]:
    """The shortest decimals that name the float32 nearest to each value.

    A statistic is no more exact than float32, whose decimal has some eight digits where a float's
    has seventeen. What float32 cannot hold, as too large or too small, is spelt as it is.

    Args:
        values: Finite floats.

    Example:
        >>> shortest_texts([0.10000000149011612, 1 / 3, 3.0, 1e300])
        ['0.1', '0.33333334', '3', '1e+300']
    """
    given = array("f", values)
    texts = ("%.7g " * len(given) % tuple(given)).split()
    places: Sequence[int] = range(len(given))
    for digits in ("%.8g ", "%.9g "):
        found = array("f", [float(texts[place]) for place in places])
        places = [place for place, number in zip(places, found) if number != given[place]]  # noqa: B905  # of one length
        if not places:
            break
        longer = (digits * len(places) % tuple([given[place] for place in places])).split()
        for place, text in zip(places, longer):  # noqa: B905  # of one length
            texts[place] = text
    sizes = [abs(value) for value in values if value]
    if sizes and not _LEAST_F32 <= min(sizes) <= max(sizes) <= _MOST_F32:
        for place, value in enumerate(values):
            if value != 0.0 and not _LEAST_F32 <= abs(value) <= _MOST_F32:
                texts[place] = repr(value)
    return texts


def check_f32(b64: str, shape: Sequence[int], where: str) -> None:
    """Refuse text that does not hold exactly the values of ``shape``."""
    size = _size(b64, where)
    wanted = math.prod(shape) * _BYTES_EACH
    if size != wanted:
        raise TensorError(
            f"{where}: b64 holds {size} bytes, {shown(wanted)} are wanted for {list(shape[:8])}"
        )


def _size(b64: str, where: str) -> int:
    """How many bytes strict base64 text stands for, without decoding it."""
    if not isinstance(b64, str):
        raise TensorError(f"{where}: b64 must be text, found {shown(b64)}")
    body = b64.rstrip("=")
    padding = len(b64) - len(body)
    # A single character past whole groups of four cannot hold a byte.
    if len(b64) % 4 or padding > 2 or len(body) % 4 == 1:
        raise TensorError(f"{where}: b64 of {len(b64)} characters is cut or lacks its padding")
    if not body.isascii() or body.encode("ascii").translate(None, _ALPHABET):
        raise TensorError(f"{where}: b64 has a character that is not of the standard alphabet")
    return len(body) * 3 // 4


def _strict_base64(b64: str, where: str) -> bytes:
    """The bytes, from text that holds nothing but base64."""
    _size(b64, where)
    return binascii.a2b_base64(b64)
