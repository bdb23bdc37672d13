"""The vocabulary of a spec: block kinds, their letters, variants and params.

Tables only. Version 1 of the formats is closed: a new kind or variant is never added
here; what none of them fits is said in an extension param (``FORMATS.md``, section 1).
"""

from __future__ import annotations

__all__ = [
    "BLOCK_KINDS",
    "EXTENSION_PARAMS",
    "INFORMATIONAL_PARAMS",
    "KIND_LETTERS",
    "KIND_PARAMS",
    "KNOWN_VALUES",
    "POSITIONS",
    "VARIANTS",
    "BlockIds",
]

KIND_LETTERS = {
    "tokens": "t",
    "input": "i",
    "embedding": "e",
    "posenc": "p",
    "attention": "a",
    "mlp": "m",
    "norm": "n",
    "add": "r",
    "linear": "l",
    "activation": "f",
    "unembed": "u",
    "softmax": "s",
    "loss": "x",
    "group": "g",
}
BLOCK_KINDS = tuple(KIND_LETTERS)

_NONLINEAR = ("relu", "gelu", "tanh", "sigmoid", "silu")
VARIANTS = {
    "norm": ("layernorm", "rmsnorm"),
    "activation": _NONLINEAR,
    "mlp": _NONLINEAR,
    "posenc": ("learned", "sinusoidal"),
}

# JSON names, in the order in which a block of that kind is described.
KIND_PARAMS = {
    "tokens": ("vocab",),
    "input": ("in",),
    "embedding": ("vocab", "d"),
    "posenc": ("variant", "maxLen", "d"),
    "attention": ("heads", "d", "causal", "bias"),
    "mlp": ("d", "hidden", "bias", "variant"),
    "norm": ("variant", "d", "bias"),
    "linear": ("in", "out", "bias"),
    "activation": ("variant",),
    "unembed": ("vocab", "d", "bias", "tiedTo"),
    "add": (),
    "softmax": (),
    "loss": (),
    "group": (),
}

EXTENSION_PARAMS = (
    "type",
    "kvHeads",
    "headDim",
    "gated",
    "activation",
    "positions",
    "kernel",
    "stride",
    "channels",
    "experts",
    "topK",
    "shape",
    "dtype",
    "paramCount",
    "flops",
    "calls",
    "sharedWith",
    "repeats",
    "repeatOf",
    "unused",
    "known",
)
# Left out of a link that would otherwise be too long to open.
INFORMATIONAL_PARAMS = ("shape", "dtype", "paramCount", "flops")

POSITIONS = ("rotary", "alibi", "relative", "convolutional", "learned", "sinusoidal")
KNOWN_VALUES = ("run", "traced", "guessed")


class BlockIds:
    """Makes block ids: the kind's letter and a running number from 0 per letter.

    Example:
        >>> ids = BlockIds()
        >>> [ids.new("attention"), ids.new("attention"), ids.new("mlp")]
        ['a0', 'a1', 'm0']
    """

    def __init__(self) -> None:
        """Start every letter at 0."""
        self._next: dict[str, int] = {}

    def new(self, kind: str) -> str:
        """The next id for a block of ``kind``.

        Raises:
            KeyError: If ``kind`` is not in ``BLOCK_KINDS``.

        Example:
            >>> BlockIds().new("loss")
            'x0'
        """
        letter = KIND_LETTERS[kind]
        number = self._next.get(letter, 0)
        self._next[letter] = number + 1
        return f"{letter}{number}"
