"""What a model does: one recorded forward pass, one training step, and the hello.

The classes mirror the JSON of ``FORMATS.md``, sections 4, 5 and 7, key by key; ``extra``
on every class keeps the keys that it does not know, such as extension fields of a newer
version. Numbers in a ``HealthFrame`` may be NaN or infinite while it is made;
``encoded.encode_frame`` writes them as null and names them in ``nonFinite``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import _records as r
from ._f32 import check_f32, decode_f32
from .errors import FrameError, TensorError
from .protocol import BRIDGE_PROTOCOL, MAX_AXES, PATTERN_SIZE, PROTOCOL_VERSION, producer
from .spec import ModelSpec
from .terminal import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "SEVERITIES",
    "BlockHealth",
    "BridgeHello",
    "Diagnosis",
    "FrameTensor",
    "HeadPattern",
    "HealthFrame",
    "TensorStats",
    "TraceFrame",
    "non_finite_name",
]

SEVERITIES = ("info", "warn", "error")

_TENSOR = r.Schema(
    TensorError,
    r.Field("key", r.TEXT, required=True, always=True),
    r.Field("shape", r.COUNTS, required=True, always=True),
    r.Field("b64", r.TEXT, required=True, always=True),
    r.Field("clipped", r.FLAG, always=True),
    r.Field("dataShape", r.COUNTS),
)
_TRACE = r.Schema(
    FrameError,
    r.Field("step", r.COUNT, required=True, always=True),
    r.Field("loss", r.MEASURE),
    r.Field("tensors", r.OBJECTS, always=True),
    r.Field("uncaptured", r.TEXTS),
)
_STATS = r.Schema(
    FrameError,
    r.Field("mean", r.MEASURE, required=True, always=True),
    r.Field("std", r.MEASURE, required=True, always=True),
    r.Field("absMax", r.MEASURE, required=True, always=True),
    r.Field("zeroFrac", r.MEASURE, required=True, always=True),
    r.Field("satFrac", r.MEASURE),
    r.Field("nanCount", r.COUNT, required=True, always=True),
    r.Field("infCount", r.COUNT, required=True, always=True),
    r.Field("hist", r.MEASURES),
)
_PATTERN = r.Schema(
    FrameError,
    r.Field("head", r.COUNT, required=True, always=True),
    r.Field("size", r.COUNT, required=True, always=True),
    r.Field("b64", r.TEXT, required=True, always=True),
)
_BLOCK = r.Schema(
    FrameError,
    r.Field("id", r.TEXT, required=True, always=True),
    r.Field("act", r.OBJECT),
    r.Field("hidden", r.OBJECT),
    r.Field("grad", r.OBJECT),
    r.Field("weightNorm", r.MEASURE),
    r.Field("weightGradNorm", r.MEASURE),
    r.Field("updateRatio", r.MEASURE),
    r.Field("headEntropy", r.MEASURES),
    r.Field("headPattern", r.OBJECTS),
)
_HEALTH = r.Schema(
    FrameError,
    r.Field("step", r.COUNT, required=True, always=True),
    r.Field("t", r.MEASURE, required=True, always=True),
    r.Field("loss", r.MEASURE, always=True),
    r.Field("valLoss", r.MEASURE),
    r.Field("lr", r.MEASURE),
    r.Field("gradNorm", r.MEASURE),
    r.Field("timing", r.MEASURES_BY_NAME),
    r.Field("memory", r.COUNT),
    r.Field("blocks", r.OBJECTS, always=True),
    r.Field("nonFinite", r.TEXTS_BY_NAME),
    r.Field("attempt", r.ORDINAL),
)
_DIAGNOSIS = r.Schema(
    FrameError,
    r.Field("rule", r.TEXT, required=True, always=True),
    r.Field("severity", r.TEXT, required=True, always=True),
    r.Field("blocks", r.TEXTS, required=True, always=True),
    r.Field("since", r.COUNT, required=True, always=True),
    r.Field("title", r.TEXT, required=True, always=True),
    r.Field("evidence", r.SCALARS, required=True, always=True),
    r.Field("suggestion", r.TEXT),
    r.Field("reference", r.TEXT),
)
_HELLO = r.Schema(
    FrameError,
    r.Field("protocol", r.TEXT, required=True, always=True),
    r.Field("v", r.INTEGER, required=True, always=True),
    r.Field("producer", r.TEXTS_BY_NAME, always=True),
    r.Field("spec", r.OBJECT, required=True, always=True),
)


def non_finite_name(value: float) -> str | None:
    """How a number that JSON cannot hold is named: ``nan``, ``inf`` or ``-inf``; else None.

    Source:
        ``FORMATS.md``, section 5.

    Example:
        >>> [non_finite_name(x) for x in (float("-inf"), 1.0)]
        ['-inf', None]
    """
    if math.isfinite(value):
        return None
    if math.isnan(value):
        return "nan"
    return "inf" if value > 0 else "-inf"


@dataclass
class FrameTensor:
    """One tensor of a trace: float32 values, row-major, perhaps cut to their leading corner.

    ``shape`` is always the true shape; ``dataShape`` is what was sent, only when ``clipped``.

    Source:
        ``FORMATS.md``, section 4.

    Example:
        >>> FrameTensor("e0:out", [2], "AACAPwAAAEA=").values()
        [1.0, 2.0]
    """

    key: str
    shape: list[int]
    b64: str
    clipped: bool = False
    dataShape: list[int] | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object.

        Example:
            >>> FrameTensor("e0:out", [0], "").to_dict()
            {'key': 'e0:out', 'shape': [0], 'b64': '', 'clipped': False}
        """
        return _TENSOR.write(self)

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> FrameTensor:
        """Read the JSON object and check that text, shape and clipping agree.

        Raises:
            TensorError: If they do not; the message names the tensor's key.

        Example:
            >>> FrameTensor.from_dict({"key": "e0:out", "shape": [2], "b64": "AACAPw=="})
            Traceback (most recent call last):
            ptoa_core.errors.TensorError: tensor 'e0:out': b64 holds 4 bytes, 8 are wanted for [2]
        """
        return _read_tensor(d, "tensor")

    def values(self) -> list[float]:
        """The values that were sent, row-major.

        Raises:
            TensorError: If ``b64`` is not strict base64 of the right length.

        Example:
            >>> FrameTensor("e0:out", [], "AACAPw==").values()
            [1.0]
        """
        _check_tensor(self)
        return decode_f32(self.b64)


