"""Reading a model: its blocks, and one recorded forward pass. Needs the extra `torch`."""

from __future__ import annotations

from ptoa_torch import (
    Inputs,
    TraceWatch,
    analyze,
    capture,
    classify_module,
    from_module,
    watch_trace,
)

__all__ = [
    "Inputs",
    "TraceWatch",
    "analyze",
    "capture",
    "classify_module",
    "from_module",
    "watch_trace",
]
