"""What is put on modules for one frame step, and taken off again on every path.

A hook on a module travels with it: ``copy.deepcopy`` (an EMA copy, a snapshot) and
``torch.save(model)`` would carry the watch along, or fail on it. `Hook` therefore copies and
pickles to a function of the standard library that does nothing. A forward that is wrapped
for the length of a step (`ForwardWrap`) copies and pickles to the forward it wraps; unlike
a hook it also ends when the forward raises or Ctrl+C comes, on every release of torch.

A hook says nothing while the compiler traces it, so that a graph that is traced with it
holds nothing of it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any

from . import _compat

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Compiled", "ForwardWrap", "Hook", "HookSet", "React", "nothing"]

React = Callable[..., object]


def nothing(*_: object) -> None:
    """Do nothing, whatever is given."""


class Hook:
    """A hook that a copy or a pickle of its module does not carry.

    Example:
        >>> import copy
        >>> copy.deepcopy(Hook(print))("module", "arguments", "output")
    """

    __slots__ = ("_react",)

    def __init__(self, react: React) -> None:
        """Call ``react`` with what the hook is given; what it returns is dropped."""
        self._react = react

    def __call__(self, *given: Any) -> None:
        """React, unless the compiler is tracing."""
        if not _compat.is_compiling():
            self._react(*given)

    def __deepcopy__(self, memo: dict[int, Any]) -> Callable[..., None]:
        """A copy does nothing."""
        return nothing

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle does nothing, and needs nothing of ours to be read."""
        return getattr, (contextlib.nullcontext(), "__exit__")


class Compiled:
    """A compiled call: what a `ForwardWrap` hands on in the place of a forward that is run by the compiler.

    The compiler looks at whatever runs below a compiled call, our own lines too, unless it is paused.
    """

    __slots__ = ("_callback", "_forward")

    def __init__(self, forward: Callable[..., Any], callback: Any) -> None:
        """Remember how to let the compiler go on."""
        self._forward = forward
        self._callback = callback

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the forward with the compiler looking."""
        _compat.set_compiler(self._callback)
        try:
            return self._forward(*args, **kwargs)
        finally:
            _compat.set_compiler(None)

    @property
    def plainly(self) -> Callable[..., Any]:
        """The forward as it is, to be run while the compiler is paused."""
        return self._forward


class ForwardWrap:
    """A module's forward with something around it, until `remove`.

    Args:
        module: The module.
        around: Called as ``around(forward, args, kwargs)``; returns what forward returned.
        name: The attribute of the instance that is called: its forward, or the entry to its
            compiled call.

    Example:
        >>> from torch import nn
        >>> layer = nn.Identity()
        >>> wrap = ForwardWrap(layer, lambda forward, args, kwargs: forward(*args, **kwargs) + 1)
        >>> layer(1), wrap.remove(), layer(1), "forward" in vars(layer)
        (2, None, 1, False)
    """

    def __init__(self, module: nn.Module, around: Callable[..., Any], name: str = "forward") -> None:
        """Put the wrap in the place of the module's forward."""
        self._module = module
        self._name = name
        self._around: Callable[..., Any] | None = around
        self._own = module.__dict__.get(name)
        self.__wrapped__ = getattr(module, name)  # what inspect.signature looks at
        module.__dict__[name] = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the forward, with the wrap while it is in place and the compiler is not tracing."""
        # Asked first: to the compiler it is a constant, so that no guard on the wrap is added.
        if _compat.is_compiling() or self._around is None:
            return self.__wrapped__(*args, **kwargs)
        callback = _compat.set_compiler(None)
        if callback is None:
            return self._around(self.__wrapped__, args, kwargs)
        try:
            return self._around(Compiled(self.__wrapped__, callback), args, kwargs)
        finally:
            _compat.set_compiler(callback)

    def __getattr__(self, name: str) -> Any:
        """What is asked of a forward (its code, its defaults) is asked of the one that is wrapped."""
        if name == "__wrapped__":
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)

    def remove(self) -> None:
        """Put the forward back. Where another wrap was laid over this one, stay as a way through."""
        self._around = None
        attributes = self._module.__dict__
        if attributes.get(self._name) is not self:
            return
        if self._own is None:
            del attributes[self._name]
        else:
            attributes[self._name] = self._own

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """The forward of the copied module."""
        copied = memo.get(id(self._module))
        if self._own is not None or copied is None:
            return self._own
        return MethodType(type(self._module).forward, copied)

    def __reduce__(self) -> tuple[Any, ...]:
        """The forward of the module that is read back."""
        if self._own is not None:
            return functools.partial, (self._own,)
        return getattr, (self._module, self._name)


for _function in (Compiled.__call__, ForwardWrap.__call__):
    _compat.never_compiled(_function)


class _Placed:
    """A hook in a module's own tables: torch's handles would cost more than all that the hook measures."""

    __slots__ = ("_hook", "_tables")

    def __init__(self, hook: Hook, *tables: dict[Any, Any]) -> None:
        """Remember what to put where."""
        self._hook = hook
        self._tables = tables

    def put(self) -> None:
        """Put the hook in, under itself as its key; the second table says that it takes keywords."""
        hook = self._hook
        self._tables[0][hook] = hook
        self._tables[1][hook] = True

    def is_in(self, tables: tuple[dict[Any, Any], ...]) -> bool:
        """Whether these are the tables."""
        return self._tables[0] is tables[0] and self._tables[1] is tables[1]

    def remove(self) -> None:
        """Take the hook out."""
        for table in self._tables:
            table.pop(self._hook, None)


class HookSet:
    """Hooks and wraps of one frame step, removed together.

    Example:
        >>> from torch import nn
        >>> layer, hooks = nn.Linear(1, 1), HookSet()
        >>> hooks.after(layer, print)
        >>> hooks.remove()
        >>> len(layer._forward_hooks)
        0
    """

    def __init__(self) -> None:
        """Start with none."""
        self._handles: list[Any] = []
        # Made once: objects made anew for each frame cost more in the cyclic collector than by themselves.
        self._kept: dict[object, _Placed] = {}

    def before(self, module: nn.Module, react: React, key: object = None) -> None:
        """Call ``react(module, args, kwargs)`` before each call of the module.

        Args:
            module: The module.
            react: What to call.
            key: With one, a later call puts the hook that was made for it, with the ``react`` it has.
        """
        self._put(react, key, module._forward_pre_hooks, module._forward_pre_hooks_with_kwargs)

    def after(self, module: nn.Module, react: React, key: object = None) -> None:
        """Call ``react(module, args, kwargs, output)`` after each call; ``key`` as in `before`."""
        self._put(react, key, module._forward_hooks, module._forward_hooks_with_kwargs)

    def _put(self, react: React, key: object, *tables: dict[Any, Any]) -> None:
        """Put a new hook, or the one that is kept."""
        placed = self._kept.get(key) if key is not None else None
        if placed is None or not placed.is_in(tables):
            placed = _Placed(Hook(react), *tables)
            if key is not None:
                self._kept[key] = placed
        placed.put()
        self._handles.append(placed)

    def around(self, module: nn.Module, around: Callable[..., Any], name: str = "forward") -> None:
        """Call ``around(forward, args, kwargs)`` in the place of the module's forward."""
        self._handles.append(ForwardWrap(module, around, name))

    def remove(self) -> None:
        """Take everything off, the last first."""
        while self._handles:
            self._handles.pop().remove()

    def forget(self) -> None:
        """Take everything off, and keep no hook for a later time."""
        self.remove()
        self._kept = {}
