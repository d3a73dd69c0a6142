"""Blocking work beside a single-threaded owner (the `AsyncRunner` port).

Work runs in other threads. Its outcome is posted to the owner's thread (a task thread's mailbox, or an event
loop), where exactly one callback runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias, TypeVar

from penstock.runtime.ports import Cancellable

T = TypeVar("T")

#: Runs a callable in the owner's thread, soon.
Post: TypeAlias = Callable[[Callable[[], None]], None]


class Threads(Protocol):
    """Where work runs: a pool, or anything else that takes calls."""

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
        threads: Where the work runs.
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
