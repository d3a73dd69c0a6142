"""Roles of processes, and the calls that match them.

`Role`: starting a process takes a second. So a process outlives attempts, is found by a new JobMaster, and
may serve another job. It has an opaque name, and *takes a role*: one subtask of one job, under a unique
token. It gives the role back when it is no longer needed, and can take another one.

Every call between processes names the role and the attempt that it is for. The receiver compares:

- another token: the call is for a role that this process does not hold (any more). It is *stale*.
- the same token, an older attempt: stale, too. The process has a newer attempt.
- the same token, a newer attempt: the process has not been deployed for it *yet*.

So late calls, replaced JobMasters and senders of other jobs can't reach the wrong subtask. Attempt numbers
alone would not suffice: they begin at 1 in every job.

Two JobMasters of one job use the same tokens, because the second JobMaster asks the processes for their
roles. The attempt distinguishes the two: the decision log gives each number to one of them.

`RoleHolder`: attempts are fenced. A deployment that arrives after a newer one, or after a stop that covers
it, is refused; a stop never touches a newer attempt. So calls may arrive in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from penstock.runtime.snapshot.ids import SubtaskId


@dataclass(frozen=True, slots=True)
class Role:
    """A subtask of a job, held by one process; the attempt is 0 before the first deployment."""

    job_id: str
    subtask: SubtaskId
    attempt: int
    token: str

    def __str__(self) -> str:
        return f"{self.subtask} of {self.job_id}, attempt {self.attempt}"

    def at(self, attempt: int) -> Role:
        # Each call of the JobMaster makes a role like this; `replace` would take ten times as long.
        return Role(self.job_id, self.subtask, attempt, self.token)

    def is_same_taking(self, other: Role) -> bool:
        """Whether both roles have the same token; attempts may differ."""
        return self.token == other.token


class CallFit(Enum):
    """The relation of a call to its receiver's role; see the module's docstring."""

    CURRENT = "current"
    STALE = "stale"
    NOT_YET = "not yet"


class RoleHolder:
    """The role of one process.

    Attributes:
        role: The role, in the attempt that was deployed last; `None` while the process is free.
    """

    def __init__(self) -> None:
        self.role: Role | None = None
        #: Deployments of attempts up to this number are refused.
        self._refused = 0

    def take(self, role: Role) -> bool:
        """Take a role; `False` if the process holds another role. A repeated call changes nothing."""
        if self.role is not None:
            return self.role.is_same_taking(role)
        self.role, self._refused = role.at(0), 0
        return True

    def give_back(self, role: Role) -> bool:
        """Give a role back; `False` when the process does not hold it. Nothing of the role may still run."""
        if not self.holds(role):
            return False
        self.role = None
        return True

    def holds(self, role: Role) -> bool:
        return self.role is not None and self.role.is_same_taking(role)

    def deploy(self, role: Role) -> bool:
        """Refuse older deployments from now on; `False` if this deployment itself is refused."""
        if not self.may_deploy(role):
            return False
        self._refused = role.attempt - 1
        return True

    def may_deploy(self, role: Role) -> bool:
        """Whether this attempt may begin; check again after an older attempt was stopped for it."""
        return self.holds(role) and role.attempt > self._refused

    def begin(self, role: Role) -> None:
        self.role = role

    def stop(self, role: Role) -> bool:
        """Refuse this attempt and older ones from now on; return whether the current one is covered."""
        held = self.role
        if held is None or not held.is_same_taking(role):
            return False
        self._refused = max(self._refused, role.attempt)
        return held.attempt <= role.attempt

    def fit(self, token: str, attempt: int) -> CallFit:
        held = self.role
        if held is None or held.token != token or held.attempt > attempt:
            return CallFit.STALE
        return CallFit.CURRENT if held.attempt == attempt else CallFit.NOT_YET
