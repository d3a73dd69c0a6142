"""`filter`: some of the records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock.runtime.operators.functions.function_operator import FunctionOperator, rows_of
from penstock.runtime.operators.operator import Output
from penstock.runtime.operators.user_code.emission import Emission
from penstock.runtime.record.elements import Batch, RowBatch
from penstock.runtime.state.own_copy import own_copy


class FilterOperator(FunctionOperator):
    """Keeps the records for which the function returns something true, with their timestamps.

    Args:
        function: From a record to whether it stays.

    Example:
        >>> [batch.rows for batch in FilterOperator(bool).process(RowBatch([0, 1, 2]))]
        [[1, 2]]
    """

    kind: ClassVar[str] = "filter"

    def process(self, batch: Batch) -> Iterator[Output]:
        """Filter a batch."""
        rows = rows_of(batch)
        self._records_in += len(rows)
        kept = self._kept(rows)
        self._cursor.done()
        self._records_out += len(kept)
        if kept:
            yield kept

    def _kept(self, batch: RowBatch) -> RowBatch:
        function = self._function
        rows = self._cursor.over(batch.rows)
        stamps = batch.timestamps
        if self._emission is Emission.AT_ONCE:
            kept = [(own_copy(row), place) for place, row in enumerate(rows) if function(row)]
            times = None if stamps is None else [stamps[place] for _, place in kept]
            return RowBatch([row for row, _ in kept], times)
        # A predicate that only reads hands on what nobody else has.
        if stamps is None:
            return RowBatch([row for row in rows if function(row)])
        pairs = [(row, time) for row, time in zip(rows, stamps, strict=True) if function(row)]
        return RowBatch([row for row, _ in pairs], [time for _, time in pairs])
