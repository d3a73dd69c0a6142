"""The next version of a function has a state more and a state less; the one in the middle stays."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from penstock import (
    DataStream,
    KeyedProcessFunction,
    ListState,
    MapState,
    RuntimeContext,
    StreamEnvironment,
    ValueState,
)

Row = tuple[int, int]


class Before(KeyedProcessFunction[int, int, Row]):
    """Keeps all numbers, and counts them."""

    numbers = ListState(int)
    count = ValueState(int, default=0)

    def process(self, value: int, ctx: RuntimeContext) -> Iterator[Row]:
        self.numbers.add(value)
        self.count.update(self.count.value() + 1)
        assert len(self.numbers) == self.count.value(), "two states of one key disagree"
        yield value, self.count.value()


class After(KeyedProcessFunction[int, int, Row]):
    """Counts them, too, and knows how often each has come since this version."""

    count = ValueState(int, default=0)
    since = MapState(int, int)

    def process(self, value: int, ctx: RuntimeContext) -> Iterator[Row]:
        self.since[value] = self.since.get(value, 0) + 1
        self.count.update(self.count.value() + 1)
        assert sum(self.since.values()) <= self.count.value(), "a new state began with something"
        yield value, self.count.value()


def make_input(random: Random) -> list[int]:
    return [random.randrange(20) for _ in range(50)]


def build(env: StreamEnvironment, numbers: list[int]) -> DataStream[Row]:
    keyed = env.from_collection("numbers", numbers, parallelism=1).key_by(lambda number: number % 4)
    return keyed.process("count", Before())


def build_again(env: StreamEnvironment, numbers: list[int]) -> DataStream[Row]:
    keyed = env.from_collection("numbers", numbers, parallelism=1).key_by(lambda number: number % 4)
    return keyed.process("count", After())


def expected(numbers: list[int]) -> list[Row]:
    counts = [0] * 4
    rows = []
    for number in numbers:
        counts[number % 4] += 1
        rows.append((number, counts[number % 4]))
    return rows
