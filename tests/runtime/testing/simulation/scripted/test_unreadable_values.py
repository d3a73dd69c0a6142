"""A job does not start from values that its program can't read or does not trust, and says which they are."""

from __future__ import annotations

from typing import Any

import pytest
from simulated_jobs.scripted_job import ScriptedJob

from penstock import (
    AdvancedConfig,
    Checkpointing,
    GeneratorSource,
    JobConfig,
    KeyedProcessFunction,
    RuntimeContext,
    StreamEnvironment,
    ValueState,
)
from penstock.runtime.errors import CorruptSnapshotError, OperatorError, StateMismatchError
from penstock.runtime.graph.execution_graph import ExecutionGraph, build_execution_graph
from penstock.runtime.io.connectors.collect_sink import CollectSink, InMemoryCollector
from penstock.runtime.snapshot.storage import MemoryStorage


class Marked:
    """A value whose unpickling leaves a mark, as an attacker's would."""

    unpickled = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return leave_a_mark, ()


def leave_a_mark() -> Marked:
    Marked.unpickled += 1
    return Marked()


class Count(KeyedProcessFunction[int, tuple[int, Marked], int]):
    """Has state that needs no pickle."""

    def open(self, ctx: RuntimeContext) -> None:
        self.seen: ValueState[int] = ctx.value_state("seen", default=0)

    def process(self, value: tuple[int, Marked], ctx: RuntimeContext) -> list[int]:
        self.seen.update(self.seen.value() + 1)
        return [self.seen.value()]


def marked_records(counters: int) -> ExecutionGraph:
    env = StreamEnvironment("marked", max_parallelism=8)
    numbers = env.from_source("numbers", GeneratorSource(lambda i: (i % 5, Marked()), count=400))
    counts = numbers.key_by(lambda pair: pair[0]).process("count", Count(), parallelism=counters)
    counts.sink("out", CollectSink(InMemoryCollector()))
    return build_execution_graph(env.build())


def graph() -> ExecutionGraph:
    """Ranges, which no codec but pickle knows."""
    env = StreamEnvironment("ranges")
    numbers = env.from_source("numbers", GeneratorSource(range, count=100, rate=1_000.0))
    longest = numbers.key_by(lambda r: len(r) % 3).reduce("longest", lambda a, b: b)
    longest.sink("out", CollectSink(InMemoryCollector()))
    return build_execution_graph(env.build())


def test_values_that_can_not_be_read_are_told_with_operator_state_and_what_to_do() -> None:
    config = JobConfig(checkpointing=Checkpointing(every=1))
    storage = MemoryStorage()
    first = ScriptedJob(graph(), config, storage)
    first.run(60)
    first.complete_checkpoint()

    strict = JobConfig(checkpointing=Checkpointing(every=1), allow_pickle="records")
    message = r"operator 'longest' .*state 'reduce': .*allow_pickle=False.*or give the operator a new id"
    with pytest.raises(OperatorError, match=message) as caught:
        ScriptedJob(graph(), strict, storage, job_id="another", restore_from=first.newest_url)
    assert isinstance(caught.value.__cause__, StateMismatchError)


@pytest.mark.parametrize("counters", [2, 3])
@pytest.mark.parametrize("unaligned", [False, True])
def test_records_in_flight_are_not_unpickled_without_consent(counters: int, unaligned: bool) -> None:
    """At the same parallelism they go back into their channels as they are, at another one they are dealt."""
    storage = MemoryStorage()
    config = JobConfig(
        advanced=AdvancedConfig(credits=2, buffer_rows=2),
        checkpointing=Checkpointing(every=1, unaligned=True),
    )
    first = ScriptedJob(marked_records(2), config, storage)
    first.run(300)
    first.complete_checkpoint()
    checkpoint = first.newest
    assert checkpoint is not None
    assert any(s.channels for state in checkpoint.operators.values() for s in state.subtasks.values())
    assert Marked.unpickled > 0

    strict = Checkpointing(every=1, unaligned=unaligned)
    Marked.unpickled = 0
    message = "in-flight data of count.* can't be restored: .*pickle is not allowed here"
    with pytest.raises(CorruptSnapshotError, match=message):
        ScriptedJob(
            marked_records(counters),
            JobConfig(checkpointing=strict, allow_pickle="records"),
            storage,
            job_id="another",
            restore_from=first.newest_url,
        )
    assert Marked.unpickled == 0
