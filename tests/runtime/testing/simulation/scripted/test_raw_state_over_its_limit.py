"""Raw state over its limit costs a job the checkpoint, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from simulated_jobs.scripted_job import JobStuckError, ScriptedJob

from penstock import AdvancedConfig, Checkpointing, CollectSink, GeneratorSource, JobConfig, StreamEnvironment
from penstock.operators import Operator, OperatorContext, RowBatch
from penstock.runtime.graph.execution_graph import build_execution_graph
from penstock.runtime.io.connectors.collect_sink import InMemoryCollector
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.state import RawState

COUNT, LIMIT = 200, 100
CONFIG = JobConfig(checkpointing=Checkpointing(every=1), advanced=AdvancedConfig(max_raw_state_bytes=LIMIT))


class Keeps(Operator):
    """Keeps a byte of each row until a checkpoint has failed."""

    def open(self, context: OperatorContext) -> None:
        self.kept = b"".join(context.raw.operator)

    def process(self, batch: RowBatch) -> Iterator[RowBatch]:
        self.kept += bytes(len(batch))
        yield batch

    def snapshot_raw(self, checkpoint_id: int) -> RawState:
        return RawState([self.kept])

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self.kept = b""


def test_the_checkpoint_fails_by_the_name_of_the_operator_and_the_job_goes_on() -> None:
    rows = InMemoryCollector()
    env = StreamEnvironment("keeping")
    numbers = env.from_source("numbers", GeneratorSource(lambda i: i, count=COUNT, rate=1_000.0))
    numbers.rebalance().transform("keeps", Keeps()).sink("out", CollectSink(rows))
    job = ScriptedJob(build_execution_graph(env.build()), CONFIG, MemoryStorage())
    job.complete_checkpoint()
    job.until(lambda: job.subtask("keeps").statistics().records_in > LIMIT, "too many rows")

    with pytest.raises(JobStuckError, match="did not complete"):
        job.complete_checkpoint()

    failed = job.scheduler.statistics().checkpoint_history[-1]
    assert failed.failure is CheckpointFailureReason.CHECKPOINT_DECLINED
    assert failed.detail.startswith("keeps[0]: StorageError: the raw state of operator 'keeps' has ")
    assert "more than the 100 of AdvancedConfig(max_raw_state_bytes=...). Raise the limit, " in failed.detail
    job.finish()
    assert sorted(rows.rows()) == list(range(COUNT))
    assert job.scheduler.statistics().restarts == 0
