"""Run files: one training run as JSON lines, readable after a crash at any byte.

The first line is the header with the spec; each further line is one event. A line is
written by one call and cut back when it does not fit, so that a killed process or a full
disk costs at most the last line. A reader drops what is torn and says so.
"""

# Flags, descriptors and modes are only in os, and pathlib would cost more than this package to import.
# ruff: noqa: PTH103, PTH108, PTH118, PTH120
from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import warnings
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from ._disk import Path, numbered, refuse_special, safe_stem, text_of, write_all
from ._fork import register
from ._header import as_header
from ._run_reader import (
    is_whole_event,
    iter_frames,
    last_attempt,
    lines_backward,
    read_header,
    read_run,
)
from .encoded import EncodedFrame, encode_frame
from .errors import FileError, FormatError, FrameError, PtoaWarning, SettingError
from .jsontext import dumps, loads
from .protocol import MAX_INTEGER, MAX_LINE_BYTES, PROTOCOL_VERSION, RUN_PATTERN_BYTES, RUN_PROTOCOL, producer
from .validate import check

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .frames import HealthFrame
    from .spec import ModelSpec

if sys.platform != "win32":
    import fcntl

__all__ = ["RunFile", "default_run_path", "iter_frames", "read_header"]

_SAFE_FLAGS = 0
for _name in ("O_NOFOLLOW", "O_CLOEXEC", "O_BINARY", "O_NONBLOCK"):
    _SAFE_FLAGS |= getattr(os, _name, 0)
_NEW_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | _SAFE_FLAGS
_CONTINUE_FLAGS = os.O_RDWR | os.O_APPEND | _SAFE_FLAGS


def default_run_path(name: str, folder: Path = "pta-runs") -> str:
    """Where a run of a model is written when the user does not say.

    Args:
        name: The model's name; what cannot stand in a file name is replaced.
        folder: The folder, made when the run file is.

    Returns:
        ``<folder>/<name>-<YYYYMMDD-HHMMSS>.pta`` in local time.

    Source:
        ``FORMATS.md``, section 6.

    Example:
        >>> default_run_path("../GPT")[:13]
        'pta-runs/GPT-'
    """
    return os.path.join(folder, f"{safe_stem(name)}-{time.strftime('%Y%m%d-%H%M%S')}.pta")


