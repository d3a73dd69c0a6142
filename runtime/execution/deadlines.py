"""Time limits for unanswered calls (`RetryDeadline`), and for a silent JobMaster (`Lease`).

The cluster reports a silent process as dead or unreachable. Death is final, unless the cluster restarts the
process under the same name. A process is usually unreachable because a connection broke. The caller then does
not know whether the process lives, or has executed the call. So only idempotent calls may be repeated.

A receiver counts as unreachable from the first call that fails until a call that reaches it. The pauses
between calls grow, so that a returning receiver does not get the calls of all callers at once.
`RetryDeadline` serves retries in blocking threads, event loops and polls.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final


@dataclass(frozen=True, slots=True)
class Pauses:
    """Seconds between a failed call and the next call: `first`, then `factor` times the previous pause."""

    first: float
    factor: float = 1.0
    longest: float = inf

    def after(self, failures: int) -> float:
        pause = self.first
        for _ in range(failures - 1):
            if pause >= self.longest:
                break
            pause *= self.factor
        return min(pause, self.longest)


#: Pauses between two calls to an actor.
BETWEEN_CALLS: Final = Pauses(first=0.1, factor=2.0, longest=0.5)


class RetryDeadline:
    """Tracks the failed calls to one receiver.

    Args:
        present_after: Seconds; a call that lasted longer before it failed had reached its receiver.
    """

    def __init__(self, pauses: Pauses = BETWEEN_CALLS, present_after: float = inf) -> None:
        self._pauses = pauses
        self._present_after = present_after
        self._since: float | None = None
        self._failures = 0

    def failed(self, asked_at: float, now: float, patience: float = inf) -> float | None:
        """Count a failed call; return the seconds until the next one, or `None` to give up.

        Args:
            asked_at: Time of the call, in monotonic seconds.
            patience: Seconds that the receiver may be unreachable.
        """
        if self._since is None or now - asked_at > self._present_after:
            self._since, self._failures = now, 0
        self._failures += 1
        if now - self._since >= patience:
            return None
        return self._pauses.after(self._failures)


class Lease:
    """Counts silence, but only time in which the process could have received calls.

    A process ends itself when its lease expires, so no orphan stays. But a process may have been unable to
    run (SIGSTOP, a suspended machine, user code that held the interpreter). When it continues, much time
    has passed, and the JobMaster's calls are still unread. So the time between two checks counts for at most
    two intervals, and incoming calls are read before the next check.

    Args:
        timeout: Seconds of silence after which the lease is over.
        now: Monotonic seconds.
    """

    def __init__(self, timeout: float, now: float) -> None:
        self._timeout = timeout
        self._looked_at = now
        self._silent = 0.0

    @property
    def interval(self) -> float:
        """Seconds between two checks."""
        return self._timeout / 4

    @property
    def silent(self) -> float:
        return self._silent

    def renew(self, now: float) -> None:
        """Reset the silence after a call of the JobMaster."""
        self._silent = 0.0
        self._looked_at = now

    def change(self, timeout: float, now: float) -> None:
        """Reset the silence, and change the timeout."""
        self._timeout = timeout
        self.renew(now)

    def is_over(self, now: float) -> bool:
        """Whether the lease is over; call it at every interval."""
        self._silent += min(now - self._looked_at, 2 * self.interval)
        self._looked_at = now
        return self._silent > self._timeout
