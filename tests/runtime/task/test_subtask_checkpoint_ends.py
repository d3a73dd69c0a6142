"""Checkpoints of one subtask: what is committed when they are complete, and how they fail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from checkpoint_graphs import ENDLESS, MakeSubtask, barrier, counting, keyed, reading, sinking
from subtask_setup import Log, LoggingSink, ScriptedSource, SubtaskSetup, rows

from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.errors import OperatorError, StorageError
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import DiscardSink
from penstock.runtime.operators.operator import Operator, Output
from penstock.runtime.operators.source import Polled
from penstock.runtime.record.elements import (
    Batch,
    CancelCheckpointMarker,
)
from penstock.runtime.snapshot import metadata
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason
from penstock.runtime.snapshot.completed_checkpoint import CommitPermit
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.testing.manual_time import ManualClock

# -- commits ------------------------------------------------------------------------------------------------


def test_transactions_are_committed_when_their_checkpoint_is_complete(
    make_subtask: MakeSubtask, log: Log
) -> None:
    task = make_subtask(sinking(log), "sink")
    task.deliver(rows(1, 2), barrier(1), rows(3), barrier(2), rows(4))
    task.run()
    task.upload()
    assert log.calls == []
    task.subtask.notify_checkpoint_complete(1)
    task.subtask.notify_checkpoint_complete(2)
    assert log.calls == [("commit", [[1, 2]], 1), ("commit", [[3]], 2)]


def test_completion_of_a_newer_checkpoint_commits_the_older_ones_too_and_once(
    make_subtask: MakeSubtask, log: Log
) -> None:
    task = make_subtask(sinking(log), "sink")
    task.deliver(rows(1), barrier(1), rows(2), barrier(2))
    task.run()
    task.upload()
    for checkpoint_id in (2, 1, 2):
        task.subtask.notify_checkpoint_complete(checkpoint_id)
    assert log.calls == [("commit", [[1], [2]], 2)]


class Notified(Operator):
    """Logs the notices of checkpoints."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def process(self, batch: Batch) -> Iterator[Output]:
        yield batch

    def notify_checkpoint_complete(self, permit: CommitPermit) -> None:
        self._log.calls.append(permit.checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self._log.calls.append(-checkpoint_id)


@pytest.fixture
def notified(make_subtask: MakeSubtask, log: Log) -> SubtaskSetup:
    """A subtask whose operator logs the notices it gets."""
    env = StreamEnvironment("job", chaining=False)
    stream = env.from_source("source", ENDLESS).map(lambda n: n)
    object.__setattr__(stream._builder.graph.nodes[-1].operator, "factory", lambda: Notified(log))
    stream.sink("sink", DiscardSink())
    return make_subtask(env, "map-1")


def test_operators_hear_of_completed_checkpoints_in_the_order_of_their_ids(
    notified: SubtaskSetup, log: Log
) -> None:
    for checkpoint_id in (2, 1, 5, 5, 4, 6):
        notified.subtask.notify_checkpoint_complete(checkpoint_id)
    assert log.calls == [2, 5, 6]


def test_operators_hear_of_aborts_and_completions_in_the_order_in_which_they_came(
    notified: SubtaskSetup, log: Log
) -> None:
    tell = notified.subtask
    tell.notify_checkpoint_aborted(3)
    tell.notify_checkpoint_complete(1)
    tell.notify_checkpoint_aborted(2)
    tell.notify_checkpoint_aborted(5)
    tell.notify_checkpoint_complete(4)
    tell.notify_checkpoint_aborted(6)
    assert log.calls == [-3, 1, -2, -5, 4, -6]


def test_work_of_a_checkpoint_that_was_given_up_is_committed_with_the_next(
    make_subtask: MakeSubtask, log: Log
) -> None:
    task = make_subtask(sinking(log), "sink")
    task.deliver(rows(1), barrier(1))
    task.run()
    task.subtask.notify_checkpoint_aborted(1)
    task.deliver(rows(2), barrier(2))
    task.run()
    task.upload()
    assert set(task.acknowledged) == {2}
    task.subtask.notify_checkpoint_complete(2)
    assert log.calls == [("commit", [[1], [2]], 2)]


def test_abort_that_comes_after_the_completion_changes_nothing(make_subtask: MakeSubtask, log: Log) -> None:
    task = make_subtask(sinking(log), "sink")
    task.deliver(rows(1), barrier(1))
    task.run()
    task.upload()
    task.subtask.notify_checkpoint_complete(1)
    task.subtask.notify_checkpoint_aborted(1)
    task.subtask.notify_checkpoint_aborted(0)
    assert log.calls == [("commit", [[1]], 1)]


def test_completion_in_the_middle_of_a_batch_commits(make_subtask: MakeSubtask, log: Log) -> None:
    clock = ManualClock()
    env = StreamEnvironment("job")
    stream = env.from_source("source", ScriptedSource([Polled(rows(1)), Polled(rows(*range(2, 400)))]))
    stream.map(lambda n: clock.advance(0.02) or n).sink("sink", LoggingSink(log))
    task = make_subtask(env, "source", clock=clock)
    task.subtask.step()
    task.trigger(1)
    task.subtask.step()
    task.upload()
    task.subtask.step()
    task.subtask.notify_checkpoint_complete(1)
    assert log.calls == [("commit", [[1]], 1)]
    task.trigger(2)
    task.run(most_steps=1000)
    task.upload()
    task.subtask.notify_checkpoint_complete(2)
    assert log.calls[1] == ("commit", [list(range(2, 400))], 2)


# -- how checkpoints end badly ------------------------------------------------------------------------------


def test_checkpoint_that_was_given_up_before_it_began_is_cancelled_downstream(
    make_subtask: MakeSubtask,
) -> None:
    task = make_subtask(reading([Polled(rows(1)), Polled(ready_at=9.0)], lambda n: n), "source")
    task.subtask.notify_checkpoint_aborted(1)
    task.trigger(1)
    task.run_freely()
    assert task.events(0) == task.events(1) == [CancelCheckpointMarker(1)]
    assert task.runner.waiting == []


def test_cancellation_on_the_input_declines_the_checkpoint_and_goes_on(make_subtask: MakeSubtask) -> None:
    task = make_subtask(counting(), "count")
    task.deliver(rows("a"), barrier(1), rows("b"), channel=0)
    task.run_freely()
    assert "b" not in task.rows(0) + task.rows(1), "the channel is blocked"
    task.deliver(CancelCheckpointMarker(1), channel=1)
    task.run_freely()
    reason = CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER
    assert [(i, r) for i, r, _ in task.declined] == [(1, reason)]
    assert task.events(0) == task.events(1) == [CancelCheckpointMarker(1)]
    assert sorted(task.rows(0) + task.rows(1)) == ["a", "b"], "the blocked channel goes on"


def test_checkpoint_that_is_given_up_in_the_midst_of_its_alignment_is_cancelled_at_its_end(
    make_subtask: MakeSubtask,
) -> None:
    task = make_subtask(counting(), "count")
    task.deliver(rows("a"), barrier(1), rows("b"), channel=0)
    task.run_freely()
    assert "b" not in task.rows(0) + task.rows(1), "the channel waits for the other barrier"
    task.subtask.notify_checkpoint_aborted(1)
    task.deliver(barrier(1), channel=1)
    task.run_freely()
    assert task.events(0) == task.events(1) == [CancelCheckpointMarker(1)]
    assert sorted(task.rows(0) + task.rows(1)) == ["a", "b"], "the blocked channel goes on"
    assert task.runner.waiting == [], "nothing of it is uploaded"
    for channel in (0, 1):
        task.deliver(barrier(2), channel=channel)
    task.run_freely()
    task.upload()
    assert set(task.acknowledged) == {2}
    assert task.declined == []
    assert task.events(0) == task.events(1) == [CancelCheckpointMarker(1), barrier(2)]


def test_newer_barrier_replaces_an_alignment_that_will_never_end(make_subtask: MakeSubtask) -> None:
    task = make_subtask(counting(), "count")
    task.deliver(barrier(1), barrier(2), channel=0)
    task.deliver(barrier(2), channel=1)
    task.run_freely()
    task.upload()
    assert [i for i, _, _ in task.declined] == [1]
    assert set(task.acknowledged) == {2}
    assert task.events() == [CancelCheckpointMarker(1), barrier(2)]


def test_storage_that_fails_declines_the_checkpoint_and_the_next_one_holds_everything(
    make_subtask: MakeSubtask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "INLINE_LIMIT", 0)

    class Storage(MemoryStorage):
        fails = False

        def put(self, path: str, data: bytes, *, create: bool = False) -> None:
            super().put(path, data, create=create)
            if self.fails:
                msg = "the disk is full"
                raise StorageError(msg)

    storage = Storage()
    task = make_subtask(counting(1), "count", storage=storage)
    task.deliver(rows("a"), barrier(1))
    task.run_freely()
    task.upload()
    before = storage.list("")
    storage.fails = True
    task.deliver(rows("b"), barrier(2, confirmed_id=1))
    task.run_freely()
    task.upload()
    assert [(i, detail) for i, _, detail in task.declined] == [(2, "StorageError: the disk is full")]
    assert storage.list("") == before
    storage.fails = False
    task.deliver(rows("c"), barrier(3, confirmed_id=1))
    task.run_freely()
    task.upload()
    assert keyed(task, task.acknowledged[3]) == {"a": "a", "b": "b", "c": "c"}


def test_state_that_can_not_be_encoded_fails_the_task_and_names_the_operator(
    make_subtask: MakeSubtask,
) -> None:
    env = StreamEnvironment("job", max_parallelism=8)
    keyed_stream = env.from_source("source", ENDLESS).key_by(lambda row: row[0])
    keyed_stream.reduce("last", lambda a, b: object()).map(lambda _: 1).sink("sink", DiscardSink())
    config = JobConfig(checkpointing=Checkpointing(every=1), allow_pickle=False)
    task = make_subtask(env, "last", config)
    task.deliver(rows(("a", 1), ("a", 2)), barrier(1))
    with pytest.raises(OperatorError, match=r"'last' \(subtask 1 of 1\).*saving its state"):
        task.run_freely()


def test_split_that_can_not_be_encoded_names_the_source(make_subtask: MakeSubtask) -> None:
    config = JobConfig(checkpointing=Checkpointing(every=1), allow_pickle=False)

    class Split:
        pass

    class Source(ScriptedSource):
        def reader(self, context: Any, splits: Any) -> Any:
            reader = super().reader(context, [0])
            reader.snapshot = lambda: [Split()]  # type: ignore[method-assign]
            return reader

    env = StreamEnvironment("job")
    env.from_source("source", Source([Polled(ready_at=9.0)])).sink("sink", DiscardSink(), parallelism=2)
    task = make_subtask(env, "source", config)
    task.trigger(1)
    with pytest.raises(OperatorError, match=r"'source' \(subtask 1 of 1\).*saving its state.*Split"):
        task.run()


def test_statistics_tell_of_checkpoints(make_subtask: MakeSubtask, log: Log) -> None:
    task = make_subtask(sinking(log), "sink")
    task.deliver(rows(1), barrier(1))
    task.run()
    task.upload()
    checkpoints = task.subtask.statistics().checkpoints
    assert checkpoints is not None
    assert (checkpoints.taken, checkpoints.acknowledged) == (1, 1)
