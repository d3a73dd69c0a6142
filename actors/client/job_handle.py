"""`RayJobHandle`: a program's handle of a submitted job."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from shlex import quote
from typing import Final

from penstock.actors.client.cluster import UserInterface, is_own_cluster, open_interface
from penstock.actors.client.interrupts import explain, interrupts_delivered, name_job
from penstock.actors.client.logs import LogLine, LogReader
from penstock.actors.client.master_calls import Deadline, MasterCalls, request_deadline
from penstock.actors.client.program import is_interactive, own_program
from penstock.actors.client.progress import FailureNotices, Progress, show_card
from penstock.actors.client.ray_notices import NOTICES
from penstock.actors.shared.edge_records import EdgeRecord
from penstock.actors.shared.job_report import (
    JobReport,
    SubtaskProcess,
    failure_text,
    headline,
)
from penstock.actors.shared.snapshot_answers import (
    CheckpointReply,
    SavepointAnswer,
    SavepointTaken,
    answer_of_report,
    path_of,
    reply_of_report,
    taken,
)
from penstock.runtime.config.checks import Location
from penstock.runtime.errors import (
    CheckpointError,
    DeploymentError,
    JobCancelledError,
    JobFailedError,
    RescaleError,
    SavepointError,
)
from penstock.runtime.graph.executor import (
    CheckpointResult,
    JobResult,
    JobStatistics,
    JobStatus,
    restore_command,
)
from penstock.runtime.graph.graph_info import describe
from penstock.runtime.graph.job_graph import JobGraph
from penstock.runtime.io.storage import absolute_location
from penstock.runtime.job.job_state import RescaleAnswer, RescaleRefused
from penstock.runtime.names import NearestMembers, checked_keywords
from penstock.runtime.snapshot.checkpoint_record import CheckpointDetails
from penstock.runtime.time.durations import Duration, seconds_in

#: Seconds between two checks of a job that is being rescaled.
_LOOK: Final = 0.2
_COMING_UP: Final = (JobStatus.DEPLOYING, JobStatus.RESTARTING, JobStatus.FAILING)
_POLL: Final = 0.5
#: Seconds after the user's deadline by which the JobMaster must have answered a `wait`.
_SILENCE: Final = 30.0


class RayJobHandle(NearestMembers):
    """A job on Ray; any process of the cluster can find the job by its id.

    `wait`, `ends_within`, `checkpoint`, `savepoint`, `stop` and `rescale` wait as long as their `timeout`
    says, and `take_savepoint` waits for ever. Any other call that the JobMaster does not answer within two
    minutes raises a `JobTimeoutError`.

    Args:
        graph: Graph that the handle keeps alive: sources and sinks may hold objects that the job needs.
        ended: Last report of a job that has ended and that the cluster may not know. A handle with
            `ended` needs no cluster.
    """

    def __init__(
        self, job_id: str, name: str, graph: JobGraph | None = None, ended: JobReport | None = None
    ) -> None:
        self._job_id = job_id
        self._name = name
        self._graph = graph
        self._ended = ended
        self._master = MasterCalls(job_id, ended)
        self._interface: UserInterface | None = None
        self._seen: JobReport | None = None

    def __repr__(self) -> str:
        return f"RayJobHandle({self._job_id!r})"

    def _ipython_display_(self) -> None:
        show_card(lambda: self.report(fresh=False), self._link)

    def _link(self) -> str | None:
        return None if self._interface is None else f"{self._interface.address}#/jobs/{self._job_id}"

    def __reduce__(self) -> tuple[type[RayJobHandle], tuple[str, str, None, JobReport | None]]:
        return RayJobHandle, (self._job_id, self._name, None, self._ended)

    @property
    def job_id(self) -> str:
        """The job's id."""
        return self._job_id

    @property
    def name(self) -> str:
        """The name that the user gave."""
        return self._name

    @checked_keywords
    def report(self, *, fresh: bool = True) -> JobReport:
        """The state and the counters of the job now, or at its end.

        Args:
            fresh: Ask all subtasks for their counters; otherwise they may be two seconds old.
        """
        return self._master.quick("status", fresh, of_ended=_itself)

    def status(self) -> JobStatus:
        """The job's state right now."""
        return self.report().status

    def statistics(self) -> JobStatistics:
        """Counters of the job so far."""
        return self.report().statistics

    def describe(self) -> str:
        """The job graph as a picture in plain text."""
        return describe(self.report().graph)

    def ui(self, *, open_browser: bool = True) -> UserInterface:
        """Show the job in a browser: starts a server that ends with this program.

        For a server that stays, run `penstock ui`.

        Args:
            open_browser: Open a browser. Without one, open the address in `login` of the returned value.

        Raises:
            DeploymentError: The server does not start.
        """
        if self._interface is None:
            storage = None if self._ended is None else self._ended.storage
            self._interface = open_interface(self._job_id, storage=storage, open_browser=open_browser)
        return self._interface

    def processes(self) -> tuple[SubtaskProcess, ...]:
        """Processes of the subtasks now; empty when the job has ended."""
        return self.report().processes

    def cancel(self) -> None:
        """End the job; does nothing when it has ended."""
        self._master.quick("cancel", of_ended=lambda report: None)

    @checked_keywords
    def checkpoint(self, *, full: bool = False, timeout: Duration | None = None) -> CheckpointResult:
        """Take a checkpoint in addition to the periodic ones, and wait until it is complete.

        `max_concurrent`, `min_pause` and `tolerable_failures` apply as to a periodic checkpoint. The call
        waits up to a minute for a job that starts or restarts. If the JobMaster dies meanwhile, the next one
        takes another checkpoint.

        Args:
            full: Write all state anew. The checkpoint then refers to no older file, except for the state of
                subtasks that had finished before.
            timeout: Seconds to wait at most; `None` waits for ever.

        Raises:
            CheckpointError: The checkpoint failed; the message says why. The job continues, unless it is
                ending or has ended.
            RequestLostError: The JobMaster died meanwhile, and the job has ended since.
            JobTimeoutError: The checkpoint is not complete after `timeout`, and continues.
        """
        deadline = request_deadline("checkpoint", self._job_id, timeout)
        reply: CheckpointReply = self._master.ask(
            "checkpoint", full, of_ended=reply_of_report, deadline=deadline, request="a checkpoint"
        )
        return taken(reply, self._job_id, CheckpointError)

    @checked_keywords
    def savepoint(self, savepoint: Location | None = None, *, timeout: Duration | None = None) -> str:
        """Take a savepoint: a self-contained checkpoint that you own, in one folder that may be moved.

        Args:
            savepoint: Parent of the savepoint's own folder: a path or URL that all nodes see. The default is
                the job's checkpoint storage.
            timeout: Seconds to wait at most; `None` waits for ever.

        Returns:
            URL of the savepoint's folder, for `restore_from`.

        Warns:
            SavepointStillNeededWarning: The savepoint is complete, but no checkpoint could be taken after it.
                Keep its files until the job completes a checkpoint: a restart would need the savepoint.

        Raises:
            SavepointError: The savepoint failed; the message says why. The job continues, unless it is
                ending or has ended.
            RequestLostError: The JobMaster died meanwhile, and the job has ended since. The folder may hold a
                savepoint.
            JobTimeoutError: The savepoint is not complete after `timeout`, and continues.
        """
        return path_of(self._take_savepoint(savepoint, timeout), self._job_id)

    def take_savepoint(self, savepoint: Location | None = None) -> SavepointTaken:
        """Like `savepoint` without a timeout, and never warns.

        The result says whether the job still needs the savepoint.
        """
        return taken(self._take_savepoint(savepoint, None), self._job_id, SavepointError)

    def _take_savepoint(self, savepoint: Location | None, timeout: Duration | None) -> SavepointAnswer:
        target = None if savepoint is None else absolute_location("savepoint", savepoint)
        deadline = request_deadline("savepoint", self._job_id, timeout)
        answer: SavepointAnswer = self._master.ask(
            "savepoint",
            target,
            of_ended=answer_of_report,
            deadline=deadline,
            request="a savepoint" if target is None else f"a savepoint in {target}",
        )
        return answer

    @checked_keywords
    def stop(
        self,
        savepoint: Location | None = None,
        *,
        drain: bool = False,
        timeout: Duration | None = None,
    ) -> str:
        """Take a savepoint and end the job; sources read nothing after the savepoint.

        Args:
            savepoint: Parent of the savepoint's own folder, as for `savepoint`.
            drain: Advance event time to its end first. Open windows then fire unfinished; otherwise they
                stay in the savepoint. Drain a job that will not be resumed from the savepoint.
            timeout: Seconds to wait at most; `None` waits for ever.

        Returns:
            URL of the savepoint's folder. The job is `FINISHED`, and its output is committed.

        Raises:
            SavepointError: The savepoint failed; the message says why. If subtasks may have stopped for it,
                the job restarts from its last checkpoint. Otherwise the job continues, unless it is ending
                or has ended. Also raised when the job is already being stopped with another `drain` or
                folder; an identical request gets the same answer.
            JobTimeoutError: The job has not ended after `timeout`; it continues stopping.
        """
        target = None if savepoint is None else absolute_location("savepoint", savepoint)
        deadline = request_deadline("stop", self._job_id, timeout)
        answer = self._master.ask(
            "stop", drain, target, of_ended=partial(answer_of_report, drain=drain), deadline=deadline
        )
        return path_of(answer, self._job_id)

    def rescale(
        self,
        parallelism: Mapping[str, int] | None = None,
        *,
        timeout: Duration | None = None,
        **operators: int,
    ) -> None:
        """Change the parallelism of operators while the job runs: take a checkpoint, redeploy, continue.

        Returns when the job runs again. Records that were read after the checkpoint are read again, as after
        a failure; results stay exactly-once.

        Args:
            parallelism: New parallelism by operator id; the operator's whole chain changes with it.
            timeout: Seconds to wait at most; `None` waits for ever.
            **operators: Like `parallelism`, for ids that are Python names: `rescale(count=4)`.

        Raises:
            RescaleError: The job was not rescaled; the message says why. The job continues, unless it is
                ending or has ended.
            RequestLostError: The JobMaster died meanwhile, and the job has ended since.
            JobFailedError: The job has failed at the new parallelism.
            JobCancelledError: The job was cancelled before it ran at the new parallelism.
            JobTimeoutError: The job does not run at the new parallelism after `timeout`; the change
                continues.
        """
        wanted = {**(parallelism or {}), **operators}
        deadline = request_deadline("rescale", self._job_id, timeout)
        answer: RescaleAnswer = self._master.ask(
            "rescale",
            wanted,
            of_ended=lambda report: RescaleRefused(f"the job has ended: {report.status.value}"),
            deadline=deadline,
            request=f"a rescale to {wanted}",
        )
        if isinstance(answer, RescaleRefused):
            msg = f"job {self._job_id} was not rescaled: {answer.why}"
            raise RescaleError(msg)
        self._wait_for_attempt_behind(answer.attempt, deadline)

    def _wait_for_attempt_behind(self, attempt: int, deadline: Deadline) -> None:
        while True:
            report = self._master.quick("status", of_ended=_itself, within=deadline)
            if report.status.is_terminal:
                _result(report)
                return
            if report.statistics.attempt > attempt and report.status not in _COMING_UP:
                return
            if deadline.has_passed:
                raise deadline.error()
            time.sleep(deadline.left(at_most=_LOOK) or 0.0)

    def checkpoints(self) -> tuple[CheckpointDetails, ...]:
        """The job's last checkpoints and savepoints, oldest first.

        The newest 20 have the measurements of each subtask. Of the checkpoints before the death of a
        JobMaster, only retained ones have measurements; the others have at most their records. A job that has
        ended has only records.
        """
        return self._details(None)

    def checkpoint_details(self, checkpoint_id: int) -> CheckpointDetails | None:
        """The newest checkpoint or savepoint with this id; `None` if the job's history has no such entry."""
        found = [d for d in self._details(checkpoint_id) if d.record.checkpoint_id == checkpoint_id]
        return found[-1] if found else None

    def _details(self, checkpoint_id: int | None) -> tuple[CheckpointDetails, ...]:
        return self._master.quick("checkpoints", checkpoint_id, of_ended=_ended_checkpoints)

    @checked_keywords
    def sample_edge(self, edge: int, *, most: int = 10, timeout: Duration = 2.0) -> list[EdgeRecord]:
        """Records that the job sends on an edge now; they are not stored.

        The senders show the next records that they send, so an edge where nothing flows shows none.

        Args:
            edge: Index of the edge in `report().graph.edges`.
            most: Maximum number of records, up to 100.
            timeout: Maximum time to wait for these records, up to 30 seconds.

        Raises:
            DeploymentError: The job has ended.
        """

        def of_ended(report: JobReport) -> list[EdgeRecord]:
            msg = f"job {self._job_id} has ended ({report.status.value}), so no record flows"
            raise DeploymentError(msg)

        seconds = seconds_in("timeout", timeout)
        return self._master.quick("sample_edge", edge, most, seconds, of_ended=of_ended)

    @checked_keywords
    def logs(self, *, operator: str | None = None, subtask: int | None = None) -> list[LogLine]:
        """Recent output and log lines of the job, sorted by time: the last 4 MiB of each file.

        Args:
            operator: Show only the chain of this operator; `job-master` is the JobMaster, and `ray` shows
                Ray's notices.
            subtask: Show only this subtask, counted from 0.

        Raises:
            ConfigurationError: The job has no such operator.
            DeploymentError: The job is known from its storage only.
        """
        return self.log_reader(operator, subtask).read()

    @checked_keywords
    def log_reader(self, operator: str | None = None, subtask: int | None = None) -> LogReader:
        """Return a reader of the job's log; takes the arguments of `logs` and raises its errors."""
        if self._ended is not None:
            msg = f"job {self._job_id} is known from its storage only: its logs stayed on its nodes"
            raise DeploymentError(msg)
        vertices = None if operator is None else [self.report().vertex_of(operator)]
        return LogReader(self._job_id, vertices, subtask)

    @checked_keywords
    def wait(
        self,
        timeout: Duration | None = None,
        *,
        progress: bool = False,
        on_progress: Callable[[JobReport], None] | None = None,
    ) -> JobResult:
        """Wait for the job to end.

        Logs why the job restarts. A cause that occurs again is logged at its 2nd, 4th, 8th time and so on.

        Args:
            timeout: Seconds to wait at most; `None` waits for ever.
            progress: Show a live progress line.
            on_progress: Callback that receives a report about twice a second.

        Raises:
            JobFailedError: The job failed; the message begins with the root cause.
            JobCancelledError: The job was cancelled.
            JobTimeoutError: The job still runs after `timeout`, and continues running.
        """
        watchers: list[Callable[[JobReport], None]] = [FailureNotices().update]
        if on_progress is not None:
            watchers.append(on_progress)
        try:
            with interrupts_delivered(), Progress() if progress else nullcontext() as shown:
                if shown is not None:
                    watchers.append(shown.update)
                report = self._wait(timeout, watchers)
        except KeyboardInterrupt as stop:
            if is_own_cluster() and not is_interactive():
                explain(stop, ends_with_program(self._job_id, self._seen))
            else:
                name_job(stop, self._job_id, "was not cancelled and keeps running")
            raise
        return _result(report)

    def ends_within(self, timeout: Duration) -> bool:
        """Wait up to `timeout` for the job to end; return whether it has."""
        deadline = request_deadline("end", self._job_id, timeout)
        while not self._wait_once(deadline).status.is_terminal:
            if deadline.has_passed:
                return False
        return True

    def _wait(self, timeout: Duration | None, watchers: list[Callable[[JobReport], None]]) -> JobReport:
        deadline = request_deadline("end", self._job_id, timeout)
        while True:
            report = self._seen = self._wait_once(deadline)
            for watcher in watchers:
                watcher(report)
            if report.status.is_terminal:
                NOTICES.leave(self._job_id)
                return report
            if deadline.has_passed:
                late = f"job {self._job_id} is still {report.status.value}"
                raise deadline.error(late)

    def _wait_once(self, deadline: Deadline) -> JobReport:
        seconds, left = deadline.left(at_most=_POLL), deadline.left()
        return self._master.quick(
            "wait",
            seconds,
            of_ended=_itself,
            timeout=None if left is None else left + _SILENCE,
        )


