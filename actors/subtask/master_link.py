"""Reports of a subtask to its JobMaster, which must not be lost.

A report is a call whose answer is watched. It is repeated when it is lost while the JobMaster lives, or while
it is restarted. The JobMaster ignores reports that it already has, and those of an old attempt.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import ray
from ray.actor import ActorHandle

from penstock.actors.shared.repeated_call import RepeatedCall, while_unavailable
from penstock.runtime.execution.messages import SubtaskReport
from penstock.runtime.execution.role import Role

logger = logging.getLogger(__name__)

#: Reports are repeated as long as the attempt goes on.
_repeat = while_unavailable()


class MasterLink:
    """Sends the reports of one attempt of one subtask, from any thread.

    Args:
        loop: The actor's event loop, which does the sending.
        master: The JobMaster.
        role: Sent with each report.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, master: ActorHandle[Any], role: Role) -> None:
        self._loop = loop
        self._master = master
        self._role = role
        self._closed = False
        self._sending: set[asyncio.Task[None]] = set()

    def report(self, report: SubtaskReport) -> None:
        """Send a report; returns at once."""
        self._loop.call_soon_threadsafe(self._begin, report)

    def close(self) -> None:
        """Stop repeating: the attempt is over."""
        self._closed = True

    def _begin(self, report: SubtaskReport) -> None:
        task = self._loop.create_task(self._send(report))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, report: SubtaskReport) -> None:
        def make() -> Any:
            return self._master.report.remote(self._role, report)

        try:
            await RepeatedCall[None](make, "the JobMaster", self._patience).awaited()
        except ray.exceptions.ActorUnavailableError:
            pass  # the attempt is over
        except ray.exceptions.RayActorError as error:
            logger.warning("the JobMaster is gone, a report was not delivered: %s", error)
        except Exception:
            # The JobMaster has failed over it and deals with that itself; repeating it would not help.
            logger.exception("the JobMaster could not take a %s", type(report).__name__)

    def _patience(self, error: BaseException) -> float | None:
        return None if self._closed else _repeat(error)
