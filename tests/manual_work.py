"""Background work that is done when a test says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class ManualWork:
    """One piece of background work.

    Attributes:
        work: What is to be done.
        on_result: Called with its result.
        on_error: Called with its error.
        cancelled: Whether no caller wants the result any more.
    """

    work: Callable[[], Any]
    on_result: Callable[[Any], None]
    on_error: Callable[[BaseException], None]
    cancelled: bool = False

    def cancel(self) -> None:
        """No caller wants the result any more; the work is still done."""
        self.cancelled = True

    def run(self) -> None:
        """Do the work and tell its outcome."""
        try:
            result = self.work()
        except Exception as error:  # told, as the real runner tells it
            if not self.cancelled:
                self.on_error(error)
        else:
            if not self.cancelled:
                self.on_result(result)


class ManualAsyncRunner:
    """Background work that is done when the test says so.

    Example:
        >>> runner = ManualAsyncRunner()
        >>> _ = runner.run(lambda: 6 * 7, print, print)
        >>> runner.run_all()
        42
        1
    """

    def __init__(self) -> None:
        self._queue: list[ManualWork] = []

    @property
    def waiting(self) -> int:
        """Pieces of work that wait."""
        return len(self._queue)

    def run(
        self,
        work: Callable[[], T],
        on_result: Callable[[T], None],
        on_error: Callable[[BaseException], None],
    ) -> ManualWork:
        """Queue work."""
        item = ManualWork(work, on_result, on_error)
        self._queue.append(item)
        return item

    def run_next(self, index: int = 0) -> bool:
        """Do one waiting piece of work; whether there was one."""
        if index >= len(self._queue):
            return False
        self._queue.pop(index).run()
        return True

    def run_all(self) -> int:
        """Do everything that waits, and what that asks for; returns how much there was."""
        done = 0
        while self.run_next():
            done += 1
        return done


class TwoStepWork:
    """Work beside a task, whose outcome is reported in a second move.

    Args:
        work: What is done.
        on_result: Called with its result.
        on_error: Called with its error.
    """

    def __init__(
        self,
        work: Callable[[], Any],
        on_result: Callable[[Any], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._work = work
        self._on_result = on_result
        self._on_error = on_error
        self._tell: Callable[[], None] | None = None
        self._cancelled = False

    def cancel(self) -> None:
        """Report no outcome; the work may still be done."""
        self._cancelled = True

    def do(self) -> None:
        """Do the work."""
        try:
            result = self._work()
        except Exception as error:  # told, as the real runner tells it
            failure = error
            self._tell = lambda: self._on_error(failure)
        else:
            self._tell = lambda: self._on_result(result)

    def tell(self) -> None:
        """Report the outcome, unless the work was cancelled."""
        if not self._cancelled and self._tell is not None:
            self._tell()


class TwoStepRunner:
    """An `AsyncRunner` that does work in one move and tells its outcome in another.

    Attributes:
        waiting: Work to be done.
        done: Work whose outcome was not reported yet.
    """

    def __init__(self) -> None:
        self.waiting: list[TwoStepWork] = []
        self.done: list[TwoStepWork] = []

    def run(
        self,
        work: Callable[[], T],
        on_result: Callable[[T], None],
        on_error: Callable[[BaseException], None],
    ) -> TwoStepWork:
        """Queue work."""
        item = TwoStepWork(work, on_result, on_error)
        self.waiting.append(item)
        return item

    def do(self, index: int) -> None:
        """Do one waiting piece of work."""
        item = self.waiting.pop(index)
        item.do()
        self.done.append(item)
