"""`ptoa serve [SOURCE]`: the live bridge until Ctrl+C."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from papertoanything.cli.source import Subject, add_source, read_source
from papertoanything.cli.waiting import stop_signals
from ptoa_core.encoded import encode_frame
from ptoa_core.runs import RunFile
from ptoa_core.terminal import shown

if TYPE_CHECKING:
    from papertoanything.cli.console import Console
    from papertoanything.server import LocalServer

__all__ = ["DESCRIPTION", "EXAMPLES", "HELP", "add_arguments", "add_server", "run", "serve_subject"]

HELP = "serve the live bridge on 127.0.0.1 until Ctrl+C"
DESCRIPTION = (
    "Serve a model on 127.0.0.1, print the addresses of the Lab and of the local page, and open the one that "
    "was chosen. Ctrl+C ends it."
)
EXAMPLES = """\
  ptoa serve spec.json
  ptoa serve model.py:GPT --input-shape 1,64 --lab-url local
  ptoa serve --port 8765 --no-open"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the subcommand takes."""
    add_source(parser, optional=True)
    parser.add_argument(
        "--lab-url",
        metavar="URL",
        help="the Lab to open: an address, or local for the page that the bridge serves "
        "(default: $PTA_LAB_URL, else the hosted Lab)",
    )
    add_server(parser)


def add_server(parser: argparse.ArgumentParser) -> None:
    """Add the options of every subcommand that serves."""
    parser.add_argument(
        "--port", metavar="N", type=_port, default=0, help="a fixed port (default: a free one)"
    )
    parser.add_argument("--no-open", action="store_true", help="open no browser")


def _port(text: str) -> int:
    """A port number; 0 means a free one."""
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"{shown(text)} is no port; write a whole number from 0 to 65535")
    return int(text)


def run(args: argparse.Namespace, console: Console) -> int:
    """Serve the subject, or nothing yet."""
    subject = None if args.source is None else read_source(args, console, record=True)
    return serve_subject(subject, args, console, lab_url=args.lab_url)


def serve_subject(
    subject: Subject | None,
    args: argparse.Namespace,
    console: Console,
    *,
    lab_url: str | None,
    file: str | None = None,
) -> int:
    """Serve until a signal comes; the tabs are told `bye`. A `file` is named on the page."""
    from papertoanything.server import FileServer, LocalServer

    with stop_signals() as wait:
        spec = None if subject is None else subject.spec
        server = LocalServer(spec, lab_url, port=args.port)
        if file is not None:
            server = FileServer(spec, lab_url, port=args.port, file=file)
        if subject is not None:
            _fill(server, subject, console)
        with server:
            server.announce(open_browser=not args.no_open, file=console.out)
            console.flush()
            console.hint("Ctrl+C ends it")
            wait()
    return 0


def _fill(server: LocalServer, subject: Subject, console: Console) -> None:
    """Put the subject's trace and frames on a bridge that does not run yet, so that no tab sees half."""
    if subject.trace is not None:
        server.push(subject.trace)
    if subject.run is None:
        return
    with console.progress("reading the run file"):
        _, frames = RunFile.read(subject.run)
        for frame in frames:
            server.history.append(encode_frame(frame))
    if len(frames) > len(server.history):
        console.note(
            f"the run has {len(frames):,} frames; the last {len(server.history):,} are shown", "warning"
        )
