"""`SubtaskRunner`: runs the attempts of a subtask in a process.

The runner takes a role, builds and runs attempts of its subtask one after another, and gives the role back.
It is single-threaded and never calls Ray. The actor on Ray is a `SubtaskRunner`; the simulated process has
one. Both pass calls to it and implement its environment (`ProcessHost`, `RunningAttempt`). So the simulation
tests the code that runs in production.

- Calls may arrive late, twice and in any order. `RoleHolder` decides which of them to accept.
- An attempt begins when the previous one has ended. A newer deployment, or a stop of this attempt, may have
  arrived meanwhile, so the process checks again whether the attempt may begin.
- An attempt ends once. The open `run` call, stops and a waiting deployment each get its outcome once.
- A process ends if it gets no call from a JobMaster for a whole lease. So no orphan is left behind.
- A process that has given its role back is warm: it can take a role of another job. But a process ends if
  users' code has failed in it or has left something behind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from penstock.runtime.execution.deadlines import Lease
from penstock.runtime.execution.heartbeat import OVERDUE, HeartbeatLimits, MasterGuard
from penstock.runtime.execution.processes import (
    Counters,
    CurrentRole,
    Deliveries,
    DeliveryAnswer,
    Place,
    ProcessSpec,
    Stale,
    SubtaskFailed,
    SubtaskFinished,
    SubtaskOutcome,
    SubtaskStopped,
)
from penstock.runtime.execution.role import CallFit, Role, RoleHolder
from penstock.runtime.ports import Clock
from penstock.runtime.record.element_codec import EncodedElement
from penstock.runtime.task.descriptor import SubtaskControl, TaskDescriptor

#: Seconds that a process without a role waits for a role.
WARM: Final = 60.0
#: Maximum number of roles in a process's life; bounds the memory that users' code leaks.
_MOST_ROLES: Final = 50
#: Maximum seconds between two checks of the lease, because a shorter lease may be set meanwhile.
_LONGEST_SLEEP: Final = WARM / 4

#: Types of the JobMaster and of the receivers; they differ between the actor on Ray and the simulation.
MasterT = TypeVar("MasterT")
PeersT = TypeVar("PeersT")
_Master_contra = TypeVar("_Master_contra", contravariant=True)
_Peers_contra = TypeVar("_Peers_contra", contravariant=True)

OnBuilt: TypeAlias = Callable[[SubtaskFailed | None], None]
OnOutcome: TypeAlias = Callable[[SubtaskOutcome], None]


class RunningAttempt(Protocol[_Peers_contra]):
    """One attempt of a subtask; its callbacks run in the process's only thread."""

    def build(self, on_built: OnBuilt) -> None:
        """Build the subtask and restore its state; a failed build does not call `ended`."""
        ...

    def start(self, peers: _Peers_contra) -> None:
        """Start processing, and send to these receivers. Elements that arrived earlier wait until then."""
        ...

    def stop(self) -> None:
        """Stop between two pieces of work and close the subtask; then `AttemptEvents.ended` is called."""
        ...

    def deliver(self, channel: int, first: int, elements: Sequence[EncodedElement]) -> None: ...

    def control(self, message: SubtaskControl) -> None: ...

    def counters(self) -> Counters: ...

    def end_reports(self) -> None:
        """Stop repeating reports, which the JobMaster no longer needs."""
        ...


class AttemptEvents(Protocol):
    """Callbacks of an attempt, in the process's only thread."""

    def consumed(self, channel: int, next_sequence_number: int) -> None:
        """Called when the subtask has consumed all elements below this number."""
        ...

    def ended(self, outcome: SubtaskOutcome) -> None:
        """Handle the end of the closed subtask; called once."""
        ...


