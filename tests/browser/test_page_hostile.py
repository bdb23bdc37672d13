"""A stranger's names on the page: text, bounded, and in the reading order they pretend not to have."""

from __future__ import annotations

import pytest

from ptoa_bridge import Bridge

pytest.importorskip("playwright")
from playwright.sync_api import expect

IMAGE = "<img src=x onerror=\"document.title='attacked'\">"
SCRIPT = "</script><script>document.title='attacked'</script>"


@pytest.fixture
def named(make_spec, make_block):
    """Makes a spec in which every text is the one given."""

    def make(text):
        layer = make_block("l0", "linear", ["i0"], label=text)
        return make_spec(text, [make_block("i0", "input"), {**layer, "params": {"note": text}}], source=text)

    return make


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (IMAGE, IMAGE),
        (SCRIPT, SCRIPT),
        ("\u202eexe.safe", "\\u202eexe.safe"),
        ("שלום عالم", "שלום عالم"),
        ("a\u200bb\u2066c", "a\\u200bb\\u2066c"),
    ],
    ids=["image", "script", "bidi", "right to left", "invisible"],
)
def test_hostile_names_are_text(visit, named, frame, text, shown):
    with Bridge(named(text)) as bridge:
        bridge.push_health(frame(0, names=["l0", text]))
        seen = visit(bridge.local_url)
        expect(seen.page.locator("#model-name")).to_have_text(shown)
        row = seen.page.locator('[data-block="l0"]')
        expect(row).to_contain_text(shown)
        row.click()
        expect(seen.page.locator("#details h2")).to_have_text(shown)
        assert seen.page.title() != "attacked"
        assert seen.page.locator("#app img, #app script").count() == 0
        assert seen.problems == []


def test_a_name_of_10_000_characters_is_cut_and_leaves_the_page_in_shape(visit, named):
    with Bridge(named("x" * 10_000)) as bridge:
        seen = visit(bridge.local_url)
        expect(seen.page.locator("#model-name")).to_contain_text("…")
        assert len(seen.page.locator("#model-name").inner_text()) <= 200
        assert seen.page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")


def test_another_page_cannot_frame_the_page(visit, bridge, tmp_path):
    """The bridge's policy refuses to be framed, so that no page can dress it up."""
    file = tmp_path / "frame.html"
    file.write_text(f'<link rel="icon" href="data:,"><iframe src="{bridge.local_url}"></iframe>')
    seen = visit(file.as_uri())
    seen.page.wait_for_load_state("networkidle")
    assert seen.page.frames[-1].locator("#state").count() == 0
    assert seen.problems != []
