"""A job continues while a storage or a user's folder hangs, and no place stays behind the end of the job."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from stop_setup import COUNT, Run

from penstock.runtime.checkpoint.coordinator.requests import CheckpointFailed, CheckpointSucceeded
from penstock.runtime.errors import StorageError
from penstock.runtime.job.failover import FailureCause
from penstock.runtime.job.job_state import JobState, StopRequest
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason as Reason
from penstock.runtime.snapshot.checkpoint_record import CheckpointMetrics, CheckpointStatus
from penstock.runtime.snapshot.handles import SubtaskSnapshot
from penstock.runtime.snapshot.storage import MemoryStorage

Ask = Callable[[Run], None]


def take_savepoint(run: Run) -> None:
    run.scheduler.take_savepoint("/saved", run.answers.append)


def stop(run: Run) -> None:
    run.scheduler.stop_with_savepoint(StopRequest(target="/saved"), run.answers.append)


def hanging(*work: str, **checkpointing: Any) -> Run:
    """A job that runs, where `work` does not return before the test says so."""
    run = Run(**checkpointing).start()
    run.runner.prompt -= {*work}
    run.cluster.take()
    return run


def kinds(run: Run) -> list[tuple[int, SnapshotKind]]:
    return [(barrier.checkpoint_id, barrier.options.kind) for barrier in run.cluster.barriers]


def complete(run: Run, *, behind: int) -> None:
    """Everybody takes the newest checkpoint; its record is written, and `behind` works go on hanging."""
    for subtask in run.graph.execution.subtasks:
        run.scheduler.acknowledge(
            run.scheduler.attempt,
            subtask.id,
            run.cluster.barriers[-1].checkpoint_id,
            SubtaskSnapshot(),
            CheckpointMetrics(),
        )
    while run.runner.run_next(behind):
        pass


# -- folders of users ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("ask", [take_savepoint, stop])
def test_a_folder_that_hangs_refuses_its_savepoint_and_holds_nothing_else_up(ask: Ask) -> None:
    run = hanging("try_target", timeout=60, tolerable_failures=0)
    ask(run)
    for _ in range(5):
        run.timers.advance(10)
        complete(run, behind=1)
    assert run.answers == []
    assert run.state is JobState.RUNNING
    run.timers.advance(10)
    [answer] = run.answers
    assert isinstance(answer, CheckpointFailed)
    assert (answer.reason, answer.checkpoint_id) == (Reason.TRIGGER_CHECKPOINT_FAILURE, None)
    assert answer.detail == "its location can't be written: /saved did not answer within 60 s"
    complete(run, behind=1)
    for _ in range(5):
        run.timers.advance(10)
        complete(run, behind=1)
    assert kinds(run) == [(number, SnapshotKind.CHECKPOINT) for number in range(1, 12)]
    history = run.scheduler.statistics().checkpoint_history
    assert [record.detail for record in history if record.status is CheckpointStatus.FAILED] == [
        answer.detail
    ]
    run.runner.run_all()
    assert len(run.cluster.barriers) == 11, "the folder answers too late"


def test_a_folder_that_still_hangs_is_refused_at_once_and_another_one_is_not() -> None:
    run = hanging("try_target", timeout=60)
    take_savepoint(run)
    run.timers.advance(60)
    take_savepoint(run)
    _, second = run.answers
    assert isinstance(second, CheckpointFailed)
    assert second.detail == "its location can't be written: /saved has not yet answered the previous trial"
    run.scheduler.take_savepoint("/else", run.answers.append)
    complete(run, behind=1)
    assert kinds(run)[-1][1] is SnapshotKind.SAVEPOINT
    assert run.runner.waiting == 1
    run.runner.run_all()
    take_savepoint(run)
    run.runner.run_all()
    assert [barrier.options.location for barrier in run.cluster.barriers][-1:] == ["/saved/savepoint-job-3-1"]


def test_two_savepoints_into_one_folder_try_it_once() -> None:
    run = hanging("try_target")
    take_savepoint(run)
    take_savepoint(run)
    assert run.runner.waiting == 1
    run.runner.run_all()
    assert kinds(run) == [(1, SnapshotKind.SAVEPOINT), (2, SnapshotKind.SAVEPOINT)]


def test_a_job_that_fails_while_the_folder_is_tried_takes_no_savepoint() -> None:
    run = hanging("try_target")
    take_savepoint(run)
    run.scheduler.on_subtask_failed(1, COUNT, FailureCause("division by zero"))
    [answer] = run.answers
    assert isinstance(answer, CheckpointFailed)
    assert "division by zero" in answer.detail
    run.runner.run_all()
    assert run.cluster.barriers == []


def test_a_job_that_is_stopped_while_a_folder_is_tried_takes_no_other_savepoint() -> None:
    run = hanging("try_target")
    take_savepoint(run)
    run.stop()
    assert isinstance(run.answers[0], CheckpointFailed)
    run.runner.run_all()
    assert kinds(run) == [(1, SnapshotKind.SYNC_SAVEPOINT)]


# -- the job's own storage ----------------------------------------------------------------------------------


def test_a_job_goes_on_while_its_storage_hangs() -> None:
    run = hanging("prepare_place", timeout=60, tolerable_failures=1)
    run.timers.advance(10)
    assert run.runner.waiting == 1
    assert run.scheduler.statistics().state is JobState.RUNNING
    assert run.cluster.barriers == []
    run.scheduler.on_subtask_failed(1, COUNT, FailureCause("division by zero"))
    assert run.cluster.take() == ["stop 1"], "the failure is served at once"
    run.cluster.stopped()
    run.timers.advance(0)
    while run.runner.run_next(1):  # all but the storage's answer
        pass
    assert run.cluster.take() == ["deploy 2"]


def test_a_job_whose_storage_hangs_can_be_cancelled() -> None:
    run = hanging("prepare_place")
    run.timers.advance(10)
    run.scheduler.cancel()
    assert run.cluster.take() == ["stop 1"]


@pytest.mark.parametrize("what", ["stop", "rescale"])
def test_a_checkpoint_without_a_place_yet_is_refused_when_the_job_is_stopped_or_rescaled(what: str) -> None:
    run = hanging("prepare_place")
    run.scheduler.trigger_checkpoint(on_answer=run.answers.append)
    if what == "stop":
        run.stop()
    else:
        run.rescale(count=2)
    [answer] = run.answers
    assert isinstance(answer, CheckpointFailed)
    assert (answer.reason, answer.detail) == (
        Reason.CHECKPOINT_COORDINATOR_SUSPEND,
        "checkpointing was stopped",
    )
    run.runner.run_all()
    kind = SnapshotKind.SYNC_SAVEPOINT if what == "stop" else SnapshotKind.CHECKPOINT
    assert kinds(run) == [(1, kind)]
    run.acknowledge()
    if what == "stop":
        assert isinstance(run.answers[1], CheckpointSucceeded)


# -- the end of the job -------------------------------------------------------------------------------------


def cancelled(run: Run) -> None:
    run.scheduler.cancel()
    run.cluster.stopped()


def test_a_place_that_comes_into_being_while_the_job_ends_is_deleted() -> None:
    run = hanging("prepare_place", keep_after="never")
    run.timers.advance(10)
    cancelled(run)
    while run.runner.run_next(1):
        pass
    assert run.state is JobState.CANCELLING, "the end waits for the place"
    run.runner.run_all()
    assert run.state is JobState.CANCELLED
    assert run.storage.list("job/ids/") == []


def test_the_end_of_a_job_does_not_wait_for_a_storage_that_hangs_for_ever() -> None:
    run = hanging("prepare_place", timeout=60)
    run.timers.advance(10)
    cancelled(run)
    while run.runner.run_next(1):
        pass
    run.timers.advance(60)
    while run.runner.run_next(1):
        pass
    assert run.state is JobState.CANCELLED


class Keeps(MemoryStorage):
    """Deletes nothing while it is switched off."""

    keeps = False

    def delete(self, paths: Iterable[str]) -> None:
        if self.keeps:
            raise StorageError("nothing can be deleted")
        super().delete(paths)


def test_ids_whose_deletion_has_failed_are_deleted_at_the_end_of_the_job() -> None:
    storage = Keeps()
    run = Run(storage).start()
    storage.keeps = True
    for _ in range(3):
        run.timers.advance(10)
        run.acknowledge()
    assert storage.list("job/ids/") == ["job/ids/1", "job/ids/2", "job/ids/3"]
    storage.keeps = False
    cancelled(run)
    run.runner.run_all()
    assert run.state is JobState.CANCELLED
    assert storage.list("job/ids/") == []


def test_an_id_that_a_job_master_without_a_job_has_written_is_not_given_again() -> None:
    """The successor finds it when it takes the same id: it was written behind the successor's look."""
    first = Run().start()
    second = Run(first.storage).start()
    first.timers.advance(10)
    assert first.cluster.barriers == [], "another JobMaster has the job"
    assert first.storage.list("job/ids/") == ["job/ids/1"]
    second.timers.advance(10)
    assert kinds(second) == [(2, SnapshotKind.CHECKPOINT)]
    assert second.storage.list("job/ids/") == ["job/ids/2"]
    assert first.scheduler.statistics().is_fenced, "attempt 2 of the job has begun"
    assert not second.scheduler.statistics().is_fenced
