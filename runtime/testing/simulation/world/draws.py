"""`Draws`: all choices of a seed, in independent streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, count
from typing import Final, TypeAlias, TypeVar

import numpy as np

from penstock.runtime.state.stable_hash import MASK64, mix64, mix64_array

#: Chooses one of this many possibilities, counted from 0.
Choose: TypeAlias = Callable[[int], int]

#: Many streams are short: this many numbers are made one by one, ...
_SINGLE: Final = 16
#: ... the next ones in blocks of this size, which costs a tenth for each, ...
_BLOCK: Final = 256
#: ... and in a long stream in blocks of this size, which costs half of that.
_LARGE_BLOCK: Final = 2048

_OFFSETS: Final = np.arange(_LARGE_BLOCK, dtype=np.uint64)


def seeded(seed: int) -> Choose:
    """Choices that are the same for the same seed.

    Example:
        >>> choose = seeded(1)
        >>> [choose(10) for _ in range(8)]
        [8, 5, 7, 5, 5, 6, 8, 4]
    """
    return chooser(scattered(seed))


def scattered(seed: int) -> Callable[[], int]:
    """Return a function that generates the 64-bit numbers of a seed (SplitMix64)."""
    first = mix64(seed)
    behind = first + _SINGLE
    singles, blocks = map(mix64, range(first, behind)), chain.from_iterable(_blocks(behind))
    return chain(singles, blocks).__next__


def _blocks(first: int) -> Iterator[list[int]]:
    yield _block(first, _BLOCK)
    for following in count(first + _BLOCK, _LARGE_BLOCK):
        yield _block(following, _LARGE_BLOCK)


def _block(first: int, size: int) -> list[int]:
    scattered: list[int] = mix64_array(_OFFSETS[:size] + np.uint64(first & MASK64)).tolist()
    return scattered


def chooser(number: Callable[[], int]) -> Choose:
    return lambda possibilities: number() % possibilities


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

    __slots__ = ("_next", "_seed", "below")

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._next = scattered(seed)
        #: One of this many possibilities, counted from 0.
        self.below = chooser(self._next)

    def between(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        return low + self.below(high - low + 1)

    def chance(self, probability: float) -> bool:
        return self._next() % _FINE < probability * _FINE

    def real(self, low: float, high: float) -> float:
        """A number from `low` to `high`."""
        return low + (high - low) * (self._next() % _FINE) / _FINE

    def pick(self, possibilities: Sequence[T]) -> T:
        return possibilities[self.below(len(possibilities))]

    def stream(self, number: int) -> Draws:
        """Another stream, whose choices don't depend on the number of draws from this one."""
        return Draws(mix64(self._seed ^ mix64(number + 1)))
