"""The watch that a callback holds while its trainer trains: what both callbacks share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ptoa_torch import Watch

__all__ = ["WatchHolder", "torch_optimizer"]


class WatchHolder:
    """Starts a watch when training begins and ends it when training does.

    A trainer may be built, pickled or sent to other processes before it trains, so nothing is opened
    until `start`; and one that failed may train again, so `start` ends what an earlier run left.

    Args:
        every: Steps between two frames.
        open: Whether to open a browser.
        **watch_options: Further options of `ptoa_torch.watch`.
    """

    def __init__(self, every: int = 10, open: bool = True, **watch_options: Any) -> None:
        self.every = every
        self.open = open
        self.watch_options = watch_options
        self.watch: Watch | None = None
        self._counts_steps = False

    def start(self, model: Any, optimizer: Any, start_step: int = 0) -> None:
        """Begin to watch the run of `model` under `optimizer`; a resumed run has steps behind it."""
        from ptoa_torch import Watch
        from ptoa_torch.steps import hooked_optimizer

        self.close()
        self._counts_steps = hooked_optimizer(optimizer) is None
        options = {"start_step": start_step, **self.watch_options}
        self.watch = Watch(model, optimizer, every=self.every, open=self.open, **options)

    def step(self) -> None:
        """Count a step that the trainer made with an optimizer that does not tell of its own."""
        if self.watch is not None and self._counts_steps:
            self.watch.step()

    def log(self, loss: Any = None, val_loss: Any = None) -> None:
        """Attach what the trainer measured to the frame of the step that it belongs to."""
        if self.watch is not None and not (loss is None and val_loss is None):
            self.watch.log(loss, val_loss)

    def close(self) -> None:
        """End the watch, if one runs."""
        if self.watch is not None:
            self.watch.close()
            self.watch = None


def torch_optimizer(optimizer: Any) -> Any:
    """The PyTorch optimizer inside a trainer's wrappers, whose own step hooks count the steps.

    Accelerate's and Lightning's wrappers keep the real one in `optimizer` or `_optimizer`, and pass a
    step on only when one is due. What has no step of its own, as a stand-in for an optimizer that
    another engine makes, is None: the trainer's steps are counted in its place.

    Example:
        >>> class Real:
        ...     def step(self): ...
        >>> class Wrapper:
        ...     optimizer = Real()
        >>> torch_optimizer(Wrapper()) is Wrapper.optimizer, torch_optimizer("a stand-in")
        (True, None)
    """
    for name in ("optimizer", "_optimizer"):
        inner = getattr(optimizer, name, None)
        if inner is not None and inner is not optimizer:
            return torch_optimizer(inner)
    return optimizer if callable(getattr(optimizer, "step", None)) else None
