"""Choices that look random and can be repeated: what decides the course of a simulated job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, count
from typing import Final, TypeAlias

import numpy as np

from penstock.runtime.state.mix64 import MASK64, mix64, mix64_array

#: Chooses one of this many possibilities, counted from 0.
Choose: TypeAlias = Callable[[int], int]

#: Many streams are short: so many numbers are made one by one, ...
_SINGLE: Final = 16
#: ... those behind them so many at a time, which costs a tenth for each, ...
_BLOCK: Final = 256
#: ... and of a long stream so many, which costs half of that.
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
    """Gives the next one of the numbers of 64 bits that a seed stands for (SplitMix64)."""
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
    """Chooses by these numbers."""
    return lambda possibilities: number() % possibilities
