"""Using the page: pointer and keyboard, wide and narrow, light and dark."""

from __future__ import annotations

import pytest

from ptoa_bridge import Bridge

pytest.importorskip("playwright")
from playwright.sync_api import expect


@pytest.fixture
def layered(make_spec, make_block):
    """Twelve equal layers in a row."""
    blocks = [make_block(f"g{i}", "group", label=f"h.{i} (Block)") for i in range(12)]
    blocks.append(make_block("i0", "input"))
    for i in range(12):
        reads = f"a{i - 1}" if i else "i0"
        layer = make_block(f"a{i}", "attention", [reads], label=f"h.{i}.attn", group=f"g{i}")
        blocks.append({**layer, "params": {"heads": 4}})
    return make_spec("Layers", blocks)


def test_equal_layers_are_one_item_that_opens_with_the_keyboard(visit, layered):
    with Bridge(layered) as bridge:
        seen = visit(bridge.local_url)
        tree = seen.page.get_by_role("tree")
        repeat = tree.get_by_role("treeitem", name="Block × 12")
        expect(repeat).to_have_attribute("aria-expanded", "false")
        tree.focus()
        seen.page.keyboard.press("End")
        expect(repeat).to_have_attribute("aria-selected", "true")
        for key in ("ArrowRight", "ArrowRight", "ArrowRight", "ArrowRight"):
            seen.page.keyboard.press(key)
        expect(seen.page.locator('[data-tree="a0"]')).to_have_attribute("aria-selected", "true")
        expect(seen.page.locator("#details h2")).to_have_text("attn")
        expect(seen.page.locator("#details")).to_contain_text("heads")
        assert seen.problems == []


def test_equal_layers_open_into_one_or_into_all(visit, layered):
    with Bridge(layered) as bridge:
        seen = visit(bridge.local_url)
        tree = seen.page.get_by_role("tree")
        repeat = tree.get_by_role("treeitem", name="Block × 12")
        layers = tree.locator('[aria-level="2"]')
        repeat.click()
        for choice, shown in [("Show one", 2), ("Show all", 12), ("Fold", 0), ("Show one", 2)]:
            seen.page.get_by_role("button", name=choice, exact=True).click()
            expect(layers).to_have_count(shown)
        rest = tree.get_by_role("treeitem", name="11 more")
        expect(rest).to_have_attribute("aria-setsize", "2")
        rest.locator(".twist").click()
        expect(layers).to_have_count(12)
        expect(layers.last).to_have_attribute("aria-posinset", "12")
        repeat.click()
        seen.page.get_by_role("button", name="Fold", exact=True).click()
        tree.focus()
        seen.page.keyboard.press("Shift+Enter")
        expect(layers).to_have_count(12)
        seen.page.get_by_role("button", name="Fold all", exact=True).click()
        expect(tree.get_by_role("treeitem")).to_have_count(2)
        seen.page.get_by_role("button", name="Unfold all").click()
        expect(layers.first).to_have_attribute("aria-expanded", "true")
        expect(layers.first).to_have_attribute("aria-setsize", "12")
        assert seen.problems == []


def test_the_arrow_keys_follow_the_wires_of_the_graph(visit, layered):
    with Bridge(layered) as bridge:
        seen = visit(bridge.local_url)
        chosen = seen.page.locator('[role="treeitem"][aria-selected="true"]')
        seen.page.get_by_role("treeitem").first.click()
        first = chosen.get_attribute("data-tree")
        seen.page.locator("#graph").focus()
        seen.page.keyboard.press("ArrowDown")
        expect(chosen).to_contain_text("Block × 12")
        seen.page.keyboard.press("ArrowUp")
        expect(chosen).to_have_attribute("data-tree", first)
        seen.page.keyboard.press("Escape")
        expect(chosen).to_have_count(0)
        assert seen.problems == []


