"""What reading a model costs: `from_module` over one plain forward pass, in one interleaved run.

    python tests/benchmarks/bench_read.py [--models gpt,resnet,...] [--rounds 3] [--peer-modules 1100]

Columns: the reader as it is called (``auto``) and its recorded pass alone (``hooks``), as multiples
of the forward pass and in microseconds a module beyond it; then other tools that walk a model with
an example input, where they are installed (torchinfo draws no edges; torchview and torchlens do).
All take turns; times are CPU time of the process, the least of the rounds, so that other jobs on
the machine count little. Memory is the peak of the process above where it started, of a process
of its own for each: a forward pass, and a reading of which it is a part.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import multiprocessing
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent))
from bench_watch import GPT

from ptoa_torch import from_module

Reader = Callable[[nn.Module, Tensor], object]


class Bottleneck(nn.Module):
    """Three convolutions around which the input is added, as in ResNet-50."""

    def __init__(self, inner: int, width: int, stride: int) -> None:
        super().__init__()
        outer = 4 * width
        sizes = ((inner, width, 1, 1), (width, width, 3, stride), (width, outer, 1, 1))
        self.convs = nn.ModuleList(
            nn.Conv2d(a, b, size, step, size // 2, bias=False) for a, b, size, step in sizes
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(b) for _, b, _, _ in sizes)
        self.act = nn.ReLU(inplace=True)
        self.short: nn.Module | None = None
        if stride != 1 or inner != outer:
            self.short = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for place, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            y = norm(conv(y))
            y = self.act(y) if place < 2 else y
        return self.act(y + (x if self.short is None else self.short(x)))


def resnet(depths: tuple[int, ...] = (3, 4, 6, 3)) -> nn.Module:
    """A network of the shape of ResNet-50."""
    parts: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
    ]
    parts.append(nn.MaxPool2d(3, 2, 1))
    inner = 64
    for stage, depth in enumerate(depths):
        for place in range(depth):
            width = 64 << stage
            parts.append(Bottleneck(inner, width, 2 if stage and not place else 1))
            inner = 4 * width
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inner, 1000))


class Small(nn.Module):
    """A residual feed-forward layer: four modules, nested."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.act, self.down = nn.Linear(width, width), nn.GELU(), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.act(self.up(x)))


def chain(count: int) -> nn.Module:
    """Linear layers and activations in a row, ``count`` modules."""
    return nn.Sequential(*(nn.Linear(8, 8) if place % 2 == 0 else nn.ReLU() for place in range(count - 1)))


