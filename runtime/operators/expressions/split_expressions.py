"""`split` by expressions: each row goes to the first stream whose expression is true for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow.compute as pc

from penstock.runtime.operators.expressions.expression_operator import ExpressionOperator
from penstock.runtime.operators.expressions.row_masks import rows_where
from penstock.runtime.operators.operator import Output, Tagged
from penstock.runtime.record.elements import Batch


class SplitExpressionsOperator(ExpressionOperator):
    """Emits each row under the tag of the first expression that is true, else in the main output.

    All expressions are computed over all rows. Null counts as false.

    Args:
        expressions: Of type boolean, by tag.

    Example:
        >>> from penstock.runtime.record.elements import RowBatch
        >>> operator = SplitExpressionsOperator({"large": pc.field("v") > 1})
        >>> for output in operator.process(RowBatch([{"v": 1}, {"v": 2}])):
        ...     print(output)
        Tagged(tag='large', batch=RowBatch(rows=[{'v': 2}], timestamps=None))
        RowBatch(rows=[{'v': 1}], timestamps=None)
    """

    kind = "split"

    def __init__(self, expressions: Mapping[str, pc.Expression]) -> None:
        super().__init__(expressions)

    def process(self, batch: Batch) -> Iterator[Output]:
        """Split a batch."""
        self._records_in += len(batch)
        if not len(batch):
            return
        rest = None
        for tag, is_true in self._masks(batch).items():
            taken = is_true if rest is None else pc.and_(rest, is_true)
            rest = pc.invert(is_true) if rest is None else pc.and_not(rest, is_true)
            found = rows_where(batch, taken)
            if len(found):
                yield Tagged(tag, found)
        assert rest is not None, "a split has at least one expression"
        left = rows_where(batch, rest)
        self._records_out += len(left)
        if len(left):
            yield left
