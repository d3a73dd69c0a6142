"""The other way to run a subtask: on the actor's event loop itself.

It saves the hops between threads. But users' code must not block, because a blocked loop receives and answers
nothing. `benchmarks/step_on.py` compares the two; the thread is the default.
"""

from __future__ import annotations

import asyncio
import time

from penstock.actors.subtask.task_thread import BuildSubtask, Mail
from penstock.runtime.execution.failure_causes import as_failure
from penstock.runtime.execution.processes import LongCall
from penstock.runtime.task.closing import close_after
from penstock.runtime.task.subtask import Subtask

_MAX_IDLE = 5.0


class TaskOnLoop:
    """Runs a subtask as a task of the event loop (see `TaskRunner`).

    Args:
        loop: The actor's event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._mail: list[Mail] = []
        self._woken = asyncio.Event()
        self._stopping = False
        self.subtask: Subtask | None = None
        self.deployed: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        self._task: asyncio.Task[None] | None = None

    def post(self, mail: Mail) -> None:
        """Run `mail` on the loop, before the next step."""
        self._loop.call_soon_threadsafe(self._receive, mail)

    def deploy(self, build: BuildSubtask) -> None:
        """Build the subtask at once, on the loop."""
        try:
            self.subtask = build()
        except BaseException as error:
            self.deployed.set_exception(as_failure(error))
            self.ended.set_result(None)
        else:
            self.deployed.set_result(None)

    def start(self) -> None:
        """Begin to step."""
        self._task = self._loop.create_task(self._main())

    def stop(self) -> None:
        """Stop between two steps."""
        self._stopping = True
        self._woken.set()
        if self._task is None:
            self.start()

    def long_call(self) -> LongCall | None:
        """Nobody can be told of one: the event loop that would tell is in it."""
        return None

    def _receive(self, mail: Mail) -> None:
        self._mail.append(mail)
        self._woken.set()

    async def _main(self) -> None:
        if self.subtask is None:
            return
        failure: BaseException | None = None
        try:
            await self._run(self.subtask)
        except BaseException as error:
            failure = error
        failure = close_after(failure, self.subtask.close)
        if failure is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(as_failure(failure))

    async def _run(self, subtask: Subtask) -> None:
        while not self._stopping:
            self._woken.clear()
            mails, self._mail = self._mail, []
            for mail in mails:
                mail()
            result = subtask.step()
            if result.finished:
                return
            if result.more:
                await asyncio.sleep(0)
                continue
            timeout = _MAX_IDLE
            if result.wake_at is not None:
                timeout = min(timeout, max(0.0, result.wake_at - time.monotonic()))
            try:
                await asyncio.wait_for(self._woken.wait(), timeout)
            except TimeoutError:
                continue
