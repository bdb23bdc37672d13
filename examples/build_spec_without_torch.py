"""Describe a model by hand, without PyTorch, and show it as a link or a file.

    python examples/build_spec_without_torch.py              # prints a link and writes mini-llama.pta
    python examples/build_spec_without_torch.py --open       # also opens the link

Only the standard library is needed: a model in JAX, in a paper, or in your head does.
"""

from __future__ import annotations

import argparse

import papertoanything as ptoa
from ptoa_core import SpecBuilder, validate

VOCAB, WIDTH, HEADS, LAYERS = 32_000, 512, 8, 4


def build() -> ptoa.ModelSpec:
    """A small Llama: grouped-query attention with rotary positions, gated MLPs, RMSNorm, a tied output."""
    b = SpecBuilder("mini-llama")
    tokens = b.tokens(vocab=VOCAB)
    embedding = x = b.embedding(tokens, vocab=VOCAB, d=WIDTH)
    for i in range(LAYERS):
        with b.group(f"layers.{i}", "Layer"):
            h = b.norm(x, variant="rmsnorm", d=WIDTH)
            h = b.attention(h, d=WIDTH, heads=HEADS, causal=True, kvHeads=2, positions="rotary")
            x = b.add(x, h)
            h = b.norm(x, variant="rmsnorm", d=WIDTH)
            h = b.mlp(h, d=WIDTH, hidden=1408, variant="silu", gated=True)
            x = b.add(x, h)
    x = b.norm(x, variant="rmsnorm", d=WIDTH)
    return b.build(output=b.unembed(x, vocab=VOCAB, d=WIDTH, tied_to=embedding))


def main() -> None:
    """Build, check, show."""
    parser = argparse.ArgumentParser(description="Describe a model by hand and show it.")
    parser.add_argument("--open", action="store_true", help="open the link in a browser")
    args = parser.parse_args()

    spec = build()
    print(f"{spec.name}: {len(spec.blocks)} blocks, {len(validate(spec))} problems")
    ptoa.show(spec, open_browser=args.open)
    ptoa.show(spec, mode="file")


if __name__ == "__main__":
    main()
