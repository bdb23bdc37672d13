"""The callback for the Hugging Face Trainer. Needs the extra `hf`."""

from __future__ import annotations

from ptoa_integrations.hf import PTACallback

__all__ = ["PTACallback"]
