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
import warnings
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from .process_wide import ProcessWide

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from .census import Census

__all__ = [
    "base_of",
    "compiled_parts",
    "compiled_wrappers",
    "compiler_loaded",
    "compiler_ran",
    "copy_to_host",
    "eager",
    "faking",
    "foreach_copy",
    "grad_scalers",
    "holds_numbers",
    "in_backward",
    "is_capturing",
    "is_compiled",
    "is_compiling",
    "is_lazy",
    "is_scripted",
    "is_uninitialized",
    "local_tensor",
    "never_compiled",
    "no_autocast",
    "no_autocast_cache",
    "no_warnings",
    "norm_classes",
    "set_compiler",
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


def eager(modules: Iterable[nn.Module]) -> AbstractContextManager[Any]:
    """A context in which compiled code runs as plain Python; any code may be, once the compiler is loaded."""
    if "torch._dynamo.eval_frame" not in sys.modules:
        return contextlib.nullcontext()
    stance: Any = getattr(getattr(torch, "compiler", None), "set_stance", None)
    if stance is None:
        return _uncompiled([module for module in modules if is_compiled(module)])
    return _nothing_compiled()


# torch has one stance for all threads.
_nothing_compiled = ProcessWide(lambda: torch.compiler.set_stance("force_eager"))


@contextlib.contextmanager
def _uncompiled(modules: list[nn.Module]) -> Iterator[None]:
    """Have compiled modules call what they were compiled from: the way of torch before 2.6."""
    put_back: list[tuple[dict[str, Any], str, Any]] = []
    try:
        for module in modules:
            original = module._modules.get("_orig_mod")
            name = "_compiled_call_impl" if original is None else "forward"
            put_back.append((module.__dict__, name, module.__dict__.get(name)))
            module.__dict__[name] = original
        yield
    finally:
        for attributes, name, value in reversed(put_back):
            attributes[name] = value


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
    except (RuntimeError, ValueError):  # a parameter that is lazy refuses every question by a ValueError
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
    """Whether a CUDA graph or a TorchScript trace is being recorded, in which nothing of ours may be.

    Inside a transform of ``torch.func`` tensors have no numbers to look at either.
    """
    if torch._C._get_tracing_state() is not None or _transforms() is not None:
        return True
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def _no_transforms() -> None:
    """Stand in where this torch has no transforms of functions."""


_transforms: Callable[[], Any] = getattr(
    getattr(torch._C, "_functorch", None), "peek_interpreter_stack", _no_transforms
)


def holds_numbers(tensor: Tensor) -> bool:
    """Whether there are values behind a tensor; a fake one has only a shape."""
    kind = type(tensor)
    usual = kind is Tensor or kind.__name__ not in ("FakeTensor", "FunctionalTensor")
    return usual and not tensor.is_meta


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


_eval_frame: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)


def never_compiled(function: Callable[..., Any]) -> None:
    """Have the compiler run a function's own lines as they are and go on with what it calls."""
    if hasattr(_eval_frame, "skip_code"):
        _eval_frame.skip_code(function.__code__)
    elif hasattr(_eval_frame, "set_code_exec_strategy"):
        actions = _eval_frame._FrameAction
        strategy = _eval_frame._FrameExecStrategy(actions.SKIP, actions.DEFAULT)
        _eval_frame.set_code_exec_strategy(function.__code__, strategy)


def _no_compiler(callback: object) -> None:
    """Stand in where this torch has no compiler."""


# Given None it stops the compiler from looking at what runs on this thread, and returns what lets it go
# on when it is given back; None says that it was not looking. It is torch's own function, without a
# Python frame that the compiler would look at, and is called by functions that are `never_compiled`.
set_compiler: Callable[[Any], Any] = getattr(_eval_frame, "set_eval_frame", _no_compiler)


@contextlib.contextmanager
def _unheard_warnings() -> Iterator[None]:
    """A context without warnings, as the interpreter has it: for all threads, or for this one alone."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


_no_warnings = ProcessWide(_unheard_warnings)


def no_warnings() -> AbstractContextManager[None]:
    """A context in which a pass of our own repeats none of the warnings that the model's own passes give."""
    own = getattr(sys.flags, "context_aware_warnings", False)
    return _unheard_warnings() if own else _no_warnings()


@contextlib.contextmanager
def no_autocast_cache() -> Iterator[None]:
    """A context in which autocast keeps no casts, which would be used again where gradients are needed."""
    was_on = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(was_on)


def compiler_ran() -> bool:
    """Whether ``torch.compile`` has traced anything in this process."""
    dynamo: Any = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and bool(dynamo.counters.get("frames"))


def compiled_wrappers(root: nn.Module) -> list[nn.Module]:
    """The living wrappers of ``torch.compile(root)``; asks the collector, so not for every step."""
    if "torch._dynamo" not in sys.modules:
        return []
    found: list[nn.Module] = []
    for holder in gc.get_referrers(root):
        if isinstance(holder, dict) and holder.get("_orig_mod") is root:
            found += [
                wrapper
                for tables in gc.get_referrers(holder)
                if isinstance(tables, dict) and tables.get("_modules") is holder
                for wrapper in gc.get_referrers(tables)
                if isinstance(wrapper, nn.Module) and is_compiled(wrapper)
            ]
            found += [w for w in gc.get_referrers(holder) if isinstance(w, nn.Module) and is_compiled(w)]
    return list({id(wrapper): wrapper for wrapper in found}.values())


def compiled_parts(root: nn.Module) -> frozenset[int]:
    """The ids of all modules below the root that run in compiled graphs of their own."""
    if not compiler_loaded():
        return frozenset()
    closed = [module for module in _below(root) if is_compiled(module)]
    return frozenset(id(part) for module in closed for part in module.modules())


def _below(root: nn.Module) -> list[nn.Module]:
    """All modules below the root; ``modules()`` takes several times as long, on every frame step."""
    found: dict[int, nn.Module] = {}
    waiting = [root]
    while waiting:
        for module in waiting.pop()._modules.values():
            if module is not None and id(module) not in found:
                found[id(module)] = module
                waiting.append(module)
    found.pop(id(root), None)
    return list(found.values())


def compiler_loaded() -> bool:
    """Whether anything in this process can have been compiled."""
    return "torch._dynamo" in sys.modules
