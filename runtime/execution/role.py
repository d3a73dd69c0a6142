"""`Role`: what a process is, whatever it is called.

Starting a process takes a second. So a process outlives attempts, is found by a new JobMaster, and may serve
another job. It has an opaque name, and *takes a role*: one subtask of one job, under a unique token. It gives
the role back when it is no longer needed, and can take another one.

Every call between processes carries the role that it is for, with the attempt that it is of. The receiver
compares:

- another token: the call is for a role that this process does not hold (any more). It is *stale*.
- the same token, an older attempt: stale, too. A newer attempt has this process.
- the same token, a newer attempt: the process has not been deployed for it *yet*.

So late calls, replaced JobMasters and senders of other jobs can't reach the wrong subtask. Attempt numbers
alone would not suffice: they begin at 1 in every job.

Two JobMasters of one job use the same tokens, because the second one asks the processes for their roles. The
attempt distinguishes the two: the decision log gives each number to one of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.runtime.snapshot.subtask_id import SubtaskId


@dataclass(frozen=True, slots=True)
class Role:
    """One subtask of one job, in one process.

    Attributes:
        attempt: The attempt; 0 before the first deployment.
        token: Tells this taking of the role from every other one.

    Example:
        >>> role = Role("words-1", SubtaskId("count", 0), 0, "7f3a")
        >>> str(role.at(2)), role.at(2) == role, role.at(2).is_same_taking(role)
        ('count[0] of words-1, attempt 2', False, True)
    """

    job_id: str
    subtask: SubtaskId
    attempt: int
    token: str

    def __str__(self) -> str:
        return f"{self.subtask} of {self.job_id}, attempt {self.attempt}"

    def at(self, attempt: int) -> Role:
        """The same role in another attempt."""
        return replace(self, attempt=attempt)

    def is_same_taking(self, other: Role) -> bool:
        """Whether both are the same taking of a role, in whatever attempts."""
        return self.token == other.token
