"""The event loop of a JobMaster, and how it handles errors.

An error in the scheduler leaves it in an unknown state. So the process ends, and Ray starts another one that
reads the log. An error in anything else is logged.

`UserThreads` runs users' code, which may block for ever. Each call gets a thread of its own. A call that
hangs takes no thread from another call, nor from the pool that writes checkpoints and the log. Threads are
daemons, so a hanging call does not keep the process of an ended job alive.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

logger = logging.getLogger(__name__)


class GuardedLoop:
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
        """Schedule a callback that uses the scheduler; may be called from any thread."""
        self.loop.call_soon_threadsafe(self.run, callback)

    def retire(self) -> None:
        """Stop ending the process on failures: the scheduler has ended, and the process may serve another."""
        self._is_retired = True

    def run(self, callback: Callable[[], None]) -> None:
        """Run a callback that touches the scheduler, now."""
        with self.guard():
            callback()

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Surrounds what touches the scheduler: a failure ends the process."""
        try:
            yield
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
    """Start an operation that takes a completion callback, and wait until it calls back."""
    done = asyncio.Event()
    begin(done.set)
    await done.wait()


class UserThreads:
    def __init__(self, name: str) -> None:
        self._name = name
        self._numbers = count(1)

    def submit(self, call: Callable[[], None], /) -> None:
        name = f"{self._name}-{next(self._numbers)}"
        threading.Thread(target=call, name=name, daemon=True).start()
