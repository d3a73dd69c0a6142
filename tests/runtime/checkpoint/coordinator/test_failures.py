"""Failures that count; Flink's own cases are in `tests/conformance`."""

import pytest

from penstock.runtime.checkpoint.coordinator.failures import (
    COUNTED_IN_FLINK_1_11,
    COUNTED_REASONS,
    CheckpointFailureManager,
)
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason as Reason


@pytest.mark.parametrize("reason", list(Reason))
def test_only_reasons_that_tell_of_the_jobs_health_count(reason):
    assert CheckpointFailureManager(0).failed(reason, 1) == (reason in COUNTED_REASONS)


def test_a_job_counts_what_flink_1_11_counts_and_failed_writes():
    assert COUNTED_IN_FLINK_1_11 < COUNTED_REASONS
    assert Reason.FINALIZE_CHECKPOINT_FAILURE in COUNTED_REASONS
    assert Reason.CHECKPOINT_DECLINED_TASK_CLOSING not in COUNTED_REASONS


@pytest.mark.parametrize("checkpoint_id", [0, 1, 7])
def test_each_checkpoint_counts_once(checkpoint_id):
    manager = CheckpointFailureManager(1)
    assert not any(manager.failed(Reason.CHECKPOINT_DECLINED, checkpoint_id) for _ in range(5))
    assert manager.failed(Reason.CHECKPOINT_DECLINED, 8)


def test_checkpoint_counts_again_when_its_failure_has_failed_the_job():
    manager = CheckpointFailureManager(0)
    assert manager.failed(Reason.CHECKPOINT_DECLINED, 7)
    assert manager.failed(Reason.CHECKPOINT_DECLINED, 7), "the next attempt gives the id out again"


def test_after_the_job_was_failed_it_counts_anew():
    manager = CheckpointFailureManager(1)
    failed = [manager.failed(Reason.CHECKPOINT_EXPIRED, number) for number in range(6)]
    assert failed == [False, True, False, True, False, True]
    assert manager.in_a_row == 0


def test_failures_that_got_no_id_count_each_time():
    manager = CheckpointFailureManager(1)
    assert [manager.failed(Reason.TRIGGER_CHECKPOINT_FAILURE, -1) for _ in range(3)] == [False, True, False]


def test_a_success_ends_the_row():
    manager = CheckpointFailureManager(1)
    assert not manager.failed(Reason.CHECKPOINT_EXPIRED, 1)
    manager.succeeded(2)
    assert not manager.failed(Reason.CHECKPOINT_EXPIRED, 3)
    assert manager.failed(Reason.CHECKPOINT_EXPIRED, 4)


def test_an_older_checkpoint_that_fails_after_a_newer_one_completed_does_not_count():
    manager = CheckpointFailureManager(0)
    manager.succeeded(5)
    assert not manager.failed(Reason.CHECKPOINT_EXPIRED, 4)
    assert not manager.failed(Reason.CHECKPOINT_EXPIRED, 0)
    assert manager.failed(Reason.CHECKPOINT_EXPIRED, 6)


def test_failure_without_an_id_counts_also_after_a_success():
    manager = CheckpointFailureManager(0)
    manager.succeeded(5)
    assert manager.failed(Reason.TRIGGER_CHECKPOINT_FAILURE, -1)


def test_success_of_a_checkpoint_that_is_not_known_makes_no_failure_late():
    manager = CheckpointFailureManager(0)
    manager.succeeded()
    assert manager.failed(Reason.CHECKPOINT_EXPIRED, 0)


@pytest.mark.parametrize(
    ("reason", "counts"),
    [
        (Reason.CHECKPOINT_DECLINED, True),
        (Reason.CHECKPOINT_EXPIRED, False),
        (Reason.FINALIZE_CHECKPOINT_FAILURE, False),
    ],
)
def test_a_savepoint_counts_only_when_a_subtask_failed_at_it(reason, counts):
    assert CheckpointFailureManager(0).failed(reason, 1, is_savepoint=True) == counts
