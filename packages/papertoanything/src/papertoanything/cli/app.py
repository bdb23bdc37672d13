"""The `ptoa` command: its parser, its table of subcommands, and what each failure becomes.

Exit status: 0 done, 1 the input was bad (one line says why), 2 wrong usage, 130 ended by Ctrl+C.
A reader of the output that leaves early (`| head`) has what it wanted: 0.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import traceback
import warnings
from typing import TYPE_CHECKING, NoReturn

from papertoanything.cli import decode, inspect, link, report, save, serve, view
from papertoanything.cli.console import Console, OutputClosedError, OutputFailedError
from papertoanything.cli.version import version_lines
from papertoanything.model_file import ModelFileError
from ptoa_core.errors import PtoaError
from ptoa_core.protocol import ENV_DEBUG

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from _typeshed import SupportsWrite

__all__ = ["build_parser", "main"]

_COMMANDS = {
    "inspect": inspect,
    "link": link,
    "decode": decode,
    "save": save,
    "serve": serve,
    "view": view,
    "report": report,
}

_DESCRIPTION = """\
See a PyTorch model in the Paper To Anything Lab. Nothing is uploaded: a link
carries the architecture in its fragment, serve and view answer on 127.0.0.1
only, and a .pta file stays on your disk."""

_EPILOG = """\
SOURCE is a spec (JSON), a .pta or a run file, or a model: file.py:Name or
package.module:Name, where Name is an nn.Module class that builds without
arguments, a function that returns a model, or a model.

examples:
  ptoa inspect model.py:GPT --input-shape 1,64
  ptoa link spec.json
  ptoa save model.py:GPT -o gpt.pta --input-shape 1,64
  ptoa view gpt.pta
  ptoa report gpt.pta -o gpt.html

ptoa COMMAND --help says more about each."""


class _Usage(argparse.ArgumentParser):
    """A parser whose complaint is two short lines, with nothing raw of what was typed."""

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """Print the help; argparse's own takes no notice of an output that refuses it."""
        del file
        Console.standard().write(self.format_help())

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where help is; status 2."""
        console = Console.standard()
        console.note(message)
        console.note(f"try: {self.prog} --help")
        raise SystemExit(2)


class _Version(argparse.Action):
    """Print the versions when asked; finding them out takes a look at five files."""

    def __call__(self, *_: object) -> NoReturn:
        """Print and end."""
        Console.standard().write("\n".join(version_lines()) + "\n")
        raise SystemExit(0)


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command.

    Example:
        >>> build_parser().parse_args(["decode", "#s=abc"]).url
        '#s=abc'
    """
    parser = _Usage(
        prog="ptoa",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the versions of the five packages")
    commands = parser.add_subparsers(metavar="COMMAND", dest="command")
    for name, module in _COMMANDS.items():
        command = commands.add_parser(
            name,
            help=module.HELP,
            description=module.DESCRIPTION,
            epilog=f"examples:\n{module.EXAMPLES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and give its exit status; raises nothing but what ends the interpreter.

    Args:
        argv: The arguments after the command's name; those of the process when left out.

    Example:
        >>> main(["--version"])  # doctest: +ELLIPSIS
        papertoanything    ...
        0
    """
    console = Console.standard()
    try:
        with _warnings_as_lines(console):
            status = _run(argv, console)
            console.flush()
    except OutputClosedError:
        return 0
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # noqa: BLE001  the last place that can turn an error into a line
        return _failed(error, console)
    return status


def _run(argv: Sequence[str] | None, console: Console) -> int:
    """Parse and run."""
    parser = build_parser()
    try:
        args = parser.parse_args(argv)
        if args.command is None:
            parser.print_help()
            return 0
    except SystemExit as stop:  # argparse has printed help or a complaint
        return int(stop.code or 0)
    return int(args.run(args, console))


def _failed(error: Exception, console: Console) -> int:
    """Say in a line what went wrong; several only where a model's own code failed."""
    if isinstance(error, ModelFileError):
        console.lines(str(error))
    elif isinstance(error, (PtoaError, OutputFailedError)):
        console.note(str(error))
    elif isinstance(error, OSError):
        console.note(_os_text(error))
    elif isinstance(error, MemoryError):
        console.note("out of memory")
    else:
        console.note(f"this is a fault of ptoa: {type(error).__name__}: {error}; PTA_DEBUG=1 shows where")
        if os.environ.get(ENV_DEBUG):
            console.lines(traceback.format_exc().rstrip())
    return 1


def _os_text(error: OSError) -> str:
    """The system's own words, after the file that they are about."""
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename is not None else reason


@contextlib.contextmanager
def _warnings_as_lines(console: Console) -> Iterator[None]:
    """Print a warning as one line; where in our code it was raised tells a user nothing."""

    def show(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        del category
        console.note(str(message), "warning")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
