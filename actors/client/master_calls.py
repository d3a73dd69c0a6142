"""`MasterCalls`: calls to one job's JobMaster, which may be restarting, or have ended.

Ray restarts a dead JobMaster under its old name, so a call is repeated until the next process answers. A
process that hangs is killed first (`ClientGuard`). After the job's end, its last report has the answer.

A call to a JobMaster can't be withdrawn. So the error of a passed `Deadline` says what continues. For most
requests it also says how to see the progress, and what a repeated call would do.

Some of the job's subtasks guard its JobMaster (`MasterGuard`). If these also hang, or no subtask runs yet,
only clients can detect the hang. A healthy JobMaster answers some calls late, such as a wait for the end of
the job. So `ClientGuard` calls `answers` every few seconds. It kills a JobMaster only after the
`heartbeat_timeout` in the job's last report, and only if the JobMaster's processor time does not advance.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Any, Final, Literal, TypeAlias, TypeVar

import ray

from penstock.actors.shared.actor_calls import RepeatedCall
from penstock.actors.shared.archive import load_from_cluster
from penstock.actors.shared.job_report import JobReport
from penstock.actors.shared.node_processes import (
    call_on_node,
    end_process,
    own_node,
    processor_times,
    task_on_node,
)
from penstock.actors.shared.registry import find_master
from penstock.runtime.config.job_config import AdvancedConfig
from penstock.runtime.errors import DeploymentError, JobTimeoutError, RequestLostError
from penstock.runtime.execution.deadlines import BETWEEN_CALLS, RetryDeadline
from penstock.runtime.execution.heartbeat import Heartbeat, HeartbeatLimits, Pulse
from penstock.runtime.execution.processes import Place
from penstock.runtime.snapshot.checkpoint_record import CheckpointStatus
from penstock.runtime.time.durations import Duration, as_seconds, seconds_in


class Deadline:
    """The time after which a wait fails; with `timeout=None` it never fails.

    Args:
        timeout: Seconds, or a `timedelta`; `None` for ever.
        late: The event that has not happened, for the message of the error.

    Raises:
        ConfigurationError: `timeout` is not a duration.

    Example:
        >>> raise Deadline(0, "the kettle does not boil", "look at the hob").error()
        Traceback (most recent call last):
        penstock.runtime.errors.JobTimeoutError: the kettle does not boil after 0 s; look at the hob
    """

    def __init__(self, timeout: Duration | None, late: str, advice: str) -> None:
        self._seconds = None if timeout is None else seconds_in("timeout", timeout)
        self._at = None if self._seconds is None else time.monotonic() + self._seconds
        self._late = late
        self._advice = advice

    @property
    def has_passed(self) -> bool:
        return self._at is not None and time.monotonic() >= self._at

    def left(self, at_most: float | None = None) -> float | None:
        """Return the seconds left: 0 after the deadline, `None` for ever. `at_most` limits the result."""
        left = None if self._at is None else max(0.0, self._at - time.monotonic())
        if at_most is None or left is None:
            return at_most if left is None else left
        return min(left, at_most)

    def error(self, late: str | None = None, advice: str | None = None) -> JobTimeoutError:
        """Return the error of a passed deadline; `late` and `advice` replace the constructor's texts."""
        what = f"{late or self._late} after {self._seconds or 0:g} s"
        return JobTimeoutError(f"{what}; {advice or self._advice}")


_SNAPSHOT_CONTINUES: Final = "it continues: `penstock checkpoints {job}` shows its progress and outcome. "
#: The late event, and advice to the user, by request to a job.
_LATE: Final = {
    "checkpoint": (
        "the checkpoint of job {job} is not complete",
        _SNAPSHOT_CONTINUES + "Asking again would take another one",
    ),
    "savepoint": (
        "the savepoint of job {job} is not complete",
        _SNAPSHOT_CONTINUES
        + "The answer also waits for the checkpoint after it. "
        + "Asking again would take another one",
    ),
    "stop": (
        "job {job} has not stopped",
        "the stop continues: `penstock status {job}` shows its progress. "
        "Call again to wait for the same end; cancelling the job abandons the savepoint",
    ),
    "rescale": (
        "job {job} does not run at the new parallelism",
        "the change continues: `penstock status {job}` shows its progress",
    ),
    "end": ("job {job} has not ended", "it continues"),
}

