"""Watching training: frames of health, and the run files that keep them."""

from __future__ import annotations

from ptoa_core.runs import RunFile
from ptoa_torch import Watch, tensor_stats, watch

__all__ = ["RunFile", "Watch", "tensor_stats", "watch"]
