"""Another JobMaster reads the last record of the job and the checkpoints that are retained."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.checkpoint.coordinator.history import (
    CheckpointHistory,
    CheckpointRecords,
    newest_and_rare,
)
from penstock.runtime.checkpoint.coordinator.pending_checkpoint import PendingCheckpoint
from penstock.runtime.checkpoint.coordinator.plan import CheckpointPlan
from penstock.runtime.checkpoint.coordinator.requests import CheckpointRequest
from penstock.runtime.record.elements import CheckpointBarrier, CheckpointOptions, SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import (
    CheckpointFailureReason,
    CheckpointMetrics,
    CheckpointRecord,
    CheckpointStatus,
    CompletedCheckpointStatistics,
    CoordinatorStatistics,
    EarlierHistory,
)
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.ids import SubtaskId

COUNT = SubtaskId("count", 0)
MEASURED = {COUNT: CheckpointMetrics(alignment_duration=0.125, written_bytes=7, in_flight_bytes=3)}


def record(checkpoint_id: int, status: CheckpointStatus, attempt: int = 1) -> CheckpointRecord:
    return CheckpointRecord(checkpoint_id, attempt, SnapshotKind.CHECKPOINT, status, 10.0 * checkpoint_id)


def pending(checkpoint_id: int, attempt: int = 1) -> PendingCheckpoint:
    barrier = CheckpointBarrier(checkpoint_id, 10.0 * checkpoint_id, CheckpointOptions(), -1)
    plan, request = CheckpointPlan((), (COUNT,), (COUNT,)), CheckpointRequest(1)
    return PendingCheckpoint(barrier, plan, request, attempt=attempt, started_at=0.0)


def completed(
    checkpoint_id: int, *, attempt: int = 1, triggered: int = 0, completed: int = 0, known: bool = True
) -> CompletedCheckpoint:
    at = 10.0 * checkpoint_id
    statistics = CompletedCheckpointStatistics.of(triggered, completed, 0, 2.0, MEASURED) if known else None
    set_back = at - 1
    return CompletedCheckpoint(
        checkpoint_id, attempt, SnapshotKind.CHECKPOINT, {}, at, set_back, size=50, statistics=statistics
    )


def recovered(
    *retained: CompletedCheckpoint,
    earlier: EarlierHistory | None = None,
    highest_id: int | None = None,
) -> CheckpointHistory:
    history = CheckpointHistory()
    if earlier is not None:
        history.recall(earlier)
    newest = max((c.checkpoint_id for c in retained), default=-1)
    history.recover(retained, newest if highest_id is None else highest_id)
    return history


def standing(history: CheckpointHistory) -> list[tuple[int, int, str]]:
    return [(r.checkpoint_id, r.attempt, r.status.value) for r in history.records()]


def counts(history: CheckpointHistory) -> tuple[int, int, int]:
    known = history.counters()
    return known.triggered, known.completed, known.failed


def test_a_retained_checkpoint_tells_of_itself_when_nothing_else_is_known() -> None:
    history = recovered(completed(7, triggered=9, completed=6))
    [details] = history.details()
    assert details.subtasks == MEASURED
    assert details.record == CheckpointRecord(
        7,
        1,
        SnapshotKind.CHECKPOINT,
        CheckpointStatus.COMPLETED,
        70.0,
        acknowledged=1,
        subtasks=1,
        duration=2.0,
        size=50,
        written_bytes=7,
        in_flight_bytes=3,
    )
    assert counts(history) == (9, 6, 3)
    known = history.counters()
    newest = known.latest_completed_id, known.latest_completed_at, known.latest_duration, known.latest_size
    assert newest == (7, 69.0, 2.0, 50)


def test_one_without_statistics_is_shown_without_rows_and_counted() -> None:
    history = recovered(completed(6, known=False), completed(7, known=False))
    assert [len(each.subtasks) for each in history.details()] == [0, 0]
    for known in history.records():
        assert (known.acknowledged, known.subtasks, known.duration) == (0, 0, None)
        assert (known.size, known.written_bytes, known.in_flight_bytes) == (50, 0, 0)
    assert counts(history) == (2, 2, 0)


def test_what_still_ran_when_the_job_master_died_has_failed_or_is_not_known() -> None:
    """5 ran then and is retained; 4 may have completed and been let go; nothing as new as 6 has completed."""
    running, finalizing = CheckpointStatus.IN_PROGRESS, CheckpointStatus.FINALIZING
    records = (
        replace(record(3, CheckpointStatus.FAILED), detail="why"),
        record(4, running),
        record(5, finalizing),
        record(6, running),
    )
    history = recovered(
        completed(5, triggered=5, completed=4),
        earlier=EarlierHistory(records, CoordinatorStatistics(triggered=6, completed=2, failed=1)),
    )
    assert standing(history) == [(3, 1, "failed"), (5, 1, "completed"), (6, 1, "failed")]
    first, _, last = history.records()
    assert first.detail == "why"
    assert last.failure is CheckpointFailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN
    assert last.detail == "the JobMaster died"
    assert counts(history) == (6, 4, 2)


def test_the_record_of_a_completed_checkpoint_stays_as_it_was_told() -> None:
    told = replace(record(7, CheckpointStatus.COMPLETED), duration=2.25, subtasks=1)
    earlier = EarlierHistory(
        (record(6, CheckpointStatus.COMPLETED), told),
        CoordinatorStatistics(triggered=7, completed=7, latest_completed_id=7, latest_duration=2.25),
    )
    history = recovered(completed(7, triggered=7, completed=7), earlier=earlier)
    assert history.records() == earlier.records
    assert [len(each.subtasks) for each in history.details()] == [0, 1]
    assert history.counters() == earlier.counters


def test_a_failed_checkpoint_whose_record_is_in_the_log_after_all_is_complete() -> None:
    earlier = EarlierHistory(
        (record(7, CheckpointStatus.FAILED),), CoordinatorStatistics(triggered=7, completed=6, failed=1)
    )
    history = recovered(completed(7, triggered=7, completed=7), earlier=earlier)
    assert standing(history) == [(7, 1, "completed")]
    assert counts(history) == (7, 7, 0)


def test_counts_never_go_back_whichever_of_the_two_is_newer() -> None:
    newer_record = EarlierHistory((), CoordinatorStatistics(triggered=12, completed=7, failed=4))
    assert counts(recovered(completed(7, triggered=9, completed=7), earlier=newer_record)) == (12, 7, 5)
    older_record = EarlierHistory((), CoordinatorStatistics(triggered=6, completed=5, failed=1))
    assert counts(recovered(completed(7, triggered=9, completed=7), earlier=older_record)) == (9, 7, 2)


def test_a_new_checkpoint_with_the_id_of_a_failed_one_has_its_own_record_and_rows() -> None:
    earlier = EarlierHistory((record(2, CheckpointStatus.IN_PROGRESS),), CoordinatorStatistics(triggered=2))
    history = recovered(completed(1, triggered=1, completed=1), earlier=earlier)
    history.started(pending(2, attempt=2))
    history.completed(2, 30.0, 1.0, 60)
    assert standing(history) == [(1, 1, "completed"), (2, 1, "failed"), (2, 2, "completed")]
    assert [len(each.subtasks) for each in history.details()] == [1, 0, 0]
    assert counts(history) == (3, 2, 1)


def test_the_living_know_better_than_the_log_at_later_attempts() -> None:
    history = recovered()
    history.started(pending(1))
    history.completed(1, 30.0, 1.0, 60)
    history.started(pending(2))
    before = history.records(), history.counters()
    history.recover((completed(1, triggered=1, completed=1),), 1)
    assert (history.records(), history.counters()) == before


def test_a_job_of_many_retained_checkpoints_remembers_a_bounded_number() -> None:
    history = CheckpointHistory(capacity=10, detailed=3)
    history.recover([completed(n, triggered=n, completed=n) for n in range(1, 31)], 30)
    assert [r.checkpoint_id for r in history.records()] == list(range(21, 31))
    assert [d.record.checkpoint_id for d in history.details() if d.subtasks] == [28, 29, 30]
    assert counts(history) == (30, 30, 0)


def test_a_thousand_checkpoints_are_remembered_and_twenty_of_them_with_rows() -> None:
    history = CheckpointHistory()
    history.recover([completed(n, triggered=n, completed=n) for n in range(1, 1_501)], 1_500)
    shown = history.details()
    assert [d.record.checkpoint_id for d in shown] == list(range(501, 1_501))
    assert [d.record.checkpoint_id for d in shown if d.subtasks] == list(range(1_481, 1_501))


def test_details_are_given_of_the_newest_or_of_one_id_alone() -> None:
    history = recovered(*(completed(n) for n in range(1, 31)))
    assert [d.record.checkpoint_id for d in history.details(newest=2)] == [29, 30]
    assert [d.record.checkpoint_id for d in history.details(newest=99)] == list(range(1, 31))
    [details] = history.details(checkpoint_id=29)
    assert details.subtasks == MEASURED
    assert history.details(checkpoint_id=99) == ()


def test_failed_checkpoints_and_savepoints_outlive_a_thousand_others_and_are_bounded() -> None:
    history = CheckpointHistory()
    for number in range(1, 1_501):
        if number % 5 == 0:
            kind, reason = SnapshotKind.CHECKPOINT, CheckpointFailureReason.CHECKPOINT_EXPIRED
            history.refused(number, 1, kind, 1.0, reason, f"disk {number}")
            continue
        history.started(pending(number))
        history.completed(number, 1.0, 0.5, 10)
    known = history.records()
    assert [each.checkpoint_id for each in known[-1_000:]] == list(range(501, 1_501))
    older = known[:-1_000]
    assert [each.detail for each in older] == [f"disk {number}" for number in range(255, 501, 5)]
    assert counts(history) == (1_500, 1_200, 300)


def test_savepoints_that_are_complete_outlive_others_and_running_ones_do_not() -> None:
    records = CheckpointRecords(capacity=2, kept=1)
    for number in range(1, 6):
        status = CheckpointStatus.IN_PROGRESS if number == 3 else CheckpointStatus.COMPLETED
        records.append(replace(record(number, status), kind=SnapshotKind.SAVEPOINT))
    assert [each.checkpoint_id for each in records] == [2, 4, 5]
    assert records.update(2, detail="late") is None


def test_checkpoint_that_ran_is_not_shown_when_one_of_its_id_has_completed_and_was_let_go() -> None:
    running = EarlierHistory((record(6, CheckpointStatus.IN_PROGRESS),), CoordinatorStatistics(triggered=6))
    assert standing(recovered(earlier=running, highest_id=6)) == []
    assert standing(recovered(earlier=running, highest_id=5)) == [(6, 1, "failed")]


def test_newest_completed_checkpoint_stays_the_newest_when_an_older_one_is_retained() -> None:
    counters = CoordinatorStatistics(triggered=9, completed=9, latest_completed_id=9, latest_size=70)
    known = recovered(completed(7), earlier=EarlierHistory((), counters)).counters()
    assert (known.latest_completed_id, known.latest_size) == (9, 70)


# -- checkpoints of this JobMaster --------------------------------------------------------------------------


def running(*checkpoint_ids: int, capacity: int = 100) -> CheckpointHistory:
    history = CheckpointHistory(capacity)
    for checkpoint_id in checkpoint_ids:
        history.started(pending(checkpoint_id))
    return history


def acknowledged(checkpoint_id: int) -> PendingCheckpoint:
    checkpoint = pending(checkpoint_id)
    checkpoint.acknowledge(COUNT, None, MEASURED[COUNT])
    return checkpoint


def test_running_checkpoint_shows_what_its_subtasks_have_measured_so_far() -> None:
    history = running(1)
    history.progress(acknowledged(1))
    [details] = history.details()
    assert details.subtasks == MEASURED
    assert (details.record.acknowledged, details.record.subtasks) == (1, 1)
    assert (details.record.written_bytes, details.record.in_flight_bytes) == (7, 3)


def test_end_of_a_checkpoint_changes_its_own_record_alone() -> None:
    for ended in (1, 2, 3):
        history = running(1, 2, 3)
        history.failed(ended, CheckpointFailureReason.CHECKPOINT_EXPIRED, "late", 1.0)
        assert [known.detail for known in history.records()] == [
            "late" if known.checkpoint_id == ended else "" for known in history.records()
        ]


def test_checkpoint_that_is_not_remembered_any_more_is_counted_and_shown_nowhere() -> None:
    for history in (running(1, 2, capacity=1), running(1, 2, capacity=0)):
        before = history.records()
        history.progress(acknowledged(1))
        history.completed(1, 30.0, 1.0, 60)
        assert (history.records(), counts(history)) == (before, (2, 1, 0))
        assert not any(details.subtasks for details in history.details())


def test_end_of_an_unknown_checkpoint_changes_no_record_of_an_older_one() -> None:
    history = running(1)
    history.completed(2, 30.0, 1.0, 60)
    assert standing(history) == [(1, 1, "in_progress")]


def test_savepoint_that_completes_behind_a_newer_checkpoint_is_not_the_latest() -> None:
    history = running(1, 2)
    history.completed(2, 30.0, 1.0, 60)
    history.completed(1, 31.0, 9.0, 90)
    known = history.counters()
    newest = known.latest_completed_id, known.latest_completed_at, known.latest_duration, known.latest_size
    assert newest == (2, 30.0, 1.0, 60)
    assert counts(history) == (2, 2, 0)


def test_checkpoint_that_is_about_to_complete_counts_itself() -> None:
    history = running(1, 2, 3)
    history.completed(1, 30.0, 1.0, 60)
    history.failed(2, CheckpointFailureReason.CHECKPOINT_EXPIRED, "", 1.0)
    known = history.completing(2.0, MEASURED)
    assert (known.triggered, known.completed, known.failed, known.duration) == (3, 2, 1, 2.0)
    assert known.metrics() == MEASURED


KINDS = (SnapshotKind.CHECKPOINT, SnapshotKind.SAVEPOINT)


@given(
    st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(CheckpointStatus)), max_size=30),
    st.integers(1, 5),
    st.integers(0, 4),
)
def test_rare_records_are_chosen_before_the_newest_ones(
    drawn: list[tuple[SnapshotKind, CheckpointStatus]], newest: int, rare: int
) -> None:
    records = [replace(record(n, status), kind=kind) for n, (kind, status) in enumerate(drawn)]
    older = records[: max(0, len(records) - newest)]
    failed = [r.checkpoint_id for r in older if r.status is CheckpointStatus.FAILED]
    savepoints = [
        r.checkpoint_id
        for r in older
        if r.status is CheckpointStatus.COMPLETED and r.kind is SnapshotKind.SAVEPOINT
    ]
    kept = sorted((failed[-rare:] if rare else []) + (savepoints[-rare:] if rare else []))
    expected = [*kept, *(r.checkpoint_id for r in records[len(older) :])]
    assert [r.checkpoint_id for r in newest_and_rare(records, newest, rare)] == expected


def test_details_of_one_id_show_no_newer_checkpoint() -> None:
    history = recovered(*(completed(n) for n in range(1, 4)))
    assert [d.record.checkpoint_id for d in history.details(checkpoint_id=2)] == [2]


def test_newest_completed_checkpoint_is_not_a_failed_one() -> None:
    history = running(1, 2)
    assert history.newest_completed() is None
    history.completed(1, 30.0, 1.0, 60)
    history.failed(2, CheckpointFailureReason.CHECKPOINT_EXPIRED, "late", 1.0)
    newest = history.newest_completed()
    assert newest is not None
    assert newest.record.checkpoint_id == 1


def test_refused_checkpoint_took_no_time() -> None:
    history = CheckpointHistory()
    reason = CheckpointFailureReason.TRIGGER_CHECKPOINT_FAILURE
    history.refused(1, 1, SnapshotKind.CHECKPOINT, 10.0, reason, "read-only")
    assert [known.duration for known in history.records()] == [0.0]


def test_records_that_take_the_place_of_others_keep_none_of_them() -> None:
    records = CheckpointRecords(capacity=1)
    for number in (1, 2):
        records.append(record(number, CheckpointStatus.FAILED))
    records.replace_all([record(3, CheckpointStatus.COMPLETED)])
    assert [each.checkpoint_id for each in records] == [3]
