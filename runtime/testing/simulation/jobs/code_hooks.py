"""`RunHooks`: what the users' code of a simulated job meets in one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.runtime.snapshot.subtask_id import SubtaskId
from penstock.runtime.testing.simulation.cluster.process import SimulatedProcess
from penstock.runtime.testing.simulation.world.faults import Moment
from penstock.runtime.testing.simulation.world.world import World


class RunHooks:
    """The `CodeHooks` of a run.

    Args:
        world: Time and chance.
        processes: Gives the processes of the job that runs.

    Attributes:
        vertex_of: The vertex of each operator.
    """

    def __init__(self, world: World, processes: Callable[[], Mapping[SubtaskId, SimulatedProcess]]) -> None:
        self.vertex_of: dict[str, str] = {}
        self._world = world
        self._processes = processes

    def record(self, operator: str, subtask: int) -> None:
        """A record is processed."""
        self._world.record_processed()

    def effect(self, operator: str, subtask: int) -> None:
        """Something is about to happen outside."""
        process = self._processes().get(SubtaskId(self.vertex_of[operator], subtask))
        if process is not None:
            process.before_effect()

    def committed(self) -> None:
        """A transaction was committed."""
        self._world.on_moment(Moment.COMMITTED)
