"""What watching costs: a training step with a watch over the bare step, in one interleaved run.

    python tests/benchmarks/bench_watch.py [--models gpt,resnet] [--every 10] [--rounds 6] [--threads 1]

Each model trains twice from one seed, once bare and once watched with every default on
(histograms, attention, gradients, update ratio, run file, bridge without a tab). The two take
turns; a step's cost is the CPU time of the whole process, so that encoding on the other
thread is counted and other jobs on the machine are not. Columns are medians over the bare
step's median: steps between frames, frame steps, and both in the proportion of ``--every``.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import random
import statistics
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


@dataclass
class Trainer:
    """One copy of a model that trains, and what its steps cost."""

    model: nn.Module
    loss: Loss
    optimizer: torch.optim.Optimizer
    step: Callable[[Tensor], object]
    count: int = 0
    costs: dict[str, list[float]] = field(default_factory=lambda: {"frame": [], "plain": []})

    def run(self, steps: int, every: int, keep: bool = True) -> None:
        """Train, and note the CPU time of each step."""
        for _ in range(steps):
            started = time.process_time()
            loss = self.loss(self.model)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.step(loss)
            if keep:
                kind = "frame" if self.count % every == 0 else "plain"
                self.costs[kind].append(time.process_time() - started)
            self.count += 1


def _trainer(
    build: Callable[[], tuple[nn.Module, Loss]], every: int, folder: str | None
) -> tuple[Trainer, Callable[[], object]]:
    """A trainer from the one seed, watched where a folder for the run file is given."""
    torch.manual_seed(0)
    model, loss = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    if folder is None:
        return Trainer(model, loss, optimizer, lambda _: None), lambda: None
    watching = watch(model, optimizer, every, open=False, run_file=Path(folder) / "run.pta")
    return Trainer(model, loss, optimizer, watching.step), watching.close


def measure(name: str, every: int, rounds: int) -> tuple[float, float, float, float]:
    """Bare step in milliseconds; between frames, frame step and mean as ratios to it."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        bare, _ = _trainer(MODELS[name][1], every, None)
        watched, close = _trainer(MODELS[name][1], every, folder)
        for trainer in (bare, watched):
            trainer.run(2 * every, every, keep=False)
        order = [bare, watched]
        for _ in range(rounds):
            random.shuffle(order)
            for trainer in order:
                trainer.run(2 * every, every)
        close()
    base = statistics.median(bare.costs["plain"] + bare.costs["frame"])
    plain, frame = (statistics.median(watched.costs[kind]) / base for kind in ("plain", "frame"))
    return base * 1000, plain, frame, (frame + (every - 1) * plain) / every


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    print(f"torch {torch.__version__}, {given.threads} thread(s), every={given.every}")
    print("CPU time over the bare step")
    print(f"{'model':36s} {'bare ms':>9s} {'between':>9s} {'frame':>9s} {'mean':>9s}")
    for name in given.models.split(","):
        base, plain, frame, mean = measure(name, given.every, given.rounds)
        print(f"{MODELS[name][0]:36s} {base:9.2f} {plain:9.3f} {frame:9.3f} {mean:9.3f}", flush=True)


if __name__ == "__main__":
    main()