class ProcessHost(Protocol[_Master_contra, _Peers_contra]):
    """The environment of a `SubtaskRunner`; the actor on Ray and the simulated process implement it."""

    @property
    def clock(self) -> Clock: ...

    @property
    def place(self) -> Place: ...

    def new_attempt(
        self, role: Role, descriptor: TaskDescriptor, master: _Master_contra, events: AttemptEvents
    ) -> RunningAttempt[_Peers_contra]:
        """Make an attempt that reports to this JobMaster; none of its code runs before `build`."""
        ...

    def new_guard(self, limits: HeartbeatLimits) -> MasterGuard: ...

    def refuses(self) -> str | None:
        """Return the reason why a process without a role can't take one; `None` when it can."""
        ...

    def role_taken(self, role: Role, *, is_prepared: bool) -> None:
        """Called when a role was taken; `is_prepared` if the job's code is already loaded."""
        ...

    def role_given_back(self) -> None:
        """Handle the end of the role; its attempts have ended."""
        ...

    def residue(self) -> str | None:
        """Describe a leftover of the last role that prevents another role here; `None` without one."""
        ...

    def note(self, what: str) -> None: ...

    def exit(self, why: str, *, is_failure: bool) -> None:
        """End the process at once, even while a call runs."""
        ...

    def withdraw_offer(self, answer: Callable[[bool], None]) -> None:
        """Stop offering the process to jobs; answers later, with `False` if a JobMaster has claimed it."""
        ...


@dataclass(frozen=True, slots=True)
class ProcessEnds:
    """Answer of a process that has given its role back and takes no other role; the caller must end it."""

    why: str


class _Deployed(Generic[PeersT]):
    """A deployed attempt, until the next deployment."""

    def __init__(self) -> None:
        self.attempt: RunningAttempt[PeersT]
        self.deliveries = Deliveries()
        self.outcome: SubtaskOutcome | None = None
        self.is_started = False
        self._waiting: list[OnOutcome] = []

    def when_ended(self, callback: OnOutcome) -> None:
        if self.outcome is None:
            self._waiting.append(callback)
        else:
            callback(self.outcome)

    def consumed(self, channel: int, next_sequence_number: int) -> None:
        self.deliveries.consumed(channel, next_sequence_number)

    def ended(self, outcome: SubtaskOutcome) -> None:
        self.outcome = outcome
        if isinstance(outcome, SubtaskFinished):
            self.deliveries.close(DeliveryAnswer.CONSUMED)
        else:
            self.deliveries.close(DeliveryAnswer.STALE)
            self.attempt.end_reports()
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback(outcome)


