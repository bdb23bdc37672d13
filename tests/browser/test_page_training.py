"""Training at any step: charts, map, table and slider, and what is wrong at first sight."""

from __future__ import annotations

import pytest

from ptoa_bridge import Bridge

pytest.importorskip("playwright")
from playwright.sync_api import expect

NAMES = [f"m{i}" for i in range(6)]


@pytest.fixture
def deep(make_spec, make_block):
    """Six MLPs in a row."""
    blocks = [make_block("i0", "input")]
    blocks += [make_block(f"m{i}", "mlp", [f"m{i - 1}" if i else "i0"], label=f"h.{i}.mlp") for i in range(6)]
    return make_spec("Deep", blocks)


def health(step, name, *, dead=0.1, gradient=1e-3, ratio=1e-3):
    """What one MLP measured."""
    stats = {"mean": 0.0, "absMax": 4.0, "nanCount": 0, "infCount": 0}
    return {
        "id": name,
        "act": {**stats, "std": 1.0 + step, "zeroFrac": 0.0},
        "hidden": {**stats, "std": 1.0, "zeroFrac": dead, "hist": [step] * 32},
        "grad": {**stats, "std": gradient, "zeroFrac": 0.0},
        "weightNorm": 10.0,
        "updateRatio": ratio,
    }


def frame(step, loss=1.0, **by_name):
    """One step of all six; `m3={"dead": 1.0}` says what is different in one."""
    blocks = [health(step, name, **by_name.get(name, {})) for name in NAMES]
    return {"step": 10 * step, "t": 500.0 * step, "loss": loss, "gradNorm": 1.0, "lr": 0.1, "blocks": blocks}


@pytest.fixture
def running(deep):
    with Bridge(deep) as bridge:
        yield bridge


def colours(page, places):
    """Colours of the map at shares of its width and height."""
    script = """(canvas, places) => places.map(([x, y]) => {
        const place = [66 + x * (canvas.clientWidth - 76), y * canvas.clientHeight];
        const at = place.map((n) => Math.floor(n * devicePixelRatio));
        return [...canvas.getContext("2d").getImageData(...at, 1, 1).data.slice(0, 3)];
    })"""
    return page.locator("#map-cells").evaluate(script, places)


def choose(page, measure):
    page.locator("#map-panel").get_by_role("button", name=measure).click()


def test_dead_units_stand_out_on_the_map_where_and_when_they_died(visit, running):
    for step in range(20):
        running.push_health(frame(step, m3={"dead": 1.0 if step >= 10 else 0.1}))
    seen = visit(running.local_url)
    expect(seen.page.locator("#frames")).to_have_text("20")
    choose(seen.page, "dead share")
    before, after, other = colours(seen.page, [(0.2, 3.5 / 6), (0.9, 3.5 / 6), (0.9, 1.5 / 6)])
    assert before == other
    assert sum(after) < sum(before) - 300  # dark on a light page


def test_vanishing_and_exploding_sizes_are_the_two_ends_of_a_scale(visit, running):
    for step in range(4):
        running.push_health(frame(step, m0={"gradient": 1e-9}, m5={"gradient": 10.0}))
    seen = visit(running.local_url)
    expect(seen.page.locator("#frames")).to_have_text("4")
    choose(seen.page, "gradient size")
    small, usual, large = colours(seen.page, [(0.5, 0.5 / 6), (0.5, 2.5 / 6), (0.5, 5.5 / 6)])
    assert small[2] > small[0] + 80, "blue where it vanishes"
    assert large[0] > large[2] + 80, "orange where it explodes"
    assert min(usual) > 200, "pale in between"


def test_nan_is_marked_on_charts_map_and_table_and_in_words(visit, running):
    nan = float("nan")
    for step in range(10):
        broken = {"loss": nan, "m2": {"ratio": nan}} if step >= 6 else {}
        running.push_health(frame(step, **broken))
    seen = visit(running.local_url)
    expect(seen.page.locator("#chart-loss .broken")).to_contain_text("step 60")
    expect(seen.page.locator("#loss-points")).to_have_text("10 points")
    expect(seen.page.locator('[data-block="m2"] [data-measure="updateRatio"]')).to_have_text("NaN")
    expect(seen.page.locator("#map-panel .broken-key")).to_be_visible()
    marks = {tuple(colour) for colour in colours(seen.page, [(0.9 + i / 1000, 2.5 / 6) for i in range(12)])}
    assert (214, 0, 110) in marks


def test_a_click_on_the_map_opens_that_block_at_that_step(visit, running):
    for step in range(11):
        running.push_health(frame(step))
    seen = visit(running.local_url)
    expect(seen.page.locator("#frames")).to_have_text("11")
    box = seen.page.locator("#map").bounding_box()
    middle = {"x": 66 + 0.5 * (box["width"] - 76), "y": 4.5 / 6 * box["height"]}
    seen.page.locator("#map").click(position=middle)
    expect(seen.page.locator("#chosen")).to_contain_text("step 50")
    expect(seen.page.locator('[data-block="m4"]')).to_have_attribute("aria-selected", "true")
    expect(seen.page.locator("#details h2")).to_contain_text("mlp")
    expect(seen.page.locator('[data-block="m4"] [data-measure="std"]')).to_have_text("6.000")
    seen.page.keyboard.press("ArrowRight")
    expect(seen.page.locator("#chosen")).to_contain_text("step 60")


