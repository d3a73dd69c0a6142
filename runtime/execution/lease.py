"""`Lease`: how long a process may live without a sign of a JobMaster."""

from __future__ import annotations


class Lease:
    """Counts silence, in the time in which the process could have heard something.

    No orphan stays, whatever died first: a process ends itself when its lease expires. But a process may have
    been unable to run (SIGSTOP, a suspended machine, user code that held the interpreter). When it continues,
    much time has passed, and the JobMaster's calls are still unread. So the time between two checks counts
    for at most two intervals, and incoming calls are read before the next check.

    Args:
        timeout: Seconds of silence after which the lease is over.
        now: Monotonic seconds.

    Example:
        >>> lease = Lease(timeout=4.0, now=0.0)
        >>> [lease.is_over(now) for now in (1.0, 2.0, 3.0, 4.0, 4.1)]
        [False, False, False, False, True]
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
        """Seconds without a sign, as far as they count."""
        return self._silent

    def renew(self, now: float) -> None:
        """A sign of the JobMaster at `now`, in monotonic seconds: what was silent before counts no more."""
        self._silent = 0.0
        self._looked_at = now

    def change(self, timeout: float, now: float) -> None:
        """A sign of the JobMaster, and another timeout from now on."""
        self._timeout = timeout
        self.renew(now)

    def is_over(self, now: float) -> bool:
        """Look whether it is over; `now` is in monotonic seconds."""
        self._silent += min(now - self._looked_at, 2 * self.interval)
        self._looked_at = now
        return self._silent > self._timeout
