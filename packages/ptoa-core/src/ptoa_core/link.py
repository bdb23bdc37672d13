"""A spec in the part of an address after ``#``, which browsers send to no server.

payload = base64url without padding, of raw DEFLATE, of the spec's canonical JSON. A
decoder sees a stranger's text: it refuses what two decoders could read differently, and
never inflates more than a fixed size.
"""

from __future__ import annotations

import binascii
import re
import zlib
from collections.abc import Mapping
from typing import Any

from .errors import JsonError, LinkError
from .jsontext import dumps, loads
from .kinds import INFORMATIONAL_PARAMS
from .labs import resolve_lab
from .protocol import LAB_ORIGIN, MAX_INFLATED_BYTES, MAX_LINK_CHARS, MAX_LINK_VALUES
from .spec import ModelSpec
from .terminal import shown
from .validate import check

__all__ = [
    "FRAGMENT_KEY",
    "LAB_URL",
    "decode",
    "encode",
    "extract_payload",
    "from_url",
    "lab_url",
    "payload_to_dict",
    "payload_to_spec",
    "spec_to_payload",
    "to_url",
]

LAB_URL = f"{LAB_ORIGIN}/"
FRAGMENT_KEY = "s"

# A payload by itself: no sign of an address in it, and "=" only as padding.
_BARE = r"[^:/?&#=\s]+=*"
_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_TO_STANDARD = bytes.maketrans(b"-_", b"+/")
_TO_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_WBITS = -15  # raw DEFLATE, without a zlib or gzip wrapper
# No compressor makes a text much longer; a longer payload is padding.
_MOST_PAYLOAD_CHARS = MAX_INFLATED_BYTES * 3 // 2

_Spec = ModelSpec | Mapping[str, Any]


def lab_url() -> str:
    """The address that links begin with: the Lab that ``PTA_LAB_URL`` names, else the hosted one.

    Where that says ``local``, it is the hosted one: the local page has an address only
    while a bridge runs, and whoever is sent the link has no such bridge.

    Raises:
        SettingError: If ``PTA_LAB_URL`` is no address of a Lab.

    Example:
        >>> lab_url().startswith("http")
        True
    """
    return resolve_lab().url or LAB_URL


def to_url(spec: _Spec, base: str | None = None) -> str:
    """The address that opens a spec in a Lab.

    Args:
        spec: A spec or its JSON object.
        base: The Lab's address; ``lab_url()`` by default. A fragment in it is replaced.

    Returns:
        ``base`` + ``#s=`` + payload. Extension params that only inform (``shape``,
        ``dtype``, ``paramCount``, ``flops``) are left out when the address would pass
        32,000 characters; it may still be longer, which not every program opens.

    Raises:
        SpecError: If the spec has problems that a reader would refuse.
        LinkError: If it is too large for any link.

    Source:
        ``FORMATS.md``, section 3.

    Example:
        >>> from ptoa_core import Block, ModelSpec
        >>> url = to_url(ModelSpec("x", [Block("t0", "tokens")], "t0"))
        >>> from_url(url).name
        'x'
    """
    start = (lab_url() if base is None else base).partition("#")[0] + f"#{FRAGMENT_KEY}="
    return start + _payload(spec, MAX_LINK_CHARS - len(start))


def from_url(url_or_fragment: str) -> ModelSpec:
    """The spec of an address, a fragment or a bare payload.

    Args:
        url_or_fragment: Whole address, ``#s=...``, ``s=...``, or the payload alone.

    Raises:
        LinkError: If it is no link, or its payload is damaged or too large.
        JsonError: If what the payload holds is not strict JSON.
        SpecError: If the spec cannot be used; the message names the id.

    Source:
        ``FORMATS.md``, section 3.

    Example:
        >>> from_url("https://example.org/")
        Traceback (most recent call last):
        ptoa_core.errors.LinkError: 'https://example.org/' has no '#s=' part, so it holds no spec
    """
    return payload_to_spec(extract_payload(url_or_fragment))


def encode(spec: _Spec) -> str:
    """The payload of a spec: another name for ``spec_to_payload``.

    Example:
        >>> from ptoa_core import Block, ModelSpec
        >>> decode(encode(ModelSpec("x", [Block("t0", "tokens")], "t0"))).name
        'x'
    """
    return spec_to_payload(spec)


def decode(url_or_fragment: str) -> ModelSpec:
    """The spec of an address, a fragment or a bare payload: another name for ``from_url``.

    Example:
        >>> decode("")
        Traceback (most recent call last):
        ptoa_core.errors.LinkError: '' has no '#s=' part, so it holds no spec
    """
    return from_url(url_or_fragment)


def spec_to_payload(spec: _Spec) -> str:
    """The part of a link after ``#s=``.

    Args:
        spec: A spec or its JSON object.

    Returns:
        base64url text without padding.

    Raises:
        SpecError: If the spec has problems that a reader would refuse.
        LinkError: If its JSON is over 4 MiB; a .pta file takes it.

    Source:
        ``FORMATS.md``, section 3.

    Example:
        >>> from ptoa_core import Block, ModelSpec
        >>> "=" in spec_to_payload(ModelSpec("x", [Block("t0", "tokens")], "t0"))
        False
    """
    return _payload(spec, MAX_LINK_CHARS - len(LAB_URL) - len(FRAGMENT_KEY) - 2)


def _payload(spec: _Spec, room: int) -> str:
    """The payload, without informational params when it would not fit into ``room`` characters."""
    data = check(spec).to_dict()
    text = dumps(data).encode("utf-8")
    if not _informs(data):
        return _packed(text)
    if len(text) <= MAX_INFLATED_BYTES:
        payload = _packed(text)
        if len(payload) <= room:
            return payload
    return _packed(dumps(_without_information(data)).encode("utf-8"))


