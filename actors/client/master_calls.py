"""`MasterCalls`: questions to the JobMaster of one job, which may be away for a while, or have left for good.

A JobMaster that has died is brought back by Ray under its old name, so a question is asked again until the
next process answers. One that has left after the job's end has left a record, which answers in its place.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from typing import Any, Final, TypeVar

import ray

from penstock.actors.client.deadlines import Deadline, answer_deadline
from penstock.actors.shared.archive import load_from_cluster
from penstock.actors.shared.job_report import JobReport
from penstock.actors.shared.names import NAMESPACE, master_name
from penstock.runtime.errors import DeploymentError

T = TypeVar("T")

#: How long a JobMaster may take to answer what needs no waiting.
ANSWER_TIMEOUT: Final = 120.0
#: How long a JobMaster may take to come back before it counts as gone.
_RETURN_TIMEOUT: Final = 120.0
#: How long Ray may take to find the name of a JobMaster.
_NAME_TIMEOUT: Final = 5.0
_RETRY_DELAY: Final = 0.2


class MasterCalls:
    """Asks the JobMaster of one job.

    Args:
        job_id: The job.
    """

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id

    def quick(
        self,
        name: str,
        call: Callable[[Any], Any],
        from_record: Callable[[dict[str, Any]], T],
        *,
        timeout: float | None = ANSWER_TIMEOUT,
        within: Deadline | None = None,
    ) -> T:
        """Ask what a JobMaster answers at once.

        Args:
            name: What is asked, for the message.
            call: Makes the call of the actor.
            from_record: Gives the answer of a job that has ended.
            timeout: Seconds after which a JobMaster that is silent is said to be stuck; `None` for never.
            within: A deadline of the user's; it counts instead if it comes first.

        Raises:
            JobTimeoutError: It is silent, or the user's deadline has passed.
            DeploymentError: There is none, and the job has left no record of its end.
        """
        own = answer_deadline(self._job_id, name, timeout)
        return self.ask(call, from_record, own if within is None else min(own, within, key=_comes))

    def ask(
        self, call: Callable[[Any], Any], from_record: Callable[[dict[str, Any]], T], deadline: Deadline
    ) -> T:
        """Ask, again while the JobMaster comes back, or read what it has left.

        Args:
            call: Makes the call of the actor.
            from_record: Gives the answer of a job that has ended.
            deadline: Until when.

        Raises:
            JobTimeoutError: The deadline has passed.
            DeploymentError: There is no JobMaster, and the job has left no record of its end.
        """
        away_since: float | None = None
        while True:
            patience, asked = _RETURN_TIMEOUT, time.monotonic()
            try:
                master = ray.get_actor(master_name(self._job_id), namespace=NAMESPACE)
                answer: T = ray.get(call(master), timeout=deadline.left())
                return answer
            except ray.exceptions.GetTimeoutError as error:
                raise deadline.error() from error
            except ray.exceptions.ActorUnavailableError as error:
                problem: Exception = error
            except (ValueError, ray.exceptions.RayActorError) as error:
                record = self._record_of_end()
                if record is not None:
                    return from_record(record)
                problem = error
                if isinstance(error, ValueError):  # Ray knows no such actor, not even one that comes back
                    patience = _NAME_TIMEOUT
            now = time.monotonic()
            if away_since is None or now - asked > _NAME_TIMEOUT:  # it was there until now
                away_since = now
            self._wait_for_it(now - away_since > patience, deadline, problem)

    def _wait_for_it(self, is_gone: bool, deadline: Deadline, problem: Exception) -> None:
        if is_gone:
            msg = f"no JobMaster of job {self._job_id} answers, and the job has left no record of its end"
            raise DeploymentError(msg) from problem
        if deadline.has_passed:
            raise deadline.error() from problem
        time.sleep(deadline.left(at_most=_RETRY_DELAY) or 0.0)

    def _record_of_end(self) -> dict[str, Any] | None:
        record = load_from_cluster(self._job_id)
        return record if record is not None and JobReport.from_record(record).status.is_terminal else None


def _comes(deadline: Deadline) -> float:
    left = deadline.left()
    return inf if left is None else left
