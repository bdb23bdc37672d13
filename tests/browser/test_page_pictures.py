"""Pictures of the page while a transformer trains, kept in `.build/pictures` for people to look at."""

from __future__ import annotations

from pathlib import Path

import pytest

import papertoanything as ptoa

pytest.importorskip("playwright")
from playwright.sync_api import expect

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402  after what the module may be skipped for
from torch.nn import functional as F  # noqa: E402

PICTURES = Path(__file__).resolve().parents[2] / ".build" / "pictures"
SIZES = [(1280, 800), (390, 844)]


class Layer(nn.Module):
    """Attention and an MLP, each with a residual add."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(32), nn.LayerNorm(32)
        self.attn = nn.MultiheadAttention(32, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 32))

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attn(y, y, y)[0]
        return x + self.mlp(self.norm2(x))


class Classifier(nn.Module):
    """Six layers over tokens."""

    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(64, 32), nn.Embedding(16, 32)
        self.layers, self.head = nn.ModuleList(Layer() for _ in range(6)), nn.Linear(32, 64)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    """A watch on a model that has trained for some steps, and the file of its run."""
    torch.manual_seed(0)
    model, tokens = Classifier(), torch.randint(64, (8, 16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    path = tmp_path_factory.mktemp("run") / "run.pta"
    with ptoa.watch(model, optimizer, every=1, open=False, run_file=path) as watching:
        for _ in range(12):
            loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watching.step(loss)
        assert len(watching.frames) == 12
        yield watching, path


def shoot(page, name, width, scheme):
    """Keep a picture; nothing may stick out at the side."""
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    PICTURES.mkdir(parents=True, exist_ok=True)
    kept = PICTURES / f"{name}-{width}-{scheme}.png"
    page.screenshot(path=kept)
    assert kept.stat().st_size > 5_000


def part(page, name):
    """Go to a part of the page, where parts are seen one at a time."""
    button = page.get_by_role("navigation", name="Parts of the page").get_by_role("button", name=name)
    if button.is_visible():
        button.click()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), SIZES, ids=str)
def test_pictures_of_a_run(visit, training, width, height, scheme):
    watching, _ = training
    seen = visit(watching.server.local_url, width=width, height=height, scheme=scheme)
    expect(seen.page.locator("#frames")).to_have_text("12")
    shoot(seen.page, "training", width, scheme)
    for name, selector in (("map", "#map-panel"), ("table", "#blocks")):
        seen.page.locator(selector).scroll_into_view_if_needed()
        shoot(seen.page, name, width, scheme)
    part(seen.page, "Graph")
    seen.page.locator("#graph").focus()
    shoot(seen.page, "folded", width, scheme)
    seen.page.get_by_role("button", name="Unfold all").click()
    shoot(seen.page, "open", width, scheme)
    seen.page.get_by_role("button", name="Fit", exact=True).click()
    shoot(seen.page, "whole", width, scheme)
    part(seen.page, "Blocks")
    seen.page.get_by_role("treeitem", name="attn").first.click()
    expect(seen.page.locator("#details h2").first).to_have_text("attn")
    shoot(seen.page, "block", width, scheme)
    assert seen.problems == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), SIZES, ids=str)
def test_pictures_of_a_report(visit, training, tmp_path, width, height, scheme):
    _, path = training
    report = tmp_path / "report.html"
    ptoa.report(path, report)
    seen = visit(report.as_uri(), width=width, height=height, scheme=scheme)
    expect(seen.page.locator("#frames")).to_have_text("12")
    shoot(seen.page, "report", width, scheme)
    assert seen.problems == []
