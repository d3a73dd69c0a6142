"""The event loop of a JobMaster, and how it handles errors.

An error in the scheduler leaves it in an unknown state. So the process ends, and Ray starts another one that
reads the log. An error in anything else is logged.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from typing import Any

logger = logging.getLogger(__name__)


class GuardedLoop:
    """Runs the parts of a JobMaster on its event loop.

    Args:
        loop: The actor's event loop.
        job_id: For messages.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, job_id: str) -> None:
        self.loop = loop
        self._job_id = job_id
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_retired = False

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task; called on the loop. Its failure is logged."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def post(self, callback: Callable[[], None]) -> None:
        """Run what touches the scheduler, soon; from any thread."""
        self.loop.call_soon_threadsafe(self.guard, callback)

    def retire(self) -> None:
        """The scheduler has ended, and the process may serve another one: no failure ends it from now on."""
        self._is_retired = True

    def guard(self, callback: Callable[[], None]) -> None:
        """Run what touches the scheduler, now; its failure ends the process."""
        try:
            callback()
        except Exception:
            if self._is_retired:
                logger.exception("the ended scheduler of job %s failed", self._job_id)
                return
            logger.critical("the scheduler of job %s failed: its JobMaster ends", self._job_id, exc_info=True)
            os._exit(1)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("a part of the JobMaster of %s failed", self._job_id, exc_info=task.exception())


async def happened(begin: Callable[[Callable[[], None]], None]) -> None:
    """Begin something that tells when it is done, and wait for that.

    Args:
        begin: Given what is to be called when it is done.
    """
    done = asyncio.Event()
    begin(done.set)
    await done.wait()
