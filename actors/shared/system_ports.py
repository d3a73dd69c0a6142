"""The real clock, timers, threads and event loop behind the ports of the runtime.

`GuardedLoop` is the event loop of a JobMaster. An error in the scheduler leaves it in an unknown state. So
the process ends, and Ray starts another process, which reads the log. Any other error is logged.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from penstock.runtime.ports import Cancellable


class SystemClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


class LoopTimers:
    """Runs callbacks later on an event loop, in the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, guard: Callable[[Callable[[], None]], None]) -> None:
        self._loop = loop
        self._guard = guard

    def call_later(self, delay: float, callback: Callable[[], None]) -> Cancellable:
        return self._loop.call_later(delay, self._guard, callback)


T = TypeVar("T")

#: Runs a callable in the owner's thread, soon.
Post: TypeAlias = Callable[[Callable[[], None]], None]


class Threads(Protocol):
    def submit(self, call: Callable[[], None], /) -> object: ...


class _BackgroundWork:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class BackgroundRunner:
    """Runs work in threads on behalf of a single-threaded owner (the `AsyncRunner` port).

    Args:
        post: Schedules a callable in the owner's thread; may be called from any thread. Each work item that
            is not cancelled gets exactly one callback there.
    """

    def __init__(self, threads: Threads, post: Post) -> None:
        self._threads = threads
        self._post = post

    def run(
        self,
        work: Callable[[], T],
        on_result: Callable[[T], None],
        on_error: Callable[[BaseException], None],
    ) -> Cancellable:
        handle = _BackgroundWork()

        def answer(callback: Callable[[], None]) -> None:
            self._post(lambda: None if handle.cancelled else callback())

        def job() -> None:
            try:
                result = work()
            except BaseException as error:  # a pool's thread would not report it
                failure = error
                answer(lambda: on_error(failure))
            else:
                answer(lambda: on_result(result))

        self._threads.submit(job)
        return handle


logger = logging.getLogger(__name__)

#: Running tasks of `spawn`; the event loop itself keeps only weak references to its tasks.
TASKS: Final[set[asyncio.Task[None]]] = set()


def spawn(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> None:
    """Start a task that nothing waits for; called on the loop. Its failure is logged."""
    task = loop.create_task(work)
    TASKS.add(task)
    task.add_done_callback(_has_ended)


def _has_ended(task: asyncio.Task[None]) -> None:
    TASKS.discard(task)
    if not task.cancelled() and task.exception() is not None:
        logger.error("a task of this process has failed", exc_info=task.exception())


class GuardedLoop:
    def __init__(self, loop: asyncio.AbstractEventLoop, job_id: str) -> None:
        self.loop = loop
        self._job_id = job_id
        self._is_retired = False

    def post(self, callback: Callable[[], None]) -> None:
        """Schedule a callback that uses the scheduler; may be called from any thread."""
        self.loop.call_soon_threadsafe(self.run, callback)

    def retire(self) -> None:
        """From now on, only log failures: the scheduler has ended, and another job may follow."""
        self._is_retired = True

    def run(self, callback: Callable[[], None]) -> None:
        """Run a callback that uses the scheduler, now."""
        with self.guard():
            callback()

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Guard code that uses the scheduler: a failure ends the process."""
        try:
            yield
        except Exception:
            if self._is_retired:
                logger.exception("the ended scheduler of job %s failed", self._job_id)
                return
            logger.critical("the scheduler of job %s failed: its JobMaster ends", self._job_id, exc_info=True)
            os._exit(1)


def answered(begin: Callable[[Callable[..., None]], None]) -> asyncio.Future[Any]:
    """Begin an operation with a callback; return a future of the callback's argument, `None` by default."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def answer(given: Any = None) -> None:
        if not future.done():  # Ray may have cancelled the call that waits
            future.set_result(given)

    begin(answer)
    return future


class UserThreads:
    """Runs each call of users' code in its own daemon thread, because the call may block for ever.

    A call that hangs takes no thread from another call, and does not keep the process of an ended job alive.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._numbers = count(1)

    def submit(self, call: Callable[[], None], /) -> None:
        name = f"{self._name}-{next(self._numbers)}"
        threading.Thread(target=call, name=name, daemon=True).start()
