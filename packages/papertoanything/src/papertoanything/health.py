"""Watching training: frames of health, and the run files that keep them.

Run files are read and written without PyTorch. `Watch` is the class itself where PyTorch is
installed, for `isinstance` and subclasses; where it is not, calling it says which extra to install.
"""

from __future__ import annotations

import ptoa_torch
from ptoa_core.runs import RunFile
from ptoa_torch import Watch, tensor_stats, watch

try:
    from ptoa_torch.watch import Watch  # noqa: F811  the class, in place of what stands for it
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
finally:
    # The import system binds the submodule over the function of the same name.
    ptoa_torch.watch = watch

__all__ = ["RunFile", "Watch", "tensor_stats", "watch"]
