"""What watching may cost, as a share of the training, and what is done to stay within it.

From one frame to the next the watch adds up the time of its own: on the training thread and on
the thread that delivers frames. What is left of the time that passed is the training's. Where
frames cost more than the budget, they come less often; where they would come very seldom, blocks
take turns and fewer values are sampled for histograms, so that a frame itself costs less.
This module needs no torch.
"""

from __future__ import annotations

import math
from statistics import fmean, median
from typing import Any

from ptoa_core.errors import SettingError

__all__ = ["Budget", "share_of"]

_WIDEST = 8
_MOST_TURNS = 8
_KEPT = 5
_MOST_BEHIND = 2.0  # what was paid too much is made good, but not at once


def share_of(budget: Any) -> float | None:
    """A budget as a share of the training's time; None for None.

    Args:
        budget: A number such as 0.01, or a text such as ``"1%"``; above 0 and below 1.

    Raises:
        SettingError: If it is anything else.

    Example:
        >>> share_of("0.5 %"), share_of(0.01), share_of(None)
        (0.005, 0.01, None)
    """
    if budget is None:
        return None
    share = _number(budget)
    if share is None or not 0 < share < 1:
        raise SettingError(
            f'budget must be a share of the training\'s time such as "1%" or 0.01, found {budget!r:.80}'
        )
    return share


def _number(budget: Any) -> float | None:
    """The number that is meant; None where there is none."""
    if isinstance(budget, str):
        text = budget.strip()
        if not text.endswith("%"):
            return None
        try:
            return float(text[:-1]) / 100
        except ValueError:
            return None
    return float(budget) if isinstance(budget, (int, float)) and not isinstance(budget, bool) else None


class Budget:
    """Decides how often a frame is measured, and how much of it.

    Args:
        share: The most that watching may take, over the time that training takes by itself.
        every: Steps from one frame to the next, where that is within the budget.

    Attributes:
        every: Steps from one frame to the next for now: a multiple of what was given.
        turns: In how many parts the blocks take turns; 1 for all blocks in each frame.

    Example:
        >>> budget = Budget(0.01, every=10)
        >>> budget.settle(steps=10, elapsed=30.0, training=2.0, background=0.0)  # the model was read
        >>> budget.settle(steps=10, elapsed=1.04, training=0.04, background=0.01)
        >>> budget.every, budget.turns
        (50, 2)
    """

    def __init__(self, share: float, every: int) -> None:
        """Start with what was asked for."""
        self.every = every
        self.turns = 1
        self._share = share
        self._given = every
        self._paid = self._alone = 0.0
        self._last: tuple[float, float] | None = None
        self._has_read = False
        self._costs: list[float] = []
        self._steps: list[float] = []

    @property
    def paid(self) -> float | None:
        """What watching took since the model was read, over the time that training took by itself."""
        return self._paid / self._alone if self._alone > 0 else None

    def settle(self, *, steps: int, elapsed: float, training: float, background: float) -> None:
        """Account for the time from one frame to the next, and decide when the one after it comes.

        The first time is left out: in it the model was read, and training was made ready.

        Args:
            steps: Steps in that time, at least 1.
            elapsed: How long it was, in seconds.
            training: The watch's own time in it on the training thread.
            background: And on the thread that delivers frames.
        """
        if not self._has_read:
            self._has_read = True
            return
        self._last = training, background
        self._paid += training + background
        alone = max(0.0, elapsed - training)
        self._alone += alone
        self._costs = [*self._costs, training + background][-_KEPT:]
        self._steps = [*self._steps, alone / steps][-_KEPT:]
        if (step := median(self._steps)) > 0:
            behind = min(_MOST_BEHIND, max(1.0, self._paid / (self._share * self._alone)))
            self._adapt(behind * fmean(self._costs) / (self._share * step))

    def _adapt(self, needed: float) -> None:
        """Choose spacing and turns where frames as they are would have to be ``needed`` steps apart."""
        turns = self._turns_for(needed / self._given)
        if turns != self.turns:
            needed *= self.turns / turns  # until it is measured
            self.turns, self._costs = turns, []
        times, now = max(1, math.ceil(round(needed / self._given, 6))), self.every // self._given
        if times > now or times <= now * 3 / 4:
            self.every = times * self._given

    def _turns_for(self, times: float) -> int:
        """In how many parts blocks take turns where frames come so many times more seldom than asked for."""
        if times > _WIDEST:
            return min(_MOST_TURNS, self.turns * 2)
        return max(1, self.turns // 2) if times < _WIDEST / 4 else self.turns

    def note(self) -> dict[str, Any] | None:
        """What stands in a frame of the frame before and of what was paid so far; None where none was."""
        if self._last is None or self.paid is None:
            return None
        training, background = self._last
        found: dict[str, Any] = {
            "training": round(training * 1000, 3),
            "background": round(background * 1000, 3),
            "share": round(self.paid, 6),
            "budget": self._share,
            "every": self.every,
        }
        return found | ({"turns": self.turns} if self.turns > 1 else {})

    def text(self) -> str | None:
        """What is said at the end; None where too few frames were measured to say it."""
        if self.paid is None:
            return None
        return f"watching took {self.paid:.2%} of the training's time, budget {self._share * 100:.4g}%"
