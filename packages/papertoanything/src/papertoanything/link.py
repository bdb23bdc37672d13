"""Links: a spec in the fragment of the Lab's address. Everything here is `ptoa_core.link`'s."""

from __future__ import annotations

from ptoa_core.link import (
    LAB_URL,
    decode,
    encode,
    extract_payload,
    from_url,
    lab_url,
    payload_to_dict,
    payload_to_spec,
    spec_to_payload,
    to_url,
)

__all__ = [
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
