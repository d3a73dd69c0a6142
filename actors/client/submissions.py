"""Programs that run on the cluster through Ray's Jobs API (`ray job submit`), and the jobs that they start.

A job's report has the id that the program has in Ray (`ray_submission`). Any client finds the program's job
by this id. The program runs on the head node and does not need the client.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import join
from typing import Any, Final, TypeVar

from ray.job_submission import JobDetails, JobSubmissionClient
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_fixed

from penstock.actors.client.cluster import dashboard_address, is_on_head
from penstock.actors.client.jobs import cluster_jobs
from penstock.actors.client.master_calls import Deadline
from penstock.actors.shared.job_report import JobReport, failure_text
from penstock.runtime.errors import ConfigurationError, DeploymentError, JobFailedError, PenstockError
from penstock.runtime.graph.executor import JobStatus

#: Logger of Ray's client, which reports each upload.
_SDK: Final = "ray.dashboard.modules.dashboard_sdk"
#: Seconds between two polls.
_POLL: Final = 0.5
#: Seconds between two polls of Ray's Jobs API, which answers slowly.
_PROGRAM_POLL: Final = 2.0
#: Maximum number of tries of a request to Ray's Jobs API, and the seconds between two tries.
_TRIES: Final = 5
_BETWEEN_TRIES: Final = 1.0
#: Maximum number of output lines of a failed program that are shown.
_LINES: Final = 30
_ENDED: Final = ("STOPPED", "SUCCEEDED", "FAILED")


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Program:
    """A program to run on the cluster.

    Attributes:
        entrypoint: The command, for a shell.
        working_dir: Folder that is shipped to the cluster, in which the command runs.
    """

    entrypoint: str
    working_dir: Path


def program_of(words: Sequence[str], working_dir: Path | None, python: str = "python") -> Program:
    """Make a program from the words of a command: a file `job.py` with arguments, or a whole command.

    Args:
        working_dir: By default the folder of the file, or the current folder for a command.

    Raises:
        ConfigurationError: The file does not exist, or is not in `working_dir`.
    """
    first, *arguments = words
    if not first.endswith(".py"):
        return Program(join(words), (working_dir or Path()).resolve())
    file = Path(first).resolve()
    if not file.is_file():
        msg = f"PROGRAM {first}: there is no such file"
        raise ConfigurationError(msg)
    folder = file.parent if working_dir is None else working_dir.resolve()
    if not file.is_relative_to(folder):
        msg = f"PROGRAM {first} is not in --working-dir {folder}: the cluster would not have the file"
        raise ConfigurationError(msg)
    return Program(join([python, str(file.relative_to(folder)), *arguments]), folder)


def python_here() -> str:
    """The Python that runs submitted programs: this one on the head node, else the head's `python`."""
    return sys.executable if is_on_head() else "python"


