"""`flat_map`: any number of records out for each record in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

from penstock.runtime.operators.functions.function_operator import FunctionOperator, rows_of
from penstock.runtime.operators.operator import OperatorContext, Output
from penstock.runtime.operators.user_code.function_class import FunctionClass
from penstock.runtime.operators.user_code.result_collector import ResultCollector
from penstock.runtime.record.elements import Batch


class FlatMapOperator(FunctionOperator):
    """Emits every record of what the function returns, each with the timestamp of its input.

    Args:
        function: From a record to any iterable of records, or `None` for none. A generator may be endless:
            its records are emitted in batches as they come.
    """

    kind: ClassVar[str] = "flat_map"
    takes_generators = True

    def __init__(self, function: Callable[[Any], Iterable[Any] | None] | FunctionClass) -> None:
        super().__init__(function)
        self._collector: ResultCollector | None = None

    def open(self, context: OperatorContext) -> None:
        """Check the function."""
        super().open(context)
        self._collector = self._collector_of(context)

    def process(self, batch: Batch) -> Iterator[Output]:
        """Emit what the function makes of a batch."""
        assert self._collector is not None, "open() comes first"
        rows = rows_of(batch)
        function = self._function
        self._records_in += len(rows)
        # A generator expression, not map(): a StopIteration of the user's must not look like the end.
        results = (function(row) for row in self._cursor.over(rows.rows))
        for output in self._collector.collect(results, rows.timestamps):
            self._records_out += len(output)
            yield output
        self._cursor.done()
