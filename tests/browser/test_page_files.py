"""What the page shows without a live run: a link's architecture, a dropped file, a report."""

from __future__ import annotations

import base64
import gzip
import json

import pytest

from papertoanything.cli import main
from ptoa_bridge.page import STATIC_FOLDER
from ptoa_bridge.report import spec_html
from ptoa_core import link
from ptoa_core.jsontext import dumps

pytest.importorskip("playwright")
from playwright.sync_api import expect


@pytest.fixture
def run_text(tiny_spec, frame):
    """A run file of eight frames."""
    header = {
        "protocol": "pta-run",
        "v": 1,
        "producer": {"name": "test", "version": "0"},
        "spec": tiny_spec.to_dict(),
    }
    lines = [header, *({"event": "health", "data": frame(step)} for step in range(8))]
    return "".join(json.dumps(line) + "\n" for line in lines)


@pytest.fixture
def empty_page(visit, bridge):
    """The page without a token."""
    return visit(f"http://127.0.0.1:{bridge.port}/")


def drop(page, name, text):
    """Drop a file on the page."""
    script = """([name, text]) => {
        const dataTransfer = new DataTransfer();
        dataTransfer.items.add(new File([text], name));
        document.body.dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
    }"""
    page.evaluate(script, [name, text])


def test_an_architecture_in_the_address_is_shown_without_a_token(visit, bridge, tiny_spec):
    origin = f"http://127.0.0.1:{bridge.port}"
    seen = visit(f"{origin}/#s={link.spec_to_payload(tiny_spec)}")
    expect(seen.page.locator("#model-name")).to_have_text("Tiny")
    expect(seen.page.locator('[data-tree="a0"]')).to_be_visible()
    expect(seen.page.locator("#state")).to_have_attribute("data-state", "link")
    assert [url for url in seen.urls if "/events" in url] == []
    assert seen.problems == []


def test_a_damaged_link_is_one_clear_sentence(visit, bridge, tiny_spec):
    payload = link.spec_to_payload(tiny_spec)
    seen = visit(f"http://127.0.0.1:{bridge.port}/#s={payload[:-9]}")
    expect(seen.page.locator("#state")).to_have_attribute("data-state", "failed")
    expect(seen.page.locator("#state")).to_contain_text("link")


def test_a_dropped_run_file_is_shown(empty_page, run_text):
    drop(empty_page.page, "run.pta", run_text)
    expect(empty_page.page.locator("#state")).to_have_attribute("data-state", "file")
    expect(empty_page.page.locator("#frames")).to_have_text("8")
    expect(empty_page.page.locator('[data-block="m0"] [data-measure="std"]')).to_have_text("8.000")
    assert empty_page.problems == []


@pytest.mark.parametrize("kind", ["pta", "spec"])
def test_an_opened_file_is_told_by_its_content(empty_page, tiny_spec, tmp_path, kind):
    spec = tiny_spec.to_dict()
    value = spec if kind == "spec" else {"protocol": "pta-file", "v": 1, "producer": {}, "spec": spec}
    file = tmp_path / "model.txt"
    file.write_text(dumps(value), "utf-8")
    empty_page.page.set_input_files("#file", file)
    expect(empty_page.page.locator("#model-name")).to_have_text("Tiny")


def test_a_file_that_is_opened_takes_the_place_of_the_live_run(visit, bridge, run_text, frame, tmp_path):
    bridge.push_health(frame(0))
    seen = visit(bridge.local_url)
    expect(seen.page.locator("#frames")).to_have_text("1")
    file = tmp_path / "run.pta"
    file.write_text(run_text, "utf-8")
    seen.page.set_input_files("#file", file)
    expect(seen.page.locator("#frames")).to_have_text("8")
    bridge.push_health(frame(1))
    expect(seen.page.locator("#state")).to_have_attribute("data-state", "file")
    expect(seen.page.locator("#frames")).to_have_text("8")


def test_a_run_that_is_dropped_lies_over_the_one_that_is_here(visit, bridge, run_text, frame):
    """The live run goes on; the other has its name, its own readings, and a way to be rid of it."""
    for step in range(12):
        bridge.push_health(frame(step, loss=5.0))
    seen = visit(bridge.local_url)
    expect(seen.page.locator("#frames")).to_have_text("12")
    drop(seen.page, "before.pta", run_text)
    over = seen.page.locator("#other")
    expect(over).to_contain_text("before.pta")
    expect(over).to_contain_text("8 frames")
    expect(seen.page.locator("#chart-loss output")).to_have_text(["5.000", "0.7047"])
    bridge.push_health(frame(12, loss=6.0))
    expect(seen.page.locator("#frames")).to_have_text("13")
    expect(seen.page.locator("#state")).to_have_attribute("data-state", "live")
    over.get_by_role("button", name="Remove").click()
    expect(over).to_be_hidden()
    expect(seen.page.locator("#chart-loss output")).to_have_text(["6.000"])
    assert seen.problems == []


