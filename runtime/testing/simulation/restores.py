"""`Restores`: what is different for the oracle because of how a job came up.

Two things are given up by design. Data in flight on a rebalance goes to other subtasks, so its order is lost.
What a finished subtask kept is not shared out to another parallelism, because it has had its effect: nobody
has it any more.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.runtime.checkpoint.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.graph.execution_graph import ExecutionGraph
from penstock.runtime.task.descriptor import TaskDescriptor
from penstock.runtime.testing.simulation.faults import FaultCounts, FaultKind


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
        restores = [descriptor.restore for descriptor in descriptors]
        if any(r is not None and r.channels is not None and r.channels.is_rescaled for r in restores):
            self._counts.happened(FaultKind.IN_FLIGHT_RESCALED)
            self.is_reordered = True
        for vertex in graph.job.vertices:
            for operator in vertex.operators:
                state = restore.operators.get(operator.id)
                if state is not None and state.finished and state.parallelism != vertex.parallelism:
                    self.left_behind.add(operator.id)
