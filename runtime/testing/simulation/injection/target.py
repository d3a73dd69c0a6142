"""`Target`: the run that faults strike, as they see it."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.runtime.testing.simulation.cluster.control_plane import ControlPlane
from penstock.runtime.testing.simulation.cluster.master_hook import HookLedger
from penstock.runtime.testing.simulation.cluster.process import SimulatedProcess
from penstock.runtime.testing.simulation.injection.plan import Plan
from penstock.runtime.testing.simulation.injection.user import User
from penstock.runtime.testing.simulation.world.draws import Draws
from penstock.runtime.testing.simulation.world.faults import FaultCounts
from penstock.runtime.testing.simulation.world.world import World


@dataclass(slots=True)
class Target:
    """The run that faults strike.

    Attributes:
        control: Processes and JobMasters of the job that runs.
        ledger: Lets master hooks fail.
        plan: What strikes that job.
        user: Asks for things.
    """

    world: World
    control: ControlPlane
    ledger: HookLedger
    plan: Plan
    user: User

    @property
    def draws(self) -> Draws:
        """Decides whom a fault strikes, and how hard."""
        return self.world.draws

    @property
    def counts(self) -> FaultCounts:
        """Failures that really happened."""
        return self.world.counts

    def victim(self, *, uploads: bool = False) -> SimulatedProcess | None:
        """A process that somebody would miss; one that runs something, if there is any.

        Args:
            uploads: Whether it should be one whose snapshots are written as files.
        """
        alive = [process for process in self.control.processes.values() if process.may_die]
        running = [process for process in alive if process.runs] or alive
        if uploads:
            running = [p for p in running if _vertex(p) in self.plan.uploading] or running
        return self.draws.pick(running) if running else None


def _vertex(process: SimulatedProcess) -> str:
    return "" if process.role is None else process.role.subtask.vertex
