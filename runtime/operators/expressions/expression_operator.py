"""What the operators around `pyarrow.compute` expressions share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pyarrow.compute as pc

from penstock.runtime.operators.operator import BatchFormats, Operator
from penstock.runtime.operators.protocols import OperatorStatistics
from penstock.runtime.operators.user_code.failure import short_repr


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
        self._records_in = 0
        self._records_out = 0

    @property
    def doing(self) -> str:
        """The method of the stream and its expressions."""
        return f"{self.kind} {shown(self._expressions)}".rstrip()

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
