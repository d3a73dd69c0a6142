"""`Fleet`: the processes of one simulated job, by subtask.

There is one at a time for each subtask, whichever JobMaster uses it. When a job is rescaled those that do not
fit any more are ended: whose subtask is gone, or has another number of channels.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.runtime.graph.execution_graph import ExecutionGraph
from penstock.runtime.snapshot.subtask_id import SubtaskId
from penstock.runtime.testing.simulation.cluster.master import Masters
from penstock.runtime.testing.simulation.cluster.process import SimulatedProcess
from penstock.runtime.testing.simulation.world.world import World


class Fleet:
    """Has the processes of a job; see the module's text.

    Args:
        world: Time, chance and storage.
        masters: Take the reports of subtasks.

    Attributes:
        processes: All of them.
        watchers: Told when an attempt in one of them has died or was stopped: the process, the attempt, why.
    """

    def __init__(self, world: World, masters: Masters) -> None:
        self.processes: dict[SubtaskId, SimulatedProcess] = {}
        self.watchers: list[Callable[[SimulatedProcess, int, str], None]] = []
        self._world = world
        self._masters = masters

    def ensure(self, graph: ExecutionGraph) -> None:
        """Have a process for each subtask."""
        for subtask in graph.subtasks:
            if subtask.id not in self.processes:
                self.processes[subtask.id] = SimulatedProcess(
                    self._world, subtask.id, self._masters, self.watchers
                )

    def change_graph(self, before: ExecutionGraph, graph: ExecutionGraph) -> None:
        """The job was rescaled: end what does not fit, and have a process for each subtask."""
        inputs = {subtask.id: len(subtask.inputs) for subtask in graph.subtasks}
        had = {subtask.id: len(subtask.inputs) for subtask in before.subtasks}
        for subtask in list(self.processes):
            if inputs.get(subtask) is None or inputs[subtask] != had.get(subtask):
                self.processes.pop(subtask).end()
        self.ensure(graph)
