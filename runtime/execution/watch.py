"""`Watch`: periodically renews the leases of a job's subtasks and reads their counters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from penstock.runtime.execution.fleet import Fleet
from penstock.runtime.execution.gathering import Gathering
from penstock.runtime.execution.processes import CallFailure, Counters, Processes, Stale
from penstock.runtime.ports import TimerService
from penstock.runtime.snapshot.subtask_id import SubtaskId
from penstock.runtime.task.statistics import SubtaskStatistics

#: Longest time between two rounds, in seconds.
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
        timers: Say when it is time.
        counted: Called with the counters of a subtask, and in which attempt.
        lease_timeout: Seconds that a process lives without a sign.
    """

    def __init__(
        self,
        fleet: Fleet,
        processes: Processes,
        timers: TimerService,
        counted: Callable[[SubtaskId, int, SubtaskStatistics | None], None],
        lease_timeout: float,
    ) -> None:
        self._fleet = fleet
        self._processes = processes
        self._timers = timers
        self._counted = counted
        self._interval = min(INTERVAL, lease_timeout / 4)
        self._has_ended = False

    def begin(self, after_look: Callable[[], None]) -> None:
        """Look now, and again and again until the watch ends; tells after each look."""

        def looked() -> None:
            if not self._has_ended:
                after_look()
                self._timers.call_later(self._interval, lambda: self.begin(after_look))

        if not self._has_ended:
            self.look(looked)

    def end(self) -> None:
        """Look no more."""
        self._has_ended = True

    def look(self, then: Callable[[], None]) -> None:
        """Renew all leases and take the counters, then go on; nobody waits long for a silent process."""
        members = {} if self._has_ended else dict(self._fleet.members)

        def answered(answers: Mapping[SubtaskId, Counters | Stale | CallFailure]) -> None:
            for subtask, answer in answers.items():
                match answer:
                    case Counters(attempt, statistics):
                        self._counted(subtask, attempt, statistics)
                    case Stale():
                        self._fleet.forget(members[subtask])
            then()

        gathering: Gathering[SubtaskId, Counters | Stale] = Gathering(
            members, self._timers, PATIENCE, answered
        )
        for subtask, member in members.items():
            self._processes.renew(member.process, member.role, gathering.reply(subtask))
