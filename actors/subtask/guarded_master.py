"""`RayMaster`: how the guard in a subtask's process reaches its JobMaster on Ray."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any, TypeVar

import ray
from ray.actor import ActorHandle

from penstock.actors.shared.node_processes import end_process, on_node, processor_times
from penstock.runtime.execution.failure_causes import cause_of
from penstock.runtime.execution.heartbeat import Silence
from penstock.runtime.execution.processes import Away, CallFailure, Died, Place, Raised, Reply

logger = logging.getLogger(__name__)

T = TypeVar("T")


class RayMaster:
    """Asks and ends the JobMaster of one job (the `GuardedMaster` port); everything runs on the event loop.

    Args:
        loop: Runs the calls and their replies.

    Attributes:
        handle: The JobMaster; `None` before it has deployed anything here.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.handle: ActorHandle[Any] | None = None
        self._loop = loop
        self._tasks: set[asyncio.Task[None]] = set()

    def ask_master(self, reply: Reply[None]) -> None:
        """Call `answers`; before the first deployment nobody is known who could be called."""
        handle: Any = self.handle
        if handle is None:
            self._loop.call_soon(reply, Away())
        else:
            self._spawn(_reply(handle.answers.remote(), reply))

    def processor_time_of_master(self, place: Place, reply: Reply[float]) -> None:
        """Read it on the node of the JobMaster."""
        self._spawn(_reply(_processor_time(place), reply))

    def end_master(self, place: Place, why: str) -> None:
        """Kill it on its node; Ray then starts it again."""
        logger.error("pid %d on node %s is killed: %s", place.pid, place.node_id[:8], why)
        self._spawn(_end(place))

    def fell_silent(self, place: Place, silence: Silence) -> None:
        """Tell people."""
        logger.warning("the JobMaster (pid %d on node %s): %s", place.pid, place.node_id[:8], silence)

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _processor_time(place: Place) -> float:
    times = await on_node(place.node_id, processor_times, [place])
    if place not in times:
        msg = f"there is no process {place.pid} any more"
        raise ProcessLookupError(msg)
    return times[place]


async def _end(place: Place) -> None:
    try:
        if not await on_node(place.node_id, end_process, place):
            logger.warning("the JobMaster (pid %d) has ended before it was killed", place.pid)
    except ray.exceptions.RayError as error:
        logger.warning("the JobMaster (pid %d) can't be killed: %s", place.pid, error)


async def _reply(call: Awaitable[T], reply: Reply[T]) -> None:
    answer: T | CallFailure
    try:
        answer = await call
    except ray.exceptions.ActorUnavailableError:
        answer = Away()
    except ray.exceptions.RayActorError as error:
        answer = Died(str(error))
    except Exception as error:  # of the node, or of what was called there
        answer = Raised(cause_of(error))
    reply(answer)
