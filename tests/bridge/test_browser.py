"""Opening a page: the token is in a file that only its owner reads, never on a command line."""

from __future__ import annotations

import html.parser
import os
import stat
import sys
import tempfile
import time
import webbrowser
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest

from ptoa_bridge import open_in_browser
from ptoa_bridge.browser import redirect_page
from ptoa_core.errors import SettingError

URL = "http://127.0.0.1:8000/#token=s3cret&a=\"'<b>"


@pytest.fixture
def temp(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("PTA_NO_BROWSER")
    return tmp_path


@pytest.fixture
def opened(monkeypatch, temp):
    """A browser that notes what it is asked to show."""
    shown = []

    class Noting(webbrowser.BaseBrowser):
        def open(self, url, new=0, autoraise=True):
            shown.append(url)
            return True

    monkeypatch.setenv("BROWSER", "noting")
    monkeypatch.setattr(webbrowser, "get", Noting)
    return shown


def links(page):
    """Where a page leads, by the library's own parser."""
    found = []

    class Links(html.parser.HTMLParser):
        def handle_starttag(self, tag, attrs):
            given = dict(attrs)
            if tag == "a":
                found.append(given["href"])
            if given.get("http-equiv") == "refresh":
                found.append(given["content"].removeprefix("0; url="))

    Links().feed(page)
    return found


def test_the_browser_gets_a_file_that_only_its_owner_reads(opened, tools):
    assert open_in_browser(URL)
    assert tools.wait_until(lambda: opened)
    assert "s3cret" not in opened[0]
    path = Path(unquote(urlparse(opened[0]).path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert links(path.read_text("utf-8")) == [URL, URL]


def test_the_page_escapes_the_address():
    page = redirect_page(URL)
    assert links(page) == [URL, URL]
    assert "<b>" not in page


@pytest.mark.parametrize(
    "url",
    ["", "javascript:alert(1)", "file:///etc/passwd", "http://", "data:text/html,x", " http://a", "HTTP"],
)
def test_only_a_web_address_is_opened(temp, url):
    with pytest.raises(SettingError):
        open_in_browser(url)


def test_no_browser_is_opened_when_the_user_forbids_it(opened, temp, monkeypatch):
    monkeypatch.setenv("PTA_NO_BROWSER", "1")
    assert not open_in_browser(URL)
    assert not list(temp.iterdir())


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="there a browser needs no display variable")
def test_without_a_display_nothing_is_started(temp, monkeypatch, capfd):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    assert not open_in_browser(URL)
    assert capfd.readouterr() == ("", "")


def test_a_machine_without_a_browser_is_no_error(temp, monkeypatch):
    def none():
        raise webbrowser.Error("could not locate runnable browser")

    monkeypatch.setenv("BROWSER", "x")
    monkeypatch.setattr(webbrowser, "get", none)
    assert not open_in_browser(URL)


@pytest.mark.parametrize(
    "value", [" ", ":", 'firefox "%s', "%s '", "&", "%s &", "no-such-browser", "/no/such %s"]
)
def test_a_browser_variable_that_names_none_is_no_error(script, tmp_path, value):
    # A process of its own, since the library reads the variable once.
    code = "from ptoa_bridge import open_in_browser\nopen_in_browser('http://127.0.0.1:1/')"
    display = {"DISPLAY": "", "WAYLAND_DISPLAY": "", "TMPDIR": str(tmp_path)}
    status, err = script(code, BROWSER=value, PTA_NO_BROWSER="", **display).end()
    assert (status, "Traceback" in err) == (0, False)


def test_old_files_are_swept_and_new_or_strange_ones_are_left(opened, temp):
    old, new, other = temp / "ptoa-open-old", temp / "ptoa-open-new", temp / "mine"
    for folder in (old, new, other):
        folder.mkdir()
        (folder / "open.html").write_text("x")
    long_ago = time.time() - 10_000
    os.utime(old, (long_ago, long_ago))
    os.utime(other, (long_ago, long_ago))
    link = temp / "ptoa-open-link"
    link.symlink_to(other)
    os.utime(link, (long_ago, long_ago), follow_symlinks=False)
    assert open_in_browser(URL)
    assert not old.exists()
    assert (new / "open.html").exists()
    assert (other / "open.html").exists()


def test_the_token_is_in_no_command_line(temp, monkeypatch, tools):
    seen = temp / "argv"
    monkeypatch.setenv(
        "BROWSER", f'{sys.executable} -c \'import sys;open("{seen}","w").write(str(sys.argv))\' %s'
    )
    assert open_in_browser(URL)
    assert tools.wait_until(lambda: seen.exists() and seen.read_text())
    assert "s3cret" not in seen.read_text()
    assert "file://" in seen.read_text()
