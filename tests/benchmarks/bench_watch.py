"""What watching costs: a training step with a watch over the bare step, in one interleaved run.

    python tests/benchmarks/bench_watch.py [--models gpt,resnet] [--tools ours,0.1.0,wandb,tensorboard]
        [--every 10] [--rounds 6] [--threads 1] [--peers FOLDER]

Each model trains from one seed once bare and once with each tool; ours has every default on
(histograms, attention, gradients, update ratio, run file, bridge without a tab). They take turns
in random order; a step's cost is the CPU time of the whole process, so that other jobs on the
machine are not counted, and what the tool does on other threads is: a frame step of ours ends
when its frame is encoded and written. Columns are medians over the bare step's median, with the
quartiles of the frame step, and the most memory that a process of its own takes beyond the bare
one; below ours stands what is aimed at. With ``--budget 1%`` each model also trains alone with that
budget, between two runs without, since a watch takes the time of others for that of the training.
Other tools are fetched with pip into a folder of their own; one that cannot be is left out.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ptoa_torch.watch import watch

Loss = Callable[[nn.Module], Tensor]


class Attention(nn.Module):
    """Causal self-attention by ``scaled_dot_product_attention``."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.num_heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1)
        )
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.proj(mixed.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """A pre-norm transformer layer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(width), Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """Token and position embeddings, layers, and logits."""

    def __init__(self, vocab: int, length: int, layers: int, heads: int, width: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class Residual(nn.Module):
    """Two convolutions around which the input is added."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outer)
        self.act = nn.ReLU()
        plain = stride == 1 and inner == outer
        self.short = nn.Identity() if plain else nn.Conv2d(inner, outer, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(self.act(self.norm1(self.conv1(x)))))
        return self.act(y + self.short(x))


def _gpt(vocab: int, length: int, layers: int, heads: int, width: int, batch: int) -> tuple[nn.Module, Loss]:
    """A language model and its loss on fixed tokens."""
    tokens = torch.randint(0, vocab, (batch, length + 1))

    def loss(model: nn.Module) -> Tensor:
        return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    return GPT(vocab, length, layers, heads, width), loss


def _resnet() -> tuple[nn.Module, Loss]:
    """Four stages of two residual blocks on 64 by 64 images."""
    images, labels = torch.randn(16, 3, 64, 64), torch.randint(0, 100, (16,))
    widths = (64, 64, 128, 256, 512)
    blocks: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    for stage in range(4):
        blocks += [Residual(widths[stage], widths[stage + 1], 1 if stage == 0 else 2)]
        blocks += [Residual(widths[stage + 1], widths[stage + 1], 1)]
    blocks += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 100)]
    return nn.Sequential(*blocks), lambda model: F.cross_entropy(model(images), labels)


def _mlp(depth: int = 200, width: int = 64) -> tuple[nn.Module, Loss]:
    """A long chain of small linear layers."""
    parts: list[nn.Module] = []
    for _ in range(depth):
        linear = nn.Linear(width, width)
        nn.init.kaiming_normal_(linear.weight)  # otherwise nothing reaches the far end
        parts += [linear, nn.ReLU()]
    x, y = torch.randn(64, width), torch.randint(0, width, (64,))
    return nn.Sequential(*parts[:-1]), lambda model: F.cross_entropy(model(x), y)


MODELS: dict[str, tuple[str, Callable[[], tuple[nn.Module, Loss]]]] = {
    "tiny": ("tiny GPT (2 layers, d=64)", lambda: _gpt(64, 32, 2, 2, 64, 16)),
    "gpt": ("GPT (6 layers, d=384, T=256, B=8)", lambda: _gpt(4096, 256, 6, 6, 384, 8)),
    "resnet": ("ResNet-like, 64x64, B=16", _resnet),
    "mlp": ("MLP of 200 linears", _mlp),
}


# Between frames, on a frame step, and the mean at every=10.
GOALS = {
    "tiny": (1.002, 1.4, 1.045),
    "gpt": (1.002, 1.12, 1.015),
    "resnet": (1.002, 1.15, 1.02),
    "mlp": (1.002, 1.8, 1.085),
}
PEERS = {
    "0.1.0": ("papertoanything==0.1.0", "--no-deps"),
    "wandb": ("wandb",),
    "tensorboard": ("tensorboard", "numpy"),
}
Step = Callable[[Tensor], object]
Started = tuple[Step, Callable[[], object], Callable[[], object]]


