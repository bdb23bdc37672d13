"""What the bridge costs the training process, in figures: run by ``nox -s bench`` or by hand.

    python tests/benchmarks/bench_bridge.py [push stall idle memory]

Clients are processes of their own, so that their work is not counted. Each figure stands
beside the bare case of the same run, since the machine may be busy.
"""

from __future__ import annotations

import contextlib
import functools
import json
import random
import socket
import statistics
import subprocess
import sys
import threading
import time

from ptoa_bridge import Bridge
from ptoa_core.frames import BlockHealth, HealthFrame, TensorStats

CLIENT = """
import socket, sys, time
kind, port, token, count = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
target = "/events" if kind == "tab" else "/health?since=-1"
mark = "&" if "?" in target else "?"
ask = f"GET {target}{mark}token={token} HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\n\\r\\n"
socks = []
if kind == "health":
    print("ready", flush=True)
    sys.stdin.readline()
start = time.perf_counter()
for _ in range(count):
    sock = socket.socket()
    if kind == "tab":
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", port))
    if kind != "idle":
        sock.sendall(ask.encode())
    socks.append(sock)
if kind == "health":
    first, size = None, 0
    while data := socks[0].recv(1 << 20):
        first = first or time.perf_counter() - start
        size += len(data)
    print(first, time.perf_counter() - start, size, flush=True)
else:
    print("ready", flush=True)
sys.stdin.readline()
"""


def memory_mb(what="VmRSS"):
    """Memory of this process now, in MB."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(what)) / 1024


def peak_mb():
    """The most memory that this process had, in MB."""
    return memory_mb("VmHWM")


def stats(rnd):
    hist = [float(int(rnd.gauss(0, 1) ** 2 * 40_000)) for _ in range(32)]
    return TensorStats(rnd.gauss(0, 1), rnd.random(), rnd.random() * 5, rnd.random(), 0, 0, None, hist)


def make_frame(step, count, seed=0):
    """A frame of `count` blocks with two histograms each."""
    rnd = random.Random(seed)
    blocks = [
        BlockHealth(f"b{n}", act=stats(rnd), grad=stats(rnd), weightNorm=rnd.random()) for n in range(count)
    ]
    return HealthFrame(step, 1.0, rnd.random(), blocks)


@contextlib.contextmanager
def client(bridge, kind, count=1):
    """A client process that has connected."""
    command = [sys.executable, "-c", CLIENT, kind, str(bridge.port), bridge.token, str(count)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


class Ticker(threading.Thread):
    """Another Python thread: its longest gap is how long it was kept from running."""

    def __init__(self):
        super().__init__(daemon=True)
        self.going, self.longest = True, 0.0

    def run(self):
        last = time.perf_counter()
        while self.going:
            sum(range(200))
            now = time.perf_counter()
            self.longest = max(self.longest, now - last)
            last = now


def longest_gap(work):
    """Seconds of the longest gap of another thread while `work` runs, and what that gave."""
    ticker = Ticker()
    ticker.start()
    result = work()
    ticker.going = False
    ticker.join()
    return ticker.longest, result


def bench_push():
    """Time in push_health on the caller's thread: 500 blocks, 0 and 8 tabs that never read."""
    for tabs in (0, 8, 0, 8):
        frames = [make_frame(step, 500, step) for step in range(10)]
        with Bridge() as bridge, contextlib.ExitStack() as stack:
            if tabs:
                stack.enter_context(client(bridge, "tab", tabs))
            cpu, wall = [], []
            for step in range(100):
                frame = frames[step % 10]
                frame.step = step
                at, used = time.perf_counter(), time.thread_time()
                bridge.push_health(frame)
                cpu.append(time.thread_time() - used)
                wall.append(time.perf_counter() - at)
                time.sleep(0.02)
            print(
                f"push, {tabs} tabs: median {statistics.median(wall) * 1e3:.3f} ms wall, "
                f"{statistics.median(cpu) * 1e3:.3f} ms CPU; worst {max(wall) * 1e3:.2f} ms (goal 0.1 ms)"
            )


def filled(bridge, count=5000, blocks=50):
    """Push `count` frames as fast as they are encoded."""
    frames = [make_frame(step, blocks, step) for step in range(10)]
    for step in range(count):
        frames[step % 10].step = step
        bridge.push_health(frames[step % 10])
        if step % 500 == 499:
            bridge.health_since(10**9)


def read_health(process):
    """Seconds to the first byte and to the last, and the size, of all frames."""
    process.stdin.write("go\n")
    process.stdin.flush()
    return [float(word) for word in process.stdout.readline().split()]


def bench_stall():
    """The longest stall of another thread while /health with 5,000 frames is served."""
    with Bridge() as bridge:
        filled(bridge)
        for _ in range(3):
            # The clients are started beforehand: starting a process stops all threads of this one.
            with client(bridge, "health") as one, client(bridge, "health") as other:
                idle, _ = longest_gap(lambda: time.sleep(1))
                before = peak_mb()
                gap, (first, whole, size) = longest_gap(functools.partial(read_health, one))
                alone = read_health(other)[1]
            print(
                f"health of {len(bridge.history)} frames, {size / 1e6:.0f} MB: "
                f"first byte {first * 1e3:.0f} ms, "
                f"all {whole:.2f} s beside a busy thread, {alone:.2f} s alone, "
                f"longest stall of that thread {gap * 1e3:.1f} ms (idle {idle * 1e3:.1f} ms; goal 20 ms); "
                f"peak memory +{peak_mb() - before:.1f} MB"
            )


def ask(bridge):
    """Seconds until /spec was answered."""
    start = time.perf_counter()
    with socket.create_connection(("127.0.0.1", bridge.port), timeout=5) as sock:
        sock.sendall(
            f"GET /spec?token={bridge.token} HTTP/1.1\r\nHost: 127.0.0.1:{bridge.port}\r\n\r\n".encode()
        )
        while sock.recv(1 << 16):
            pass
    return time.perf_counter() - start


def bench_idle():
    """A request while 200 idle connections stand."""
    with Bridge() as bridge:
        bare = statistics.median(ask(bridge) for _ in range(20))
        with client(bridge, "idle", 200):
            loaded = statistics.median(ask(bridge) for _ in range(20))
        print(f"request: {bare * 1e3:.2f} ms alone, {loaded * 1e3:.2f} ms beside 200 idle connections")


def bench_memory():
    """Memory over 50,000 frames with a tab that never reads."""
    with Bridge() as bridge, client(bridge, "tab"):
        marks = []
        for part in range(10):
            for step in range(5000):
                bridge.push_health(
                    {"step": part * 5000 + step, "t": 0.0, "loss": 0.5, "blocks": [{"id": "a0"}] * 20}
                )
                if step % 500 == 499:
                    bridge.health_since(10**9)
            marks.append(memory_mb())
        print("MB after each 5,000 of 50,000 frames: " + " ".join(f"{mark:.0f}" for mark in marks))


BENCHES = {"push": bench_push, "stall": bench_stall, "idle": bench_idle, "memory": bench_memory}


def main(names):
    for name in names or BENCHES:
        BENCHES[name]()
    print(json.dumps({"benchmarks": list(names or BENCHES)}))


if __name__ == "__main__":
    main(sys.argv[1:])
