"""`ptoa decode URL`: the spec in a link, as JSON."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ptoa_core.errors import LinkError
from ptoa_core.link import from_url
from ptoa_core.protocol import MAX_INFLATED_BYTES

if TYPE_CHECKING:
    import argparse

    from papertoanything.cli.console import Console

__all__ = ["DESCRIPTION", "EXAMPLES", "HELP", "add_arguments", "run"]

HELP = "print the spec in a link as JSON"
DESCRIPTION = (
    "Print the spec that a link carries, as JSON. Nothing is fetched: the spec is in the link itself."
)
EXAMPLES = """\
  ptoa decode "https://lab.papertoanything.com/#s=..." > spec.json
  xclip -o | ptoa decode -"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the subcommand takes."""
    parser.add_argument(
        "url", metavar="URL", help='a link, its "#s=..." alone, or - to read it from standard input'
    )


def run(args: argparse.Namespace, console: Console) -> int:
    """Print the JSON."""
    text = _read_stdin() if args.url == "-" else args.url
    console.json(from_url(text.strip()).to_json(indent=2))
    return 0


def _read_stdin() -> str:
    """The link on standard input; a shell takes no argument over 128 KiB, and links can be longer."""
    if sys.stdin is None:
        raise LinkError("there is no standard input to read a link from")
    # No link that inflates to the most a decoder accepts is longer than the JSON itself, encoded.
    data = sys.stdin.buffer.read(2 * MAX_INFLATED_BYTES + 1)
    if len(data) > 2 * MAX_INFLATED_BYTES:
        raise LinkError("standard input holds more than any link")
    return data.decode("utf-8", "replace")
