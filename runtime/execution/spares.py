"""`Spares`: processes of a job that hold no role and wait to take that of a process that dies.

A restart after a death waits for a new process, and that is most of its time when the state is small. So a
job may keep some processes more than it has subtasks (`JobConfig.standby`). They are filled up while the job
runs, never while it is deployed: the start of a process takes processor time that the deployment needs.

A spare has loaded the job's code (`prepare`), so it does not import modules when the role comes. It is asked
in each round of the watch, which renews its lease. One that is dead or silent is replaced. A spare that dies
when it is needed does no harm either: the fleet starts a new process, as for a warm one.

What it must never do: keep a process after the end of the job, or offer one to other jobs. A spare has loaded
modules without any role, so only this job knows what is in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from penstock.runtime.execution.processes import CallFailure, Held, Needs, Processes, ProcessId

#: Rounds without an answer after which a spare is replaced.
_PATIENCE: Final = 5


@dataclass(slots=True)
class _Spare:
    needs: Needs
    is_ready: bool = False
    unanswered: int = 0


class Spares:
    """Has the spares of one job; see the module's text.

    Args:
        wanted: How many are kept.
        processes: Starts, calls and ends them.
    """

    def __init__(self, wanted: int, processes: Processes) -> None:
        self._wanted = wanted
        self._processes = processes
        self._spares: dict[ProcessId, _Spare] = {}

    @property
    def are_wanted(self) -> bool:
        """Whether the job keeps any."""
        return self._wanted > 0

    @property
    def ready(self) -> int:
        """Spares that can take a role at once."""
        return sum(spare.is_ready for spare in self._spares.values())

    def look(self, needs: Needs | None) -> None:
        """Renew the leases of spares, replace those that are useless, and fill up.

        Args:
            needs: What a new one has to fit; `None` starts none.
        """
        for process, spare in list(self._spares.items()):
            if spare.unanswered >= _PATIENCE:
                self._lose(process, "it waits for a role and does not answer")
                continue
            spare.unanswered += 1
            self._processes.ask(process, partial(self._answered, process))
        while needs is not None and len(self._spares) < self._wanted:
            self._add(needs)

    def take(self, needs: Needs) -> ProcessId | None:
        """A spare that fits, which is none any more; `None` when there is none that is ready."""
        for process, spare in self._spares.items():
            if spare.is_ready and spare.needs.fit(needs):
                del self._spares[process]
                return process
        return None

    def end(self) -> None:
        """End all of them."""
        for process in list(self._spares):
            self._lose(process)

    def _add(self, needs: Needs) -> None:
        process = self._processes.claim(needs) or self._processes.start(needs)
        self._spares[process] = _Spare(needs)
        self._processes.prepare(process, partial(self._prepared, process))

    def _prepared(self, process: ProcessId, answer: CallFailure | None) -> None:
        spare = self._spares.get(process)
        if spare is None:
            return
        if answer is None:
            spare.is_ready, spare.unanswered = True, 0
        else:
            self._lose(process)

    def _answered(self, process: ProcessId, answer: Held | CallFailure) -> None:
        spare = self._spares.get(process)
        if spare is None:
            return
        if isinstance(answer, Held) and answer.role is None:
            spare.unanswered = 0
        else:
            self._lose(process)

    def _lose(self, process: ProcessId, why: str = "") -> None:
        del self._spares[process]
        self._processes.end(process, why)
