"""What the local page costs while it shows a training run: run by ``nox -s bench`` or by hand.

    python tests/benchmarks/bench_run_page.py [map file live] [--frames N] [--blocks N] [--rounds N]

Chromium shows the built page on a real bridge. Main-thread times are processor time of the page's main
thread, as Chromium counts it (``Performance.getMetrics``), which other load hardly stretches. Each figure
is a median of several rounds and stands beside its goal.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import re
import shutil
import statistics
import tempfile
import threading
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

from ptoa_bridge import Bridge
from ptoa_core.encoded import EncodedFrame, encode_frame
from ptoa_core.frames import BlockHealth, HealthFrame, TensorStats
from ptoa_core.spec import Block, ModelSpec

FLAGS = ("--disable-gpu", "--no-first-run", "--disable-background-networking", "--enable-precise-memory-info")
TEMPLATES = 8
IS_READ = "() => document.querySelector('#state').dataset.state === 'file'"


def model(count):
    """A row of norm, attention and mlp blocks in layers of five."""
    blocks = [Block("t0", "tokens")]
    blocks += [Block(f"g{i}", "group", label=f"h.{i} (Block)") for i in range(-(-count // 5))]
    kinds = ("norm", "attention", "norm", "mlp", "linear")
    for n in range(count):
        last = blocks[-1].id if n else "t0"
        kind, layer = kinds[n % 5], n // 5
        blocks.append(Block(f"b{n}", kind, label=f"h.{layer}.{kind}", inputs=[last], group=f"g{layer}"))
    return ModelSpec("Bench", blocks, blocks[-1].id)


def short(value):
    """A number with as many digits as float32 has, as ``watch`` writes it."""
    return float(f"{value:.8g}")


def stats(rnd):
    """Statistics with a histogram of a sample, as ``watch`` sends them."""
    hist = [int(rnd.gauss(0, 1) ** 2 * 16) for _ in range(32)]
    numbers = (rnd.gauss(0, 1), rnd.random(), rnd.random() * 5, rnd.random())
    return TensorStats(*map(short, numbers), 0, 0, None, hist)


def frame_texts(count, hist=True):
    """The blocks of some frames as JSON; the frames of a run repeat them."""
    rnd = random.Random(0)
    texts = []
    for _ in range(TEMPLATES):
        blocks = [
            BlockHealth(
                f"b{n}",
                act=stats(rnd),
                hidden=stats(rnd) if n % 5 == 3 else None,
                grad=stats(rnd),
                weightNorm=short(rnd.random() * 30),
                weightGradNorm=short(rnd.random()),
                updateRatio=short(10 ** rnd.uniform(-5, -1)),
                headEntropy=[short(rnd.random() * 3) for _ in range(8)] if n % 5 == 1 else None,
            )
            for n in range(count)
        ]
        for one in blocks if not hist else ():
            for measured in filter(None, (one.act, one.hidden, one.grad)):
                measured.hist = None
        text = encode_frame(HealthFrame(0, 0.0, 1.0, blocks)).text
        if not hist:  # few digits, so that a bridge keeps as many frames as it may
            text = re.sub(rb"(\.\d\d)\d+", rb"\1", text)
        texts.append(text[text.index(b'"blocks":') :])
    return texts


def frame_text(step, texts):
    """One frame of a run."""
    loss = 3 * math.exp(-step / 800) + 0.1 * ((step * 7919) % 13) / 13
    head = (
        f'{{"step":{10 * step},"t":{800.5 * step},"loss":{loss:.5f},"lr":0.001,"gradNorm":{1 + loss:.4f},'
        '"timing":{"data":1.5,"forward":20.25,"backward":40.5,"optim":8.125},'
    )
    return head.encode() + texts[step % TEMPLATES]


def write_run(path, frames, texts, spec):
    """A run file."""
    header = {"protocol": "pta-run", "v": 1, "producer": {"name": "bench", "version": "0"}}
    with path.open("wb") as file:
        file.write(json.dumps({**header, "spec": spec.to_dict()}).encode() + b"\n")
        for step in range(frames):
            file.write(b'{"event":"health","data":' + frame_text(step, texts) + b"}\n")


@contextlib.contextmanager
def chromium():
    """A browser without a window."""
    program = os.environ.get("PTOA_CHROMIUM") or shutil.which("chromium")
    root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=[*FLAGS, *root])
        yield browser
        browser.close()


class Tab:
    """A page, and what Chromium counts of it."""

    def __init__(self, browser, url):
        self.context = browser.new_context(viewport={"width": 1400, "height": 900})
        self.page = self.context.new_page()
        self.page.on("pageerror", lambda error: print("page error:", error))
        self.cdp = self.context.new_cdp_session(self.page)
        self.cdp.send("Performance.enable", {"timeDomain": "threadTicks"})
        self.page.goto(url)

    def busy(self):
        """Seconds in which the main thread worked, since the page began."""
        metrics = {one["name"]: one["value"] for one in self.cdp.send("Performance.getMetrics")["metrics"]}
        return metrics["TaskDuration"]

    def memory_mb(self):
        """Objects and array buffers that are alive, in MB."""
        self.cdp.send("HeapProfiler.collectGarbage")
        used = self.cdp.send("Runtime.getHeapUsage")
        return (used["usedSize"] + used.get("backingStorageSize", 0)) / 1e6

    def frames(self):
        """How many frames are shown."""
        return int(self.page.locator("#frames").inner_text())

    def until_frames(self, count, seconds):
        """Wait until so many are shown."""
        shown = "(n) => Number(document.querySelector('#frames').textContent) >= n"
        self.page.wait_for_function(shown, arg=count, timeout=1000 * seconds)

    def close(self):
        self.context.close()


def say(what, value, goal):
    print(f"{what:58} {value:>24}   goal {goal}", flush=True)


LONG_TASKS = """() => {
    window.longest = 0;
    new PerformanceObserver((list) => {
        window.longest = Math.max(window.longest, ...list.getEntries().map((one) => one.duration));
    }).observe({ entryTypes: ["longtask"] });
}"""

# What the benchmark asks of the page's own clock: the work of an event and of the paint after it, in ms.
AFTER_PAINT = """async ([selector, times, x0, y0]) => {
    const element = document.querySelector(selector);
    const { width, height, left, top } = element.getBoundingClientRect();
    const took = [];
    for (let i = 0; i < times; i++) {
        const clientX = left + x0 + ((i * 37) % (width - x0 - 20));
        const clientY = top + y0 + ((i * 13) % (height - y0));
        const begun = performance.now();
        element.dispatchEvent(new PointerEvent("pointermove", { clientX, clientY, bubbles: true }));
        await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
        took.push(performance.now() - begun);
    }
    return took.length;
}"""


def bench_file(browser, options):
    """Opening a run file: megabytes a second, how long the page did not answer, and memory; then the map."""
    texts = frame_texts(options.blocks)
    spec = model(options.blocks)
    with tempfile.TemporaryDirectory() as folder, Bridge() as bridge:
        path = Path(folder) / "run.pta"
        write_run(path, options.frames, texts, spec)
        size = path.stat().st_size / 1e6
        speeds, busies, tasks, memories = [], [], [], []
        draws, cursors = [], []
        for _ in range(options.rounds):
            tab = Tab(browser, f"http://127.0.0.1:{bridge.port}/")
            tab.page.evaluate(LONG_TASKS)
            before, busy = time.perf_counter(), tab.busy()
            tab.page.set_input_files("#file", path)
            tab.page.wait_for_function(IS_READ, timeout=600_000)
            seconds = time.perf_counter() - before
            speeds.append(size / seconds)
            busies.append(size / (tab.busy() - busy))
            tasks.append(tab.page.evaluate("() => window.longest"))
            memories.append(tab.memory_mb())
            draw, cursor = map_times(tab)
            draws.append(draw)
            cursors.append(cursor)
            tab.close()
    about = f"{options.frames} frames of {options.blocks} blocks"
    if "file" in options.what:
        say(f"opening {size:.0f} MB, {about}: wall", f"{statistics.median(speeds):.0f} MB/s", ">= 60 MB/s")
        say("  by main-thread time", f"{statistics.median(busies):.0f} MB/s", "-")
        say("  longest task", f"{statistics.median(tasks):.0f} ms", "usable while it reads")
        say("  memory when read", f"{statistics.median(memories):.0f} MB", "bounded")
    if "map" in options.what:
        say(f"map of {about}: first draw", f"{statistics.median(draws):.0f} ms", "<= 300 ms")
        say("  a cursor move and its paint, main thread", f"{statistics.median(cursors):.1f} ms", "<= 8 ms")


def map_times(tab, moves=60):
    """Milliseconds of main-thread time: all of the map drawn with another measure, and one move over it."""
    draws = []
    for name in ("dead share", "gradient size", "activation size"):
        button = tab.page.locator("#map-panel").get_by_role("button", name=name)
        before = tab.busy()
        button.evaluate("(element) => element.click()")
        tab.page.evaluate("() => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)))")
        draws.append(1000 * (tab.busy() - before))
    tab.page.evaluate(AFTER_PAINT, ["#map", 5, 80, 4])
    before = tab.busy()
    done = tab.page.evaluate(AFTER_PAINT, ["#map", moves, 80, 4])
    return statistics.median(draws), 1000 * (tab.busy() - before) / done


def bench_live(browser, options):
    """Twenty frames a second on a full history: how busy the main thread is, and whether memory grows."""
    texts = frame_texts(options.blocks)
    # What the bridge keeps is bounded in bytes, too: without histograms the history is full at once.
    light = frame_texts(options.blocks, hist=False)
    with Bridge(model(options.blocks)) as bridge:
        for step in range(options.frames):
            bridge.push_health(EncodedFrame(10 * step, frame_text(step, light), None))
            while bridge.history.next_seq < step - 1000:  # the queue to the history is bounded
                time.sleep(0.01)
        tab = Tab(browser, bridge.local_url)
        while len(bridge.history) < options.frames:
            time.sleep(0.05)
        tab.until_frames(options.frames, 300)
        stop = threading.Event()
        source = (bridge, options.frames, texts, stop)
        pusher = threading.Thread(target=push_steadily, args=source, daemon=True)
        pusher.start()
        shares, memories = [], []
        for _ in range(options.rounds):
            before, begun = tab.busy(), time.perf_counter()
            tab.page.wait_for_timeout(options.seconds * 1000)
            shares.append((tab.busy() - before) / (time.perf_counter() - begun))
            memories.append(tab.memory_mb())
        stop.set()
        pusher.join()
        frames = tab.frames()
        tab.close()
    what = f"live, 20 frames/s of {options.blocks} blocks, {frames} kept"
    say(f"{what}: busy", f"{100 * statistics.median(shares):.0f} %", "< 30 %")
    say("  memory, first and last round", f"{memories[0]:.0f}, {memories[-1]:.0f} MB", "< 250 MB, no growth")


def push_steadily(bridge, first, texts, stop, rate=20):
    """Frames at a steady rate until told to stop."""
    step, due = first, time.perf_counter()
    while not stop.is_set():
        bridge.push_health(EncodedFrame(10 * step, frame_text(step, texts), None))
        step += 1
        due += 1 / rate
        stop.wait(max(0.0, due - time.perf_counter()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", help="map, file, live (default: all)")
    parser.add_argument("--frames", type=int, default=5000)
    parser.add_argument("--blocks", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10)
    options = parser.parse_args()
    options.what = options.what or ["map", "file", "live"]
    with chromium() as browser:
        if {"map", "file"} & set(options.what):
            bench_file(browser, options)
        if "live" in options.what:
            bench_live(browser, options)


if __name__ == "__main__":
    main()
