"""A pending checkpoint's life; Flink's own cases are in `tests/conformance`."""

import pytest

from penstock.runtime.checkpoint.coordinator.pending_checkpoint import (
    MessageOutcome,
    PendingCheckpoint,
    PendingState,
)
from penstock.runtime.checkpoint.coordinator.plan import CheckpointPlan
from penstock.runtime.checkpoint.coordinator.requests import CheckpointRequest
from penstock.runtime.record.elements import CheckpointBarrier, CheckpointOptions, SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason as Reason
from penstock.runtime.snapshot.checkpoint_record import CheckpointMetrics
from penstock.runtime.snapshot.handles import (
    FileHandle,
    InlineHandle,
    KeyedStateHandle,
    KeyGroupRange,
    MasterState,
    OperatorSubtaskState,
    SubtaskSnapshot,
)
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.testing.manual_time import ManualClock, ManualTimers

A, B = SubtaskId("a", 0), SubtaskId("b", 0)


def pending(kind=SnapshotKind.CHECKPOINT, *, forced=False, subtasks=(A, B), **how):
    barrier = CheckpointBarrier(7, 0.0, CheckpointOptions(kind), -1)
    plan, request = CheckpointPlan((), subtasks, subtasks), CheckpointRequest(1, kind, forced=forced)
    return PendingCheckpoint(barrier, plan, request, attempt=1, started_at=0.0, **how)


def test_it_is_complete_when_everybody_has_acknowledged_once():
    checkpoint = pending()
    assert checkpoint.acknowledge(A) is MessageOutcome.ACCEPTED
    assert checkpoint.acknowledge(A) is MessageOutcome.DUPLICATE
    assert checkpoint.acknowledge(SubtaskId("c", 0)) is MessageOutcome.UNKNOWN_SENDER
    assert not checkpoint.is_fully_acknowledged
    assert checkpoint.acknowledge(B) is MessageOutcome.ACCEPTED
    assert checkpoint.is_fully_acknowledged


def test_the_timeout_is_over_when_the_record_is_being_written():
    timers = ManualTimers(ManualClock())
    checkpoint = pending()
    checkpoint.set_timeout(timers.call_later(1, lambda: None))
    checkpoint.acknowledge(A)
    with pytest.raises(RuntimeError, match=r"checkpoint 7 is collecting and waits for b\[0\]"):
        checkpoint.begin_finalizing()
    checkpoint.acknowledge(B)
    checkpoint.begin_finalizing()
    assert checkpoint.state is PendingState.FINALIZING
    assert timers.pending == ()
    checkpoint.complete()
    assert checkpoint.state is PendingState.COMPLETED
    assert not checkpoint.set_timeout(timers.call_later(1, lambda: None))


def test_the_timeout_is_over_when_it_completes():
    timers = ManualTimers(ManualClock())
    checkpoint = pending()
    checkpoint.set_timeout(timers.call_later(1, lambda: None))
    for subtask in (A, B):
        checkpoint.acknowledge(subtask)
    checkpoint.complete()
    assert timers.pending == ()


def test_an_abort_hands_back_what_came_in_and_nothing_counts_afterwards():
    checkpoint, file = pending(coordinators=["read"]), FileHandle("job/shared/1-7-a-0-0", 1, "")
    keyed = KeyedStateHandle(KeyGroupRange(0, 127), (file, InlineHandle(b"x")))
    checkpoint.acknowledge(A, SubtaskSnapshot({"a": OperatorSubtaskState(keyed=(keyed,))}))
    checkpoint.acknowledge_coordinator("read", InlineHandle(b"splits"))
    assert checkpoint.abort(Reason.CHECKPOINT_EXPIRED) == (file,)
    assert checkpoint.acknowledge_coordinator("read", None) is MessageOutcome.ENDED_CHECKPOINT
    assert checkpoint.acknowledge_master("hook", None) is MessageOutcome.ENDED_CHECKPOINT
    assert checkpoint.failure is Reason.CHECKPOINT_EXPIRED
    assert checkpoint.acknowledge(B) is MessageOutcome.ENDED_CHECKPOINT
    with pytest.raises(RuntimeError, match="checkpoint 7 is aborted and can't be aborted"):
        checkpoint.abort(Reason.CHECKPOINT_EXPIRED)


def test_files_of_operator_coordinators_are_handed_back_too():
    checkpoint, file = pending(coordinators=["read"]), FileHandle("job/shared/1-7-read-coordinator", 1, "")
    checkpoint.acknowledge_coordinator("read", file)
    assert checkpoint.abort(Reason.CHECKPOINT_EXPIRED) == (file,)


def test_masters_acknowledge_once_and_strangers_are_unknown():
    checkpoint = pending(coordinators=["read"], masters=["outside"])
    state = MasterState("outside", b"state")
    for acknowledge, name, given in (
        (checkpoint.acknowledge_coordinator, "read", InlineHandle(b"splits")),
        (checkpoint.acknowledge_master, "outside", state),
    ):
        assert acknowledge("nobody", given) is MessageOutcome.UNKNOWN_SENDER
        assert acknowledge(name, given) is MessageOutcome.ACCEPTED
        assert acknowledge(name, given) is MessageOutcome.DUPLICATE
    assert checkpoint.coordinator_states == {"read": InlineHandle(b"splits")}
    assert checkpoint.master_states == (state,)


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
    assert (statistics.acknowledged, checkpoint.missing_names()) == (1, ("b[0]",))
    assert (statistics.written_bytes, statistics.in_flight_bytes) == (10, 7)
    assert statistics.metrics[A].sync_duration == 0.5


@pytest.mark.parametrize(
    ("subtasks", "steps"),
    [
        (4, [1, 2, 3, 4]),
        (39, list(range(1, 40))),
        (41, [*range(2, 41, 2), 41]),
        (60, list(range(3, 61, 3))),
    ],
)
def test_about_twenty_acknowledgements_and_the_last_are_a_step_further(subtasks, steps):
    everybody = tuple(SubtaskId("a", index) for index in range(subtasks))
    checkpoint, found = pending(subtasks=everybody), []
    for number, subtask in enumerate(everybody, 1):
        checkpoint.acknowledge(subtask)
        if checkpoint.is_a_step_further:
            found.append(number)
    assert found == steps
