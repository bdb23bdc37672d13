"""Opening a page without putting its token on a command line.

What a program is started with can be read by everybody on the machine. So the browser is
given the name of a small HTML file that only its owner can read, and the file leads on to
the address.

Source: FORMATS.md, section 7.
"""

from __future__ import annotations

import contextlib
import html
import os
import re
import shutil
import sys
import tempfile
import threading
import time
import webbrowser
from pathlib import Path

from ptoa_core.errors import SettingError
from ptoa_core.protocol import ENV_NO_BROWSER

__all__ = ["open_in_browser", "redirect_page"]

_PREFIX = "ptoa-open-"
_STALE_SECONDS = 600.0

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={url}">
<title>Opening the page</title>
<p><a href="{url}" rel="noreferrer">Open the page</a></p>
</html>
"""


def redirect_page(url: str) -> str:
    """The text of an HTML page that leads on to ``url``.

    Args:
        url: An http or https address.

    Returns:
        A page with a refresh and a plain link, the address escaped in both.

    Raises:
        SettingError: If ``url`` is no http or https address.

    Example:
        >>> "a&amp;b&quot;" in redirect_page('http://127.0.0.1:1/?a&b"')
        True
    """
    if re.match(r"https?://[^\s/]", url) is None:
        raise SettingError("only an http or https address can be opened in a browser")
    return _PAGE.format(url=html.escape(url, quote=True))


def open_in_browser(url: str) -> bool:
    """Open an address in the user's browser; returns at once.

    The address goes into a file with mode 0600 in a folder with mode 0700, and the browser
    gets the file's name. Files of earlier calls are deleted when they are ten minutes old.

    Args:
        url: An http or https address.

    Returns:
        Whether a browser was started: not when ``PTA_NO_BROWSER`` is set, not on a machine
        without a graphical browser, and not where ``BROWSER`` names none.

    Raises:
        SettingError: If ``url`` is no http or https address.

    Example:
        >>> import os
        >>> os.environ["PTA_NO_BROWSER"] = "1"
        >>> open_in_browser("http://127.0.0.1:8000/")
        False
    """
    page = redirect_page(url)
    if os.environ.get(ENV_NO_BROWSER) or not _has_display():
        return False
    try:
        controller = webbrowser.get()
        path = _write(page)
    # Of BROWSER's text the library also makes a ValueError (an open quote) or an IndexError (a space).
    except (webbrowser.Error, OSError, ValueError, IndexError):
        return False
    # A browser that is asked to show a file may be waited for, for seconds or until it ends.
    threading.Thread(target=_show, args=(controller, path), name="ptoa-browser", daemon=True).start()
    return True


def _has_display() -> bool:
    """Whether a browser would have a window: one in the terminal would take it from the script."""
    if os.environ.get("BROWSER") or sys.platform in ("win32", "darwin", "cygwin"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _write(page: str) -> Path:
    """A new file that only the user can read."""
    _sweep(Path(tempfile.gettempdir()))
    path = Path(tempfile.mkdtemp(prefix=_PREFIX)) / "open.html"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(handle, "w", encoding="utf-8") as file:
        file.write(page)
    return path


def _sweep(folder: Path) -> None:
    """Delete the files of earlier calls, of this process or of others."""
    # Not at the end of this process: a browser that starts slowly would find nothing, and
    # the token in the file ends with the process anyway.
    for old in folder.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if time.time() - old.lstat().st_mtime > _STALE_SECONDS and _is_ours(old):
                shutil.rmtree(old)


def _is_ours(path: Path) -> bool:
    """Whether a folder, not a link to one, belongs to this user."""
    getuid = getattr(os, "getuid", None)
    mine = getuid is None or path.lstat().st_uid == getuid()
    return mine and path.is_dir() and not path.is_symlink()


def _show(controller: webbrowser.BaseBrowser, path: Path) -> None:
    """Ask the browser to show the file; what it lacks is the user's to see, not ours to raise."""
    with contextlib.suppress(OSError, webbrowser.Error):
        controller.open(path.as_uri(), new=2)
