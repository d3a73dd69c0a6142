"""`Role`: what a process is, whatever it is called.

A subtask used to be the process with its name. But a process costs a second to start, so it outlives
attempts, is found again by a JobMaster that comes back, and may one day serve another job. So a process has a
name that says nothing, and *takes a role*: one subtask of one job, under a token that is never used twice. It
gives the role back when it is no longer needed, and can take another one.

Every call between processes carries the role that it is for, with the attempt that it is of. The receiver
compares:

- another token: the call is for a role that this process does not hold (any more). It is *stale*.
- the same token, an older attempt: stale, too. A newer attempt has this process.
- the same token, a newer attempt: the process has not been deployed for it *yet*.

So neither a call that comes late, nor a JobMaster that has been replaced, nor a sender of another job can
reach what it does not mean. Attempts alone could not tell that: they begin at 1 in every job.

Two JobMasters of one job use the same tokens, because the second one asks the processes for their roles. What
tells these two apart is the attempt: the log of decisions gives each number to one of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.runtime.snapshot.subtask_id import SubtaskId


@dataclass(frozen=True, slots=True)
class Role:
    """One subtask of one job, in one process.

    Attributes:
        job_id: The job.
        subtask: The subtask.
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
