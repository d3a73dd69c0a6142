"""A job whose state is in RocksDB: kills, rescales and lost uploads in the simulation change no result."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock import (
    Checkpointing,
    CollectSink,
    KeyedProcessFunction,
    ListState,
    MapState,
    RocksDB,
    RuntimeContext,
    StreamEnvironment,
    ValueState,
)
from penstock.runtime.io.connectors.collect_sink import InMemoryCollector
from penstock.testing import simulate

Result = tuple[int, int, int, int]


class Seen(KeyedProcessFunction[int, int, Result]):
    count = ValueState(int, default=0, ttl=timedelta(days=1))
    numbers = ListState(int)
    by_rest = MapState(int, int)

    def process(self, value: int, ctx: RuntimeContext) -> list[Result]:
        self.count.update(self.count.value() + 1)
        self.numbers.add(value)
        self.by_rest[value % 3] = self.by_rest.get(value % 3, 0) + 1
        if len(self.numbers) > 4:
            self.numbers.clear()
        return [(ctx.current_key, self.count.value(), len(self.numbers), sum(self.by_rest.values()))]


@pytest.mark.parametrize("unaligned", [False, True])
def test_a_job_in_rocksdb_has_the_same_results_whatever_fails(unaligned: bool) -> None:
    def build() -> tuple[StreamEnvironment, InMemoryCollector]:
        results = InMemoryCollector()
        checkpointing = Checkpointing(every=10, unaligned=unaligned)
        backend = RocksDB(8 * 1024 * 1024, "/dev/shm")
        env = StreamEnvironment(parallelism=2, checkpointing=checkpointing, state_backend=backend)
        numbers = env.from_collection("numbers", range(40)).key_by(lambda n: n % 7)
        results_of = numbers.process("seen", Seen())
        biggest = results_of.key_by(lambda r: r[0]).reduce("biggest", max)
        biggest.sink("out", CollectSink(results))
        return env, results

    def last_of_each_key(results: InMemoryCollector) -> list[Result]:
        rows = results.rows()
        return [max(row for row in rows if row[0] == key) for key in range(7)]

    report = simulate(build, output=last_of_each_key, seeds=range(4), interleavings=2)
    assert report.passed
    assert report.checkpoints > 0