def _ours(model: nn.Module, optimizer: torch.optim.Optimizer, every: int, folder: str) -> Started:
    """A watch with every default on."""
    watching = watch(model, optimizer, every, open=False, run_file=Path(folder) / "run.pta")
    return watching.step, lambda: len(watching.frames), watching.close


def _old(model: nn.Module, optimizer: torch.optim.Optimizer, every: int, folder: str) -> Started:
    """papertoanything 0.1.0 with every default on."""
    package = importlib.import_module("papertoanything")
    watching = package.watch(model, optimizer, every=every, open=False, run_file=f"{folder}/old.pta")
    return watching.step, lambda: None, watching.close


def _wandb(model: nn.Module, optimizer: torch.optim.Optimizer, every: int, folder: str) -> Started:
    """wandb offline, gradients and parameters, no activations; its frame is each period's last step."""
    wandb = importlib.import_module("wandb")
    quiet = wandb.Settings(silent=True, console="off")
    run = wandb.init(mode="offline", project="bench", dir=folder, settings=quiet)
    wandb.watch(model, log="all", log_freq=every)
    return lambda loss: run.log({"loss": loss.item()}), lambda: None, run.finish


def _tensorboard(model: nn.Module, optimizer: torch.optim.Optimizer, every: int, folder: str) -> Started:
    """Histograms of outputs, gradients and parameters, as its users write them."""
    writer = importlib.import_module("torch.utils.tensorboard").SummaryWriter(folder)
    count = 0

    def saw(name: str, output: Tensor) -> None:
        if count % every == 0:
            writer.add_histogram(f"{name}/out", output.detach(), count)

    for name, module in model.named_modules():
        if not list(module.children()):
            module.register_forward_hook(lambda _module, _args, out, name=name: saw(name, out))

    def step(loss: Tensor) -> None:
        nonlocal count
        if count % every == 0:
            writer.add_scalar("loss", loss.item(), count)
            for name, parameter in model.named_parameters():
                writer.add_histogram(name, parameter.detach(), count)
                if parameter.grad is not None:
                    writer.add_histogram(f"{name}/grad", parameter.grad, count)
        count += 1

    return step, lambda: None, writer.close


TOOLS: dict[str, Callable[[nn.Module, torch.optim.Optimizer, int, str], Started]] = {
    "ours": _ours,
    "0.1.0": _old,
    "wandb": _wandb,
    "tensorboard": _tensorboard,
}


def fetch(tools: list[str], folder: Path) -> list[str]:
    """The tools that are there, once the others have been fetched where that is possible."""
    there = []
    for tool in tools:
        place = folder / tool
        if tool in PEERS and not place.exists():
            options = ("--quiet", "--disable-pip-version-check", f"--target={place}")
            subprocess.run([sys.executable, "-m", "pip", "install", *options, *PEERS[tool]], check=False)
        if tool not in PEERS or place.exists():
            there.append(tool)
            if tool in PEERS:
                sys.path.insert(0, str(place))
        else:
            print(f"{tool} cannot be fetched and is left out")
    return there


@dataclass
class Trainer:
    """One copy of a model that trains, and what its steps cost."""

    model: nn.Module
    loss: Loss
    optimizer: torch.optim.Optimizer
    step: Step
    settle: Callable[[], object]
    close: Callable[[], object]
    last: bool = False
    count: int = 0
    costs: dict[str, list[float]] = field(default_factory=lambda: {"frame": [], "plain": []})

    def run(self, steps: int, every: int, keep: bool = True) -> None:
        """Train, and note the CPU time of each step."""
        for _ in range(steps):
            frame = self.count % every == (every - 1 if self.last else 0)
            started = time.process_time()
            loss = self.loss(self.model)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.step(loss)
            if frame:
                self.settle()
            if keep:
                self.costs["frame" if frame else "plain"].append(time.process_time() - started)
            self.count += 1


def _trainer(model_name: str, tool: str, every: int, folder: str) -> Trainer:
    """A trainer from the one seed, bare or with a tool."""
    torch.manual_seed(0)
    model, loss = MODELS[model_name][1]()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    if tool == "bare":
        return Trainer(model, loss, optimizer, lambda _: None, lambda: None, lambda: None)
    started = TOOLS[tool](model, optimizer, every, folder)
    return Trainer(model, loss, optimizer, *started, last=tool == "wandb")


