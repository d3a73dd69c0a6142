"""The record of a job's end holds every answer that depends on the end.

Its JobMaster may die right after it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from stop_setup import COUNT, Run

from penstock.runtime.config.restart import NoRestart
from penstock.runtime.error_text import LONGEST_TRACEBACK
from penstock.runtime.errors import UserLocation
from penstock.runtime.job.failover import FailureCause, FailureKind
from penstock.runtime.job.job_state import JobState, SchedulerStatistics
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason as Reason

LINE = UserLocation("job.py", 12, "map")
CAUSE = FailureCause(
    "operator 'count': ValueError: boom \udc80",
    COUNT,
    "Traceback" * 10_000,
    kind=FailureKind.OPERATOR,
    operator="count",
    defined_at=LINE,
    raised_at=LINE,
)


def finish(run: Run) -> None:
    run.leave()


def finish_after_checkpoint(run: Run) -> None:
    run.timers.advance(10)
    run.acknowledge()
    run.leave()


def stop(run: Run, *, drain: bool = False, target: str | None = None) -> None:
    run.timers.advance(10)
    run.acknowledge()
    run.stop(drain=drain, target=target)
    if target is not None:
        run.places(run.cluster.barriers[-1].options.location, create=True)
    run.acknowledge()
    run.leave()


def cancel(run: Run) -> None:
    run.scheduler.cancel()
    run.all_stopped()


def cancel_after_savepoint_of_stop(run: Run) -> None:
    run.stop(drain=True)
    run.acknowledge()
    run.scheduler.cancel()
    run.all_stopped()


def cancel_before_the_next_attempt(run: Run) -> None:
    """The savepoint is complete; a JobMaster that comes back must cancel before it has begun."""
    run.stop(drain=True)
    run.acknowledge()
    again = Run(run.storage, run.places)
    again.scheduler.start()
    again.scheduler.cancel()
    again.runner.run_all()
    run.scheduler = again.scheduler


def fail(run: Run) -> None:
    run.scheduler.on_subtask_failed(1, COUNT, CAUSE)
    run.all_stopped()


def fail_after_a_failed_stop(run: Run) -> None:
    run.stop()
    run.scheduler.decline(1, COUNT, 1, Reason.CHECKPOINT_DECLINED, "disk full")
    run.all_stopped()


def said(seen: SchedulerStatistics) -> tuple[object, ...]:
    """The message to a user about the end."""
    failures = [(f.attempt, f.root) for f in seen.failures]
    assert seen.checkpoints is not None
    newest = seen.checkpoints.latest_completed_id
    stopped = seen.stopped_with, seen.drained
    return seen.state, seen.attempt, seen.restarts, *stopped, failures, newest, seen.is_fenced


@pytest.mark.parametrize(
    "end",
    [
        finish,
        finish_after_checkpoint,
        stop,
        lambda run: stop(run, drain=True),
        lambda run: stop(run, drain=True, target="/saved"),
        cancel,
        cancel_after_savepoint_of_stop,
        cancel_before_the_next_attempt,
        fail,
        fail_after_a_failed_stop,
    ],
)
@pytest.mark.parametrize("then", ["it only looks", "it is told to cancel"])
def test_a_jobmaster_that_finds_the_end_says_what_the_one_that_wrote_it_said(
    end: Callable[[Run], None], then: str
) -> None:
    run = Run(restart=NoRestart()).start()
    end(run)
    told = run.scheduler.statistics()
    assert told.state.is_terminal
    at = told.transitions[-1].at
    again = Run(run.storage, run.places)
    again.clock.advance(1_000)
    again.scheduler.start()
    if then == "it is told to cancel":
        again.scheduler.cancel()
    again.runner.run_all()
    found = again.scheduler.statistics()
    assert said(found) == said(told)
    assert found.ended_at == at
    assert again.cluster.take() == [f"ended {told.state.value}"]


@pytest.mark.parametrize("drain", [False, True])
def test_the_record_of_the_end_says_whether_a_stop_has_drained(drain: bool) -> None:
    """Also when the JobMaster dies before the end, and the next one writes the record."""
    run = Run().start()
    run.stop(drain=drain)
    run.acknowledge()
    again = Run(run.storage, run.places)
    again.scheduler.start()
    again.runner.run_all()
    again.scheduler.on_deployed(2)
    again.all_stopped()
    last = Run(run.storage, run.places)
    last.scheduler.start()
    last.runner.run_all()
    for each in (again, last):
        found = each.scheduler.statistics()
        assert (found.state, found.drained) == (JobState.FINISHED, drain)
        assert found.stopped_with == "memory:/job/savepoint-1-1"


def test_the_record_of_a_failure_keeps_operator_and_lines_and_is_bounded() -> None:
    run = Run(restart=NoRestart()).start()
    fail(run)
    again = Run(run.storage)
    again.scheduler.start()
    again.runner.run_all()
    root = again.scheduler.statistics().failures[-1].root
    assert (again.state, root.operator, root.subtask, root.raised_at) == (
        JobState.FAILED,
        "count",
        COUNT,
        LINE,
    )
    assert root.message == CAUSE.message
    assert len(root.traceback) <= LONGEST_TRACEBACK
