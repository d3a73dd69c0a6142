"""`Upgrade`: replaces the program of a job, and goes back to the old program if the new one fails.

1. The JobMaster starts an actor that keeps the old program (`ProgramKeeper`).
2. The job stops with a savepoint.
3. The new program is submitted. Its job starts from the savepoint.
4. The job completes its first checkpoint. Before that, it has committed no output.

If step 3 or 4 fails, the new program and its jobs are ended, and the keeper starts the old program from the
savepoint. No step depends on the memory of the command. The savepoint is in the report of the old job. Ray
knows the programs that were submitted for an upgrade. A key in the cluster records the decision to go back
before it is carried out. The job that runs the old program again has an id that is derived from the old job's
id and its savepoint. So an upgrade that was killed after any step continues when it is repeated.

An upgrade must never start a program from the savepoint while another job that started from it may run. Nor
may it do so after such a job has completed a checkpoint. In both cases output would be written twice. So a
key in the cluster first forbids all jobs of the new program (`forbid_jobs_of`). Then the jobs that run in
spite of it are ended. The upgrade does not go back while a JobMaster does not answer: its job is not known.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import ray
from ray.job_submission import JobDetails

from penstock.actors.client.executor import ALLOW_NON_RESTORED_STATE, RESTORE_FROM
from penstock.actors.client.job_handle import RayJobHandle
from penstock.actors.client.master_calls import Deadline, MasterCalls
from penstock.actors.client.submissions import Program, Submissions, has_ended, reports_of_all, why_ended
from penstock.actors.master.program_keeper import find_keeper, forget
from penstock.actors.shared import registry
from penstock.actors.shared.archive import forbid_jobs_of, load_from_cluster
from penstock.actors.shared.job_report import JobReport
from penstock.actors.shared.registry import has_master
from penstock.runtime.errors import JobCancelledError, JobFailedError, PenstockError, SavepointError
from penstock.runtime.graph.executor import JobStatus, restore_command
from penstock.runtime.redaction import redacted

_POLL: Final = 0.2
#: Metadata of a submitted program: the id of the job that it replaces.
_REPLACES: Final = "penstock-upgrade-of"
#: Prefix of the key that records the decision to go back; the old job's id follows it. The key's value is the
#: id of the job that runs the old program again.
_GOING_BACK: Final = "going-back:"
#: Seconds for JobMasters to answer, for a program or a cancelled job to end, and for the old program to run.
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
        #: Ids of the programs that this command has submitted, or has tried to submit.
        self._submitted: set[str] = set()

    def stop(self, folder: str | None, timeout: float | None) -> str:
        """Stop the job, unless an earlier command has stopped it; return the savepoint's URL.

        Raises:
            SavepointError: The job was not stopped, and continues.
            PenstockError: The job has ended without a savepoint to continue from, or the URL of its savepoint
                would look like a secret.
        """
        report = self._handle.report()
        if not report.status.is_terminal:
            if (target := folder or report.storage) is not None:
                _refuse_hidden(f"{target}/savepoint-{self._job_id}-1-1", "Give another --savepoint FOLDER")
            reports_of_all(_PATIENCE)  # now, because it would fail after the stop, too
            return self._stop(folder, timeout)
        if report.savepoint is None or report.drained:
            forget(self._job_id)
            how = "drained" if report.drained else report.status.value
            msg = (
                f"job {self._job_id} has ended ({how}) without a savepoint to continue from: "
                "`penstock submit --restore-from SNAPSHOT PROGRAM` starts a program from another snapshot"
            )
            raise PenstockError(msg)
        advice = "`penstock submit --restore-from SNAPSHOT PROGRAM` starts a program without an upgrade"
        _refuse_hidden(report.savepoint, advice)
        self._say(f"job {self._job_id} was stopped before: {report.savepoint}")
        return report.savepoint

    def _stop(self, folder: str | None, timeout: float | None) -> str:
        try:
            MasterCalls(self._job_id).quick("keep_program", of_ended=lambda report: None)
            self._say(f"job {self._job_id}: its program is kept")
            savepoint = self._handle.stop(folder, timeout=timeout)
        except SavepointError:
            forget(self._job_id)
            raise
        except Exception:
            # A repetition needs the old program if the job stops in spite of the error.
            if not self._may_have_stopped():
                forget(self._job_id)
            raise
        self._say(f"job {self._job_id} is stopped: {savepoint}")
        return savepoint

    def _may_have_stopped(self) -> bool:
        try:
            report = self._handle.report()
        except PenstockError:
            return True
        return report.status is JobStatus.STOPPING or report.savepoint is not None

    def start(self, program: Program, savepoint: str, *, allow_non_restored_state: bool) -> str:
        """Submit the new program, unless an earlier command has; return its id in Ray.

        Raises:
            PenstockError: The upgrade has gone back, another program was submitted and may run, or another
                job has started from the savepoint.
            DeploymentError: Ray refuses the program, or does not answer.
        """
        back = back_id(self._job_id, savepoint)
        if has_master(back) or load_from_cluster(back) is not None:
            msg = (
                f"this upgrade has gone back: job {back} has the old program. "
                f"To try again: penstock upgrade {back} PROGRAM"
            )
            raise PenstockError(msg)
        submitted = self._submissions.with_metadata(_REPLACES, self._job_id)
        reports = reports_of_all(_PATIENCE)
        jobs = {str(each.submission_id): _jobs_of(str(each.submission_id), reports) for each in submitted}
        for report in reports:
            is_continued = report.ray_submission in jobs and _has_not_failed(report)
            if report.restored_from == savepoint and not is_continued:
                self._refuse_second_start(report)
        for earlier in reversed(submitted):
            submission_id = str(earlier.submission_id)
            if not _may_count(earlier, jobs[submission_id]):
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
        # The id is known before Ray answers, so a program whose submission seems to fail is ended, too.
        submission_id = f"raysubmit_{secrets.token_hex(8)}"
        self._submitted.add(submission_id)
        self._submissions.submit(program, environment, {_REPLACES: self._job_id}, submission_id)
        self._say(f"program {submission_id}: {program.entrypoint}")
        return submission_id

    def _refuse_second_start(self, report: JobReport) -> None:
        """Raise if a job that has started from the savepoint may run or has committed output."""
        if report.status.is_terminal and not _has_committed(report):
            return
        job_id = report.job_id
        how = f"and has ended ({report.status.value})" if report.status.is_terminal else "and may run"
        advice = f"To replace its program: penstock upgrade {job_id} PROGRAM"
        if report.status.is_terminal and report.savepoint is None:
            advice = _continuing(report, "python PROGRAM")
        msg = (
            f"job {job_id} has already started from the savepoint of job {self._job_id} {how}. A second "
            f"job would write its output again. {advice}"
        )
        raise PenstockError(msg)

    def first_checkpoint(self, submission_id: str, savepoint: str, deadline: Deadline) -> JobReport:
        """Wait until the new job has completed a checkpoint or has finished, and return its report.

        A job without checkpoints only has to run.

        Raises:
            JobFailedError: The program or its job failed; the message begins with the cause.
            JobTimeoutError: No checkpoint was completed before the deadline.
        """
        report = self._submissions.wait_for_job(submission_id, deadline)
        if report.restored_from != savepoint:
            if report.restored_from is None:
                how = f"without a snapshot, because {RESTORE_FROM} was not set in its program: don't unset it"
            else:
                how = f"from {report.restored_from}, which its program names: leave out its restore_from"
            msg = f"job {report.job_id} did not start from the savepoint but {how}"
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
        """Whether a command has begun to go back, and none has completed this or found it impossible."""
        return registry.get(_GOING_BACK + self._job_id) is not None

    def go_back(self, savepoint: str) -> JobReport:
        """End the new program and its job, and start the old program from the savepoint.

        Returns:
            The report of the job with the old program, which runs or has finished.

        Raises:
            JobFailedError: The job with the old program has failed or was cancelled.
            PenstockError: The old program was not started, or its job does not run yet; the message says why,
                and what to do.
        """
        self._say("going back to the old program")
        back = back_id(self._job_id, savepoint)
        registry.put(_GOING_BACK + self._job_id, back.encode())
        self._end_new(savepoint)
        report = load_from_cluster(back)
        if report is None or not report.status.is_terminal:
            self._start_old(back, savepoint)
            report = _running(RayJobHandle(back, self._handle.name))
        forget(self._job_id)
        if report.status in (JobStatus.FAILED, JobStatus.CANCELLED):
            how = _continuing(report, "python OLD_PROGRAM")
            msg = f"{why_ended(report)}\nThe old program was started once, and is not started again. {how}"
            raise JobFailedError(msg)
        registry.delete(_GOING_BACK + self._job_id)
        self._say(f"job {back} runs the old program from the savepoint")
        return report

    def _end_new(self, savepoint: str) -> None:
        """End each new program and its jobs; raise if a job that began from the savepoint has committed."""
        known = self._submissions.with_metadata(_REPLACES, self._job_id)
        listed = {str(program.submission_id) for program in known}
        for submission_id in listed | self._submitted:
            forbid_jobs_of(submission_id)
        for submission_id in sorted(listed):
            late = f"program {submission_id} does not end"
            self._submissions.stop(submission_id, Deadline(_PATIENCE, late, "repeat the command"))
        jobs = [job for job in reports_of_all(_PATIENCE) if job.ray_submission in listed | self._submitted]
        for job in [_ended(job) for job in jobs]:
            if _has_committed(job) and job.restored_from == savepoint:
                registry.delete(_GOING_BACK + self._job_id)
                forget(self._job_id)
                msg = (
                    f"job {job.job_id} completed a checkpoint before it ended, so its output since "
                    f"{savepoint} is committed. The old program was not started, because it would "
                    "write that output again"
                )
                raise PenstockError(msg)

    def _start_old(self, back: str, savepoint: str) -> None:
        keeper = find_keeper(self._job_id)
        if keeper is None:
            registry.delete(_GOING_BACK + self._job_id)
            msg = (
                "the old program is not kept any more, so it was not started. Start it yourself: "
                f"{restore_command(savepoint, 'python OLD_PROGRAM')}"
            )
            raise PenstockError(msg)
        try:
            ray.get(keeper.start.remote(back, savepoint), timeout=_PATIENCE)
        except ray.exceptions.GetTimeoutError as error:
            msg = f"the old program was not started within {_PATIENCE:g} s: repeat the command"
            raise PenstockError(msg) from error


def back_id(job_id: str, savepoint: str) -> str:
    """Id of the job that runs the old program again: the same for each repetition of an upgrade.

    Example:
        >>> back_id("words-9f04ab12cd", "/saved/1") == back_id("words-9f04ab12cd", "/saved/1")
        True
    """
    name, _, _ = job_id.rpartition("-")
    digits = hashlib.sha256(f"{job_id} {savepoint}".encode()).hexdigest()[:32]
    return f"{name or 'job'}-{digits}"


def _refuse_hidden(savepoint: str, advice: str) -> None:
    """Refuse a savepoint whose URL is hidden in reports, because no job could be compared with it."""
    if redacted(savepoint) != savepoint:
        msg = (
            f"savepoint {redacted(savepoint)} does not suit an upgrade: a part of its URL looks like a "
            f"secret. Reports hide it, so the upgrade could not find the jobs that start from there. {advice}"
        )
        raise PenstockError(msg)


def _jobs_of(submission_id: str, reports: Sequence[JobReport]) -> list[JobReport]:
    return [report for report in reports if report.ray_submission == submission_id]


def _may_count(program: JobDetails, jobs: Sequence[JobReport]) -> bool:
    """Whether one of a program's jobs has not failed; without jobs, whether the program has not ended."""
    if not jobs:
        return not has_ended(program)
    return any(map(_has_not_failed, jobs))


