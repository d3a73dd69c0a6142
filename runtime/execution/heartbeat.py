"""Decides whether a silent process hangs, is busy, or is only late.

Ray reports a process that dies, but not one that hangs. A signal may have stopped it, or its memory may be
swapped out to a disk that does not answer. So its answers must be tracked. Silence alone proves nothing: C
code may hold the interpreter's lock, as a regular expression once did for 25 s. Such a process would be
killed again in every attempt. (Flink's `HeartbeatManager` sees only the silence, and waits 50 s. A thread for
heartbeats, as in Kafka Streams, waits for the same lock in Python.)

Processor time distinguishes a busy process from a hung one: only the busy one uses it. A stopped process
can't measure its own, so another process on the same node reads it from the kernel.

- After `suspect_after` seconds of silence the processor time is read, again and again.
- After `reported_after` seconds the process is reported to users (`SILENT`).
- After `timeout` seconds it hangs (`HUNG`) if two readings at least `still_for` seconds apart gave the same
  processor time. The kernel counts hundredths of a second. A process that uses less than a hundredth in two
  seconds is not merely starved, because an answer needs only a thousandth.
- A process whose processor time advances, or can't be read, is left alone until `overdue_after` (`OVERDUE`).

Ray's own threads hardly use the processor: 0.04 to 0.06 s in 12 to 14 s, with pauses of two to four seconds
(Ray 2.60). So a process in a deadlock becomes `HUNG`, too, at the timeout or a few seconds later. An
event loop blocked by an external call looks the same, so no event loop may make such a call: see
`ClusterCalls`.

The watching process may be frozen itself. As in `Lease`, the time between two checks counts for at most twice
the planned time, so waiting answers are handled first.

What it must never do: declare a process hung because of an old reading. The second reading must have been
requested in this silence, and less than `still_for` seconds ago.

`MasterGuard` runs in a process of the job, tracks the answers of the JobMaster, and kills a JobMaster that
hangs. Ray restarts a dead JobMaster, but a hanging one must be killed first. A few of its subtasks are its
guards (`choose_guards`), so that a thousand subtasks don't check it at once. Each renewal says whether the
receiver guards the JobMaster, so a dead guard is soon replaced. If a JobMaster hangs together with its
guards, or before its first renewal, only its clients notice.

A guard also gets no renewal if the JobMaster has given up the guard's process, or a connection is cut. So the
guard calls the JobMaster before it acts. It kills by process id and start time, on the JobMaster's node, so a
late guard never kills the restarted JobMaster. It may kill a healthy JobMaster whose answers to this guard
were lost for nine tenths of a lease: that costs one restart. Two JobMasters at a time are safe, because the
decision log lets only one of them decide.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from penstock.runtime.execution.fleet import Member
from penstock.runtime.execution.processes import Away, CallFailure, Died, Place, Reply
from penstock.runtime.ports import Cancellable, Clock, TimerService
from penstock.runtime.snapshot.ids import SubtaskId

#: Minimum of `still_for`, in seconds. The kernel counts processor time in hundredths of a second.
_SHORTEST_STILLNESS: Final = 1.0


class Pulse(Enum):
    """The state of a process; a `HUNG` or `OVERDUE` process is killed."""

    ANSWERS = "answers"
    SILENT = "silent"
    HUNG = "hung"
    OVERDUE = "overdue"

    @property
    def is_over(self) -> bool:
        return self in (Pulse.HUNG, Pulse.OVERDUE)


@dataclass(frozen=True, slots=True)
class HeartbeatLimits:
    """Limits for a silent process, in seconds.

    Example:
        >>> limits = HeartbeatLimits.of(heartbeat_timeout=8.0, overdue_after=60.0)
        >>> limits.interval, limits.suspect_after, limits.reported_after, limits.still_for
        (0.5, 3.0, 4.0, 2.0)
    """

    interval: float
    calm_interval: float
    suspect_after: float
    reported_after: float
    timeout: float
    still_for: float
    overdue_after: float

    @classmethod
    def of(cls, heartbeat_timeout: float, overdue_after: float) -> HeartbeatLimits:
        """The limits of a job: `overdue_after`, and shares of its `heartbeat_timeout`.

        `still_for` is at least a second.
        """
        return cls(
            interval=heartbeat_timeout / 16,
            calm_interval=heartbeat_timeout / 8,
            suspect_after=heartbeat_timeout * 3 / 8,
            reported_after=heartbeat_timeout / 2,
            timeout=heartbeat_timeout,
            still_for=max(heartbeat_timeout / 4, _SHORTEST_STILLNESS),
            overdue_after=overdue_after,
        )


@dataclass(frozen=True, slots=True)
class Silence:
    """A period without an answer from a process; `uses_processor` is `None` when unknown."""

    seconds: float
    uses_processor: bool | None

    def __str__(self) -> str:
        match self.uses_processor:
            case None:
                time = "is unknown"
            case True:
                time = "advances"
            case False:
                time = "does not advance"
        return f"no answer for {self.seconds:.0f} s; its processor time {time}"


class Heartbeat:
    """Tracks the answers of one process; see the module's docstring.

    Args:
        now: Monotonic seconds; counts as the time of a first answer.
    """

    def __init__(self, limits: HeartbeatLimits, now: float) -> None:
        self._limits = limits
        self._looked_at = now
        self._silent = 0.0
        self._asked_at: float | None = None
        #: The last reading of the processor time.
        self._used: float | None = None
        #: Seconds of silence when this value was first read, and when the last equal reading was requested.
        self._still_from = self._still_until = 0.0
        self._has_advanced = False

    @property
    def silence(self) -> Silence:
        stands_still = self._still_until - self._still_from >= self._limits.still_for / 2
        return Silence(self._silent, False if stands_still else True if self._has_advanced else None)

    @property
    def is_suspect(self) -> bool:
        """Whether the silence is long enough for a closer check."""
        return self._silent >= self._limits.suspect_after

    @property
    def wants_reading(self) -> bool:
        return self.is_suspect and self._asked_at is None

    def heard(self, now: float) -> None:
        self._silent, self._looked_at = 0.0, now
        self._asked_at = self._used = None
        self._still_from = self._still_until = 0.0
        self._has_advanced = False

    def ask(self) -> None:
        """Note that a reading of the processor time has begun."""
        self._asked_at = self._silent

    def read(self, used: float | None) -> None:
        """Handle a reading of the processor time in seconds; `None` when it failed."""
        asked_at, self._asked_at = self._asked_at, None
        if asked_at is None or used is None:
            return
        if used == self._used:
            self._still_until = asked_at
            return
        self._has_advanced = self._used is not None
        self._used = used
        self._still_from = self._still_until = self._silent

    def look(self, now: float, pause: float) -> Pulse:
        """The state of the process; `pause` is the planned time since the last check, in seconds."""
        self._silent += min(now - self._looked_at, 2 * pause)
        self._looked_at = now
        if self._silent >= self._limits.overdue_after:
            return Pulse.OVERDUE
        if self._silent >= self._limits.timeout and self._stands_still:
            return Pulse.HUNG
        return Pulse.SILENT if self._silent >= self._limits.reported_after else Pulse.ANSWERS

    @property
    def _stands_still(self) -> bool:
        is_old = self._silent - self._still_until >= self._limits.still_for
        return not is_old and self._still_until - self._still_from >= self._limits.still_for


#: Maximum number of a job's subtasks that guard its JobMaster.
GUARDS: Final = 3
#: Share of a lease after which a silent JobMaster is killed, before its subtasks exit.
OVERDUE: Final = 0.9


def choose_guards(members: Collection[Member]) -> frozenset[SubtaskId]:
    """The subtasks that guard the JobMaster: on as many nodes as possible."""
    by_node: dict[str, list[SubtaskId]] = {}
    for member in sorted(members, key=lambda member: member.role.subtask):
        by_node.setdefault(member.place.node_id, []).append(member.role.subtask)
    ranked = [(rank, subtask) for on_node in by_node.values() for rank, subtask in enumerate(on_node)]
    return frozenset(subtask for _, subtask in sorted(ranked)[:GUARDS])


class GuardedMaster(Protocol):
    """A guard's connection to its JobMaster. No method blocks; each call returns before its reply."""

    def ask_master(self, reply: Reply[None]) -> None: ...

    def processor_time_of_master(self, place: Place, reply: Reply[float]) -> None:
        """Read the processor time of the process at `place`, in seconds."""
        ...

    def end_master(self, place: Place, why: str) -> None:
        """Kill exactly this process; Ray then restarts the JobMaster."""
        ...


class MasterGuard:
    """Guards the JobMaster of one role; see the module's docstring.

    Args:
        limits: `overdue_after` is shorter than the lease, see `OVERDUE`.
        fell_silent: Called once per silence, when the JobMaster does not answer.
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
        self._is_reported = False
        self._has_asked = False
        self._timer: Cancellable | None = None

    def renewed(self, guarded: Place | None) -> None:
        """Handle a renewal; `guarded` is the place of the JobMaster if this process guards it."""
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
        self._is_reported = False
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
            # A failed kill is repeated; a restarted JobMaster renews from another place.
            self._heartbeat = Heartbeat(self._limits, self._clock.monotonic())
            self._master.end_master(place, f"the JobMaster hangs: {heartbeat.silence}")
            return
        if pulse is Pulse.SILENT and not self._is_reported:
            self._is_reported = True
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
