"""The callback for the Hugging Face Trainer.

::

    trainer = Trainer(model=model, args=args, train_dataset=data, callbacks=[PTACallback(every=20)])

Steps are counted by the optimizer's own hooks, which fire once per update however many batches are
accumulated. The loss of a step is the model's own when it returns one; the Trainer's logged mean
takes its place on the steps that are logged, and `eval_loss` is the frame's validation loss.
"""

from __future__ import annotations

from typing import Any

from ptoa_core.errors import missing_extra

from .holder import WatchHolder, torch_optimizer

try:
    from transformers import TrainerCallback
except ModuleNotFoundError as error:
    if error.name != "transformers":
        raise
    raise missing_extra("hf", "papertoanything.integrations.hf") from None

__all__ = ["PTACallback"]


class PTACallback(TrainerCallback):
    """Watch a Trainer's run: frames of health in a browser tab and a run file.

    Only the first process watches; on the others the callback does nothing.

    Args:
        every: Steps between two frames.
        open: Whether to open a browser.
        **watch_options: Further options of `papertoanything.watch`.

    Attributes:
        watch: The running `Watch`, or None when nothing is being trained.
    """

    def __init__(self, every: int = 10, open: bool = True, **watch_options: Any) -> None:
        super().__init__()
        self._holder = WatchHolder(every, open, **watch_options)

    @property
    def watch(self) -> Any:
        """The running `Watch`, or None when nothing is being trained."""
        return self._holder.watch

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin to watch; the Trainer has its optimizer by then."""
        if state.is_world_process_zero:
            self._holder.start(kwargs["model"], torch_optimizer(kwargs.get("optimizer")), state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Count the step, where the optimizer does not (as inside another engine)."""
        self._holder.step()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Take over the mean loss that the Trainer logs for the step it has just made."""
        self._holder.log(loss=(logs or {}).get("loss"))

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        """Take over the evaluation's loss."""
        self._holder.log(val_loss=(metrics or {}).get("eval_loss"))

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End the watch."""
        self._holder.close()
