"""Leaving a model exactly as it was: the contexts in which it is read and measured.

A forward pass writes more than its outputs: batch statistics, counters, lists of kept
activations, the random state. `untouched` remembers all of it beforehand and puts back what
differs afterwards, also when the pass raises or Ctrl+C comes. Parameters are never copied up
front: what is about to be written is copied first (`StateGuard.before_write`), and only small
buffers, which compiled kernels write without asking, are copied at the start.
"""

from __future__ import annotations

import contextlib
import operator
import random
import sys
from collections import OrderedDict, deque
from types import FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from . import _compat
from .census import Census, census
from .functions import HANDED_OUT, QUIET, Written, function_name, written_by
from .graph import flatten
from .interrupts import surely

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["StateGuard", "evaluating", "untouched"]

_SMALL_BUFFER = 65_536
_MAX_CONTAINERS = 200_000
_MAX_DEPTH = 4
_ATOMS = (str, bytes, int, float, complex, bool, type(None), type, FunctionType, MethodType, ModuleType)
# Asked first, by exact class: most attributes of a module are one of these or an empty dict of hooks.
_ATOM_TYPES = frozenset({*_ATOMS, Tensor, nn.Parameter})
_PLAIN_DICTS = frozenset({dict, OrderedDict})
_HOLDERS = (Tensor, nn.Module, torch.dtype, torch.device, torch.Size)
_WHOLE = (*_ATOMS, *_HOLDERS)


@contextlib.contextmanager
def evaluating(model: nn.Module, parts: Census | None = None) -> Iterator[None]:
    """Run with every module in eval mode, then put each module's own flag back.

    The flags are set one by one: ``model.train(flag)`` would switch frozen children back on,
    and would run the side effects of a ``train`` that the model overrides.

    Args:
        model: Any module; its submodules are included.
        parts: The model's census, where it was taken already.

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
        >>> _ = net[1].eval()
        >>> with evaluating(net):
        ...     [module.training for module in net.modules()]
        [False, False, False]
        >>> [module.training for module in net.modules()]
        [True, True, False]
    """
    flags = [(module, module.training) for _, module in (parts or census(model)).modules]
    try:
        for module, training in flags:
            if training:
                _set_flag(module, flag=False)
        yield
    finally:
        surely(lambda: _put_flags_back(flags))


def _put_flags_back(flags: list[tuple[nn.Module, bool]]) -> None:
    """Set the flags that differ."""
    for module, training in flags:
        if module.training != training:
            _set_flag(module, flag=training)


def _set_flag(module: nn.Module, *, flag: bool) -> None:
    """Set a train flag, past the checks of ``nn.Module.__setattr__`` where it is a plain attribute."""
    if "training" in module.__dict__ and not _compat.is_scripted(module):
        module.__dict__["training"] = flag
    else:
        module.training = flag


def _random_states() -> list[tuple[Callable[[Any], object], Any]]:
    """The random state of Python, numpy, the CPU and every accelerator that is in use, with its setter."""
    states: list[tuple[Callable[[Any], object], Any]] = [
        (random.setstate, random.getstate()),
        (torch.set_rng_state, torch.get_rng_state()),
    ]
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "random"):
        states.append((numpy.random.set_state, numpy.random.get_state()))
    for name in ("cuda", "xpu"):
        backend: Any = getattr(torch, name, None)
        if backend is not None and getattr(backend, "is_initialized", bool)() and backend.is_available():
            states.append((backend.set_rng_state_all, backend.get_rng_state_all()))
    return states


def _same(items: list[Any], others: list[Any]) -> bool:
    """Whether two lists hold the very same objects in the same order."""
    return len(items) == len(others) and all(a is b for a, b in zip(items, others, strict=True))


def _refill_list(item: Any, saved: Any) -> None:
    """Put a list's or deque's members back."""
    if not _same(list(item), saved):
        item.clear()
        item.extend(saved)


def _refill_dict(item: Any, saved: Any) -> None:
    """Put a dict's items back, in their order."""
    keys, members = saved
    if not (_same(list(item.values()), members) and list(item) == keys):
        item.clear()
        for key, member in zip(keys, members, strict=True):
            dict.__setitem__(item, key, member) if type(item) is dict else item.__setitem__(key, member)


def _refill_set(item: Any, saved: Any) -> None:
    """Put a set's members back."""
    if item != saved:
        item.clear()
        item.update(saved)