def _read_tensor(data: object, where: str) -> FrameTensor:
    """A tensor whose errors name its place."""
    tensor = FrameTensor(**_TENSOR.read(data, where))
    _check_tensor(tensor)
    return tensor


def _check_tensor(tensor: FrameTensor) -> None:
    """Refuse a tensor whose text, shape and clipping do not agree."""
    where = f"tensor {shown(tensor.key)}"
    if len(tensor.shape) > MAX_AXES:
        raise TensorError(f"{where}: shape has {len(tensor.shape)} axes, at most {MAX_AXES} are read")
    data_shape = tensor.shape
    if tensor.clipped:
        if tensor.dataShape is None:
            raise TensorError(f"{where}: clipped without a dataShape")
        data_shape = tensor.dataShape
        fits = len(data_shape) == len(tensor.shape)
        if not fits or any(sent > true for sent, true in zip(data_shape, tensor.shape)):  # noqa: B905  # compared above
            raise TensorError(f"{where}: dataShape {data_shape[:8]} is no corner of shape {tensor.shape[:8]}")
    elif tensor.dataShape is not None:
        raise TensorError(f"{where}: has a dataShape but is not clipped")
    check_f32(tensor.b64, data_shape, where)


@dataclass
class TraceFrame:
    """One forward pass: the tensors that were seen, and the loss if there was one.

    ``uncaptured`` names blocks of the spec without a tensor in the frame.

    Source:
        ``FORMATS.md``, section 5.

    Example:
        >>> TraceFrame(0, [FrameTensor("e0:out", [0], "")]).tensor("e0:out").shape
        [0]
    """

    step: int
    tensors: list[FrameTensor] = field(default_factory=list)
    loss: float | None = None
    uncaptured: list[str] | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object; a loss that is not finite becomes null and is named in ``nonFinite``.

        Example:
            >>> TraceFrame(3, loss=float("inf")).to_dict()
            {'step': 3, 'loss': None, 'tensors': [], 'nonFinite': {'loss': 'inf'}}
        """
        out = _TRACE.write(self)
        out["tensors"] = [tensor.to_dict() for tensor in self.tensors]
        name = None if self.loss is None else non_finite_name(self.loss)
        if name is not None:
            out["loss"] = None
            out["nonFinite"] = {**out.get("nonFinite", {}), "loss": name}
        return out

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> TraceFrame:
        """Read the JSON object.

        Raises:
            FrameError: If a key is missing or a value has the wrong type.
            TensorError: If a tensor's text, shape and clipping do not agree.

        Example:
            >>> TraceFrame.from_dict({"step": 0, "tensors": []}).loss is None
            True
        """
        values = _TRACE.read(d, "trace")
        values["tensors"] = [
            _read_tensor(tensor, f"trace.tensors[{index}]")
            for index, tensor in enumerate(values.get("tensors", ()))
        ]
        return cls(**values)

    @property
    def clipped(self) -> list[str]:
        """Keys of the tensors that were cut.

        Example:
            >>> TraceFrame(0, [FrameTensor("e0:out", [9], "", True, [0])]).clipped
            ['e0:out']
        """
        return [tensor.key for tensor in self.tensors if tensor.clipped]

    def tensor(self, key: str) -> FrameTensor:
        """The tensor with that key, such as ``e0:out``.

        Raises:
            KeyError: If there is none.

        Example:
            >>> TraceFrame(0).tensor("e0:out")
            Traceback (most recent call last):
            KeyError: "no tensor 'e0:out' in the trace of step 0"
        """
        for tensor in self.tensors:
            if tensor.key == key:
                return tensor
        raise KeyError(f"no tensor {key!r} in the trace of step {self.step}")


@dataclass
class TensorStats:
    """Statistics of one tensor: plain numbers in the unit of its values, counts and shares.

    ``mean``, ``std``, ``absMax`` and ``hist`` are over the finite values, ``zeroFrac`` over
    all. ``hist`` counts values in equal bins over ``[-absMax, absMax]``. A None among the
    first four says that there was no finite value.

    Source:
        ``FORMATS.md``, section 5.

    Example:
        >>> TensorStats(0.0, 1.0, 2.0, 0.5, 0, 0).to_dict()["zeroFrac"]
        0.5
    """

    mean: float | None
    std: float | None
    absMax: float | None
    zeroFrac: float | None
    nanCount: int
    infCount: int
    satFrac: float | None = None
    hist: list[float] | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object.

        Example:
            >>> list(TensorStats(0.0, 1.0, 2.0, 0.5, 0, 0, satFrac=0.1).to_dict())[4:6]
            ['satFrac', 'nanCount']
        """
        return _STATS.write(self)

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> TensorStats:
        """Read the JSON object.

        Raises:
            FrameError: If a key is missing or a value has the wrong type.

        Example:
            >>> TensorStats.from_dict({"mean": "big"})
            Traceback (most recent call last):
            ptoa_core.errors.FrameError: stats.mean must be a number or null, found 'big'
        """
        return cls(**_STATS.read(d, "stats"))


