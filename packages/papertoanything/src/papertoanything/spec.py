"""The model spec and the frames, under the import path that scripts use.

Everything here is `ptoa_core`'s; see there for the formats.
"""

from __future__ import annotations

from ptoa_core.frames import (
    BlockHealth,
    BridgeHello,
    Diagnosis,
    FrameTensor,
    HeadPattern,
    HealthFrame,
    TensorStats,
    TraceFrame,
)
from ptoa_core.jsontext import dumps
from ptoa_core.kinds import BLOCK_KINDS
from ptoa_core.spec import SPEC_VERSION, Block, BlockParams, DatasetRef, ModelSpec, Origin, TrainConfig
from ptoa_core.tensors import decode_f32, encode_f32

__all__ = [
    "BLOCK_KINDS",
    "SPEC_VERSION",
    "Block",
    "BlockHealth",
    "BlockParams",
    "BridgeHello",
    "DatasetRef",
    "Diagnosis",
    "FrameTensor",
    "HeadPattern",
    "HealthFrame",
    "ModelSpec",
    "Origin",
    "TensorStats",
    "TraceFrame",
    "TrainConfig",
    "decode_f32",
    "dumps",
    "encode_f32",
]
