"""Opening, naming and replacing files on behalf of ``files`` and ``runs``."""

# Flags, descriptors and modes are only in os, and pathlib would cost more than this package to import.
# ruff: noqa: PTH105, PTH108, PTH116, PTH118, PTH120, PTH122
from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING, BinaryIO

from .errors import FileError
from .terminal import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

_READ_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_MOST_NAME_BYTES = 120
_MOST_NUMBERED = 10_000
# Names that Windows keeps for devices, whatever their suffix.
_DEVICES = frozenset(
    ["CON", "PRN", "AUX", "NUL"] + [f"{port}{number}" for port in ("COM", "LPT") for number in range(1, 10)]
)
_TYPES = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)

Path = str | os.PathLike[str]


def text_of(path: Path) -> str:
    """The path as text that the system takes."""
    text = os.fspath(path)
    if "\0" in text:
        raise FileError(f"{shown(text)} is no path: it holds a NUL character")
    return text


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading; links are followed.

    Anything else is refused: a named pipe would wait for a writer, a device may never end.
    """
    # Without O_NONBLOCK the opening itself waits for the pipe's writer.
    fd = os.open(text_of(path), _READ_FLAGS | getattr(os, "O_NONBLOCK", 0))
    try:
        refuse_special(os.fstat(fd).st_mode, path)
        return os.fdopen(fd, "rb")
    except BaseException:
        os.close(fd)
        raise


def refuse_special(mode: int, path: Path) -> None:
    """Raise for anything but a regular file."""
    if not stat.S_ISREG(mode):
        kind = next((name for test, name in _TYPES if test(mode)), "no regular file")
        raise FileError(f"{os.fspath(path)!r} is {kind}; a regular file is wanted")


def safe_stem(name: str) -> str:
    """``name`` as a file name without a suffix: letters, digits, ``-``, ``_`` and inner dots."""
    kept = "".join(char if char.isalnum() or char in "-_." else "-" for char in name[:_MOST_NAME_BYTES])
    cut = kept.encode("utf-8", "ignore")[:_MOST_NAME_BYTES].decode("utf-8", "ignore").strip("-.")
    if not cut:
        return "model"
    return f"{cut}-model" if cut.split(".")[0].upper() in _DEVICES else cut


def numbered(path: str) -> Iterator[str]:
    """``path``, then the same with ``-2``, ``-3`` and so on before its suffix."""
    yield path
    stem, suffix = os.path.splitext(path)
    for number in range(2, _MOST_NUMBERED):
        yield f"{stem}-{number}{suffix}"


def replace_file(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` so that a reader sees the old file or the new one, whole.

    A link is followed: the file that it names is replaced. An existing file keeps its
    mode; a new one gets what the umask leaves. On any error no temporary file stays.
    """
    target = os.path.realpath(text_of(path))
    mode = _existing_mode(target, path)
    try:
        _replace(target, mode, data)
    except OSError as error:
        # A full disk names no file, and the temporary one says nothing to the person who named this.
        error.filename, error.filename2 = os.fspath(path), None
        raise
    _sync_folder(os.path.dirname(target))


def _replace(target: str, mode: int | None, data: bytes) -> None:
    """Write a temporary file beside ``target`` and put it in its place."""
    temporary, fd = _temporary(target, 0o666 if mode is None else 0o600)
    try:
        try:
            if mode is not None and hasattr(os, "fchmod"):
                os.fchmod(fd, mode)
            write_all(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _existing_mode(target: str, path: Path) -> int | None:
    """The permission bits of the file that is replaced; None when there is none."""
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        return None
    refuse_special(mode, path)
    return stat.S_IMODE(mode)


def _temporary(target: str, mode: int) -> tuple[str, int]:
    """A new file beside ``target``, under a name that nobody can have prepared."""
    folder, name = os.path.split(target)
    stem = name.encode("utf-8", "surrogateescape")[:100].decode("utf-8", "ignore")
    temporary = os.path.join(folder, f".{stem}.{os.urandom(6).hex()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    for name in ("O_NOFOLLOW", "O_CLOEXEC", "O_BINARY"):
        flags |= getattr(os, name, 0)
    return temporary, os.open(temporary, flags, mode)


def write_all(fd: int, data: bytes) -> None:
    """Write every byte, in as few calls as the system takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _sync_folder(folder: str) -> None:
    """Make the new name last through a power loss, where the system can."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    with contextlib.suppress(OSError):
        fd = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
