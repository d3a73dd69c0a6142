"""`ClosingOperators`: the end of what operators have in the JobMaster, when their job has ended.

Master hooks and coordinators are users' code. Their calls may fail, and a hook's may never return. The end of
the job is in the log by now, so nothing of that changes it. The user is told what was not closed, and why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from penstock.runtime.ports import TimerService

#: Seconds that an ended job waits for its master hooks to be closed.
CLOSE_TIMEOUT: Final = 5.0


class ClosingOperators:
    """Collects what went wrong, until all hooks are closed or the time is over.

    Args:
        hooks: Names of the hooks, with their operators, as the user is told them.
        then: Called once, by `begin` or later, with everything that went wrong in words, or with nothing.
    """

    def __init__(self, hooks: Iterable[str], timers: TimerService, then: Callable[[str], None]) -> None:
        self._open = list(hooks)
        self._then: Callable[[str], None] | None = then
        self._problems: list[str] = []
        self._is_begun = False
        self._timer = timers.call_later(CLOSE_TIMEOUT, self._give_up)

    def begin(self) -> None:
        """All calls have been made: `then` may be called from now on."""
        self._is_begun = True
        self._end_if_all_are_closed()

    def failed(self, problem: str) -> None:
        """A coordinator could not be closed."""
        self._problems.append(problem)

    def closed(self, hook: str, problem: str = "") -> None:
        """The close of a hook is over.

        Args:
            hook: One of `hooks`.
            problem: Why it failed, in words; empty when it did not.
        """
        self._open.remove(hook)
        if problem:
            self.failed(problem)
        self._end_if_all_are_closed()

    def _give_up(self) -> None:
        for hook in self._open:
            self.failed(f"{hook} was not closed within {CLOSE_TIMEOUT:g} s: a call of it has not come back")
        self._end()

    def _end_if_all_are_closed(self) -> None:
        if self._is_begun and not self._open:
            self._end()

    def _end(self) -> None:
        then, self._then = self._then, None
        if then is not None:
            self._timer.cancel()
            then("; ".join(self._problems))