def _has_not_failed(report: JobReport) -> bool:
    return not report.status.is_terminal or report.status is JobStatus.FINISHED


def _has_committed(report: JobReport) -> bool:
    return report.status is JobStatus.FINISHED or report.statistics.completed_checkpoints > 0


def _is_proven(report: JobReport) -> bool:
    if report.status is JobStatus.FINISHED or report.statistics.completed_checkpoints:
        return True
    return report.storage is None and report.status is JobStatus.RUNNING


def _continuing(report: JobReport, program: str) -> str:
    """Describe how to continue an ended job: from its last snapshot, or from the snapshot it started from."""
    snapshot = None if report.end is None else report.end.snapshot
    if snapshot is None:
        return "It left no snapshot to continue from"
    return f"To continue from its last snapshot: {restore_command(snapshot, program)}"


def _ended(job: JobReport) -> JobReport:
    """End a job, unless it has ended; return its last report."""
    if job.status.is_terminal:
        return job
    handle = RayJobHandle(job.job_id, job.name)
    handle.cancel()
    with suppress(JobCancelledError, JobFailedError):  # the report says how it has ended
        handle.wait(_PATIENCE)
    return handle.report()


def _running(handle: RayJobHandle) -> JobReport:
    """Wait until a job runs or has ended."""
    deadline = Deadline(_PATIENCE, f"job {handle.job_id} does not run", "it continues")
    while (report := handle.report()).status is not JobStatus.RUNNING and not report.status.is_terminal:
        if deadline.has_passed:
            raise deadline.error()
        time.sleep(_POLL)
    return report
