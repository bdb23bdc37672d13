"""Watching a model train: what happened, at nearly no cost.

Every ``every`` steps one frame is measured: it is got ready at the end of the step before,
and all that was put on the model is taken off at its end. Between frames there is one hook
on the optimizer, which counts. A frame's numbers are read when they have left the device, at
the next step or on `Watch.close`; a thread of `ptoa_core.pump.FramePump` encodes it, writes
the run file and feeds the bridge.

Training comes first: what goes wrong in here says so once, as a warning, and training goes on.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import warnings
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ptoa_bridge import Bridge
from ptoa_core.errors import PtoaWarning, SettingError
from ptoa_core.history import FrameHistory
from ptoa_core.pump import FramePump
from ptoa_core.runs import RunFile, default_run_path
from ptoa_core.sinks import CallableSink, FrameSink
from ptoa_core.terminal import escape

from . import _compat
from .frame import Frame
from .from_module import Analysis, analyze
from .inputs import Inputs
from .losses import loss_value
from .modes import untouched
from .plan import Plan, make_plan, unwrapped
from .probe import Probe
from .stats import tensor_stats
from .steps import StepHooks, hooked_optimizer
from .timing import Stopwatch, clock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from typing_extensions import Self

    from ptoa_core.frames import HealthFrame
    from ptoa_core.spec import ModelSpec

__all__ = ["Watch", "tensor_stats", "watch"]

_ON_MODEL: weakref.WeakKeyDictionary[nn.Module, Watch] = weakref.WeakKeyDictionary()
_FLUSH_SECONDS = 2.0
_CLOSE_SECONDS = 3.0
_VAL_EVERY = 10


class Watch:
    """A running watch on one model's training.

    Args:
        model: The model that is trained; wrappers (compiled, DistributedDataParallel) are
            looked through.
        optimizer: Its optimizer, whose own hooks count the steps. None, or a wrapper that
            runs no hooks: call ``step`` once a step, after ``optimizer.step()``.
        every: A frame every so many steps, from step 0 on.
        val_loss: A number, or a function that gives one; it is called every ``val_every``
            steps without gradients, and the model and the random state are left as they were.
        open: Whether to open the page in a browser. The bridge serves either way.
        example_input: What the model can be called with, to read it at once; otherwise it is
            read at its first forward in training.
        server: A bridge that already runs; it is not closed with the watch.
        run_file: Where frames are written: True for ``./pta-runs/<Model>-<time>.pta``, a
            path, or False.
        hist: Whether to count histograms.
        update_ratio: Whether to copy the parameters on frame steps, to see how far they move.
        attention: Whether to look at attention probabilities.
        val_every: 10 times ``every`` by default.
        warn_nonfinite: Whether to warn when NaN or Inf first appears.
        spec: The model's spec, with bindings, where it was read before.
        sinks: Functions that are given each frame, on a thread of ours.
        lab_url: The Lab to open, or ``"local"``; the environment's or the hosted one by default.
        blocks: Patterns of block ids, kinds or module paths; others get no row.
        start_step: The number of the first step: of a run that is resumed, the steps behind it.

    Attributes:
        model: The model.
        optimizer: The optimizer.
        every: As given.
        server: The bridge; None where none could be started.
        spec: The model's spec; None until it is read.
        step_count: Steps counted so far, those before ``start_step`` included.
        closed: Whether the watch has ended.

    Raises:
        SettingError: If an argument cannot be used.

    Source:
        README.md, "Watch training" and "What watch measures".

    Example:
        >>> import io
        >>> net = nn.Linear(2, 1)
        >>> sgd = torch.optim.SGD(net.parameters(), lr=0.1)
        >>> with contextlib.redirect_stdout(io.StringIO()), Watch(net, sgd, open=False, run_file=False) as w:
        ...     loss = net(torch.ones(4, 2)).mean(); loss.backward(); sgd.step()
        ...     _ = w.step(loss)
        >>> w.frames[0].loss == loss.item()
        True
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any = None,
        every: int = 10,
        val_loss: float | Callable[[], Any] | None = None,
        open: bool = True,
        *,
        example_input: Any = None,
        server: Bridge | None = None,
        run_file: bool | str | os.PathLike[str] | None = True,
        hist: bool = True,
        update_ratio: bool = True,
        attention: bool = True,
        val_every: int | None = None,
        warn_nonfinite: bool = True,
        spec: ModelSpec | None = None,
        sinks: Sequence[Callable[[HealthFrame], object]] | None = None,
        lab_url: str | None = None,
        blocks: Sequence[str] | None = None,
        start_step: int = 0,
    ) -> None:
        """Start the bridge, count steps, and get ready for the first one."""
        _check(model, every, val_every, val_loss, sinks, start_step)
        self.model = model
        self.optimizer = optimizer
        self.every = every
        self.spec: ModelSpec | None = None
        self.step_count = start_step
        self._start_step = start_step
        self.closed = False
        self._root = unwrapped(model)
        self._val_loss = val_loss
        self._val_every = every * _VAL_EVERY if val_every is None else val_every
        self._warn_nonfinite = warn_nonfinite
        self._said: set[str] = set()
        self._complaints: list[str] = []
        self._pid = os.getpid()
        self._started = clock()
        self._ended: float | None = None
        self._pending: Frame | None = None
        self._given_val: Any = None
        self._frames_made = 0
        self._cuda = any(parameter.is_cuda for parameter in self._root.parameters())
        self._compiled = _compat.is_compiled(model) or _compat.compiled_inside(self._root)
        self._attention = attention
        self._blocks = blocks
        self._given_spec = spec
        self._run_option = run_file
        self._sinks = list(sinks or ())
        self._run: RunFile | None = None
        self._pump: FramePump | None = None
        self._replace_earlier()
        self.server = server
        self._own_server = server is None
        self._history = FrameHistory()
        if server is None:
            self._start_bridge(lab_url, open)
        found = None if optimizer is None else hooked_optimizer(optimizer)
        self._probe = Probe(
            self._root,
            hist=hist,
            update_ratio=update_ratio,
            has_optimizer=found is not None,
            complain=self._failed,
            read_model=self._read_at_forward,
        )
        self._probe.compiled = self._compiled
        self._hooks = None if found is None else StepHooks(found, self._probe.before_step, self._stepped)
        if example_input is not None:
            self._probe.plan = self._read(example_input)
        _ON_MODEL[self._root] = self
        _OPEN.add(self)
        self._arm()

    # ── what a user calls ─────────────────────────────────────────────────────

    @property
    def url(self) -> str | None:
        """The Lab's address with this bridge; None where no bridge could be started."""
        return None if self.server is None else self.server.url

    @property
    def run_file(self) -> RunFile | None:
        """The run file, whose ``path`` says where it is; None before the model is read, or without one."""
        return self._run

    @property
    def frames(self) -> Sequence[HealthFrame]:
        """The frames that are kept, oldest first; each is decoded when it is asked for."""
        if self._pump is not None:
            self._pump.flush(_FLUSH_SECONDS)
        if self.server is None:
            return self._history.frames()
        self.server.health_since(sys.maxsize)  # waits until the bridge has stored what it was given
        return self.server.history.frames()

    def step(self, loss: Any = None) -> HealthFrame | None:
        """Say that a step is done, or only what its loss was where the optimizer's hooks count.

        Args:
            loss: A number, a tensor of one value, a mapping with ``loss``, or None. A tensor
                is neither read nor kept between frames.

        Returns:
            The frame that was completed, if one was: this step's on the CPU, on another
            device that of an earlier step.
        """
        if self.closed:
            return None
        emitted = self._emit_sealed()
        if self._hooks is None:
            self._probe.step_without_optimizer()
            self._finish_step()
        elif self._pending is None and self._probe.frame is None:
            return emitted
        self._attach(loss)
        return self._settle() or emitted

    def log(self, loss: Any = None, val_loss: Any = None) -> None:
        """Attach a loss to the current step, or a validation loss to the next frame.

        Args:
            loss: As in ``step``; nothing is counted.
            val_loss: A number or a tensor of one value.
        """
        if val_loss is not None:
            self._given_val = loss_value(val_loss)
        if loss is not None and not self.closed:
            self._attach(loss)

    def push(self, frame: HealthFrame) -> None:
        """Give a frame of your own to the bridge, the run file and the sinks."""
        if self._pump is None:
            self._probe.plan = self._probe.plan or self._read(None)
        if self._pump is not None:
            self._pump.push_health(frame)

    def close(self) -> None:
        """Finish the last frame, remove every hook, close the run file and the bridge that was started here.

        May be called twice, and during a step. In a forked child nothing of the parent's is closed.
        """
        if not self.closed:
            self._finish()
            if self._pid == os.getpid():
                self._say_goodbye()

    def _finish(self) -> None:
        """Close without a word."""
        self.closed = True
        self._probe.close()
        if self._hooks is not None:
            self._hooks.remove()
        if _ON_MODEL.get(self._root) is self:
            del _ON_MODEL[self._root]
        _OPEN.discard(self)
        if self._pid != os.getpid():
            return
        self._emit()
        if self._pump is not None:
            self._pump.close(_CLOSE_SECONDS)
        with contextlib.suppress(OSError):
            if self._run is not None:
                self._run.close()
        if self._own_server and self.server is not None:
            self.server.close()
        self._voice()

    def __enter__(self) -> Self:
        """The watch itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def __repr__(self) -> str:
        """The model, the steps and whether the watch has ended."""
        state = "closed" if self.closed else f"every {self.every}"
        return f"<Watch of {type(self._root).__name__}: {self.step_count} steps, {state}>"

    # ── the beginning ─────────────────────────────────────────────────────────

    def _replace_earlier(self) -> None:
        """Close the watch that this model has already."""
        earlier = _ON_MODEL.get(self._root)
        if earlier is not None:
            name = type(self._root).__name__
            _note(f"{name} was being watched; that watch is closed and this one takes its place")
            earlier.close()

    def _start_bridge(self, lab_url: str | None, open_browser: bool) -> None:
        """Start a bridge and say where it is; without one, frames are kept here."""
        try:
            self.server = Bridge(lab_url=lab_url).start()
            self.server.announce(open_browser=open_browser)
        except OSError as error:
            self._warn(
                "bridge", f"no bridge could be started: {_text(error)}; training is watched without one"
            )

    def _read_at_forward(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Plan | None:
        """The plan, from the first forward's arguments or from none where no forward was seen."""
        return self._read(Inputs(args, kwargs) if args or kwargs else None)

    def _read(self, example_input: Any) -> Plan | None:
        """Read the model, begin the run, and plan what is measured."""
        found = self._analysis(example_input)
        if found is None:
            return None
        found.values, found.output = {}, None
        plan = make_plan(
            self._root,
            found.spec,
            found.aux,
            compiled=self._compiled or self._probe.compiled,
            attention=self._attention,
            blocks=self._blocks,
        )
        self._begin(found.spec)
        return plan

    def _analysis(self, example_input: Any) -> Analysis | None:
        """How the model is read: the given spec, one pass, or the module tree where that fails."""
        given = self._given_spec
        if given is not None and given.bindings:
            return Analysis(given, "given")
        for attempt in (example_input, None):
            try:
                found = analyze(self._root, attempt)
            except Exception as error:  # noqa: BLE001  # a model may raise anything; training goes on
                self._warn("read", f"the model could not be read: {_text(error)}")
                continue
            if given is not None:
                given.bindings = {
                    block: path for block, path in found.spec.bindings.items() if _has(given, block)
                }
                found.spec = given
            return found
        return None

    def _begin(self, spec: ModelSpec) -> None:
        """Show the model, open the run file, start the thread that delivers frames."""
        self.spec = spec
        sinks: list[FrameSink] = []
        try:
            if self.server is not None:
                self.server.begin(spec)
        except Exception as error:  # noqa: BLE001  # a spec that cannot be shown does not end training
            self._warn("begin", f"the model cannot be shown: {_text(error)}")
        self._run = self._open_run(spec)
        sinks.append(_Store(self._history) if self.server is None else self.server)
        if self._run is not None:
            sinks.append(self._run)
        sinks.extend(CallableSink(function) for function in self._sinks)
        self._pump = FramePump(sinks, on_error=self._sink_failed)

    def _open_run(self, spec: ModelSpec) -> RunFile | None:
        """The run file; None where none is wanted or none can be made."""
        option = self._run_option
        if option is None or option is False:
            return None
        path = default_run_path(spec.name) if option is True else os.fspath(option)
        try:
            return RunFile(path, spec, resume=option is not True)
        except (OSError, ValueError) as error:
            self._warn("run file", f"no run file is written to {path!r}: {_text(error)}")
            return None

    # ── the steps ─────────────────────────────────────────────────────────────

    def _arm(self) -> None:
        """Get the next step measured, if it makes a frame."""
        if self.step_count % self.every or self.closed:
            return
        plan = self._probe.plan or Plan()
        self._probe.arm(Frame(self.step_count, self._started, plan, Stopwatch(self._cuda, self._ended)))
        if self._hooks is not None:
            self._hooks.arm()
        else:
            with torch.no_grad():
                self._probe.keep_weights()

    def _stepped(self) -> None:
        """The optimizer has stepped: called by its hook."""
        if self._pending is not None:
            self._emit()
        if self._probe.frame is not None:
            self._probe.after_step()
        self._finish_step()

    def _finish_step(self) -> None:
        """Count, take a frame's hooks off, validate, and get the next frame ready."""
        frame = self._probe.frame
        if frame is not None:
            self._probe.disarm()
            if self._hooks is not None:
                self._hooks.disarm()
            if self._pending is not None:
                self._emit()
            self._pending = frame
        if self._complaints:
            self._voice()
        if self._val_loss is not None and self.step_count % self._val_every == 0:
            self._validate()
        self.step_count += 1
        if self.step_count % self.every == 0:
            self._ended = clock()
            self._arm()

    def _attach(self, loss: Any) -> None:
        """Give a loss to the frame that is being measured, else to the one whose step is over."""
        active = self._probe.frame
        frame = active if active is not None and active.forwards else self._pending
        if frame is None:
            return
        if loss is not None:
            value = loss_value(loss)
            if value is None:
                self._warn(
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
        try:
            if self._given_val is not None:
                frame.put_number(self._given_val, frame.set("val_loss"))
                self._given_val = None
            health = frame.build()
            self._report_unsound(frame)
        except Exception as error:  # noqa: BLE001  # a frame that cannot be made does not end training
            self._failed("the frame", error)
            return None
        self._frames_made += 1
        if self._pump is not None:
            self._pump.push_health(health)
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
            self._warn(
                "val_loss", f"val_loss gave {type(value).__name__}, which has no single value; it is left out"
            )

    # ── what is said ──────────────────────────────────────────────────────────

    def _report_unsound(self, frame: Frame) -> None:
        """Warn when NaN or Inf first appears."""
        if self._warn_nonfinite and "nonfinite" not in self._said:
            where = frame.first_unsound()
            if where is not None:
                self._warn("nonfinite", f"step {frame.step}: {where}")

    def _failed(self, place: str, error: Exception) -> None:
        """Say once that something of ours failed and stands aside."""
        self._warn(place, f"{place} is left out from here on: {_text(error)}")

    def _sink_failed(self, sink: FrameSink | None, error: BaseException) -> None:
        """Remember what failed on the other thread; it is said at the next step."""
        name = "a frame" if sink is None else _sink_name(sink, self._run)
        self._complaints.append(f"{name} gets no more frames: {_text(error)}")

    def _voice(self) -> None:
        """Say what failed on the other thread."""
        waiting, self._complaints = self._complaints, []
        for text in waiting:
            self._warn(text, text)

    def _warn(self, key: str, text: str) -> None:
        """Warn once about one thing; a filter that makes warnings errors does not end training."""
        if key in self._said:
            return
        self._said.add(key)
        try:
            warnings.warn(f"ptoa: {escape(text)}", PtoaWarning, stacklevel=2)
        except PtoaWarning as error:
            sys.stderr.write(f"{error}\n")

    def _say_goodbye(self) -> None:
        """Print what the watch leaves behind."""
        count = self.step_count - self._start_step
        steps = f"{count} step{'' if count == 1 else 's'}"
        frames = f"{self._frames_made} frame{'' if self._frames_made == 1 else 's'}"
        dropped = f", {self._pump.dropped} dropped" if self._pump is not None and self._pump.dropped else ""
        where = f"; run file {escape(self._run.path)}" if self._run is not None else ""
        _note(f"watched {steps}, {frames}{dropped}{where}")


class _Store:
    """A sink that keeps frames where there is no bridge."""

    def __init__(self, history: FrameHistory) -> None:
        """Keep them in ``history``."""
        self._history = history

    def push_health(self, frame: Any) -> None:
        """Keep one frame."""
        self._history.append(frame)

    def close(self) -> None:
        """Nothing to finish."""


def watch(
    model: Any,
    optimizer: Any = None,
    every: int = 10,
    val_loss: float | Callable[[], Any] | None = None,
    open: bool = True,
    **options: Any,
) -> Watch:
    """Watch a model train; see `Watch` for the arguments.

    Prints where to look, returns at once, and keeps serving until ``close``.

    Source:
        README.md, "Watch training".
    """
    return Watch(model, optimizer, every, val_loss, open, **options)


def _check(model: Any, every: Any, val_every: Any, val_loss: Any, sinks: Any, start_step: Any) -> None:
    """Refuse what cannot be watched."""
    if not isinstance(model, nn.Module):
        raise SettingError(
            f"model must be a torch.nn.Module, found {type(model).__name__}; pass the model itself"
        )
    numbers = (("every", every, 1), ("val_every", val_every, 1), ("start_step", start_step, 0))
    for name, number, least in numbers:
        whole = isinstance(number, int) and not isinstance(number, bool) and number >= least
        if not whole and not (name == "val_every" and number is None):
            raise SettingError(f"{name} must be a whole number of at least {least}, found {number!r}")
    if val_loss is not None and not callable(val_loss) and loss_value(val_loss) is None:
        raise SettingError(f"val_loss must be a number or a function that gives one, found {val_loss!r}")
    for function in sinks or ():
        if not callable(function):
            raise SettingError(f"sinks must be functions that take a frame, found {function!r}")


def _has(spec: ModelSpec, block: str) -> bool:
    """Whether a spec has a block of that id."""
    return any(item.id == block for item in spec.blocks)


def _text(error: BaseException) -> str:
    """An exception on one line."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _sink_name(sink: FrameSink, run: RunFile | None) -> str:
    """How a sink is called to the user."""
    return f"the run file {run.path!r}" if run is not None and sink is run else repr(sink)


def _note(text: str) -> None:
    """Print one line; where nothing can be printed, nothing is."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.write(f"ptoa: {text}\n")
        sys.stdout.flush()


_OPEN: weakref.WeakSet[Watch] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Finish what was left open at the interpreter's end, when standard output may be a script's result."""
    for item in list(_OPEN):
        item._finish()
