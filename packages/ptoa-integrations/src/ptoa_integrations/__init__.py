"""Callbacks that watch a training run from inside a trainer.

`hf` is for the Hugging Face Trainer, `lightning` for Lightning. Each module imports its trainer, so
import the one you use::

    from papertoanything.integrations.hf import PTACallback
"""

from __future__ import annotations

__version__ = "0.2.0.dev0"

__all__ = ["__version__"]
