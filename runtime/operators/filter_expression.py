"""`filter(pc.field("v") > 3)`: the rows for which an expression is true."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from penstock.runtime.operators.expression_operator import ExpressionOperator
from penstock.runtime.operators.expressions import ExpressionError, compute
from penstock.runtime.operators.operator import Output
from penstock.runtime.record.elements import ArrowBatch, Batch, RowBatch


class FilterExpressionOperator(ExpressionOperator):
    """Keeps the rows for which the expression is true, with their timestamps; null counts as false.

    Args:
        expression: Of type boolean.

    Example:
        >>> operator = FilterExpressionOperator(pc.field("v") > 1)
        >>> [batch.rows for batch in operator.process(RowBatch([{"v": 1}, {"v": 2}, {}]))]
        [[{'v': 2}]]
    """

    kind = "filter"

    def __init__(self, expression: pc.Expression) -> None:
        super().__init__({"filter": expression})

    def process(self, batch: Batch) -> Iterator[Output]:
        """Filter a batch."""
        self._records_in += len(batch)
        if not len(batch):
            return
        (mask,) = compute(self._expressions, batch)
        kept = self._kept(batch, mask)
        self._records_out += len(kept)
        if len(kept):
            yield kept

    def _kept(self, batch: Batch, mask: pa.Array) -> Batch:
        if kinds.is_null(mask.type):
            mask = mask.cast(pa.bool_())
        if not kinds.is_boolean(mask.type):
            msg = f"the expression is of type {mask.type}; filter needs one that is true or false"
            raise ExpressionError(msg)
        if isinstance(batch, ArrowBatch):
            return batch.filter(mask)
        places = pc.indices_nonzero(mask).to_pylist()
        rows, stamps = batch.rows, batch.timestamps
        kept = [rows[place] for place in places]
        return RowBatch(kept, None if stamps is None else [stamps[place] for place in places])
