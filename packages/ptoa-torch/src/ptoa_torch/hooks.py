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

__all__ = ["ForwardWrap", "Hook", "HookSet", "React", "nothing"]

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


class ForwardWrap:
    """A module's forward with something around it, until `remove`.

    Args:
        module: The module.
        around: Called as ``around(forward, args, kwargs)``; returns what forward returned.

    Example:
        >>> from torch import nn
        >>> layer = nn.Identity()
        >>> wrap = ForwardWrap(layer, lambda forward, args, kwargs: forward(*args, **kwargs) + 1)
        >>> layer(1), wrap.remove(), layer(1), "forward" in vars(layer)
        (2, None, 1, False)
    """

    def __init__(self, module: nn.Module, around: Callable[..., Any]) -> None:
        """Put the wrap in the place of the module's forward."""
        self._module = module
        self._around: Callable[..., Any] | None = around
        self._own = module.__dict__.get("forward")
        self.__wrapped__ = module.forward  # what inspect.signature looks at
        module.__dict__["forward"] = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the forward, with the wrap while it is in place and the compiler is not tracing."""
        if self._around is None or _compat.is_compiling():
            return self.__wrapped__(*args, **kwargs)
        return self._around(self.__wrapped__, args, kwargs)

    def remove(self) -> None:
        """Put the forward back. Where another wrap was laid over this one, stay as a way through."""
        self._around = None
        attributes = self._module.__dict__
        if attributes.get("forward") is not self:
            return
        if self._own is None:
            del attributes["forward"]
        else:
            attributes["forward"] = self._own

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
        return getattr, (self._module, "forward")


class _Placed:
    """A hook in a module's own table: torch's handles would cost more than all that the hook measures."""

    __slots__ = ("_hook", "_table")

    def __init__(self, table: dict[Any, Any], hook: Hook) -> None:
        """Put the hook in, under itself as its key."""
        self._table = table
        self._hook = hook
        table[hook] = hook

    def remove(self) -> None:
        """Take the hook out."""
        self._table.pop(self._hook, None)


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

    def before(self, module: nn.Module, react: React) -> None:
        """Call ``react(module, args)`` before each call of the module."""
        self._handles.append(_Placed(module._forward_pre_hooks, Hook(react)))

    def after(self, module: nn.Module, react: React) -> None:
        """Call ``react(module, args, output)`` after each call of the module."""
        self._handles.append(_Placed(module._forward_hooks, Hook(react)))

    def around(self, module: nn.Module, around: Callable[..., Any]) -> None:
        """Call ``around(forward, args, kwargs)`` in the place of the module's forward."""
        self._handles.append(ForwardWrap(module, around))

    def remove(self) -> None:
        """Take everything off, the last first."""
        while self._handles:
            self._handles.pop().remove()
