"""Declared state of every kind under the faults that the simulation draws."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from deep import DEEP

from penstock import (
    AggregateFunction,
    AggregatingState,
    Checkpointing,
    CollectSink,
    KeyedProcessFunction,
    ListState,
    MapState,
    ReducingState,
    RuntimeContext,
    StreamEnvironment,
    ValueState,
)
from penstock.runtime.io.connectors.collect_sink import InMemoryCollector
from penstock.testing import simulate

COUNT = 60


class Sum(AggregateFunction[int, int, int]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return accumulator + value

    def get_result(self, accumulator: int) -> int:
        return accumulator


class Everything(KeyedProcessFunction[int, int, tuple[Any, ...]]):
    """Emits what its states hold; some records clear one of them, or take something out of it."""

    last = ValueState(int, default=-1)
    waiting = ListState(int)
    counts = MapState(int, int)
    highest = ReducingState(max, int)
    total = AggregatingState(Sum())

    def process(self, value: int, ctx: RuntimeContext) -> Iterator[tuple[Any, ...]]:
        before = self.last.value()
        self.last.update(value)
        self.waiting.add(value)
        self.counts[value % 3] = self.counts.get(value % 3, 0) + 1
        self.highest.add(value % 7)
        self.total.add(value)
        yield (
            value,
            before,
            self.waiting.get(),
            sorted(self.counts.items()),
            self.highest.get(),
            self.total.get(),
        )
        if len(self.waiting) == 4:
            self.waiting.update(self.waiting.get()[2:])
        if value % 11 == 0:
            self.last.clear()
            self.highest.clear()
        if value % 13 == 0:
            self.counts.pop(1, None)
            self.total.clear()


def build() -> tuple[StreamEnvironment, Any]:
    results = InMemoryCollector()
    env = StreamEnvironment("declared", parallelism=2, checkpointing=Checkpointing(every=60))
    keyed = env.from_collection("numbers", range(COUNT), parallelism=1).key_by(lambda n: n % 5)
    keyed.process("everything", Everything()).sink("out", CollectSink(results))
    return env, results


@pytest.mark.simulation
def test_every_kind_of_declared_state_is_exactly_once_under_failures_and_rescales() -> None:
    report = simulate(build, output=lambda world: world.rows(), seeds=range(16 * DEEP), interleavings=2)
    assert report.passed, report
    assert report.restarts > 10