def test_the_pointer_over_a_box_says_what_it_is(visit, bridge):
    seen = visit(bridge.local_url)
    canvas = seen.page.locator("#graph")
    expect(canvas).to_be_visible()
    box = canvas.bounding_box()
    said = set()
    for y in range(0, int(box["height"]), 12):
        seen.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + y)
        said.add(canvas.get_attribute("title") or "")
    assert any(text.startswith("wte\n") for text in said)
    assert "" in said
    assert seen.problems == []


def test_a_model_that_is_not_trained_has_the_room_until_a_frame_comes(visit, layered, frame):
    with Bridge(layered) as bridge:
        seen = visit(bridge.local_url)
        expect(seen.page.locator("#graph")).to_be_visible()
        expect(seen.page.get_by_role("region", name="Training")).to_have_count(0)
        bridge.push_health(frame(0))
        expect(seen.page.get_by_role("region", name="Training")).to_be_visible()
        assert seen.problems == []


def test_a_row_that_is_chosen_opens_its_block_in_tree_and_details(visit, layered, frame):
    with Bridge(layered) as bridge:
        bridge.push_health(frame(0, names=[f"a{i}" for i in range(12)]))
        seen = visit(bridge.local_url)
        seen.page.locator('[data-block="a7"]').click()
        expect(seen.page.locator('[data-tree="a7"]')).to_have_attribute("aria-selected", "true")
        expect(seen.page.locator('[data-block="a7"]')).to_have_attribute("aria-selected", "true")
        expect(seen.page.locator("#details")).to_contain_text("norm of weights")


def test_a_click_on_the_graph_selects(visit, bridge):
    seen = visit(bridge.local_url)
    canvas = seen.page.locator("#graph")
    expect(canvas).to_be_visible()
    box = canvas.bounding_box()
    expect(seen.page.locator("#details h2")).to_have_text("Model")
    # The drawing of this model is a column in the middle; its first block is near the top of it.
    for y in range(0, int(box["height"]), 12):
        canvas.click(position={"x": box["width"] / 2, "y": y})
        if seen.page.locator("#details h2").inner_text() != "Model":
            break
    expect(seen.page.locator("#details h2")).to_have_text("tokens")


def test_only_the_rows_on_the_screen_are_in_the_document(visit, make_spec, make_block, frame):
    names = [f"l{i}" for i in range(2000)]
    blocks = [make_block(name, "linear", names[max(0, i - 1) : i]) for i, name in enumerate(names)]
    with Bridge(make_spec("Long", blocks)) as bridge:
        bridge.push_health(frame(0, names=names))
        seen = visit(bridge.local_url)
        expect(seen.page.locator('[data-block="l0"]')).to_be_visible()
        assert seen.page.locator("[data-block]").count() < 80
        assert seen.page.locator("[data-tree]").count() < 80
        seen.page.get_by_role("grid").focus()
        seen.page.keyboard.press("End")
        expect(seen.page.locator('[data-block="l1999"]')).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1280, 3840])
def test_nothing_sticks_out_at_any_width(visit, bridge, frame, width, scheme):
    for step in range(20):
        bridge.push_health(frame(step))
    seen = visit(bridge.local_url, width=width, height=800, scheme=scheme)
    expect(seen.page.locator("#loss-points")).to_have_text("20 points")
    overhang = """() => {
        const { scrollWidth, scrollHeight } = document.documentElement;
        return [scrollWidth - innerWidth, scrollHeight - innerHeight];
    }"""
    assert max(seen.page.evaluate(overhang)) <= 0
    assert seen.problems == []


def test_a_narrow_page_shows_one_part_at_a_time(visit, bridge, frame):
    bridge.push_health(frame(0))
    seen = visit(bridge.local_url, width=390, height=844)
    expect(seen.page.locator("#chart-loss")).to_be_visible()
    expect(seen.page.locator("#graph")).to_be_hidden()
    seen.page.get_by_role("button", name="Graph", exact=True).click()
    expect(seen.page.locator("#graph")).to_be_visible()
    expect(seen.page.locator("#chart-loss")).to_be_hidden()