def test_a_dropped_run_that_is_damaged_leaves_the_one_that_is_here(visit, bridge, frame):
    bridge.push_health(frame(0))
    seen = visit(bridge.local_url)
    expect(seen.page.locator("#frames")).to_have_text("1")
    drop(seen.page, "bad.pta", '{"protocol":"pta-run","v":2}\n')
    expect(seen.page.locator("#other")).to_contain_text("version")
    expect(seen.page.locator("#frames")).to_have_text("1")
    expect(seen.page.locator("#state")).to_have_attribute("data-state", "live")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty"),
        ("not JSON", "is not valid JSON"),
        ('{"protocol":"other"}', "which this page does not know"),
        ('{"v":1,"name":"x","blocks":[],"output":"l0","origin":{"kind":"lab"}}', "is no block"),
        ('{"v":1,"v":1}', "comes twice"),
        ('{"event":"health"}\n', "has no header"),
    ],
    ids=["empty", "not JSON", "other protocol", "no output", "duplicate key", "no header"],
)
def test_a_bad_file_is_one_clear_sentence(empty_page, text, sentence):
    drop(empty_page.page, "bad.pta", text)
    expect(empty_page.page.locator("#state")).to_have_attribute("data-state", "failed")
    expect(empty_page.page.locator("#state")).to_contain_text(sentence)
    assert empty_page.problems == []


def test_a_run_cut_short_says_so_and_shows_the_rest(empty_page, run_text):
    drop(empty_page.page, "run.pta", run_text[:-40])
    expect(empty_page.page.locator("#frames")).to_have_text("7")
    expect(empty_page.page.get_by_role("alert")).to_contain_text("cut short")


def report(text):
    """The report file with ``text`` as its data."""
    page = (STATIC_FOLDER / "report.html").read_text("utf-8")
    return page.replace("<!--PTOA-DATA-->", base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode())


def test_a_report_shows_its_data_from_a_file_without_any_request(visit, run_text, tmp_path):
    file = tmp_path / "report.html"
    file.write_text(report(run_text), "utf-8")
    seen = visit(file.as_uri())
    expect(seen.page.locator("#state")).to_have_attribute("data-state", "report")
    expect(seen.page.locator("#frames")).to_have_text("8")
    expect(seen.page.locator("#loss-points")).to_have_text("8 points")
    assert seen.problems == []
    assert [url for url in seen.urls if not url.startswith("data:")] == [file.as_uri()]


def test_a_script_in_a_reports_data_does_not_run(visit, tmp_path):
    file = tmp_path / "report.html"
    page = (STATIC_FOLDER / "report.html").read_text("utf-8")
    attack = "</script><script>document.title='attacked'</script><script type='text/plain'>"
    file.write_text(page.replace("<!--PTOA-DATA-->", attack), "utf-8")
    seen = visit(file.as_uri())
    expect(seen.page.locator("#state")).to_be_visible()
    assert seen.page.title() != "attacked"
    assert any("script-src" in problem for problem in seen.problems)


def test_a_report_that_the_command_wrote_shows_any_step_whole(visit, run_text, tmp_path, monkeypatch, capsys):
    """From `ptoa report` to a step on the slider, whose histogram is read again from inside the page."""
    monkeypatch.chdir(tmp_path)
    hist = '"infCount": 0, "hist": [' + ",".join(["1"] * 32) + "]"
    (tmp_path / "run.pta").write_text(run_text.replace('"infCount": 0', hist), "utf-8")
    assert main(["report", "run.pta"]) == 0
    seen = visit((tmp_path / "run.html").as_uri())
    expect(seen.page.locator("#frames")).to_have_text("8")
    seen.page.locator('[data-block="a0"]').click()
    seen.page.locator("#slider").fill("2")
    expect(seen.page.locator("#chosen")).to_contain_text("step 2")
    expect(seen.page.locator('[data-block="m0"] [data-measure="std"]')).to_have_text("3.000")
    expect(seen.page.locator("#details .histogram")).to_have_count(1)
    assert seen.problems == []
    assert [url for url in seen.urls if not url.startswith("data:")] == [(tmp_path / "run.html").as_uri()]


def test_a_notebook_shows_a_spec_in_a_frame_of_its_own(visit, tiny_spec, tmp_path):
    """A stranger's name does nothing to the notebook, and the frame works there without any rights."""
    tiny_spec.name = '"></iframe><script>document.title="attacked"</script>'
    notebook = tmp_path / "notebook.html"
    notebook.write_text(f"<!doctype html><title>notebook</title>{spec_html(tiny_spec)}", "utf-8")
    seen = visit(notebook.as_uri())
    inside = seen.page.frame_locator("iframe")
    expect(inside.locator("#model-name")).to_contain_text("document.title")
    expect(inside.locator('[data-tree="a0"]')).to_be_visible()
    assert seen.page.title() == "notebook"
    assert seen.problems == []
