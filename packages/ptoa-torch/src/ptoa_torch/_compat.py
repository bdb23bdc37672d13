"""What this PyTorch can do, asked by feature and never by version number.

The rest of the package runs on torch 2.0.1 and on the newest release alike because each
difference between them has one function here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedTensorMixin

__all__ = [
    "eager",
    "is_compiled",
    "is_lazy",
    "is_scripted",
    "norm_classes",
    "set_version",
    "storage_key",
    "version_of",
]


def version_of(tensor: Tensor) -> int:
    """How many in-place writes the tensor has seen; -1 where torch does not count them."""
    try:
        return tensor._version
    except RuntimeError:  # inference tensors keep no counter
        return -1


def set_version(tensor: Tensor, version: int) -> None:
    """Put a write counter back, so that a graph which saved the tensor still runs backward."""
    setter = getattr(torch._C._autograd, "_unsafe_set_version_counter", None)
    if setter is None or version < 0:
        return
    try:
        setter((tensor,), (version,))
    except TypeError:  # the form of torch before 2.5: one tensor, one number
        setter(tensor, version)


def storage_key(tensor: Tensor) -> int | None:
    """A number that tensors on one storage share; None for tensors without a storage."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError, AttributeError):
        return None


def is_lazy(model: nn.Module) -> bool:
    """Whether a parameter or buffer of the model still waits for its shape."""
    tensors = (*model.parameters(), *model.buffers())
    return any(isinstance(tensor, UninitializedTensorMixin) for tensor in tensors)


def is_scripted(module: nn.Module) -> bool:
    """Whether the module runs inside TorchScript, where Python sees none of its calls."""
    return isinstance(module, torch.jit.ScriptModule)


def is_compiled(module: nn.Module) -> bool:
    """Whether calling the module goes through ``torch.compile``."""
    return getattr(module, "_compiled_call_impl", None) is not None or type(module).__name__ == "OptimizedModule"


def norm_classes() -> dict[str, tuple[type[nn.Module], ...]]:
    """The normalisation classes of this torch by the variant they are drawn as."""
    rms = (nn.RMSNorm,) if hasattr(nn, "RMSNorm") else ()
    return {"layernorm": (nn.LayerNorm,), "rmsnorm": rms}


@contextlib.contextmanager
def _stance(name: str) -> Iterator[None]:
    """Run with the compiler's stance set, where this torch has stances."""
    setter: Any = getattr(torch.compiler, "set_stance", None) if hasattr(torch, "compiler") else None
    if setter is None:
        yield
        return
    with setter(name):
        yield


def eager(model: nn.Module) -> AbstractContextManager[None]:
    """A context in which compiled parts of the model run as plain Python."""
    if any(is_compiled(module) for module in model.modules()):
        return _stance("force_eager")
    return contextlib.nullcontext()
