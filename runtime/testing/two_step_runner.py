"""`TwoStepRunner`: background work that is done in one step, and whose outcome is told in another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class TwoStepWork:
    """Work beside a task, whose outcome is told in a second move.

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
        """Nobody wants to know; the work may still be done."""
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
        """Tell the outcome, unless nobody wants to know."""
        if not self._cancelled and self._tell is not None:
            self._tell()


class TwoStepRunner:
    """An `AsyncRunner` that does work in one move and tells its outcome in another.

    Attributes:
        waiting: Work to be done.
        done: Work whose outcome nobody has been told.
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