class RunFile:
    """Writes one training run; a ``FrameSink``.

    A new file is opened exclusively and follows no link. When ``path`` exists, it is
    continued if it is a run file with an equal spec that no other process is writing: a
    torn last line is cut, no second header is written, and frames carry ``attempt``.
    Otherwise a file with ``-2`` (or the next free number) in its name is made, and a
    ``PtoaWarning`` names it.

    After ``os.fork`` the child's object does nothing: the file stays the parent's.

    Args:
        path: Where to write. Missing folders are made.
        spec: The model. None leaves the header to ``write_header``.
        resume: False never continues an existing file and takes the next free name without
            a warning; for names that were made up, where an equal one is chance.
        pattern_bytes: Bytes of attention patterns in the file, after which frames are
            written without them.

    Attributes:
        path: Where the run is written.
        attempt: 1 in a new file, else the number of this continuation.

    Raises:
        SpecError: If the spec has problems that a reader would refuse.
        OSError: If the file cannot be made.

    Source:
        ``FORMATS.md``, section 6.

    Example:
        >>> import os, tempfile
        >>> from ptoa_core import Block, HealthFrame, ModelSpec
        >>> path = os.path.join(tempfile.mkdtemp(), "run.pta")
        >>> run = RunFile(path, ModelSpec("x", [Block("t0", "tokens")], "t0"))
        >>> run.push_health(HealthFrame(0, 0.0, 1.5))
        >>> run.close()
        >>> spec, frames = RunFile.read(path)
        >>> spec["name"], frames[0].loss
        ('x', 1.5)
    """

    def __init__(
        self,
        path: Path,
        spec: ModelSpec | None,
        *,
        resume: bool = True,
        pattern_bytes: int = RUN_PATTERN_BYTES,
    ) -> None:
        """Open or continue the file and write the header."""
        if spec is not None:
            check(spec)
        self._lock = threading.Lock()
        self._patterns_left = pattern_bytes
        self._torn = False
        opened = _open_run(os.fspath(path), spec, resume)
        self.path = opened.path
        self.attempt = opened.attempt
        self._fd: int | None = opened.fd
        self._has_header = opened.continued
        self._ours = True
        register(self)
        if spec is not None and not opened.continued:
            self._begin(spec)
        # After the header: a filter may turn the warning into an error, and what is left is a run file.
        if resume and opened.path != os.fspath(path):
            warnings.warn(
                f"{os.fspath(path)!r} exists and is no run of this spec that can be continued; "
                f"this run is written to {opened.path!r}",
                PtoaWarning,
                stacklevel=2,
            )

    def _begin(self, spec: ModelSpec) -> None:
        """Write the header of a new file; when it does not fit, leave no file behind."""
        try:
            self.write_header(spec)
        except BaseException:
            self.close()
            with contextlib.suppress(OSError):
                os.unlink(self.path)
            raise

    def __del__(self) -> None:
        """Let go of the file, so that a forgotten writer does not keep others from continuing it."""
        fd = getattr(self, "_fd", None)
        if fd is not None:
            os.close(fd)

    def _after_fork(self) -> None:
        """Leave the file to the parent."""
        self._lock = threading.Lock()
        self._ours = False
        self.close()

    def write_header(self, spec: ModelSpec) -> None:
        """Write the first line of a file that was opened without a spec.

        Raises:
            SettingError: If the file has its header already, or is closed.
            SpecError: If the spec has problems that a reader would refuse.
            OSError: If it cannot be written.

        Example:
            >>> import tempfile
            >>> from ptoa_core import Block, ModelSpec
            >>> run = RunFile(tempfile.mkdtemp() + "/run.pta", None)
            >>> run.write_header(ModelSpec("x", [Block("t0", "tokens")], "t0"))
            >>> run.close()
        """
        if self._has_header:
            raise SettingError(f"{self.path!r} has its header already")
        header = {
            "protocol": RUN_PROTOCOL,
            "v": PROTOCOL_VERSION,
            "producer": producer(),
            "spec": check(spec).to_dict(),
        }
        self._write_line(dumps(header).encode("utf-8"))
        self._has_header = True

    def write(self, event: str, data: Any) -> None:
        """Write one event as one line.

        Args:
            event: Its name; ``health`` for a frame. Readers skip names they do not know.
            data: A frame or its object for ``health``; else anything JSON can say.

        Raises:
            SettingError: If the file is closed or has no header.
            FormatError: If ``data`` cannot be said in JSON.
            OSError: If the line cannot be written; the file ends with the line before.

        Example:
            >>> import tempfile
            >>> from ptoa_core import Block, ModelSpec
            >>> run = RunFile(tempfile.mkdtemp() + "/run.pta", ModelSpec("x", [Block("t0", "tokens")], "t0"))
            >>> run.write("note", {"text": "warm restart"})
            >>> run.close()
        """
        if event == "health":
            self.push_health(data)
        else:
            self._write_event(dumps({"event": event, "data": data}).encode("utf-8"))

    def push_health(self, frame: HealthFrame | EncodedFrame | Mapping[str, Any]) -> None:
        """Write one frame as one line.

        Raises:
            SettingError: If the file is closed or has no header.
            FrameError: If the frame cannot be encoded.
            OSError: If the line cannot be written; the file ends with the line before.

        Example:
            >>> import tempfile
            >>> from ptoa_core import Block, ModelSpec
            >>> run = RunFile(tempfile.mkdtemp() + "/run.pta", ModelSpec("x", [Block("t0", "tokens")], "t0"))
            >>> run.push_health({"step": 0, "t": 0.0, "loss": None, "blocks": []})
            >>> run.close()
        """
        encoded = encode_frame(frame)
        text = encoded.text
        if encoded.lean is not None:
            extra = len(encoded.text) - len(encoded.lean)
            if extra > self._patterns_left:
                text = encoded.lean
            else:
                self._patterns_left -= extra
        if self.attempt > 1:
            text = _with_attempt(text, self.attempt)
        self._write_event(b'{"event":"health","data":' + text + b"}")

    def _write_event(self, text: bytes) -> None:
        """Write a line after the header."""
        if self._ours and not self._has_header:
            raise SettingError(f"{self.path!r} has no header yet; call write_header(spec) first")
        self._write_line(text)

    def _write_line(self, text: bytes) -> None:
        """Write a whole line or nothing."""
        if len(text) >= MAX_LINE_BYTES:
            raise FrameError(f"the line takes {len(text)} bytes, at most {MAX_LINE_BYTES} are read")
        with self._lock:
            if not self._ours:
                return
            if self._fd is None:
                raise SettingError(f"{self.path!r} is closed")
            self._append(self._fd, text + b"\n")

    def _append(self, fd: int, line: bytes) -> None:
        """Append to the file; on an error cut it back to where the line began."""
        start = os.fstat(fd).st_size
        try:
            write_all(fd, b"\n" + line if self._torn else line)
            self._torn = False
        except BaseException:
            self._torn = True
            with contextlib.suppress(OSError):
                os.ftruncate(fd, start)
                self._torn = False
            raise

    def close(self) -> None:
        """Close the file; a second call does nothing.

        Example:
            >>> import tempfile
            >>> run = RunFile(tempfile.mkdtemp() + "/run.pta", None)
            >>> run.close(); run.close()
        """
        with self._lock:
            fd, self._fd = self._fd, None
            if fd is not None:
                os.close(fd)

    @staticmethod
    def read(path: Path) -> tuple[dict[str, Any], Sequence[HealthFrame]]:
        """The spec's object and the frames of a run file.

        Where a run was continued, a later attempt replaces every frame of the earlier ones
        from its first step on. A torn last line, and lines that are no events, are left out
        with a ``PtoaWarning`` that names the line; events of other kinds are skipped.

        Args:
            path: A run file.

        Returns:
            The spec as a parsed JSON object, and a sequence that decodes a frame when it is
            asked for.

        Raises:
            FileError: If it is no run file, or one of a newer version.
            SpecError: If its spec cannot be used.
            OSError: If the file cannot be read.

        Source:
            ``FORMATS.md``, section 6.

        Example:
            >>> RunFile.read("/dev/null")
            Traceback (most recent call last):
            ptoa_core.errors.FileError: '/dev/null' is a device; a regular file is wanted
        """
        return read_run(path)


