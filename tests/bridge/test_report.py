"""A report: the page, with data inside that cannot get out of their place."""

from __future__ import annotations

import base64
import gzip
import html
import json
import re

import pytest

from ptoa_bridge import report
from ptoa_core.errors import FileError
from ptoa_core.frames import HealthFrame
from ptoa_core.spec import Block, ModelSpec

EVIL = "</script><script>alert(1)</script>\u2028<!--PTOA-DATA-->\"'&"


@pytest.fixture
def page(tmp_path, monkeypatch):
    """A page like the built one, as far as a report is concerned."""
    (tmp_path / "report.html").write_bytes(b"<!doctype html><i id=d><!--PTOA-DATA--></i>")
    monkeypatch.setattr(report, "STATIC_FOLDER", tmp_path)
    return tmp_path / "report.html"


@pytest.fixture
def spec():
    return ModelSpec(EVIL, [Block("t0", "tokens", label=EVIL)], "t0")


def data_in(document):
    """What the block of a report holds, unpacked."""
    text = document.decode() if isinstance(document, bytes) else document
    return gzip.decompress(base64.b64decode(re.search(r"<i id=d>(.*)</i>", text)[1], validate=True))


def document_of(cell):
    """The page inside a notebook's frame."""
    return html.unescape(re.search(r'srcdoc="([^"]*)"', cell)[1])


def test_a_report_gives_back_its_data(page):
    assert data_in(report.report_page([b"a\n", b"", b"b" * 3_000_000])) == b"a\n" + b"b" * 3_000_000


def test_a_strangers_text_stands_nowhere_in_a_report(page, spec):
    document = report.report_page(report.run_lines(spec, []))
    assert document.count(b"<") == page.read_bytes().count(b"<") - 1
    assert json.loads(data_in(document))["spec"]["name"] == EVIL


def test_the_same_data_make_the_same_report(page):
    assert report.report_page([b"x"]) == report.report_page([b"x"])


def test_data_that_a_browser_may_not_open_are_refused(page, monkeypatch):
    monkeypatch.setattr(report, "MAX_REPORT_BYTES", 1 << 20)
    noise = (bytes(range(256)) * 16, b"")
    with pytest.raises(FileError, match="ptoa view"):
        report.report_page(str(i).encode() + noise[0][i % 200 :] for i in range(1_000_000))


def test_without_a_built_page_it_is_said_how_to_build_it(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "STATIC_FOLDER", tmp_path)
    with pytest.raises(FileError, match="npm run build"):
        report.report_page([b"x"])


def test_a_page_without_a_place_for_data_is_refused(page):
    page.write_bytes(b"<!doctype html>")
    with pytest.raises(FileError, match="build the page again"):
        report.report_page([b"x"])


def test_a_cell_is_one_frame_apart_from_its_notebook(page, spec):
    """A stranger's name is in no attribute raw; the frame may run its script and nothing else."""
    cell = report.spec_html(spec)
    assert cell.count("<") == 2
    assert cell.startswith("<iframe ")
    assert 'sandbox="allow-scripts allow-downloads"' in cell
    assert "allow-same-origin" not in cell
    assert json.loads(data_in(document_of(cell)))["name"] == EVIL


def steps_in(cell):
    lines = data_in(document_of(cell)).splitlines()[1:]
    return [json.loads(line)["data"]["step"] for line in lines]


@pytest.mark.parametrize("count", [0, 1, 3, 400, 401, 5000])
def test_a_run_in_a_cell_ends_with_its_newest_frame(page, spec, count):
    steps = steps_in(report.run_html(spec, [HealthFrame(i, 0.0, None, []) for i in range(count)]))
    assert len(steps) <= 400
    assert len(steps) >= min(count, 100)
    assert steps[-1:] == list(range(count))[-1:]
    assert len(set(map(int.__sub__, steps[1:], steps))) <= 1


def test_a_run_of_large_frames_fits_into_a_cell(page, spec, monkeypatch):
    monkeypatch.setattr(report, "_CELL_BYTES", 2_000)
    frames = [HealthFrame(i, 0.1 * i, 1 / (i + 1), []) for i in range(300)]
    cell = report.run_html(spec, frames)
    assert len(document_of(cell)) < 2_200
    assert steps_in(cell)[-1] == 299


def test_a_model_that_no_notebook_should_hold_is_refused(page, monkeypatch):
    monkeypatch.setattr(report, "_CELL_BYTES", 100)
    with pytest.raises(FileError, match="notebook"):
        report.spec_html(ModelSpec("x" * 1000, [], ""))
    with pytest.raises(FileError, match="notebook"):
        report.run_html(ModelSpec("x" * 1000, [], ""), [HealthFrame(0, 0.0, None, [])])
