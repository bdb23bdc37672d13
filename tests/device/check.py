"""What only a GPU shows, in one script: `python tests/device/check.py` prints a line for each check.

Exit status: 0 when all hold, 1 when one does not, 2 where there is no CUDA device (nothing was checked).
Needs the five packages and torch; takes well under a minute of work on one GPU.
"""

from __future__ import annotations

import contextlib
import io
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

import papertoanything as ptoa

STEPS = 30
EVERY = 5


class TinyAttention(nn.Module):
    """Causal attention over a kernel that hides its probabilities."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(d, 3 * d)
        self.out = nn.Linear(d, d)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, d = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, d))


class TinyModel(nn.Module):
    """Embedding, attention, an MLP with dropout, and a head."""

    def __init__(self, vocab: int = 50, d: int = 32) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.norm = nn.LayerNorm(d)
        self.attn = TinyAttention(d, heads=4)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.ReLU(), nn.Dropout(0.1), nn.Linear(4 * d, d))
        self.head = nn.Linear(d, vocab)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        x = x + self.attn(self.norm(x))
        return self.head(x + self.mlp(x))


def train(
    watched: bool, between: Callable[[int], Any] | None = None
) -> tuple[list[torch.Tensor], nn.Module, Any]:
    """A seeded run on the GPU: its losses, its model, and its watch when there was one."""
    torch.manual_seed(0)
    model = TinyModel().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ids = torch.randint(0, 50, (8, 33), device="cuda")
    losses = []
    with contextlib.ExitStack() as stack:
        watch = stack.enter_context(quiet_watch(model, optimizer)) if watched else None
        for step in range(STEPS):
            with between(step) if between else contextlib.nullcontext():
                logits = model(ids[:, :-1])
                loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                if watch is not None:
                    watch.step(loss)
            losses.append(loss.detach())
        frames = None if watch is None else list(watch.frames)
    return losses, model, frames


@contextlib.contextmanager
def quiet_watch(model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[Any]:
    """A watch that opens nothing, writes nothing, and prints nothing here."""
    with contextlib.redirect_stdout(io.StringIO()):
        watch = ptoa.watch(model, optimizer, every=EVERY, open=False, run_file=False)
        try:
            yield watch
        finally:
            watch.close()


@contextlib.contextmanager
def no_synchronisation() -> Iterator[None]:
    """Any wait for the device inside is an error."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def guarded(step: int) -> contextlib.AbstractContextManager[None]:
    """Between frames nothing may wait: neither on the step before a frame's numbers are read, nor on it."""
    quiet = step > EVERY and step % EVERY in range(2, EVERY - 1)
    return no_synchronisation() if quiet else contextlib.nullcontext()


def check_bit_equal() -> str:
    """Watched and unwatched runs have the same losses and weights, bit for bit."""
    bare, plain, _ = train(watched=False)
    seen, watched, _ = train(watched=True)
    assert all(torch.equal(a, b) for a, b in zip(bare, seen, strict=True)), "losses differ"
    for (name, a), b in zip(plain.named_parameters(), watched.parameters(), strict=True):
        assert torch.equal(a, b), f"{name} differs"
    return f"{STEPS} losses and {sum(1 for _ in plain.parameters())} parameters"


def check_no_wait_between_frames() -> str:
    """Steps between frames do not wait for the device."""
    train(watched=True, between=guarded)
    return "cuda sync debug mode raised nothing"


def check_frames_are_whole() -> str:
    """Frames carry times by CUDA events, memory, and statistics of what was on the GPU."""
    frames = train(watched=True)[2]
    assert [frame.step for frame in frames] == list(range(0, STEPS, EVERY)), [frame.step for frame in frames]
    last = frames[-1]
    assert last.loss is not None, "no loss"
    assert last.gradNorm, "no gradient norm"
    assert last.memory, "no memory"
    assert last.timing, "no times"
    assert last.timing["forward"] > 0, f"timing is {last.timing}"
    assert any(block.act and block.act.std > 0 for block in last.blocks), "no activation statistics"
    assert any(block.headEntropy for block in last.blocks), "no attention entropy"
    return f"{len(frames)} frames, forward {last.timing['forward']:.2f} ms, {last.memory / 1e6:.0f} MB"


def check_statistics_match_the_cpu() -> str:
    """The statistics of a tensor on the GPU are those of float64 on the CPU."""
    values = torch.randn(100_003, device="cuda") * 3 + 1000
    found, right = ptoa_stats(values), values.cpu().double()
    assert abs(found.mean - right.mean().item()) < 1e-3, found.mean
    assert abs(found.std - right.std(correction=0).item()) < 1e-3, found.std
    assert sum(found.hist) == values.numel(), "the histogram loses values"
    return f"mean {found.mean:.4f}, std {found.std:.4f}"


def ptoa_stats(values: torch.Tensor) -> Any:
    """`tensor_stats`, from the path that users import."""
    from papertoanything.health import tensor_stats

    return tensor_stats(values)


def check_capture_leaves_the_device_alone() -> str:
    """Reading and capturing move nothing and leave the device's random state as it was."""
    model = TinyModel().cuda()
    ids = torch.randint(0, 50, (2, 8), device="cuda")
    before = torch.cuda.get_rng_state()
    spec = ptoa.from_module(model, ids)
    frame = ptoa.capture(model, ids, spec=spec)
    assert torch.equal(before, torch.cuda.get_rng_state()), "the device's random state changed"
    assert all(parameter.is_cuda for parameter in model.parameters()), "parameters were moved"
    assert frame.tensors, "nothing was captured"
    return f"{len(spec.blocks)} blocks, {len(frame.tensors)} tensors"


CHECKS = (
    check_bit_equal,
    check_no_wait_between_frames,
    check_frames_are_whole,
    check_statistics_match_the_cpu,
    check_capture_leaves_the_device_alone,
)


def main() -> int:
    """Run every check and print what it found."""
    if not torch.cuda.is_available():
        print("no CUDA device: nothing was checked")
        return 2
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    failed = 0
    for check in CHECKS:
        began = time.perf_counter()
        try:
            said = f"ok    {check.__name__}: {check()}"
        except Exception as error:
            failed += 1
            said = f"FAIL  {check.__name__}: {type(error).__name__}: {error}"
        print(f"{said} ({time.perf_counter() - began:.1f} s)", flush=True)
    print(f"{len(CHECKS) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