def _informs(data: Mapping[str, Any]) -> bool:
    """Whether a block has a param that only informs."""
    return any(key in block["params"] for block in data["blocks"] for key in INFORMATIONAL_PARAMS)


def _without_information(data: Mapping[str, Any]) -> dict[str, Any]:
    """The spec's object without params that only inform."""
    blocks = [
        {**block, "params": {k: v for k, v in block["params"].items() if k not in INFORMATIONAL_PARAMS}}
        for block in data["blocks"]
    ]
    return {**data, "blocks": blocks}


def _packed(text: bytes) -> str:
    """The payload of JSON text that a decoder reads."""
    if len(text) > MAX_INFLATED_BYTES:
        raise LinkError(
            f"the spec takes {len(text)} bytes of JSON, a link at most {MAX_INFLATED_BYTES}; "
            "save it to a .pta file instead"
        )
    # What is sent must be what a decoder takes: depth and number of values included.
    try:
        _parsed(text)
    except JsonError as error:
        raise LinkError(f"{error}; save it to a .pta file instead") from None
    packer = zlib.compressobj(6, zlib.DEFLATED, _WBITS, 8, zlib.Z_DEFAULT_STRATEGY)
    packed = packer.compress(text) + packer.flush()
    return binascii.b2a_base64(packed, newline=False).translate(_TO_URL_SAFE).rstrip(b"=").decode("ascii")


def payload_to_spec(payload: str) -> ModelSpec:
    """The spec of a bare payload.

    Raises:
        LinkError: If the payload is damaged or too large.
        JsonError: If what it holds is not strict JSON.
        SpecError: If the spec cannot be used; the message names the id.

    Example:
        >>> payload_to_spec("!")
        Traceback (most recent call last):
        ptoa_core.errors.LinkError: the link's payload has characters that are not base64url
    """
    return check(payload_to_dict(payload))


def payload_to_dict(payload: str) -> dict[str, Any]:
    """The JSON object of a bare payload, before anything in it is checked.

    Raises:
        LinkError: If the payload is damaged, too large, or holds no object.
        JsonError: If what it holds is not strict JSON.

    Example:
        >>> payload_to_dict("q1ZKVLIyrAUA")
        {'a': 1}
        >>> payload_to_dict("q1ZKVLIy")
        Traceback (most recent call last):
        ptoa_core.errors.LinkError: the link's payload is cut: its DEFLATE stream has no end
    """
    data = _parsed(_inflated(_unwrapped(payload)))
    if not isinstance(data, dict):
        raise LinkError(f"the link holds {shown(data)}; an object is wanted")
    return data


def _parsed(text: bytes) -> Any:
    """The value of a link's JSON text."""
    return loads(text, what="the link's spec", max_bytes=MAX_INFLATED_BYTES, max_values=MAX_LINK_VALUES)


def _unwrapped(payload: str) -> bytes:
    """The compressed bytes of base64url text, with or without its padding."""
    if not isinstance(payload, str):
        raise LinkError(f"the link's payload must be text, found {shown(payload)}")
    if len(payload) > _MOST_PAYLOAD_CHARS:
        raise LinkError(f"the link's payload has {len(payload)} characters, over {_MOST_PAYLOAD_CHARS}")
    body = payload.rstrip("=")
    if not body:
        raise LinkError("the link's payload is empty")
    if not body.isascii() or body.encode("ascii").translate(None, _ALPHABET):
        raise LinkError("the link's payload has characters that are not base64url")
    if len(body) % 4 == 1 or len(payload) - len(body) > 2:
        raise LinkError("the link's payload is cut: its base64url is no whole number of bytes")
    raw = body.encode("ascii").translate(_TO_STANDARD)
    return binascii.a2b_base64(raw + b"=" * (-len(raw) % 4))


def _inflated(packed: bytes) -> bytes:
    """Raw DEFLATE, undone up to the size that a link may have."""
    unpacker = zlib.decompressobj(_WBITS)
    try:
        text = unpacker.decompress(packed, MAX_INFLATED_BYTES + 1)
    except zlib.error as error:
        raise LinkError(f"the link's payload is damaged: {error}") from None
    if len(text) > MAX_INFLATED_BYTES:
        raise LinkError(f"the link's spec is over {MAX_INFLATED_BYTES} bytes once inflated")
    if not unpacker.eof:
        raise LinkError("the link's payload is cut: its DEFLATE stream has no end")
    if unpacker.unused_data:
        raise LinkError("the link's payload goes on after the end of its DEFLATE stream")
    return text


def extract_payload(url_or_fragment: str) -> str:
    """The payload in an address, a fragment or by itself; further ``&key=value`` pairs are ignored.

    Raises:
        LinkError: If there is none.

    Source:
        ``FORMATS.md``, section 3.

    Example:
        >>> extract_payload("https://lab.example.org/#s=abc&view=side")
        'abc'
    """
    if not isinstance(url_or_fragment, str):
        raise LinkError(f"a link is text, found {shown(url_or_fragment)}")
    text = url_or_fragment.strip(" \t\r\n")
    _, mark, fragment = text.partition("#")
    for pair in (fragment if mark else text).split("&"):
        key, equals, value = pair.partition("=")
        if equals and key == FRAGMENT_KEY:
            return value
    if not mark and re.fullmatch(_BARE, text):
        return text
    raise LinkError(f"{shown(text)} has no '#s=' part, so it holds no spec")
