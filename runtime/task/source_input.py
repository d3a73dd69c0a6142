"""The input of a chain that begins with a source."""

from __future__ import annotations

from penstock.runtime.graph.job_graph import DEAD_LETTERS
from penstock.runtime.operators.source import SourceOperator
from penstock.runtime.record.elements import RowBatch
from penstock.runtime.task.task_input import (
    NOTHING,
    BatchArrived,
    DataEnded,
    InputProgress,
    Nothing,
    SideBatch,
    TaskInput,
)


class SourceInput(TaskInput):
    """Polls a source; barriers come from the JobMaster, not through here.

    Args:
        source: The source, opened.
    """

    def __init__(self, source: SourceOperator) -> None:
        self.source = source
        self._ended = False

    def poll(self, max_rows: int) -> InputProgress:
        """Records of the source, or when to ask again, or its end."""
        if self._ended or self.source.mark is not None:
            return NOTHING  # after a mark nothing is read before its checkpoint is taken
        polled = self.source.poll(max_rows)
        side = SideBatch(DEAD_LETTERS, RowBatch(list(polled.dead_letters))) if polled.dead_letters else None
        if polled.finished:
            self._ended = True
            return DataEnded(drain=True, batch=polled.batch, side=side)
        if polled.batch is None and side is None:
            return Nothing(polled.ready_at)
        return BatchArrived(polled.batch, side)

    @property
    def is_exhausted(self) -> bool:
        """A source has no channels whose end would have to be waited for."""
        return True
