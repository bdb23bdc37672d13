"""What axe-core finds on the page, in the states in which people meet it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptoa_bridge import Bridge

from .conftest import unavailable

pytest.importorskip("playwright")
from playwright.sync_api import expect

VIEWER = Path(__file__).resolve().parents[2] / "packages" / "ptoa-bridge" / "viewer"
AXE = VIEWER / "node_modules" / "axe-core" / "axe.min.js"
PATTERN = {"head": 0, "size": 1, "b64": "AACAPw=="}


@pytest.fixture
def layers(make_spec, make_block):
    """Twelve equal layers in a row."""
    groups = [make_block(f"g{i}", "group", label=f"h.{i} (Block)") for i in range(12)]
    blocks = [make_block("i0", "input")]
    for i in range(12):
        reads = f"a{i - 1}" if i else "i0"
        blocks.append(make_block(f"a{i}", "attention", [reads], label=f"h.{i}.attn", group=f"g{i}"))
    return make_spec("Layers", groups + blocks)


def folded(page):
    """As it comes."""


def opened(page):
    """With a block chosen inside an open group, and its heads."""
    searching(page)
    page.locator('[data-result="a7"]').click()
    expect(page.locator("[data-head]")).to_have_count(1)


def searching(page):
    """With the search open over the page."""
    page.locator("#find").click()
    page.locator("#query").fill("attention")
    expect(page.locator("#results [role=option]")).to_have_count(12)


def exporting(page):
    """With the menu of exports open."""
    page.locator("#export summary").click()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("state", [folded, opened, searching, exporting], ids=lambda state: state.__name__)
def test_axe_finds_nothing_serious(visit, layers, frame, state, scheme):
    if not AXE.is_file():
        unavailable("axe-core is not installed: cd packages/ptoa-bridge/viewer && npm ci")
    with Bridge(layers) as bridge:
        health = frame(0, names=[f"a{i}" for i in range(12)])
        health["blocks"][7] |= {"headEntropy": [0.0], "headPattern": [PATTERN]}
        bridge.push_health(health)
        seen = visit(bridge.local_url, scheme=scheme)
        expect(seen.page.locator("#loss-points")).to_have_text("1 points")
        state(seen.page)
        # Handed over by the test driver, so that the page's policy stays as it is.
        seen.page.evaluate(AXE.read_text("utf-8") + ";undefined")
        ran, found = seen.page.evaluate(
            "() => axe.run().then(({ passes, violations }) => [passes.map((one) => one.id), violations])"
        )
        assert {"color-contrast", "aria-valid-attr-value"} <= set(ran)
        grave = [
            (one["id"], one["help"], [node["html"][:200] for node in one["nodes"]])
            for one in found
            if one["impact"] in ("serious", "critical")
        ]
        assert grave == []
