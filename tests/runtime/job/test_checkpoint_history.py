"""The history of checkpoints over the lives of several JobMasters, with the real scheduler and log."""

from __future__ import annotations

import pytest
from prompt_runner import PromptRunner
from small_graphs import read_and_count

from penstock.runtime.checkpoint.coordinator.history import CheckpointHistory
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.graph.execution_graph import CurrentGraph
from penstock.runtime.job.scheduler import JobScheduler
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import (
    CheckpointFailureReason,
    CheckpointMetrics,
    CheckpointStatus,
    EarlierHistory,
)
from penstock.runtime.snapshot.handles import SubtaskSnapshot
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.testing.manual_time import ManualClock, ManualTimers

GRAPH = read_and_count()
SUBTASKS = tuple(subtask.id for subtask in GRAPH.subtasks)


class CountingStorage(MemoryStorage):
    """Counts what is asked of it."""

    def __init__(self):
        super().__init__()
        self.operations = 0

    def put(self, path, data, *, create=False):
        self.operations += 1
        super().put(path, data, create=create)

    def get(self, path):
        self.operations += 1
        return super().get(path)

    def list(self, prefix):
        self.operations += 1
        return super().list(prefix)

    def delete(self, paths):
        self.operations += 1
        super().delete(paths)


class Cluster:
    """Remembers the newest checkpoint."""

    checkpoint_id = -1

    def trigger_checkpoint(self, attempt, subtasks, barrier):
        self.checkpoint_id = barrier.checkpoint_id

    def __getattr__(self, name):
        return lambda *_: None


class Master:
    """A JobMaster's scheduler; several share a storage, one after the other."""

    def __init__(self, storage, *, earlier=None, retain=1):
        self.cluster, self.runner, self.clock = Cluster(), PromptRunner(), ManualClock()
        config = JobConfig(checkpointing=Checkpointing(every=1e6, retain=retain, tolerable_failures=None))
        timers = ManualTimers(self.clock)
        self.scheduler = JobScheduler(
            "job", CurrentGraph(GRAPH), config, self.cluster, storage, self.clock, timers, self.runner
        )
        if earlier is not None:
            self.scheduler.recall(earlier)
        self.scheduler.start()
        self.runner.run_all()
        timers.advance(600)  # as long as a restart may be put off
        self.runner.run_all()
        self.scheduler.on_deployed(self.scheduler.attempt)
        self.scheduler.on_started(self.scheduler.attempt)

    def trigger(self, kind=SnapshotKind.CHECKPOINT):
        self.scheduler.trigger_checkpoint(kind)
        return self.cluster.checkpoint_id

    def complete(self, kind=SnapshotKind.CHECKPOINT, meanwhile=lambda: None):
        checkpoint_id = self.trigger(kind)
        meanwhile()
        for subtask in SUBTASKS:
            self.scheduler.acknowledge(
                self.scheduler.attempt, subtask, checkpoint_id, SubtaskSnapshot(), measured(subtask)
            )
        self.runner.run_all()
        return checkpoint_id

    def decline(self):
        checkpoint_id, reason = self.trigger(), CheckpointFailureReason.CHECKPOINT_DECLINED
        self.scheduler.decline(self.scheduler.attempt, SUBTASKS[0], checkpoint_id, reason, "no disk")

    def told(self):
        """The last that it said, as the job's record keeps it."""
        status = self.scheduler.statistics()
        return EarlierHistory(status.checkpoint_history, status.checkpoints)

    def counts(self):
        known = self.scheduler.statistics().checkpoints
        return known.triggered, known.completed, known.failed


def measured(subtask: SubtaskId) -> CheckpointMetrics:
    return CheckpointMetrics(0.001, 0.5 + subtask.index, 0.25, 0.125, 10, 100, 1)


def rows(details):
    return {subtask: details.subtasks[subtask] for subtask in SUBTASKS if subtask in details.subtasks}


ALL_ROWS = {subtask: measured(subtask) for subtask in SUBTASKS}


