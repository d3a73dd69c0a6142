"""The answer to a savepoint comes as soon as the job needs nothing of it any more."""

from __future__ import annotations

from typing import Any

from stop_setup import COUNT, READ, Run

from penstock.runtime.checkpoint.coordinator.requests import (
    CheckpointFailed,
    CheckpointSucceeded,
)
from penstock.runtime.job.failover import FailureCause
from penstock.runtime.job.job_state import JobState
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason as Reason


def test_a_savepoint_is_followed_by_a_checkpoint_before_it_is_answered() -> None:
    run = Run().start()
    run.scheduler.take_savepoint(None, run.answers.append)
    run.acknowledge()
    assert run.answers == []
    assert [b.options.kind for b in run.cluster.barriers] == [SnapshotKind.SAVEPOINT, SnapshotKind.CHECKPOINT]
    run.acknowledge()
    assert isinstance(run.answers[0], CheckpointSucceeded)
    assert run.answers[0].checkpoint.checkpoint_id == 1


def savepoint_complete(**checkpointing: Any) -> Run:
    """The savepoint is complete, and the checkpoint behind it runs."""
    run = Run(**checkpointing).start()
    run.scheduler.take_savepoint(None, run.answers.append)
    run.acknowledge()
    assert (run.cluster.barriers[-1].checkpoint_id, run.answers) == (2, [])
    return run


def still_needed(run: Run) -> str:
    """The text of the answer, which must be that the savepoint is complete."""
    (answer,) = run.answers
    assert isinstance(answer, CheckpointSucceeded)
    assert answer.checkpoint.checkpoint_id == 1
    return answer.still_needed


def test_a_savepoint_is_not_answered_before_a_checkpoint_behind_it_is_complete() -> None:
    run = savepoint_complete(tolerable_failures=9)
    run.scheduler.decline(1, COUNT, 2, Reason.CHECKPOINT_DECLINED, "disk full")
    assert run.answers == []
    run.timers.advance(1)
    assert run.acknowledge() == 3
    assert still_needed(run) == ""
    assert run.scheduler.latest_completed.kind is SnapshotKind.CHECKPOINT


def test_a_savepoint_behind_which_no_checkpoint_completes_is_complete_and_still_needed() -> None:
    run = savepoint_complete(tolerable_failures=9)
    for checkpoint_id in range(2, 6):
        assert run.answers == []
        run.scheduler.decline(1, COUNT, checkpoint_id, Reason.CHECKPOINT_DECLINED, "disk full")
        run.timers.advance(1)
    assert (
        still_needed(run)
        == "no checkpoint could be taken after it: count[0]: disk full (checkpoint_declined)"
    )
    assert run.scheduler.latest_completed.kind is SnapshotKind.SAVEPOINT
    assert len(run.cluster.barriers) == 5


def test_a_savepoint_is_answered_when_the_job_has_restarted_from_it_and_has_a_checkpoint_again() -> None:
    run = savepoint_complete()
    run.scheduler.on_subtask_failed(1, READ, FailureCause("out of memory"))
    run.timers.advance(1)  # it does not run: nothing can be asked for
    run.all_stopped()
    run.timers.advance(0)
    run.come_up()
    assert (run.answers, run.cluster.restored[-1].checkpoint_id) == ([], 1)
    run.timers.advance(1)
    run.acknowledge()
    assert still_needed(run) == ""


def test_a_savepoint_is_answered_when_its_job_ends_meanwhile() -> None:
    """Before anybody hears of the end: a request that finds an ended job finds no savepoint."""
    run = savepoint_complete()
    run.cluster.job_ended = lambda state, cause: run.cluster.said.append(f"{len(run.answers)} answers")
    run.scheduler.cancel()
    run.all_stopped()
    assert run.state is JobState.CANCELLED
    assert run.cluster.take()[-1] == "1 answers"
    run.timers.advance(60)
    assert still_needed(run) == ""


def test_a_savepoint_asks_for_no_checkpoint_while_the_job_is_rescaled() -> None:
    run = savepoint_complete(max_concurrent=3).rescale(count=3)
    barriers = len(run.cluster.barriers)
    run.timers.advance(1)
    assert len(run.cluster.barriers) == barriers
    run.acknowledge()
    run.timers.advance(1)
    assert still_needed(run) == ""


def test_savepoints_that_take_too_long_do_not_fail_the_job() -> None:
    run = Run(tolerable_failures=0, timeout=3).start()
    for _ in range(2):
        run.scheduler.take_savepoint(None, run.answers.append)
        run.timers.advance(4)
    assert len(run.answers) == 2
    assert all(isinstance(answer, CheckpointFailed) for answer in run.answers)
    assert run.state is JobState.RUNNING
