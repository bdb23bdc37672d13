"""What the side panel shows of a block: the tensors of a forward pass and the patterns of its heads."""

from __future__ import annotations

import base64
import struct

import pytest

pytest.importorskip("playwright")
from playwright.sync_api import expect


def floats(*values):
    """Base64 of little-endian float32."""
    return base64.b64encode(struct.pack(f"<{len(values)}f", *values)).decode()


def tensor(key, shape, values, corner=None):
    """A tensor as it travels."""
    cut = {} if corner is None else {"dataShape": corner}
    return {"key": key, "shape": shape, "b64": floats(*values), "clipped": corner is not None, **cut}


TRACE = {
    "step": 3,
    "tensors": [
        tensor("a0:out", [2, 2, 4], [float(i) - 8 for i in range(16)]),
        tensor("a0:weights", [1, 2, 2, 2], [1.0, 0.0, 0.5, 0.5, 1.0, 0.0, 0.0, 1.0]),
        tensor("m0:out", [4, 1000], [float("nan"), 2.0], [1, 2]),
        tensor("u0:out", [9000, 9000], [], [0, 0]),
    ],
}


@pytest.fixture
def traced(bridge):
    bridge.push(TRACE)
    return bridge


def choose(seen, block):
    """Select a block by search."""
    seen.page.locator("#find").click()
    seen.page.locator("#query").fill(block)
    seen.page.locator(f'[data-result="{block}"]').click()


def test_a_tensor_is_a_heat_map_whose_values_can_be_read(visit, traced):
    seen = visit(traced.local_url)
    choose(seen, "a0")
    figure = seen.page.locator('[data-tensor="a0:out"]')
    expect(figure).to_contain_text("2 × 2 × 4")
    heat = figure.locator("canvas.heat")
    box = heat.bounding_box()
    heat.hover(position={"x": box["width"] - 2, "y": box["height"] - 2})
    expect(figure.locator("output")).to_have_text("[0, 1, 3] −1.000")
    figure.get_by_label("Slice").press("End")
    heat.focus()
    heat.press("ArrowUp")
    expect(figure.locator("output")).to_have_text("[1, 0, 3] 3.000")
    assert seen.problems == []


def test_a_tensor_that_was_cut_says_so_and_shows_its_nan(visit, traced):
    seen = visit(traced.local_url)
    choose(seen, "m0")
    figure = seen.page.locator('[data-tensor="m0:out"]')
    expect(figure).to_contain_text("4 × 1000")
    expect(figure.locator(".clipped")).to_have_text("clipped to 1 × 2")
    figure.locator("canvas.heat").focus()
    expect(figure.locator("output")).to_have_text("[0, 0] NaN")
    choose(seen, "u0")
    expect(seen.page.locator('[data-tensor="u0:out"] .clipped')).to_have_text("too large to be sent")


def test_heads_are_a_grid_with_their_entropy(visit, traced, frame):
    seen = visit(traced.local_url)
    choose(seen, "a0")
    heads = seen.page.locator("[data-head]")
    expect(heads).to_have_count(2)
    expect(heads.nth(0)).to_contain_text("0.3466")
    patterns = [{"head": head, "size": 2, "b64": floats(0.25, 0.75, 1.0, 0.0)} for head in range(3)]
    health = frame(0)
    health["blocks"][0] |= {"headEntropy": [1.5, 0.25, 0.5], "headPattern": patterns}
    traced.push_health(health)
    expect(heads).to_have_count(3)
    expect(heads.nth(1)).to_have_text("1 0.2500")
    pattern = heads.nth(2).locator("canvas")
    pattern.focus()
    pattern.press("ArrowRight")
    expect(seen.page.get_by_label("Attention heads")).to_contain_text("head 2, 0 reads 1: 0.7500")
    assert seen.problems == []


def test_what_a_block_reads_is_a_way_to_it(visit, traced):
    seen = visit(traced.local_url)
    choose(seen, "a0")
    seen.page.locator("#details").get_by_role("button", name="wte").click()
    expect(seen.page.locator('[data-tree="e0"]')).to_have_attribute("aria-selected", "true")