def test_a_slash_finds_a_block_and_opens_the_way_to_it(visit, layered):
    with Bridge(layered) as bridge:
        seen = visit(bridge.local_url)
        expect(seen.page.get_by_role("treeitem", name="Block × 12")).to_be_visible()
        seen.page.keyboard.press("/")
        query = seen.page.locator("#query")
        expect(query).to_be_focused()
        query.fill("h. attention")
        expect(seen.page.locator("#results [role=option]")).to_have_count(12)
        seen.page.keyboard.press("ArrowDown")
        seen.page.keyboard.press("ArrowDown")
        expect(seen.page.locator('[data-result="a2"]')).to_have_attribute("aria-selected", "true")
        seen.page.keyboard.press("Enter")
        expect(seen.page.locator("#search")).to_be_hidden()
        expect(seen.page.locator('[data-tree="a2"]')).to_have_attribute("aria-selected", "true")
        assert seen.problems == []


def test_escape_closes_the_search_and_leaves_everything_as_it_was(visit, layered):
    with Bridge(layered) as bridge:
        seen = visit(bridge.local_url)
        seen.page.locator("#find").click()
        seen.page.locator("#query").fill("attn")
        seen.page.keyboard.press("Escape")
        expect(seen.page.locator("#search")).to_be_hidden()
        expect(seen.page.locator("#details h2")).to_have_text("Model")


def test_a_slash_in_a_text_is_a_slash(visit, bridge, frame):
    bridge.push_health(frame(0))
    seen = visit(bridge.local_url)
    seen.page.locator("#filter").press("/")
    expect(seen.page.locator("#filter")).to_have_value("/")
    expect(seen.page.locator("#search")).to_be_hidden()


def test_nothing_of_the_step_bar_is_cut_off_on_a_narrow_page(visit, bridge, frame):
    for step in range(20):
        bridge.push_health(frame(step, t=3_600_000.0 * step))
    seen = visit(bridge.local_url, width=390, height=844)
    expect(seen.page.locator("#chosen")).to_contain_text("step 19")
    bar = seen.page.locator(".stepbar").bounding_box()
    for part in ("#follow", "#pause", "#slider", "#chosen", "#smooth"):
        box = seen.page.locator(part).bounding_box()
        assert bar["x"] <= box["x"]
        assert box["x"] + box["width"] <= bar["x"] + bar["width"]


def test_a_file_that_a_command_serves_is_called_a_file(visit, tiny_spec, frame):
    from papertoanything.server import FileServer

    with FileServer(tiny_spec, "local", file="my run.pta") as server:
        server.push_health(frame(0))
        seen = visit(server.local_url)
        for _ in range(2):
            expect(seen.page.locator("#state")).to_have_text("File my run.pta, opened from the command line.")
            expect(seen.page.locator("#state")).to_have_attribute("data-state", "file")
            assert "token" not in seen.page.url
            seen.page.reload()


def test_a_drag_on_the_small_map_moves_a_drawing_that_is_larger_than_the_screen(visit, make_spec, make_block):
    names = [f"l{i}" for i in range(120)]
    blocks = [make_block(name, "linear", names[max(0, i - 1) : i]) for i, name in enumerate(names)]
    with Bridge(make_spec("Tall", blocks)) as bridge:
        seen = visit(bridge.local_url)
        small = seen.page.locator("#minimap")
        expect(small).to_be_visible()
        frame = seen.page.locator(".minimap i")
        before = frame.bounding_box()
        box = small.bounding_box()
        small.click(position={"x": box["width"] / 2, "y": box["height"] * 0.9})
        moved = "(top) => document.querySelector('.minimap i').getBoundingClientRect().top > top + 20"
        seen.page.wait_for_function(moved, arg=before["y"])
        seen.page.get_by_role("button", name="Fit").click()
        assert seen.problems == []


def test_a_drawing_that_fits_has_no_small_map(visit, bridge):
    seen = visit(bridge.local_url)
    expect(seen.page.locator("#graph")).to_be_visible()
    expect(seen.page.locator('[data-tree="t0"]')).to_be_visible()
    expect(seen.page.locator("#minimap")).to_be_hidden()
