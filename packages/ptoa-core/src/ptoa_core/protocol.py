"""Names, versions and limits of the formats, each written once.

A limit here is part of the contract: a writer stops where a reader would refuse.
"""

from __future__ import annotations

__all__ = [
    "BRIDGE_PROTOCOL",
    "DEFAULT_MAX_ELEMS",
    "DEFAULT_MAX_FRAME_ELEMS",
    "DEV_ORIGIN",
    "ENV_DEBUG",
    "ENV_LAB_URL",
    "ENV_NO_BROWSER",
    "FILE_PROTOCOL",
    "HISTORY_BYTES",
    "HISTORY_FRAMES",
    "HIST_BINS",
    "LAB_ORIGIN",
    "MAX_AXES",
    "MAX_BLOCKS",
    "MAX_DEPTH",
    "MAX_FILE_BYTES",
    "MAX_INFLATED_BYTES",
    "MAX_INTEGER",
    "MAX_LINE_BYTES",
    "MAX_LINK_CHARS",
    "MAX_LINK_VALUES",
    "MAX_VALUES",
    "PATTERN_SIZE",
    "PROTOCOL_VERSION",
    "RUN_PATTERN_BYTES",
    "RUN_PROTOCOL",
    "producer",
]

BRIDGE_PROTOCOL = "pta-bridge"
FILE_PROTOCOL = "pta-file"
RUN_PROTOCOL = "pta-run"
PROTOCOL_VERSION = 1

LAB_ORIGIN = "https://lab.papertoanything.com"
DEV_ORIGIN = "http://localhost:5180"

ENV_LAB_URL = "PTA_LAB_URL"
ENV_NO_BROWSER = "PTA_NO_BROWSER"
ENV_DEBUG = "PTA_DEBUG"

MAX_DEPTH = 64
MAX_AXES = 64  # as many as PyTorch and NumPy have; the product of thousands of sizes takes minutes
MAX_BLOCKS = 100_000
MAX_INTEGER = 2**53 - 1  # the largest that a browser holds exactly
MAX_LINK_CHARS = 32_000
MAX_INFLATED_BYTES = 4 * 1024 * 1024
MAX_FILE_BYTES = 512 * 1024 * 1024
MAX_LINE_BYTES = 64 * 1024 * 1024

# A value takes up to a hundred times the bytes of its text once it is parsed, so the size
# of a text does not bound the memory; the count of its values does.
MAX_LINK_VALUES = 1_000_000
MAX_VALUES = 4_000_000

DEFAULT_MAX_ELEMS = 65_536
DEFAULT_MAX_FRAME_ELEMS = 4_000_000
HIST_BINS = 32
PATTERN_SIZE = 32

HISTORY_FRAMES = 5_000
HISTORY_BYTES = 128 * 1024 * 1024
RUN_PATTERN_BYTES = 100 * 1024 * 1024


def producer() -> dict[str, str]:
    """The name and version that files and the bridge's hello carry.

    Example:
        >>> producer()["name"]
        'papertoanything'
    """
    from . import __version__

    return {"name": "papertoanything", "version": __version__}
