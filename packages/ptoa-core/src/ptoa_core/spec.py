"""The model spec: the blocks of an architecture and how they connect.

A spec holds no weights and no data. The classes mirror the JSON of ``FORMATS.md``,
section 1, key by key; ``extra`` on every class keeps the keys that it does not know, so
that reading and writing loses nothing. ``from_dict`` checks types; ``validate.check``
checks that the blocks fit together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import _records as r
from .errors import SpecError
from .jsontext import dumps, loads
from .kinds import BLOCK_KINDS
from .protocol import MAX_BLOCKS
from .terminal import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "BLOCK_KINDS",
    "SPEC_VERSION",
    "Block",
    "BlockParams",
    "DatasetRef",
    "ModelSpec",
    "Origin",
    "TrainConfig",
    "read_spec",
]

SPEC_VERSION = 1

_PARAMS = r.Schema(
    SpecError,
    r.Field("vocab", r.COUNT),
    r.Field("d", r.COUNT),
    r.Field("variant", r.TEXT),
    r.Field("maxLen", r.COUNT),
    r.Field("heads", r.COUNT),
    r.Field("causal", r.FLAG),
    r.Field("attnOnly", r.FLAG),
    r.Field("hidden", r.COUNT),
    r.Field("in", r.COUNT, attr="in_"),
    r.Field("out", r.COUNT),
    r.Field("bias", r.FLAG),
    r.Field("tiedTo", r.TEXT),
)
_BLOCK = r.Schema(
    SpecError,
    r.Field("id", r.TEXT, required=True, always=True),
    r.Field("kind", r.TEXT, required=True, always=True),
    r.Field("label", r.TEXT),
    r.Field("params", r.OBJECT, always=True),
    r.Field("inputs", r.TEXTS, always=True),
    r.Field("group", r.TEXT),
    r.Field("at", r.POINT),
)
_DATASET = r.Schema(
    SpecError,
    r.Field("id", r.TEXT, required=True, always=True),
    r.Field("provenance", r.TEXT, required=True, always=True),
    r.Field("seed", r.INTEGER),
    r.Field("options", r.SCALARS),
)
_TRAIN = r.Schema(
    SpecError,
    r.Field("optimizer", r.TEXT, required=True, always=True),
    r.Field("lr", r.NUMBER, required=True, always=True),
    r.Field("weightDecay", r.NUMBER),
    r.Field("batch", r.COUNT, required=True, always=True),
    r.Field("steps", r.COUNT, required=True, always=True),
    r.Field("seed", r.INTEGER, required=True, always=True),
)
_ORIGIN = r.Schema(
    SpecError,
    r.Field("kind", r.TEXT, required=True, always=True),
    r.Field("source", r.TEXT),
)
_SPEC = r.Schema(
    SpecError,
    r.Field("v", r.INTEGER, always=True),
    r.Field("name", r.TEXT, required=True, always=True),
    r.Field("blocks", r.OBJECTS, required=True, always=True),
    r.Field("output", r.TEXT, required=True, always=True),
    r.Field("dataset", r.OBJECT),
    r.Field("train", r.OBJECT),
    r.Field("origin", r.OBJECT, always=True),
)


@dataclass
class BlockParams:
    """The numbers and choices of one block; all optional, None where not known.

    ``in_`` is the JSON key ``in``. Extension params live in ``extra`` under their JSON names.

    Source:
        ``FORMATS.md``, section 1.

    Example:
        >>> BlockParams(in_=4, out=8, extra={"dtype": "float32"}).to_dict()
        {'in': 4, 'out': 8, 'dtype': 'float32'}
    """

    vocab: int | None = None
    d: int | None = None
    variant: str | None = None
    maxLen: int | None = None
    heads: int | None = None
    causal: bool | None = None
    attnOnly: bool | None = None
    hidden: int | None = None
    in_: int | None = None
    out: int | None = None
    bias: bool | None = None
    tiedTo: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object: known keys in their order, then ``extra``.

        Example:
            >>> BlockParams(d=16, heads=2).to_dict()
            {'d': 16, 'heads': 2}
        """
        return _PARAMS.write(self)

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> BlockParams:
        """Read the JSON object; unknown keys go to ``extra``.

        Raises:
            SpecError: If a known key has a value of the wrong type.

        Example:
            >>> BlockParams.from_dict({"d": 16, "kvHeads": 2}).extra
            {'kvHeads': 2}
        """
        return cls(**_PARAMS.read(d, "params"))


