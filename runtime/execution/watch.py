"""`Watch`: periodically renews the leases of a job's subtasks, reads their counters, and notes who is silent.

Each answer to a renewal is a sign of life; `Heartbeats` decides what a silence means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.execution.fleet import Fleet, Member
from penstock.runtime.execution.gathering import Gathering
from penstock.runtime.execution.heartbeat import HeartbeatLimits, Silence
from penstock.runtime.execution.heartbeats import HeartbeatListener, Heartbeats
from penstock.runtime.execution.master_guard import choose_guards
from penstock.runtime.execution.processes import (
    Away,
    CallFailure,
    Counters,
    Died,
    Processes,
    Reply,
    Stale,
)
from penstock.runtime.ports import Clock, TimerService
from penstock.runtime.snapshot.subtask_id import SubtaskId

#: Longest time from the beginning of a round to that of the next one, in seconds.
INTERVAL: Final = 2.0
#: Seconds within which a subtask must report its counters; a busy one reports them in the next round.
PATIENCE: Final = 1.0


class Watch:
    """Looks at the processes of one job; see the module's text.

    A process that no longer holds its role (`Stale`) is useless to this job. The fleet forgets it, and the
    end of its open `run` call informs the scheduler.

    Args:
        fleet: The processes.
        processes: Calls them.
        clock: Says how long a round has taken.
        timers: Say when it is time.
        config: Timeouts of leases and heartbeats.
        counted: Called with the counters of a subtask.
        listener: Is told of silent processes.
    """

    def __init__(
        self,
        fleet: Fleet,
        processes: Processes,
        clock: Clock,
        timers: TimerService,
        config: JobConfig,
        counted: Callable[[SubtaskId, Counters], None],
        listener: HeartbeatListener,
    ) -> None:
        self._fleet = fleet
        self._processes = processes
        self._clock = clock
        self._timers = timers
        self._counted = counted
        self._interval = min(INTERVAL, config.lease_timeout / 4, config.heartbeat_timeout / 4)
        limits = HeartbeatLimits.of(config.heartbeat_timeout, config.lease_timeout)
        self._heartbeats = Heartbeats(fleet, processes, clock, timers, limits, listener)
        self._has_ended = False

    @property
    def silent(self) -> Mapping[SubtaskId, Silence]:
        """The subtasks whose processes do not answer, when that has lasted."""
        return self._heartbeats.silent

    def begin(self, after_look: Callable[[], None]) -> None:
        """Look now, and again and again until the watch ends; tells after each look."""
        self._heartbeats.begin()
        self._round(after_look)

    def end(self) -> None:
        """Look no more."""
        self._has_ended = True
        self._heartbeats.end()

    def look(self, then: Callable[[], None]) -> None:
        """Renew all leases and take the counters, then go on.

        A process that has fallen silent is waited for only for a moment, and not at all once it is a suspect.
        Its counters are taken after it has answered again.
        """
        members = {} if self._has_ended else dict(self._fleet.members)

        def answered(answers: Mapping[SubtaskId, Counters | Stale | CallFailure]) -> None:
            for subtask, answer in answers.items():
                match answer:
                    case Counters():
                        self._counted(subtask, answer)
                    case Stale():
                        self._fleet.forget(members[subtask])
            then()

        patience = min(PATIENCE, self._interval / 2)
        awaited = [s for s, member in members.items() if not self._heartbeats.is_suspect(member)]
        gathering: Gathering[SubtaskId, Counters | Stale] = Gathering(
            awaited, self._timers, patience, answered
        )
        guards = choose_guards(members.values())
        for subtask, member in members.items():
            reply = self._hearing(member, gathering.reply(subtask))
            self._processes.renew(member.process, member.role, subtask in guards, reply)

    def _round(self, after_look: Callable[[], None]) -> None:
        begun = self._clock.monotonic()

        def looked() -> None:
            if not self._has_ended:
                after_look()
                # A silent process lengthens the round, and must not make the others look silent.
                left = begun + self._interval - self._clock.monotonic()
                self._timers.call_later(max(0.0, left), lambda: self._round(after_look))

        if not self._has_ended:
            self._fleet.look_after_spares()
            self.look(looked)

    def _hearing(self, member: Member, reply: Reply[Counters | Stale]) -> Reply[Counters | Stale]:
        """Take an answer as a sign of life, also when it is too late for the round."""

        def answered(answer: Counters | Stale | CallFailure) -> None:
            if not isinstance(answer, Died | Away):
                self._heartbeats.heard(member)
            reply(answer)

        return answered
