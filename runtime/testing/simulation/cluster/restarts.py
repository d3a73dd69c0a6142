"""`RestartLedger`: when the attempts of a job were deployed and stopped, in the world's time.

The oracle judges by it whether the job has restarted as often as its user allows. The simulation keeps it, so
that no counter of the job's own is believed.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class RestartLedger:
    """What happened to a job's attempts.

    Attributes:
        masters: JobMasters that have begun.
        deployed: When an attempt was deployed, of the job or of a region, for the first time and again.
        stopped: When the attempt before it was stopped; the moment of the first deployment for that.
        last_stop: When an attempt was stopped last, whether or not another one followed.
    """

    masters: int = 0
    deployed: list[float] = field(default_factory=list)
    stopped: list[float] = field(default_factory=list)
    last_stop: float = 0.0

    def note_deployment(self, now: float) -> None:
        """An attempt is deployed."""
        self.stopped.append(self.last_stop if self.deployed else now)
        self.deployed.append(now)

    def note_stop(self, now: float) -> None:
        """The subtasks of an attempt are told to stop."""
        self.last_stop = now