class StateGuard:
    """Remembers a model's state at construction; `restore` puts back what differs.

    Args:
        model: The model that is about to run.
        inputs: The arguments it will get; their containers and tensors are kept as well.
        parts: The model's census, where it was taken already.
    """

    def __init__(self, model: nn.Module, inputs: Any = None, parts: Census | None = None) -> None:
        """Look at every module once, without copying a parameter."""
        parts = parts or census(model)
        self._attributes: list[tuple[Any, dict[str, Any]]] = []
        self._filled: list[tuple[Callable[[Any, Any], None], Any, Any]] = []
        self._empty: list[Any] = []
        self._seen: set[int] = set()
        for _, module in parts.modules:
            self._keep_object(module, 0)
        self._keep(inputs, 0)
        self._random = _random_states()
        self._parts = parts
        self._given = [tensor for _, tensor in flatten(inputs)]
        self._parameters: list[tuple[Tensor, bool, Tensor | None]] = []
        self._tensors: dict[int, Tensor] | None = None
        self._saved: dict[int, tuple[Tensor, Tensor, Tensor, int]] = {}
        self._keep_tensors()

    # ── containers and attributes ─────────────────────────────────────────────

    def _keep_object(self, item: Any, depth: int) -> None:
        """Remember an object's attributes and the containers among them."""
        attributes = item.__dict__
        self._seen.add(id(item))
        self._attributes.append((item, dict(attributes)))
        for part in attributes.values():
            kind = type(part)
            if kind in _ATOM_TYPES:
                continue
            if kind in _PLAIN_DICTS and not part:
                self._empty.append(part)
            else:
                self._keep(part, depth + 1)

    def _keep(self, item: Any, depth: int) -> None:
        """Remember a container's members, and what they hold, to a bounded depth."""
        if isinstance(item, _WHOLE) or depth > _MAX_DEPTH or id(item) in self._seen:
            return
        if len(self._seen) > _MAX_CONTAINERS:
            return
        parts = self._keep_members(item)
        if parts is None:
            if isinstance(getattr(item, "__dict__", None), dict):
                self._keep_object(item, depth)
            return
        self._seen.add(id(item))
        for part in parts:
            if not isinstance(part, _ATOMS):
                self._keep(part, depth + 1)

    def _keep_members(self, item: Any) -> Iterable[Any] | None:
        """Remember the members of a list, deque, dict or set; None for anything else."""
        if isinstance(item, (list, deque)):
            self._filled.append((_refill_list, item, members := list(item)))
            return members
        if isinstance(item, dict):
            self._filled.append((_refill_dict, item, (list(item), members := list(item.values()))))
            return members
        if isinstance(item, set):
            self._filled.append((_refill_set, item, set(item)))
            return ()
        return item if isinstance(item, tuple) else None

    # ── tensors ───────────────────────────────────────────────────────────────

    def _keep_tensors(self) -> None:
        """Remember the parameters' flags and gradients; copy the small buffers."""
        self._parameters = [
            (p, p.requires_grad, p.grad) for _, p in self._parts.parameters if not _compat.is_uninitialized(p)
        ]
        for _, buffer in self._parts.buffers:
            if not _compat.is_uninitialized(buffer) and buffer.numel() <= _SMALL_BUFFER:
                self.before_write(buffer)

    def _owned(self) -> dict[int, Tensor]:
        """The tensors that are the model's or the caller's, by storage: a write through a view counts.

        Looked up at the first write: most passes never write to a tensor that was there before.
        """
        if self._tensors is None:
            self._tensors = {}
            grads = [grad for _, _, grad in self._parameters if grad is not None]
            parameters = [parameter for parameter, _, _ in self._parameters]
            buffers = [b for _, b in self._parts.buffers if not _compat.is_uninitialized(b)]
            for tensor in (*parameters, *grads, *buffers, *self._given):
                key = _compat.storage_key(tensor)
                if key is not None:
                    self._tensors.setdefault(key, tensor)
        return self._tensors

    def before_write(self, target: Any) -> None:
        """Copy the tensors of ``target`` that are the model's or the caller's, once, before a write."""
        for _, tensor in flatten(target):
            key = _compat.storage_key(tensor)
            owner = None if key is None or key in self._saved else self._owned().get(key)
            if key is not None and owner is not None and owner.device.type != "meta":
                with torch.no_grad(), torch._C.DisableTorchFunction():
                    alias = owner.detach()
                    self._saved[key] = (owner, alias, alias.clone(), _compat.version_of(owner))

    def before_call(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], written: Written | None = None
    ) -> None:
        """Copy what a torch function is about to write, where it belongs to the model or caller.

        Args:
            func: The function.
            args: Its positional arguments.
            kwargs: Its keyword arguments.
            written: What `functions.written_by` says of the function, where it was asked already.
        """
        for target in (written_by(func) if written is None else written)(args, kwargs):
            self.before_write(target)

    def saved_bytes(self) -> int:
        """How much memory the copies take that were made so far, in bytes."""
        return sum(copy.numel() * copy.element_size() for _, _, copy, _ in self._saved.values())

    # ── putting back ──────────────────────────────────────────────────────────

    def restore(self) -> None:
        """Put back every attribute, container, tensor, gradient and random state that differs."""
        for item in self._empty:
            if item:
                item.clear()
        for refill, item, saved in self._filled:
            refill(item, saved)
        for item, saved in self._attributes:
            attributes = item.__dict__
            if not (
                len(attributes) == len(saved)
                and all(map(operator.is_, attributes.values(), saved.values()))
                and list(attributes) == list(saved)
            ):
                _restore_attributes(attributes, saved)
        with torch.no_grad(), torch._C.DisableTorchFunction():
            self._restore_tensors()
        for setter, state in self._random:
            setter(state)

    def _restore_tensors(self) -> None:
        """Copy back what was written, and put flags and gradients back."""
        for tensor, alias, copy, version in self._saved.values():
            if _place(tensor) != _place(alias):  # given other data, or resized
                tensor.data = alias
            if _compat.version_of(tensor) != version or not _identical(tensor, copy):
                tensor.data.copy_(copy)
            if _compat.version_of(tensor) != version:
                _compat.set_version(tensor, version)
        for parameter, requires_grad, grad in self._parameters:
            if parameter.requires_grad != requires_grad:
                parameter.requires_grad_(requires_grad)
            if parameter.grad is not grad:
                parameter.grad = grad


