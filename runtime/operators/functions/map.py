"""`map`: one record out for each record in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock.runtime.operators.functions.function_operator import FunctionOperator, rows_of
from penstock.runtime.operators.operator import Output
from penstock.runtime.record.elements import Batch, RowBatch


class MapOperator(FunctionOperator):
    """Replaces every record by what the function makes of it; timestamps stay.

    Args:
        function: From a record to a record.

    Example:
        >>> [batch.rows for batch in MapOperator(str.upper).process(RowBatch(["a", "b"]))]
        [['A', 'B']]
    """

    kind: ClassVar[str] = "map"

    def process(self, batch: Batch) -> Iterator[Output]:
        """Map a batch."""
        rows = rows_of(batch)
        self._records_in += len(rows)
        result = self._emission.mapped(self._function, self._cursor.over(rows.rows))
        self._cursor.done()
        self._records_out += len(result)
        if result:
            yield RowBatch(result, rows.timestamps)
