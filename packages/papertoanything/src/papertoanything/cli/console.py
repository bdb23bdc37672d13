"""What the command writes, and where: data on standard output, everything else on standard error.

Names in a spec are strangers' text and a terminal obeys escapes, so nothing reaches a stream raw:
`plain` spells out whatever could move a cursor, reorder a line, or not be encoded; `json` does the
same inside JSON strings, where the spelling must stay JSON.

A stream can also refuse. A reader that went away (`| head`) is not an error; a full disk is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
import threading
import time
from typing import TYPE_CHECKING, TextIO

from ptoa_core.terminal import escape

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Console", "OutputClosedError", "OutputFailedError", "json_safe"]

_PROGRESS_AFTER = 1.0  # seconds; quicker work needs no word
_STYLES = {"bold": "1", "dim": "2", "red": "31", "yellow": "33", "cyan": "36"}


class OutputClosedError(Exception):
    """Whoever read standard output has seen enough."""


class OutputFailedError(Exception):
    """Standard output could not be written."""


class Console:
    """Standard output and standard error of one command.

    Args:
        out: Where data goes; None when the process has no standard output.
        err: Where messages go; None when there is nowhere.
    """

    def __init__(self, out: TextIO | None, err: TextIO | None) -> None:
        self.out = out
        self.err = err
        self.colour = _is_terminal(out) and _wants_colour()

    @classmethod
    def standard(cls) -> Console:
        """The process's own streams, as they are at this moment."""
        return cls(sys.stdout, sys.stderr)

    @property
    def width(self) -> int | None:
        """Columns of the terminal, or `COLUMNS`; None when output goes elsewhere, as wide as it is."""
        if _is_terminal(self.out) or os.environ.get("COLUMNS", "").isdigit():
            return max(1, shutil.get_terminal_size().columns)
        return None

    def plain(self, text: str) -> str:
        """`text` on one line, with nothing in it that a terminal obeys or standard output cannot encode."""
        encoding = getattr(self.out, "encoding", None) or "utf-8"
        return escape(text).encode(encoding, "backslashreplace").decode(encoding)

    def style(self, text: str, name: str) -> str:
        """`text` in a style of `_STYLES`, on a terminal that wants colours."""
        return f"\x1b[{_STYLES[name]}m{text}\x1b[0m" if self.colour and name else text

    def write(self, text: str) -> None:
        """`text`, already made safe, to standard output.

        Raises:
            OutputClosedError: If the reader went away.
            OutputFailedError: If the text cannot be written.
        """
        if self.out is None:
            raise OutputFailedError("there is no standard output")
        with self._refusals():
            self.out.write(text)

    def line(self, text: str = "") -> None:
        """One line of data; escapes whatever is in it."""
        self.write(self.plain(text) + "\n")

    def json(self, text: str) -> None:
        """JSON text, still valid JSON, with the characters that a terminal obeys escaped."""
        self.write(json_safe(text, getattr(self.out, "encoding", None) or "utf-8") + "\n")

    def flush(self) -> None:
        """Hand over what is buffered, so that a refusal is heard before the process ends.

        Raises:
            OutputClosedError: If the reader went away.
            OutputFailedError: If the text cannot be written.
        """
        if self.out is not None:
            with self._refusals():
                self.out.flush()

    def note(self, text: str, kind: str = "") -> None:
        """One line for the person at the terminal, on standard error."""
        prefix = f"ptoa: {kind}: " if kind else "ptoa: "
        self._message(prefix + escape(text) + "\n")

    def lines(self, text: str) -> None:
        """Several lines on standard error: the first with our name, each made safe by itself."""
        first, *rest = text.split("\n")
        self.note(first)
        self._message("".join(escape(line) + "\n" for line in rest))

    def hint(self, text: str) -> None:
        """A line that only helps someone who is looking: dropped unless standard error is a terminal."""
        if _is_terminal(self.err):
            self.note(text)

    def _message(self, text: str) -> None:
        """To standard error, whatever its encoding; one that is gone cannot be told about."""
        if self.err is None:
            return
        encoding = getattr(self.err, "encoding", None) or "utf-8"
        try:
            self.err.write(text.encode(encoding, "backslashreplace").decode(encoding))
            self.err.flush()
        except (OSError, ValueError):
            _abandon(self.err)

    @contextlib.contextmanager
    def progress(self, doing: str) -> Iterator[None]:
        """While the body runs, say so on a terminal, once it has lasted over a second."""
        if not _is_terminal(self.err) or os.environ.get("TERM") == "dumb":
            yield
            return
        done = threading.Event()
        ticker = threading.Thread(target=self._tick, args=(doing, done), name="ptoa-progress", daemon=True)
        ticker.start()
        try:
            yield
        finally:
            done.set()
            ticker.join()

    def _tick(self, doing: str, done: threading.Event) -> None:
        """Rewrite one line every half second, and clear it at the end."""
        began = time.monotonic()
        wait, shown = _PROGRESS_AFTER, False
        while not done.wait(wait):
            wait, shown = 0.5, True
            self._message(f"\r\x1b[K{_cut(escape(doing))} ... {time.monotonic() - began:.0f} s")
        if shown:
            self._message("\r\x1b[K")

    @contextlib.contextmanager
    def _refusals(self) -> Iterator[None]:
        """Turn a stream's refusal into ours, and let go of the stream."""
        try:
            yield
        except OSError as error:
            _abandon(self.out)
            if isinstance(error, BrokenPipeError) or (os.name == "nt" and error.errno == errno.EINVAL):
                raise OutputClosedError from None
            raise OutputFailedError(f"cannot write the output: {error.strerror}") from error


def json_safe(text: str, encoding: str = "utf-8") -> str:
    r"""JSON text in which no string holds a character that a terminal obeys, or that `encoding` lacks.

    The result is the same JSON value: such characters become `\uXXXX`.

    Example:
        >>> print(json_safe('{"name":"a\x9bb"}'))
        {"name":"a\u009bb"}
        >>> print(json_safe('["ü"]', "ascii"))
        ["\u00fc"]
    """
    # Outside strings JSON is ASCII, so whatever is replaced here stands inside one; a line feed
    # does not, since a string cannot hold it raw.
    foreign = {char for char in set(text) if char != "\n" and not " " <= char <= "~"}
    unsafe = {char for char in foreign if escape(char) != char or not _encodable(char, encoding)}
    return text.translate({ord(char): _json_escape(char) for char in unsafe})


def _encodable(char: str, encoding: str) -> bool:
    """Whether `encoding` has the character."""
    try:
        char.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def _json_escape(char: str) -> str:
    """The character as JSON escapes it: in one piece, or as a pair beyond the basic plane."""
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def _cut(text: str) -> str:
    """`text` short enough that a progress line stays on one row of any usual terminal."""
    return text if len(text) <= 60 else text[:57] + "..."


def _is_terminal(stream: TextIO | None) -> bool:
    """Whether a person sees the stream; one that is missing or closed is no terminal."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False


def _wants_colour() -> bool:
    """Neither NO_COLOR (no-color.org: any value but an empty one) nor a terminal without colours."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _abandon(stream: TextIO | None) -> None:
    """Send what is still buffered nowhere: the interpreter flushes at exit and would complain aloud."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())  # type: ignore[union-attr]  # None has no fileno: suppressed
        os.close(nowhere)
