"""How people get to the page: a link in a notebook, a redirect file, a reload. And where the token stays."""

from __future__ import annotations

import functools
import http.server
import threading

import pytest

pytest.importorskip("playwright")
from playwright.sync_api import expect


@pytest.fixture
def notebook(tmp_path):
    """Another program's page with a link in it; gives its port."""
    handler = functools.partial(QuietHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Say nothing."""


def expect_open(page):
    expect(page.locator("#model-name")).to_have_text("Tiny")
    expect(page.locator("#state")).to_have_attribute("data-state", "no-frames")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"], ids=["cross-site", "same-site"])
def test_a_link_on_another_page_opens_it(visit, bridge, notebook, tmp_path, host):
    """From localhost the navigation is cross-site, from another port of 127.0.0.1 same-site."""
    text = f'<link rel="icon" href="data:,"><a target="_blank" href="{bridge.local_url}">page</a>'
    (tmp_path / "index.html").write_text(text)
    seen = visit(f"http://{host}:{notebook}/")
    with seen.page.context.expect_page() as opened:
        seen.page.click("a")
    expect_open(opened.value)


def test_a_redirect_file_opens_it(visit, bridge, tmp_path):
    """A browser is opened on a file, so that the token is in no command line."""
    file = tmp_path / "open.html"
    file.write_text(f'<meta http-equiv="refresh" content="0;url={bridge.local_url}">')
    seen = visit(file.as_uri())
    expect_open(seen.page)
    assert seen.problems == []


@pytest.mark.parametrize("form", ["/#token={}", "/?token={}"], ids=["fragment", "query"])
def test_the_token_leaves_the_address_bar_and_a_reload_works(visit, bridge, form):
    origin = f"http://127.0.0.1:{bridge.port}"
    seen = visit(origin + form.format(bridge.token))
    expect_open(seen.page)
    assert seen.page.url == f"{origin}/"
    seen.page.reload()
    expect_open(seen.page)
    assert seen.problems == []


def test_the_token_stays_in_this_tab(visit, bridge):
    """Another tab of the same origin has no token of its own."""
    seen = visit(bridge.local_url)
    expect_open(seen.page)
    other = seen.page.context.new_page()
    other.goto(f"http://127.0.0.1:{bridge.port}/")
    expect(other.locator("#state")).to_have_attribute("data-state", "no-token")


def test_a_newer_link_in_the_same_tab_is_followed(visit, bridge):
    seen = visit(f"http://127.0.0.1:{bridge.port}/#token=old")
    expect(seen.page.locator("#state")).to_have_attribute("data-state", "wrong-token")
    seen.page.evaluate("(token) => { location.hash = `token=${token}`; }", bridge.token)
    expect_open(seen.page)
    assert seen.page.url == f"http://127.0.0.1:{bridge.port}/"
