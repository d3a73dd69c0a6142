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