@dataclass
class Block:
    """One node of a spec.

    ``inputs`` are ids of blocks whose outputs it reads; ``group`` is the id of the
    container it stands in; ``at`` is where somebody placed it.

    Source:
        ``FORMATS.md``, section 1.

    Example:
        >>> Block("n0", "norm", BlockParams(d=16), ["e0"]).to_dict()
        {'id': 'n0', 'kind': 'norm', 'params': {'d': 16}, 'inputs': ['e0']}
    """

    id: str
    kind: str
    params: BlockParams = field(default_factory=BlockParams)
    inputs: list[str] = field(default_factory=list)
    label: str | None = None
    group: str | None = None
    at: dict[str, float] | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object.

        Example:
            >>> Block("t0", "tokens").to_dict()
            {'id': 't0', 'kind': 'tokens', 'params': {}, 'inputs': []}
        """
        out = _BLOCK.write(self)
        out["params"] = self.params.to_dict()
        out["inputs"] = list(self.inputs)
        return out

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> Block:
        """Read the JSON object.

        Raises:
            SpecError: If ``id`` or ``kind`` is missing, or a value has the wrong type.

        Example:
            >>> Block.from_dict({"id": "t0", "kind": "tokens"}).inputs
            []
        """
        return _read_block(d, "block")


def _read_block(data: object, where: str, report: r.Report | None = None) -> Block:
    """A block whose errors name its place in the spec."""
    values = _BLOCK.read(data, where, report)
    if "params" in values:
        values["params"] = BlockParams(**_PARAMS.read(values["params"], f"{where}.params", report))
    if "inputs" in values:
        values["inputs"] = list(values["inputs"])
    return Block(**values)


@dataclass
class DatasetRef:
    """Which data a model was trained on; a name, never the data.

    Source:
        ``FORMATS.md``, section 1.

    Example:
        >>> DatasetRef("addition", "synthetic", seed=7).to_dict()
        {'id': 'addition', 'provenance': 'synthetic', 'seed': 7}
    """

    id: str
    provenance: str
    seed: int | None = None
    options: dict[str, int | float | str | bool] | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object.

        Example:
            >>> DatasetRef("mine", "yours").to_dict()
            {'id': 'mine', 'provenance': 'yours'}
        """
        return _DATASET.write(self)

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> DatasetRef:
        """Read the JSON object.

        Raises:
            SpecError: If a key is missing or a value has the wrong type.

        Example:
            >>> DatasetRef.from_dict({"id": "mine", "provenance": "yours"}).seed is None
            True
        """
        return cls(**_DATASET.read(d, "dataset"))


@dataclass
class TrainConfig:
    """How the Lab would train the model: optimizer, learning rate, batch, steps and seed.

    Source:
        ``FORMATS.md``, section 1.

    Example:
        >>> TrainConfig("sgd", 0.1, batch=8, steps=100, seed=0).to_dict()
        {'optimizer': 'sgd', 'lr': 0.1, 'batch': 8, 'steps': 100, 'seed': 0}
    """

    optimizer: str
    lr: float
    batch: int
    steps: int
    seed: int
    weightDecay: float | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object.

        Example:
            >>> list(TrainConfig("adamw", 1e-3, 8, 100, 0, weightDecay=0.1).to_dict())[:3]
            ['optimizer', 'lr', 'weightDecay']
        """
        return _TRAIN.write(self)

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> TrainConfig:
        """Read the JSON object.

        Raises:
            SpecError: If a key is missing or a value has the wrong type.

        Example:
            >>> TrainConfig.from_dict({"optimizer": "sgd"})
            Traceback (most recent call last):
            ptoa_core.errors.SpecError: train has no 'lr'
        """
        return cls(**_TRAIN.read(d, "train"))


@dataclass
class Origin:
    """Where a spec came from: ``lab``, ``torch`` or ``template``, and what was read.

    Source:
        ``FORMATS.md``, section 1.

    Example:
        >>> Origin("torch", "model.py:GPT").to_dict()
        {'kind': 'torch', 'source': 'model.py:GPT'}
    """

    kind: str
    source: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object.

        Example:
            >>> Origin("lab").to_dict()
            {'kind': 'lab'}
        """
        return _ORIGIN.write(self)

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> Origin:
        """Read the JSON object.

        Raises:
            SpecError: If ``kind`` is missing or a value has the wrong type.

        Example:
            >>> Origin.from_dict({"kind": "template"}).kind
            'template'
        """
        return cls(**_ORIGIN.read(d, "origin"))


def _default_origin() -> Origin:
    """The origin of a spec that does not say."""
    return Origin("lab")


