"""The local page as one file, with a model or a run inside: to keep, to mail, to show in a notebook.

The build makes ``report.html``: the page with its script and style inside, under a
Content-Security-Policy that allows exactly these two by their hashes and no request at all.
What is put in is base64 of gzip in a block that never runs, so that nothing in a stranger's
name can end the block, and the hashes hold for every report.

Source: README.md, "Formats".
"""

from __future__ import annotations

import base64
import gzip
import html
import io
from typing import TYPE_CHECKING

from ptoa_core.encoded import encode_frame
from ptoa_core.errors import FileError
from ptoa_core.jsontext import dumps
from ptoa_core.protocol import PROTOCOL_VERSION, RUN_PROTOCOL, producer

from .page import STATIC_FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ptoa_core.frames import HealthFrame
    from ptoa_core.spec import ModelSpec

__all__ = ["MAX_REPORT_BYTES", "report_page", "run_html", "run_lines", "spec_html"]

MAX_REPORT_BYTES = 256 * 1024 * 1024
"""The most that the data of a report may take in it; a browser holds them in one string."""

_MARK = b"<!--PTOA-DATA-->"
# What one notebook cell may grow by: notebooks keep every output and are often under version control.
_CELL_BYTES = 4 * 1024 * 1024
_CELL_FRAMES = 400


def report_page(data: Iterable[bytes]) -> bytes:
    """The page with a file inside, as one HTML file that asks for nothing.

    Args:
        data: The content of a .pta file, a run file or a spec, in pieces of any size.

    Raises:
        FileError: If the data take more than ``MAX_REPORT_BYTES``, or the page is not built.
    """
    packed = _packed(data, MAX_REPORT_BYTES)
    if packed is None:
        raise FileError(
            f"the data take more than {MAX_REPORT_BYTES >> 20} MiB in a report, which a browser may not "
            "open; `ptoa view` shows a run file of any size"
        )
    before, after = _template()
    return before + packed + after


def run_lines(spec: ModelSpec, frames: Iterable[HealthFrame]) -> Iterator[bytes]:
    """The lines of a run file.

    Args:
        spec: The model.
        frames: Its frames, in the order of sending.
    """
    header = {"protocol": RUN_PROTOCOL, "v": PROTOCOL_VERSION, "producer": producer(), "spec": spec.to_dict()}
    yield dumps(header).encode("utf-8") + b"\n"
    for frame in frames:
        yield b'{"event":"health","data":' + encode_frame(frame).text + b"}\n"


def spec_html(spec: ModelSpec) -> str:
    """A model as a notebook shows it: the page in a frame of its own, apart from the notebook.

    Raises:
        FileError: If it takes more than a notebook should hold, or the page is not built.
    """
    return _cell(_packed([dumps(spec).encode("utf-8")], _CELL_BYTES), spec.name)


def run_html(spec: ModelSpec, frames: Sequence[HealthFrame]) -> str:
    """A run as a notebook shows it; a long one with some hundred of its frames, evenly taken.

    Args:
        spec: The model.
        frames: Its frames; only those that are shown are read.

    Raises:
        FileError: If even a few take more than a notebook should hold, or the page is not built.
    """
    count = len(frames)
    stride = max(1, -(-count // _CELL_FRAMES))
    packed = None
    while packed is None and stride <= 4 * max(1, count):
        # Counted from the end: the newest frame is always there.
        chosen = (frames[i] for i in range((count - 1) % stride if count else 0, count, stride))
        packed = _packed(run_lines(spec, chosen), _CELL_BYTES)
        stride *= 4
    return _cell(packed, spec.name)


def _cell(packed: bytes | None, name: str) -> str:
    """A frame that may run its script and nothing else: it cannot reach the notebook around it."""
    if packed is None:
        raise FileError(f"it takes more than the {_CELL_BYTES >> 20} MiB that a notebook should hold")
    before, after = _template()
    document = html.escape((before + packed + after).decode("utf-8"))
    return (
        f'<iframe srcdoc="{document}" sandbox="allow-scripts allow-downloads" width="100%" height="640" '
        f'style="border:1px solid #8886;border-radius:8px" title="{html.escape(name[:200])}"></iframe>'
    )


def _packed(data: Iterable[bytes], limit: int) -> bytes | None:
    """Base64 of gzip of the data; None where it takes more than ``limit`` bytes."""
    held = io.BytesIO()
    # Without a time, the same data make the same report.
    with gzip.GzipFile(fileobj=held, mode="wb", compresslevel=6, mtime=0) as file:
        for piece in data:
            file.write(piece)
            if held.tell() * 4 > limit * 3:
                return None
    packed = base64.b64encode(held.getbuffer())
    return packed if len(packed) <= limit else None


def _template() -> tuple[bytes, bytes]:
    """What stands before the data and after them."""
    path = STATIC_FOLDER / "report.html"
    try:
        before, mark, after = path.read_bytes().partition(_MARK)
    except FileNotFoundError:
        raise FileError(
            "the local page was not built, so there is no report; in a checkout, build it with Node 20.19 or "
            "newer: cd packages/ptoa-bridge/viewer && npm ci && npm run build"
        ) from None
    if not mark:
        raise FileError(f"{str(path)!r} has no place for data; build the page again")
    return before, after
