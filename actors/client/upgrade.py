"""`Upgrade`: replaces the program of a job, and goes back to the old program if the new one fails.

1. The JobMaster starts an actor that keeps the old program (`ProgramKeeper`).
2. The job stops with a savepoint.
3. The new program is submitted. Its job starts from the savepoint.
4. The job completes its first checkpoint. Before that, it has committed no output.

If step 3 or 4 fails, the new program and its job are ended, and the keeper starts the old program from the
savepoint. No step depends on the memory of the command. The savepoint is in the report of the old job. Ray
knows the programs that were submitted for an upgrade. A key in the cluster records the decision to go back
before it is carried out. The job that goes back has an id that follows from the old job and its savepoint. So
an upgrade that was killed after any step continues when it is repeated.

An upgrade must never start the old program while a job of the new one may run. Nor may it start the old
program after such a job has completed a checkpoint. In both cases output would be written twice.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import ray
from ray.job_submission import JobDetails

from penstock.actors.client.executor import ALLOW_NON_RESTORED_STATE, RESTORE_FROM
from penstock.actors.client.job_handle import RayJobHandle
from penstock.actors.client.master_calls import Deadline, MasterCalls
from penstock.actors.client.submissions import Program, Submissions, has_ended, job_of, why_ended
from penstock.actors.master.program_keeper import find_keeper, forget
from penstock.actors.shared import registry
from penstock.actors.shared.archive import load_from_cluster
from penstock.actors.shared.job_report import JobReport
from penstock.actors.shared.registry import has_master
from penstock.runtime.errors import JobCancelledError, JobFailedError, PenstockError, SavepointError
from penstock.runtime.graph.executor import JobStatus, restore_command

_POLL: Final = 0.2
#: Metadata of a submitted program: the id of the job that it replaces.
_REPLACES: Final = "penstock-upgrade-of"
#: Key of an upgrade that goes back, followed by the id of the old job; its value is the id of the new one.
_GOING_BACK: Final = "going-back:"
#: Seconds for a job to end after its cancellation, and for the old program to run again.
_PATIENCE: Final = 120.0


class Upgrade:
    """The upgrade of one job; the process must have joined the cluster.

    Args:
        handle: The job with the old program.
        say: Called with a sentence before or after each step.
    """

    def __init__(self, handle: RayJobHandle, submissions: Submissions, say: Callable[[str], None]) -> None:
        self._handle = handle
        self._job_id = handle.job_id
        self._submissions = submissions
        self._say = say

    def stop(self, folder: str | None, timeout: float | None) -> str:
        """Stop the job, unless an earlier command has stopped it; return the savepoint's URL.

        Raises:
            SavepointError: The job was not stopped, and continues.
            PenstockError: The job has ended without a savepoint to continue from.
        """
        report = self._handle.report()
        if not report.status.is_terminal:
            MasterCalls(self._job_id).quick("keep_program", of_ended=lambda report: None)
            self._say(f"job {self._job_id}: its program is kept")
            try:
                savepoint = self._handle.stop(folder, timeout=timeout)
            except SavepointError:
                forget(self._job_id)
                raise
            self._say(f"job {self._job_id} is stopped: {savepoint}")
            return savepoint
        if report.savepoint is None or report.drained:
            how = "drained" if report.drained else report.status.value
            msg = (
                f"job {self._job_id} has ended ({how}) without a savepoint to continue from: "
                "`penstock submit --restore-from SNAPSHOT PROGRAM` starts a program from another snapshot"
            )
            raise PenstockError(msg)
        self._say(f"job {self._job_id} was stopped before: {report.savepoint}")
        return report.savepoint

    def start(self, program: Program, savepoint: str, *, allow_non_restored_state: bool) -> str:
        """Submit the new program, unless an earlier command has; return its id in Ray.

        Raises:
            PenstockError: The upgrade has gone back, or another program was submitted and may run.
        """
        back = back_id(self._job_id, savepoint)
        if has_master(back) or load_from_cluster(back) is not None:
            msg = (
                f"this upgrade has gone back: job {back} has the old program. "
                f"To try again: penstock upgrade {back} PROGRAM"
            )
            raise PenstockError(msg)
        for earlier in reversed(self._submissions.with_metadata(_REPLACES, self._job_id)):
            submission_id = str(earlier.submission_id)
            if not _may_count(earlier):
                continue
            if earlier.entrypoint != program.entrypoint:
                msg = (
                    f"program {submission_id} was submitted for this upgrade before, and has not failed: "
                    f"{earlier.entrypoint}. Repeat the command with it, or end the program and its job"
                )
                raise PenstockError(msg)
            self._say(f"program {submission_id} was submitted before: {program.entrypoint}")
            return submission_id
        environment = {
            RESTORE_FROM: savepoint,
            ALLOW_NON_RESTORED_STATE: "1" if allow_non_restored_state else "0",
        }
        submission_id = self._submissions.submit(program, environment, {_REPLACES: self._job_id})
        self._say(f"program {submission_id}: {program.entrypoint}")
        return submission_id

    def first_checkpoint(self, submission_id: str, savepoint: str, deadline: Deadline) -> JobReport:
        """Wait until the new job has completed a checkpoint or has finished, and return its report.

        A job without checkpoints only has to run.

        Raises:
            JobFailedError: The program or its job failed; the message begins with the cause.
            JobTimeoutError: No checkpoint is complete after the deadline.
        """
        report = self._submissions.wait_for_job(submission_id, deadline)
        if report.restored_from != savepoint:
            msg = (
                f"job {report.job_id} starts from {report.restored_from or 'nothing'}, not from the "
                "savepoint, because the program names a snapshot itself: leave out its restore_from"
            )
            raise JobFailedError(msg)
        self._say(f"job {report.job_id} runs from the savepoint")
        handle = RayJobHandle(report.job_id, report.name)
        while not _is_proven(report := handle.report()):
            if report.status.is_terminal:
                raise JobFailedError(why_ended(report))
            if deadline.has_passed:
                late = f"job {report.job_id} has completed no checkpoint"
                raise deadline.error(late)
            time.sleep(_POLL)
        forget(self._job_id)
        return report

    @property
    def is_going_back(self) -> bool:
        """Whether this or an earlier command has begun to go back, and no command has completed that."""
        return registry.get(_GOING_BACK + self._job_id) is not None

    def go_back(self, savepoint: str) -> JobReport:
        """End the new program and its job, and start the old program from the savepoint.

        Returns:
            The report of the job with the old program, which runs.

        Raises:
            PenstockError: The old program was not started; the message says why, and what to do.
        """
        self._say("going back to the old program")
        for program in self._submissions.with_metadata(_REPLACES, self._job_id):
            self._end(str(program.submission_id), savepoint)
        keeper = find_keeper(self._job_id)
        if keeper is None:
            msg = (
                "the old program is not kept any more, so it was not started. Start it yourself: "
                f"{restore_command(savepoint, 'python OLD_PROGRAM')}"
            )
            raise PenstockError(msg)
        back = back_id(self._job_id, savepoint)
        registry.put(_GOING_BACK + self._job_id, back.encode())
        ray.get(keeper.start.remote(back, savepoint))
        report = _running(RayJobHandle(back, self._handle.name))
        registry.delete(_GOING_BACK + self._job_id)
        forget(self._job_id)
        self._say(f"job {back} runs the old program from the savepoint")
        return report

    def _end(self, submission_id: str, savepoint: str) -> None:
        self._submissions.stop(submission_id)
        new = job_of(submission_id)
        if new is None:
            return
        new = _ended(RayJobHandle(new.job_id, new.name))
        if new.statistics.completed_checkpoints and new.restored_from == savepoint:
            msg = (
                f"job {new.job_id} completed a checkpoint before it ended, so its output since "
                f"{savepoint} is committed. The old program was not started, because it would "
                "write that output again"
            )
            raise PenstockError(msg)


def back_id(job_id: str, savepoint: str) -> str:
    """The id of the job that goes back: the same for each repetition of an upgrade.

    Example:
        >>> back_id("words-9f04ab12cd", "/saved/1") == back_id("words-9f04ab12cd", "/saved/1")
        True
    """
    name, _, _ = job_id.rpartition("-")
    digits = hashlib.sha256(f"{job_id} {savepoint}".encode()).hexdigest()[:32]
    return f"{name or 'job'}-{digits}"


def _may_count(program: JobDetails) -> bool:
    """Whether a submitted program, or its job, has not failed."""
    job = job_of(str(program.submission_id))
    if job is None:
        return not has_ended(program)
    return not job.status.is_terminal or job.status is JobStatus.FINISHED


def _is_proven(report: JobReport) -> bool:
    if report.status is JobStatus.FINISHED or report.statistics.completed_checkpoints:
        return True
    return report.storage is None and report.status is JobStatus.RUNNING


def _ended(handle: RayJobHandle) -> JobReport:
    if not handle.status().is_terminal:
        handle.cancel()
        with suppress(JobCancelledError, JobFailedError):  # the report says how it has ended
            handle.wait(_PATIENCE)
    return handle.report()


def _running(handle: RayJobHandle) -> JobReport:
    deadline = Deadline(_PATIENCE, f"job {handle.job_id} does not run", "it continues")
    while (report := handle.report()).status is not JobStatus.RUNNING:
        if report.status.is_terminal:
            raise JobFailedError(why_ended(report))
        if deadline.has_passed:
            raise deadline.error()
        time.sleep(_POLL)
    return report
