"""The steps of one watched training: counted, and every so many measured.

Every ``every`` steps one frame is measured: it is got ready at the end of the step before,
and all that was put on the model is taken off at its end. Between frames there is one hook
on the optimizer, which counts. A frame's numbers are read when they have left the device, at
the next step or when the session is closed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import nn

from ptoa_core.errors import SettingError

from .budget import Budget
from .delivery import text_of
from .frame import Frame
from .from_module import Analysis, analyze
from .inputs import Inputs
from .losses import LossTrail, loss_value
from .modes import untouched
from .plan import Plan, make_plan, unwrapped
from .probe import Probe
from .ranks import Place, WithoutCollectives, is_sharded, place
from .reading import read_recorded
from .soundness import Finding, first_unsound
from .steps import StepCounter, StepWatch, Successor, hooked_optimizer
from .timing import Stopwatch, clock
from .updates import Updates

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ptoa_core.frames import HealthFrame
    from ptoa_core.spec import ModelSpec

    from .hook_trace import Recording

__all__ = ["Idle", "Outlet", "Session", "check", "place", "session_class", "unwrapped"]


class Outlet(Protocol):
    """What a session gives its frames to."""

    spec: ModelSpec | None

    @property
    def busy(self) -> float:
        """Seconds that frames took on another thread so far."""

    def begin(self, spec: ModelSpec) -> None:
        """Show a model that was read."""

    def deliver(self, frame: HealthFrame) -> None:
        """Take a frame."""

    def warn(self, key: str, text: str) -> None:
        """Say something once."""

    def voice(self) -> None:
        """Say what was noted meanwhile."""


class Session:
    """Counts and measures the training of one model.

    Args:
        model: The model that is trained, wrappers included.
        optimizer: Its optimizer, several of them, or None.
        outlet: What frames and words are given to.
        every: A frame every so many steps.
        val_loss: A number, a function that gives one, or None.
        val_every: Steps between two validations.
        warn_nonfinite: Whether to warn when NaN or Inf first appears.
        hist: Whether to count histograms.
        update_ratio: Whether to copy the parameters on frame steps.
        attention: Whether to look at attention probabilities.
        compiled: Whether a compiled model is run once more on frame steps, to see inside it.
        blocks: Patterns of the blocks that have a row.
        spec: The model's spec, where it was read before.
        start_step: The number of the first step.
        place: Which of several processes this one is; only the first one reads the model.
        reduce: Whether norms are summed over all processes.
        budget: The most that watching may take, over the time that training takes by itself.

    Attributes:
        start_step: As given.
        step_count: Steps counted so far, those before ``start_step`` included.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Any,
        outlet: Outlet,
        *,
        every: int,
        val_loss: Any,
        val_every: int,
        warn_nonfinite: bool,
        hist: bool,
        update_ratio: bool,
        attention: bool,
        compiled: bool,
        blocks: Sequence[str] | None,
        spec: ModelSpec | None,
        start_step: int,
        place: Place,
        reduce: bool,
        budget: float | None,
    ) -> None:
        """Register the hook that counts."""
        self.start_step = self.step_count = start_step
        self._place = place
        self._outlet = outlet
        self._root = unwrapped(model)
        self._every = every
        self._budget = None if budget is None else Budget(budget, every)
        self._own = self._busy = 0.0
        self._period: tuple[int, float] | None = None
        self._turn = 0
        self._val_loss = val_loss
        self._val_every = val_every
        self._warn_nonfinite = warn_nonfinite
        self._attention = attention
        self._blocks = blocks
        self._given_spec = spec
        self._closed = False
        self._found_unsound = False
        self._sound_step: int | None = None
        self._started = clock()
        self._ended: float | None = None
        self._pending: Frame | None = None
        self._given_val: Any = None
        self._losses = LossTrail()
        self._cuda = any(parameter.is_cuda for parameter in self._root.parameters())
        self._counters = _counters(optimizer, self._stepped)
        self._updates = Updates(update_ratio, self._counters, place, reduce=reduce and place.size > 1)
        self._successor = Successor(self._counters[0], self._root, self._adopt) if self._counters else None
        self._probe = Probe(
            self._root,
            hist=hist,
            compiled=compiled,
            updates=self._updates,
            keeps_early=not self._counters,
            complain=self._failed,
            read_model=self._read_at_forward,
            read_recorded=self._read_recorded if self._reads_first_forward() else None,
            place=place,
        )
        self._watch = StepWatch(self._probe.before_step, self._probe.after_step)

    def _reads_first_forward(self) -> bool:
        """Whether the model is read from its first forward in training, which so is run only once."""
        known = self._given_spec is not None and self._given_spec.bindings
        return not (known or self._place.rank or is_sharded(self._root))

    def begin(self, example_input: Any = None) -> None:
        """Read the model where an input is given, and get ready for the first step."""
        if example_input is not None:
            self._probe.plan = self._read(example_input)
        self._arm()

    def close(self, *, emit: bool) -> None:
        """Take every hook off; with ``emit`` complete the last frame."""
        self._closed = True
        self._probe.close()
        self._watch.disarm()
        for counter in self._counters:
            counter.remove()
        if self._successor is not None:
            self._successor.end()
        if emit:
            self._emit()

    # ── the model ─────────────────────────────────────────────────────────────

    def read_model(self) -> None:
        """Read the model now, without running it, unless it was read before."""
        if self._outlet.spec is None:
            self._probe.plan = self._probe.plan or self._read(None)

    def _read_at_forward(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Plan | None:
        """The plan, from the first forward's arguments or from none where no forward was seen."""
        return self._read(Inputs(args, kwargs) if args or kwargs else None)

    def _read(self, example_input: Any) -> Plan | None:
        """Read the model, begin the run, and plan what is measured."""
        if self._place.rank > 0:
            return Plan(everything=[module for module in self._root.modules() if module._parameters])
        found = self._analysis(example_input)
        if found is None:
            return None
        return self._planned(found)

    def _read_recorded(self, recording: Recording) -> tuple[Plan, Analysis]:
        """The plan from the first forward itself."""
        found = self._bound(read_recorded(self._root, recording))
        return self._planned(found), found

    def _planned(self, found: Analysis) -> Plan:
        """Begin the run of a model that was read, and plan what is measured."""
        plan = make_plan(self._root, found.spec, found.aux, attention=self._attention, blocks=self._blocks)
        self._outlet.begin(found.spec)
        return plan

    def _bound(self, found: Analysis) -> Analysis:
        """What was read, under the spec that was given if one was."""
        given = self._given_spec
        if given is not None:
            given.bindings = {
                block: path for block, path in found.spec.bindings.items() if _has(given, block)
            }
            found.spec = given
        return found

    def _analysis(self, example_input: Any) -> Analysis | None:
        """How the model is read: the given spec, one pass, or the module tree where that fails."""
        given = self._given_spec
        if given is not None and given.bindings:
            return Analysis(given, "given")
        for attempt in (example_input, None):
            try:
                found = self._analyze(attempt)
            except Exception as error:  # noqa: BLE001  # a model may raise anything; training goes on
                self._outlet.warn("read", f"the model could not be read: {text_of(error)}")
                continue
            found.values, found.output = {}, None
            return self._bound(found)
        return None

    def _analyze(self, example_input: Any) -> Analysis:
        """Read the model without talking to other processes, which would wait for the answer for ever."""
        if is_sharded(self._root):
            return analyze(self._root, strategy="tree")
        if self._place.size == 1:
            return analyze(self._root, example_input)
        with WithoutCollectives():
            return analyze(self._root, example_input)

    # ── the steps ─────────────────────────────────────────────────────────────

    def _arm(self) -> None:
        """Get the next step measured, if it makes a frame."""
        if self.step_count % self._every or self._closed:
            return
        started = clock()
        plan = self._probe.plan or Plan()
        frame = Frame(self.step_count, self._started, plan, Stopwatch(self._cuda, self._ended))
        if self._budget is not None:
            self._account(self._budget, frame, started)
        self._probe.arm(frame)
        self._watch.arm()
        if not self._counters:
            self._probe.keep_weights()
        self._own += clock() - started

    def _account(self, budget: Budget, frame: Frame, now: float) -> None:
        """Settle what the last frame cost, choose when the next one comes, and say so in this one."""
        busy = self._outlet.busy
        if self._period is not None:
            step, began = self._period
            budget.settle(
                steps=self.step_count - step,
                elapsed=now - began,
                training=self._own,
                background=busy - self._busy,
            )
        self._period = self.step_count, now
        self._own, self._busy = 0.0, busy
        self._every = budget.every
        if (note := budget.note()) is not None:
            frame.notes["cost"] = note
        self._turn += 1
        frame.share_out(self._turn, budget.turns)

    def paid(self) -> str | None:
        """What watching cost, where it had a budget."""
        return None if self._budget is None else self._budget.text()

    def _stepped(self) -> None:
        """The optimizer has stepped: called by its hook."""
        if self._pending is not None:
            self._emit()
        started = clock() if self._probe.frame is not None else 0.0
        self._probe.end_step(self._counters[0].optimizer)
        self._finish_step(started)

    def _adopt(self, optimizer: torch.optim.Optimizer) -> None:
        """Another optimizer has stepped where the one that was named steps no more."""
        self._updates.follow(optimizer)
        self._outlet.warn(
            "optimizer", "another optimizer steps in the place of the one given, and is counted from now on"
        )
        self._counters[0].steps += 1
        self._stepped()

    def _finish_step(self, started: float) -> None:
        """Count, take a frame's hooks off, validate, and get the next frame ready.

        Args:
            started: When a frame's step was over, by `clock`.
        """
        frame = self._probe.frame
        if frame is not None:
            self._probe.disarm()
            self._watch.disarm()
            self._losses.take(frame.parcel, lambda found: setattr(frame, "unsound_loss", found))
            self._own += clock() - started + frame.stopwatch.own
            if self._pending is not None:
                self._emit()
            self._pending = frame
        self._outlet.voice()
        if self._val_loss is not None and self.step_count % self._val_every == 0:
            self._validate()
        self.step_count += 1
        if self.step_count % self._every == 0:
            self._ended = clock()
            self._arm()

    def step(self, loss: Any) -> HealthFrame | None:
        """A step is done, or only its loss is given where the optimizer's hooks count."""
        emitted = self._emit_sealed()
        if self._successor is not None:
            self._successor.loss_was_given()
        if not self._counters:
            started = clock()
            self._probe.end_step(None)
            self._finish_step(started)
        elif self._pending is None and self._probe.frame is None:
            self._losses.add(self.step_count - 1, loss)
            return emitted
        self._attach(loss)
        return self._settle() or emitted

    def log(self, loss: Any, val_loss: Any) -> None:
        """Attach a loss to the current step, or a validation loss to the next frame."""
        if val_loss is not None:
            self._given_val = loss_value(val_loss)
        if loss is not None:
            self._attach(loss)

    def _attach(self, loss: Any) -> None:
        """Give a loss to the frame that is being measured, else to the one whose step is over."""
        active = self._probe.frame
        frame = active if active is not None and active.forwards else self._pending
        if frame is None:
            self._losses.add(self.step_count - 1, loss)
        if frame is None or loss is None:
            return
        value = loss_value(loss)
        if value is None:
            self._outlet.warn(
                "loss", f"a loss of type {type(loss).__name__} has no single value; it is left out"
            )
        frame.put_number(value, frame.given.append)

    def _settle(self) -> HealthFrame | None:
        """Send the finished frame on its way; complete it where nothing has to be waited for."""
        frame = self._pending
        if frame is None:
            return None
        if frame.parcel.on_host:
            return self._emit()
        frame.parcel.seal()
        return None

    def _emit_sealed(self) -> HealthFrame | None:
        """Complete the frame whose numbers were sent a step ago."""
        frame = self._pending
        return self._emit() if frame is not None and frame.parcel.sealed else None

    def _emit(self) -> HealthFrame | None:
        """Complete the finished frame and deliver it."""
        frame, self._pending = self._pending, None
        if frame is None:
            return None
        started = clock()
        try:
            if self._given_val is not None:
                frame.put_number(self._given_val, frame.set("val_loss"))
                self._given_val = None
            health = frame.build()
            self._look_for_unsound(frame, health)
        except Exception as error:  # noqa: BLE001  # a frame that cannot be made does not end training
            self._failed("the frame", error)
            return None
        self._outlet.deliver(health)
        self._own += clock() - started
        return health

    def _validate(self) -> None:
        """Measure the validation loss, leaving the model and the random state as they were."""
        value = self._val_loss
        if callable(value):
            try:
                with torch.no_grad(), untouched(self._root, watch_writes=False):
                    value = value()
            except Exception as error:  # noqa: BLE001  # the user's function; training goes on
                self._failed("val_loss", error)
                self._val_loss = None
                return
        self._given_val = loss_value(value)
        if self._given_val is None:
            self._outlet.warn(
                "val_loss", f"val_loss gave {type(value).__name__}, which has no single value; it is left out"
            )

    # ── what is said ──────────────────────────────────────────────────────────

    def _look_for_unsound(self, frame: Frame, health: HealthFrame) -> None:
        """Name the first NaN or Inf, once, in the frame and to the user."""
        if self._found_unsound:
            return
        found = first_unsound(frame)
        earlier = frame.unsound_loss
        if found is None and earlier is None:
            self._sound_step = frame.step
            return
        self._found_unsound = True
        if earlier is not None and (found is None or not found.earlier):
            found = Finding("loss", earlier[1], "", step=earlier[0])
        if found is None:
            return
        health.extra["firstNonFinite"] = found.to_dict(frame.step, self._sound_step)
        if self._warn_nonfinite:
            self._outlet.warn("nonfinite", _told(found, frame.step, self._sound_step, earlier))

    def _failed(self, place: str, error: Exception) -> None:
        """Say once that something of ours failed and stands aside."""
        self._outlet.warn(place, f"{place} is left out from here on: {text_of(error)}")


def _each(optimizer: Any) -> Sequence[Any]:
    """The optimizers of a list, or the one."""
    return optimizer if isinstance(optimizer, (list, tuple)) else [optimizer]


def _counters(optimizer: Any, stepped: Callable[[], object]) -> list[StepCounter]:
    """A counter for each optimizer whose steps torch tells of; the first one's steps make frames."""
    found = [hooked for one in _each(optimizer) if (hooked := hooked_optimizer(one)) is not None]
    return [StepCounter(one, None if nth else stepped) for nth, one in enumerate(dict.fromkeys(found))]


def _told(found: Finding, step: int, after: int | None, loss: tuple[int, str] | None) -> str:
    """What to tell the user of the first NaN or Inf, and when it came up."""
    spelt = {"nan": "NaN", "inf": "Inf"}
    told_loss = f"the loss given to step() was {spelt[loss[1]]}" if loss is not None else ""
    if found.step is not None:
        return f"step {found.step}: {told_loss}"
    if not found.earlier:
        return f"step {step}: {found.text}"
    when = f"before step {step}" if after is None else f"between steps {after} and {step}"
    return f"{when}: {found.text}" + (f"; {told_loss} first at step {loss[0]}" if loss is not None else "")


class Idle:
    """The session of a process that takes no part: nothing is put on the model and nothing is counted."""

    def __init__(self, *_: Any, start_step: int, **__: Any) -> None:
        """Take a session's arguments."""
        self.start_step = self.step_count = start_step

    def begin(self, example_input: Any = None) -> None:
        """Do nothing."""

    def close(self, *, emit: bool) -> None:
        """Do nothing."""

    def read_model(self) -> None:
        """Do nothing."""

    def step(self, loss: Any) -> None:
        """Do nothing."""

    def log(self, loss: Any, val_loss: Any) -> None:
        """Do nothing."""

    def paid(self) -> None:
        """Nothing."""


def session_class(place: Place, reduce: bool) -> type[Session | Idle]:
    """Who measures: the first process, or all of them where norms are summed.

    Example:
        >>> session_class(Place(0, 2), False).__name__, session_class(Place(1, 2), False).__name__
        ('Session', 'Idle')
    """
    return Session if place.rank == 0 or reduce else Idle


def check(model: Any, optimizer: Any, every: Any, val_every: Any, val_loss: Any, start_step: Any) -> None:
    """Refuse what cannot be watched.

    Raises:
        SettingError: If an argument cannot be used.
    """
    if not isinstance(model, nn.Module):
        raise SettingError(
            f"model must be a torch.nn.Module, found {type(model).__name__}; pass the model itself"
        )
    for one in () if optimizer is None else _each(optimizer):
        if isinstance(one, type) or not callable(getattr(one, "step", None)):
            found = f"the class {one.__name__}" if isinstance(one, type) else type(one).__name__
            raise SettingError(f"optimizer must be one with a step(), a list of them, or None, found {found}")
    numbers = (("every", every, 1), ("val_every", val_every, 1), ("start_step", start_step, 0))
    for name, number, least in numbers:
        whole = isinstance(number, int) and not isinstance(number, bool) and number >= least
        if not whole and not (name == "val_every" and number is None):
            raise SettingError(f"{name} must be a whole number of at least {least}, found {number!r}")
    if val_loss is not None and not callable(val_loss) and loss_value(val_loss) is None:
        raise SettingError(f"val_loss must be a number or a function that gives one, found {val_loss!r}")


def _has(spec: ModelSpec, block: str) -> bool:
    """Whether a spec has a block of that id."""
    return any(item.id == block for item in spec.blocks)
