"""What this PyTorch can do, asked by feature and never by version number.

The rest of the package runs on torch 2.0.1 and on the newest release alike because each
difference between them has one function here.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import sys
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from .census import Census

__all__ = [
    "base_of",
    "compiled_inside",
    "compiler_ran",
    "copy_to_host",
    "eager",
    "faking",
    "foreach_copy",
    "grad_scalers",
    "in_backward",
    "is_capturing",
    "is_compiled",
    "is_compiling",
    "is_lazy",
    "is_scripted",
    "is_uninitialized",
    "local_tensor",
    "no_autocast",
    "norm_classes",
    "set_version",
    "storage_key",
    "storage_pin",
    "unwrapped",
    "version_of",
    "wait_for",
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
    except (RuntimeError, NotImplementedError, AttributeError, ValueError):
        return None


def storage_pin(tensor: Tensor) -> object:
    """What keeps a storage's key from being given to another one, without keeping its memory."""
    try:
        return StorageWeakRef(tensor.untyped_storage())
    except (RuntimeError, NotImplementedError, AttributeError, ValueError):
        return None


def is_lazy(parts: Census) -> bool:
    """Whether some module of the model makes its parameters in its first forward."""
    return any(isinstance(module, LazyModuleMixin) for _, module in parts.modules)


def is_uninitialized(tensor: Tensor) -> bool:
    """Whether a parameter or buffer still waits for its shape."""
    # By exact class: isinstance of a parameter class runs Python code of torch for each tensor.
    return type(tensor) in (UninitializedParameter, UninitializedBuffer)


def is_scripted(module: nn.Module) -> bool:
    """Whether the module runs inside TorchScript, where Python sees none of its calls."""
    return isinstance(module, torch.jit.ScriptModule)


def is_compiled(module: nn.Module) -> bool:
    """Whether calling the module goes through ``torch.compile``."""
    return (
        getattr(module, "_compiled_call_impl", None) is not None or type(module).__name__ == "OptimizedModule"
    )


@functools.cache
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


def eager() -> AbstractContextManager[None]:
    """A context in which compiled code runs as plain Python; any code may be, once the compiler is loaded."""
    return _stance("force_eager") if "torch._dynamo.eval_frame" in sys.modules else contextlib.nullcontext()


def faking(tensors: Iterable[Any]) -> AbstractContextManager[Any]:
    """The mode that the fake ones among tensors belong to, so that what is made beside them is fake too."""
    module: Any = sys.modules.get("torch._subclasses.fake_tensor")
    if module is None:
        return contextlib.nullcontext()
    fake = next((tensor for tensor in tensors if isinstance(tensor, module.FakeTensor)), None)
    return contextlib.nullcontext() if fake is None else fake.fake_mode


def base_of(tensor: Any) -> Tensor | None:
    """The tensor that a view is a view of; None for anything else, and where torch does not say."""
    try:
        return tensor._base if tensor._is_view() else None
    except RuntimeError:
        return None


def unwrapped(tensor: Any) -> Any:
    """The tensor inside the wrappers of ``torch.func`` (vmap, grad, jvp); itself where there are none."""
    functorch: Any = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
    return tensor


def local_tensor(tensor: Tensor) -> Tensor:
    """The part of a sharded tensor that lies on this process; any other tensor as it is."""
    to_local = getattr(tensor, "to_local", None)
    return tensor if to_local is None else to_local()


def copy_to_host(flat: Tensor) -> tuple[Tensor, object]:
    """Start copying a tensor to the CPU; returns where it arrives and what says that it has."""
    if flat.device.type != "cuda":
        return flat.cpu(), None
    host = torch.empty(flat.shape, dtype=flat.dtype, pin_memory=True)
    host.copy_(flat, non_blocking=True)
    done = torch.cuda.Event()
    done.record(torch.cuda.current_stream(flat.device))
    return host, done


def wait_for(done: Any) -> None:
    """Wait until a copy that `copy_to_host` started has arrived."""
    if done is not None:
        done.synchronize()


def _compiling_check() -> Callable[[], bool]:
    """The function of this torch that says whether a line is being traced by the compiler."""
    known = getattr(getattr(torch, "compiler", None), "is_compiling", None)
    if known is not None:
        return cast("Callable[[], bool]", known)
    # Before torch 2.1 only the compiler itself has it, and importing torch does not import that.
    return cast("Callable[[], bool]", importlib.import_module("torch._dynamo").is_compiling)


# A constant to the compiler, so that no guard is added.
is_compiling: Callable[[], bool] = _compiling_check()

_backward_task: Callable[[], int] = getattr(torch._C, "_current_graph_task_id", lambda: -1)


def in_backward() -> bool:
    """Whether a backward pass is running on this thread; False where torch does not say."""
    return _backward_task() != -1


def is_capturing() -> bool:
    """Whether a CUDA graph is being recorded, during which nothing may be read or added."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def foreach_copy(targets: list[Tensor], sources: list[Tensor]) -> None:
    """Copy many tensors at once, one by one before torch 2.1."""
    together = getattr(torch, "_foreach_copy_", None)
    if together is not None:
        together(targets, sources)
        return
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)


def grad_scalers() -> tuple[type, ...]:
    """The classes of loss scalers of this torch."""
    found = (getattr(torch.amp, "GradScaler", None), torch.cuda.amp.GradScaler)
    return tuple(cls for cls in found if cls is not None)


@contextlib.contextmanager
def no_autocast() -> Iterator[None]:
    """A context in which no operation is cast to a half type, on the CPU or on CUDA."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.autocast("cpu", enabled=False))
        if torch.cuda.is_available():
            stack.enter_context(torch.autocast("cuda", enabled=False))
        yield


def compiler_ran() -> bool:
    """Whether ``torch.compile`` has traced anything in this process."""
    dynamo: Any = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and bool(dynamo.counters.get("frames"))


def compiled_inside(root: nn.Module) -> bool:
    """Whether a compiled wrapper around the model is alive, such as ``torch.compile(model)`` makes."""
    if "torch._dynamo" not in sys.modules:
        return False
    holders = gc.get_referrers(root)
    return any(isinstance(holder, dict) and holder.get("_orig_mod") is root for holder in holders)
