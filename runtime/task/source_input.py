"""The input of a chain that begins with a source."""

from __future__ import annotations

from penstock.runtime.graph.job_graph import DEAD_LETTERS
from penstock.runtime.operators.sources.source import SourceOperator
from penstock.runtime.operators.sources.source_watermarks import NO_CHANGE
from penstock.runtime.record.elements import RowBatch, StreamStatus
from penstock.runtime.task.task_input import (
    NOTHING,
    BatchArrived,
    DataEnded,
    EventTimeAdvanced,
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
        if self.source.is_held:
            return NOTHING
        polled = self.source.poll(max_rows)
        side = SideBatch(DEAD_LETTERS, RowBatch(list(polled.dead_letters))) if polled.dead_letters else None
        change = self.source.change
        wakes_up = change.status is StreamStatus.ACTIVE
        if polled.finished:
            self._ended = True
            return DataEnded(drain=True, batch=polled.batch, side=side, is_active_again=wakes_up)
        if polled.batch is None and side is None:
            if change is not NO_CHANGE:
                return EventTimeAdvanced(change.watermark, change.status)
            return Nothing(polled.ready_at)
        if change is NO_CHANGE:
            return BatchArrived(polled.batch, side)
        then = EventTimeAdvanced(change.watermark, None if wakes_up else change.status)
        return BatchArrived(polled.batch, side, wakes_up, then)

    @property
    def is_exhausted(self) -> bool:
        """A source has no channels whose end would have to be waited for."""
        return True
