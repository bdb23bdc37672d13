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
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from . import _compat
from .attention import (
    AttentionMode,
    PatternTurns,
    attention_entropy,
    corner,
    multihead_probabilities,
    shown_by,
)
from .function_watch import FunctionWatch
from .hooks import Compiled, HookSet
from .live_trace import LivePass
from .losses import loss_in_output
from .meter import Meter
from .modes import untouched
from .ranks import Place, WithoutCollectives, is_sharded
from .soundness import Trail
from .timing import clock

if TYPE_CHECKING:
    from .frame import Frame, Row
    from .from_module import Analysis
    from .hook_trace import Recording
    from .plan import Plan, Target
    from .updates import Updates

__all__ = ["Probe", "first_tensor"]

_MAX_DEPTH = 4
_COMPILED = "its model or module runs in a compiled graph"
_HIDDEN = "runs in a compiled graph, and compiled=False looks inside no graph"
_WAITS = "runs in a compiled graph, and to look inside would keep other processes waiting"
_ODD = "ran another number of times than when the model was read"


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
        compiled: Whether to run a compiled model once more, uncompiled, to see inside it.
        updates: What measures the parameters.
        keeps_early: Whether the weights are kept at the first forward, since nothing says when a
            step begins.
        complain: Called with a place and an exception of our own; the place then stands aside.
        read_model: Called with the arguments of the first training forward; gives the plan.
        read_recorded: Called with that forward itself where it can be recorded; gives the plan and
            what it was made from.
        place: Which of several processes this one is.
    """

    def __init__(
        self,
        root: nn.Module,
        *,
        hist: bool,
        compiled: bool,
        updates: Updates,
        keeps_early: bool,
        complain: Callable[[str, Exception], object],
        read_model: Callable[[tuple[Any, ...], dict[str, Any]], Plan | None],
        read_recorded: Callable[[Recording], tuple[Plan, Analysis]] | None = None,
        place: Place = Place(),  # noqa: B008  # a frozen value
    ) -> None:
        """Put nothing on the model yet."""
        self.root = root
        self.plan: Plan | None = None
        self.frame: Frame | None = None
        self.steps_in_eval = False
        self._meter = Meter(hist)
        self._turns = PatternTurns()
        self._turns_of: Frame | None = None
        self._looks_inside = compiled
        self._updates = updates
        self._keeps_early = keeps_early
        self._complain = complain
        self._read_model = read_model
        self._read_recorded = read_recorded
        self._entries = _Entries(root)
        self._place = place
        self._hooks = HookSet()
        self._leaves: list[Any] = []
        self._expected = 1
        self._rootless = False
        self._standing_aside: set[str] = set()
        self._inside = False
        self._stale = False
        self._mode: FunctionWatch | None = None
        self._trail = Trail()

    # ── on and off ────────────────────────────────────────────────────────────

    def arm(self, frame: Frame) -> None:
        """Get ready to measure the next step."""
        self.frame = frame
        self._meter.is_coarse = frame.is_part
        if self._stale and self.plan is not None:
            self.plan.refresh(self.root)
        self._entries.open(self._forward)
        if self._rootless:
            self._put_hooks(self.plan, frozenset())
        elif self.plan is None and self._may_be_passed_by():
            for module in self.root.modules():
                if module is not self.root:
                    self._hooks.before(module, self._part_was_called)

    def _may_be_passed_by(self) -> bool:
        """Whether a trainer may call parts of the model and never the model, as in a `training_step`."""
        # Lightning sets a compiled `training_step` on the instance; a hook would have it compiled anew.
        own = hasattr(type(self.root), "training_step") and "training_step" not in vars(self.root)
        return own and not _compat.compiled_parts(self.root)

    def _part_was_called(self, *_: Any) -> None:
        """Before a part of a model whose own forward has not run: the model is read as it stands."""
        if self.frame is None or self._inside or not self._listening():
            return
        with self._aside("reading the model"):
            self._take_off()
            # A step that was given a closure begins before the forward: the model is read by then.
            self.plan = self.plan or self._read_model((), {})
            if self.plan is not None:
                self._begin_frame(self.frame, self.plan)
                self._put_hooks(self.plan, frozenset())

    def disarm(self) -> None:
        """Take everything off after a step."""
        frame, self.frame = self.frame, None
        self._turns_of = None
        if frame is None:
            return
        unseen = not frame.forwards and not frame.calls
        self._stale = any(
            id(target) not in frame.calls for target in frame.plan.targets if frame.takes(target.rows[0])
        )
        self._entries.close(unseen=unseen)
        self._take_off()
        self._expected = max(1, frame.forwards)
        self._rootless = not frame.forwards and not self._entries.compiled
        self.steps_in_eval = not self.root.training

    def close(self) -> None:
        """Take everything off for good and give the buffers' memory back."""
        self.frame = None
        self._entries.end()
        self._take_off()
        self._hooks.forget()
        self._meter.forget()
        self._updates.forget()

    def _take_off(self) -> None:
        """Take the plan's hooks off."""
        self._hooks.remove()
        self._mode = None
        self._trail = Trail()
        while self._leaves:
            self._leaves.pop().remove()

    def _put_hooks(self, plan: Plan | None, closed: frozenset[int], *, inside: bool = False) -> None:
        """Put the plan's hooks on the model.

        Args:
            plan: The plan.
            closed: Ids of modules that run in compiled graphs of their own.
            inside: Whether the hooks are for those modules only.
        """
        frame = self.frame
        if plan is None or frame is None:
            return
        for target in plan.targets:
            module = target.module
            if module is not None and (id(module) in closed) == inside and frame.takes(target.rows[0]):
                put = self._hooks.before if target.takes_input else self._hooks.after
                put(module, self._react(target), target)
        # The compiler asks which modes are entered, so none is around a part that it runs.
        if bool(closed) == inside:
            for module, row, heads in plan.attention:
                if frame.takes(row):
                    self._hooks.around(module, self._attend(module, row, heads))
            if plan.functions:
                self._mode = FunctionWatch(plan.functions, self._saw_function)
                for path, module in plan.scopes.items():
                    if module is not self.root:
                        self._hooks.around(module, self._again(self._mode, self._mode.around(path)))

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
        if frame is None or self._inside or not self._listening() or _compat.in_backward():
            return forward(*args, **kwargs)
        given = (*args, *kwargs.values())
        if not all(_compat.holds_numbers(item) for item in given if isinstance(item, Tensor)):
            return forward(*args, **kwargs)
        self._inside = True
        try:
            live: LivePass | None = None
            with self._aside("reading the model"):
                live = self._begin_forward(frame, forward, args, kwargs)
            with live or self._mode or contextlib.nullcontext():
                output = forward(*args, **kwargs)
            if live is None and not self._entries.is_compiled_call(forward):
                self._look_at_root(frame, given, output)
        except BaseException:
            self.frame = None
            self._take_off()
            self._entries.close(unseen=False)
            raise
        finally:
            self._inside = False
        frame.stopwatch.mark("forwarded")
        with self._aside("reading the model"):
            if live is not None:
                self._end_recording(frame, live, output)
        with self._aside("the model's output"):
            self._end_forward(frame, output)
        return output

    def _begin_forward(
        self, frame: Frame, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> LivePass | None:
        """Put the hooks on for a step's first forward, and from as many on as the last frame had.

        Returns:
            What records the forward, where the model is to be read from it.
        """
        frame.forwards += 1
        measured = frame.forwards == 1 or frame.forwards >= self._expected
        compiled = self._entries.is_compiled_call(forward)
        closed = _compat.compiled_parts(self.root)
        if self.plan is None:
            self._take_off()
            if self._read_recorded is not None and not compiled and not closed:
                self._trail = Trail((*args, *kwargs.values()))
                live = LivePass(self.root, args, kwargs)
                frame.stopwatch.mark("forward")
                return live
            self.plan = self._read_model(args, kwargs)
        if not measured or self.plan is None:
            return None
        self._begin_frame(frame, self.plan)
        self._take_off()
        self._trail = Trail((*args, *kwargs.values()))
        if compiled or closed:
            self._look_inside(frame, closed, args, kwargs, whole=compiled)
        if not compiled:
            self._trail = Trail((*args, *kwargs.values()))
            self._put_hooks(self.plan, closed)
            if self._mode is not None:
                self._mode.begin()
        frame.stopwatch.mark("forward")
        return None

    def _begin_frame(self, frame: Frame, plan: Plan) -> None:
        """Give a frame its rows, and keep the weights where nothing says when the step begins."""
        if self._keeps_early and not frame.owners:
            self._updates.keep_weights(frame, plan)
        frame.plan = plan
        frame.forget()

    # ── the first forward, from which the model is read ───────────────────────

    def _end_recording(self, frame: Frame, live: LivePass, output: Any) -> None:
        """Read the model from its first forward, and measure what that made."""
        started = clock()
        with torch._C.DisableTorchFunction():
            if live.failed is not None:
                self._stand_aside("the first forward's recording", live.failed)
                self.plan = self._read_model((), {})
                return
            if self._read_recorded is None:
                return
            self.plan, found = self._read_recorded(live.recording(output))
            self._begin_frame(frame, self.plan)
            for index, target in self.plan.measured():
                with self._aside(f"block {self.plan.ids[index]}"):
                    self._measure_recorded(frame, target, index, found, live)
            with torch.no_grad(), _compat.no_autocast():
                for module, index, heads in self.plan.attention:
                    with self._aside("attention"):
                        self._show_recorded(frame, module, index, heads, found, live)
        if frame.without_grad:
            self._put_hooks(self.plan, frozenset())  # a checkpointed part runs again in backward
        frame.stopwatch.spent("backward", clock() - started)

    def _measure_recorded(
        self, frame: Frame, target: Target, index: int, found: Analysis, live: LivePass
    ) -> None:
        """Measure what a block made in a forward that is over."""
        block = frame.plan.ids[index]
        if target.takes_input:
            frame.rows[index].lacks("hidden", "the model was read in this step")
            return
        hidden = target.part == "hidden"
        facts = found.aux.get(block, {})
        tensor = facts.get("hidden") if hidden else found.values.get(block)
        row = frame.rows[index]
        if not isinstance(tensor, Tensor) or not _compat.holds_numbers(tensor):
            row.lacks(target.part, "no tensor in what it returned")
            return
        self._put_reading(frame, target, index, facts.get("reads", ()), tensor)
        if not hidden:
            waiting = live.awaiting(tensor)
            if waiting is None:
                frame.without_grad = frame.without_grad or not tensor.requires_grad
                self._await_grad(frame, index, row, tensor)
            else:
                waiting.append(_Arrival(self, frame, index, row))

    def _show_recorded(
        self, frame: Frame, module: nn.Module, index: int, heads: int, found: Analysis, live: LivePass
    ) -> None:
        """Show the attention probabilities of a forward that is over."""
        if isinstance(module, nn.MultiheadAttention):
            args, kwargs = live.multihead.get(id(module), ((), {}))
            if args or kwargs:
                self._show_multihead(frame, index, module, args, kwargs)
            return
        for number in found.aux.get(frame.plan.ids[index], {}).get("ops", ()):
            call = live.probabilities.get(number)
            if call is not None:
                shown = shown_by(*call, heads=heads)
                if shown is not None:
                    self._show(frame, index, *shown)
                    return

    def _look_inside(
        self,
        frame: Frame,
        closed: frozenset[int],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        whole: bool,
    ) -> None:
        """Run the model once more, uncompiled and without gradients, where a compiled graph hides it."""
        if whole:
            closed = frozenset(id(module) for module in self.root.modules())
        if not self._looks_inside:
            self._name_hidden(frame, closed, _HIDDEN)
            return
        if self._place.size > 1 and is_sharded(self.root):
            self._name_hidden(frame, closed, _WAITS)
            return
        started = clock()
        self._put_hooks(self.plan, closed, inside=True)
        mode = self._mode or contextlib.nullcontext()
        try:
            with (
                torch.no_grad(),
                untouched(self.root, (args, kwargs)),
                _compat.eager(self.root.modules()),
                _compat.no_warnings(),
                WithoutCollectives() if self._place.size > 1 else contextlib.nullcontext(),
            ):
                if self._mode is not None:
                    self._mode.begin()
                with mode:
                    type(self.root)._call_impl(self.root, *args, **kwargs)
                self._note_odd(frame)
        finally:
            self._take_off()
        frame.without_grad = False
        self._name_hidden(frame, closed, None)
        spent = clock() - started
        frame.stopwatch.forget("forward")
        frame.stopwatch.spent("data", spent)
        frame.notes.setdefault("cost", {})["eagerPass"] = round(spent * 1000, 3)

    def _look_at_root(self, frame: Frame, given: tuple[Any, ...], output: Any) -> None:
        """Measure the model itself where it is a block: its own hooks are asked for before its forward."""
        for target in frame.plan.targets:
            if target.module is self.root and not target.takes_input and id(target) not in frame.calls:
                self._look(target, given, output)

    def _name_hidden(self, frame: Frame, closed: frozenset[int], act: str | None) -> None:
        """Say of blocks in compiled graphs that no gradient is seen to arrive, and no activation either."""
        hidden = [row for target in frame.plan.targets if id(target.module) in closed for row in target.rows]
        for found in frame.plan.functions.values():
            hidden += [row for _, target in found for row in target.rows]
        for row in hidden:
            frame.rows[row].lacks("grad", _COMPILED)
            if act is not None:
                frame.rows[row].lacks("act", act)

    def _end_forward(self, frame: Frame, output: Any) -> None:
        """Take the hooks off, unless a checkpointed part runs again in backward."""
        self._note_odd(frame)
        if not frame.without_grad:
            self._hooks.remove()
        frame.put_number(loss_in_output(output), frame.found.append)

    def _note_odd(self, frame: Frame) -> None:
        """Drop what was measured of functions that ran another number of times than when they were read."""
        if self._mode is None:
            return
        self._mode.end()
        for index in self._mode.odd:
            row = frame.rows[index]
            row.act = row.grad = row.hidden = None
            row.lacks("act", _ODD)
            row.lacks("grad", _ODD)
        frame.order = [seen for seen in frame.order if seen.row not in self._mode.odd]

    def _again(self, mode: FunctionWatch, around: Callable[..., Any]) -> Callable[..., Any]:
        """Around a module in which functions are looked at; in backward a checkpointed one runs again."""

        def inside(forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if self.frame is None:
                return forward(*args, **kwargs)
            if not _compat.in_backward():
                return around(forward, args, kwargs)
            if mode.outside:
                mode.begin_again()
                with mode:
                    return around(forward, args, kwargs)
            return around(forward, args, kwargs)

        return inside

    def _react(self, target: Target) -> Callable[..., None]:
        """What is called when a module was called, or is about to be."""
        look = self._look

        def saw(module: nn.Module, args: Any, kwargs: Any, output: Any = None) -> None:
            if module is not target.module:
                return  # a replica of DataParallel has the hooks of its original
            if target.takes_input:
                look(target, (), args or kwargs)
            else:
                look(target, (*args, *kwargs.values()) if kwargs else args, output)

        return saw

    def _saw_function(
        self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any], made: Tensor
    ) -> None:
        """A function that a plan means was called; the mode that saw it is off meanwhile."""
        self._look(target, (*args, *kwargs.values()), made)

    def _look(self, target: Target, given: tuple[Any, ...], output: Any) -> None:
        """Something that a plan means has run."""
        frame = self.frame
        if frame is None or not (self._inside or self._listening()):
            return
        if not frame.rows and self.plan is not None:
            frame.plan = self.plan
            frame.forget()
        if not frame.takes(target.rows[0]):
            return
        started = clock()
        again = _compat.in_backward()
        aside = self._standing_aside
        if not aside or f"block {frame.plan.ids[target.rows[0]]}" not in aside:
            builds = torch.is_grad_enabled()
            torch._C._set_grad_enabled(False)  # cheaper than to cut each tensor from its graph
            try:
                with torch._C.DisableTorchFunction():  # our own calls are not the model's
                    tensor = first_tensor(output)
                    if again:
                        self._ran_again(frame, target, tensor)
                    else:
                        frame.without_grad = frame.without_grad or not builds
                        self._measure(frame, target, given, tensor)
            except Exception as error:  # noqa: BLE001  # measuring must not end the user's step
                self._stand_aside(f"block {frame.plan.ids[target.rows[0]]}", error)
            finally:
                torch._C._set_grad_enabled(builds)
        frame.stopwatch.spent("backward" if again else "forward", clock() - started)

    def _measure(self, frame: Frame, target: Target, given: tuple[Any, ...], tensor: Tensor | None) -> None:
        """Measure a block's output and await its gradient."""
        call = frame.calls.get(id(target), 0)
        frame.calls[id(target)] = call + 1
        if call >= len(target.rows):
            frame.rows[target.rows[-1]].calls = call + 2 - len(target.rows)
            return
        index = target.rows[call]
        row = frame.rows[index]
        if tensor is None or not _compat.holds_numbers(tensor):
            row.lacks(target.part, "no tensor in what it returned")
            return
        self._put_reading(frame, target, index, given, tensor)
        if target.part == "act":
            self._await_grad(frame, index, row, tensor)

    def _put_reading(
        self, frame: Frame, target: Target, index: int, given: Iterable[Any], tensor: Tensor
    ) -> None:
        """Measure a block's tensor, and remember what is known of what the block read."""
        row = frame.rows[index]
        reading = self._meter.add(tensor, frame.parcel, target.sat)
        setattr(row, target.part, reading)
        reading.row, reading.part = index, target.part
        if target.part == "act":
            reading.inputs = self._trail.read(given, tensor, frame.parcel)
        frame.order.append(reading)
        if not target.takes_input:
            self._trail.made(tensor, reading)
        if target.units:
            self._count_dead(frame, row, target.part, tensor)

    def _count_dead(self, frame: Frame, row: Row, part: str, tensor: Tensor) -> None:
        """Measure the share of units that were not active once."""
        self._meter.count_dead(getattr(row, part), tensor, frame.parcel)

    def _ran_again(self, frame: Frame, target: Target, tensor: Tensor | None) -> None:
        """A checkpointed block runs again in backward, where its gradient arrives if it had no graph."""
        row = frame.rows[target.rows[0]]
        if target.part == "act" and len(target.rows) == 1 and not row.awaited and tensor is not None:
            row.lacks_not("grad")
            self._await_grad(frame, target.rows[0], row, tensor)

    def _await_grad(self, frame: Frame, index: int, row: Row, tensor: Tensor) -> None:
        """Measure the gradient when it arrives at a block's output."""
        if not tensor.requires_grad:
            row.lacks("grad", "its output needs no gradient")
            return
        row.awaited = True
        handle = tensor.register_hook(_Arrival(self, frame, index, row))
        if tensor.is_leaf:
            self._leaves.append(handle)  # a parameter outlives the graph

    def arrived(self, frame: Frame, index: int, row: Row, grad: Tensor) -> None:
        """Measure a gradient that arrives at a block's output."""
        if self.frame is not frame or frame.rows[index] is not row:
            return
        started = clock()
        try:
            row.grads += 1
            if row.grad is None:
                row.grad = reading = self._meter.add(grad, frame.parcel)
                reading.row, reading.part = index, "grad"
                frame.order.append(reading)
        except Exception as error:  # noqa: BLE001  # measuring must not end the user's step
            self._stand_aside("gradients", error)
        frame.stopwatch.spent("backward", clock() - started)

    # ── attention ─────────────────────────────────────────────────────────────

    def _attend(self, module: nn.Module, row: int, heads: int) -> Callable[..., Any]:
        """What goes around an attention module's forward."""
        place = "attention"

        def fail(error: Exception) -> None:
            with self._aside(place):
                raise error

        def around(forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            frame = self.frame
            wanted = (self._inside or self._listening()) and place not in self._standing_aside
            if frame is None or not wanted or frame.rows[row].entropy is not None or frame.rows[row].sample:
                return forward(*args, **kwargs)
            if isinstance(module, nn.MultiheadAttention):
                started = clock()
                off = torch._C.DisableTorchFunction()
                with self._aside(place), off, torch.no_grad(), _compat.no_autocast():
                    self._show_multihead(frame, row, module, args, kwargs)
                frame.stopwatch.spent("forward", clock() - started)
                return forward(*args, **kwargs)
            spent = partial(frame.stopwatch.spent, "forward")
            with AttentionMode(heads, partial(self._show, frame, row), fail, spent):
                return forward(*args, **kwargs)

        return around

    def _show_multihead(
        self,
        frame: Frame,
        index: int,
        module: nn.MultiheadAttention,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        """Show what a call of torch's own attention module weighs its values by, where it can be said."""
        largest: list[Tensor] = []
        probs = multihead_probabilities(module, args, kwargs, largest)
        if probs is not None:
            self._show(frame, index, probs, probs, largest[0])

    def _show(self, frame: Frame, index: int, sample: Tensor, first: Tensor, logit: Tensor) -> None:
        """Send the entropy, the corner and the largest score of one block's attention."""
        row = frame.rows[index]
        row.sample = sample.shape[0]
        pattern = corner(first)
        row.size = pattern.shape[-1] if pattern.shape[-1] == pattern.shape[-2] else 0
        frame.parcel.put(attention_entropy(sample), lambda values: setattr(row, "entropy", values))
        frame.parcel.put(logit, lambda values: setattr(row, "logit", values[0]))
        if self._turns_of is not frame:
            self._turns_of = frame
            self._turns.begin()
        row.omitted = row.size > 0 and not self._turns.takes(index, heads=len(pattern), size=row.size)
        if row.size and not row.omitted:
            frame.parcel.put(pattern, lambda values: setattr(row, "pattern", values))

    # ── the step ──────────────────────────────────────────────────────────────

    def before_step(self, optimizer: torch.optim.Optimizer, has_closure: bool) -> None:
        """An optimizer is about to step."""
        frame = self.frame
        if frame is None:
            return
        now = clock()
        with self._aside("weights"), torch.no_grad():
            self._keep_late(frame)
            if self._updates.before(frame, optimizer, has_closure):
                frame.stopwatch.mark("backwarded", now)
                frame.stopwatch.mark("stepping")
        frame.stopwatch.spent("weights", clock() - now)

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer has stepped."""
        frame = self.frame
        if frame is not None:
            with self._aside("weights"), torch.no_grad():
                self._updates.after(frame, optimizer)
                if id(optimizer) in frame.lanes:
                    frame.stopwatch.mark("stepped")

    def end_step(self, optimizer: torch.optim.Optimizer | None) -> None:
        """The step that the frame is of is over; what waits in the buffers is measured."""
        frame = self.frame
        if frame is None:
            return
        if optimizer is not None:
            self.after_step(optimizer)
        with self._aside("weights"), torch.no_grad():
            if optimizer is None:
                self._keep_late(frame)
                self._updates.unseen_step(frame)
            self._updates.moved(frame)
        with self._aside("statistics"), torch.no_grad():
            self._meter.flush(frame.parcel)
        self._updates.over_ranks(frame, self.root, self._aside)
        frame.ended = clock()

    def keep_weights(self) -> None:
        """Keep the weights at the beginning of a step whose optimizer is not known."""
        if self.frame is not None and self.plan is not None:
            with self._aside("weights"):
                self._updates.keep_weights(self.frame, self.plan)

    def _keep_late(self, frame: Frame) -> None:
        """Keep the weights, and read the model where its forward was not seen."""
        if self.plan is None:
            self.plan = self._read_model((), {})
        if self.plan is not None and frame.plan is not self.plan:
            frame.plan = self.plan
            frame.forget()
        if self.plan is not None and not frame.owners:
            self._updates.keep_weights(frame, self.plan)


class _Arrival:
    """A hook on a block's output, called with the gradient that arrives there."""

    # One object a block: a closure would be five, which the cyclic collector looks at again and again.
    __slots__ = ("_frame", "_index", "_probe", "_row")

    def __init__(self, probe: Probe, frame: Frame, index: int, row: Row) -> None:
        """Remember whose gradient it is."""
        self._probe = probe
        self._frame = frame
        self._index = index
        self._row = row

    def __call__(self, grad: Tensor) -> None:
        """Measure it."""
        self._probe.arrived(self._frame, self._index, self._row, grad)


class _Entries:
    """Where calls of the model are caught on a frame step: before the compiler takes over, if it does.

    A model that is called as it is, or whose forward the compiler takes over, is caught at its
    forward. A model that is known to be compiled is caught at the wrapper's forward or at its
    compiled call, so that nothing of ours is there when a graph's conditions are looked at.
    """

    def __init__(self, root: nn.Module) -> None:
        """Look for wrappers of ``torch.compile`` that are alive."""
        self._root = root
        self._wraps = HookSet()
        self._traced = HookSet()
        self._wrappers = _compat.compiled_wrappers(root)

    @property
    def compiled(self) -> bool:
        """Whether the whole model is known to be compiled."""
        return bool(self._wrappers) or _compat.is_compiled(self._root)

    def is_compiled_call(self, forward: Callable[..., Any]) -> bool:
        """Whether a call that was caught goes on to the compiler."""
        return isinstance(forward, Compiled) or self.compiled

    def open(self, around: Callable[..., Any]) -> None:
        """Catch calls from now on."""
        for wrapper in self._wrappers:
            self._wraps.around(wrapper, around)
        if _compat.is_compiled(self._root):
            self._wraps.around(self._root, around, "_compiled_call_impl")
        elif not self._wrappers:
            self._wraps.around(self._root, around)

    def close(self, *, unseen: bool) -> None:
        """Catch no more calls.

        Args:
            unseen: Whether no call was caught. If the compiler has run, a graph may have been
                traced with the wrap in place: taking it off would have it compiled anew.
        """
        if unseen and not self.compiled and _compat.compiler_ran():
            self._wrappers = _compat.compiled_wrappers(self._root)
            if self._wrappers or _compat.is_compiled(self._root):
                self._traced, self._wraps = self._wraps, HookSet()
        self._wraps.remove()

    def end(self) -> None:
        """Take everything off for good."""
        self._wraps.remove()
        self._traced.remove()
