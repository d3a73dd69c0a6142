"""`sorted_by_time(...)`: records of a key in the order of their timestamps.

A record waits in keyed state until a watermark reaches its timestamp. Then it is released: any earlier record
that arrives afterwards is late. `TimeOrderedOperator` is also the base of patterns, which need this order.

*Order.* Records of one key are released in the order of their timestamps. At equal timestamps the user's
order function decides, and then the order of arrival. The records of all keys at one timestamp are released
before the next timestamp. So the whole output of a subtask is in the order of timestamps.

*State.* `RecordBuffer` has an entry of a nested table for each record. The entry's second key consists of the
timestamp and the record's number among the key's records of that timestamp. So a checkpoint writes only the
records that were added or released since the last checkpoint. An index in memory orders the timestamps. The
operator builds this index from the table when it opens, so the two can't disagree. A key is deleted from
the state with its last record.

*Portions.* A watermark may release millions of records. The operator releases them in portions and holds the
watermark meanwhile (`held_watermark.py`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from math import inf
from typing import Any, ClassVar, Final, TypeAlias

from penstock.runtime.operators.functions.event_time_operator import (
    LATE_RECORDS,
    KeyedEventTimeOperator,
    no_timestamps,
)
from penstock.runtime.operators.functions.function_operator import only_table, rows_of
from penstock.runtime.operators.held_watermark import some_of
from penstock.runtime.operators.operator import OperatorContext, Output
from penstock.runtime.operators.user_code.failure import CurrentRecord
from penstock.runtime.operators.user_code.result_collector import Emission, ResultCollector, reading
from penstock.runtime.record.elements import Batch, RowBatch
from penstock.runtime.state.state_table import StateTable
from penstock.runtime.user_location import function_location

#: Name of the state table of the records that wait, and of their count in the statistics.
WAITING_RECORDS: Final = "waiting_records"

#: Timestamp, key and records that are released together.
Released: TypeAlias = tuple[int, Any, list[Any]]

_NO_ORDER: Final = "they can't be ordered by time"


class RecordBuffer:
    """Records by key and timestamp; records of a key and timestamp are released in the order of arrival.

    Example:
        >>> buffer = RecordBuffer(StateTable("records", nested=True))
        >>> for key, at, record in [("ann", 20, "b"), ("bob", 10, "x"), ("ann", 10, "a"), ("ann", 20, "c")]:
        ...     buffer.add(key, at, record)
        >>> buffer.pop(15), buffer.pop(15), buffer.pop(15), buffer.next_at
        ((10, 'bob', ['x']), (10, 'ann', ['a']), None, 20)
        >>> buffer.pop(20), len(buffer)
        ((20, 'ann', ['b', 'c']), 0)
    """

    def __init__(self, table: StateTable) -> None:
        self._entries = table.entries
        self._changed = table.changed
        self._heap: list[int] = []
        #: Number of records by timestamp and key.
        self._counts: dict[int, dict[Any, int]] = {}
        #: The timestamp that is being released, and the keys that still have records at it.
        self._released_at = 0
        self._left: deque[tuple[Any, int]] = deque()
        self._size = 0
        for key, records in self._entries.items():
            for at, _ in records:
                counts = self._counts.setdefault(at, {})
                counts[key] = counts.get(key, 0) + 1
                self._size += 1
        self._heap = list(self._counts)
        heapify(self._heap)

    def __len__(self) -> int:
        return self._size

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    @property
    def next_at(self) -> int | None:
        if self._left:
            return self._released_at
        return self._heap[0] if self._heap else None

    def add(self, key: Any, at: int, record: Any) -> None:
        counts = self._counts.get(at)
        if counts is None:
            counts = self._counts[at] = {}
            heappush(self._heap, at)
        number = counts.get(key, 0)
        counts[key] = number + 1
        self._size += 1
        records = self._entries.get(key)
        if records is None:
            records = self._entries[key] = {}
        records[at, number] = record
        self._changed.put_new((key, (at, number)), record)

    def pop(self, until: int) -> Released | None:
        """Remove the records of one key at the earliest timestamp; `None` if that is after `until`."""
        left = self._left
        if not left:
            if not self._heap or self._heap[0] > until:
                return None
            self._released_at = heappop(self._heap)
            left.extend(self._counts.pop(self._released_at).items())
        at, (key, count) = self._released_at, left.popleft()
        records = self._entries[key]
        parts = [(at, number) for number in range(count)]
        released = [records.pop(part) for part in parts]
        if not records:
            del self._entries[key]
        self._size -= count
        self._changed.remove_many([(key, part) for part in parts])
        return at, key, released


def by_arrival(record: object) -> int:
    return 0


class TimeOrderedOperator(KeyedEventTimeOperator):
    """Keeps records until a watermark reaches them; releases the records of a key and moment together.

    Args:
        function: The user's function that receives the released records; errors name it by default.
        order: Returns the value that orders records with equal key and timestamp; `by_arrival` keeps their
            order.
    """

    #: The kind of operator in messages about another operator's state, such as `"a pattern"`.
    owner: ClassVar[str]

    _buffer: RecordBuffer

    def __init__(
        self,
        key_selector: Callable[[Any], Any],
        function: Callable[..., Any],
        late_tag: str = LATE_RECORDS,
        *,
        order: Callable[[Any], Any] = by_arrival,
    ) -> None:
        super().__init__(key_selector, function, late_tag)
        self._order = self._order_of = order
        self._ordering: Any = None  # the record that is being ordered, in a list, as it may be `None`

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._order_of = reading(self._order) if self.isolates else self._order
        self._buffer = RecordBuffer(self._open_table(context))

    def _open_table(self, context: OperatorContext) -> StateTable:
        return only_table(context, WAITING_RECORDS, self.owner, nested=True)

    @property
    def _functions(self) -> Iterable[Callable[..., Any]]:
        return self._function, self._order

    @property
    def doing(self) -> str:
        if self._ordering is not None:
            return f"{self.kind}: order function {function_location(self._order)}"
        return super().doing

    @property
    def current_record(self) -> CurrentRecord | None:
        ordering = self._ordering  # read once: a watchdog calls this from another thread
        return super().current_record if ordering is None else CurrentRecord(ordering[0])

    def process(self, batch: Batch) -> Iterator[Output]:
        yield from self._hold.release()
        rows = rows_of(batch)
        if rows.timestamps is None and len(rows):
            raise no_timestamps(_NO_ORDER)
        late = self._add(self._keys_of(rows), rows)
        self._cursor.done()
        if late:
            yield self._late_output([row for row, _ in late], [stamp for _, stamp in late])

    def _add(self, keys: list[Any], rows: RowBatch) -> list[tuple[Any, int]]:
        buffer, late, checks = self._buffer, [], self._may_be_invalid
        reached = -inf if self._reached.timestamp is None else self._reached.timestamp
        try:
            for key, stamp, row in zip(
                keys, rows.timestamps or (), self._cursor.over(rows.rows), strict=True
            ):
                if stamp <= reached:
                    hash(key)
                    late.append((row, stamp))
                    continue
                if checks and key not in buffer:
                    self._check_key(key)
                buffer.add(key, stamp, row)
        except TypeError:
            self._after_type_error(keys)
            raise
        return late

    def _ordered(self, records: list[Any]) -> list[Any]:
        """Order the records of a key and timestamp."""
        if self._order is by_arrival or len(records) == 1:
            return records
        keyed = []
        for record in records:
            self._ordering = [record]
            keyed.append(self._order_of(record))
        # Comparisons with NaN are false. Without the first part of the pair, a NaN would spoil the order.
        pairs = [(value != value, value) for value in keyed]
        positions = sorted(range(len(records)), key=pairs.__getitem__)
        self._ordering = None
        return [records[position] for position in positions]

    def _next_end(self) -> int | None:
        return self._buffer.next_at

    def _fire(self, until: int, everything: bool) -> Iterator[Output]:
        due = iter(lambda: self._next_due(until), None)
        return self._release(some_of(due, self._clock.monotonic, everything=everything))

    def _next_due(self, until: int) -> Released | None:
        return self._buffer.pop(until)

    @abstractmethod
    def _release(self, due: Iterable[Released]) -> Iterator[Output]:
        """Emit the results of released records."""

    def built_in_counts(self) -> Mapping[str, int]:
        # Statistics are read before the operator opens, too.
        return {**super().built_in_counts(), WAITING_RECORDS: len(getattr(self, "_buffer", ()))}


class SortedByTimeOperator(TimeOrderedOperator):
    """Emits the records of each key in the order of their timestamps."""

    kind: ClassVar[str] = "sorted_by_time"
    owner: ClassVar[str] = "sorted_by_time"

    def __init__(
        self,
        key_selector: Callable[[Any], Any],
        order: Callable[[Any], Any] = by_arrival,
        late_tag: str = LATE_RECORDS,
    ) -> None:
        super().__init__(key_selector, order, late_tag, order=order)
        self._stamp: int | None = None

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        # A record leaves the state when it is emitted, and order functions receive copies.
        self._collector = ResultCollector(self._clock.monotonic, Emission.NEVER)

    def _release(self, due: Iterable[Released]) -> Iterator[Output]:
        return self._collector.collect(self._released(due), iter(lambda: self._stamp, None))

    def _released(self, due: Iterable[Released]) -> Iterator[list[Any]]:
        for at, _, records in due:
            self._stamp = at
            yield self._ordered(records)
        self._stamp = None
