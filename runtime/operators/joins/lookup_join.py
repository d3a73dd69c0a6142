"""`stream.lookup(...)`: joins each record with the record that a table or a function returns for its key.

The function is called while the input record is processed, so records keep their order. `async_lookup.py` is
for coroutine functions, and `column_lookup.py` for Arrow batches.

Each subtask caches the results; snapshots do not hold the cache. An entry expires at a maximum age. A key
without a record has an entry, too, with a maximum age of its own. An expired entry is deleted before the
function is called again. So if that call fails, the job fails, and no expired record is used.

The cache has copies of the function's results. Functions that may change a cached record receive a copy of
it. So a function that keeps or changes a record affects no later result.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from penstock.runtime.operators.functions.function_operator import FunctionOperator, check_function, rows_of
from penstock.runtime.operators.joins.interval_join import LEFT, RIGHT, has_null
from penstock.runtime.operators.joins.output_rows import OutputRows
from penstock.runtime.operators.metrics import LOOKUP_CALLS, Counter
from penstock.runtime.operators.operator import OperatorContext, Output, SavedList
from penstock.runtime.operators.user_code.result_collector import ResultCollector, reading
from penstock.runtime.ports import Clock
from penstock.runtime.record.elements import Batch
from penstock.runtime.state.own_copy import own_copy

#: Marks a key without a cache entry; its record is unknown.
UNKNOWN: Final = object()


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """Size of a cache, and maximum ages of its entries.

    Attributes:
        size: Maximum number of entries; 0 for no cache.
        ttl: Maximum age of a record in seconds; `None` for no limit.
        negative_ttl: Maximum age, in seconds, of the entry of a key without a record; `None` for no limit.
    """

    size: int
    ttl: float | None
    negative_ttl: float | None


class LookupCache:
    """Records by key; a full cache evicts the least recently used entry.

    Example:
        >>> cache = LookupCache(CacheSettings(2, 60, 5))
        >>> for key, record in [("a", 1), ("b", None), ("c", 3)]:
        ...     cache.put(key, record, 0.0)
        >>> cache.get("a", 1.0, "absent"), cache.get("b", 1.0, "absent"), cache.get("b", 6.0, "absent")
        ('absent', None, 'absent')
    """

    def __init__(self, settings: CacheSettings) -> None:
        self._settings = settings
        #: Record and moment of expiry by key, the least recently used entry first.
        self._entries: OrderedDict[Any, tuple[Any, float | None]] = OrderedDict()

    def get(self, key: Any, now: float, default: Any) -> Any:
        """The record of a key, `None` if it has none, or `default` if the cache has no entry."""
        entry = self._entries.get(key)
        if entry is None:
            return default
        record, expires = entry
        if expires is not None and now >= expires:
            del self._entries[key]
            return default
        self._entries.move_to_end(key)
        return record

    def put(self, key: Any, record: Any, now: float) -> None:
        settings = self._settings
        if not settings.size:
            return
        ttl = settings.negative_ttl if record is None else settings.ttl
        self._entries[key] = record, None if ttl is None else now + ttl
        self._entries.move_to_end(key)
        if len(self._entries) > settings.size:
            self._entries.popitem(last=False)


class RowLookup:
    """Keys, cache and output of a lookup over rows.

    Args:
        output: Makes the output from the input record and the record that was found.
        emits_alone: Whether an input record is emitted if no record was found for it.
        cache: `None` for no cache; a lookup in a table needs none, because it is as fast as a cache.
    """

    _clock: Clock

    def __init__(
        self,
        select_key: Callable[[Any], Any],
        output: OutputRows,
        emits_alone: bool,
        cache: CacheSettings | None,
    ) -> None:
        self.output = output
        self.key_of = self._select_key = select_key
        self._emits_alone = emits_alone
        self._cache = None if cache is None else LookupCache(cache)

    def open(self, context: OperatorContext, *, isolates: bool) -> None:
        check_function("lookup: on", self._select_key)
        if isolates:
            self.output.isolate()
            self.key_of = reading(self._select_key)
        self.output.restore(context)
        self._clock = context.connector.clock
        self.calls = context.metrics.built_in(Counter, LOOKUP_CALLS)

    @property
    def user_functions(self) -> tuple[Callable[..., Any], ...]:
        return self._select_key, *self.output.user_functions

    def known(self, key: Any) -> Any:
        """The record of a key, `None` if it has none, or `UNKNOWN` if the function must be called."""
        if has_null(key):
            return None
        cache = self._cache
        return UNKNOWN if cache is None else cache.get(key, self._clock.monotonic(), UNKNOWN)

    def keep(self, key: Any, record: Any) -> Any:
        """Cache a result of the function; the cache then owns it."""
        if self._cache is not None:
            self._cache.put(key, record, self._clock.monotonic())

    def joined(self, row: Any, record: Any) -> list[Any]:
        if record is not None:
            return [self.output.function(row, record)]
        return [self.output.alone(LEFT, row)] if self._emits_alone else []


class LookupOperator(FunctionOperator):
    """Looks up a record by the key of each input record.

    Args:
        function: Takes a key; returns a record, or `None` if there is none.
    """

    kind: ClassVar[str] = "lookup"

    _collector: ResultCollector

    def __init__(self, function: Callable[[Any], Any], lookup: RowLookup) -> None:
        super().__init__(function)
        self._lookup = lookup

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._lookup.open(context, isolates=self.isolates)
        self._collector = self._collector_of(context)

    @property
    def _functions(self) -> Iterable[Callable[..., Any]]:
        return self._function, *self._lookup.user_functions

    def process(self, batch: Batch) -> Iterator[Output]:
        rows, lookup = rows_of(batch), self._lookup
        lookup.output.note(LEFT, rows.rows)
        results = (
            lookup.joined(row, self._record_of(lookup.key_of(row))) for row in self._cursor.over(rows.rows)
        )
        yield from self._collector.collect(results, rows.timestamps)
        self._cursor.done()

    def _record_of(self, key: Any) -> Any:
        lookup = self._lookup
        record = lookup.known(key)
        if record is UNKNOWN:
            lookup.calls.increment()
            record = own_copy(self._function(key))
            if record is not None:
                lookup.output.note(RIGHT, (record,))
            lookup.keep(key, record)
        return record

    def snapshot(self, checkpoint_id: int) -> Mapping[str, SavedList]:
        return self._lookup.output.state()


class TableOfRecords:
    """Records by key, as a function of the key.

    Example:
        >>> TableOfRecords({"AT": {"name": "Austria"}})("AT")
        {'name': 'Austria'}
    """

    def __init__(self, records: Mapping[Any, Any]) -> None:
        self._records = dict(records)

    def __call__(self, key: Any) -> Any:
        return self._records.get(key)
