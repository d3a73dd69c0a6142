"""`Trial`: blocking work in the background that is awaited for a while, because it may hang for ever.

A storage that hangs keeps a thread. So one trial runs at a time. No other begins before the work of the last
one has returned, however long ago that was given up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from penstock.runtime.ports import AsyncRunner, Cancellable, TimerService

T = TypeVar("T")


class Trial:
    """Runs one piece of work at a time, and reports its outcome or its timeout.

    Args:
        runner: Runs the work.
        timeout: Seconds after which nobody waits any more.

    Attributes:
        is_running: Whether the work has not returned; it may outlive its timeout.
    """

    def __init__(self, runner: AsyncRunner, timers: TimerService, timeout: float) -> None:
        self._runner = runner
        self._timers = timers
        self._timeout = timeout
        self.is_running = False
        self._timer: Cancellable | None = None
        self._when_over: list[Callable[[], None]] = []

    @property
    def is_awaited(self) -> bool:
        """Whether work runs, within its timeout."""
        return self._timer is not None

    @property
    def hangs(self) -> bool:
        """Whether work runs that has outlived its timeout."""
        return self.is_running and self._timer is None

    def begin(
        self,
        work: Callable[[], T],
        where: str,
        on_result: Callable[[T], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        """Run `work`; exactly one callback follows, at the latest after the timeout.

        Args:
            where: The place that is to answer, for the error after the timeout.

        Raises:
            RuntimeError: The last work still runs.
        """
        if self.is_running:
            msg = f"a trial of {where} can't begin: the work of the last one still runs"
            raise RuntimeError(msg)
        late = TimeoutError(f"{where} did not answer within {self._timeout:g} s")

        def returned(report: Callable[[], None]) -> None:
            self.is_running = False
            self._end(report)

        self.is_running = True
        self._timer = self._timers.call_later(self._timeout, lambda: self._end(lambda: on_error(late)))
        self._runner.run(
            work,
            lambda result: returned(lambda: on_result(result)),
            lambda error: returned(lambda: on_error(error)),
        )

    def when_over(self, callback: Callable[[], None]) -> None:
        """Call back when no work is awaited: at once, or after the outcome was reported."""
        if self.is_awaited:
            self._when_over.append(callback)
        else:
            callback()

    def _end(self, report: Callable[[], None]) -> None:
        """The first outcome is reported; one after the timeout is not."""
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        report()
        callbacks, self._when_over = self._when_over, []
        for callback in callbacks:
            callback()
