"""`Absence`: when a call that got no answer is repeated, and when its receiver counts as lost.

The cluster reports a process that gives no answer in one of two ways. It has died: that is final, unless
something restarts it under the same name. Or it is unreachable, mostly because a connection broke. Then
nobody knows whether the process lives, or whether it has executed the call. So only idempotent calls may be
repeated.

One absence begins with the first call that fails and ends with a call that lasts. The pauses between calls
grow, so that not all callers reach a receiver at once when it comes back. Retries are decided here only:
blocking threads, event loops and polls all ask this class.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final


@dataclass(frozen=True, slots=True)
class Pauses:
    """Seconds between a failed call and the next one.

    Attributes:
        first: After the first failure.
        factor: How much longer each next one is.

    Example:
        >>> pauses = Pauses(first=0.1, factor=2.0, longest=0.5)
        >>> [pauses.after(failures) for failures in (1, 2, 3, 4)]
        [0.1, 0.2, 0.4, 0.5]
    """

    first: float
    factor: float = 1.0
    longest: float = inf

    def after(self, failures: int) -> float:
        """Seconds after this many failures in a row, at least one."""
        pause = self.first
        for _ in range(failures - 1):
            if pause >= self.longest:
                break
            pause *= self.factor
        return min(pause, self.longest)


#: Between two calls of an actor.
BETWEEN_CALLS: Final = Pauses(first=0.1, factor=2.0, longest=0.5)


class Absence:
    """Follows the failed calls of one receiver.

    Args:
        pauses: How long to wait between calls.
        present_after: A call that lasted this many seconds before it failed had reached its receiver.

    Example:
        >>> absence = Absence(Pauses(0.5))
        >>> absence.failed(asked_at=10.0, now=10.0, patience=2.0)
        0.5
        >>> absence.failed(asked_at=10.5, now=12.5, patience=2.0) is None
        True
    """

    def __init__(self, pauses: Pauses = BETWEEN_CALLS, present_after: float = inf) -> None:
        self._pauses = pauses
        self._present_after = present_after
        self._since: float | None = None
        self._failures = 0

    def failed(self, asked_at: float, now: float, patience: float = inf) -> float | None:
        """A call has failed.

        Args:
            asked_at: When it was made, in monotonic seconds.
            now: Monotonic seconds.
            patience: Seconds that the receiver may be away.

        Returns:
            Seconds until the next call; `None` when the receiver counts as gone.
        """
        if self._since is None or now - asked_at > self._present_after:
            self._since, self._failures = now, 0
        self._failures += 1
        if now - self._since >= patience:
            return None
        return self._pauses.after(self._failures)