#: Requests that may take a long time.
Request: TypeAlias = Literal["checkpoint", "savepoint", "stop", "rescale", "end"]


def request_deadline(request: Request, job_id: str, timeout: Duration | None) -> Deadline:
    late, advice = (text.format(job=job_id) for text in _LATE[request])
    return Deadline(timeout, late, advice)


logger = logging.getLogger(__name__)

#: Limits of a job with default settings, until the job's report is known. A client never ends a busy
#: JobMaster.
_LIMITS: Final = HeartbeatLimits.of(as_seconds(AdvancedConfig().heartbeat_timeout), overdue_after=inf)
#: Seconds for the JobMaster's node to kill the process.
_KILL_TIMEOUT: Final = 10.0


class ClientGuard:
    """Follows the answers of one job's JobMaster while a client waits."""

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id
        self._limits = _LIMITS
        self._heartbeat = Heartbeat(_LIMITS, time.monotonic())
        self._question: Any = None
        self._reading: tuple[Place, Any] | None = None

    @property
    def interval(self) -> float:
        return self._limits.interval

    def look(self) -> None:
        """Check the JobMaster, and kill it if it hangs; never waits for its answer."""
        self._take_answer()
        self._take_reading()
        pulse = self._heartbeat.look(time.monotonic(), self._limits.interval)
        if not self._heartbeat.is_suspect:
            return
        if self._question is None:
            self._ask()
        report = load_from_cluster(self._job_id)
        if report is None or report.master is None or self._has_other_limits(report):
            return
        place = Place(report.master.pid, report.master.node_id, report.master.started)
        if pulse is Pulse.HUNG:
            self._end(place)
        elif self._heartbeat.wants_reading:
            self._read(place)

    def _ask(self) -> None:
        try:
            self._question = find_master(self._job_id).answers.remote()
        except ValueError:
            self._heartbeat.heard(time.monotonic())  # no JobMaster exists, so none hangs

    def _take_answer(self) -> None:
        if self._question is None or not _is_done(self._question):
            return
        question, self._question = self._question, None
        with suppress(ray.exceptions.RayError):  # an error of the process counts as an answer
            ray.get(question)
        self._heartbeat.heard(time.monotonic())

    def _read(self, place: Place) -> None:
        self._heartbeat.ask()
        if place.node_id == own_node():
            self._heartbeat.read(processor_times([place]).get(place))
        else:
            self._reading = place, task_on_node(place.node_id, processor_times, [place])

    def _take_reading(self) -> None:
        if self._reading is None or not _is_done(self._reading[1]):
            return
        (place, answer), self._reading = self._reading, None
        try:
            self._heartbeat.read(ray.get(answer).get(place))
        except ray.exceptions.RayError as error:
            logger.warning("the processor time of the JobMaster of %s can't be read: %s", self._job_id, error)
            self._heartbeat.read(None)

    def _has_other_limits(self, report: JobReport) -> bool:
        """Adopt the job's own limits; if they differ, forget the silence so far and return `True`."""
        settings = report.settings
        if not settings:
            return False
        limits = HeartbeatLimits.of(float(settings["advanced.heartbeat_timeout"]), overdue_after=inf)
        if limits == self._limits:
            return False
        self._limits = limits
        self._heartbeat = Heartbeat(limits, time.monotonic())
        return True

    def _end(self, place: Place) -> None:
        where, silence = f"pid {place.pid} on node {place.node_id[:8]}", self._heartbeat.silence
        logger.error("the JobMaster of %s (%s) hangs and is killed: %s", self._job_id, where, silence)
        self._heartbeat = Heartbeat(self._limits, time.monotonic())
        try:
            call_on_node(place.node_id, _KILL_TIMEOUT, end_process, place)
        except ray.exceptions.RayError as error:
            logger.warning("the JobMaster of %s can't be killed: %s", self._job_id, error)


def _is_done(reference: Any) -> bool:
    done, _ = ray.wait([reference], timeout=0)
    return bool(done)


T = TypeVar("T")

#: Seconds for a JobMaster to answer a call that needs no waiting.
ANSWER_TIMEOUT: Final = 120.0
#: Seconds for a JobMaster to restart before the call fails.
_RETURN_TIMEOUT: Final = 120.0
#: Seconds for Ray to find the name of a JobMaster.
_NAME_TIMEOUT: Final = 5.0


