"""The rule for answers at the end of a job: the log has each of them, whichever JobMaster is asked.

A JobMaster may die between the record of the end and its report. So the rule asks one more, which knows only
the log. It must say what every other one has said: the state, the savepoint of a stop, whether that was
drained, and the failure.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.config.restart import NO_RESTARTS
from penstock.runtime.errors import CorruptSnapshotError
from penstock.runtime.job.job_ledger import EndedBefore, JobLedger
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.scheduler_statistics import SchedulerStatistics
from penstock.runtime.ports import SnapshotStorage
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.testing.simulation.cluster.job import SimulatedJob
from penstock.runtime.testing.simulation.oracle.final_state import newest_checkpoint


def end_problems(
    storage: SnapshotStorage, job: SimulatedJob, statuses: Sequence[SchedulerStatistics]
) -> list[str]:
    """What is wrong with the answers of an ended job; none for one whose end could not be recorded.

    Args:
        storage: It answers.
        statuses: What each of its JobMasters knows, or knew last.
    """
    view = DecisionLog(storage, SnapshotPaths(job.id)).replay()
    if view.ended is None:
        return []
    found = JobLedger(job.id, storage, job.config.checkpointing).begin_attempt(0.0, NO_RESTARTS)
    if not isinstance(found, EndedBefore):
        return [f"{job.id} has ended, and another JobMaster begins an attempt"]
    problems = []
    with suppress(CorruptSnapshotError):  # nobody can start from a damaged savepoint, so it is none
        newest = newest_checkpoint(storage, job.id)
        is_stopped = newest is not None and newest.kind is SnapshotKind.SYNC_SAVEPOINT
        if is_stopped is not (found.savepoint is not None):
            problems.append(
                f"{job.id} has the savepoint {found.savepoint} of a stop in the record of its end"
            )
    if found.state is JobState.FAILED and found.failure is None:
        problems.append(f"{job.id} has failed, and the record of its end does not say of what")
    for status in statuses:
        if not status.state.is_terminal or status.is_fenced or status.attempt != found.attempt:
            continue
        told, has = (
            (status.state, status.stopped_with, status.drained),
            (
                found.state,
                found.savepoint,
                found.drained,
            ),
        )
        if told != has:
            problems.append(f"a JobMaster of {job.id} has said {told}; its log has {has}")
    return problems
