"""`key_by(...).process(...)`: the user's function with state for each key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import repeat
from typing import Any, ClassVar, Final

from penstock.runtime.operators.function_operator import rows_of
from penstock.runtime.operators.keyed_function_operator import KeyedFunctionOperator, keyed_state_of
from penstock.runtime.operators.operator import OperatorContext, Output
from penstock.runtime.operators.process_function import KeyedProcessFunction as KeyedProcessFunction
from penstock.runtime.operators.process_function import RuntimeContext
from penstock.runtime.operators.result_collector import ResultCollector
from penstock.runtime.operators.state_sweep import StateSweep
from penstock.runtime.record.elements import Batch, RowBatch, Watermark
from penstock.runtime.state.state_backend import KeyedStateBackend
from penstock.runtime.state.state_table import NO_KEY

#: How many keys are remembered as checked.
_MOST_CHECKED: Final = 1 << 16


class KeyedProcessOperator(KeyedFunctionOperator):
    """Runs a `KeyedProcessFunction` record by record with the record's key set.

    The results of one record are used up before the next record is processed. So a user's generator sees the
    state of its own key from its first line to its last.

    Args:
        key_selector: From a record to its key.
        function: The user's function object.
    """

    kind: ClassVar[str] = "process"
    takes_generators = True

    def __init__(
        self, key_selector: Callable[[Any], Any], function: KeyedProcessFunction[Any, Any, Any]
    ) -> None:
        super().__init__(key_selector, function.process)
        self._user = function
        self._opened = False
        self._backend: KeyedStateBackend | None = None
        self._context: RuntimeContext | None = None
        self._collector: ResultCollector | None = None
        self._checked: set[Any] = set()
        self._sweep: StateSweep | None = None

    def open(self, context: OperatorContext) -> None:
        """Bind the state and open the user's function.

        Raises:
            ConfigurationError: One of the functions can't work.
        """
        super().open(context)
        self._backend = keyed_state_of(context)
        self._context = self._backend.time.record = RuntimeContext(context, self._backend)
        self._sweep = StateSweep(self._backend, context.connector.clock)
        self._collector = ResultCollector(context.connector.clock.monotonic)
        self._opened = True
        context.requested.bind_declared(self._user, self._backend)
        self._user.open(self._context)

    def process(self, batch: Batch) -> Iterator[Output]:
        """Process a batch record by record."""
        assert self._collector is not None, "open() comes first"
        rows = rows_of(batch)
        self._records_in += len(rows)
        for output in self._collector.collect(self._results(rows), rows.timestamps):
            self._records_out += len(output)
            yield output
        self._cursor.done()

    def process_watermark(self, watermark: Watermark) -> Iterator[Output]:
        """Event time has advanced, for state with a TTL."""
        assert self._backend is not None, "open() comes first"
        self._backend.time.advance(watermark.timestamp)
        return iter(())

    @property
    def flush_at(self) -> float | None:
        """When state may have expired that is not forgotten yet."""
        return None if self._sweep is None else self._sweep.due_at

    def flush(self) -> Iterator[Output]:
        """Forget some of the state that has expired; emits nothing."""
        assert self._sweep is not None, "open() comes first"
        self._sweep.run()
        return iter(())

    def close(self) -> None:
        """Close the user's function."""
        if self._opened:
            self._opened = False
            self._user.close()

    def _results(self, batch: RowBatch) -> Iterator[Any]:
        """What the function returns for each record."""
        context, backend = self._context, self._backend
        assert context is not None, "open() comes first"
        assert backend is not None, "open() comes first"
        process, keys, checked = self._function, self._keys_of(batch), self._checked
        stamps = repeat(None, len(keys)) if batch.timestamps is None else batch.timestamps
        key = None
        try:
            for key, stamp, row in zip(keys, stamps, self._cursor.over(batch.rows), strict=True):
                if key not in checked:
                    self._check_new(key)
                backend.current_key = context.current_key = key
                context.timestamp = stamp
                yield process(row, context)
        except TypeError:
            self._after_type_error(key)
            raise
        if keys:
            backend.current_key = NO_KEY
            del context.current_key

    def _check_new(self, key: Any) -> None:
        """Check a key that was not seen lately; all states of the function have it."""
        self._check_key(key)
        if len(self._checked) >= _MOST_CHECKED:
            self._checked.clear()
        self._checked.add(key)

    def _counters(self) -> Mapping[str, int]:
        return {} if self._context is None else self._context.counters()
