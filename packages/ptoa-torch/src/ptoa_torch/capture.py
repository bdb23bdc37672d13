"""One forward pass as a trace frame: what every block made, cut to what a page can show.

This module imports without torch; the pass itself is recorded by `reading`.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

from ptoa_core.errors import PtoaWarning, SettingError, TensorError
from ptoa_core.frames import FrameTensor, TraceFrame
from ptoa_core.protocol import DEFAULT_MAX_ELEMS, DEFAULT_MAX_FRAME_ELEMS
from ptoa_core.tensors import clip_shape, encode_tensor

from .from_module import Analysis, analyze

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typing_extensions import Self

    from ptoa_core.spec import ModelSpec

__all__ = ["TraceWatch", "capture", "watch_trace"]


def capture(
    model: Any,
    example_input: Any,
    max_elems: int = DEFAULT_MAX_ELEMS,
    *,
    spec: ModelSpec | None = None,
    step: int = 0,
    loss: float | None = None,
    max_frame_elems: int = DEFAULT_MAX_FRAME_ELEMS,
) -> TraceFrame:
    """The tensors of one forward pass, one frame.

    Each block's output is ``<id>:out``; attention probabilities, one matrix a head, are
    ``<id>:weights`` where the pass computed them with a softmax, or gave what they follow from to
    ``scaled_dot_product_attention`` or ``nn.MultiheadAttention``: then as many heads and rows as
    are sent are computed again; a table of positions is ``<id>:table``. The pass runs in eval mode
    without gradients and the model is left as it was.

    Args:
        model: Any ``torch.nn.Module``.
        example_input: What it is called with, see `from_module`.
        max_elems: The most values of one tensor that are kept; a larger one is cut to its corner.
        spec: The spec whose block ids are used, as `from_module` made it; read anew by default.
        step: The training step that the frame belongs to.
        loss: The loss at that step, if there is one. It is never computed here.
        max_frame_elems: The most values of the whole frame; later tensors carry their shape alone.

    Returns:
        The frame. ``uncaptured`` lists every block of the spec of which no tensor was seen,
        containers aside; None where there is none.

    Raises:
        SettingError: If an argument cannot be used.
        ForwardError: If the model raises on the example input.
        MissingExtraError: If PyTorch is not installed.

    Source:
        ``FORMATS.md``, sections 4 and 5.

    Example:
        >>> import torch
        >>> frame = capture(torch.nn.Linear(4, 2), torch.ones(1, 4))
        >>> [tensor.key for tensor in frame.tensors]
        ['i0:out', 'l0:out']
    """
    if example_input is None:
        raise SettingError("capture runs one forward pass, so it needs an example_input")
    for name, number in (("max_elems", max_elems), ("max_frame_elems", max_frame_elems)):
        _check_count(name, number)
    found = analyze(model, example_input, strategy="hooks")
    ids = _ids(found.spec, spec or found.spec)
    tensors = list(_framed(_keyed(found, ids), max_elems, max_frame_elems))
    seen = {tensor.key.partition(":")[0] for tensor in tensors}
    missing = [block for block in _leaf_ids(spec or found.spec) if block not in seen]
    return TraceFrame(step, tensors, loss, missing or None)


def _check_count(name: str, number: object) -> None:
    """Refuse what is not a whole number of at least 1."""
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise SettingError(f"{name} must be a whole number of at least 1, got {number!r}")


def _leaf_ids(spec: ModelSpec) -> list[str]:
    """Ids of the blocks that are no containers."""
    outer = {block.group for block in spec.blocks}
    return [block.id for block in spec.blocks if block.id not in outer]


def _ids(ours: ModelSpec, theirs: ModelSpec) -> dict[str, str]:
    """Which block of a given spec each of ours is: the same id, else the first, with its kind and label."""
    wanted = {block.id: (block.kind, block.label) for block in theirs.blocks}
    places: dict[tuple[str, str | None], list[str]] = {}
    for block in theirs.blocks:
        places.setdefault((block.kind, block.label), []).append(block.id)
    ids: dict[str, str] = {}
    for block in ours.blocks:
        row = (block.kind, block.label)
        if wanted.get(block.id) == row and block.id in places[row]:
            places[row].remove(block.id)
            ids[block.id] = block.id
        elif places.get(row):
            ids[block.id] = places[row].pop(0)
    return ids


def _keyed(found: Analysis, ids: dict[str, str]) -> Iterator[tuple[str, Any]]:
    """The tensors of a frame with their keys, in the order of the blocks."""
    for ours, block in ids.items():
        if ours in found.values:
            yield f"{block}:out", found.values[ours]
        facts = found.aux.get(ours, {})
        for key, name in (("weights", "weights"), ("scores", "weights"), ("table", "table")):
            if key in facts:
                yield f"{block}:{name}", facts[key]


def _framed(pairs: Iterator[tuple[str, Any]], max_elems: int, budget: int) -> Iterator[FrameTensor]:
    """The tensors as they go into a frame, within its budget; what float32 cannot say is left out."""
    for key, item in pairs:
        try:
            shape = [int(size) for size in item.shape]
            sizes = clip_shape(shape, max_elems)
            kept = math.prod(sizes)
            if kept > budget:
                yield FrameTensor(key, shape, "", True, [0] * len(shape))
                continue
            made = _encoded(key, item, sizes, max_elems)
        # TensorError: complex and sparse tensors. Torch: tensors without sizes (nested ones) or
        # without numbers (on the meta device). The block is listed as uncaptured.
        except (TensorError, RuntimeError, TypeError, ValueError, AttributeError):
            continue
        if made is not None:
            yield made
            budget -= kept


def _encoded(key: str, item: Any, sizes: list[int], max_elems: int) -> FrameTensor | None:
    """One tensor as it goes into a frame, or the corner of probabilities that are computed for it."""
    if not callable(getattr(item, "corner", None)):
        return encode_tensor(key, item, max_elems)
    corner = item.corner(sizes)
    if corner is None:
        return None
    made = encode_tensor(key, corner, max_elems)
    if list(corner.shape) != list(item.shape):
        made.shape, made.clipped, made.dataShape = list(item.shape), True, list(corner.shape)
    return made


class TraceWatch:
    """Pushes a trace frame of the same example input every few training steps.

    Args:
        model: The model that is trained.
        example_input: What it is called with for each frame.
        push: Takes the frames, for example a bridge's ``push``.
        every: A frame every so many steps, from the first on.
        spec: The spec whose ids are used; read once by default.
        max_elems: The most values of one tensor.

    Raises:
        SettingError: If ``every`` is below 1 or ``push`` cannot be called.

    Example:
        >>> import torch
        >>> frames = []
        >>> with TraceWatch(torch.nn.Linear(2, 1), torch.ones(1, 2), frames.append, every=2) as watching:
        ...     for _ in range(4):
        ...         watching.step()
        >>> [frame.step for frame in frames]
        [0, 2]
    """

    def __init__(
        self,
        model: Any,
        example_input: Any,
        push: Callable[[TraceFrame], object],
        *,
        every: int = 10,
        spec: ModelSpec | None = None,
        max_elems: int = DEFAULT_MAX_ELEMS,
    ) -> None:
        """Read the spec where none is given."""
        _check_count("every", every)
        if not callable(push):
            raise SettingError(f"push must be callable, got {type(push).__name__}")
        self.model = model
        self.every = every
        self.spec = spec if spec is not None else analyze(model, example_input).spec
        self.step_count = 0
        self.closed = False
        self._example = example_input
        self._push = push
        self._max_elems = max_elems

    def step(self, loss: Any = None) -> None:
        """Count one training step, after ``optimizer.step()``, and push a frame when it is due.

        Args:
            loss: The step's loss: a number, a tensor of one value, or None.
        """
        if self.closed:
            return
        if self.step_count % self.every == 0:
            self._due(loss)
        self.step_count += 1

    def _due(self, loss: Any) -> None:
        """Push a frame; what goes wrong ends the watch with a warning and never the training."""
        try:
            self._push(self._frame(None if loss is None else float(loss)))
        except Exception as error:  # noqa: BLE001 - neither the model nor push may break a training loop
            self.closed = True
            text = f"no more trace frames after step {self.step_count}: {type(error).__name__}: {error}"
            warnings.warn(text, PtoaWarning, stacklevel=3)

    def _frame(self, loss: float | None) -> TraceFrame:
        """A frame of the current step."""
        return capture(
            self.model, self._example, self._max_elems, spec=self.spec, step=self.step_count, loss=loss
        )

    def snapshot(self) -> TraceFrame:
        """Push a frame at once, whatever the step, and return it."""
        frame = self._frame(None)
        self._push(frame)
        return frame

    def close(self) -> None:
        """Push no more frames. May be called twice."""
        self.closed = True

    def __enter__(self) -> Self:
        """The watch itself."""
        return self

    def __exit__(self, *details: object) -> None:
        """Close."""
        self.close()


def watch_trace(
    model: Any,
    example_input: Any,
    push: Callable[[TraceFrame], object],
    every: int = 10,
    spec: ModelSpec | None = None,
) -> TraceWatch:
    """A `TraceWatch`, already started.

    Example:
        >>> import torch
        >>> watching = watch_trace(torch.nn.Linear(2, 1), torch.ones(1, 2), print)
        >>> watching.every
        10
    """
    return TraceWatch(model, example_input, push, every=every, spec=spec)
