"""Watching training: frames of health, and the run files that keep them.

Run files are read and written without PyTorch, and without the seconds that importing it takes;
`Watch`, `watch` and `tensor_stats` import it when they are called.
"""

from __future__ import annotations

from papertoanything.api import watch
from ptoa_core.runs import RunFile
from ptoa_torch import Watch, tensor_stats

__all__ = ["RunFile", "Watch", "tensor_stats", "watch"]
