"""Raw state over its limit in whole jobs: the checkpoint fails by name, and output is exactly once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from simulated_jobs.scripted_job import ScriptedJob

from penstock import (
    AdvancedConfig,
    Checkpointing,
    CollectSink,
    FixedDelay,
    GeneratorSource,
    JobConfig,
    NoRestart,
    StreamEnvironment,
)
from penstock.operators import Operator, OperatorContext, RowBatch
from penstock.runtime.graph.execution_graph import ExecutionGraph, build_execution_graph
from penstock.runtime.io.connectors.collect_sink import InMemoryCollector
from penstock.runtime.job.job_state import JobState
from penstock.runtime.snapshot.checkpoint_record import CheckpointRecord, CheckpointStatus
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.testing.simulation.cluster.master import SimulatedJob
from penstock.runtime.testing.simulation.run.simulated_run import SimulatedRun
from penstock.runtime.testing.simulation.world.agenda import Draws, draw_conditions
from penstock.runtime.testing.simulation.world.world import World
from penstock.state import RawState

COUNT, LIMIT = 200, 500
SMALL = AdvancedConfig(max_raw_state_bytes=LIMIT)
TOO_LARGE = (
    r"the raw state of operator 'hoards' has [\d,]+ bytes, more than the 500 of .*max_raw_state_bytes=\.\.\."
)


class Hoards(Operator):
    """Keeps ten bytes for each row; it may drop them when a checkpoint is given up."""

    def __init__(self, *, drops: bool) -> None:
        self.drops = drops

    def open(self, context: OperatorContext) -> None:
        self.pieces = list(context.raw.operator)

    def process(self, batch: RowBatch) -> Iterator[RowBatch]:
        self.pieces += [b"%10d" % number for number in batch.rows]
        yield batch

    def snapshot_raw(self, checkpoint_id: int) -> RawState:
        return RawState(self.pieces)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        if self.drops:
            self.pieces = []


def hoarding(rows: InMemoryCollector, *, drops: bool) -> ExecutionGraph:
    env = StreamEnvironment("hoarding")
    numbers = env.from_source("numbers", GeneratorSource(lambda i: i, count=COUNT, rate=1_000.0))
    numbers.rebalance().transform("hoards", Hoards(drops=drops)).sink("out", CollectSink(rows))
    return build_execution_graph(env.build())


def test_the_checkpoint_fails_by_name_and_the_job_goes_on_with_what_it_had_committed() -> None:
    rows = InMemoryCollector()
    config = JobConfig(checkpointing=Checkpointing(every=1), advanced=SMALL)
    job = ScriptedJob(hoarding(rows, drops=True), config, MemoryStorage())
    job.until(lambda: job.subtask("hoards").statistics().records_in > 5, "some rows")
    job.complete_checkpoint()
    committed = rows.rows()
    assert 0 < len(committed) < LIMIT // 10
    job.until(lambda: job.subtask("hoards").statistics().records_in > COUNT // 2, "more rows")

    checkpoint_id = job.trigger_checkpoint()

    def record() -> CheckpointRecord:
        history = job.scheduler.statistics().checkpoint_history
        return next(each for each in history if each.checkpoint_id == checkpoint_id)

    job.until(lambda: record().status is CheckpointStatus.FAILED, "the failure of the checkpoint")
    assert rows.rows() == committed, "nothing of it is committed"
    assert re.search(TOO_LARGE, record().detail)
    job.finish()
    assert job.statistics().attempts == 1
    assert sorted(rows.rows()) == list(range(COUNT))


def run_to_end(rows: InMemoryCollector, seed: int, *, drops: bool, restart: Any) -> tuple[JobState, str]:
    """A job that tolerates one failed checkpoint in a row."""
    checkpointing = Checkpointing(every=0.02, tolerable_failures=1)
    world = World(seed, draw_conditions(Draws(seed).stream(3)), None)
    config = JobConfig(checkpointing=checkpointing, restart=restart, advanced=SMALL)
    job = SimulatedJob("hoarding", hoarding(rows, drops=drops), config)
    return SimulatedRun(world, job).run_to_end()


@pytest.mark.parametrize("seed", range(3))
def test_a_job_that_tolerates_no_more_failures_fails_by_name_and_has_committed_nothing_twice(
    seed: int,
) -> None:
    rows = InMemoryCollector()
    state, cause = run_to_end(rows, seed, drops=False, restart=NoRestart())
    assert state is JobState.FAILED
    assert re.search(TOO_LARGE, cause)
    committed = rows.rows()
    assert sorted(committed) == list(range(len(committed)))
    assert 0 < len(committed) <= LIMIT // 10


@pytest.mark.parametrize("seed", range(3))
def test_a_job_that_restarts_over_it_comes_to_its_end_with_each_row_once(seed: int) -> None:
    rows = InMemoryCollector()
    state, cause = run_to_end(rows, seed, drops=True, restart=FixedDelay(attempts=50, delay=0.01))
    assert state is JobState.FINISHED, cause
    assert sorted(rows.rows()) == list(range(COUNT))
