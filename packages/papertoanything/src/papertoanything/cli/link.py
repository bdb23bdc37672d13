"""`ptoa link SOURCE`: the architecture as a link, on standard output by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from papertoanything.cli.source import add_source, read_source
from papertoanything.cli.waiting import stop_signals
from papertoanything.show import link_for, long_link_text
from ptoa_core.labs import resolve_lab
from ptoa_core.protocol import MAX_LINK_CHARS

if TYPE_CHECKING:
    import argparse

    from papertoanything.cli.console import Console
    from ptoa_core.spec import ModelSpec

__all__ = ["DESCRIPTION", "EXAMPLES", "HELP", "add_arguments", "print_link", "run"]

HELP = "print a link to the architecture, and open it"
DESCRIPTION = (
    "Print a link that carries the architecture in its fragment, which browsers send to no server, and open "
    "it. No weights and no data are in it."
)
EXAMPLES = """\
  ptoa link spec.json
  ptoa link model.py:GPT --input-shape 1,64
  ptoa link model.py:GPT --no-open | xclip"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the subcommand takes."""
    add_source(parser)
    parser.add_argument("--no-open", action="store_true", help="only print")


def run(args: argparse.Namespace, console: Console) -> int:
    """Print the link, and open it in a browser."""
    subject = read_source(args, console, record=False)
    with stop_signals() as wait:
        url = print_link(subject.spec, console)
        if not args.no_open:
            from ptoa_bridge import open_in_browser

            open_in_browser(url)
        if resolve_lab().local:
            console.note("the local page answers as long as this runs; Ctrl+C ends it")
            wait()
    return 0


def print_link(spec: ModelSpec, console: Console) -> str:
    """The link as one line of data, with a word about one that is too long for some systems."""
    url = link_for(spec)
    console.line(url)
    console.flush()
    if len(url) > MAX_LINK_CHARS:
        console.note(long_link_text(url), "warning")
    return url
