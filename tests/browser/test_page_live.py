"""The page on a real bridge: what it shows while frames come, and what it says when they do not."""

from __future__ import annotations

import re

import pytest

from ptoa_bridge import Bridge

pytest.importorskip("playwright")
from playwright.sync_api import expect


def state(seen):
    return seen.page.locator("#state")


def test_the_loss_line_grows_and_a_block_row_changes_while_frames_come(visit, bridge, frame):
    bridge.push_health(frame(0))
    seen = visit(bridge.local_url)
    std = seen.page.locator('[data-block="a0"] [data-measure="std"]')
    expect(seen.page.locator("#frames")).to_have_text("1")
    expect(std).to_have_text("1.000")
    for step in range(1, 30):
        bridge.push_health(frame(step))
    expect(seen.page.locator("#loss-points")).to_have_text("30 points")
    expect(std).to_have_text("30.00")
    expect(state(seen)).to_have_attribute("data-state", "live")
    assert seen.problems == []
    assert seen.strangers(f"http://127.0.0.1:{bridge.port}") == []


def test_the_loss_line_is_drawn_in_its_colour(visit, bridge, frame):
    """The canvas holds pixels of the first curve's colour, not only an axis."""
    for step in range(50):
        bridge.push_health(frame(step))
    seen = visit(bridge.local_url)
    expect(seen.page.locator("#chart-loss")).to_have_attribute("data-points", "50")
    count = """(canvas) => {
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        let blue = 0;
        for (let i = 0; i < data.length; i += 4) {
            if (data[i] < 40 && data[i + 1] > 90 && data[i + 2] > 150 && data[i + 3] > 200) blue++;
        }
        return blue;
    }"""
    expect(seen.page.locator("#chart-loss canvas")).to_be_visible()
    assert seen.page.locator("#chart-loss canvas").evaluate(count) > 100


def test_frames_pushed_before_the_page_came_are_shown(visit, bridge, frame):
    for step in range(200):
        bridge.push_health(frame(step))
    seen = visit(bridge.local_url)
    expect(seen.page.locator("#frames")).to_have_text("200")


def test_numbers_that_are_not_finite_are_named(visit, bridge, frame):
    bridge.push_health(frame(0))
    bridge.push_health(frame(1, loss=float("nan"), gradNorm=float("inf")))
    seen = visit(bridge.local_url)
    expect(seen.page.locator("#chart-loss output").first).to_have_text("NaN")
    expect(seen.page.locator("#chart-gradient output")).to_have_text("Inf")
    expect(seen.page.locator("#loss-points")).to_have_text("2 points")


def test_a_new_run_on_the_same_bridge_starts_again(visit, bridge, tiny_spec, frame):
    for step in range(5):
        bridge.push_health(frame(step))
    seen = visit(bridge.local_url)
    expect(seen.page.locator("#frames")).to_have_text("5")
    bridge.begin(tiny_spec)
    bridge.push_health(frame(0))
    expect(seen.page.locator("#frames")).to_have_text("1")


def test_a_page_that_comes_first_waits_for_the_model_and_for_frames(visit, tiny_spec, frame):
    with Bridge() as bridge:
        seen = visit(bridge.local_url)
        expect(state(seen)).to_have_attribute("data-state", "no-model")
        bridge.begin(tiny_spec)
        expect(state(seen)).to_have_attribute("data-state", "no-frames")
        expect(seen.page.locator("#model-name")).to_have_text("Tiny")
        bridge.push_health(frame(0))
        expect(state(seen)).to_have_attribute("data-state", "live")


def test_the_end_of_the_run_is_said_and_its_data_stay(visit, tiny_spec, frame):
    bridge = Bridge(tiny_spec).start()
    for step in range(3):
        bridge.push_health(frame(step))
    seen = visit(bridge.local_url)
    expect(seen.page.locator("#frames")).to_have_text("3")
    bridge.close()
    expect(state(seen)).to_have_attribute("data-state", "ended")
    expect(seen.page.locator("#frames")).to_have_text("3")
    assert seen.problems == []


def test_a_wrong_token_is_said(visit, bridge):
    seen = visit(bridge.local_url + "x")
    expect(state(seen)).to_have_attribute("data-state", "wrong-token")
    expect(state(seen)).to_contain_text("newest link")


def test_no_token_is_said_without_asking_the_bridge(visit, bridge):
    seen = visit(f"http://127.0.0.1:{bridge.port}/")
    expect(state(seen)).to_have_attribute("data-state", "no-token")
    assert [url for url in seen.urls if re.search(r"/(events|health|spec|trace)\b", url)] == []


def test_a_broken_connection_is_said_and_resumes_without_a_gap(visit, bridge, tunnel, frame):
    for step in range(3):
        bridge.push_health(frame(step))
    seen = visit(bridge.local_url.replace(f":{bridge.port}/", f":{tunnel.port}/"))
    expect(seen.page.locator("#frames")).to_have_text("3")
    tunnel.cut()
    expect(state(seen)).to_have_attribute("data-state", "gone")
    for step in range(3, 9):
        bridge.push_health(frame(step))
    tunnel.mend()
    expect(seen.page.locator("#frames")).to_have_text("9", timeout=20_000)
    expect(state(seen)).to_have_attribute("data-state", "live")
