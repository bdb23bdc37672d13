"""`ptoa view FILE`: a file of ours in the local page, without a network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from papertoanything.cli.serve import add_server, serve_subject
from papertoanything.cli.source import read_file

if TYPE_CHECKING:
    import argparse

    from papertoanything.cli.console import Console

__all__ = ["DESCRIPTION", "EXAMPLES", "HELP", "add_arguments", "run"]

HELP = "open a .pta, a run file or a spec in the local page"
DESCRIPTION = (
    "Serve a .pta, a run file or a spec on 127.0.0.1 and open it in the page that this package brings: no "
    "network is needed. Ctrl+C ends it."
)
EXAMPLES = """\
  ptoa view gpt.pta
  ptoa view pta-runs/GPT-20250101-120000.pta"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the subcommand takes."""
    parser.add_argument("file", metavar="FILE", help="a .pta, a run file or a spec (JSON)")
    add_server(parser)


def run(args: argparse.Namespace, console: Console) -> int:
    """Serve the file on the local page."""
    with console.progress(f"reading {args.file}"):
        subject = read_file(args.file)
    return serve_subject(subject, args, console, lab_url="local", file=Path(args.file).name)