@dataclass
class HeadPattern:
    """The top-left corner of one attention head's probabilities, ``size`` by ``size`` float32.

    Source:
        ``FORMATS.md``, section 5.

    Example:
        >>> HeadPattern(0, 1, "AACAPw==").values()
        [1.0]
    """

    head: int
    size: int
    b64: str
    extra: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object.

        Example:
            >>> HeadPattern(3, 0, "").to_dict()
            {'head': 3, 'size': 0, 'b64': ''}
        """
        return _PATTERN.write(self)

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> HeadPattern:
        """Read the JSON object.

        Raises:
            FrameError: If a value has the wrong type or ``size`` is over 32.
            TensorError: If ``b64`` does not hold ``size`` by ``size`` values.

        Example:
            >>> HeadPattern.from_dict({"head": 0, "size": 33, "b64": ""})
            Traceback (most recent call last):
            ptoa_core.errors.FrameError: headPattern.size is 33, at most 32 are sent
        """
        pattern = cls(**_PATTERN.read(d, "headPattern"))
        if pattern.size > PATTERN_SIZE:
            raise FrameError(f"headPattern.size is {pattern.size}, at most {PATTERN_SIZE} are sent")
        check_f32(pattern.b64, [pattern.size, pattern.size], f"headPattern of head {pattern.head}")
        return pattern

    def values(self) -> list[float]:
        """The probabilities, row-major: a row a query, a column a key.

        Raises:
            TensorError: If ``b64`` does not hold ``size`` by ``size`` values.

        Example:
            >>> HeadPattern(0, 0, "").values()
            []
        """
        check_f32(self.b64, [self.size, self.size], f"headPattern of head {self.head}")
        return decode_f32(self.b64)


_PARTS = ("act", "hidden", "grad")
_BLOCK_NUMBERS = ("weightNorm", "weightGradNorm", "updateRatio")


@dataclass
class BlockHealth:
    """One block's row of a health frame; None where something was not measured.

    ``act`` is its output, ``hidden`` an mlp's inner activation, ``grad`` the gradient
    arriving at its output. ``updateRatio`` is the L2 norm of the last step over that of the
    weights; ``headEntropy`` is in nats.

    Source:
        ``FORMATS.md``, section 5.

    Example:
        >>> BlockHealth("l0", weightNorm=2.0).to_dict()
        {'id': 'l0', 'weightNorm': 2.0}
    """

    id: str
    act: TensorStats | None = None
    grad: TensorStats | None = None
    weightNorm: float | None = None
    weightGradNorm: float | None = None
    updateRatio: float | None = None
    headEntropy: list[float] | None = None
    headPattern: list[HeadPattern] | None = None
    hidden: TensorStats | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object.

        Example:
            >>> BlockHealth("a0", headEntropy=[0.5, 1.5]).to_dict()
            {'id': 'a0', 'headEntropy': [0.5, 1.5]}
        """
        out = _BLOCK.write(self)
        for part in _PARTS:
            if part in out:
                out[part] = out[part].to_dict()
        if self.headPattern is not None:
            out["headPattern"] = [pattern.to_dict() for pattern in self.headPattern]
        return out

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> BlockHealth:
        """Read the JSON object.

        Raises:
            FrameError: If a key is missing or a value has the wrong type.
            TensorError: If a head's pattern does not hold what its size says.

        Example:
            >>> BlockHealth.from_dict({"id": "l0", "updateRatio": 0.001}).updateRatio
            0.001
        """
        values = _BLOCK.read(d, "block")
        for part in _PARTS:
            if part in values:
                values[part] = TensorStats(**_STATS.read(values[part], part))
        if "headPattern" in values:
            values["headPattern"] = [HeadPattern.from_dict(pattern) for pattern in values["headPattern"]]
        return cls(**values)


