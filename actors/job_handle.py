"""`RayJobHandle`: a submitted job as its users hold it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import ray

from penstock.actors.archive import load_from_cluster
from penstock.actors.fault_injection import SubtaskProcess
from penstock.actors.job_report import JobReport
from penstock.actors.log_names import JOB_MASTER
from penstock.actors.logs import LogLine, LogReader
from penstock.actors.names import NAMESPACE, master_name
from penstock.actors.progress import Progress
from penstock.actors.savepoint_answers import SavepointAnswer, answer_of_report, path_of
from penstock.actors.urls import absolute_url
from penstock.runtime.checkpoint.coordinator_history import CheckpointDetails
from penstock.runtime.errors import (
    ConfigurationError,
    DeploymentError,
    JobCancelledError,
    JobFailedError,
    RescaleError,
)
from penstock.runtime.graph.job_handle import JobResult, JobStatistics, JobStatus
from penstock.runtime.job.rescale_request import RescaleAnswer, RescaleRefused

T = TypeVar("T")

#: How long a JobMaster may take to come back before a handle gives up.
_MASTER_RETURN_TIMEOUT = 120.0
#: How long Ray may take to find the name of a JobMaster.
_NAME_TIMEOUT = 5.0
_RETRY_DELAY = 0.2
_COMING_UP: Final = (JobStatus.DEPLOYING, JobStatus.RESTARTING, JobStatus.FAILING)
_POLL = 0.5


class RayJobHandle:
    """A job on Ray; found again from any process of the cluster by its id.

    Args:
        job_id: The job's id.
        name: The name that the user gave.
    """

    def __init__(self, job_id: str, name: str) -> None:
        self._job_id = job_id
        self._name = name

    @property
    def job_id(self) -> str:
        """The job's id."""
        return self._job_id

    @property
    def name(self) -> str:
        """The name that the user gave."""
        return self._name

    def report(self) -> JobReport:
        """Everything that is known of the job right now, or at its end."""
        return self._ask(lambda master: master.status.remote(), JobReport.from_record)

    def status(self) -> JobStatus:
        """The job's state right now."""
        return self.report().status

    def statistics(self) -> JobStatistics:
        """What the job has done so far."""
        return self.report().statistics

    def describe(self) -> str:
        """The job graph as a picture in plain text."""
        return self.report().graph

    def processes(self) -> tuple[SubtaskProcess, ...]:
        """Where the subtasks run now; empty when the job has ended."""
        return self.report().processes

    def cancel(self) -> None:
        """End the job; does nothing when it has ended."""
        self._ask(lambda master: master.cancel.remote(), lambda record: None)

    def savepoint(self, target: str | Path | None = None) -> str:
        """Take a savepoint: a checkpoint that is yours, complete in one folder that may be moved.

        Args:
            target: Folder in which the savepoint gets a folder of its own: a path or URL that all nodes see.
                By default it is in the job's checkpoint storage.

        Returns:
            URL of the savepoint's folder, for `restore_from`.

        Raises:
            SavepointError: There is none; the message says why. The job goes on.
        """
        place = None if target is None else absolute_url(target)
        answer = self._ask(lambda master: master.savepoint.remote(place), _ended_answer)
        return path_of(answer, self._job_id)

    def stop(self, savepoint: str | Path | None = None, *, drain: bool = False) -> str:
        """Take a savepoint and end the job; nothing is read behind it.

        Args:
            savepoint: Where, as `target` of `savepoint`.
            drain: Let event time go to its end, so that windows fire: for a job that is not to go on from
                the savepoint later. Without it nothing fires.

        Returns:
            URL of the savepoint's folder. The job is `FINISHED` then, and all that the savepoint covers is
            committed.

        Raises:
            SavepointError: The savepoint failed; the message says why. If subtasks had stopped for it, the
                job restarts from its last checkpoint, else it just goes on.
        """
        place = None if savepoint is None else absolute_url(savepoint)
        answer = self._ask(lambda master: master.stop.remote(drain, place), _ended_answer)
        return path_of(answer, self._job_id)

    def rescale(self, parallelism: Mapping[str, int] | None = None, **operators: int) -> None:
        """Change the parallelism of operators while the job runs: save state, deploy anew, go on.

        Returns when the job runs again. What was read behind the checkpoint is read once more, as after a
        failure; results stay exactly once.

        Args:
            parallelism: By operator id; an operator takes its whole chain along.
            **operators: The same, for ids that are Python names: `rescale(count=4)`.

        Raises:
            RescaleError: The job goes on as it was; the message says why.
            JobFailedError: The job has failed at the new parallelism.
        """
        wanted = {**(parallelism or {}), **operators}
        answer: RescaleAnswer = self._ask(
            lambda master: master.rescale.remote(wanted),
            lambda record: RescaleRefused(f"the job has ended: {record['status']}"),
        )
        if isinstance(answer, RescaleRefused):
            msg = f"job {self._job_id} is not rescaled: {answer.why}"
            raise RescaleError(msg)
        while (report := self.report()).statistics.attempt <= answer.attempt or report.status in _COMING_UP:
            if report.status.is_terminal:
                self._result(report)
                return
            time.sleep(_RETRY_DELAY)

    def checkpoints(self) -> tuple[CheckpointDetails, ...]:
        """The job's last checkpoints and savepoints, oldest first.

        Each with its size and duration, and with what every subtask measured: how long it aligned, how long
        it stopped for it, how much it wrote. Of a job that has ended the records alone are left.
        """
        details = self._ask(lambda master: master.checkpoints.remote(), _ended_checkpoints)
        return tuple(details)

    def logs(self, *, operator: str | None = None, subtask: int | None = None) -> list[LogLine]:
        """What its operators and its JobMaster have printed and logged so far, in the order of time.

        Args:
            operator: Only of the chain that this operator is in; `job-master` for the JobMaster.
            subtask: Only of this subtask, from 0.

        Raises:
            ConfigurationError: The job has no such operator.
        """
        return self.log_reader(operator, subtask).read()

    def log_reader(self, operator: str | None = None, subtask: int | None = None) -> LogReader:
        """Reads its log piece by piece; the arguments are those of `logs`."""
        vertices = None if operator is None else [vertex_of(self.report(), operator)]
        return LogReader(self._job_id, vertices, subtask)

    def wait(
        self,
        timeout: float | timedelta | None = None,
        *,
        progress: bool = False,
        on_progress: Callable[[JobReport], None] | None = None,
    ) -> JobResult:
        """Wait for the job to end.

        Args:
            timeout: Seconds to wait at most; `None` waits for ever.
            progress: Show a live line meanwhile.
            on_progress: Called with a report about twice a second.

        Raises:
            JobFailedError: It failed; the message begins with the root cause.
            JobCancelledError: Somebody cancelled it.
            TimeoutError: It still runs after `timeout`, and goes on running.
        """
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        watchers = [] if on_progress is None else [on_progress]
        with Progress() if progress else nullcontext() as shown:
            if shown is not None:
                watchers.append(shown.update)
            try:
                report = self._wait(seconds, watchers)
            except KeyboardInterrupt as stop:
                stop.add_note(f"job {self._job_id} was not cancelled; `cancel()` of its handle ends it")
                raise
        return self._result(report)

    def _wait(self, seconds: float | None, watchers: list[Callable[[JobReport], None]]) -> JobReport:
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            left = _POLL if deadline is None else min(_POLL, max(0.0, deadline - time.monotonic()))
            report = self._wait_once(left)
            for watcher in watchers:
                watcher(report)
            if report.status.is_terminal:
                return report
            if deadline is not None and time.monotonic() >= deadline:
                msg = f"job {self._job_id} is still {report.status.value} after {seconds:g} s; it goes on"
                raise TimeoutError(msg)

    def _wait_once(self, seconds: float) -> JobReport:
        return self._ask(lambda master: master.wait_end.remote(seconds), JobReport.from_record)

    def _result(self, report: JobReport) -> JobResult:
        if report.status is JobStatus.FAILED:
            attempts = report.statistics.attempt
            msg = (
                f"{report.failure or 'it failed for no known reason'}\n"
                f"(job {self._job_id} failed in attempt {attempts}; "
                "`penstock status` and `penstock logs` say more)"
            )
            raise JobFailedError(msg)
        if report.status is JobStatus.CANCELLED:
            msg = f"job {self._job_id} was cancelled"
            raise JobCancelledError(msg)
        return JobResult(self._job_id, self._name, report.status, report.duration, report.statistics)

    def _ask(self, call: Callable[[Any], Any], from_record: Callable[[dict[str, Any]], T]) -> T:
        """Call the JobMaster, wait for it while it comes back, or read what it left."""
        begun = time.monotonic()
        while True:
            patience = _MASTER_RETURN_TIMEOUT
            try:
                master = ray.get_actor(master_name(self._job_id), namespace=NAMESPACE)
                answer: T = ray.get(call(master))
                return answer
            except ray.exceptions.ActorUnavailableError as error:
                problem: Exception = error
            except (ValueError, ray.exceptions.RayActorError) as error:
                record = load_from_cluster(self._job_id)
                if record is not None and JobReport.from_record(record).status.is_terminal:
                    return from_record(record)
                problem = error
                if isinstance(error, ValueError):  # Ray knows no such actor, not even one that comes back
                    patience = _NAME_TIMEOUT
            if time.monotonic() - begun > patience:
                msg = f"no JobMaster of job {self._job_id} answers, and the job has left no record of its end"
                raise DeploymentError(msg) from problem
            time.sleep(_RETRY_DELAY)


def _ended_checkpoints(record: dict[str, Any]) -> tuple[CheckpointDetails, ...]:
    return tuple(CheckpointDetails(each, {}) for each in JobReport.from_record(record).checkpoint_history)


def _ended_answer(record: dict[str, Any]) -> SavepointAnswer:
    return answer_of_report(JobReport.from_record(record))


def vertex_of(report: JobReport, operator: str) -> str:
    """The vertex that an operator is in.

    Raises:
        ConfigurationError: The job has no such operator.
    """
    if operator == JOB_MASTER:
        return JOB_MASTER
    for known in report.operators:
        if known.id == operator:
            return known.vertex
    ids = ", ".join(known.id for known in report.operators)
    msg = f"job {report.job_id} has no operator '{operator}'; it has: {ids}, and {JOB_MASTER}"
    raise ConfigurationError(msg)
