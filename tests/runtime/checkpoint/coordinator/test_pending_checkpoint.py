"""A pending checkpoint's life; Flink's own cases are in `tests/conformance`."""

import pytest

from penstock.runtime.checkpoint.coordinator.pending_checkpoint import PendingCheckpoint
from penstock.runtime.checkpoint.coordinator.pending_values import AcknowledgeResult, PendingState
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.failure_reason import CheckpointFailureReason as Reason
from penstock.runtime.snapshot.handles import (
    FileHandle,
    InlineHandle,
    KeyedStateHandle,
    KeyGroupRange,
    OperatorSubtaskState,
    SubtaskSnapshot,
)
from penstock.runtime.snapshot.metrics import CheckpointMetrics
from penstock.runtime.snapshot.subtask_id import SubtaskId
from penstock.runtime.testing.manual_time import ManualClock, ManualTimers

A, B = SubtaskId("a", 0), SubtaskId("b", 0)


def pending(kind=SnapshotKind.CHECKPOINT, **how):
    return PendingCheckpoint(7, kind, [A, B], **how)


def test_it_is_complete_when_everybody_has_acknowledged_once():
    checkpoint = pending()
    assert checkpoint.acknowledge(A) is AcknowledgeResult.SUCCESS
    assert checkpoint.acknowledge(A) is AcknowledgeResult.DUPLICATE
    assert checkpoint.acknowledge(SubtaskId("c", 0)) is AcknowledgeResult.UNKNOWN
    assert not checkpoint.is_fully_acknowledged
    assert checkpoint.acknowledge(B) is AcknowledgeResult.SUCCESS
    assert checkpoint.is_fully_acknowledged


def test_the_timeout_is_over_when_the_record_is_being_written():
    timers = ManualTimers(ManualClock())
    checkpoint = pending()
    checkpoint.set_canceller(timers.call_later(1, lambda: None))
    checkpoint.acknowledge(A)
    with pytest.raises(RuntimeError, match=r"checkpoint 7 is collecting and waits for b\[0\]"):
        checkpoint.begin_finalising()
    checkpoint.acknowledge(B)
    checkpoint.begin_finalising()
    assert checkpoint.state is PendingState.FINALISING
    assert timers.pending == ()
    checkpoint.complete()
    assert checkpoint.state is PendingState.COMPLETED
    assert not checkpoint.set_canceller(timers.call_later(1, lambda: None))


def test_an_abort_hands_back_what_came_in_and_nothing_counts_afterwards():
    checkpoint, file = pending(coordinators=["read"]), FileHandle("job/shared/1-7-a-0-0", 1, "")
    keyed = KeyedStateHandle(KeyGroupRange(0, 127), (file, InlineHandle(b"x")))
    checkpoint.acknowledge(A, SubtaskSnapshot({"a": OperatorSubtaskState(keyed=(keyed,))}))
    checkpoint.acknowledge_coordinator("read", InlineHandle(b"splits"))
    assert checkpoint.abort(Reason.CHECKPOINT_EXPIRED) == (file,)
    assert checkpoint.acknowledge_coordinator("read", None) is AcknowledgeResult.DISCARDED
    assert checkpoint.acknowledge_master("hook", None) is AcknowledgeResult.DISCARDED
    assert checkpoint.failure is Reason.CHECKPOINT_EXPIRED
    assert checkpoint.acknowledge(B) is AcknowledgeResult.DISCARDED
    with pytest.raises(RuntimeError, match="checkpoint 7 is aborted and can't be aborted"):
        checkpoint.abort(Reason.CHECKPOINT_EXPIRED)


@pytest.mark.parametrize(
    ("kind", "forced", "subsumable"),
    [
        (SnapshotKind.CHECKPOINT, False, True),
        (SnapshotKind.CHECKPOINT, True, False),
        (SnapshotKind.SAVEPOINT, False, False),
        (SnapshotKind.SYNC_SAVEPOINT, True, False),
    ],
)
def test_what_somebody_waits_for_is_not_subsumed(kind, forced, subsumable):
    assert pending(kind, forced=forced).can_be_subsumed is subsumable


def test_statistics_tell_who_is_missing_and_what_each_subtask_measured():
    checkpoint = pending()
    checkpoint.acknowledge(A, None, CheckpointMetrics(sync_duration=0.5, written_bytes=10, in_flight_bytes=7))
    statistics = checkpoint.statistics()
    assert (statistics.acknowledged, statistics.missing) == (1, (B,))
    assert (statistics.written_bytes, statistics.in_flight_bytes) == (10, 7)
    assert statistics.metrics[A].sync_duration == 0.5