@dataclass
class HealthFrame:
    """One training step: ``t`` in milliseconds since the watch began, losses, and a row a block.

    ``step`` counts from 0. ``loss`` is None where it is not known. ``timing`` is in
    milliseconds, ``memory`` in bytes. ``nonFinite`` names numbers that JSON cannot hold:
    ``{"loss": "nan", "blocks.a0.weightNorm": "inf"}``. ``attempt`` is 2 or more in frames of
    a run that was continued.

    Source:
        ``FORMATS.md``, section 5.

    Example:
        >>> HealthFrame(0, 12.5, None).to_dict()
        {'step': 0, 't': 12.5, 'loss': None, 'blocks': []}
    """

    step: int
    t: float
    loss: float | None
    blocks: list[BlockHealth] = field(default_factory=list)
    valLoss: float | None = None
    lr: float | None = None
    gradNorm: float | None = None
    timing: dict[str, float] | None = None
    memory: int | None = None
    nonFinite: dict[str, str] | None = None
    attempt: int | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object; NaN and infinite numbers stay as they are.

        A number that ``nonFinite`` names is written as null.

        Example:
            >>> HealthFrame(0, 0.0, 1.5, nonFinite={"gradNorm": "inf"}).to_dict()["gradNorm"] is None
            True
        """
        out = _HEALTH.write(self)
        out["blocks"] = [block.to_dict() for block in self.blocks]
        return _with_nulls(out, self.nonFinite) if self.nonFinite else out

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> HealthFrame:
        """Read the JSON object.

        Raises:
            FrameError: If a key is missing or a value has the wrong type.
            TensorError: If a head's pattern does not hold what its size says.

        Example:
            >>> HealthFrame.from_dict({"step": 0, "t": 0.0, "loss": None, "blocks": []}).blocks
            []
        """
        values = _HEALTH.read(d, "frame")
        values["blocks"] = [BlockHealth.from_dict(block) for block in values.get("blocks", ())]
        values.setdefault("loss", None)
        return cls(**values)

    def block(self, block_id: str) -> BlockHealth:
        """The row of the block with that id.

        Raises:
            KeyError: If the frame has none.

        Example:
            >>> HealthFrame(0, 0.0, None, [BlockHealth("l0")]).block("l0").id
            'l0'
        """
        for block in self.blocks:
            if block.id == block_id:
                return block
        raise KeyError(f"no block {block_id!r} in the frame of step {self.step}")


def _with_nulls(out: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """``out`` with a null for each number of the frame and its blocks that ``names`` has and it lacks."""
    for block in out["blocks"]:
        for key in _BLOCK_NUMBERS:
            if f"blocks.{block['id']}.{key}" in names:
                block.setdefault(key, None)
    return {key: out.get(key) for key in _HEALTH.fields if key in out or key in names} | out


@dataclass
class Diagnosis:
    """What a reader of frames concluded; never made by the process that trains.

    Source:
        ``FORMATS.md``, section 5.

    Example:
        >>> Diagnosis("dead-relu", "warn", ["m0"], 40, "Dead units", {"zeroFrac": 1.0}).since
        40
    """

    rule: str
    severity: str
    blocks: list[str]
    since: int
    title: str
    evidence: dict[str, float | str]
    suggestion: str | None = None
    reference: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object.

        Example:
            >>> Diagnosis("r", "info", [], 0, "t", {}).to_dict()["severity"]
            'info'
        """
        return _DIAGNOSIS.write(self)

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> Diagnosis:
        """Read the JSON object.

        Raises:
            FrameError: If a key is missing, a value has the wrong type, or ``severity`` is
                none of ``info``, ``warn`` and ``error``.

        Example:
            >>> Diagnosis.from_dict(Diagnosis("r", "info", [], 0, "t", {}).to_dict()).rule
            'r'
        """
        values = _DIAGNOSIS.read(d, "diagnosis")
        if values["severity"] not in SEVERITIES:
            found = shown(values["severity"])
            raise FrameError(f"diagnosis.severity must be one of {', '.join(SEVERITIES)}, found {found}")
        return cls(**values)


