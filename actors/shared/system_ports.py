"""The real clock, timers and threads behind the ports of the runtime.

`BackgroundRunner`: blocking work beside a single-threaded owner (the `AsyncRunner` port).

Work runs in other threads. Its outcome is posted to the owner's thread (a task thread's mailbox, or an event
loop), where exactly one callback runs.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias, TypeVar

from penstock.runtime.ports import Cancellable


class SystemClock:
    """Tells the machine's time; implements `penstock.runtime.ports.Clock`."""

    def now(self) -> float:
        """Wall-clock seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that never go backwards."""
        return time.monotonic()


class LoopTimers:
    """Runs callbacks later on an event loop.

    Args:
        loop: Its thread runs the callbacks.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, guard: Callable[[Callable[[], None]], None]) -> None:
        self._loop = loop
        self._guard = guard

    def call_later(self, delay: float, callback: Callable[[], None]) -> Cancellable:
        """Run `callback` after `delay` seconds."""
        return self._loop.call_later(delay, self._guard, callback)


T = TypeVar("T")

#: Runs a callable in the owner's thread, soon.
Post: TypeAlias = Callable[[Callable[[], None]], None]


class Threads(Protocol):
    """A pool of threads, or anything else that takes calls."""

    def submit(self, call: Callable[[], None], /) -> object:
        """Run a call in a thread, soon."""
        ...


class _BackgroundWork:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class BackgroundRunner:
    """Runs work in threads and posts outcomes to the owner.

    Args:
        post: Brings a callable into the owner's thread; may be called from any thread.
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
        """Run `work` in a thread, then one of the callbacks in the owner's thread unless cancelled."""
        handle = _BackgroundWork()

        def answer(callback: Callable[[], None]) -> None:
            self._post(lambda: None if handle.cancelled else callback())

        def job() -> None:
            try:
                result = work()
            except BaseException as error:  # in a pool's thread nothing would report it
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

    For a process that has loaded its modules and holds nothing of a job yet: what exists now is never
    collected. A batch is thousands of small containers that die together. By default each batch causes
    several collections, and now and then a walk over every module. That took half of the time of a chain of
    cheap operators.

    What a job makes later is walked after twenty million containers. A walk over a million values of state
    takes a quarter of a second or more, and no record is processed meanwhile. It is also walked when an
    attempt or a job has ended. A walk over the modules would take 65 ms more each time, and copy their pages
    in a process that was forked.
    """
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)


def collect_what_has_ended() -> None:
    """Collect what an attempt or a job has left, before the process continues with another one."""
    gc.collect()
