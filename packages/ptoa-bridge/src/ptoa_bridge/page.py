"""The local page: files built beforehand, read once, served under the names they had then.

A request's path is looked up in a table and never joined to a folder, so there is no path
for a stranger to climb. The page comes with a Content-Security-Policy that lets it load
from the bridge alone and lets nobody frame it. It holds no token and nothing of the model:
both come later, with the token in the address's fragment.

Source: FORMATS.md, section 7.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["SECURITY_POLICY", "STATIC_FOLDER", "Page", "read_pages"]

STATIC_FOLDER = Path(__file__).parent / "static"

SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data: blob:; worker-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'"
)

_CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
    ".md": "text/plain; charset=utf-8",
}
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")

_NOT_BUILT = (
    "The bridge is running, but its local page was not built.\n"
    "In a checkout, build it with Node 20.19 or newer: "
    "cd packages/ptoa-bridge/viewer && npm ci && npm run build\n"
)


@dataclass(frozen=True)
class Page:
    """One file of the local page.

    Attributes:
        content_type: The media type to serve it under.
        body: Its bytes.
    """

    content_type: str
    body: bytes


def read_pages(folder: Path = STATIC_FOLDER) -> Mapping[str, Page]:
    """The local page's files by the path they are served under.

    Args:
        folder: Where the build put ``index.html`` and ``assets``.

    Returns:
        ``/`` for ``index.html`` and ``/assets/NAME`` for each regular file with a plain
        name and a known type; links and folders are left out. Without a build, ``/`` alone,
        with text that says how to build the page.

    Example:
        >>> sorted(read_pages(Path("no such folder")))
        ['/']
    """
    pages = dict(_assets(folder / "assets"))
    index = _read(folder / "index.html")
    pages["/"] = index or Page(_CONTENT_TYPES[".txt"], _NOT_BUILT.encode("ascii"))
    return pages


def _assets(folder: Path) -> Iterator[tuple[str, Page]]:
    """Each file of the build's folder that may be served."""
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        page = _read(path)
        if page is not None and _PLAIN_NAME.fullmatch(path.name):
            yield f"/assets/{path.name}", page


def _read(path: Path) -> Page | None:
    """The file, unless it is missing, a link, or of a type that the page has no use for."""
    content_type = _CONTENT_TYPES.get(path.suffix)
    if content_type is None or path.is_symlink() or not path.is_file():
        return None
    return Page(content_type, path.read_bytes())
