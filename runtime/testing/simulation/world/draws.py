"""`Draws`: everything that a seed decides, in streams that do not disturb each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from penstock.runtime.state.mix64 import mix64
from penstock.runtime.testing.choices import seeded

T = TypeVar("T")

_FINE: Final = 1 << 30


class Draws:
    """A stream of choices.

    Args:
        seed: The same seed gives the same choices.

    Example:
        >>> draws = Draws(7)
        >>> [draws.between(1, 5) for _ in range(6)]
        [2, 3, 3, 3, 4, 2]
    """

    __slots__ = ("_seed", "below")

    def __init__(self, seed: int) -> None:
        self._seed = seed
        #: One of this many possibilities, counted from 0.
        self.below = seeded(seed)

    def between(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        return low + self.below(high - low + 1)

    def chance(self, probability: float) -> bool:
        """Whether something of this probability happens."""
        return self.below(_FINE) < probability * _FINE

    def real(self, low: float, high: float) -> float:
        """A number from `low` to `high`."""
        return low + (high - low) * self.below(_FINE) / _FINE

    def pick(self, possibilities: Sequence[T]) -> T:
        """One of them."""
        return possibilities[self.below(len(possibilities))]

    def stream(self, number: int) -> Draws:
        """Another stream: what is drawn from it does not depend on how much is drawn from this one."""
        return Draws(mix64(self._seed ^ mix64(number + 1)))