def _ended_checkpoints(report: JobReport) -> tuple[CheckpointDetails, ...]:
    return tuple(CheckpointDetails(record, {}) for record in report.checkpoint_history)


def _itself(report: JobReport) -> JobReport:
    return report


def _result(report: JobReport) -> JobResult:
    if report.status is JobStatus.FAILED:
        cause = (
            "the cause of the failure is unknown"
            if report.failure is None
            else failure_text(report.failure.root)
        )
        msg = f"{cause}\n(job {report.job_id} failed in attempt {report.statistics.attempt}{_more(report)})"
        raise JobFailedError(_with_end(msg, report))
    if report.status is JobStatus.CANCELLED:
        msg = f"job {report.job_id} was cancelled"
        raise JobCancelledError(_with_end(msg, report))
    return JobResult(
        report.job_id,
        report.name,
        report.status,
        report.duration,
        report.statistics,
        report.records_in,
        report.records_out,
        headline(report.failures[-1].root) if report.failures else None,
        None if report.end is None else report.end.snapshot,
    )


def _more(report: JobReport) -> str:
    """The commands that say more of a failed job: a cluster of this program ends with the program."""
    if not is_own_cluster() or is_interactive():
        return "; `penstock status` and `penstock logs` say more"
    if report.storage is None:
        return ""
    return f"; `penstock status {report.job_id} --storage {quote(report.storage)}` says more"


def _with_end(text: str, report: JobReport) -> str:
    return "\n".join((text, *(() if report.end is None else report.end.lines())))


def ends_with_program(job_id: str, report: JobReport | None) -> str:
    """Say what is saved of a job whose cluster ends with this program, and how to continue.

    Args:
        report: The newest report of the job; `None` if there is none yet.
    """
    ends = f"job {job_id} ends with this program"
    last = None if report is None else report.statistics.last_checkpoint_id
    if report is None or last is None:
        has_storage = report is None or report.storage is not None
        why = "it has completed no checkpoint" if has_storage else "it takes no checkpoints"
        start = None if report is None else report.restored_from
        again = "" if start is None else f". To start again: {restore_command(start, own_program())}"
        return f"{ends}; nothing is saved, because {why}{again}"
    folder = f"{report.storage}/{job_id}"
    return f"{ends}; checkpoint {last} is saved. To continue: {restore_command(folder, own_program())}"