def nested(count: int) -> nn.Module:
    """Small residual layers in a row, about ``count`` modules."""
    return nn.Sequential(*(Small(8) for _ in range(count // 4)))


def _gpt(layers: int, width: int) -> tuple[nn.Module, Tensor]:
    """A language model and its tokens."""
    return GPT(64, 32, layers, 4, width), torch.randint(0, 64, (1, 16))


MODELS: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "gpt": lambda: _gpt(2, 32),
    "gpt48": lambda: _gpt(48, 64),
    "resnet50": lambda: (resnet(), torch.randn(1, 3, 64, 64)),
    "chain1000": lambda: (chain(1_000), torch.ones(1, 8)),
    "nested1000": lambda: (nested(1_000), torch.ones(1, 8)),
    "chain10000": lambda: (chain(10_000), torch.ones(1, 8)),
    "nested10000": lambda: (nested(10_000), torch.ones(1, 8)),
}
# Models of which tensors are what takes memory.
HEAVY: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "resnet50, 8 images of 224": lambda: (resnet(), torch.randn(8, 3, 224, 224)),
    "gpt, 12 layers, 1,024 tokens": lambda: (
        GPT(256, 1024, 12, 12, 768),
        torch.randint(0, 256, (1, 1024)),
    ),
}


def readers() -> dict[str, Reader]:
    """Ours, and the other tools that are installed."""
    found: dict[str, Reader] = {
        "forward": lambda model, x: model(x),
        "auto": from_module,
        "hooks": lambda model, x: from_module(model, x, strategy="hooks"),
    }
    peers: dict[str, Callable[[Any], Reader]] = {
        "torchinfo": lambda tool: lambda m, x: tool.summary(m, input_data=x, verbose=0, device="cpu"),
        "torchview": lambda tool: lambda m, x: tool.draw_graph(m, input_data=x, device="cpu"),
        "torchlens": lambda tool: tool.trace,
    }
    for name, bind in peers.items():
        with contextlib.suppress(ImportError):
            found[name] = bind(importlib.import_module(name))
    return found


def seconds(read: Reader, model: nn.Module, x: Tensor) -> float:
    """CPU time of one reading."""
    gc.collect()
    start = time.process_time()
    with torch.no_grad():
        read(model, x)
    return time.process_time() - start


def measure(model: nn.Module, x: Tensor, tools: dict[str, Reader], rounds: int) -> dict[str, float]:
    """The least CPU time of each tool over rounds in which all take turns; a tool that fails stands aside."""
    least: dict[str, float] = {}
    working = dict(tools)
    for _ in range(rounds + 1):  # the first one warms up
        for name, read in list(working.items()):
            try:
                taken = seconds(read, model, x)
            except Exception as error:
                print(f"  {name} fails: {type(error).__name__}: {str(error)[:90]}")
                del working[name]
                continue
            least[name] = min(least.get(name, taken), taken)
    return {name: taken for name, taken in least.items() if name in working}


def peak(build: Callable[[], tuple[nn.Module, Tensor]], read: Reader, answer: Any) -> None:
    """Send by how much a reading raises this process's peak, in bytes."""
    import resource

    torch.set_num_threads(1)
    model, x = build()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with torch.no_grad():
        read(model, x)
    answer.send(1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))


def peak_of(build: Callable[[], tuple[nn.Module, Tensor]], read: Reader) -> float | None:
    """The peak of a forked process; None where the tool fails there."""
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=peak, args=(build, read, send))
    process.start()
    send.close()
    try:
        return float(receive.recv())
    except EOFError:
        return None
    finally:
        process.join()


def speed_table(names: list[str], rounds: int, peer_modules: int) -> None:
    """Print a row a model: time of the forward pass, and of each tool as multiples of it."""
    tools = readers()
    columns = [name for name in tools if name != "forward"]
    print(f"{'model':12} {'modules':>7} {'forward':>10}" + "".join(f"{name:>12}" for name in columns), end="")
    print(f"{'us a module: auto':>20}{'hooks':>7}")
    for name in names:
        model, x = MODELS[name]()
        model.eval()
        count = sum(1 for _ in model.modules())
        mine = {
            t: read for t, read in tools.items() if count <= peer_modules or t in ("forward", "auto", "hooks")
        }
        least = measure(model, x, mine, rounds)
        forward = least["forward"]
        shown = [f"{least[t] / forward:.1f} x" if t in least else "-" for t in columns]
        print(
            f"{name:12} {count:7} {1e3 * forward:7.1f} ms" + "".join(f"{item:>12}" for item in shown), end=""
        )
        each = [1e6 * (least[t] - forward) / count for t in ("auto", "hooks")]
        print(f"{each[0]:20.1f}{each[1]:7.1f}", flush=True)


def memory_table() -> None:
    """Print a row a model: the peak of a forward pass, and what each tool adds to it."""
    tools = readers()
    columns = [name for name in tools if name != "forward"]
    print(f"\n{'peak memory':30} {'forward':>10}" + "".join(f"{'+ ' + name:>14}" for name in columns))
    for name, build in HEAVY.items():
        base = peak_of(build, tools["forward"])
        print(f"{name:30} {(base or 0) / 2**20:7.0f} MB", end="")
        for tool in columns:
            more = peak_of(build, tools[tool])
            shown = "-" if more is None or base is None else f"{(more - base) / 2**20:.0f} MB"
            print(f"{shown:>14}", end="", flush=True)
        print()


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--peer-modules", type=int, default=1_500, help="larger models are left to our reader"
    )
    parser.add_argument("--no-memory", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    speed_table(options.models.split(","), options.rounds, options.peer_modules)
    if not options.no_memory and sys.platform != "win32":
        memory_table()


if __name__ == "__main__":
    main()
