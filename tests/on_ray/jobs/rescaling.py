"""The cases of restoring at another parallelism, and their jobs.

There are thirty cases: the same number of subtasks, more and fewer, between 1 and 20. The jobs have keyed
exchanges, rebalances, unions, and operators with several inputs. The users of the table define the source of
the numbers and the sink of the counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from penstock import DataStream, StreamEnvironment
from penstock.connectors import Sink, Source

KEYS: Final = 11
Pair = tuple[int, int]
Pairs = DataStream[Pair]
#: Makes a source of the numbers from 0.
Numbers = Callable[[], Source[int]]


def itself(i: int) -> int:
    return i


def pair(i: int) -> Pair:
    return i % KEYS, 1


def key_of(given: Pair) -> int:
    return given[0]


def add(a: Pair, b: Pair) -> Pair:
    return a[0], a[1] + b[1]


# -- shapes -------------------------------------------------------------------------------------------------


def keyed(env: StreamEnvironment, numbers: Numbers, n: int) -> list[Pairs]:
    return [env.from_source("numbers", numbers(), parallelism=n).map(pair, id="pair", parallelism=n)]


def rebalanced(env: StreamEnvironment, numbers: Numbers, n: int) -> list[Pairs]:
    in_turn = env.from_source("numbers", numbers(), parallelism=n).rebalance()
    return [in_turn.map(pair, id="pair", parallelism=n)]


def union(env: StreamEnvironment, numbers: Numbers, n: int) -> list[Pairs]:
    first = env.from_source("numbers", numbers(), parallelism=n)
    both = first.union(env.from_source("more", numbers(), parallelism=n))
    return [both.map(pair, id="pair", parallelism=n)]


def several_inputs(env: StreamEnvironment, numbers: Numbers, n: int) -> list[Pairs]:
    """Forward, in turn and by key, into one operator."""
    direct = env.from_source("numbers", numbers(), parallelism=n).map(pair, id="pair", parallelism=n)
    in_turn = env.from_source("more", numbers(), parallelism=2).rebalance()
    return [direct, in_turn.map(pair, id="pair-2", parallelism=n)]


#: How the pairs are made, and how often each number is among them.
SHAPES: Final[dict[str, tuple[Callable[[StreamEnvironment, Numbers, int], list[Pairs]], int]]] = {
    "keyed": (keyed, 1),
    "rebalanced": (rebalanced, 1),
    "union": (union, 2),
    "several inputs": (several_inputs, 2),
}


# -- cases --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One case.

    Attributes:
        shape: Of the job; a key of `SHAPES`.
        old: Parallelism when the checkpoint is taken.
        new: Parallelism when it is restored.
    """

    shape: str
    old: int
    new: int

    def __str__(self) -> str:
        return f"{self.shape} {self.old} to {self.new}"

    def build(self, env: StreamEnvironment, parallelism: int, numbers: Numbers, sink: Sink[Any]) -> None:
        """Add the job to an environment: how many records each key has had, one row each time."""
        make, _ = SHAPES[self.shape]
        first, *others = make(env, numbers, parallelism)
        first.union(*others).key_by(key_of).reduce("count", add).sink("out", sink)

    def expected(self, count: int) -> Counter[Pair]:
        """Every row once, when each source makes this many numbers."""
        _, copies = SHAPES[self.shape]
        totals = Counter(i % KEYS for i in range(count))
        return Counter((key, n + 1) for key, total in totals.items() for n in range(total * copies))


_CHANGES = [(1, 1), (4, 4), (1, 2), (2, 3), (3, 7), (1, 20), (2, 1), (5, 3), (20, 6)]
CASES: Final = [
    *(Case(shape, *change) for shape in ("keyed", "rebalanced", "several inputs") for change in _CHANGES),
    *(Case("union", *change) for change in [(2, 2), (2, 5), (5, 2)]),
]
