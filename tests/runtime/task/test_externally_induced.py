"""A reader that decides by its data when a checkpoint is taken."""

from __future__ import annotations

from typing import Any

import pytest
from simulated_jobs.scripted_job import ScriptedJob

from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.graph.collection_source import CollectionReader, CollectionSource
from penstock.runtime.graph.execution_graph import build_execution_graph
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import CollectSink
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.metadata import decode_atoms, read_state
from penstock.runtime.snapshot.storage import MemoryStorage


class MarkedReader(CollectionReader[int]):
    """Gives one number a poll; marks stand behind numbers."""

    def __init__(self, values: Any, splits: Any, marks: dict[int, int]) -> None:
        super().__init__(values, splits)
        self.marks = marks
        self.last: int | None = None

    def poll(self, max_rows: int) -> Any:
        polled = super().poll(1)
        self.last = None if polled.batch is None else polled.batch.rows[-1]
        return polled

    def should_trigger_checkpoint(self) -> int | None:
        return None if self.last is None else self.marks.pop(self.last, None)


class Marked(CollectionSource[int]):
    """Numbers with marks among them, which a test sets."""

    def __init__(self, count: int) -> None:
        super().__init__(range(count))
        self.marks: dict[int, int] = {}

    def reader(self, context: Any, splits: Any) -> MarkedReader:
        return MarkedReader(self._values, splits, self.marks)


class Rows:
    """The target of the numbers."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def add(self, key: Any, rows: Any) -> None:
        self.rows += rows


def marked_job(count: int, seed: int = 0) -> tuple[ScriptedJob, Marked, Rows]:
    source, target = Marked(count), Rows()
    env = StreamEnvironment("marked")
    env.from_source("numbers", source).sink("out", CollectSink(target))
    config = JobConfig(checkpointing=Checkpointing(every=10))
    job = ScriptedJob(build_execution_graph(env.build()), config, MemoryStorage(), seed)
    return job, source, target


def position(job: ScriptedJob) -> list[Any]:
    """The splits that are left to read in the newest checkpoint."""
    assert job.newest is not None
    [handle] = job.newest.operators["numbers"].subtasks[0].operator
    atoms = decode_atoms(read_state(job.storage, handle.state), "splits")
    return [ValueCodec().loads(atom) for atom in atoms]


def until(job: ScriptedJob, reached: Any) -> None:
    for _ in range(10_000):
        if reached():
            return
        assert job.move()
    raise AssertionError("not reached")


def test_the_checkpoint_is_taken_at_the_mark_and_not_when_it_is_asked_for() -> None:
    for seed in range(10):
        job, source, _ = marked_job(50, seed)
        source.marks[29] = 1
        assert job.trigger_checkpoint() == 1
        until(job, lambda job=job: job.newest is not None)
        assert position(job) == [(30, 50)]


def test_a_mark_that_is_met_first_stops_the_reader_until_the_checkpoint_is_asked_for() -> None:
    job, source, _ = marked_job(50)
    source.marks[9] = 1
    job.run(500)
    job.trigger_checkpoint()
    until(job, lambda: job.newest is not None)
    assert position(job) == [(10, 50)]


def test_a_checkpoint_that_is_given_up_lets_the_reader_go_on() -> None:
    job, source, target = marked_job(50)
    source.marks[9] = 2
    job.trigger_checkpoint()
    job.run(500)
    job.give_up_checkpoint(1)
    job.run(20)
    job.trigger_checkpoint()
    until(job, lambda: job.newest is not None)
    assert position(job) == [(10, 50)]
    job.finish()
    assert target.rows == list(range(50))


def test_the_mark_of_a_checkpoint_that_is_past_stops_nobody_for_long() -> None:
    job, source, _ = marked_job(50)
    source.marks |= {9: 1, 19: 2}
    job.trigger_checkpoint()
    job.give_up_checkpoint(1)
    job.run(500)
    job.trigger_checkpoint()
    until(job, lambda: job.newest is not None)
    assert position(job) == [(20, 50)]


@pytest.mark.parametrize("seed", range(5))
def test_the_mark_of_an_aborted_checkpoint_that_is_met_after_the_abort_stops_nobody(seed: int) -> None:
    job, source, target = marked_job(50, seed)
    source.marks[45] = 1
    assert job.trigger_checkpoint() == 1
    job.give_up_checkpoint(1)
    job.until_told()
    assert 45 in source.marks, "the mark was met before the abort: the test proves nothing"
    job.finish()
    assert target.rows == list(range(50))


@pytest.mark.parametrize("seed", range(5))
def test_a_mark_from_before_a_restart_stops_nobody(seed: int) -> None:
    job, source, target = marked_job(50, seed)
    assert job.trigger_checkpoint() == 1
    job.crash()
    source.marks[9] = 1  # what was read before the restart is read again
    job.finish()
    assert target.rows == list(range(50))


@pytest.mark.parametrize("drain", [False, True])
def test_a_job_that_is_stopped_with_a_savepoint_reads_to_its_mark_and_no_further(drain: bool) -> None:
    job, source, target = marked_job(50)
    source.marks[29] = 1
    job.stop_with_savepoint("memory:/saved", drain=drain)
    assert job.statistics().completed == 1
    assert position(job) == [(30, 50)]
    assert target.rows == list(range(30))


def test_when_the_data_has_ended_checkpoints_are_taken_without_marks() -> None:
    job, _, target = marked_job(5)
    job.finish()
    assert target.rows == list(range(5))
