"""The thread that runs one attempt of a subtask.

The actor's event loop only receives. Everything that touches the subtask runs here, in the order in which it
was posted: building and restoring it, its steps, and whatever arrives. So users' code may block without
stopping deliveries, and no part of the subtask needs a lock.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Protocol, TypeAlias

from penstock.runtime.execution.failure_causes import as_failure
from penstock.runtime.execution.processes import LongCall
from penstock.runtime.operators.running_call import running_call
from penstock.runtime.task.closing import close_after
from penstock.runtime.task.subtask import Subtask

Mail: TypeAlias = Callable[[], None]
BuildSubtask: TypeAlias = Callable[[], Subtask]

#: Seconds after which people are told of a call of a user's function.
_LONG_CALL = 5.0
#: Longest sleep of an idle task thread, in seconds; it looks at its stop flag at least this often.
_MAX_IDLE = 5.0


class TaskRunner(Protocol):
    """Runs one attempt of a subtask somewhere."""

    deployed: asyncio.Future[None]
    ended: asyncio.Future[None]
    subtask: Subtask | None

    def post(self, mail: Mail) -> None:
        """Run `mail` where the subtask runs, soon; from any thread."""
        ...

    def deploy(self, build: BuildSubtask) -> None:
        """Build the subtask; `deployed` says how it went."""
        ...

    def start(self) -> None:
        """Begin to step; `ended` is done when the subtask has finished, failed or stopped."""
        ...

    def stop(self) -> None:
        """Stop at the next occasion and close the subtask."""
        ...

    def long_call(self) -> LongCall | None:
        """The call of a user's function that it is in, if that takes long; from the event loop."""
        ...


class TaskThread:
    """Runs a subtask in a thread of its own (see `TaskRunner`).

    Args:
        loop: The actor's event loop, to which the futures belong.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._loop = loop
        self._mailbox: SimpleQueue[Mail] = SimpleQueue()
        self._may_run = threading.Event()
        self._stopping = False
        self._build: BuildSubtask | None = None
        #: When the piece of work began that the thread does now; `None` while it waits.
        self._busy_since: float | None = None
        self.subtask: Subtask | None = None
        self.deployed: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)

    def post(self, mail: Mail) -> None:
        """Run `mail` in the thread."""
        self._mailbox.put(mail)

    def deploy(self, build: BuildSubtask) -> None:
        """Start the thread and build the subtask in it."""
        self._build = build
        self._thread.start()

    def start(self) -> None:
        """Let it step."""
        self._may_run.set()

    def stop(self) -> None:
        """Stop between two pieces of work."""
        self._stopping = True
        self._may_run.set()
        self.post(lambda: None)

    def long_call(self) -> LongCall | None:
        """The call of a user's function that it is in, if that takes long; from any other thread."""
        since = self._busy_since
        if since is None or self._thread.ident is None:
            return None
        seconds = time.monotonic() - since
        if seconds < _LONG_CALL:
            return None
        what = running_call(sys._current_frames().get(self._thread.ident))
        return None if what is None else LongCall(what, seconds)

    def _main(self) -> None:
        try:
            assert self._build is not None
            self._busy_since = time.monotonic()
            self.subtask = self._build()
        except BaseException as error:  # even SystemExit would only end this thread, in silence
            self._settle(self.deployed, error)
            self._settle(self.ended, None)
            return
        self._busy_since = None
        self._settle(self.deployed, None)
        failure: BaseException | None = None
        try:
            self._run(self.subtask)
        except BaseException as error:
            failure = error
        self._settle(self.ended, close_after(failure, self.subtask.close))

    def _run(self, subtask: Subtask) -> None:
        mailbox = self._mailbox
        self._may_run.wait()  # for `start` or `stop`: the lease ends an attempt that hears of neither
        while not self._stopping:
            self._busy_since = time.monotonic()
            result = subtask.step()
            if result.finished:
                return
            timeout = 0.0
            if not result.more:
                timeout = _MAX_IDLE
                if result.wake_at is not None:
                    timeout = min(timeout, max(0.0, result.wake_at - time.monotonic()))
            self._take_mail(mailbox, timeout)

    def _take_mail(self, mailbox: SimpleQueue[Mail], timeout: float) -> None:
        self._busy_since = None
        try:
            mail = mailbox.get(timeout=timeout) if timeout > 0 else mailbox.get_nowait()
        except Empty:
            return
        self._busy_since = time.monotonic()
        while True:
            mail()  # an `Empty` that it raises is a failure
            try:
                mail = mailbox.get_nowait()
            except Empty:
                return

    def _settle(self, future: asyncio.Future[None], error: BaseException | None) -> None:
        def settle() -> None:
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(as_failure(error))

        self._loop.call_soon_threadsafe(settle)
