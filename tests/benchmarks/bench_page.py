"""What the local page costs before any training: its size, and a large model's graph.

    python tests/benchmarks/bench_page.py [--layers 96] [--rounds 5]

Chromium shows the built page on a real bridge that serves a transformer of 96 layers, 2,000 blocks.
Times are processor time of the page's main thread, as Chromium counts it
(``Performance.getMetrics``), which other load hardly stretches; each is a median of several rounds
and stands beside its goal. The size is that of all that the page loads, each file compressed by gzip.
"""

from __future__ import annotations

import argparse
import gzip
import statistics
from pathlib import Path

from bench_run_page import LONG_TASKS, Tab, chromium, say

import ptoa_bridge
from ptoa_bridge import Bridge
from ptoa_core.spec import Block, ModelSpec

STATIC = Path(ptoa_bridge.__file__).parent / "static"
PAGE = ("index.html", "assets/*.js", "assets/*.css")
AFTER_PAINT = "() => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)))"
CLICK = "(element) => element.click()"

# A layer: (id, kind, what it reads, group), where "in" is the layer's input. A mask feeds every attention.
LAYER = (
    ("norm1", "norm", ("in",), "attn"),
    ("q", "linear", ("norm1",), "attn"),
    ("k", "linear", ("norm1",), "attn"),
    ("v", "linear", ("norm1",), "attn"),
    ("rotary", "posenc", ("q",), "attn"),
    ("scores", "attention", ("rotary", "k", "v", "mask"), "attn"),
    ("proj", "linear", ("scores",), "attn"),
    ("drop1", "dropout", ("proj",), "attn"),
    ("add1", "add", ("in", "drop1"), ""),
    ("norm2", "norm", ("add1",), ""),
    ("gate", "linear", ("norm2",), "mlp"),
    ("up", "linear", ("norm2",), "mlp"),
    ("act", "activation", ("gate",), "mlp"),
    ("times", "group", ("act", "up"), "mlp"),
    ("down", "linear", ("times",), "mlp"),
    ("drop2", "dropout", ("down",), "mlp"),
    ("add2", "add", ("add1", "drop2"), ""),
    ("scale", "group", ("add2",), ""),
)


def transformer(layers: int) -> ModelSpec:
    """Embeddings, so many layers of 21 blocks with groups of their own, and a head."""
    embed = Block("embed", "embedding", inputs=["tokens"])
    groups, blocks = [], [Block("tokens", "tokens"), Block("mask", "input"), embed]
    stream = "embed"
    for i in range(layers):
        groups.append(Block(f"L{i}", "group", label=f"h.{i} (Block)"))
        for part in ("attn", "mlp"):
            groups.append(Block(f"L{i}.{part}", "group", label=f"h.{i}.{part} ({part})", group=f"L{i}"))
        own = {name: f"{name}{i}" for name, *_ in LAYER} | {"in": stream, "mask": "mask"}
        for name, kind, reads, part in LAYER:
            around = f"L{i}.{part}".removesuffix(".")
            label = f"h.{i}.{name} (Op)" if kind == "group" else f"h.{i}.{name}"
            inputs = [own[one] for one in reads]
            blocks.append(Block(own[name], kind, label=label, inputs=inputs, group=around))
        stream = own["scale"]
    blocks.append(Block("head", "unembed", inputs=[stream]))
    return ModelSpec("Large", [*groups, *blocks], "head")


def page_bytes() -> int:
    """What is loaded to show the page."""
    return sum(len(gzip.compress(file.read_bytes(), 9)) for name in PAGE for file in STATIC.glob(name))


def busy_for(tab: Tab, work) -> float:
    """Milliseconds of the main thread for something, its paint included."""
    before = tab.busy()
    work()
    tab.page.evaluate(AFTER_PAINT)
    return 1000 * (tab.busy() - before)


WHEEL = """async ([frames, ctrlKey]) => {
    const canvas = document.querySelector('#graph');
    const { left, top, width, height } = canvas.getBoundingClientRect();
    const middle = { clientX: left + width / 2, clientY: top + height / 2 };
    for (let i = 0; i < frames; i++) {
        const deltaY = (ctrlKey ? 6 : 60) * (i % 40 < 20 ? 1 : -1);
        canvas.dispatchEvent(new WheelEvent('wheel', { deltaY, ctrlKey, ...middle, cancelable: true }));
        await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
    }
}"""


def move(tab: Tab, frames: int, zooms: bool) -> float:
    """Milliseconds of the main thread a painted frame while the wheel pans or zooms the graph."""
    before = tab.busy()
    tab.page.evaluate(WHEEL, [frames, zooms])
    return 1000 * (tab.busy() - before) / frames


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--frames", type=int, default=80)
    options = parser.parse_args()
    spec = transformer(options.layers)
    figures: dict[str, list[float]] = {name: [] for name in ("first", "unfold", "pan", "zoom", "task")}
    with chromium() as browser, Bridge(spec) as bridge:
        for _ in range(options.rounds):
            tab = Tab(browser, bridge.local_url)
            tab.page.wait_for_function("() => document.querySelector('[role=treeitem]')")
            tab.page.evaluate(AFTER_PAINT)
            figures["first"].append(1000 * tab.busy())
            unfold = tab.page.get_by_role("button", name="Unfold all")
            figures["unfold"].append(busy_for(tab, lambda button=unfold: button.evaluate(CLICK)))
            tab.page.get_by_role("button", name="Fit", exact=True).evaluate(CLICK)
            tab.page.evaluate(AFTER_PAINT)
            tab.page.evaluate(LONG_TASKS)
            figures["zoom"].append(move(tab, options.frames, zooms=True))
            figures["pan"].append(move(tab, options.frames, zooms=False))
            figures["task"].append(tab.page.evaluate("() => window.longest"))
            tab.close()
    least = {name: statistics.median(values) for name, values in figures.items()}
    say("page, gzipped, all included", f"{page_bytes() / 1000:.1f} kB", "<= 80 kB")
    what = f"{options.layers} layers, {len(spec.blocks)} blocks"
    say(f"first picture of {what}, page load included", f"{least['first']:.0f} ms", "<= 700 ms")
    say("unfold everything", f"{least['unfold']:.0f} ms", "<= 150 ms")
    say("pan, a frame", f"{least['pan']:.1f} ms", "<= 12 ms")
    say("zoom, a frame", f"{least['zoom']:.1f} ms", "<= 12 ms")
    say("  longest task while panning and zooming", f"{least['task']:.0f} ms", "<= 50 ms")


if __name__ == "__main__":
    main()