def _place(tensor: Tensor) -> tuple[Any, ...]:
    """Where a tensor's numbers lie and how they are read."""
    try:
        layout: Any = (tensor.stride(), tensor.storage_offset())
    except (RuntimeError, NotImplementedError):  # nested tensors
        layout = None
    return _compat.storage_key(tensor), tuple(tensor.shape), layout, tensor.dtype


def _identical(tensor: Tensor, copy: Tensor) -> bool:
    """Whether a write past the version counter left the tensor as it was."""
    try:
        return torch.equal(tensor, copy)
    except (RuntimeError, NotImplementedError):
        return False


def _restore_attributes(attributes: dict[str, Any], saved: dict[str, Any]) -> None:
    """Make an object's attributes the saved ones, touching only those that differ."""
    for name in [name for name in attributes if name not in saved]:
        del attributes[name]
    for name, item in saved.items():
        if name not in attributes or attributes[name] is not item:
            attributes[name] = item
    if list(attributes) != list(saved):
        for name in saved:
            attributes[name] = attributes.pop(name)


class _WriteWatch(TorchFunctionMode):
    """Tells a guard about each torch function before it runs."""

    def __init__(self, guard: StateGuard) -> None:
        super().__init__()
        self._guard = guard

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Let the call through after what it would write is saved."""
        name = function_name(func)
        if name not in QUIET or name in HANDED_OUT:
            self._guard.before_call(func, args, kwargs or {})
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def untouched(
    model: nn.Module, inputs: Any = None, *, watch_writes: bool = True, parts: Census | None = None
) -> Iterator[StateGuard]:
    """Run anything on a model and leave it, its inputs and the random state as they were.

    Covers attributes of every module (also lists, dicts and plain objects they hold), hooks,
    parameters, buffers, gradients, ``requires_grad``, write counters, autocast's cache, and the
    random state of Python, numpy, the CPU and every initialised accelerator. Nothing is moved
    between devices.

    Args:
        model: The model.
        inputs: Arguments it will be called with; they are kept as well.
        watch_writes: Push a function mode that saves tensors before they are written. A reader
            that pushes a mode of its own calls `StateGuard.before_call` there instead.
        parts: The model's census, where it was taken already.

    Example:
        >>> norm = nn.BatchNorm1d(2)
        >>> with untouched(norm):
        ...     _ = norm(torch.ones(4, 2)); norm.note = "left behind"
        >>> int(norm.num_batches_tracked), hasattr(norm, "note")
        (0, False)
    """
    guard = StateGuard(model, inputs, parts)
    try:
        with _WriteWatch(guard) if watch_writes else contextlib.nullcontext(), _compat.no_autocast_cache():
            yield guard
    finally:
        surely(guard.restore)