class _Opened(NamedTuple):
    """An open run file."""

    path: str
    fd: int
    attempt: int
    continued: bool


def _open_run(path: str, spec: ModelSpec | None, resume: bool) -> _Opened:
    """Make the file, continue it, or make one with the next free number."""
    os.makedirs(os.path.dirname(text_of(path)) or ".", exist_ok=True)
    for candidate in numbered(path):
        opened = _created(candidate)
        if opened is None and resume and spec is not None:
            opened = _continued(candidate, spec)
        if opened is not None:
            return opened
    raise FileError(f"{path!r} and every numbered name after it exist; name another run file")


def _created(path: str) -> _Opened | None:
    """A new file under that name; None when something, even a dangling link, has it."""
    try:
        fd = os.open(path, _NEW_FLAGS, 0o666)
    except FileExistsError:
        return None
    _lock_file(fd)
    return _Opened(path, fd, 1, False)


def _lock_file(fd: int) -> bool:
    """Take the file for this process; False when another one has it."""
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _continued(path: str, spec: ModelSpec) -> _Opened | None:
    """The existing run file, ready for the next line; None when it is another's."""
    try:
        fd = os.open(path, _CONTINUE_FLAGS)
    except OSError:
        return None
    try:
        attempt = _prepare(fd, path, spec)
    except (FormatError, OSError):
        attempt = None
    except BaseException:
        os.close(fd)
        raise
    if attempt is None:
        os.close(fd)
        return None
    return _Opened(path, fd, attempt, True)


def _prepare(fd: int, path: str, spec: ModelSpec) -> int | None:
    """Check the header, mend the end, and count the attempt; None when it is not ours to continue."""
    refuse_special(os.fstat(fd).st_mode, path)
    with os.fdopen(os.dup(fd), "rb") as file:
        header = as_header(loads(file.readline(MAX_LINE_BYTES), what="header"), path)
    # Whoever makes a file locks it before the header is there: until then its lock is left alone.
    if header["spec"] != loads(dumps(spec), what="spec") or not _lock_file(fd):
        return None
    with os.fdopen(os.dup(fd), "rb") as file:
        # Its last writer may have gone on until the lock was free: size and lines are read after that.
        size = os.fstat(fd).st_size
        lines = lines_backward(file, size)
        torn = next(lines)
        whole = is_whole_event(torn)
        attempt = last_attempt(chain([torn], lines) if whole else lines) or 0
        if attempt >= MAX_INTEGER:  # there is no number for another one
            return None
        if whole:
            write_all(fd, b"\n")
        else:
            os.ftruncate(fd, size - len(torn))
    return attempt + 1


def _with_attempt(text: bytes, attempt: int) -> bytes:
    """A frame's JSON with its attempt."""
    if b'"attempt":' not in text:
        return text[:-1] + b',"attempt":%d}' % attempt
    data = loads(text, what="frame")
    data["attempt"] = attempt
    return dumps(data).encode("utf-8")
