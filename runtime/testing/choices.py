"""Choices that look random and can be repeated: what decides the course of a simulated job."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TypeAlias

from penstock.runtime.state.mix64 import mix64

#: Chooses one of this many possibilities, counted from 0.
Choose: TypeAlias = Callable[[int], int]


def seeded(seed: int) -> Choose:
    """Choices that are the same for the same seed (SplitMix64).

    Example:
        >>> choose = seeded(1)
        >>> [choose(10) for _ in range(8)]
        [8, 5, 7, 5, 5, 6, 8, 4]
    """
    numbers = count(mix64(seed))
    return lambda possibilities: mix64(next(numbers)) % possibilities
