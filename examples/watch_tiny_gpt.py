"""Train a tiny GPT on the CPU and watch it in a browser tab on this machine.

    python examples/watch_tiny_gpt.py                 # healthy
    python examples/watch_tiny_gpt.py --break relu    # dead ReLUs: "hidden 0" of the MLPs goes to 100 %
    python examples/watch_tiny_gpt.py --break lr      # learning rate too high: the loss explodes

It takes about a minute. On a terminal the page stays until Ctrl+C; in a pipe the program ends by itself.
"""

from __future__ import annotations

import argparse
import sys
import time

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

import papertoanything as ptoa

TEXT = """
A model is a function with numbers in it. To train it is to move those numbers, a little at a
time, so that what comes out is closer to what was wanted. Each step asks the same question of
every number: if you were a little larger, would the answer be better or worse? Most of the time
nobody looks. The loss goes down, the lamp on the machine blinks, and a day later there is a
model or there is not. Yet the numbers tell a great deal while they move. A layer whose gradient
is a thousand times smaller than the next one's is hardly learning. A unit that is zero for every
word of every sentence has left the room. A head that looks at one word from everywhere may have
found something, or may be stuck. An update as large as the weight itself is not a step, it is a
leap, and most leaps land badly. So let us look. Here is a small model that reads a small text,
letter by letter, and guesses the next one. At first it guesses that every letter is as likely as
any other. Soon it knows that a space is common, and that a q wants a u. Then it finds words, and
then, because the text is short and the model has nothing else to read, it knows the text by heart.
"""

CONTEXT, WIDTH, HEADS, LAYERS, BATCH = 64, 64, 4, 3, 16


class Attention(nn.Module):
    """Causal self-attention with several heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Mix what earlier letters say."""
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).split(width, dim=2)
        )
        y = scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class MLP(nn.Module):
    """Two layers with a ReLU between them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.act = nn.ReLU()
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Work on each letter by itself."""
        return self.down(self.act(self.up(x)))


class Layer(nn.Module):
    """Attention and MLP, each on a normalised copy of what flows past."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = MLP(width)

    def forward(self, x: Tensor) -> Tensor:
        """Add what attention and MLP find."""
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class TinyGPT(nn.Module):
    """A GPT small enough to know a page by heart within a minute."""

    def __init__(self, vocab: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        self.layers = nn.ModuleList(Layer(WIDTH, HEADS) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, vocab)

    def forward(self, ids: Tensor) -> Tensor:
        """Scores of the next letter at every place."""
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def batch_of(data: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random windows of the text, and the same windows one letter on."""
    starts = torch.randint(len(data) - CONTEXT - 1, (BATCH,), generator=generator)
    windows = torch.stack([data[start : start + CONTEXT + 1] for start in starts.tolist()])
    return windows[:, :-1], windows[:, 1:]


def let_relus_die(model: TinyGPT) -> None:
    """The mistake of `--break relu`: something pulls the biases before the ReLUs down at every step."""
    with torch.no_grad():
        for layer in model.layers:
            layer.mlp.up.bias -= 0.05


def arguments() -> argparse.Namespace:
    """What was asked for on the command line."""
    parser = argparse.ArgumentParser(description="Train a tiny GPT on the CPU and watch it in a browser tab.")
    parser.add_argument(
        "--break", dest="broken", choices=("relu", "lr"), help="train it wrongly, to see how that looks"
    )
    parser.add_argument(
        "--lab", choices=("local", "hosted"), default="local", help="the page to open (default: local)"
    )
    parser.add_argument("--steps", type=int, default=600, help="training steps (default: 600)")
    parser.add_argument("--no-open", action="store_true", help="open no browser")
    return parser.parse_args()


def main() -> None:
    """Train, and let the page stay for whoever is looking."""
    args = arguments()
    torch.set_num_threads(1)  # more threads only wait for each other on a model this small
    torch.manual_seed(0)
    letters = sorted(set(TEXT))
    data = torch.tensor([letters.index(letter) for letter in TEXT])
    generator = torch.Generator().manual_seed(1)

    model = TinyGPT(len(letters))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3.0 if args.broken == "lr" else 1e-3)
    with ptoa.watch(
        model,
        optimizer,
        every=5,
        open=not args.no_open,
        lab_url="local" if args.lab == "local" else None,
        example_input=data[None, :CONTEXT],
    ) as watch:
        for step in range(args.steps):
            ids, wanted = batch_of(data, generator)
            loss = cross_entropy(model(ids).flatten(0, 1), wanted.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)
            if args.broken == "relu":
                let_relus_die(model)
            if step % 50 == 0 or step == args.steps - 1:
                print(f"step {step:4}  loss {loss.item():.3f}", flush=True)
        if sys.stdout.isatty():
            wait_for_ctrl_c()


def wait_for_ctrl_c() -> None:
    """Return when Ctrl+C is pressed."""
    try:
        print("Trained. The page stays until you press Ctrl+C.")
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
