"""An operator that holds what comes until event time is over, as a window without an end would.

There are no windows that users can write, so this is how a test sees whether event time has come to its end:
what is held comes out then, and at no other moment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

from penstock.runtime.graph.data_stream import DataStream
from penstock.runtime.operators.function_operator import rows_of
from penstock.runtime.operators.operator import ListState, Operator, OperatorContext, Output
from penstock.runtime.record.elements import END_OF_TIME, Batch, RowBatch, Watermark

T = TypeVar("T")
_HELD: Final = "held"


class HeldRows(Operator):
    """Holds rows in its state and emits them when event time is at its end.

    Example:
        >>> held = HeldRows()
        >>> list(held.process(RowBatch(["a", "b"]))), list(held.process_watermark(Watermark(7)))
        ([], [])
        >>> [batch.rows for batch in held.process_watermark(Watermark(END_OF_TIME))]
        [['a', 'b']]
    """

    def __init__(self) -> None:
        self._rows: list[Any] = []

    def open(self, context: OperatorContext) -> None:
        """Go on with what was held."""
        self._rows = list(context.restored.get(_HELD, ()))

    def process(self, batch: Batch) -> Iterator[Output]:
        """Hold a batch."""
        self._rows += rows_of(batch).rows
        return iter(())

    def process_watermark(self, watermark: Watermark) -> Iterator[Output]:
        """Emit everything at the end of event time."""
        if watermark.timestamp == END_OF_TIME and self._rows:
            rows, self._rows = self._rows, []
            yield RowBatch(rows)

    def snapshot(self, checkpoint_id: int) -> Mapping[str, ListState]:
        """What is held."""
        return {_HELD: ListState(tuple(self._rows))}


def hold(stream: DataStream[T], operator_id: str) -> DataStream[T]:
    """A stream of the same records, all of them when event time is over."""
    builder = stream._builder
    added = builder.add("hold", "rows", HeldRows, stream._inputs, operator_id, {}, stateful=True)
    return DataStream(builder, (added,))