class SubtaskRunner(Generic[MasterT, PeersT]):
    def __init__(self, spec: ProcessSpec, host: ProcessHost[MasterT, PeersT]) -> None:
        self._spec = spec
        self._host = host
        self._holder = RoleHolder()
        self._lease = Lease(WARM, host.clock.monotonic())
        self._guard: MasterGuard | None = None
        self._current: _Deployed[PeersT] | None = None
        self._roles = 0
        self._has_failed = False
        #: Whether the code of the next role's job is loaded.
        self._is_prepared = False
        self._may_be_offered = False

    # -- the role -------------------------------------------------------------------------------------------

    @property
    def role(self) -> Role | None:
        """The role, with the attempt that was deployed last; `None` while the process is free."""
        return self._holder.role

    @property
    def attempt(self) -> RunningAttempt[PeersT] | None:
        """The attempt that was deployed last, whether or not it has ended."""
        return None if self._current is None else self._current.attempt

    def ask(self) -> CurrentRole:
        """Return the role and the place; the call renews the lease of a process without a role."""
        if self._holder.role is None:
            self.renew_lease()
        return CurrentRole(self._holder.role, self._spec, self._host.place, self._is_prepared)

    def prepared(self) -> None:
        """Note that the code of the next role's job is loaded."""
        self._is_prepared = True

    def take_role(self, role: Role, lease_timeout: float, heartbeat_timeout: float) -> Place | Stale:
        """Take a role; return `Stale` if the process holds another role, or can't take one.

        Args:
            lease_timeout: Seconds without a call of the JobMaster after which the process ends itself.
            heartbeat_timeout: Seconds after which the guards kill a JobMaster that hangs.
        """
        is_free = self._holder.role is None
        if is_free and (why := self._host.refuses()) is not None:
            self._host.note(f"this process takes no other role: {why}")
            return Stale()
        if not self._holder.take(role):
            return Stale()
        self._lease.change(lease_timeout, self._host.clock.monotonic())
        if is_free:
            self._guard = self._host.new_guard(HeartbeatLimits.of(heartbeat_timeout, lease_timeout * OVERDUE))
            self._host.role_taken(role, is_prepared=self._is_prepared)
            self._is_prepared = False
            self._roles += 1
        return self._host.place

    def give_back(self, role: Role, answer: Callable[[bool], None]) -> None:
        """Stop the attempt and give the role back; answers `False` when the process does not hold it."""
        held, current = self._holder.role, self._current
        if held is None or not held.is_same_taking(role):
            answer(False)
            return
        if self._is_running():
            self._stop(held, lambda: self.give_back(role, answer))  # another attempt may have begun meanwhile
            return
        self._holder.give_back(role)
        if current is not None:
            current.attempt.end_reports()
        self._current = None
        if self._guard is not None:
            self._guard.end()
            self._guard = None
        self._host.role_given_back()
        answer(True)

    def leave_role(self, role: Role, stays: bool, answer: Callable[[bool | ProcessEnds], None]) -> None:
        """Give the role back, and wait for another one if that is safe and the job allows it (`stays`).

        Answers `False` and does nothing when the process holds another role.
        """

        def given_back(is_given_back: bool) -> None:
            if not is_given_back:
                answer(False)
                return
            why = self._why_not_again() if stays else "the job does not allow it"
            if why is not None:
                self._host.note(f"this process takes no other role: {why}")
                answer(ProcessEnds(why))
                return
            self._lease.change(WARM, self._host.clock.monotonic())
            self._may_be_offered = True
            answer(True)

        self.give_back(role, given_back)

    # -- calls of the JobMaster -----------------------------------------------------------------------------

    def deploy_attempt(
        self, role: Role, descriptor: TaskDescriptor, master: MasterT, on_built: OnBuilt
    ) -> None:
        """Build and restore the subtask of a new attempt; answers with the failure, or `None`."""
        self._renew(role)
        if self._holder.deploy(role):
            self._begin(role, descriptor, master, on_built)
        else:
            on_built(_replaced(role))

    def _begin(self, role: Role, descriptor: TaskDescriptor, master: MasterT, on_built: OnBuilt) -> None:
        if not self._holder.may_deploy(role):
            on_built(_replaced(role))
            return
        if self._is_running():
            self._stop_current(lambda: self._begin(role, descriptor, master, on_built))
            return
        self._holder.begin(role)
        self._current = current = _Deployed[PeersT]()
        current.when_ended(self._note_failure)
        current.attempt = self._host.new_attempt(role, descriptor, master, current)

        def built(failed: SubtaskFailed | None) -> None:
            if failed is not None:
                current.ended(failed)
            on_built(failed)

        current.attempt.build(built)

    def run_attempt(self, role: Role, peers: PeersT, on_end: OnOutcome) -> None:
        """Run a deployed attempt; answers once, when it has ended."""
        current = self._current_of(role)
        if current is None:
            on_end(SubtaskStopped())
            return
        if current.outcome is None and not current.is_started:
            current.is_started = True
            current.attempt.start(peers)
        current.when_ended(on_end)

    def control(self, role: Role, message: SubtaskControl) -> bool:
        """Pass a message of the JobMaster on; return `False` for another or an ended attempt."""
        self._renew(role)
        current = self._current_of(role)
        if current is None or current.outcome is not None:
            return False
        current.attempt.control(message)
        return True

    def stop_attempt(self, role: Role, on_stopped: Callable[[], None]) -> None:
        """Stop this attempt, or an older one that still runs; answers when both have ended."""
        self._renew(role)
        self._stop(role, on_stopped)

    def renew(self, role: Role, guarded: Place | None = None) -> Counters | Stale:
        """Renew the lease; return the counters of the current attempt, or `Stale` for another role.

        Args:
            guarded: Place of the JobMaster, if this process guards it.
        """
        if not self._holder.holds(role):
            return Stale()
        self.renew_lease()
        if self._guard is not None:
            self._guard.renewed(guarded)
        return Counters(0, None) if self._current is None else self._current.attempt.counters()

    # -- frames ---------------------------------------------------------------------------------------------

    def take_frame(
        self,
        token: str,
        attempt: int,
        channel: int,
        first: int,
        elements: Sequence[EncodedElement],
        answer: Callable[[DeliveryAnswer], None],
    ) -> None:
        """Take a frame of another subtask; answers when it is consumed, or at once if it is not accepted."""
        fit, current = self._holder.fit(token, attempt), self._current
        if fit is CallFit.STALE:
            answer(DeliveryAnswer.STALE)
        elif fit is CallFit.NOT_YET or current is None:
            answer(DeliveryAnswer.NOT_YET)
        elif current.deliveries.wait(channel, first + len(elements), answer):
            current.attempt.deliver(channel, first, elements)

    # -- the lease ------------------------------------------------------------------------------------------

    def renew_lease(self) -> None:
        self._lease.renew(self._host.clock.monotonic())

    @property
    def next_look(self) -> float:
        """Seconds until the lease must be checked."""
        return min(self._lease.interval, _LONGEST_SLEEP)

    def look_at_lease(self) -> None:
        """End the process if its lease has expired."""
        now = self._host.clock.monotonic()
        if self._lease.is_over(now):
            role = self._holder.role
            if role is not None:
                # The task may be stuck in users' code, so the process ends without waiting for it.
                why = f"{role} heard from no JobMaster for {self._lease.silent:.0f} s"
                self._host.exit(why, is_failure=True)
            elif self._may_be_offered:
                # A JobMaster that has claimed the process gets one more lease to give it a role.
                self._lease.renew(now)
                self._may_be_offered = False
                self._host.withdraw_offer(self._offer_withdrawn)
            else:
                self._host.exit("no JobMaster gave this process a role", is_failure=False)

    def _offer_withdrawn(self, is_withdrawn: bool) -> None:
        if is_withdrawn and self._holder.role is None:
            self._host.exit("no job has used this process again", is_failure=False)

    # -- implementation -------------------------------------------------------------------------------------

    def _renew(self, role: Role) -> None:
        if self._holder.holds(role):
            self.renew_lease()

    def _current_of(self, role: Role) -> _Deployed[PeersT] | None:
        is_current = self._holder.fit(role.token, role.attempt) is CallFit.CURRENT
        return self._current if is_current else None

    def _is_running(self) -> bool:
        return self._current is not None and self._current.outcome is None

    def _stop(self, role: Role, on_stopped: Callable[[], None]) -> None:
        if self._holder.stop(role):
            self._stop_current(on_stopped)
        else:
            on_stopped()

    def _stop_current(self, on_stopped: Callable[[], None]) -> None:
        current = self._current
        if current is None or current.outcome is not None:
            on_stopped()
            return
        current.when_ended(lambda outcome: on_stopped())
        current.attempt.stop()

    def _note_failure(self, outcome: SubtaskOutcome) -> None:
        self._has_failed = self._has_failed or isinstance(outcome, SubtaskFailed)

    def _why_not_again(self) -> str | None:
        if self._has_failed:
            return "users' code has failed here"
        if self._spec.occupies_resources:
            return "it occupies resources"
        if self._roles >= _MOST_ROLES:
            return f"it has taken {self._roles} roles"
        return self._host.residue()


def _replaced(role: Role) -> SubtaskFailed:
    return SubtaskFailed(f"{role} was replaced by a newer one", "")
