"""What can be taken along from the page: pictures of the graph, and the hosted Lab's link."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from ptoa_core import link as links

pytest.importorskip("playwright")
from playwright.sync_api import expect


def saved(seen, kind):
    """The bytes and the name of a file that the menu saves."""
    seen.page.locator("#export summary").click()
    with seen.page.expect_download() as download:
        seen.page.locator("#export").get_by_role("button", name=kind).click()
    return download.value.path().read_bytes(), download.value.suggested_filename


def test_the_graph_is_saved_as_svg(visit, bridge):
    seen = visit(bridge.local_url)
    data, name = saved(seen, "SVG")
    assert name == "Tiny.svg"
    said = {text.text for text in ET.fromstring(data).iter("{http://www.w3.org/2000/svg}text")}
    assert {"tokens", "wte", "lm_head"} <= said
    assert seen.problems == []


def test_the_graph_is_saved_as_png(visit, bridge):
    seen = visit(bridge.local_url)
    data, name = saved(seen, "PNG")
    assert name == "Tiny.png"
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))
    assert width > 100
    assert height > width
    assert seen.problems == []


def test_the_labs_link_is_copied_and_python_reads_the_same_model_from_it(visit, bridge, tiny_spec):
    seen = visit(bridge.local_url)
    seen.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    seen.page.locator("#export summary").click()
    seen.page.locator("#copy-link").click()
    expect(seen.page.locator("#export [role=status]")).to_have_text("Copied")
    link = seen.page.evaluate("() => navigator.clipboard.readText()")
    assert links.decode(link).to_dict() == tiny_spec.to_dict()
