"""A headless Chromium, a real bridge, and what a test wants to know of a visit: problems and requests.

Nothing here sleeps: playwright's ``expect`` asks the page again until it holds or time is up.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import socket
import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from ptoa_bridge import Bridge
from ptoa_bridge.page import STATIC_FOLDER
from ptoa_core.spec import ModelSpec

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

# A breach of the page's policy is an event; as a console error it is counted with the others.
REPORT_BREACHES = """
addEventListener("securitypolicyviolation",
    (event) => console.error("policy", event.violatedDirective, event.blockedURI));
"""


def unavailable(reason):
    """Skip on a machine without what a browser test needs; in CI that is a failure."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def browser():
    if not (STATIC_FOLDER / "index.html").is_file():
        unavailable("the page is not built: cd packages/ptoa-bridge/viewer && npm ci && npm run build")
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        unavailable("playwright is not installed")
    program = os.environ.get("PTOA_CHROMIUM") or next(filter(None, map(shutil.which, CHROMIUM)), None)
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    flags = [*FLAGS, *(["--no-sandbox"] if is_root else [])]
    with sync_playwright() as playwright:
        if program is None and not os.path.exists(playwright.chromium.executable_path):  # noqa: PTH110  # text, not a path
            unavailable("no Chromium on this machine: apt-get install chromium")
        running = playwright.chromium.launch(executable_path=program, args=flags)
        yield running
        running.close()


@dataclass
class Visit:
    """A page, what went wrong on it, and every address that its tab asked for."""

    page: Any
    problems: list[str] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)

    def watch(self):
        """Gather from now on."""
        self.page.on(
            "console", lambda line: line.type in ("error", "warning") and self.problems.append(line.text)
        )
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.urls.append(request.url))
        return self

    def strangers(self, origin):
        """Requests that went anywhere but to ``origin``; data and blob addresses go nowhere."""
        return [url for url in self.urls if not url.startswith((f"{origin}/", "data:", "blob:"))]


@pytest.fixture
def visit(browser):
    """Opens an address in a fresh profile."""
    with contextlib.ExitStack() as stack:

        def open_page(url, *, width=1280, height=800, scheme="light"):
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
            stack.callback(context.close)
            context.add_init_script(REPORT_BREACHES)
            seen = Visit(context.new_page()).watch()
            seen.page.goto(url)
            return seen

        yield open_page


def block(name, kind, inputs=(), **rest):
    """A block's JSON."""
    return {"id": name, "kind": kind, "params": {}, "inputs": list(inputs), **rest}


def spec_of(name, blocks, source="tiny.py:Tiny"):
    """A spec whose output is the last block."""
    origin = {"kind": "torch", "source": source}
    value = {"v": 1, "name": name, "blocks": blocks, "output": blocks[-1]["id"], "origin": origin}
    return ModelSpec.from_dict(value)


@pytest.fixture
def make_spec():
    """``spec_of`` for tests that need a model of their own."""
    return spec_of


@pytest.fixture
def make_block():
    """``block`` for the same."""
    return block


@pytest.fixture
def tiny_spec():
    """A transformer of one layer."""
    blocks = [
        block("g0", "group", label="h.0 (Block)"),
        block("t0", "tokens"),
        block("e0", "embedding", ["t0"], label="wte"),
        block("a0", "attention", ["e0"], label="h.0.attn", group="g0"),
        block("m0", "mlp", ["a0"], label="h.0.mlp", group="g0"),
        block("u0", "unembed", ["m0"], label="lm_head"),
    ]
    return spec_of("Tiny", blocks)


@pytest.fixture
def frame():
    """Makes the health of one step, whose numbers follow from the step alone."""

    def make(step, names=("a0", "m0"), **rest):
        stats = {"mean": 0.0, "std": 1 + step, "absMax": 4.0, "zeroFrac": 0.25, "nanCount": 0, "infCount": 0}
        blocks = [{"id": name, "act": stats, "weightNorm": 10.0 + step} for name in names]
        return {"step": step, "t": 100.0 * step, "loss": math.exp(-step / 20), "blocks": blocks, **rest}

    return make


@pytest.fixture
def bridge(tiny_spec):
    with Bridge(tiny_spec) as running:
        yield running


class Tunnel:
    """A port of this machine that leads to another, like ``ssh -L``, and can be cut and mended."""

    def __init__(self, target):
        self.target = target
        self.port = 0
        self._open = set()
        self._listener = None
        self.mend()

    def mend(self):
        """Listen, on the same port as before."""
        self._listener = socket.create_server(("127.0.0.1", self.port), reuse_port=False)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def cut(self):
        """Break what is open and listen no more."""
        for one in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self._open.clear()

    def _accept(self, listener):
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(("127.0.0.1", self.target))
                self._open |= {near, far}
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=pair, daemon=True).start()

    def _carry(self, source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


@pytest.fixture
def tunnel(bridge):
    between = Tunnel(bridge.port)
    yield between
    between.cut()
