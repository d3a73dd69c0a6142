"""Rates from two runs of different size, and their comparison between systems."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from measure import rows_a_second

from .report import Ended

#: Seconds by which the larger run must take longer than the smaller one.
SHORTEST = 0.2


@dataclass(frozen=True)
class Rate:
    """The steady rate of a query. Both runs include start and warm-up, so the difference excludes them.

    Attributes:
        sizes: Events of both runs.
        rate: Events per second; `None` if the runs are too short.
        by_core: Events per processor second of all processes; `None` if the runs are too short.
        start: Seconds of the smaller run, minus those of its events; `None` without a rate.
    """

    sizes: tuple[int, int]
    rate: float | None
    by_core: float | None
    start: float | None

    def shown(self) -> list[str]:
        """The fields for a table."""
        sizes = f"{self.sizes[0]:,} and {self.sizes[1]:,}"
        rate, by_core = (
            "too short" if each is None else rows_a_second(each) for each in (self.rate, self.by_core)
        )
        return [sizes, rate, by_core, "" if self.start is None else f"{self.start:.1f} s"]


def rate_of(small: Ended, large: Ended) -> Rate:
    """The rate of a query that has run over two numbers of events.

    Example:
        >>> rate_of(Ended("q", 100, 3.0, 2.0), Ended("q", 300, 4.0, 6.0))
        Rate(sizes=(100, 300), rate=200.0, by_core=50.0, start=2.5)
    """
    more = large.count - small.count
    seconds, busy = large.seconds - small.seconds, large.busy - small.busy
    rate = more / seconds if seconds >= SHORTEST else None
    start = None if rate is None else max(small.seconds - small.count / rate, 0.001)
    return Rate((small.count, large.count), rate, more / busy if busy >= SHORTEST else None, start)


def rates_of(ended: Sequence[Ended]) -> Mapping[str, Rate]:
    """The rates of all queries that have run twice."""
    runs: dict[str, list[Ended]] = {}
    for each in ended:
        if each.failure is None:
            runs.setdefault(each.query, []).append(each)
    return {query: rate_of(*pair) for query, pair in runs.items() if len(pair) == 2}


def failures_of(ended: Sequence[Ended]) -> Mapping[str, str]:
    """The reasons why a system can't run queries, by query."""
    return {each.query: each.failure for each in ended if each.failure is not None}


def geometric_mean(values: Iterable[float]) -> float:
    """The geometric mean of positive numbers.

    Example:
        >>> geometric_mean([1.0, 4.0])
        2.0
    """
    logarithms = [math.log(value) for value in values]
    return math.exp(sum(logarithms) / len(logarithms))
