"""Callbacks for trainers: `hf` for Hugging Face transformers, `lightning` for Lightning."""

from __future__ import annotations

__all__: list[str] = []
