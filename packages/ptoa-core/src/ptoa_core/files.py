"""The .pta file: a spec, perhaps with one forward pass, in one JSON object.

``read`` takes every file of ours (a .pta file, a run file, a bare spec) by what is in it,
not by its name. ``save`` replaces a file as a whole.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from ._disk import Path, numbered, open_regular, replace_file, safe_stem
from ._header import as_header
from .errors import FileError, FormatError, JsonError
from .frames import TraceFrame
from .jsontext import dumps, loads
from .protocol import (
    FILE_PROTOCOL,
    MAX_FILE_BYTES,
    MAX_LINE_BYTES,
    PROTOCOL_VERSION,
    RUN_PROTOCOL,
    producer,
)
from .terminal import shown
from .validate import check

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .spec import ModelSpec

__all__ = ["Loaded", "load", "read", "safe_file_name", "save", "unused_path", "write"]

# Where a run file that is larger than a .pta file may be must show what it is.
_HEAD_BYTES = 65_536
_BOM = b"\xef"  # the first byte of a byte order mark, which the JSON reader names


class Loaded(NamedTuple):
    """What a file held.

    Attributes:
        kind: ``pta``, ``run`` or ``spec``.
        spec: The model.
        trace: The forward pass of a .pta file that has one.
        path: The file, as it was given.

    Example:
        >>> from ptoa_core import ModelSpec
        >>> Loaded("spec", ModelSpec("x", [], ""), None, "x.json").kind
        'spec'
    """

    kind: str
    spec: ModelSpec
    trace: TraceFrame | None
    path: str


def load(path: Path) -> tuple[ModelSpec, TraceFrame | None]:
    """The spec of a .pta file, a run file or a bare spec, and the trace if there is one.

    Raises:
        FileError: If the file is none of these, or of a newer version.
        FormatError: If its JSON, spec or trace is not what the formats say.
        OSError: If it cannot be opened.

    Source:
        ``FORMATS.md``, section 6.

    Example:
        >>> import tempfile
        >>> from ptoa_core import Block, ModelSpec
        >>> path = save(ModelSpec("x", [Block("t0", "tokens")], "t0"), tempfile.mkdtemp() + "/x.pta")
        >>> load(path)[0].name
        'x'
    """
    found = read(path)
    return found.spec, found.trace


def read(path: Path) -> Loaded:
    """What a .pta file, a run file or a bare spec holds; of a run file only the spec.

    Args:
        path: A regular file of at most 512 MiB (a run file may be longer). Links are followed.

    Raises:
        FileError: If the file is none of these, or of a newer version.
        FormatError: If its JSON, spec or trace is not what the formats say.
        OSError: If it cannot be opened.

    Source:
        ``FORMATS.md``, section 6.

    Example:
        >>> read("/dev/null")
        Traceback (most recent call last):
        ptoa_core.errors.FileError: '/dev/null' is a device; a regular file is wanted
    """
    with open_regular(path) as file:
        kind, data = _document(file, os.fspath(path))
    try:
        if kind != "pta":
            return Loaded(kind, check(data), None, os.fspath(path))
        trace = data.get("trace")
        spec = check(data["spec"])
        return Loaded(kind, spec, None if trace is None else TraceFrame.from_dict(trace), os.fspath(path))
    except FormatError as error:
        error.args = (f"{os.fspath(path)!r}: {error}",)
        raise


def _document(file: BinaryIO, path: str) -> tuple[str, dict[str, Any]]:
    """Which kind of file it is, and its object: of a run file and a bare spec, the spec's."""
    size = os.fstat(file.fileno()).st_size
    head = file.read(_HEAD_BYTES)
    if size > MAX_FILE_BYTES and f'"{RUN_PROTOCOL}"'.encode() not in head:
        raise FileError(f"{path!r} has {size} bytes; at most {MAX_FILE_BYTES} are read")
    start = head.lstrip()[:1]
    if not start and size > len(head):
        raise FileError(f"{path!r} is no .pta file, run file or spec: it begins with {len(head)} blank bytes")
    if start not in (b"", b"{", _BOM):
        raise FileError(
            f"{path!r} is no .pta file, run file or spec: it begins with {start!r}, not with an object"
        )
    file.seek(0)
    first = _first_line(file)
    if _is_header(first):
        return "run", as_header(loads(first, what=repr(path), max_bytes=MAX_LINE_BYTES), path)["spec"]
    if size > MAX_FILE_BYTES:
        raise FileError(f"{path!r} has {size} bytes and is no run file; at most {MAX_FILE_BYTES} are read")
    file.seek(0)
    return _kind(loads(file.read(MAX_FILE_BYTES + 1), what=repr(path)), path)


def _first_line(file: BinaryIO) -> bytes:
    """The first line that is not blank, as far as a line may be long."""
    while (line := file.readline(MAX_LINE_BYTES)) and not line.strip():
        pass
    return line


def _is_header(line: bytes) -> bool:
    """Whether the line by itself is the header of a run file."""
    if f'"{RUN_PROTOCOL}"'.encode() not in line:
        return False
    try:
        header = loads(line, max_bytes=MAX_LINE_BYTES)
    except JsonError:
        return False
    return isinstance(header, dict) and header.get("protocol") == RUN_PROTOCOL