class Submissions:
    """The programs that Ray's Jobs API knows; the process must have joined the cluster.

    Raises:
        DeploymentError: The cluster has no dashboard, or it does not answer.
    """

    def __init__(self) -> None:
        address = dashboard_address()
        if address is None:
            msg = (
                "this cluster has no dashboard, so programs can't be submitted to it: start it with "
                "`ray start --head --include-dashboard=true`, or run the program itself"
            )
            raise DeploymentError(msg)
        logging.getLogger(_SDK).setLevel(logging.WARNING)
        self._address = address
        self._client: JobSubmissionClient = self._asked(lambda: JobSubmissionClient(address))

    def ship(self, program: Program) -> None:
        """Upload the program's folder, unless the cluster has it.

        Ray keeps the upload for ten minutes. A `submit` within this time uploads nothing.
        """
        self._asked(lambda: self._client._upload_working_dir_if_needed(_runtime_env(program, {})))

    def submit(
        self,
        program: Program,
        environment: Mapping[str, str],
        metadata: Mapping[str, str],
        submission_id: str | None = None,
    ) -> str:
        """Ship the program and start it; returns its id in Ray, by default a new one."""
        return self._asked(
            lambda: self._client.submit_job(
                entrypoint=program.entrypoint,
                runtime_env=_runtime_env(program, environment),
                metadata=dict(metadata),
                submission_id=submission_id,
            )
        )

    def details(self, submission_id: str) -> JobDetails:
        return self._asked(lambda: self._client.get_job_info(submission_id), _TRIES)

    def with_metadata(self, name: str, value: str) -> list[JobDetails]:
        """The programs that were submitted with this metadata, oldest first."""
        known = self._asked(self._client.list_jobs, _TRIES)
        found = [each for each in known if (each.metadata or {}).get(name) == value]
        return sorted(found, key=lambda each: each.start_time or 0)

    def stop(self, submission_id: str, deadline: Deadline) -> None:
        """End the program, and wait for its end; the jobs that it has started continue.

        Raises:
            JobTimeoutError: The program has not ended at the deadline.
        """
        if has_ended(self.details(submission_id)):
            return
        self._asked(lambda: self._client.stop_job(submission_id), _TRIES)
        while not has_ended(self.details(submission_id)):
            if deadline.has_passed:
                raise deadline.error()
            time.sleep(_POLL)

    def last_lines(self, submission_id: str) -> list[str]:
        """The last lines that the program has printed, without blank lines."""
        printed = self._asked(lambda: self._client.get_job_logs(submission_id), _TRIES)
        return [line for line in printed.splitlines() if line.strip()][-_LINES:]

    def wait_for_job(self, submission_id: str, deadline: Deadline) -> JobReport:
        """Wait until the program's newest job runs or has finished, and return its report.

        Raises:
            JobFailedError: The job has failed or was cancelled, or the program has ended without a job. The
                message begins with the cause. If there is no job, the error's notes are the program's last
                lines.
            JobTimeoutError: No job runs at the deadline; the program continues.
        """
        asked_at = -_PROGRAM_POLL
        is_over = False
        while True:
            # A job that the program has started is known before the program has ended.
            report = job_of(submission_id)
            if report is not None and report.status in (JobStatus.RUNNING, JobStatus.FINISHED):
                return report
            if report is not None and report.status.is_terminal:
                raise JobFailedError(why_ended(report))
            if is_over and report is None and not _hides_a_job():
                raise self._without_job(submission_id)
            if deadline.has_passed:
                late = f"program {submission_id} has no job that runs"
                raise deadline.error(late)
            if report is None and time.monotonic() - asked_at >= _PROGRAM_POLL:
                asked_at = time.monotonic()
                is_over = has_ended(self.details(submission_id))
            time.sleep(_POLL)

    def _without_job(self, submission_id: str) -> JobFailedError:
        details, lines = self.details(submission_id), self.last_lines(submission_id)
        ended = "ended" if details.status == "SUCCEEDED" else "failed"
        reason = (details.message or "").partition("\n")[0]
        cause = lines[-1].strip() if lines and ended == "failed" else reason
        msg = f"{cause} (program {submission_id} {ended} without starting a job)"
        error = JobFailedError(msg)
        for line in lines:
            error.add_note(line)
        return error

    def _asked(self, call: Callable[[], T], tries: int = 1) -> T:
        refusals = retry_if_exception_type((RuntimeError, ValueError, OSError))
        asking = Retrying(
            retry=refusals, stop=stop_after_attempt(tries), wait=wait_fixed(_BETWEEN_TRIES), reraise=True
        )
        try:
            return asking(call)
        except (RuntimeError, ValueError, OSError) as error:
            msg = f"Ray's Jobs API at {self._address} refuses the request or does not answer: {error}"
            raise DeploymentError(msg) from error


def _runtime_env(program: Program, environment: Mapping[str, str]) -> dict[str, Any]:
    variables = {"env_vars": dict(environment)} if environment else {}
    return {"working_dir": str(program.working_dir), **variables}


def has_ended(details: JobDetails) -> bool:
    """Whether the program itself has ended; a job that it has started may run."""
    return str(details.status.value) in _ENDED


def job_of(submission_id: str) -> JobReport | None:
    """The report of the newest job that a submitted program has started; `None` before it has one."""
    reports = [known.report for known in cluster_jobs() if not known.problem]
    found = [report for report in reports if report.ray_submission == submission_id]
    return max(found, key=lambda report: report.submitted_at, default=None)


def _hides_a_job() -> bool:
    """Whether a job has a JobMaster that has not answered; it may be the job that a caller waits for."""
    return any(known.problem and known.has_master for known in cluster_jobs())


def reports_of_all(patience: float) -> list[JobReport]:
    """The reports of all jobs that the cluster knows.

    Raises:
        PenstockError: The JobMaster of a job without a report does not answer for `patience` seconds.
    """
    deadline = Deadline(patience, "", "")
    while True:
        known = cluster_jobs()
        hidden = [job.report.job_id for job in known if job.problem and job.has_master]
        if not hidden:
            return [job.report for job in known if not job.problem]
        if deadline.has_passed:
            msg = (
                f"the JobMaster of job {hidden[0]} does not answer, so its program is not known. `penstock "
                f"logs {hidden[0]} --operator job-master` says more. Repeat the command when it answers"
            )
            raise PenstockError(msg)
        time.sleep(_POLL)


def why_ended(report: JobReport) -> str:
    cause = report.status.value if report.failure is None else failure_text(report.failure.root)
    return f"{cause}\n(job {report.job_id} has ended as {report.status.value})"