class MasterCalls:
    """Calls the JobMaster of one job. With `ended`, the job's last report, no cluster is needed."""

    def __init__(self, job_id: str, ended: JobReport | None = None) -> None:
        self._job_id = job_id
        self._ended = ended

    def quick(
        self,
        method: str,
        *arguments: Any,
        of_ended: Callable[[JobReport], T],
        timeout: float | None = ANSWER_TIMEOUT,
        within: Deadline | None = None,
    ) -> T:
        """Make a call that a JobMaster answers at once; raises as `ask` does.

        Args:
            timeout: Seconds after which a silent JobMaster is reported as stuck; `None` for never.
            within: The user's deadline; replaces `timeout` if it is earlier.
        """
        job_id = self._job_id
        advice = (
            "it is stuck, waits for its storage, or its machine is overloaded: "
            f"`penstock logs {job_id} --operator job-master` shows what it does"
        )
        own = Deadline(timeout, f"the JobMaster of job {job_id} has not answered `{method}`", advice)
        deadline = own if within is None else min(own, within, key=_seconds_left)
        return self.ask(method, *arguments, of_ended=of_ended, deadline=deadline)

    def ask(
        self,
        method: str,
        *arguments: Any,
        of_ended: Callable[[JobReport], T],
        deadline: Deadline,
        request: str = "",
    ) -> T:
        """Call the JobMaster, repeatedly while it is restarted; an ended job's last report has the answer.

        Args:
            request: Name of a request whose outcome the report of an ended job does not show.

        Raises:
            RequestLostError: The JobMaster died during this `request`, and the job has ended since.
            JobTimeoutError: The deadline has passed.
            DeploymentError: No JobMaster of the job answers, and the cluster has no report of its end.
        """
        if self._ended is not None:
            return of_ended(self._ended)
        ends: list[JobReport] = []
        lost: list[BaseException] = []

        def patience(error: BaseException) -> float | None:
            if isinstance(error, ray.exceptions.RayActorError):
                lost.append(error)
            if isinstance(error, ray.exceptions.ActorUnavailableError):
                return _RETURN_TIMEOUT
            if not isinstance(error, ValueError | ray.exceptions.RayActorError):
                return None
            report = load_from_cluster(self._job_id)
            if report is not None and report.status.is_terminal:
                ends.append(report)
                return None
            # After a `ValueError`, the job has no JobMaster, not even one that restarts.
            return _NAME_TIMEOUT if isinstance(error, ValueError) else _RETURN_TIMEOUT

        def call() -> Any:
            return getattr(find_master(self._job_id), method).remote(self._job_id, *arguments)

        absence = RetryDeadline(BETWEEN_CALLS, present_after=_NAME_TIMEOUT)
        repeated = RepeatedCall[T](call, "the JobMaster", patience, absence=absence)
        guard = ClientGuard(self._job_id)
        while not repeated.wait(deadline.left(guard.interval)):
            if deadline.has_passed:
                raise deadline.error() from repeated.error
            guard.look()
        if ends and lost and request:
            raise _unknown(request, ends[-1]) from lost[-1]
        if ends:
            return of_ended(ends[-1])
        if repeated.gave_up:
            msg = (
                f"no JobMaster of job {self._job_id} answers, and this cluster has no report of its end. If "
                f"the job took checkpoints, `penstock status {self._job_id} --storage URL` may find a report"
            )
            raise DeploymentError(msg) from repeated.error
        return repeated.result()


def _unknown(request: str, report: JobReport) -> RequestLostError:
    taken = [
        f"{record.kind.value} {record.checkpoint_id}"
        for record in report.checkpoint_history
        if record.status is CheckpointStatus.COMPLETED
    ]
    newest = f"; the newest completed snapshot is {taken[-1]}" if taken else ""
    msg = (
        f"{request} of job {report.job_id}: the JobMaster died meanwhile, and the job has ended since "
        f"({report.status.value}). The request may or may not have been carried out. `penstock checkpoints` "
        f"and `penstock status` show what the job has done{newest}"
    )
    return RequestLostError(msg)


def _seconds_left(deadline: Deadline) -> float:
    left = deadline.left()
    return inf if left is None else left
