"""`SubtaskRunner`: the role of a subtask's process.

It takes a role, builds and runs attempts of its subtask one after the other, and gives the role back. It is
single-threaded and knows no cluster. The actor on Ray is a `SubtaskRunner`, and the simulation's process has
one. They carry calls and stand for the machine (`ProcessHost`, `RunningAttempt`). So the simulation proves
the text that runs in production.

- Calls may come late, twice and in any order. `RoleHolder` decides which of them fit.
- An attempt begins when nothing of the one before runs any more. A newer deployment, or a stop that covers
  it, may have come meanwhile, so the process asks again whether it may begin.
- An attempt has one end, which the open `run` call, stops and a waiting deployment learn once.
- A process that hears from no JobMaster for a whole lease ends. So no orphan stays, whatever died first.
- A process that has given its role back is warm: it can take a role of another job. A process in which users'
  code has failed, or left anything, ends instead.
"""

from __future__ import annotations

from collections.abc import Callable
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
from penstock.runtime.task.descriptor import SubtaskControl, TaskDescriptor

#: Seconds that a process without a role waits for one.
WARM: Final = 60.0
#: Roles that a process takes in its life; bounds what users' code leaves in its memory.
_MOST_ROLES: Final = 50
#: Longest pause between two looks at the lease, in seconds: a shorter lease may come meanwhile.
_LONGEST_SLEEP: Final = WARM / 4

#: Types of the JobMaster and of the receivers, which the shells choose.
MasterT = TypeVar("MasterT")
PeersT = TypeVar("PeersT")
_Master_contra = TypeVar("_Master_contra", contravariant=True)
_Peers_contra = TypeVar("_Peers_contra", contravariant=True)

OnBuilt: TypeAlias = Callable[[SubtaskFailed | None], None]
OnOutcome: TypeAlias = Callable[[SubtaskOutcome], None]


class RunningAttempt(Protocol[_Peers_contra]):
    """One attempt of a subtask; its callbacks come in the process's one thread."""

    def build(self, on_built: OnBuilt) -> None:
        """Build the subtask and restore its state; one that can't be built calls no `ended`."""
        ...

    def start(self, peers: _Peers_contra) -> None:
        """Begin to step, sending to these receivers. What has arrived before waits for this."""
        ...

    def stop(self) -> None:
        """Stop between two pieces of work and close the subtask; then `AttemptEvents.ended` is called."""
        ...

    def deliver(self, channel: int, first: int, elements: list[bytes]) -> None: ...

    def control(self, message: SubtaskControl) -> None: ...

    def counters(self) -> Counters: ...

    def end_reports(self) -> None:
        """Stop repeating reports: the JobMaster needs none."""
        ...


class AttemptEvents(Protocol):
    """Callbacks of an attempt, in the process's one thread."""

    def consumed(self, channel: int, next_sequence_number: int) -> None:
        """The subtask has consumed everything below this number."""
        ...

    def ended(self, outcome: SubtaskOutcome) -> None:
        """The subtask is closed; called once."""
        ...


class ProcessHost(Protocol[_Master_contra, _Peers_contra]):
    """The machine of a `SubtaskRunner`, given by its shell."""

    @property
    def clock(self) -> Clock: ...

    @property
    def place(self) -> Place: ...

    def new_attempt(
        self, role: Role, descriptor: TaskDescriptor, master: _Master_contra, events: AttemptEvents
    ) -> RunningAttempt[_Peers_contra]:
        """Make an attempt that reports to this JobMaster; nothing of it runs before it is built."""
        ...

    def new_guard(self, limits: HeartbeatLimits) -> MasterGuard: ...

    def refuses(self) -> str | None:
        """Why the process can't take a role although it holds none; `None` when it can."""
        ...

    def role_taken(self, role: Role, *, is_prepared: bool) -> None:
        """The process serves this role from now on; it may have loaded the code of the job already."""
        ...

    def role_given_back(self) -> None:
        """Nothing of the role runs any more."""
        ...

    def residue(self) -> str | None:
        """Something that a role has left behind, so that no other one may run here; `None` for nothing."""
        ...

    def note(self, what: str) -> None:
        """Log a message for people."""
        ...

    def exit(self, why: str, *, is_failure: bool) -> None:
        """End the process at once, whatever it does."""
        ...

    def withdraw_offer(self, answer: Callable[[bool], None]) -> None:
        """Stop offering the process to jobs; answered later, with `False` when a JobMaster has claimed it."""
        ...


@dataclass(frozen=True, slots=True)
class ProcessEnds:
    """The process has given its role back and serves no other one, so it is to be ended."""

    why: str


