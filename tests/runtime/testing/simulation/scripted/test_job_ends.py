"""Operators that emit at the end of their data, and jobs that are restored from a checkpoint behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from random import Random
from typing import Any, Literal

import pytest
from simulated_jobs.scripted_job import ScriptedJob

from penstock.runtime.checkpoint.coordinator.plan import SubtaskStatus
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import AdvancedConfig, JobConfig
from penstock.runtime.graph.execution_graph import ExecutionGraph, build_execution_graph
from penstock.runtime.graph.job_graph import JobGraph
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import CollectSink, InMemoryCollector
from penstock.runtime.io.connectors.generator_source import GeneratorSource
from penstock.runtime.operators.operator import Operator, OperatorContext, Output, SavedList
from penstock.runtime.record.elements import Batch, RowBatch
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.task.end_of_input import Phase

CONFIG = JobConfig(checkpointing=Checkpointing(every=1), advanced=AdvancedConfig(buffer_rows=5, credits=3))


class SumAtEnd(Operator):
    """Adds numbers up; emits the sum at the end of its data, and that it was opened, for the test to see."""

    opened = 0

    def open(self, context: OperatorContext) -> None:
        type(self).opened += 1
        self._sum = sum(context.restored.get("sum", [0]))

    def process(self, batch: Batch) -> Iterator[Output]:
        assert isinstance(batch, RowBatch)
        self._sum += sum(batch.rows)
        return iter(())

    def end_of_data(self) -> Iterator[Output]:
        yield RowBatch([("sum", self._sum)])

    def snapshot(self, checkpoint_id: int) -> Mapping[str, SavedList]:
        return {"sum": SavedList([self._sum])}


def sums(
    target: InMemoryCollector, counts: list[int], parallelism: int = 2, *, chaining: bool = False
) -> ExecutionGraph:
    """Sources of this many numbers, each of them summed up; what comes out is written by one sink."""
    env = StreamEnvironment("sums", parallelism=parallelism, chaining=chaining)
    streams = [
        env.from_source(f"numbers-{n}", GeneratorSource(lambda i: i, count=count), parallelism=1).map(
            lambda i: i, parallelism=parallelism
        )
        for n, count in enumerate(counts)
    ]
    streams[0].union(*streams[1:]).sink("out", CollectSink(target), parallelism=1)
    return build_execution_graph(with_sums(env.build()))


def with_sums(job: JobGraph) -> JobGraph:
    """The job with `SumAtEnd` in the place of its maps: the API has no operator that emits at the end."""

    def exchange(spec: Any) -> Any:
        return replace(spec, factory=SumAtEnd, stateful=True) if spec.id.startswith("map") else spec

    vertices = tuple(replace(v, operators=tuple(map(exchange, v.operators))) for v in job.vertices)
    return replace(job, vertices=vertices)


def until_all_have_ended(job: ScriptedJob, vertex_prefix: str = "") -> None:
    while not all(t.has_ended for t in job.tasks.values() if t.id.vertex.startswith(vertex_prefix)):
        assert job.move()


def total(target: InMemoryCollector) -> tuple[int, int]:
    """Number of committed sums, and their total."""
    return len(target.rows()), sum(value for _, value in target.rows())


@pytest.mark.parametrize("seed", range(10))
def test_sums_are_emitted_once_although_the_job_crashes_behind_its_last_checkpoint(seed: int) -> None:
    target = InMemoryCollector()
    job = ScriptedJob(sums(target, [50]), CONFIG, MemoryStorage(), seed)
    until_all_have_ended(job)
    job.complete_checkpoint()
    opened = SumAtEnd.opened
    job.crash()
    assert SumAtEnd.opened == opened, "operators that have finished are not even opened"
    job.finish()
    assert total(target) == (2, sum(range(50)))
    assert job.statistics().completed == 1, "nothing was left to be covered"
    assert job.statistics().attempts == 2


def test_transactions_that_the_crash_kept_from_being_committed_are_committed_by_the_restart() -> None:
    target = InMemoryCollector()
    job = ScriptedJob(sums(target, [50]), CONFIG, MemoryStorage())
    until_all_have_ended(job)
    job.until(lambda: job.newest is not None, "the last checkpoint")
    assert total(target) == (0, 0), "complete, and nobody has been told"
    job.crash()
    job.finish()
    assert total(target) == (2, sum(range(50)))


@pytest.mark.parametrize("seed", range(10))
def test_a_finished_branch_stays_finished_while_the_other_goes_on(seed: int) -> None:
    target = InMemoryCollector()
    job = ScriptedJob(sums(target, [10, 3000]), CONFIG, MemoryStorage(), seed)
    until_all_have_ended(job, "numbers-0")
    until_all_have_ended(job, "map-1")
    job.complete_checkpoint()
    for _ in range(3):
        job.run(30)
        job.crash()
        job.run(200)
        assert job.trigger_checkpoint() is not None, "what had finished has left: checkpoints go on"
        job.crash()
    job.finish()
    assert total(target) == (4, sum(range(10)) + sum(range(3000)))


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_finished_branch_stays_finished_at_another_parallelism(parallelism: int) -> None:
    target = InMemoryCollector()
    job = ScriptedJob(sums(target, [10, 3000]), CONFIG, MemoryStorage())
    until_all_have_ended(job, "numbers-0")
    until_all_have_ended(job, "map-1")
    job.complete_checkpoint()
    job.crash(sums(target, [10, 3000], parallelism))
    job.finish()
    assert total(target) == (2 + parallelism, sum(range(10)) + sum(range(3000)))


@pytest.mark.parametrize("seed", range(10))
def test_without_alignment_nothing_is_lost_when_a_receiver_ends_early(seed: int) -> None:
    """A subtask may end between a sender's barrier and its own snapshot; its sender will send again."""
    target = InMemoryCollector()
    mode: Literal["at_least_once"] = "at_least_once"
    config = JobConfig(
        checkpointing=Checkpointing(every=1, mode=mode), advanced=AdvancedConfig(buffer_rows=5, credits=1)
    )
    random = Random(seed)
    job = ScriptedJob(sums(target, [8, 8]), config, MemoryStorage(), random.randrange(1 << 32))
    for _ in range(4):
        while not any(task.has_ended for task in job.tasks.values()) and not job.is_finished:
            assert job.move()
            if not job.running:
                job.trigger_checkpoint()
        job.run(random.randrange(120))
        if not job.is_finished:
            job.crash()
    job.finish()
    assert total(target)[1] >= 2 * sum(range(8))


