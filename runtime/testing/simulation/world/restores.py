"""`Restores`: which checks of the oracle do not apply after a restore.

Two guarantees do not hold, by design. In-flight data of a rebalance goes to other subtasks, so its order is
lost. The state of a finished subtask has already had its effect. If the subtask runs again because its
operator or an upstream one was rescaled, that state is gone.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.runtime.graph.execution_graph import ExecutionGraph
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.subtask_id import SubtaskId
from penstock.runtime.task.descriptor import TaskDescriptor
from penstock.runtime.testing.simulation.world.faults import FaultCounts, FaultKind


class Restores:
    """Looks at every deployment; see the module's text.

    Args:
        counts: What really happened.

    Attributes:
        is_reordered: Whether data in flight came up at another parallelism.
        left_behind: Operators whose finished subtasks' state was left behind.
    """

    def __init__(self, counts: FaultCounts) -> None:
        self._counts = counts
        self.is_reordered = False
        self.left_behind: set[str] = set()

    def note(
        self,
        graph: ExecutionGraph,
        restore: CompletedCheckpoint | None,
        descriptors: Iterable[TaskDescriptor],
    ) -> None:
        """Subtasks are deployed from a checkpoint."""
        if restore is None:
            return
        descriptors = tuple(descriptors)
        restores = [descriptor.restore for descriptor in descriptors]
        if any(r is not None and r.channels is not None and r.channels.is_rescaled for r in restores):
            self._counts.happened(FaultKind.IN_FLIGHT_RESCALED)
            self.is_reordered = True
        again = {d.subtask.id for d in descriptors if d.restore is not None and not d.restore.finished}
        for vertex in graph.job.vertices:
            for operator in vertex.operators:
                state = restore.operators.get(operator.id)
                if state is None:
                    continue
                is_rescaled = state.parallelism != vertex.parallelism
                if any(is_rescaled or SubtaskId(vertex.id, index) in again for index in state.finished):
                    self.left_behind.add(operator.id)
