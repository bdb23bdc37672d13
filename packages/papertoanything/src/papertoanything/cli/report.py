"""`ptoa report FILE`: the local page with a file inside, as one HTML file; its path on standard output."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ptoa_core.errors import SettingError
from ptoa_core.terminal import shown

if TYPE_CHECKING:
    import argparse

    from papertoanything.cli.console import Console

__all__ = ["DESCRIPTION", "EXAMPLES", "HELP", "add_arguments", "run"]

HELP = "write a page with a model or a run inside: one HTML file"
DESCRIPTION = (
    "Write the local page with a .pta, a run file or a spec inside, and print its path. The file opens in "
    "any browser without a server and without a network; mail it or keep it. Without -o the name is that of "
    "FILE, and no file is replaced."
)
EXAMPLES = """\
  ptoa report pta-runs/GPT-20250101-120000.pta
  ptoa report gpt.pta -o gpt.html
  ptoa report gpt.pta -o gpt.html --force"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the subcommand takes."""
    parser.add_argument("file", metavar="FILE", help="a .pta, a run file or a spec (JSON)")
    parser.add_argument("-o", "--output", metavar="FILE", help="the file to write")
    parser.add_argument("-f", "--force", action="store_true", help="replace the file that -o names")


def run(args: argparse.Namespace, console: Console) -> int:
    """Write the report and print its path."""
    from papertoanything.reporting import write_report  # the bridge comes with it

    try:
        with console.progress(f"reading {args.file}"):
            path = write_report(Path(args.file), args.output, force=args.force)
    except FileExistsError as error:
        raise SettingError(f"{shown(error.filename)} exists; --force replaces it") from error
    console.line(path)
    return 0
