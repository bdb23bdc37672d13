"""Show one model: as a link, on a live bridge, or as a file.

`show` is the verb; `save`, `load` and `as_spec` are here too because scripts import them from this
path. `_MODES` is the table of ways: a function each, from what was asked to what is given back.
"""

from __future__ import annotations

import os
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from papertoanything.api import as_spec, capture, is_module, load, save
from ptoa_core.errors import SettingError
from ptoa_core.files import safe_file_name
from ptoa_core.labs import resolve_lab
from ptoa_core.link import spec_to_payload, to_url
from ptoa_core.protocol import MAX_LINK_CHARS
from ptoa_core.terminal import escape

if TYPE_CHECKING:
    from collections.abc import Callable

    from papertoanything.server import LocalServer
    from ptoa_core.frames import TraceFrame
    from ptoa_core.spec import ModelSpec

__all__ = ["as_spec", "link_for", "load", "long_link_text", "save", "save_new", "show"]


@dataclass(frozen=True)
class _Request:
    """What `show` was asked, with the model already read."""

    model: Any
    spec: ModelSpec
    example_input: Any
    open_browser: bool
    path: str | None
    lab_url: str | None


def show(
    model_or_spec: Any,
    example_input: Any = None,
    mode: str = "auto",
    *,
    open_browser: bool = True,
    path: str | None = None,
    lab_url: str | None = None,
) -> str | LocalServer:
    """Show a model, and say where on standard output.

    Args:
        model_or_spec: A PyTorch module, or anything else that `as_spec` takes.
        example_input: For a module: a tensor, a tuple of positional arguments, or a dict of keyword
            arguments. It gives shapes, and in the modes `local` and `file` one recorded forward pass.
        mode: `link` (also called `auto`): the architecture in a link's fragment. `local`: a bridge
            on 127.0.0.1 that your browser reads. `file`: a `.pta` in the current folder.
        open_browser: Whether to open a browser, in the modes `link` and `local`.
        path: In mode `file`, the file to write; it is replaced if it is there. Without it, the name
            is made from the model's and a file that is there is left alone.
        lab_url: The Lab to open, else the environment's `PTA_LAB_URL`, else the hosted one;
            `local` chooses the page that the bridge itself serves.

    Returns:
        The link, the running server, or the path of the file.

    Raises:
        SettingError: If `mode` is none of these, or `lab_url` is no address that can be used.
        MissingExtraError: If the model is a module and PyTorch is not installed.

    Source:
        README.md, "Three ways to see a model".

    Example:
        >>> from ptoa_core import SpecBuilder
        >>> builder = SpecBuilder("tiny")
        >>> spec = builder.build(output=builder.tokens(vocab=4))
        >>> link = show(spec, open_browser=False)  # doctest: +ELLIPSIS
        https://lab.papertoanything.com/#s=...
    """
    present = _MODES.get(mode)
    if present is None:
        raise SettingError(f"mode must be one of {', '.join(map(repr, _MODES))}, got {mode!r}")
    spec = as_spec(model_or_spec, example_input)
    return present(_Request(model_or_spec, spec, example_input, open_browser, path, lab_url))


def _record(request: _Request) -> TraceFrame | None:
    """One forward pass, when there is a module and something to give it."""
    if request.example_input is None or not is_module(request.model):
        return None
    return capture(request.model, request.example_input, spec=request.spec)


def _show_link(request: _Request) -> str:
    """Print and open a link."""
    url = link_for(request.spec, request.lab_url)
    if len(url) > MAX_LINK_CHARS:
        warnings.warn(long_link_text(url), UserWarning, stacklevel=3)
    _say(url)
    if request.open_browser:
        from ptoa_bridge import open_in_browser

        open_in_browser(url)
    return url


def _show_local(request: _Request) -> LocalServer:
    """Start a bridge that holds the model, and announce it."""
    from papertoanything.server import LocalServer

    server = LocalServer(request.spec, request.lab_url).start()
    trace = _record(request)
    if trace is not None:
        server.push(trace)
    server.announce(open_browser=request.open_browser)
    return server


def _show_file(request: _Request) -> str:
    """Write a `.pta`, under a name that no file has unless one was given."""
    trace = _record(request)
    if request.path is None:
        path = save_new(request.spec, trace)
    else:
        path = save(request.spec, request.path, trace=trace)
    _say(f"papertoanything: wrote {escape(path)}; drop it on the Lab, or open it with: ptoa view FILE")
    return path


_MODES: dict[str, Callable[[_Request], str | LocalServer]] = {
    "auto": _show_link,
    "link": _show_link,
    "local": _show_local,
    "file": _show_file,
}


def link_for(spec: ModelSpec, lab_url: str | None = None) -> str:
    """The address that shows `spec` in the Lab that the user chose.

    The hosted Lab needs nothing of ours. The local page needs a bridge to be served from: one is
    started for the process, once, and every link of this kind uses it.

    Example:
        >>> from ptoa_core import SpecBuilder
        >>> builder = SpecBuilder("tiny")
        >>> spec = builder.build(output=builder.tokens(vocab=4))
        >>> link_for(spec, "https://lab.example/")  # doctest: +ELLIPSIS
        'https://lab.example/#s=...'
    """
    lab = resolve_lab(lab_url)
    if lab.local:
        return f"{_page_server().origin}/#s={spec_to_payload(spec)}"
    return to_url(spec, lab.url)


def long_link_text(url: str) -> str:
    """What to say about a link that some systems will not open."""
    return (
        f"this link has {len(url):,} characters; over {MAX_LINK_CHARS:,} some browsers and chats cut "
        'it. Use a file instead: show(model, mode="file"), or: ptoa save'
    )


def save_new(spec: ModelSpec, trace: TraceFrame | None = None) -> str:
    """Write a `.pta` in the current folder under a free name made from the model's; returns the path.

    A spec's name may be a stranger's: the file never leaves the folder, follows no link, and never
    takes the place of another (`-2`, `-3` and so on are added).

    Raises:
        OSError: If the file cannot be written; nothing is left behind.
    """
    path = _reserve(safe_file_name(spec.name))
    try:
        return save(spec, path, trace=trace)
    except BaseException:
        Path(path).unlink()
        raise


def _reserve(first: str) -> str:
    """The first free name of `first`, `first-2` and so on, held by an empty file against others."""
    stem, dot, suffix = first.rpartition(".")
    number, path = 1, first
    while not _create(path):
        number += 1
        path = f"{stem}-{number}{dot}{suffix}"
    return path


def _create(path: str) -> bool:
    """Make an empty file; False when something, even a dangling link, has that name."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    except FileExistsError:
        return False
    return True


_pages: dict[int, LocalServer] = {}


def _page_server() -> LocalServer:
    """The bridge that serves the local page for links; one a process, since a fork inherits no server."""
    from papertoanything.server import LocalServer

    pid = os.getpid()
    if pid not in _pages:
        _pages[pid] = LocalServer(lab_url="local").start()
    return _pages[pid]


def _say(line: str) -> None:
    """One line for the user on standard output."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
