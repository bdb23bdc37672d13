"""`ptoa save SOURCE`: a `.pta` file, its path on standard output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from papertoanything.cli.source import add_source, read_source
from papertoanything.show import save_new
from ptoa_core import files

if TYPE_CHECKING:
    import argparse

    from papertoanything.cli.console import Console

__all__ = ["DESCRIPTION", "EXAMPLES", "HELP", "add_arguments", "run"]

HELP = "write a .pta file to drop on the Lab"
DESCRIPTION = (
    "Write a .pta file and print its path. With --input-shape it also holds one recorded forward pass. "
    "Without -o the name is made from the model's, and no file is replaced."
)
EXAMPLES = """\
  ptoa save model.py:GPT --input-shape 1,64
  ptoa save model.py:GPT -o gpt.pta --input-shape 1,64
  ptoa save spec.json -o tiny.pta"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the subcommand takes."""
    add_source(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="the file to write; replaced if it is there")


def run(args: argparse.Namespace, console: Console) -> int:
    """Write the file and print its path."""
    subject = read_source(args, console, record=True)
    if args.output is None:
        path = save_new(subject.spec, subject.trace)
    else:
        path = files.save(subject.spec, args.output, subject.trace)
    console.line(path)
    if subject.run is not None:
        console.note("the run's frames stay in the run file; the .pta has the architecture", "warning")
    elif subject.trace is None:
        console.hint("architecture only; --input-shape adds a recorded forward pass of a model")
    return 0
