"""`stream.lookup(...)` with a coroutine function: calls are in flight as in `map_async`.

Calls, snapshots, restores and the emission of results work as in `async_map.py`, with these differences:

- *Keys.* Calls for one key run one after the other. So records of a key keep their order, even with
  `ordered=False`. With a cache, a record that waited for a call for its key then finds the result there. So a
  key that is not in the cache is looked up once.
- *The cache* is read when a call would begin, on the task thread. The tries of a call run on the event loop,
  and neither read nor write the cache. So a retry never finds an entry that an earlier try left behind.
- *Records without a call.* While no record is in flight, records whose keys are in the cache are emitted at
  once. They are neither encoded nor part of a snapshot.
- *Output* is made on the task thread when a result leaves the queue, because users' functions make it.

Over Arrow batches, one call looks up all keys of a batch that are not in the cache. No two batches share a
call. Batches keep their order, and so do the records of each key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from penstock.runtime.operators.functions.async_map import AsyncMapOperator, AsyncSettings
from penstock.runtime.operators.functions.async_queue import AwaitedRecord, CallsByKey
from penstock.runtime.operators.functions.async_values import refuse_awaitable
from penstock.runtime.operators.functions.function_operator import rows_of
from penstock.runtime.operators.functions.record_functions import arrow_parts
from penstock.runtime.operators.joins.column_lookup import ColumnLookup, LookedUp
from penstock.runtime.operators.joins.interval_join import LEFT, RIGHT
from penstock.runtime.operators.joins.lookup_join import UNKNOWN, RowLookup
from penstock.runtime.operators.operator import OperatorContext, Output, SavedList
from penstock.runtime.operators.user_code.function_class import FunctionClass
from penstock.runtime.operators.user_code.result_collector import ResultCollector
from penstock.runtime.record.elements import ArrowBatch, Batch, RowBatch


class AsyncLookupOperator(AsyncMapOperator):
    """Looks up a record by the key of each input record.

    Args:
        function: A coroutine function that takes a key; returns a record, or `None` if there is none.
    """

    kind: ClassVar[str] = "lookup"

    _collector: ResultCollector

    def __init__(
        self, function: Callable[..., Any] | FunctionClass, settings: AsyncSettings, lookup: RowLookup
    ) -> None:
        super().__init__(function, settings)
        self._lookup = lookup
        self._by_key = CallsByKey()

    def open(self, context: OperatorContext) -> None:
        self._lookup.open(context, isolates=self.isolates)
        super().open(context)
        self._collector = self._collector_of(context)

    @property
    def _functions(self) -> Iterable[Callable[..., Any]]:
        return self._lookup.user_functions

    def process(self, batch: Batch) -> Iterator[Output]:
        rows = rows_of(batch)
        self._lookup.output.note(LEFT, rows.rows)
        stamps = rows.timestamps
        records = self._known(rows) if self._queue.is_empty else []
        known = len(records)
        yield from self._joined(rows.rows[:known], records, None if stamps is None else stamps[:known])
        rest = RowBatch(rows.rows[known:], None if stamps is None else stamps[known:])
        yield from super().process(rest)

    def _known(self, rows: RowBatch) -> list[Any]:
        """The records of the first rows, up to the first row that needs a call."""
        lookup, records = self._lookup, []
        for row in self._cursor.over(rows.rows):
            record = lookup.known(lookup.key_of(row))
            if record is UNKNOWN:
                break
            records.append(record)
        self._cursor.done()
        return records

    def _enqueue(self, entry: AwaitedRecord) -> None:
        entry.of_key = self._lookup.key_of(entry.rows[0])
        super()._enqueue(entry)

    def _may_call(self, entry: AwaitedRecord) -> bool:
        if not super()._may_call(entry):
            return False
        record = self._lookup.known(entry.of_key)
        if record is not UNKNOWN:
            self._queue.answered(entry, record)
        return record is UNKNOWN

    def _begin(self, entries: list[AwaitedRecord]) -> None:
        self._lookup.calls.increment()
        super()._begin(entries)

    def _given(self, entries: list[AwaitedRecord]) -> Callable[[], Any]:
        key = entries[0].of_key
        return lambda: key

    def _answered(self, entries: Sequence[AwaitedRecord], results: Sequence[Any]) -> None:
        self._lookup.keep(entries[0].of_key, results[0])
        super()._answered(entries, results)

    def _outputs(self, entries: Sequence[AwaitedRecord]) -> Iterator[Output]:
        records = [entry.result for entry in entries]
        stamps = [stamp for entry in entries for stamp in entry.value.timestamps or ()]
        return self._joined([entry.rows[0] for entry in entries], records, stamps or None)

    def _joined(
        self, rows: Sequence[Any], records: Sequence[Any], stamps: Sequence[int] | None
    ) -> Iterator[Output]:
        lookup = self._lookup
        lookup.output.note(RIGHT, [record for record in records if record is not None])
        pairs = zip(self._cursor.over(rows), records, strict=True)
        yield from self._collector.collect((lookup.joined(*pair) for pair in pairs), stamps)
        self._cursor.done()

    def snapshot(self, checkpoint_id: int) -> Mapping[str, SavedList]:
        return {**super().snapshot(checkpoint_id), **self._lookup.output.state()}


class AsyncColumnLookupOperator(AsyncMapOperator):
    """Looks up the records of Arrow batches; the function takes a batch of distinct keys."""

    kind: ClassVar[str] = "lookup"

    def __init__(
        self, function: Callable[..., Any] | FunctionClass, settings: AsyncSettings, lookup: ColumnLookup
    ) -> None:
        super().__init__(function, settings)
        self._lookup = lookup
        #: Batches that were looked up and not yet emitted, by their sequence numbers.
        self._found: dict[int, LookedUp] = {}

    def open(self, context: OperatorContext) -> None:
        self._lookup.open(context)
        super().open(context)

    def process(self, batch: Batch) -> Iterator[Output]:
        for part in arrow_parts(batch):
            found = self._lookup.look_up(part) if self._queue.is_empty else None
            if found is not None and found.is_complete:
                yield from self._lookup.output(found, None)
            else:
                yield from super().process(part)

    def _may_call(self, entry: AwaitedRecord) -> bool:
        assert isinstance(entry.value, ArrowBatch), "rows are converted first"
        found = self._found[entry.sequence] = self._lookup.look_up(entry.value)
        if found.is_complete:
            self._queue.answered(entry, None)
        return not found.is_complete

    def _begin(self, entries: list[AwaitedRecord]) -> None:
        self._lookup.calls.increment()
        super()._begin(entries)

    def _given(self, entries: list[AwaitedRecord]) -> Callable[[], Any]:
        argument = self._found[entries[0].sequence].argument
        return lambda: argument

    def _results(self, answered: Any, entries: list[AwaitedRecord]) -> list[Any]:
        refuse_awaitable(answered)
        return [self._lookup.checked_answer(answered)]

    def _outputs(self, entries: Sequence[AwaitedRecord]) -> Iterator[Output]:
        for entry in entries:
            yield from self._lookup.output(self._found.pop(entry.sequence), entry.result)

    def snapshot(self, checkpoint_id: int) -> Mapping[str, SavedList]:
        return {**super().snapshot(checkpoint_id), **self._lookup.state()}