class _Deployed(Generic[PeersT]):
    """An attempt that was deployed, until the next one is."""

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
        """The role, in the attempt that was deployed last; `None` while the process is free."""
        return self._holder.role

    @property
    def attempt(self) -> RunningAttempt[PeersT] | None:
        """The attempt that was deployed last, whether or not it has ended."""
        return None if self._current is None else self._current.attempt

    def ask(self) -> CurrentRole:
        """Say what it holds and where it runs; a JobMaster that asks keeps a process without a role."""
        if self._holder.role is None:
            self.renew_lease()
        return CurrentRole(self._holder.role, self._spec, self._host.place, self._is_prepared)

    def prepared(self) -> None:
        """The code of the job is loaded whose role it may take next."""
        self._is_prepared = True

    def take_role(self, role: Role, lease_timeout: float, heartbeat_timeout: float) -> Place | Stale:
        """Take a role; `Stale` when it holds another one, or when no other job may run here.

        Args:
            lease_timeout: Seconds without a call of the JobMaster after which the process ends itself.
            heartbeat_timeout: Seconds after which a JobMaster that stands still is killed by its guards.
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
        """Stop what runs and give the role back; `False` when the process does not hold it."""
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

        The answer is `False`, and nothing happens, when the process holds another role.
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
        """Build and restore the subtask of a new attempt; the answer is why that failed, or `None`."""
        self._renew(role)
        if self._holder.deploy(role):
            self._begin(role, descriptor, master, on_built)
        else:
            on_built(_past(role))

    def _begin(self, role: Role, descriptor: TaskDescriptor, master: MasterT, on_built: OnBuilt) -> None:
        if not self._holder.may_deploy(role):
            on_built(_past(role))
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
        """Run a deployed attempt; answered once when it has ended."""
        current = self._current_of(role)
        if current is None:
            on_end(SubtaskStopped())
            return
        if current.outcome is None and not current.is_started:
            current.is_started = True
            current.attempt.start(peers)
        current.when_ended(on_end)

    def control(self, role: Role, message: SubtaskControl) -> bool:
        """Take a message of the JobMaster; `False` for another attempt, or one that is over."""
        self._renew(role)
        current = self._current_of(role)
        if current is None or current.outcome is not None:
            return False
        current.attempt.control(message)
        return True

    def stop_attempt(self, role: Role, on_stopped: Callable[[], None]) -> None:
        """Stop this attempt, or an older one that still runs; answered when nothing of them runs any more."""
        self._renew(role)
        self._stop(role, on_stopped)

    def renew(self, role: Role, guarded: Place | None = None) -> Counters | Stale:
        """Renew the lease; the answer is the counters of the current attempt.

        Args:
            guarded: Where the JobMaster runs, if this process guards it.
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
        elements: list[bytes],
        answer: Callable[[DeliveryAnswer], None],
    ) -> None:
        """Take a frame of another subtask; answered when it is consumed."""
        fit, current = self._holder.fit(token, attempt), self._current
        if fit is CallFit.STALE:
            answer(DeliveryAnswer.STALE)
        elif fit is CallFit.NOT_YET or current is None:
            answer(DeliveryAnswer.NOT_YET)
        elif current.deliveries.wait(channel, first + len(elements), answer):
            current.attempt.deliver(channel, first, elements)

    # -- the lease ------------------------------------------------------------------------------------------

    def renew_lease(self) -> None:
        """A JobMaster lives that may give the process a role, or has given it one."""
        self._lease.renew(self._host.clock.monotonic())

    @property
    def next_look(self) -> float:
        return min(self._lease.interval, _LONGEST_SLEEP)

    def look_at_lease(self) -> None:
        """End the process if its lease is over."""
        now = self._host.clock.monotonic()
        if self._lease.is_over(now):
            role = self._holder.role
            if role is not None:
                # The task may be stuck in users' code, so the process is ended, not asked.
                why = f"{role} heard from no JobMaster for {self._lease.silent:.0f} s"
                self._host.exit(why, is_failure=True)
            elif self._may_be_offered:
                # A JobMaster that has claimed it has one more lease to give it a role.
                self._lease.renew(now)
                self._may_be_offered = False
                self._host.withdraw_offer(self._offer_withdrawn)
            else:
                self._host.exit("no JobMaster gave this process a role", is_failure=False)

    def _offer_withdrawn(self, is_withdrawn: bool) -> None:
        if is_withdrawn and self._holder.role is None:
            self._host.exit("no job has used this process again", is_failure=False)

    # -- inside ---------------------------------------------------------------------------------------------

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


def _past(role: Role) -> SubtaskFailed:
    return SubtaskFailed(f"{role} is past", "")