@dataclass
class ModelSpec:
    """An architecture: its blocks, how they connect, and which of them is the output.

    ``bindings`` maps a block's id to the path of the module behind it, for the process
    that made the spec; it is never written and takes no part in comparisons.

    Source:
        ``FORMATS.md``, section 1.

    Example:
        >>> spec = ModelSpec("tiny", [Block("t0", "tokens"), Block("e0", "embedding", inputs=["t0"])], "e0")
        >>> ModelSpec.from_dict(spec.to_dict()) == spec
        True
    """

    name: str
    blocks: list[Block]
    output: str
    origin: Origin = field(default_factory=_default_origin)
    v: int = SPEC_VERSION
    dataset: DatasetRef | None = None
    train: TrainConfig | None = None
    bindings: dict[str, str] = field(default_factory=dict, repr=False, compare=False)
    extra: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object, keys in their canonical order.

        Example:
            >>> list(ModelSpec("tiny", [], "").to_dict())
            ['v', 'name', 'blocks', 'output', 'origin']
        """
        out = _SPEC.write(self)
        out["blocks"] = [block.to_dict() for block in self.blocks]
        if self.dataset is not None:
            out["dataset"] = self.dataset.to_dict()
        if self.train is not None:
            out["train"] = self.train.to_dict()
        out["origin"] = self.origin.to_dict()
        return out

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> ModelSpec:
        """Read the JSON object and check the type of everything in it.

        Whether ids are unique and inputs name blocks is for ``validate`` and ``check``.

        Raises:
            SpecError: If a key is missing, a value has the wrong type, or ``v`` is not 1.

        Example:
            >>> ModelSpec.from_dict({"v": 2, "name": "x", "blocks": [], "output": "x"})
            Traceback (most recent call last):
            ptoa_core.errors.SpecError: spec.v is 2; this version of ptoa reads specs of version 1
        """
        return read_spec(d)

    def to_json(self, indent: int | None = None) -> str:
        """Canonical JSON text, or indented text for people.

        Raises:
            JsonError: If an extension value is nothing that JSON can say.

        Example:
            >>> ModelSpec("µ", [], "").to_json()
            '{"v":1,"name":"µ","blocks":[],"output":"","origin":{"kind":"lab"}}'
        """
        text = dumps(self)
        if indent is None:
            return text
        import json

        return json.dumps(json.loads(text), ensure_ascii=False, indent=indent)

    @classmethod
    def from_json(cls, text: str | bytes) -> ModelSpec:
        """Read JSON text.

        Raises:
            JsonError: If the text is not strict JSON.
            SpecError: As ``from_dict``.

        Example:
            >>> ModelSpec.from_json('{"v":1,"name":"x","blocks":[],"output":""}').name
            'x'
        """
        return cls.from_dict(loads(text, what="spec"))

    def block(self, block_id: str) -> Block:
        """The block with that id.

        Raises:
            KeyError: If there is none.

        Example:
            >>> ModelSpec("x", [Block("t0", "tokens")], "t0").block("t0").kind
            'tokens'
        """
        for block in self.blocks:
            if block.id == block_id:
                return block
        raise KeyError(f"no block {block_id!r} in spec {self.name!r}")

    def _repr_html_(self) -> str:
        """What a notebook shows: an installed renderer's page, else a table of the blocks."""
        from ._html import spec_html

        return spec_html(self)


# The objects of a spec that hold no further objects.
_NESTED: tuple[tuple[str, type, r.Schema], ...] = (
    ("dataset", DatasetRef, _DATASET),
    ("train", TrainConfig, _TRAIN),
    ("origin", Origin, _ORIGIN),
)


def read_spec(data: object, report: r.Report | None = None) -> ModelSpec:
    """Build a spec; with ``report``, each fault is told to it and its value left out.

    Example:
        >>> faults = []
        >>> read_spec({"name": 5, "blocks": []}, lambda *fault: faults.append(fault)).name
        ''
        >>> faults
        [('spec.name', 'must be text, found 5'), ('spec', "has no 'output'")]
    """
    values = _SPEC.read(data, "spec", report)
    version = values.get("v", SPEC_VERSION)
    if version != SPEC_VERSION:
        message = f"is {shown(version)}; this version of ptoa reads specs of version {SPEC_VERSION}"
        (report or _SPEC.fail)("spec.v", message)
    if len(values["blocks"]) > MAX_BLOCKS:
        # Before any of them is built, and whatever the report does: their memory is the harm.
        _SPEC.fail("spec.blocks", f"has {len(values['blocks'])} blocks, at most {MAX_BLOCKS} are read")
    values["blocks"] = [
        _read_block(block, f"spec.blocks[{index}]", report) for index, block in enumerate(values["blocks"])
    ]
    for key, build, schema in _NESTED:
        if key in values:
            values[key] = build(**schema.read(values[key], f"spec.{key}", report))
    return ModelSpec(**values)
