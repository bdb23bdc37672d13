"""The callback for Lightning, under either of its names.

::

    trainer = L.Trainer(callbacks=[PTACallback(every=20)])

`lightning.pytorch` and `pytorch_lightning` are two packages with two `Callback` classes. The base
class is taken from what the script has imported by then, both when both are; a script that imports
this module first gets the one that is installed.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from typing import Any

from ptoa_core.errors import missing_extra

from .holder import WatchHolder, torch_optimizer

__all__ = ["PTACallback"]

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")


def _bases() -> tuple[type, ...]:
    """The `Callback` classes of what is loaded, or of the first package that can be."""
    loaded = [getattr(sys.modules[name], "Callback", None) for name in _PACKAGES if name in sys.modules]
    bases = tuple(dict.fromkeys(base for base in loaded if base is not None))
    return bases or (_import_callback(),)


def _import_callback() -> Any:
    """The `Callback` class of the first package that is installed."""
    for name in _PACKAGES:
        if importlib.util.find_spec(name.partition(".")[0]) is not None:
            return importlib.import_module(name).Callback
    raise missing_extra("lightning", "papertoanything.integrations.lightning")


class PTACallback(*_bases()):  # type: ignore[misc]  # the base is known at run time only
    """Watch a Lightning run: frames of health in a browser tab and a run file.

    Only the first process watches; on the others the callback does nothing. With several optimizers
    the first one's steps count.

    Args:
        every: Steps between two frames.
        open: Whether to open a browser.
        monitor: The logged metric that is shown as the validation loss.
        **watch_options: Further options of `papertoanything.watch`.

    Attributes:
        watch: The running `Watch`, or None when nothing is being trained.
    """

    def __init__(
        self, every: int = 10, open: bool = True, *, monitor: str = "val_loss", **watch_options: Any
    ) -> None:
        super().__init__()
        self.monitor = monitor
        self._holder = WatchHolder(every, open, **watch_options)
        self._stepped = 0

    @property
    def watch(self) -> Any:
        """The running `Watch`, or None when nothing is being trained."""
        return self._holder.watch

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin to watch; sanity checking is over by then."""
        if trainer.is_global_zero:
            first = trainer.optimizers[0] if trainer.optimizers else None
            self._stepped = trainer.global_step
            self._holder.start(pl_module, torch_optimizer(first), trainer.global_step)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Attach the batch's loss to the step that it completed; batches in between complete none."""
        if trainer.global_step != self._stepped:
            self._stepped = trainer.global_step
            self._holder.step()
            self._holder.log(loss=_loss_of(outputs, trainer, pl_module))

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Take over the metric that is monitored, when the module logs one."""
        if not trainer.sanity_checking:
            self._holder.log(val_loss=trainer.callback_metrics.get(self.monitor))

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """End the watch."""
        self._holder.close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """End the watch; Lightning calls nothing else when a run fails."""
        self._holder.close()


def _loss_of(outputs: Any, trainer: Any, pl_module: Any) -> Any:
    """The loss as the module returned it; Lightning divides it by the batches that are accumulated."""
    loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
    if loss is None or not pl_module.automatic_optimization:
        return loss
    return loss * trainer.accumulate_grad_batches
