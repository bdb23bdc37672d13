"""What a notebook shows for a watch: the page with its frames, and something in any case."""

from __future__ import annotations

import base64
import gzip
import html
import json
import re

import pytest
import torch
from torch import nn

from ptoa_bridge import report
from ptoa_torch.watch import Watch


@pytest.fixture
def static(tmp_path, monkeypatch):
    """A page that was built, as far as a notebook is concerned."""
    (tmp_path / "report.html").write_bytes(b"<i id=d><!--PTOA-DATA--></i>")
    monkeypatch.setattr(report, "STATIC_FOLDER", tmp_path)
    return tmp_path


def watched(steps):
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Watch(model, optimizer, every=1, open=False, run_file=False) as w:
        for _ in range(steps):
            optimizer.zero_grad()
            loss = model(torch.ones(3, 4)).square().mean()
            loss.backward()
            optimizer.step()
            w.step(loss)
    return w


def test_a_watch_shows_its_frames(static):
    document = html.unescape(re.search(r'srcdoc="([^"]*)"', watched(3)._repr_html_())[1])
    data = gzip.decompress(base64.b64decode(re.search("<i id=d>(.*)</i>", document)[1]))
    header, *lines = map(json.loads, data.splitlines())
    assert header["spec"]["blocks"]
    assert [line["data"]["step"] for line in lines] == [0, 1, 2]


def test_a_watch_that_has_seen_nothing_shows_a_line(static):
    assert watched(0)._repr_html_().startswith("<code>&lt;Watch of Linear: 0 steps")


def test_without_the_page_a_watch_shows_the_blocks(static):
    (static / "report.html").unlink()
    assert "<table>" in watched(1)._repr_html_()
