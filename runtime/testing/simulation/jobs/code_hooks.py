"""`RunHooks`: what the users' code of a simulated job meets in one run."""

from __future__ import annotations

from penstock.runtime.testing.simulation.world.faults import Moment
from penstock.runtime.testing.simulation.world.world import World


class RunHooks:
    """The `CodeHooks` of a run.

    Args:
        world: Time and chance.
    """

    def __init__(self, world: World) -> None:
        self._world = world

    def record(self, operator: str, subtask: int) -> None:
        """A record is processed."""
        self._world.record_processed()

    def effect(self, operator: str, subtask: int) -> None:
        """Something is about to happen outside."""
        self._world.before_effect()

    def committed(self) -> None:
        """A transaction was committed."""
        self._world.on_moment(Moment.COMMITTED)
