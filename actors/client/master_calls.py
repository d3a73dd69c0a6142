"""`MasterCalls`: questions to the JobMaster of one job, which may be away for a while, or have left for good.

A JobMaster that has died is brought back by Ray under its old name, so a question is asked again until the
next process answers. One that hangs is killed first (`ClientGuard`). A job that has ended has left a record,
which answers when no JobMaster does.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, Final, TypeVar

import ray

from penstock.actors.client.client_guard import ClientGuard
from penstock.actors.client.deadlines import Deadline, answer_deadline
from penstock.actors.shared.archive import load_from_cluster
from penstock.actors.shared.job_report import JobReport
from penstock.actors.shared.master_registry import find_master
from penstock.actors.shared.repeated_call import RepeatedCall
from penstock.runtime.errors import DeploymentError, RequestLostError
from penstock.runtime.execution.absence import BETWEEN_CALLS, Absence
from penstock.runtime.snapshot.checkpoint_record import CheckpointStatus

T = TypeVar("T")

#: How long a JobMaster may take to answer what needs no waiting.
ANSWER_TIMEOUT: Final = 120.0
#: How long a JobMaster may take to come back before it counts as gone.
_RETURN_TIMEOUT: Final = 120.0
#: How long Ray may take to find the name of a JobMaster.
_NAME_TIMEOUT: Final = 5.0


class MasterCalls:
    """Asks the JobMaster of one job.

    Args:
        ended: The last report of a job that is known to have ended. It answers everything, and no cluster is
            needed.
    """

    def __init__(self, job_id: str, ended: JobReport | None = None) -> None:
        self._job_id = job_id
        self._ended = ended

    def quick(
        self,
        name: str,
        call: Callable[[Any], Any],
        of_ended: Callable[[JobReport], T],
        *,
        timeout: float | None = ANSWER_TIMEOUT,
        within: Deadline | None = None,
    ) -> T:
        """Ask what a JobMaster answers at once.

        Args:
            name: What is asked, for the message.
            call: Makes the call of the actor.
            of_ended: Gives the answer of a job that has ended.
            timeout: Seconds after which a JobMaster that is silent is said to be stuck; `None` for never.
            within: A deadline of the user's; it counts instead if it comes first.

        Raises:
            JobTimeoutError: It is silent, or the user's deadline has passed.
            DeploymentError: There is none, and the cluster has no report of the job's end.
        """
        own = answer_deadline(self._job_id, name, timeout)
        return self.ask(call, of_ended, own if within is None else min(own, within, key=_comes))

    def ask(
        self,
        call: Callable[[Any], Any],
        of_ended: Callable[[JobReport], T],
        deadline: Deadline,
        *,
        request: str = "",
    ) -> T:
        """Ask, and again while the JobMaster is restarted; of an ended job its last report answers.

        Args:
            call: Makes the call of the actor.
            of_ended: Gives the answer of a job that has ended.
            deadline: Until when.
            request: What is asked, if the report of an ended job does not say whether it was done.

        Raises:
            RequestLostError: The JobMaster died with this `request`, and the job has ended since.
            JobTimeoutError: The deadline has passed.
            DeploymentError: There is no JobMaster, and the cluster has no report of the job's end.
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
            # Of a `ValueError`: the job has no JobMaster, not even one that comes back.
            return _NAME_TIMEOUT if isinstance(error, ValueError) else _RETURN_TIMEOUT

        absence = Absence(BETWEEN_CALLS, present_after=_NAME_TIMEOUT)
        repeated = RepeatedCall[T](lambda: call(self._find()), "the JobMaster", patience, absence=absence)
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
                f"no JobMaster of job {self._job_id} answers, and this cluster has no report of its end; "
                f"if it took checkpoints, `penstock status {self._job_id} --storage URL` may find one there"
            )
            raise DeploymentError(msg) from repeated.error
        return repeated.result()

    def _find(self) -> Any:
        return find_master(self._job_id)


def _unknown(request: str, report: JobReport) -> RequestLostError:
    taken = [
        f"{each.kind.value} {each.checkpoint_id}"
        for each in report.checkpoint_history
        if each.status is CheckpointStatus.COMPLETED
    ]
    newest = f"; the newest that completed is {taken[-1]}" if taken else ""
    msg = (
        f"{request} of job {report.job_id}: the JobMaster died meanwhile, and the job has ended since "
        f"({report.status.value}), so it is not known whether this was done. `penstock checkpoints` and "
        f"`penstock status` show what the job has done{newest}"
    )
    return RequestLostError(msg)


def _comes(deadline: Deadline) -> float:
    left = deadline.left()
    return inf if left is None else left
