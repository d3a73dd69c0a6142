"""The real clock, timers and threads behind the ports of the runtime.

`BackgroundRunner` runs blocking work in other threads, beside a single-threaded owner. The outcome is posted
to the owner's thread (a task thread's mailbox, or an event loop), where exactly one callback runs.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias, TypeVar

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
    """Runs work in threads and posts outcomes to the owner (the `AsyncRunner` port).

    Args:
        post: Schedules a callable in the owner's thread; may be called from any thread.
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


#: Thresholds of `gc`: new containers before a collection of the youngest generation, then collections of a
#: younger generation before one of the next older.
_COLLECT_AFTER: Final = (20_000, 10, 100)


def spare_loaded_modules() -> None:
    """Make the cycle collector run rarely, and never over objects that exist now.

    Call it in a process that has loaded its modules and holds no object of a job yet. A batch is thousands of
    small containers that die together. By default each batch causes several collections, and now and then a
    walk over every module. That took half of the time of a chain of cheap operators.

    Objects of a job are walked after twenty million containers, and when an attempt or a job has ended. A
    walk over a million values of state takes a quarter of a second or more, and no record is processed
    meanwhile. A walk over the modules would take 65 ms more each time, and copy their pages in a process that
    was forked.
    """
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)


def collect_what_has_ended() -> None:
    """Collect the garbage of an ended attempt or job, before the process takes another one."""
    gc.collect()
