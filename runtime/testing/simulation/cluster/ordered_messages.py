"""Messages of a simulated JobMaster that keep their order: triggers and the events of operator coordinators.

As in the real one, a message is put on its way when the one before it has arrived.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from penstock.runtime.snapshot.subtask_id import SubtaskId
from penstock.runtime.testing.simulation.world.agenda import Happening
from penstock.runtime.testing.simulation.world.world import World


class OrderedMessages:
    """One lane a subtask.

    Args:
        world: Time and chance.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._lanes: dict[SubtaskId, deque[tuple[Callable[[], None], str]]] = {}

    def put(self, subtask: SubtaskId, arrive: Callable[[], None], what: str) -> None:
        """Let something arrive after everything before it."""
        lane = self._lanes.setdefault(subtask, deque())
        lane.append((arrive, what))
        if len(lane) == 1:
            self._send(subtask)

    def _send(self, subtask: SubtaskId) -> None:
        lane = self._lanes[subtask]
        arrive, what = lane[0]

        def arrived() -> None:
            arrive()
            lane.popleft()
            if lane:
                self._send(subtask)

        self._world.send(Happening.MESSAGE, arrived, f"{subtask} is told:", what)
