"""`key_by(...).reduce(...)`: one value a key, updated and emitted for every record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import Any, ClassVar, Final

from penstock.runtime.operators.functions.function_operator import rows_of
from penstock.runtime.operators.functions.keyed_function_operator import KeyedFunctionOperator, only_table
from penstock.runtime.operators.operator import OperatorContext, Output
from penstock.runtime.operators.user_code.emission import Emission
from penstock.runtime.record.elements import Batch, RowBatch
from penstock.runtime.state.own_copy import own_copy
from penstock.runtime.state.state_backend import KeyedTable

#: Name of the state table that holds the values.
REDUCE_STATE: Final = "reduce"


class KeyedReduceOperator(KeyedFunctionOperator):
    """Combines each record with the value of its key and emits the new value (Flink's `StreamGroupedReduce`).

    The first record of a key is its first value. The table's dict is bound once a batch; the keys that were
    touched are told to the backend once a batch, too.

    The value of a key is also the record that was emitted for it last. So it is copied where the function, or
    another one of the subtask, could change one of the two.

    Args:
        key_selector: From a record to its key.
        function: From the value so far and a record to the new value: a new one, or one of the two, which it
            may change.
    """

    kind: ClassVar[str] = "reduce"

    def __init__(self, key_selector: Callable[[Any], Any], function: Callable[[Any, Any], Any]) -> None:
        super().__init__(key_selector, function)
        self._table: KeyedTable | None = None

    def open(self, context: OperatorContext) -> None:
        """Bind the state.

        Raises:
            ConfigurationError: One of the functions can't work.
            StateMismatchError: The restored state is another kind of operator's.
        """
        super().open(context)
        self._table = only_table(context, REDUCE_STATE, "a reduce")

    def process(self, batch: Batch) -> Iterator[Output]:
        """Update the values of a batch's keys."""
        assert self._table is not None, "open() comes first"
        rows = rows_of(batch)
        self._records_in += len(rows)
        keys = self._keys_of(rows)
        values = self._reduced(keys, self._cursor.over(rows.rows), self._table.entries)
        self._cursor.done()
        self._table.changed.put(keys, values)
        self._records_out += len(values)
        if values:
            yield RowBatch(values, rows.timestamps)

    def _reduced(self, keys: list[Any], rows: Iterator[Any], entries: MutableMapping[Any, Any]) -> list[Any]:
        function, isolates = self._function, self._emission is not Emission.NEVER
        values: list[Any] = []
        key = None
        try:
            for key, row in zip(keys, rows, strict=True):
                if key in entries:
                    entries[key] = value = function(entries[key], row)
                else:
                    self._check_key(key)
                    entries[key] = value = row
                if isolates:
                    entries[key] = own_copy(value)
                    value = own_copy(value)
                values.append(value)
        except TypeError:
            self._after_type_error(key)
            raise
        return values
