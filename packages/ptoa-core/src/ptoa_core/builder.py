"""Writing a spec by hand, without torch: one method a kind, each returning the new block's id.

Ids are made, inputs and params are checked where they are written, and groups are opened
with ``with``. What comes out of ``build`` is a checked ``ModelSpec``.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .errors import SettingError, SpecError
from .kinds import EXTENSION_PARAMS, VARIANTS, BlockIds
from .spec import Block, BlockParams, DatasetRef, ModelSpec, Origin, TrainConfig
from .terminal import shown
from .validate import check

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SpecBuilder"]


class SpecBuilder:
    """Builds a ``ModelSpec`` block by block.

    Every method for a kind takes the ids of its inputs first, then params by keyword. Each
    also takes ``label``, ``extra`` (params under names of your own), and the extension
    params of ``FORMATS.md`` under their JSON names, such as ``kvHeads=2``.

    Args:
        name: The model's name.

    Source:
        ``FORMATS.md``, section 1.

    Example:
        >>> b = SpecBuilder("tiny")
        >>> t = b.tokens(vocab=100)
        >>> e = b.embedding(t, vocab=100, d=16)
        >>> with b.group("layers.0", "Block"):
        ...     a = b.attention(b.norm(e, d=16), d=16, heads=2, causal=True)
        ...     r = b.add(e, a)
        >>> spec = b.build(output=b.unembed(r, vocab=100, d=16, tied_to=e))
        >>> [block.id for block in spec.blocks]
        ['g0', 't0', 'e0', 'n0', 'a0', 'r0', 'u0']
    """

    def __init__(self, name: str) -> None:
        """Start without blocks."""
        self._name = name
        self._ids = BlockIds()
        self._containers: list[Block] = []
        self._blocks: list[Block] = []
        self._known: set[str] = set()
        self._open: list[str] = []

    def tokens(self, *, vocab: int | None = None, label: str | None = None, **more: Any) -> str:
        """Token ids coming in.

        Example:
            >>> SpecBuilder("x").tokens(vocab=100)
            't0'
        """
        return self._new("tokens", (), label, BlockParams(vocab=vocab), more)

    def input(self, *, in_: int | None = None, label: str | None = None, **more: Any) -> str:
        """Numbers coming in, ``in_`` features each.

        Example:
            >>> SpecBuilder("x").input(in_=784)
            'i0'
        """
        return self._new("input", (), label, BlockParams(in_=in_), more)

    def embedding(
        self,
        *inputs: str,
        vocab: int | None = None,
        d: int | None = None,
        label: str | None = None,
        **more: Any,
    ) -> str:
        """A table of ``vocab`` vectors of size ``d``; without inputs, a parameter that starts a path.

        Example:
            >>> b = SpecBuilder("x")
            >>> b.embedding(b.tokens(vocab=100), vocab=100, d=16)
            'e0'
        """
        return self._new("embedding", inputs, label, BlockParams(vocab=vocab, d=d), more)

    def posenc(
        self,
        *inputs: str,
        variant: str | None = None,
        max_len: int | None = None,
        d: int | None = None,
        label: str | None = None,
        **more: Any,
    ) -> str:
        """Positions, ``learned`` or ``sinusoidal``, up to ``max_len``.

        Example:
            >>> SpecBuilder("x").posenc(variant="learned", max_len=64, d=16)
            'p0'
        """
        return self._new("posenc", inputs, label, BlockParams(variant=variant, maxLen=max_len, d=d), more)

    def attention(
        self,
        *inputs: str,
        d: int | None = None,
        heads: int | None = None,
        causal: bool | None = None,
        bias: bool | None = None,
        label: str | None = None,
        **more: Any,
    ) -> str:
        """Attention over ``heads`` heads, with its projections.

        Raises:
            SettingError: If ``heads`` does not divide ``d`` and no ``headDim`` is given.

        Example:
            >>> b = SpecBuilder("x")
            >>> b.attention(b.input(in_=16), d=16, heads=2, causal=True)
            'a0'
        """
        # What is no integer is told at ``build``, with every other wrong type.
        whole = isinstance(d, int) and isinstance(heads, int)
        if whole and d and heads and d % heads and "headDim" not in more:
            raise SettingError(f"heads={heads} does not divide d={d}; give headDim if that is meant")
        params = BlockParams(d=d, heads=heads, causal=causal, bias=bias)
        return self._new("attention", inputs, label, params, more)

    def mlp(
        self,
        *inputs: str,
        d: int | None = None,
        hidden: int | None = None,
        variant: str | None = None,
        bias: bool | None = None,
        label: str | None = None,
        **more: Any,
    ) -> str:
        """Two linear layers around an activation, ``hidden`` wide inside.

        Example:
            >>> b = SpecBuilder("x")
            >>> b.mlp(b.input(in_=16), d=16, hidden=64, variant="gelu")
            'm0'
        """
        params = BlockParams(d=d, hidden=hidden, variant=variant, bias=bias)
        return self._new("mlp", inputs, label, params, more)

    def norm(
        self,
        *inputs: str,
        d: int | None = None,
        variant: str | None = None,
        bias: bool | None = None,
        label: str | None = None,
        **more: Any,
    ) -> str:
        """``layernorm`` or ``rmsnorm``; another norm says its name in ``type``.

        Example:
            >>> b = SpecBuilder("x")
            >>> b.norm(b.input(in_=16), d=16, variant="rmsnorm")
            'n0'
        """
        return self._new("norm", inputs, label, BlockParams(d=d, variant=variant, bias=bias), more)

    def add(self, *inputs: str, label: str | None = None, **more: Any) -> str:
        """The sum of two or more outputs, as in a residual connection.

        Raises:
            SettingError: If there are fewer than two inputs.

        Example:
            >>> b = SpecBuilder("x")
            >>> b.add(b.input(in_=16), b.input(in_=16))
            'r0'
        """
        if len(inputs) < 2:
            raise SettingError(f"add sums two or more blocks, found {len(inputs)}")
        return self._new("add", inputs, label, BlockParams(), more)

    def linear(
        self,
        *inputs: str,
        in_: int | None = None,
        out: int | None = None,
        bias: bool | None = None,
        label: str | None = None,
        **more: Any,
    ) -> str:
        """A linear layer from ``in_`` to ``out`` features.

        Example:
            >>> b = SpecBuilder("x")
            >>> b.linear(b.input(in_=784), in_=784, out=10)
            'l0'
        """
        return self._new("linear", inputs, label, BlockParams(in_=in_, out=out, bias=bias), more)

    def activation(
        self, *inputs: str, variant: str | None = None, label: str | None = None, **more: Any
    ) -> str:
        """``relu``, ``gelu``, ``tanh``, ``sigmoid`` or ``silu``; another says its name in ``activation``.

        Example:
            >>> b = SpecBuilder("x")
            >>> b.activation(b.input(in_=16), variant="relu")
            'f0'
        """
        return self._new("activation", inputs, label, BlockParams(variant=variant), more)

    def unembed(
        self,
        *inputs: str,
        vocab: int | None = None,
        d: int | None = None,
        bias: bool | None = None,
        tied_to: str | None = None,
        label: str | None = None,
        **more: Any,
    ) -> str:
        """From features to one number a token, perhaps with the weights of an embedding.

        Raises:
            SettingError: If ``tied_to`` is no block of this builder.

        Example:
            >>> b = SpecBuilder("x")
            >>> b.unembed(b.input(in_=16), vocab=100, d=16)
            'u0'
        """
        if tied_to is not None:
            self._check_known(tied_to, "tied_to")
        params = BlockParams(vocab=vocab, d=d, bias=bias, tiedTo=tied_to)
        return self._new("unembed", inputs, label, params, more)

    def softmax(self, *inputs: str, label: str | None = None, **more: Any) -> str:
        """Probabilities from numbers.

        Example:
            >>> b = SpecBuilder("x")
            >>> b.softmax(b.input(in_=10))
            's0'
        """
        return self._new("softmax", inputs, label, BlockParams(), more)

    def loss(self, *inputs: str, label: str | None = None, **more: Any) -> str:
        """The number that training makes smaller.

        Example:
            >>> b = SpecBuilder("x")
            >>> b.loss(b.input(in_=10))
            'x0'
        """
        return self._new("loss", inputs, label, BlockParams(), more)

    def leaf(self, type: str, *inputs: str, **more: Any) -> str:
        """A block that no kind fits, under its class name.

        Raises:
            SettingError: If it has no inputs; a group without inputs is a container.

        Example:
            >>> b = SpecBuilder("x")
            >>> b.leaf("Conv2d", b.input(in_=3), kernel=[3, 3])
            'g0'
        """
        if not inputs:
            raise SettingError(f"{type!r} needs an input: a group block without inputs is a container")
        return self._new("group", inputs, more.pop("label", type), BlockParams(), {"type": type, **more})

    @contextmanager
    def group(self, path: str, type: str | None = None) -> Iterator[str]:
        """A container for the blocks made inside the ``with``; groups may stand in groups.

        Args:
            path: Its dotted path in the model.
            type: Its class name, shown in the label.

        Yields:
            The container's id.

        Example:
            >>> b = SpecBuilder("x")
            >>> with b.group("encoder"):
            ...     i = b.input(in_=16)
            >>> b.build().block(i).group
            'g0'
        """
        block = Block(
            self._ids.new("group"),
            "group",
            label=path if type is None else f"{path} ({type})",
            group=self._open[-1] if self._open else None,
        )
        self._containers.append(block)
        self._open.append(block.id)
        try:
            yield block.id
        finally:
            self._open.pop()

    def build(
        self,
        output: str | None = None,
        *,
        origin: Origin | None = None,
        dataset: DatasetRef | None = None,
        train: TrainConfig | None = None,
    ) -> ModelSpec:
        """The spec so far; the builder can go on.

        Args:
            output: The id of the block whose output is the model's; the last one by default.
            origin: Where the spec comes from.
            dataset: What the model is trained on.
            train: How the Lab would train it.

        Raises:
            SettingError: If there are no blocks, or ``output`` is none of them.
            SpecError: If a param has the wrong type.

        Example:
            >>> b = SpecBuilder("x")
            >>> t = b.tokens(vocab=100)
            >>> b.build().output
            't0'
        """
        if not self._blocks:
            raise SettingError(f"the spec {self._name!r} has no blocks yet")
        if output is not None:
            self._check_known(output, "output")
        blocks = [_checked_copy(block) for block in self._containers + self._blocks]
        spec = ModelSpec(self._name, blocks, output or self._blocks[-1].id, dataset=dataset, train=train)
        if origin is not None:
            spec.origin = origin
        return check(spec)

    def _new(
        self,
        kind: str,
        inputs: tuple[str, ...],
        label: str | None,
        params: BlockParams,
        more: dict[str, Any],
    ) -> str:
        """Add a block and return its id."""
        for source in inputs:
            self._check_known(source, f"an input of {kind}")
        variants = VARIANTS.get(kind, ())
        if params.variant is not None and params.variant not in variants:
            raise SettingError(
                f"variant of {kind} is {shown(params.variant)}; one of {', '.join(variants)} is wanted"
            )
        params.extra = _extension(kind, dict(more))
        block = Block(
            self._ids.new(kind),
            kind,
            params,
            list(inputs),
            label,
            group=self._open[-1] if self._open else None,
        )
        self._blocks.append(block)
        self._known.add(block.id)
        return block.id

    def _check_known(self, block_id: object, what: str) -> None:
        """Refuse an id that no block of this builder has."""
        if not isinstance(block_id, str) or block_id not in self._known:
            known = ", ".join(block.id for block in self._blocks[-8:]) or "none yet"
            raise SettingError(
                f"{what} is {shown(block_id)}, which is no block so far; the last ones: {known}"
            )


def _checked_copy(block: Block) -> Block:
    """A block of its own for the spec; an error says which block it is about."""
    try:
        return Block.from_dict(block.to_dict())
    except SpecError as error:
        raise SpecError(f"{block.kind} {block.id}: {error}") from None


def _extension(kind: str, more: dict[str, Any]) -> dict[str, Any]:
    """Params beyond those of version 1: ours under their names, a user's own from ``extra``."""
    own = more.pop("extra", None) or {}
    if not isinstance(own, dict):
        raise SettingError(f"extra of {kind} is {shown(own)}; an object from names to values is wanted")
    for key in more:
        if key not in EXTENSION_PARAMS:
            raise SettingError(
                f"{kind} has no param {key!r}; a name of your own goes into extra={{{key!r}: ...}}"
            )
    return {**{key: value for key, value in more.items() if value is not None}, **own}
