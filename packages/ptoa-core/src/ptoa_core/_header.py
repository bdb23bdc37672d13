"""The first line of a run file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import FileError
from .protocol import PROTOCOL_VERSION, RUN_PROTOCOL
from .terminal import shown

if TYPE_CHECKING:
    from ._disk import Path


def as_header(header: object, path: Path) -> dict[str, Any]:
    """The header of a run file, checked but for its spec."""
    if not isinstance(header, dict) or header.get("protocol") != RUN_PROTOCOL:
        raise FileError(f"{str(path)!r} is no run file: its first line is no header of {RUN_PROTOCOL!r}")
    if header.get("v") != PROTOCOL_VERSION:
        raise FileError(
            f"{str(path)!r} is a run file of version {shown(header.get('v'))}; "
            f"this version of ptoa reads version {PROTOCOL_VERSION}"
        )
    if not isinstance(header.get("spec"), dict):
        raise FileError(
            f"{str(path)!r}: the header's spec must be an object, found {shown(header.get('spec'))}"
        )
    return header