def _kind(data: object, path: str) -> tuple[str, dict[str, Any]]:
    """Which kind of file a whole document is."""
    if not isinstance(data, dict):
        raise FileError(f"{path!r} holds {shown(data)}; an object is wanted")
    if "protocol" not in data and "blocks" in data:
        return "spec", data
    protocol = data.get("protocol")
    if protocol == RUN_PROTOCOL:
        return "run", as_header(data, path)["spec"]
    if protocol != FILE_PROTOCOL:
        raise FileError(
            f"{path!r} is no .pta file, run file or spec: its protocol is {shown(protocol)} "
            f"and {FILE_PROTOCOL!r} or {RUN_PROTOCOL!r} is wanted"
        )
    if data.get("v") != PROTOCOL_VERSION:
        raise FileError(
            f"{path!r} is a .pta file of version {shown(data.get('v'))}; "
            f"this version of ptoa reads version {PROTOCOL_VERSION}"
        )
    if "spec" not in data:
        raise FileError(f"{path!r} has no spec")
    return "pta", data


def save(spec: ModelSpec, path: Path, trace: TraceFrame | Mapping[str, Any] | None = None) -> str:
    """Write a .pta file; a reader sees the old file or the new one, never a part.

    A link is followed: the file that it names is replaced and the link stays. An existing
    file keeps its mode, a new one gets what the umask leaves. Nothing else is left behind
    when the disk is full.

    Args:
        spec: The model.
        path: Where to write; its folder must exist.
        trace: One forward pass to put beside the spec; a frame or its object.

    Returns:
        ``path`` as text.

    Raises:
        SpecError: If the spec has problems that a reader would refuse.
        FormatError: If it cannot be said in JSON, takes more than 512 MiB, or the trace has
            problems that a reader would refuse.
        OSError: If it cannot be written.

    Source:
        ``FORMATS.md``, section 6.

    Example:
        >>> import tempfile
        >>> from ptoa_core import Block, ModelSpec
        >>> path = save(ModelSpec("x", [Block("t0", "tokens")], "t0"), tempfile.mkdtemp() + "/x.pta")
        >>> read(path).kind
        'pta'
    """
    head = {
        "protocol": FILE_PROTOCOL,
        "v": PROTOCOL_VERSION,
        "producer": producer(),
        "spec": check(spec).to_dict(),
    }
    data = dumps(head).encode("utf-8")
    if trace is not None:
        data = data[:-1] + b',"trace":' + _trace_text(trace) + b"}"
    if len(data) > MAX_FILE_BYTES:
        raise FileError(f"the file would take {len(data)} bytes; at most {MAX_FILE_BYTES} are read")
    replace_file(path, data)
    return os.fspath(path)


def write(data: bytes, path: Path, *, replace: bool = False) -> str:
    """Write a file whole or not at all.

    Args:
        data: Its content.
        path: Where to write; its folder must exist.
        replace: Whether a file that is there gives way; a link is then followed.

    Returns:
        ``path`` as text.

    Raises:
        FileExistsError: If something has that name, even a dangling link, and is not to be replaced.
        OSError: If it cannot be written; what was there is unchanged.

    Example:
        >>> import tempfile
        >>> write(b"x", tempfile.mkdtemp() + "/x.html")[-7:]
        '/x.html'
    """
    name = os.fspath(path)
    if not replace:
        # Held by an empty file, so that nobody else's appears there in the meantime.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    try:
        replace_file(path, data)
    except BaseException:
        if not replace:
            os.unlink(path)  # noqa: PTH108  # Path is the type of what is taken here
        raise
    return name


def _trace_text(trace: TraceFrame | Mapping[str, Any]) -> bytes:
    """The JSON of a trace that a reader takes."""
    from .encoded import encode_trace

    text = encode_trace(trace)
    TraceFrame.from_dict(trace.to_dict() if isinstance(trace, TraceFrame) else trace)
    return text


def safe_file_name(name: str, suffix: str = ".pta") -> str:
    r"""A file name for a model of any name: never a path, never hidden, of bounded length.

    Args:
        name: A stranger's text.
        suffix: What the file name ends with.

    Returns:
        Letters and digits of any script, ``-``, ``_`` and inner dots; ``model`` when
        nothing is left.

    Example:
        >>> safe_file_name("../a b"), safe_file_name("\x1b"), safe_file_name("CON")
        ('a-b.pta', 'model.pta', 'CON-model.pta')
    """
    return safe_stem(name) + suffix


def unused_path(path: Path) -> str:
    """``path``, or the same with ``-2``, ``-3`` and so on, whichever does not exist.

    Args:
        path: A wish.

    Returns:
        A path that named nothing, not even a dangling link, when it was asked.

    Raises:
        FileError: If thousands of such names exist.

    Example:
        >>> import tempfile
        >>> unused_path(tempfile.mkdtemp())[-2:]
        '-2'
    """
    for candidate in numbered(os.fspath(path)):
        if not os.path.lexists(candidate):
            return candidate
    raise FileError(f"{os.fspath(path)!r} and every numbered name after it exist; name another file")