@dataclass
class BridgeHello:
    """The first thing a bridge says: who it is, and the spec.

    Source:
        ``FORMATS.md``, section 7.

    Example:
        >>> list(BridgeHello(ModelSpec("x", [], "")).to_dict())
        ['protocol', 'v', 'producer', 'spec']
    """

    spec: ModelSpec
    producer: dict[str, str] = field(default_factory=producer)
    protocol: str = BRIDGE_PROTOCOL
    v: int = PROTOCOL_VERSION
    extra: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object.

        Example:
            >>> BridgeHello(ModelSpec("x", [], "")).to_dict()["protocol"]
            'pta-bridge'
        """
        out = _HELLO.write(self)
        out["spec"] = self.spec.to_dict()
        return out

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> BridgeHello:
        """Read the JSON object.

        Raises:
            FrameError: If it is no hello, or one of another version.
            SpecError: If its spec has a value of the wrong type.

        Example:
            >>> BridgeHello.from_dict({"protocol": "x", "v": 1, "spec": {}})
            Traceback (most recent call last):
            ptoa_core.errors.FrameError: hello.protocol is 'x' version 1; 'pta-bridge' version 1 is wanted
        """
        values = _HELLO.read(d, "hello")
        if (values["protocol"], values["v"]) != (BRIDGE_PROTOCOL, PROTOCOL_VERSION):
            raise FrameError(
                f"hello.protocol is {shown(values['protocol'])} version {shown(values['v'])}; "
                f"{BRIDGE_PROTOCOL!r} version {PROTOCOL_VERSION} is wanted"
            )
        values["spec"] = ModelSpec.from_dict(values["spec"])
        return cls(**values)
