"""`MasterGuard`: follows the answers of a JobMaster, in a process of its job, and ends one that hangs.

Ray brings back a JobMaster that has died. One that lives and does nothing must be killed first, and its own
subtasks are there to notice. Each hears from it every two seconds, when it renews their leases. A few of them
are its guards (`choose_guards`), so that a frozen JobMaster is not looked at by a thousand subtasks at once.
The JobMaster says in each renewal whether the receiver guards it. So a guard that dies is replaced two
seconds later. A JobMaster that hangs together with its guards, or before its first renewal, is noticed by its
clients only.

A guard hears nothing, too, when the JobMaster has given its process up, or when a connection is cut. So it
asks the JobMaster by itself before it acts. An answer to that is a sign of life, and renews no lease.

The process is killed by its process id and the time when it started, on its own node. So a guard that is late
never hits the JobMaster that has come back, and two guards have the effect of one. It may hit a JobMaster
that still works, when its answers to this guard were lost for nine tenths of a lease. Then the job has one
restart more. Two JobMasters at a time are safe in any case: the decision log lets one of them decide.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, Protocol

from penstock.runtime.execution.fleet import Member
from penstock.runtime.execution.heartbeat import Heartbeat, HeartbeatLimits, Pulse, Silence
from penstock.runtime.execution.processes import Away, CallFailure, Died, Place, Reply
from penstock.runtime.ports import Cancellable, Clock, TimerService
from penstock.runtime.snapshot.ids import SubtaskId

#: Subtasks of a job that guard its JobMaster.
GUARDS: Final = 3
#: A JobMaster that is silent is killed after this share of a lease, before its subtasks leave.
OVERDUE: Final = 0.9


def choose_guards(members: Collection[Member]) -> frozenset[SubtaskId]:
    """The subtasks that guard the JobMaster: on as many nodes as possible."""
    by_node: dict[str, list[SubtaskId]] = {}
    for member in sorted(members, key=lambda member: member.role.subtask):
        by_node.setdefault(member.place.node_id, []).append(member.role.subtask)
    ranked = [(rank, subtask) for on_node in by_node.values() for rank, subtask in enumerate(on_node)]
    return frozenset(subtask for _, subtask in sorted(ranked)[:GUARDS])


class GuardedMaster(Protocol):
    """A guard's way to its JobMaster. No method blocks; a reply comes after its call has returned."""

    def ask_master(self, reply: Reply[None]) -> None: ...

    def processor_time_of_master(self, place: Place, reply: Reply[float]) -> None:
        """Read the processor time of this process on its node, in seconds."""
        ...

    def end_master(self, place: Place, why: str) -> None:
        """Kill this process, and no other one; Ray then starts the JobMaster again."""
        ...


class MasterGuard:
    """Guards the JobMaster of one role; see the module's docstring.

    Args:
        limits: `overdue_after` is shorter than the lease, see `OVERDUE`.
        fell_silent: Called, once in a silence, when the JobMaster does not answer.
    """

    def __init__(
        self,
        limits: HeartbeatLimits,
        clock: Clock,
        timers: TimerService,
        master: GuardedMaster,
        fell_silent: Callable[[Place, Silence], None],
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._timers = timers
        self._master = master
        self._fell_silent = fell_silent
        self._place: Place | None = None
        self._heartbeat = Heartbeat(limits, 0.0)
        self._is_named = False
        self._has_asked = False
        self._timer: Cancellable | None = None

    def renewed(self, guarded: Place | None) -> None:
        """The JobMaster has renewed the lease; `guarded` is its place if this process guards it."""
        if guarded != self._place:
            self.end()
            if guarded is not None:
                self._place = guarded
                self._heartbeat = Heartbeat(self._limits, self._clock.monotonic())
                self._look_later()
        self._heard()

    def end(self) -> None:
        self._place, self._has_asked = None, False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _heard(self) -> None:
        self._is_named = False
        self._heartbeat.heard(self._clock.monotonic())

    def _look_later(self) -> None:
        self._timer = self._timers.call_later(self._limits.interval, self._look)

    def _look(self) -> None:
        place = self._place
        if place is None:
            return
        heartbeat = self._heartbeat
        pulse = heartbeat.look(self._clock.monotonic(), self._limits.interval)
        self._look_later()
        if pulse.is_over:
            # The kill may fail, and then comes again; one that has come back renews from another place.
            self._heartbeat = Heartbeat(self._limits, self._clock.monotonic())
            self._master.end_master(place, f"the JobMaster hangs: {heartbeat.silence}")
            return
        if pulse is Pulse.SILENT and not self._is_named:
            self._is_named = True
            self._fell_silent(place, heartbeat.silence)
        if heartbeat.wants_reading:
            heartbeat.ask()
            self._master.processor_time_of_master(
                place, lambda answer: heartbeat.read(answer if isinstance(answer, float) else None)
            )
        if heartbeat.is_suspect and not self._has_asked:
            self._ask(place)

    def _ask(self, place: Place) -> None:
        self._has_asked = True

        def answered(answer: CallFailure | None) -> None:
            if self._place != place:
                return
            self._has_asked = False
            if not isinstance(answer, Died | Away):
                self._heard()

        self._master.ask_master(answered)