def test_a_savepoint_that_stops_the_job_does_not_say_that_it_has_finished() -> None:
    target = InMemoryCollector()
    job = ScriptedJob(sums(target, [10, 3000]), CONFIG, MemoryStorage())
    until_all_have_ended(job, "numbers-0")
    until_all_have_ended(job, "map-1")
    job.stop_with_savepoint("memory:/saved")
    assert job.newest is not None
    assert not any(state.finished for state in job.newest.operators.values())


def test_a_subtask_that_had_finished_leaves_by_itself() -> None:
    target = InMemoryCollector()
    job = ScriptedJob(sums(target, [10, 3000], chaining=True), CONFIG, MemoryStorage())
    until_all_have_ended(job, "numbers-0")
    job.complete_checkpoint()
    job.crash()
    first = job.tasks[SubtaskId("numbers-0", 0)]
    while not first.is_finished:
        assert job.move()
    assert first.subtask.phase is Phase.FINISHED
    assert not job.is_finished


def test_the_job_ends_although_a_finished_subtask_dies_before_its_last_answers_arrive() -> None:
    target = InMemoryCollector()
    job = ScriptedJob(sums(target, [10]), CONFIG, MemoryStorage())
    until_all_have_ended(job)
    job.complete_checkpoint()
    sink = job.tasks[SubtaskId("out", 0)]
    senders = [task for task in job.tasks.values() if task.id.vertex.startswith("map")]
    status = job.scheduler._job.planner.status
    job.until(lambda: status[sink.id] is SubtaskStatus.FINISHED, "the end of the sink, in the JobMaster")
    assert not any(sender.is_finished for sender in senders), "its answers are on their way"
    job.lose_process(sink.id)
    job.finish()
    assert total(target) == (2, sum(range(10)))
    assert job.statistics().attempts == 1, "nothing was missing, so nothing is restarted"
