"""Reports: from what a person has at hand to the data of one page, and to its file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from papertoanything.api import as_spec
from ptoa_bridge.report import report_page, run_lines
from ptoa_core import files
from ptoa_core.errors import SettingError
from ptoa_core.jsontext import dumps
from ptoa_core.terminal import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["write_report"]

_CHUNK = 1 << 20


def write_report(source: Any, path: str | os.PathLike[str] | None, *, force: bool) -> str:
    """Write the report of a source; see `papertoanything.report`.

    Args:
        source: A watch, the path of a file, or anything that `as_spec` takes.
        path: Where to write; None takes a free name in the current folder.
        force: Whether a file that is there gives way.

    Returns:
        The path.
    """
    file = _file_of(source)
    if file is not None and path is not None and _is_same(file, path):
        raise SettingError(f"{shown(os.fspath(path))} is the file that the report is made from; name another")
    name, data = _of_file(file) if file is not None else _of_model(source)
    if path is not None and not force and os.path.lexists(path):  # found out before the work is done
        raise FileExistsError(17, "File exists", os.fspath(path))
    page = report_page(data)
    if path is not None:
        return files.write(page, path, replace=force)
    return files.write(page, files.unused_path(files.safe_file_name(name, ".html")))


def _file_of(source: Any) -> str | None:
    """The file that a source is, or that a watch writes; None where it stands for itself."""
    if _is_watch(source):
        return None if source.run_file is None else os.fspath(source.run_file.path)
    if isinstance(source, os.PathLike) or (isinstance(source, str) and not source.lstrip().startswith("{")):
        return os.fspath(source)
    return None


def _is_watch(source: Any) -> bool:
    """Whether it is a watch, whose class lives where torch may be."""
    return hasattr(source, "frames") and hasattr(source, "run_file")


def _is_same(file: str, path: str | os.PathLike[str]) -> bool:
    """Whether two paths name one file."""
    try:
        return Path(file).samefile(path)
    except OSError:
        return False


def _of_file(path: str) -> tuple[str, Iterator[bytes]]:
    """A name for the report of a file, and its content, once it is known to be one of ours."""
    files.read(path)
    return Path(path).stem, _pieces(path)


def _pieces(path: str) -> Iterator[bytes]:
    """A file's content, piece by piece: a run file may be larger than memory."""
    with open(path, "rb") as file:
        while piece := file.read(_CHUNK):
            yield piece


def _of_model(source: Any) -> tuple[str, Iterable[bytes]]:
    """A name and the data of what is no file."""
    if not _is_watch(source):
        spec = as_spec(source)
        return spec.name, [dumps(spec).encode("utf-8")]
    if source.spec is None:
        raise SettingError("the watch has not read its model yet; it does with the first step")
    return source.spec.name, run_lines(source.spec, source.frames)
