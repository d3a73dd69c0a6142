"""What users ask a job to do: the request begins at once, and is asked after by its id, as in Flink."""

from __future__ import annotations

import asyncio
import secrets
import traceback
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, Final

from penstock.runtime.errors import (
    CheckpointError,
    ConfigurationError,
    JobCancelledError,
    JobFailedError,
    JobTimeoutError,
    PenstockError,
    RequestLostError,
    RescaleError,
    SavepointError,
)

#: Errors that say that the job did not do what was asked. Behind any other one it may do so all the same.
_FAILED: Final = (
    CheckpointError,
    ConfigurationError,
    JobCancelledError,
    JobFailedError,
    RescaleError,
    SavepointError,
)
#: Ended triggers that are remembered.
_KEPT: Final = 1_000


@dataclass(slots=True)
class RequestTrigger:
    """One request to a job.

    Attributes:
        job_id: The job that is asked.
        asked: What was asked: a request with the same id asks the same.
        is_done: Whether it has ended.
        result: What came of it; `None` while it goes on, and when it has failed.
        failure: Why it has failed, or why its outcome is unknown.
    """

    job_id: str
    asked: str = ""
    is_done: bool = False
    result: dict[str, Any] | None = None
    failure: BaseException | None = None

    def to_dict(self) -> dict[str, Any]:
        """As Flink's REST answers: a status, and when it has ended what came of it."""
        if not self.is_done:
            return {"status": {"id": "IN_PROGRESS"}}
        if self.failure is not None:
            outcome = "failed" if isinstance(self.failure, _FAILED) else "unknown"
            cause = {
                "class": type(self.failure).__name__,
                "message": _message(self.failure),
                "outcome": outcome,
            }
            return {"status": {"id": "COMPLETED"}, "operation": {"failure-cause": cause}}
        return {"status": {"id": "COMPLETED"}, "operation": {"result": self.result or {}}}


class RequestTriggers:
    """All requests of this server, by their ids. Only its event loop touches it."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], RequestTrigger] = {}
        self._running: set[asyncio.Task[None]] = set()

    def begin(
        self, job_id: str, call: Awaitable[dict[str, Any]], asked: str = "", trigger_id: str | None = None
    ) -> str:
        """Begin to wait for a call; the id to ask for.

        Args:
            job_id: The job that is asked.
            call: Gives the answer.
            asked: Text by which the same request is told from another.
            trigger_id: The caller's id for it, which no request of this job has.
        """
        trigger_id = trigger_id or secrets.token_hex(16)
        trigger = self._known[job_id, trigger_id] = RequestTrigger(job_id, asked)
        task = asyncio.ensure_future(_await(trigger, call))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        ended = [each for each, trigger in self._known.items() if trigger.is_done]
        for old in ended[: max(0, len(ended) - _KEPT)]:
            del self._known[old]
        return trigger_id

    def get(self, job_id: str, trigger_id: str) -> RequestTrigger | None:
        """A request of this job; `None` when there is none with this id."""
        return self._known.get((job_id, trigger_id))


async def _await(trigger: RequestTrigger, call: Awaitable[dict[str, Any]]) -> None:
    try:
        trigger.result = await call
    except asyncio.CancelledError as error:  # the server ends
        trigger.failure = error
        raise
    except BaseException as error:  # without an answer there is no success, whatever was raised
        trigger.failure = error
    finally:
        trigger.is_done = True


def _message(failure: BaseException) -> str:
    """What was raised, with advice where nothing tells whether the job has done what was asked."""
    # A user's exception may raise in its `__str__`; `traceback` bears that.
    is_own = isinstance(failure, PenstockError)
    text = str(failure) if is_own else "".join(traceback.format_exception_only(failure)).strip()
    if isinstance(failure, (*_FAILED, RequestLostError, JobTimeoutError)):
        return text
    return f"it is not known whether the job does what was asked; look at its report. {text}"
