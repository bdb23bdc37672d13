"""The callback for Lightning's Trainer. Needs the extra `lightning`."""

from __future__ import annotations

from ptoa_integrations.lightning import PTACallback

__all__ = ["PTACallback"]