def test_retained_checkpoints_keep_their_rows_when_another_job_master_takes_over():
    storage = MemoryStorage()
    first = Master(storage, retain=2)
    for _ in range(3):
        first.complete()
    second = Master(storage, retain=2)
    assert [(d.record.checkpoint_id, rows(d)) for d in second.scheduler.checkpoints()] == [
        (2, ALL_ROWS),
        (3, ALL_ROWS),
    ]
    assert second.counts() == (3, 3, 0)
    assert second.scheduler.statistics().checkpoints.latest_completed_id == 3


def test_with_the_last_record_of_the_job_the_others_are_known_too():
    storage = MemoryStorage()
    first = Master(storage)
    first.complete()
    first.decline()
    first.complete()
    first.trigger()
    second = Master(storage, earlier=first.told())
    found = second.scheduler.checkpoints()
    assert [(d.record.checkpoint_id, d.record.status.value, rows(d)) for d in found] == [
        (1, "completed", {}),
        (2, "failed", {}),
        (3, "completed", ALL_ROWS),
        (4, "failed", {}),
    ]
    assert [d.record.detail for d in found][1::2] == [f"{SUBTASKS[0]}: no disk", "the JobMaster died"]
    assert second.counts() == (4, 2, 2)


def test_the_history_goes_on_over_several_lives():
    storage = MemoryStorage()
    master = Master(storage)
    for _ in range(3):
        master.complete()
        master.trigger()
        master = Master(storage, earlier=master.told())
    assert master.counts() == (6, 3, 3)
    ids = [
        (r.checkpoint_id, r.attempt, r.status.value) for r in master.scheduler.statistics().checkpoint_history
    ]
    assert ids == [
        (1, 1, "completed"),
        (2, 1, "failed"),
        (3, 2, "completed"),
        (4, 2, "failed"),
        (5, 3, "completed"),
        (6, 3, "failed"),
    ]


def test_a_savepoint_keeps_its_rows_too():
    storage = MemoryStorage()
    first = Master(storage)
    first.complete()
    saved = first.complete(SnapshotKind.SAVEPOINT)
    [_, details] = Master(storage).scheduler.checkpoints()
    assert (details.record.checkpoint_id, details.record.kind) == (saved, SnapshotKind.SAVEPOINT)
    assert rows(details) == ALL_ROWS


def test_what_it_costs_is_no_operation_of_the_storage(monkeypatch):
    def operations_of_a_life():
        storage = CountingStorage()
        master = Master(storage)
        for _ in range(3):
            master.complete()
        master = Master(storage, earlier=master.told())
        master.scheduler.checkpoints()
        return storage.operations

    with_statistics = operations_of_a_life()
    with monkeypatch.context() as patch:
        patch.setattr(CheckpointHistory, "completing", lambda self, duration, metrics: None)
        assert operations_of_a_life() == with_statistics


@pytest.mark.parametrize("is_told", [True, False])
def test_the_record_of_a_checkpoint_is_the_same_before_and_after(is_told):
    storage = MemoryStorage()
    first = Master(storage)
    first.complete()
    [before] = first.scheduler.statistics().checkpoint_history
    [after] = (
        Master(storage, earlier=first.told() if is_told else None).scheduler.statistics().checkpoint_history
    )
    assert after == before
    assert after.status is CheckpointStatus.COMPLETED


@pytest.mark.parametrize("is_told", [True, False])
def test_a_wall_clock_that_is_set_back_shortens_no_checkpoint(is_told):
    storage = MemoryStorage()
    first = Master(storage)

    def two_seconds_pass():
        first.clock.advance(2.0)
        first.clock.set_wall_clock(first.clock.now() - 3_600)

    first.complete(meanwhile=two_seconds_pass)
    second = Master(storage, earlier=first.told() if is_told else None)
    for master in (first, second):
        [record] = master.scheduler.statistics().checkpoint_history
        assert record.duration == 2.0
        assert master.scheduler.statistics().checkpoints.latest_duration == 2.0
