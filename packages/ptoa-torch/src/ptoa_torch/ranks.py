"""Training in several processes: which of them this one is, and what part of the model it holds.

A watch in one process must never make another one wait. So a model is not called for our own
sake where a call talks to other processes, and norms are those of what lies on this process,
unless every process asked for their sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


__all__ = [
    "CollectiveError",
    "Place",
    "WithoutCollectives",
    "is_sharded",
    "place",
    "share_of",
    "sum_over_ranks",
]

_COLLECTIVES = frozenset(("c10d", "c10d_functional", "_c10d_functional", "_c10d_functional_autograd"))
_SHARDING_WRAPPERS = frozenset(("FullyShardedDataParallel", "DeepSpeedEngine"))


class CollectiveError(RuntimeError):
    """A pass of our own would have talked to other processes."""


@dataclass(frozen=True)
class Place:
    """Which of the processes this one is; the only one where none were started together.

    Attributes:
        rank: From 0.
        size: How many there are.
    """

    rank: int = 0
    size: int = 1


def place() -> Place:
    """This process's place in the default process group.

    Example:
        >>> place()
        Place(rank=0, size=1)
    """
    if not (dist.is_available() and dist.is_initialized()):
        return Place()
    return Place(dist.get_rank(), dist.get_world_size())


def is_sharded(root: nn.Module) -> bool:
    """Whether a process holds only a part of the parameters, and calling a module fetches the rest."""
    wrapped = any(type(module).__name__ in _SHARDING_WRAPPERS for module in root.modules())
    return wrapped or any(_is_part(parameter) for parameter in root.parameters())


def _is_part(parameter: Tensor) -> bool:
    """Whether a parameter's values lie on several processes."""
    return hasattr(parameter, "placements") or hasattr(parameter, "ds_id")


def share_of(tensor: Tensor, size: int) -> float:
    """What this process adds to a sum over all processes, so that copies of one value count once.

    A tensor that every process holds whole is there ``size`` times; one that is cut along some
    dimensions of a mesh is there once for each of the other dimensions.
    """
    mesh, placements = getattr(tensor, "device_mesh", None), getattr(tensor, "placements", ())
    parts = 1
    for dimension, placement in enumerate(placements):
        if mesh is not None and placement.is_shard():
            parts *= mesh.size(dimension)
    return parts / size


def sum_over_ranks(numbers: Sequence[float], devices: Iterable[torch.device]) -> list[float]:
    """The sums of numbers over all processes; every process must call it.

    Args:
        numbers: As many on every process.
        devices: Where the parameters lie, for backends that reach no other memory.
    """
    backend = dist.get_backend()
    on_device = "nccl" in backend and "gloo" not in backend
    device = next(iter(devices)) if on_device else torch.device("cpu")
    total = torch.tensor(numbers, dtype=torch.float64, device=device)
    dist.all_reduce(total)
    summed: list[float] = total.tolist()
    return summed


class WithoutCollectives(TorchDispatchMode):
    """Raises before an operation that would wait for other processes.

    Example:
        >>> with WithoutCollectives():
        ...     torch.ones(2).sum().item()
        2.0
    """

    def __init__(self) -> None:
        """Do nothing until it is entered."""
        super().__init__()  # type: ignore[no-untyped-call]  # torch's has no types

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run what stays in this process."""
        if getattr(func, "namespace", "") in _COLLECTIVES:
            raise CollectiveError(f"{func} waits for other processes")
        return func(*args, **(kwargs or {}))
