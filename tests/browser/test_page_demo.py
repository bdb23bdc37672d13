"""The main job, as a person meets it: the demo trains a tiny GPT, and the page shows it while it does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("playwright")
from playwright.sync_api import expect

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "watch_tiny_gpt.py"
ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)/#token=[\w-]+")


@pytest.fixture
def demo(tmp_path):
    """The example in a process of its own, with more steps than a test waits for, and its page's address."""
    env = {**os.environ, "PTA_NO_BROWSER": "1", "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, str(EXAMPLE), "--steps", "100000"]
    with subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            found = next(filter(None, map(ADDRESS.search, process.stdout)))
            yield process, found[0], found[1]
        finally:
            process.kill()


def number_in(locator):
    """The first whole number in what an element says."""
    return int(re.search(r"\d+", locator.inner_text())[0])


def test_the_demo_trains_and_its_page_shows_it(visit, demo):
    """The loss line grows, a block's row changes, nothing goes wrong, and no request leaves this machine."""
    process, address, port = demo
    seen = visit(address)
    points = seen.page.locator("#loss-points")
    norm = seen.page.locator('[data-block="a0"] [data-measure="std"]')
    expect(points).to_have_text(re.compile(r"[1-9]\d* points"), timeout=30_000)
    before, said = number_in(points), norm.inner_text()
    expect(points).not_to_have_text(f"{before} points", timeout=30_000)
    expect(norm).not_to_have_text(said, timeout=30_000)
    assert number_in(points) > before
    expect(seen.page.locator("#state")).to_have_attribute("data-state", "live")
    assert "token" not in seen.page.url

    process.terminate()
    expect(seen.page.locator("#state")).to_have_attribute("data-state", "ended", timeout=30_000)
    assert seen.problems == []
    assert seen.strangers(f"http://127.0.0.1:{port}") == []
