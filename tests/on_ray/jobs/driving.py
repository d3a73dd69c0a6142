"""Watching and hurting a job from outside, always with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable

import ray
from ray.util import list_named_actors

from penstock import JobFailedError, JobResult, JobStatus, StreamEnvironment
from penstock.actors.shared.job_report import failure_text
from penstock.actors.shared.registry import (
    NAMESPACE,
    master_name,
    process_name,
    processes_of_job,
    warm_masters,
    warm_processes,
)
from penstock.cluster import JobReport, RayJobHandle
from penstock.runtime.execution.processes import Counters
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.task.statistics import SubtaskStatistics
from penstock.testing import kill_process

#: Seconds for anything that a test waits for; far more than it takes.
PATIENCE = 240.0
#: Seconds for a job that has much left to do, on a machine that is busy with something else.
LONG_PATIENCE = 600.0
#: Each look is a call that its job answers, in time that it lacks elsewhere.
_POLL = 0.2


def submit(env: StreamEnvironment) -> RayJobHandle:
    """Submit, with the handle's own type."""
    handle = env.submit()
    assert isinstance(handle, RayJobHandle)
    return handle


def eventually(what: str, condition: Callable[[], bool], patience: float = PATIENCE) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"not within {patience:g} s: {what}"
        time.sleep(_POLL)


def wait_until(job: RayJobHandle, what: str, condition: Callable[[JobReport], bool]) -> JobReport:
    """Wait until the report of a job that has not ended says something."""
    deadline = time.monotonic() + PATIENCE
    while True:
        report = job.report()
        if condition(report):
            return report
        seen = f"{report.status.value}, {report.statistics}, {report.failure}, {report.history}"
        assert not report.status.is_terminal, f"the job ended before {what}: {seen}"
        assert time.monotonic() < deadline, f"no {what} within {PATIENCE:g} s: {seen}"
        time.sleep(_POLL)


def after_checkpoints(job: RayJobHandle, count: int) -> JobReport:
    """Wait until this many checkpoints are complete."""
    return wait_until(
        job, f"{count} checkpoint(s)", lambda report: report.statistics.completed_checkpoints >= count
    )


def when_records_flow(job: RayJobHandle, operator: str, records: int = 1) -> JobReport:
    """Wait until an operator has taken this many records in the running attempt."""

    def flows(report: JobReport) -> bool:
        seen = report.statistics.operators.get(operator)
        return seen is not None and max(seen.records_in, seen.records_out) >= records

    return wait_until(job, f"{records} record(s) in {operator}", flows)


def kill_subtask(job: RayJobHandle, vertex: str, index: int = 0) -> int:
    """SIGKILL the process of a subtask; its pid."""
    process = next(p for p in job.processes() if p.subtask == SubtaskId(vertex, index))
    kill_process(process)
    return process.pid


def kill_master(job: RayJobHandle) -> int:
    """SIGKILL the process of the JobMaster; its pid."""
    process = job.report().master
    assert process is not None, "the JobMaster has left"
    kill_process(process)
    return process.pid


def finish(job: RayJobHandle) -> JobResult:
    """Wait for the job to finish; no subtask's actor may be left then."""
    result = job.wait(PATIENCE)
    assert result.status is JobStatus.FINISHED
    assert_no_subtasks(job)
    return result


def failure_of(job: RayJobHandle) -> str:
    """Wait for the job to fail; what it says. Nothing of it may be left."""
    import pytest  # the modules of jobs that import this one are loaded by subtasks, too

    with pytest.raises(JobFailedError) as caught:
        job.wait(PATIENCE)
    report = job.report()
    assert report.status is JobStatus.FAILED
    assert report.failure is not None
    message = failure_text(report.failure.root)
    assert message in str(caught.value)
    assert_no_subtasks(job)
    return message


def assert_no_subtasks(job: RayJobHandle, patience: float = 30.0) -> None:
    """No subtask actor of the job lives, or will in a moment (Ray ends actors asynchronously)."""
    deadline = time.monotonic() + patience
    while left := subtask_actors(job):
        assert time.monotonic() < deadline, f"actors left after the end of the job: {left}"
        time.sleep(_POLL)


def subtask_actors(job: RayJobHandle) -> list[str]:
    """Names of the living subtask actors of a job."""
    living = {a["name"] for a in penstock_actors()}
    names = (process_name(process) for process in processes_of_job(job.job_id))
    return sorted(name for name in names if name in living)


def penstock_actors() -> list[dict[str, str]]:
    """All living actors of Penstock's namespace but warm processes, which are of no job."""
    warm = {process_name(process) for process in warm_processes()}
    warm |= {master_name(process) for process in warm_masters()}
    found = [a for a in list_named_actors(all_namespaces=True) if a["namespace"] == NAMESPACE]
    return [a for a in found if a["name"] not in warm]


def subtask_statistics(job: RayJobHandle) -> dict[SubtaskId, SubtaskStatistics]:
    """The counters of the living subtasks."""
    found = {}
    for name in subtask_actors(job):
        try:
            actor = ray.get_actor(name, namespace=NAMESPACE)
            held = ray.get(actor.ask.remote())
            counters = None if held.role is None else ray.get(actor.renew.remote(held.role))
        except (ValueError, ray.exceptions.RayActorError):
            continue  # the job has just ended
        if isinstance(counters, Counters) and counters.statistics is not None:
            found[held.role.subtask] = counters.statistics
    return found
