"""`filter(pc.field("v") > 3)`: the rows for which an expression is true."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow.compute as pc

from penstock.runtime.operators.expressions.expression_operator import ExpressionOperator
from penstock.runtime.operators.expressions.row_masks import rows_where
from penstock.runtime.operators.operator import Output
from penstock.runtime.record.elements import Batch


class FilterExpressionOperator(ExpressionOperator):
    """Keeps the rows for which the expression is true, with their timestamps; null counts as false.

    Args:
        expression: Of type boolean.

    Example:
        >>> from penstock.runtime.record.elements import RowBatch
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
        (mask,) = self._masks(batch).values()
        kept = rows_where(batch, mask)
        self._records_out += len(kept)
        if len(kept):
            yield kept
