"""`stream.process(...)`: the user's function with a context, on a stream without keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import repeat
from types import GeneratorType
from typing import Any, ClassVar

from penstock.runtime.operators.functions.function_operator import FunctionOperator, functions_of, rows_of
from penstock.runtime.operators.functions.process_function import FunctionContext, ProcessFunction
from penstock.runtime.operators.functions.side_outputs import SideOutputs
from penstock.runtime.operators.operator import OperatorContext, Output, SavedList
from penstock.runtime.operators.timers.timer_service import FunctionTimerService
from penstock.runtime.operators.user_code.result_collector import ResultCollector, iterable_of
from penstock.runtime.record.elements import Batch, RowBatch, Watermark


class ProcessOperator(FunctionOperator):
    """Runs a `ProcessFunction` record by record.

    Args:
        function: The user's function object.
    """

    kind: ClassVar[str] = "process"
    takes_generators = True

    def __init__(self, function: ProcessFunction[Any, Any]) -> None:
        super().__init__(function.process)
        self._user = function
        self._opened = False
        self._side = SideOutputs(type(function))
        self._collector: ResultCollector | None = None
        self._context: FunctionContext | None = None

    def open(self, context: OperatorContext) -> None:
        """Open the user's function.

        Raises:
            ConfigurationError: The function can't work.
        """
        super().open(context)
        self._collector = self._collector_of(context)
        self._context = FunctionContext(context, FunctionTimerService(context.connector.clock), self._side)
        self._side.isolates = self.isolates
        self._opened = True
        context.lists.bind_declared(self._user)
        self._call_beside(self._user, "open", self._context)

    @property
    def _functions(self) -> Iterable[Callable[..., Any]]:
        return functions_of(self._user, ProcessFunction)

    def process(self, batch: Batch) -> Iterator[Output]:
        """Process a batch record by record."""
        assert self._collector is not None, "open() comes first"
        rows = rows_of(batch)
        self._records_in += len(rows)
        results = self._results(rows)
        for output in self._collector.collect(results, rows.timestamps, are_iterable=True):
            self._records_out += len(output)
            yield output
            if self._side.is_full:
                yield from self._side.take()
        yield from self._side.take()
        self._cursor.done()

    def process_watermark(self, watermark: Watermark) -> Iterator[Output]:
        """Note how far event time has come."""
        assert self._context is not None, "open() comes first"
        self._context.timer_service.advance(watermark.timestamp)
        return iter(())

    def snapshot(self, checkpoint_id: int) -> Mapping[str, SavedList]:
        """Let the function bring its list states up to date."""
        self._call_beside(self._user, "snapshot", checkpoint_id)
        return {}

    def close(self) -> None:
        """Close the user's function."""
        if self._opened:
            self._opened = False
            self._call_beside(self._user, "close")

    def _results(self, batch: RowBatch) -> Iterator[Iterable[Any]]:
        context, process = self._context, self._function
        assert context is not None, "open() comes first"
        stamps = repeat(None, len(batch)) if batch.timestamps is None else batch.timestamps
        for stamp, row in zip(stamps, self._cursor.over(batch.rows), strict=True):
            context.timestamp = stamp
            result = process(row, context)
            yield result if type(result) is GeneratorType else iterable_of(result)
