"""`Gathering`: the answers of several calls, waited for together and only so long."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Generic, TypeVar

from penstock.runtime.execution.processes import CallFailure, Reply
from penstock.runtime.ports import TimerService

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Gathering(Generic[K, T]):
    """Collects one answer for each key and tells once: when all are there, or when the time is over.

    Args:
        keys: Whose answers are awaited.
        timers: Keep the time.
        timeout: Seconds to wait at most.
        done: Called with the answers; a key that is missing has not answered in time.
    """

    def __init__(
        self,
        keys: Collection[K],
        timers: TimerService,
        timeout: float,
        done: Callable[[Mapping[K, T | CallFailure]], None],
    ) -> None:
        self._open = set(keys)
        self._done = done
        self._answers: dict[K, T | CallFailure] = {}
        self._is_over = False
        # Without a key there is nothing to wait for, and it is told all the same: later, never at once.
        self._timer = timers.call_later(timeout if keys else 0.0, self._end)

    def reply(self, key: K) -> Reply[T]:
        """Takes the answer for one key."""

        def answered(answer: T | CallFailure) -> None:
            if self._is_over or key not in self._open:
                return
            self._open.discard(key)
            self._answers[key] = answer
            if not self._open:
                self._end()

        return answered

    def cancel(self) -> None:
        """Nobody wants to know any more."""
        self._is_over = True
        self._timer.cancel()

    def _end(self) -> None:
        if not self._is_over:
            self.cancel()
            self._done(self._answers)
