"""The local page in Firefox, driven by WebDriver BiDi, which Firefox speaks by itself."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import shutil
import subprocess
import time

import pytest

from ptoa_bridge import Bridge

from .conftest import unavailable

DEADLINE = 60


class Firefox:
    """A headless Firefox with one tab."""

    def __init__(self, program, profile):
        from websockets.sync.client import connect

        flags = ["--headless", "--no-remote", "--remote-debugging-port=0", "--profile", str(profile)]
        output = {"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL, "text": True}
        self._process = subprocess.Popen([program, *flags], **output)
        self._stack = contextlib.ExitStack()
        self._stack.callback(self._end)
        lines = iter(self._process.stderr.readline, "")
        address = next(filter(None, (re.search(r"ws://127\.0\.0\.1:\d+", line) for line in lines))).group()
        self._socket = self._stack.enter_context(connect(f"{address}/session", max_size=None))
        self._numbers = itertools.count()
        self.problems = []
        self.ask("session.new", capabilities={})
        self.ask("session.subscribe", events=["log.entryAdded"])
        self._tab = self.ask("browsingContext.getTree")["contexts"][0]["context"]

    def ask(self, method, **params):
        """A command's result; what the console says meanwhile is kept."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            answer = json.loads(self._socket.recv(timeout=DEADLINE))
            if answer.get("method") == "log.entryAdded" and answer["params"]["level"] in ("error", "warn"):
                self.problems.append(answer["params"]["text"])
            if answer.get("id") == number:
                assert answer["type"] == "success", answer
                return answer["result"]

    def visit(self, url):
        """Open a page."""
        self.ask("browsingContext.navigate", context=self._tab, url=url, wait="complete")

    def read(self, expression):
        """The value of an expression that gives a string or a number."""
        target = {"context": self._tab}
        found = self.ask("script.evaluate", expression=expression, target=target, awaitPromise=True)
        assert found["type"] == "success", found
        return found["result"].get("value")

    def until(self, expression, wanted):
        """Ask the page again until it gives what is wanted."""
        end = time.monotonic() + DEADLINE
        while (found := self.read(expression)) != wanted:
            assert time.monotonic() < end, f"{expression} is {found!r}, wanted {wanted!r}"

    def close(self):
        """End it."""
        self._stack.close()

    def _end(self):
        self._process.terminate()
        self._process.wait(DEADLINE)
        self._process.stderr.close()


@pytest.fixture(scope="module")
def firefox(tmp_path_factory):
    pytest.importorskip("websockets")
    program = shutil.which("firefox-esr") or shutil.which("firefox")
    if program is None:
        unavailable("no Firefox on this machine: apt-get install firefox-esr")
    running = Firefox(program, tmp_path_factory.mktemp("firefox"))
    yield running
    running.close()


PAINTED = """(() => {
    const canvas = document.querySelector('#graph');
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    return data.some((value) => value > 0);
})()"""


def test_the_page_draws_the_model_and_follows_training(firefox, tiny_spec, frame):
    with Bridge(tiny_spec) as bridge:
        firefox.visit(bridge.local_url)
        firefox.until("document.querySelectorAll('[role=treeitem]').length > 0", True)
        firefox.until(PAINTED, True)
        for step in range(5):
            bridge.push_health(frame(step))
        firefox.until("document.querySelector('#frames').textContent", "5")
        firefox.until("document.querySelector('#chart-loss').dataset.points", "5")
        bridge.push_health(frame(5))
        firefox.until("document.querySelector('#chart-loss').dataset.points", "6")
        assert firefox.read("location.hash") == ""
        assert firefox.read("document.querySelectorAll('[data-block]').length") == 2
    firefox.until("document.querySelector('#state').dataset.state", "ended")
    assert firefox.problems == []
