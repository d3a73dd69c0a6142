"""What the operators around `pyarrow.compute` expressions share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from penstock.runtime.operators.expressions.expressions import compute
from penstock.runtime.operators.expressions.row_expressions import RowExpressions
from penstock.runtime.operators.expressions.row_masks import as_mask
from penstock.runtime.operators.operator import BatchFormats, Operator
from penstock.runtime.operators.protocols import OperatorStatistics
from penstock.runtime.operators.user_code.failure import short_repr
from penstock.runtime.record.elements import ArrowBatch, Batch


class ExpressionOperator(Operator):
    """Counts records and names its expressions in messages.

    Args:
        expressions: By the name of the column that they make.
    """

    takes: ClassVar[BatchFormats] = "both"

    #: How messages call the operator.
    kind: ClassVar[str] = "expression"

    def __init__(self, expressions: Mapping[str, pc.Expression]) -> None:
        self._expressions = dict(expressions)
        self._on_rows = RowExpressions(expressions)
        self._records_in = 0
        self._records_out = 0

    @property
    def only_reads(self) -> bool:
        """Expressions change nothing."""
        return True

    @property
    def doing(self) -> str:
        """The method of the stream and its expressions."""
        return f"{self.kind} {shown(self._expressions)}".rstrip()

    def _masks(self, batch: Batch) -> dict[str, pa.BooleanArray]:
        """For each expression for which rows of a batch it is true; null counts as false."""
        if not isinstance(batch, ArrowBatch):
            return self._on_rows.masks(batch.rows, self.kind)
        results = compute(self._expressions, batch.batch)
        return {n: as_mask(result, self.kind) for n, result in zip(self._expressions, results, strict=True)}

    def statistics(self) -> OperatorStatistics:
        """Records taken and emitted."""
        return OperatorStatistics(self._records_in, self._records_out)


def shown(expressions: Mapping[str, pc.Expression]) -> str:
    """Expressions as names of operators and messages have them.

    Example:
        >>> shown({"double": pc.field("v") * 2})
        'multiply_checked(v, 2)'
    """
    return ", ".join(short_repr(str(expression))[1:-1] for expression in expressions.values())
