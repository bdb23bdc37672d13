"""One frame step: what is looked at while the model trains, and the frame that comes of it.

`Probe` puts a wrap around the model's forward when a step is to be measured. When the model
is called in training, the hooks of the plan are put on for the length of that forward, and
each output's gradient is awaited by a hook on the tensor, which goes with the graph. The
optimizer's hooks call `before_step` and `after_step`, between which the update happens. What
was measured is a `Frame` whose numbers are still on their way; `Frame.build` waits for them.

Nothing here raises into the training step: what fails says so once and stands aside.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from . import _compat
from .attention import AttentionMode, attention_entropy, corner, multihead_probabilities
from .hooks import HookSet
from .losses import loss_in_output
from .meter import Meter, Parcel
from .parameters import ParameterNorms
from .ranks import Place, is_sharded, share_of, sum_over_ranks
from .steps import find_scaler, learning_rate
from .timing import clock

if TYPE_CHECKING:
    from .frame import Frame, Row
    from .plan import Plan, Target

__all__ = ["Probe", "first_tensor"]

_MAX_DEPTH = 4
_NORMS = 3  # a parameter's weight, gradient and update


def first_tensor(output: Any, depth: int = _MAX_DEPTH) -> Tensor | None:
    """The first tensor in what a module returned; an iterator is left alone.

    Example:
        >>> first_tensor({"hidden": (None, torch.ones(1))})
        tensor([1.])
    """
    if isinstance(output, Tensor):
        return output
    if depth == 0:
        return None
    found = (first_tensor(member, depth - 1) for member in _members(output))
    return next((tensor for tensor in found if tensor is not None), None)


def _members(output: Any) -> Iterator[Any]:
    """What a container or dataclass holds."""
    if isinstance(output, Mapping):
        yield from output.values()
    elif isinstance(output, (tuple, list)):
        yield from output
    elif is_dataclass(output) and not isinstance(output, type):
        yield from (getattr(output, field.name, None) for field in fields(output))


class Probe:
    """Measures frame steps of one model.

    Args:
        root: The model, unwrapped.
        hist: Whether to count histograms.
        update_ratio: Whether to copy the parameters, to see how far a step moves them.
        has_optimizer: Whether an optimizer's hooks say when a step begins.
        complain: Called with a place and an exception of our own; the place then stands aside.
        read_model: Called with the arguments of the first training forward; gives the plan.
        place: Which of several processes this one is.
        reduce: Whether norms are summed over all processes, which all must ask for.
    """

    def __init__(
        self,
        root: nn.Module,
        *,
        hist: bool,
        update_ratio: bool,
        has_optimizer: bool,
        complain: Callable[[str, Exception], object],
        read_model: Callable[[tuple[Any, ...], dict[str, Any]], Plan | None],
        place: Place = Place(),  # noqa: B008  # a frozen value
        reduce: bool = False,
    ) -> None:
        """Put nothing on the model yet."""
        self.root = root
        self.plan: Plan | None = None
        self.frame: Frame | None = None
        self.compiled = False
        self.steps_in_eval = False
        self._meter = Meter(hist)
        self._norms = ParameterNorms()
        self._update_ratio = update_ratio
        self._has_optimizer = has_optimizer
        self._complain = complain
        self._read_model = read_model
        self._place = place
        self._reduce = reduce
        self._own = Parcel()
        self._wrap = HookSet()
        self._hooks = HookSet()
        self._leaves: list[Any] = []
        self._expected = 1
        self._rootless = False
        self._standing_aside: set[str] = set()
        self._updates: int | None = None
        self._counted = 0
        self._parameters: list[Tensor] = []
        self._inside = False

    # ── on and off ────────────────────────────────────────────────────────────

    def arm(self, frame: Frame) -> None:
        """Get ready to measure the next step."""
        self.frame = frame
        if self.compiled:
            return
        self._wrap.around(self.root, self._forward)
        if self._rootless:
            self._put_hooks(self.plan)

    def disarm(self) -> None:
        """Take everything off after a step."""
        frame, self.frame = self.frame, None
        if frame is None:
            return
        unseen = not frame.forwards and not frame.calls
        if unseen and _compat.compiler_ran():
            # The graph may have been traced with the wrap in place: taking it off would compile it anew.
            self.compiled = True
        else:
            self._wrap.remove()
        self._take_off()
        self._expected = max(1, frame.forwards)
        self._rootless = not frame.forwards and not self.compiled
        self.steps_in_eval = not self.root.training

    def close(self) -> None:
        """Take everything off for good and give the buffers' memory back."""
        self.frame = None
        self._wrap.remove()
        self._take_off()
        self._meter.forget()
        self._norms = ParameterNorms()

    def _take_off(self) -> None:
        """Take the plan's hooks off."""
        self._hooks.remove()
        while self._leaves:
            self._leaves.pop().remove()

    def _put_hooks(self, plan: Plan | None) -> None:
        """Put the plan's hooks on the model."""
        for target in plan.targets if plan is not None else ():
            if target.takes_input:
                self._hooks.before(target.module, partial(self._saw, target))
            else:
                self._hooks.after(target.module, partial(self._saw, target))
        for module, row, heads in plan.attention if plan is not None else ():
            self._hooks.around(module, self._attend(module, row, heads))

    def _listening(self) -> bool:
        """Whether a forward at this moment is one that trains."""
        trains = torch.is_grad_enabled() and (self.root.training or self.steps_in_eval)
        return trains and not _compat.is_capturing()

    @contextlib.contextmanager
    def _aside(self, place: str) -> Iterator[None]:
        """Keep an exception of our own from the training step, and leave the place out from then on."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  # measuring must not end the user's step
            self._stand_aside(place, error)

    def _stand_aside(self, place: str, error: Exception) -> None:
        """Leave a place out from then on, and say so once."""
        if place not in self._standing_aside:
            self._standing_aside.add(place)
            self._complain(place, error)

    # ── the forward ───────────────────────────────────────────────────────────

    def _forward(self, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The model's forward on a frame step."""
        frame = self.frame
        if frame is None or not self._listening() or _compat.in_backward():
            return forward(*args, **kwargs)
        with self._aside("reading the model"):
            self._begin_forward(frame, args, kwargs)
        self._inside = True
        try:
            output = forward(*args, **kwargs)
        except BaseException:
            self.frame = None
            self._hooks.remove()
            self._wrap.remove()
            raise
        finally:
            self._inside = False
        with self._aside("the model's output"):
            self._end_forward(frame, output)
        return output

    def _begin_forward(self, frame: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Put the hooks on for a step's first forward, and from as many on as the last frame had."""
        frame.forwards += 1
        measured = frame.forwards == 1 or frame.forwards >= self._expected
        if self.plan is None:
            self.plan = self._read_model(args, kwargs)
        if not measured or self.plan is None:
            return
        if not self._has_optimizer and not frame.owners:
            with torch.no_grad():
                self.keep_weights()
        frame.plan = self.plan
        frame.forget()
        frame.inputs = [
            self._meter.add(tensor, frame.parcel)
            for tensor in (*args, *kwargs.values())
            if isinstance(tensor, Tensor) and tensor.is_floating_point() and tensor.device.type != "meta"
        ]
        self._put_hooks(self.plan)
        frame.stopwatch.mark("forward")

    def _end_forward(self, frame: Frame, output: Any) -> None:
        """Take the hooks off, unless a checkpointed part runs again in backward."""
        frame.stopwatch.mark("forwarded")
        if not frame.without_grad:
            self._hooks.remove()
        frame.put_number(loss_in_output(output), frame.found.append)

    def _saw(self, target: Target, module: nn.Module, args: Any, output: Any = None) -> None:
        """A module was called, or is about to be."""
        output = args if target.takes_input else output
        frame = self.frame
        if frame is None or module is not target.module:
            return  # a replica of DataParallel has the hooks of its original
        if not (self._inside or self._listening()):
            return
        if not frame.rows and self.plan is not None:
            frame.plan = self.plan
            frame.forget()
        started = clock()
        name = f"block {frame.plan.ids[target.rows[0]]}"
        if name not in self._standing_aside:
            try:
                if _compat.in_backward():
                    self._ran_again(frame, target, output)
                else:
                    self._measure(frame, target, output)
            except Exception as error:  # noqa: BLE001  # measuring must not end the user's step
                self._stand_aside(name, error)
        frame.stopwatch.spent("backward" if _compat.in_backward() else "forward", clock() - started)

    def _measure(self, frame: Frame, target: Target, output: Any) -> None:
        """Measure a block's output and await its gradient."""
        call = frame.calls.get(id(target), 0)
        frame.calls[id(target)] = call + 1
        if call >= len(target.rows):
            frame.rows[target.rows[-1]].calls = call + 2 - len(target.rows)
            return
        index = target.rows[call]
        row = frame.rows[index]
        tensor = first_tensor(output)
        if tensor is None or tensor.device.type == "meta":
            row.missing[target.part] = "no tensor in what it returned"
            return
        reading = self._meter.add(tensor, frame.parcel, target.sat)
        setattr(row, target.part, reading)
        frame.order.append((index, target.part, reading))
        frame.without_grad = frame.without_grad or not torch.is_grad_enabled()
        if target.part == "act":
            self._await_grad(frame, index, row, tensor)

    def _ran_again(self, frame: Frame, target: Target, output: Any) -> None:
        """A checkpointed block runs again in backward, where its gradient arrives if it had no graph."""
        row = frame.rows[target.rows[0]]
        tensor = first_tensor(output)
        if target.part == "act" and len(target.rows) == 1 and not row.awaited and tensor is not None:
            row.missing.pop("grad", None)
            self._await_grad(frame, target.rows[0], row, tensor)

    def _await_grad(self, frame: Frame, index: int, row: Row, tensor: Tensor) -> None:
        """Measure the gradient when it arrives at a block's output."""
        if not tensor.requires_grad:
            row.missing["grad"] = "its output needs no gradient"
            return

        def arrived(grad: Tensor) -> None:
            if self.frame is not frame or frame.rows[index] is not row:
                return
            started = clock()
            try:
                row.grads += 1
                if row.grad is None:
                    row.grad = self._meter.add(grad, frame.parcel)
                    frame.order.append((index, "grad", row.grad))
            except Exception as error:  # noqa: BLE001  # measuring must not end the user's step
                self._stand_aside("gradients", error)
            frame.stopwatch.spent("backward", clock() - started)

        row.awaited = True
        handle = tensor.register_hook(arrived)
        if tensor.is_leaf:
            self._leaves.append(handle)  # a parameter outlives the graph

    # ── attention ─────────────────────────────────────────────────────────────

    def _attend(self, module: nn.Module, row: int, heads: int) -> Callable[..., Any]:
        """What goes around an attention module's forward."""
        place = "attention"

        def fail(error: Exception) -> None:
            with self._aside(place):
                raise error

        def around(forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            frame = self.frame
            wanted = frame is not None and self._listening() and place not in self._standing_aside
            if frame is None or not wanted or frame.rows[row].entropy is not None or frame.rows[row].sample:
                return forward(*args, **kwargs)
            if isinstance(module, nn.MultiheadAttention):
                with self._aside(place), torch.no_grad(), _compat.no_autocast():
                    probs = multihead_probabilities(module, args, kwargs)
                    if probs is not None:
                        self._show(frame, row, probs, probs)
                return forward(*args, **kwargs)
            with AttentionMode(heads, lambda sample, first: self._show(frame, row, sample, first), fail):
                return forward(*args, **kwargs)

        return around

    def _show(self, frame: Frame, index: int, sample: Tensor, first: Tensor) -> None:
        """Send the entropy and the corner of one block's attention."""
        started = clock()
        row = frame.rows[index]
        row.sample = sample.shape[0]
        pattern = corner(first)
        row.size = pattern.shape[-1] if pattern.shape[-1] == pattern.shape[-2] else 0
        frame.parcel.put(attention_entropy(sample), lambda values: setattr(row, "entropy", values))
        if row.size:
            frame.parcel.put(pattern, lambda values: setattr(row, "pattern", values))
        frame.stopwatch.spent("forward", clock() - started)

    # ── the optimizer's step ──────────────────────────────────────────────────

    def keep_weights(self) -> None:
        """Measure the weights before the step; with ``update_ratio`` keep a copy of them."""
        frame = self.frame
        if frame is None or self.plan is None:
            return
        parameters, frame.owners = self.plan.parameters()
        frame.frozen = [not parameter.requires_grad for parameter in parameters]
        self._parameters = parameters
        keep = self._norms.keep_weights if self._update_ratio else self._norms.measure_weights
        keep(parameters, frame.norms, self._parcel(frame))

    def _parcel(self, frame: Frame) -> Parcel:
        """Where norms wait: with the frame's numbers, or apart when other processes add to them."""
        return self._own if self._reduce else frame.parcel

    def before_step(self, optimizer: Any, has_closure: bool) -> None:
        """The optimizer is about to step."""
        frame = self.frame
        if frame is None:
            return
        frame.stopwatch.mark("backwarded")
        with self._aside("weights"), torch.no_grad():
            self._without_forward(frame)
            self.keep_weights()
            if not has_closure and frame.owners:
                self._norms.measure_grads(self._parameters, frame.norms, self._parcel(frame))
            self._read_scaling(frame, optimizer)
            frame.put_number(learning_rate(optimizer), frame.set("lr"))
        frame.notes.update({"closure": True} if has_closure else {})
        frame.stopwatch.mark("stepping")

    def _without_forward(self, frame: Frame) -> None:
        """Read the model at its first step where its forward was not seen."""
        if self.plan is None:
            self.plan = self._read_model((), {})
        if self.plan is not None and frame.plan is not self.plan:
            frame.plan = self.plan
            frame.forget()

    def after_step(self) -> None:
        """The weights have moved; what waits in the buffers is measured."""
        frame = self.frame
        if frame is None:
            return
        frame.stopwatch.mark("stepped")
        with self._aside("weights"), torch.no_grad():
            if frame.notes.get("closure") and frame.owners:
                self._norms.measure_grads(self._parameters, frame.norms, self._parcel(frame))
            if self._update_ratio and frame.owners:
                self._norms.measure_update(self._parameters, frame.norms, self._parcel(frame))
        with self._aside("statistics"), torch.no_grad():
            self._meter.flush(frame.parcel)
        if self._reduce:
            self._add_up(frame)
        elif self._place.size > 1 and is_sharded(self.root):
            frame.notes["shard"] = {"rank": self._place.rank, "of": self._place.size}
        frame.ended = clock()

    def _add_up(self, frame: Frame) -> None:
        """Put norms over all processes in the place of this one's; the others wait, whatever fails here."""
        parameters = list(self.root.parameters())
        numbers = [0.0] * (2 * _NORMS * len(parameters))
        at: dict[int, int] = {}
        with self._aside("norms of this process"):
            self._own.seal()
            self._own.open()
            where = {id(parameter): index for index, parameter in enumerate(parameters)}
            at = {place: where[id(parameter)] for place, parameter in enumerate(self._parameters)}
            shares = [share_of(parameter, self._place.size) for parameter in parameters]
            for kind, norms in enumerate(frame.norms.all()):
                for place, norm in norms.items():
                    slot = 2 * (_NORMS * at[place] + kind)
                    numbers[slot : slot + 2] = norm * norm * shares[at[place]], 1.0
        with self._aside("norms over all processes"):
            numbers = sum_over_ranks(numbers, (parameter.device for parameter in parameters))
            for kind, norms in enumerate(frame.norms.all()):
                slots = {place: 2 * (_NORMS * index + kind) for place, index in at.items()}
                found = {place: numbers[slot] for place, slot in slots.items() if numbers[slot + 1]}
                norms.update((place, math.sqrt(square)) for place, square in found.items())
            frame.notes["reduced"] = self._place.size

    def step_without_optimizer(self) -> None:
        """A step that no hook saw: gradients as they are after it."""
        frame = self.frame
        if frame is None:
            return
        with self._aside("weights"), torch.no_grad():
            if not frame.owners:
                self._without_forward(frame)
                self.keep_weights()
            if frame.owners:
                self._norms.measure_grads(self._parameters, frame.norms, self._parcel(frame))
        self.after_step()

    def _read_scaling(self, frame: Frame, optimizer: Any) -> None:
        """Note by what gradients are scaled, and whether the step will be skipped."""
        scaler = find_scaler()
        if scaler is None:
            return
        scale = getattr(scaler, "_scale", None)
        if isinstance(scale, Tensor):
            frame.put_number(scale.detach().clone(), frame.set("scale"))
            frame.weights_scaled = getattr(optimizer, "grad_scale", None) is not None
            self._count_skips(frame, scale)
        found_inf = getattr(optimizer, "found_inf", None)
        if isinstance(found_inf, Tensor):
            frame.put_number(found_inf.detach().clone(), lambda value: setattr(frame, "skipped", bool(value)))

    def _count_skips(self, frame: Frame, scale: Tensor) -> None:
        """Note how many attempts were skipped since the last frame: writes to the scale beyond the steps."""
        updates = _compat.version_of(scale)
        if self._updates is None:
            # More updates than this step had attempts are from before the watch.
            skipped = updates if updates < frame.forwards else 0
        else:
            skipped = updates - self._updates - (frame.step - self._counted)
        self._updates, self._counted = updates, frame.step
        if skipped > 0:
            frame.notes["skippedSteps"] = skipped
