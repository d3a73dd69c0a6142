"""A user's job is stopped with a savepoint, and a second program continues from there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from simulated_jobs.continuation import Continuation, ContinuedSimulation

from penstock import (
    Checkpointing,
    CollectSink,
    KeyedProcessFunction,
    RuntimeContext,
    StreamEnvironment,
    ValueState,
)
from penstock.runtime.io.connectors.collect_sink import InMemoryCollector
from penstock.runtime.testing.simulation.run.user_run import Course, UserRun

NUMBERS = range(40)
#: Key and number of each record of the key.
EXPECTED = [(number % 4, number // 4 + 1) for number in NUMBERS]


class InState(KeyedProcessFunction[int, int, tuple[int, int]]):
    seen = ValueState(int, default=0)

    def process(self, value: int, ctx: RuntimeContext) -> Iterator[tuple[int, int]]:
        self.seen.update(self.seen.value() + 1)
        yield ctx.current_key, self.seen.value()


class InAttribute(KeyedProcessFunction[int, int, tuple[int, int]]):
    def open(self, ctx: RuntimeContext) -> None:
        self.seen: Counter[int] = Counter()

    def process(self, value: int, ctx: RuntimeContext) -> Iterator[tuple[int, int]]:
        self.seen[ctx.current_key] += 1
        yield ctx.current_key, self.seen[ctx.current_key]


def program(function: Any, results: InMemoryCollector, parallelism: int = 2) -> StreamEnvironment:
    env = StreamEnvironment(parallelism=parallelism, checkpointing=Checkpointing(every=1))
    keyed = env.from_collection("numbers", NUMBERS, parallelism=1).key_by(lambda number: number % 4)
    keyed.process("count", function()).sink("out", CollectSink(results))
    return env


def run(function: Any, seed: int, *, drain: bool = False, with_failures: bool = False) -> UserRun:
    def build() -> tuple[StreamEnvironment, InMemoryCollector]:
        results = InMemoryCollector()
        return program(function, results), results

    continuation = Continuation(lambda results: program(function, results, 3), drain=drain, after=150)
    course = Course(seed, with_failures=with_failures)
    return ContinuedSimulation(build, lambda results: results.rows(), course, continuation).run()


@pytest.mark.parametrize("drain", [False, True])
@pytest.mark.parametrize("with_failures", [False, True])
def test_second_job_goes_on_where_the_first_one_was_stopped(drain: bool, with_failures: bool) -> None:
    done = [run(InState, seed, drain=drain, with_failures=with_failures) for seed in range(6)]
    assert [each.problem for each in done] == [""] * 6
    assert all(sorted(each.output) == sorted(EXPECTED) for each in done)
    assert sum(each.jobs > 1 for each in done) >= 2


def test_what_is_kept_outside_of_state_is_lost_between_the_jobs() -> None:
    done = [run(InAttribute, seed) for seed in range(6)]
    assert any(sorted(each.output) != sorted(EXPECTED) for each in done)
