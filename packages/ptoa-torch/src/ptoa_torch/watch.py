"""Watching a model train: what a user calls.

What is measured, and when, is `session.Session`'s; where frames go is `delivery.Delivery`'s.

This module imports without torch, so that `Watch` is one class wherever it is imported from;
what needs torch is imported when a watch begins.
"""

from __future__ import annotations

import atexit
import html
import os
import weakref
from typing import TYPE_CHECKING, Any

from ptoa_core.errors import PtoaError, SettingError

from .budget import share_of
from .delivery import Delivery, note, text_of
from .extras import torch_needed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from typing_extensions import Self

    from ptoa_bridge import Bridge
    from ptoa_core.frames import HealthFrame
    from ptoa_core.runs import RunFile
    from ptoa_core.spec import ModelSpec

__all__ = ["Watch", "watch"]

_ON_MODEL: weakref.WeakKeyDictionary[Any, weakref.ref[Watch]] = weakref.WeakKeyDictionary()
_VAL_EVERY = 10


class Watch:
    """A running watch on one model's training.

    Args:
        model: The model that is trained; wrappers (compiled, DistributedDataParallel) are
            looked through.
        optimizer: Its optimizer, whose own hooks count the steps, or a list of several, of which
            the first one's steps are the steps of the watch. None, or a wrapper that runs no
            hooks: call ``step`` once a step, after ``optimizer.step()``.
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
        compiled: Whether to run a compiled model once more on frame steps, uncompiled and without
            gradients, since nothing inside a compiled graph can be seen; its cost is in the frame.
        val_every: 10 times ``every`` by default.
        warn_nonfinite: Whether to warn when NaN or Inf first appears.
        spec: The model's spec, with bindings, where it was read before.
        sinks: Functions that are given each frame, on a thread of ours.
        lab_url: The Lab to open, or ``"local"``; the environment's or the hosted one by default.
        blocks: Patterns of block ids, kinds or module paths; others get no row.
        start_step: The number of the first step: of a run that is resumed, the steps behind it.
        reduce: Whether norms are those over all processes. Then every process must watch, with the
            same options, and waits for the others on frame steps.
        budget: The most that watching may cost, over the time that training takes by itself:
            ``"1%"`` or 0.01. Frames that cost more come less often than ``every``; where they would
            come very seldom, blocks take turns. What was paid is in the frames under ``cost``, and
            is printed at the end. It cannot be kept with ``reduce``, which needs all processes in step.

    Of several processes the first one shows the run. A watch on another one is silent: it opens
    nothing, puts nothing on the model (but to take part where norms are summed), and has no frames.

    Attributes:
        model: The model.
        optimizer: The optimizer.
        every: As given.
        closed: Whether the watch has ended.

    Raises:
        SettingError: If an argument cannot be used.

    Source:
        README.md, "Watch training" and "What watch measures".

    Example:
        >>> import contextlib, io, torch
        >>> from torch import nn
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
        compiled: bool = True,
        val_every: int | None = None,
        warn_nonfinite: bool = True,
        spec: ModelSpec | None = None,
        sinks: Sequence[Callable[[HealthFrame], object]] | None = None,
        lab_url: str | None = None,
        blocks: Sequence[str] | None = None,
        start_step: int = 0,
        reduce: bool = False,
        budget: float | str | None = None,
    ) -> None:
        """Start the bridge, count steps, and get ready for the first one."""
        with torch_needed("watch(model)"):
            from .session import check, place, session_class, unwrapped
        check(model, optimizer, every, val_every, val_loss, start_step)
        _check_sinks(sinks)
        share = share_of(budget)
        if share is not None and reduce:
            raise SettingError(
                "budget cannot be kept with reduce=True, which needs all processes in step; leave one out"
            )
        here = place()
        self.model = model
        self.optimizer = optimizer
        self.every = every
        self.closed = False
        self._root = unwrapped(model)
        self._pid = os.getpid()
        _replace_earlier(self._root)
        self._silent = here.rank > 0
        shown = (False, (), None) if self._silent else (run_file, sinks or (), server)
        self._delivery = Delivery(*shown)
        if server is None and not self._silent:
            self._delivery.server = _started_bridge(self._delivery, lab_url, open)
        self._session = session_class(here, reduce)(
            model,
            optimizer,
            self._delivery,
            every=every,
            val_loss=val_loss,
            val_every=every * _VAL_EVERY if val_every is None else val_every,
            warn_nonfinite=warn_nonfinite,
            hist=hist,
            update_ratio=update_ratio,
            attention=attention,
            compiled=compiled,
            blocks=blocks,
            spec=spec,
            start_step=start_step,
            place=here,
            reduce=reduce,
            budget=share,
        )
        self._session.begin(example_input)
        _ON_MODEL[self._root] = weakref.ref(self)
        _OPEN.add(self)

    @property
    def server(self) -> Bridge | None:
        """The bridge; None where none could be started."""
        found: Bridge | None = self._delivery.server
        return found

    @property
    def spec(self) -> ModelSpec | None:
        """The model's spec; None until it is read."""
        return self._delivery.spec

    @property
    def step_count(self) -> int:
        """Steps counted so far, those before ``start_step`` included."""
        return self._session.step_count

    @property
    def url(self) -> str | None:
        """The Lab's address with this bridge; None where no bridge could be started."""
        return None if self.server is None else self.server.url

    @property
    def run_file(self) -> RunFile | None:
        """The run file, whose ``path`` says where it is; None before the model is read, or without one."""
        return self._delivery.run

    @property
    def frames(self) -> Sequence[HealthFrame]:
        """The frames that are kept, oldest first; each is decoded when it is asked for."""
        return self._delivery.frames()

    def step(self, loss: Any = None) -> HealthFrame | None:
        """Say that a step is done, or only what its loss was where the optimizer's hooks count.

        Args:
            loss: A number, a tensor of one value, a mapping with ``loss``, or None. A tensor
                is neither read between frames nor is its graph kept.

        Returns:
            The frame that was completed, if one was: this step's on the CPU, on another
            device that of an earlier step.
        """
        return None if self.closed else self._session.step(loss)

    def log(self, loss: Any = None, val_loss: Any = None) -> None:
        """Attach a loss to the current step, or a validation loss to the next frame.

        Args:
            loss: As in ``step``; nothing is counted.
            val_loss: A number or a tensor of one value.
        """
        if not self.closed:
            self._session.log(loss, val_loss)

    def push(self, frame: HealthFrame) -> None:
        """Give a frame of your own to the bridge, the run file and the sinks."""
        self._session.read_model()
        self._delivery.push(frame)

    def close(self) -> None:
        """Finish the last frame, remove every hook, close the run file and the bridge that was started here.

        May be called twice, and during a step. In a forked child nothing of the parent's is closed.
        """
        if not self.closed:
            self._finish()
            if self._pid == os.getpid() and not self._silent:
                self._delivery.say_goodbye(
                    self._session.step_count - self._session.start_step, self._session.paid()
                )

    def _finish(self) -> None:
        """Close without a word."""
        self.closed = True
        here = self._pid == os.getpid()
        self._session.close(emit=here)
        if (kept := _ON_MODEL.get(self._root)) is not None and kept() is self:
            del _ON_MODEL[self._root]
        _OPEN.discard(self)
        if here:
            self._delivery.close()

    def __enter__(self) -> Self:
        """The watch itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def _repr_html_(self) -> str:
        """What a notebook shows: the local page with the frames so far, else the spec's table or a line."""
        from ptoa_bridge.report import run_html

        spec = self.spec
        if spec is None:
            return f"<code>{html.escape(repr(self))}</code>"
        try:
            return run_html(spec, self.frames)
        except PtoaError:
            return spec._repr_html_()

    def __deepcopy__(self, memo: dict[int, Any]) -> Watch:
        """A copy of what holds a watch holds the same one."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle of what holds a watch holds None in its place: no other process has the run."""
        return type(None), ()

    def __repr__(self) -> str:
        """The model, the steps and whether the watch has ended."""
        state = "closed" if self.closed else f"every {self.every}"
        return f"<Watch of {type(self._root).__name__}: {self.step_count} steps, {state}>"


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


def _started_bridge(delivery: Delivery, lab_url: str | None, open_browser: bool) -> Bridge | None:
    """A bridge that has said where it is; None where none can be started, which is said too."""
    from ptoa_bridge import Bridge

    try:
        bridge = Bridge(lab_url=lab_url).start()
        bridge.announce(open_browser=open_browser)
    except OSError as error:
        delivery.warn(
            "bridge", f"no bridge could be started: {text_of(error)}; training is watched without one"
        )
        return None
    return bridge


def _replace_earlier(root: Any) -> None:
    """Close the watch that this model has already."""
    kept = _ON_MODEL.get(root)
    earlier = None if kept is None else kept()
    if earlier is not None:
        note(f"{type(root).__name__} was being watched; that watch is closed and this one takes its place")
        earlier.close()


def _check_sinks(sinks: Any) -> None:
    """Refuse sinks that cannot be called."""
    for function in sinks or ():
        if not callable(function):
            raise SettingError(f"sinks must be functions that take a frame, found {function!r}")


_OPEN: weakref.WeakSet[Watch] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Finish what was left open at the interpreter's end, when standard output may be a script's result."""
    for item in list(_OPEN):
        item._finish()
