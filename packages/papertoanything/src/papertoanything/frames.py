"""Tensors on the wire: cutting and encoding. Everything here is `ptoa_core.tensors`'s."""

from __future__ import annotations

from ptoa_core.tensors import clip_shape, encode_tensor, frame_tensor_from_values

__all__ = ["clip_shape", "encode_tensor", "frame_tensor_from_values"]
