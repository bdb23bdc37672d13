"""A health frame whose rows are made only where someone asks for them.

Most frames are written and never looked at as objects. A dozen objects a block, some hundred
times a frame, cost more than writing them does, and have Python's cyclic collector look through
all that a training holds again and again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from .frames import BlockHealth, HeadPattern, HealthFrame

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["LateFrame", "PlainRow", "PlainStats", "Rows"]


class PlainStats(NamedTuple):
    """One tensor's statistics, all of them known: what a ``TensorStats`` holds, and its extension fields.

    Example:
        >>> PlainStats("act", 0.0, 1.0, 2.0, 0.5).zeros
        0.5
    """

    part: str
    mean: float
    std: float
    largest: float
    zeros: float
    saturated: float | None = None
    nan: int = 0
    infinite: int = 0
    hist: Sequence[int] | None = None
    sample: int = 0
    dead: float | None = None


class PlainRow(NamedTuple):
    """A block's row; its norms under their names, and what stands in ``BlockHealth.extra``.

    Example:
        >>> PlainRow("l0", [], {"weightNorm": 2.0}).numbers
        {'weightNorm': 2.0}
    """

    id: str
    stats: Sequence[PlainStats]
    numbers: Mapping[str, float]
    entropy: Sequence[float] | None = None
    patterns: list[HeadPattern] | None = None
    extra: Mapping[str, Any] | None = None


class Rows(Protocol):
    """The rows of a frame, which do not change any more. Asked from any thread."""

    def __len__(self) -> int:
        """How many there are."""

    def plain(self, index: int) -> PlainRow | None:
        """A row whose numbers are all known and finite; None for any other."""

    def block(self, index: int) -> BlockHealth:
        """A row."""


class LateFrame(HealthFrame):
    """A health frame whose ``blocks`` are made when they are first asked for.

    Args:
        rows: What makes them.
        head: The other fields of a ``HealthFrame``.

    Attributes:
        rows: As given.

    Example:
        >>> class One:
        ...     def __len__(self): return 1
        ...     def plain(self, index): return None
        ...     def block(self, index): return BlockHealth("l0")
        >>> frame = LateFrame(One(), step=3, t=0.0, loss=None)
        >>> frame.blocks[0].id
        'l0'
    """

    rows: Rows

    def __init__(self, rows: Rows, **head: Any) -> None:
        """Make no row yet."""
        super().__init__(**head)
        del self.__dict__["blocks"]
        self.__dict__["rows"] = rows

    def __getattr__(self, name: str) -> Any:
        """Make the rows."""
        if name != "blocks" or "rows" not in self.__dict__:
            raise AttributeError(name)
        made = self.__dict__["blocks"] = [self.rows.block(index) for index in range(len(self.rows))]
        return made

    @property
    def late_rows(self) -> Rows | None:
        """The rows, while nobody has asked for ``blocks``, which may have been changed since."""
        return None if "blocks" in self.__dict__ else self.rows

    def head(self) -> HealthFrame:
        """A frame with the same fields and no blocks."""
        fields = {key: value for key, value in self.__dict__.items() if key not in ("blocks", "rows")}
        return HealthFrame(blocks=[], **fields)

    def plain(self) -> HealthFrame:
        """The same frame with its rows made.

        Example:
            >>> class None_:
            ...     def __len__(self): return 0
            >>> LateFrame(None_(), step=0, t=0.0, loss=1.5).plain() == HealthFrame(0, 0.0, 1.5)
            True
        """
        made = self.head()
        made.blocks = self.blocks
        return made

    def __eq__(self, other: object) -> bool:
        """Whether another frame says the same."""
        return self.plain() == (other.plain() if isinstance(other, LateFrame) else other)

    __hash__ = None  # type: ignore[assignment]  # as of a HealthFrame

    def __repr__(self) -> str:
        """As of a ``HealthFrame``."""
        return repr(self.plain())

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy or a pickle is a ``HealthFrame``."""
        made = self.plain()
        return _restored, (made.__dict__,)


def _restored(fields: dict[str, Any]) -> HealthFrame:
    """A frame from its fields."""
    return HealthFrame(**fields)