def measure(name: str, tools: list[str], every: int, rounds: int) -> dict[str, Trainer]:
    """A trainer for the bare model and for each tool, having taken turns."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        trainers = {tool: _trainer(name, tool, every, folder) for tool in ("bare", *tools)}
        for trainer in trainers.values():
            trainer.run(2 * every, every, keep=False)
        order = list(trainers.values())
        for _ in range(rounds):
            random.shuffle(order)
            for trainer in order:
                trainer.run(2 * every, every)
        for trainer in order:
            trainer.close()
    return trainers


def peak_memory(name: str, tool: str, peers: str) -> float:
    """The most memory of a process that trains three frames with a tool, in MB."""
    command = [sys.executable, __file__, f"--models={name}", f"--peak={tool}", f"--peers={peers}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def _print_peak(name: str, tool: str) -> None:
    """Train three frames and print this process's peak memory in MB."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        trainer = _trainer(name, tool, 2, folder)
        trainer.run(6, 2)
        trainer.close()
    print(_peak())


def _peak() -> float:
    """This process's peak memory in MB."""
    status = Path("/proc/self/status")
    if status.exists():  # elsewhere a new process may begin with its parent's peak
        lines = status.read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**10
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def _row(tool: str, trainer: Trainer, bare: list[float], every: int) -> str:
    """What one tool costs, over the bare step."""
    base = statistics.median(bare)
    plain, frame = (statistics.median(trainer.costs[kind]) / base for kind in ("plain", "frame"))
    low, _, high = (cost / base for cost in statistics.quantiles(trainer.costs["frame"], n=4))
    mean = (frame + (every - 1) * plain) / every
    return f"  {tool:12s} {plain:9.3f} {frame:9.3f} {f'{low:.2f} to {high:.2f}':>14s} {mean:9.3f}"


def _under_budget(name: str, budget: str, every: int, steps: int) -> str:
    """What a watch with a budget costs by the clock of the process, and what it says itself."""
    costs = []
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        bare, watched = _trainer(name, "bare", every, folder), _trainer(name, "bare", every, folder)
        watching = watch(watched.model, watched.optimizer, every, open=False, run_file=False, budget=budget)
        watched.step = watching.step
        for trainer, count in ((bare, steps // 2), (watched, steps), (bare, steps // 2)):
            trainer.run(count, 1)
            costs.append(trainer.costs["frame"])
        frames = [frame.step for frame in watching.frames if 0 < frame.step < steps - 1]
        said = watching.frames[-1].extra["cost"]
        watching.close()
    step, plain = statistics.median(costs[0]), statistics.median(costs[1])
    # A frame may be written in the step after it.
    frame = statistics.median(costs[1][at] + costs[1][at + 1] - 2 * plain for at in frames)
    cost = (plain + frame * len(frames) / steps) / step
    told = f"it says {1 + said['share']:.3f}, at last with every={said['every']}"
    return f"  budget={budget:5s} mean {cost:.3f} by the steps' medians; {told}"


def _goal(name: str) -> str:
    """What is aimed at."""
    plain, frame, mean = GOALS[name]
    return f"  {'goal':12s} {plain:9.3f} {frame:9.3f} {'':14s} {mean:9.3f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peers", default=str(Path(__file__).parents[2] / ".build" / "peers"))
    parser.add_argument("--budget", help="train with this budget too, alone")
    parser.add_argument("--budget-steps", type=int, default=1000)
    parser.add_argument("--peak", help="only print the peak memory with this tool")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true")
    names = given.models.split(",")
    if given.peak is not None:
        fetch([given.peak], Path(given.peers))
        _print_peak(names[0], given.peak)
        return
    tools = fetch(given.tools.split(","), Path(given.peers))
    print(f"torch {torch.__version__}, {given.threads} thread(s), every={given.every}")
    print("CPU time over the bare step; memory beyond the bare process")
    print(f"  {'tool':12s} {'between':>9s} {'frame':>9s} {'quartiles':>14s} {'mean':>9s} {'MB':>7s}")
    for name in names:
        trainers = measure(name, tools, given.every, given.rounds)
        bare = trainers.pop("bare")
        costs = bare.costs["plain"] + bare.costs["frame"]
        print(f"{MODELS[name][0]}, bare step {statistics.median(costs) * 1000:.2f} ms")
        least = peak_memory(name, "bare", given.peers)
        for tool, trainer in trainers.items():
            extra = peak_memory(name, tool, given.peers) - least
            print(f"{_row(tool, trainer, costs, given.every)} {extra:7.0f}", flush=True)
            if tool == "ours":
                print(_goal(name))
        if given.budget:
            print(_under_budget(name, given.budget, given.every, given.budget_steps), flush=True)


if __name__ == "__main__":
    main()
