"""A training forward, recorded while it runs: how a watch reads a model at no extra pass.

`hook_trace` runs a model for its own sake, and puts back what the pass changed. Here the pass is
the user's: nothing is put back, gradients flow, and whatever fails in recording ends the recording
and not the pass. Tensors are held until the pass ends, those that are about to be overwritten as
copies, so that every result can be measured afterwards as it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  # its usual name
from torch.overrides import TorchFunctionMode

from . import _compat
from .functions import QUIET, SOFTMAX, function_name, written_by
from .graph import GraphBuilder, Op, flatten
from .hook_trace import Recording, input_names
from .hooks import HookSet
from .inputs import Inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typing_extensions import Self

__all__ = ["LivePass", "Probabilities"]

_names: dict[Any, str] = {}


class Probabilities(NamedTuple):
    """A call that computed attention probabilities, with what it was given and what it made."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any


class _Begun(NamedTuple):
    """A function call that has not returned yet."""

    op: Op
    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    versions: list[tuple[Tensor, int]]


def _named(func: Any) -> str:
    """A function's plain name, remembered by function."""
    try:
        name = _names.get(func)
    except TypeError:  # an unhashable callable
        return function_name(func)
    if name is None:
        name = _names[func] = function_name(func)
    return name


class LivePass(TorchFunctionMode):
    """Records the functions and module calls of a forward while it is entered.

    Args:
        model: The model whose forward is about to run.
        args: What it is called with.
        kwargs: What it is called with by name.

    Attributes:
        failed: What ended the recording early, if anything did.
        probabilities: The attention calls that were seen, by the number of the operation.
        multihead: The first arguments of each ``nn.MultiheadAttention``, by module.

    Example:
        >>> net, x = nn.Sequential(nn.Linear(2, 3), nn.ReLU()), torch.ones(1, 2)
        >>> live = LivePass(net, (x,), {})
        >>> with live:
        ...     output = net.forward(x)
        >>> [op.name for op in live.recording(output).graph.ops]
        ['linear', 'relu']
    """

    def __init__(self, model: nn.Module, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Name the model's tensors and inputs; put nothing on the model yet."""
        super().__init__()
        self.failed: Exception | None = None
        self.probabilities: dict[int, Probabilities] = {}
        self.multihead: dict[int, tuple[tuple[Any, ...], dict[str, Any]]] = {}
        self._model = model
        self._builder = GraphBuilder(model, "run", unwrap=_compat.unwrapped, base_of=_compat.base_of)
        self._overwritten: dict[int, list[Callable[[Tensor], object]]] = {}
        self._hooks = HookSet()
        for name, parameter in model.named_parameters():
            self._builder.name_source(parameter, "param", name)
        for name, buffer in model.named_buffers():
            self._builder.name_source(buffer, "buffer", name)
        for name, tensor in input_names(model, Inputs(tuple(args), kwargs)):
            self._builder.add_input(tensor, name)
        self._builder.graph.root.arguments = (args, kwargs)

    def __enter__(self) -> Self:
        """Put a wrap around the forward of each module below the model."""
        for path, module in self._model.named_modules():
            if module is not self._model:
                self._hooks.around(module, self._around(module, path))
        super().__enter__()  # type: ignore[no-untyped-call]  # torch leaves it unannotated
        return self

    def __exit__(self, *error: object) -> None:
        """Take everything off."""
        super().__exit__(*error)  # type: ignore[no-untyped-call]  # torch leaves it unannotated
        self._hooks.remove()

    def recording(self, output: Any) -> Recording:
        """What was recorded, when the forward has returned its output."""
        self._builder.leave(self._builder.graph.root, output)
        return Recording(self._builder.done(output), output, None)

    def awaiting(self, tensor: Tensor) -> list[Callable[[Tensor], object]] | None:
        """Who waits for the gradient of what was overwritten; None for a tensor that was not."""
        return self._overwritten.get(id(tensor))

    # ── while it runs ─────────────────────────────────────────────────────────

    def _ours(self, act: Callable[..., Any], *given: Any) -> Any:
        """Record something; what fails ends the recording."""
        if self.failed is not None:
            return None
        try:
            with torch._C.DisableTorchFunction():
                return act(*given)
        except Exception as error:  # noqa: BLE001  # recording must not end the user's forward
            self.failed = error
            return None

    def _around(self, module: nn.Module, path: str) -> Callable[..., Any]:
        """What goes around a module's forward."""

        def recorded(forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if _compat.in_backward():
                return forward(*args, **kwargs)
            call = self._ours(self._builder.enter, module, path, (args, kwargs))
            if isinstance(module, nn.MultiheadAttention):
                self.multihead.setdefault(id(module), (args, kwargs))
            try:
                result = forward(*args, **kwargs)
            except BaseException:
                self._ours(self._builder.close, call)
                raise
            self._ours(self._builder.leave, call, result)
            return result

        return recorded

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Record one torch function; inside it the mode is off, so it counts as one."""
        kwargs = kwargs or {}
        name = _named(func)
        if name in QUIET or self.failed is not None:
            return func(*args, **kwargs)
        begun = self._ours(self._begin, func, name, args, kwargs)
        result = func(*args, **kwargs)
        if begun is not None:
            self._ours(self._end, begun, result)
        return result

    def _begin(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Begun:
        """Look up what a function reads, before it can be overwritten."""
        op, given = self._builder.begin(name, args, kwargs, _compat.storage_key)
        versions = [(tensor, _compat.version_of(tensor)) for tensor in given]
        for _, tensor in flatten([item for item in written_by(func)(args, kwargs) if item is not None]):
            self._copy_value(tensor)
        return _Begun(op, func, args, kwargs, versions)

    def _copy_value(self, tensor: Tensor) -> None:
        """Give the value of a tensor that is about to be overwritten a copy, and await its gradient here."""
        if not self._builder.known(tensor):
            return
        value = self._builder.value_of(tensor)
        if value.source == "param" or value.tensor is not tensor:
            return
        value.tensor = tensor.detach().clone()
        if tensor.requires_grad and not tensor.is_leaf:
            waiting = self._overwritten[id(value.tensor)] = []
            tensor.register_hook(lambda grad: _tell(waiting, grad))

    def _end(self, begun: _Begun, result: Any) -> None:
        """Record what a function made and what it wrote in place."""
        written = [
            (tensor, _compat.storage_key(tensor))
            for tensor, version in begun.versions
            if _compat.version_of(tensor) != version
        ]
        given = {id(tensor) for tensor, _ in begun.versions}
        if result is None or isinstance(result, (bool, int, float, str)):
            made = []
        else:
            made = [tensor for _, tensor in flatten(result) if id(tensor) not in given]
        if made or written:
            self._builder.finish(begun.op, made, written)
            if begun.op.name in SOFTMAX or begun.func is F.scaled_dot_product_attention:
                call = Probabilities(begun.func, begun.args, begun.kwargs, result)
                self.probabilities[begun.op.index] = call


def _tell(waiting: Sequence[Callable[[Tensor], object]], grad: Tensor) -> None:
    """Hand a gradient on."""
    for react in waiting:
        react(grad)