def test_a_chosen_step_shows_its_histograms_from_the_bridge(visit, running):
    for step in range(5):
        running.push_health(frame(step))
    seen = visit(running.local_url)
    expect(seen.page.locator("#frames")).to_have_text("5")
    seen.page.locator('[data-block="m1"]').click()
    with seen.page.expect_request(lambda request: "/health?since=19" in request.url):
        seen.page.locator("#slider").fill("2")
    expect(seen.page.locator("#details .histogram")).to_have_count(1)
    running.push_health(frame(5))
    expect(seen.page.locator("#frames")).to_have_text("6")
    expect(seen.page.locator("#chosen")).to_contain_text("step 20")
    seen.page.locator("#follow").click()
    expect(seen.page.locator("#chosen")).to_contain_text("step 50")
    assert seen.problems == []


def test_paused_the_page_stands_still_and_loses_nothing(visit, running):
    running.push_health(frame(0))
    seen = visit(running.local_url)
    expect(seen.page.locator("#frames")).to_have_text("1")
    seen.page.locator("#pause").click()
    for step in range(1, 8):
        running.push_health(frame(step))
    expect(seen.page.locator("#pause")).to_have_attribute("aria-pressed", "true")
    expect(seen.page.locator("#follow")).to_have_attribute("aria-pressed", "false")
    expect(seen.page.locator("#frames")).to_have_text("1")
    seen.page.locator("#follow").click()
    expect(seen.page.locator("#frames")).to_have_text("8")


def test_one_cursor_reads_all_charts_and_a_drag_zooms_them_all(visit, running):
    for step in range(101):
        running.push_health(frame(step, loss=float(step)))
    seen = visit(running.local_url)
    expect(seen.page.locator("#loss-points")).to_have_text("101 points")
    over = seen.page.locator("#chart-loss .u-over")
    box = over.bounding_box()
    over.hover(position={"x": box["width"] / 2, "y": 20})
    expect(seen.page.locator("#chart-loss output").first).to_have_text("50.00")
    cursor = seen.page.locator("#chart-gradient .u-cursor-x")
    expect(cursor).to_be_visible()
    assert "translate(-10px" not in cursor.get_attribute("style")
    left, y = box["x"] + box["width"] * 0.25, box["y"] + 20
    seen.page.mouse.move(left, y)
    seen.page.mouse.down()
    seen.page.mouse.move(left + box["width"] * 0.5, y, steps=4)
    seen.page.mouse.up()
    whole = seen.page.locator("#whole")
    expect(whole).to_be_visible()
    over.hover(position={"x": 2, "y": 20})
    expect(seen.page.locator("#chart-loss output").first).to_have_text("25.00")
    whole.click()
    expect(whole).to_be_hidden()


def test_charts_over_time_on_a_log_scale_and_smooth_keep_every_point(visit, running):
    for step in range(30):
        running.push_health(frame(step))
    seen = visit(running.local_url)
    for name in ("time", "log"):
        button = seen.page.locator(".choices").get_by_role("button", name=name, exact=True)
        button.click()
        expect(button).to_have_attribute("aria-pressed", "true")
    seen.page.locator("#smooth").fill("0.9")
    expect(seen.page.locator("#loss-points")).to_have_text("30 points")
    assert seen.problems == []


def test_the_table_sorts_by_a_measure_and_filters_by_name(visit, running):
    different = {f"m{i}": {"ratio": 10.0**-i} for i in range(5)}
    running.push_health(frame(0, **different, m5={"ratio": float("inf")}))
    seen = visit(running.local_url)
    rows = seen.page.locator("[data-block]")
    expect(rows).to_have_count(6)
    heading = seen.page.get_by_role("columnheader", name="update").get_by_role("button")
    heading.click()
    order = "(rows) => rows.map((row) => row.dataset.block).join()"
    assert rows.evaluate_all(order) == "m5,m0,m1,m2,m3,m4"
    heading.click()
    expect(heading).to_contain_text("▴")
    assert rows.evaluate_all(order) == "m5,m4,m3,m2,m1,m0"
    seen.page.locator("#filter").fill("h.3")
    expect(rows).to_have_count(1)
    seen.page.locator("#filter").fill("nothing")
    expect(rows).to_have_count(0)


def test_a_run_that_was_continued_shows_only_what_stands(visit, running):
    for step in range(6):
        running.push_health(frame(step))
    for step in range(3, 5):
        running.push_health({**frame(step, loss=7.0), "attempt": 2})
    seen = visit(running.local_url)
    expect(seen.page.locator("#frames")).to_have_text("5")
    expect(seen.page.locator("#chart-loss output").first).to_have_text("7.000")
