"""`left.join(right, ...)` over rows: records and keys of any type, state on the heap or in RocksDB.

Each side has a nested table by key and number. An entry has a row's timestamp, whether the row had a partner,
and the record. So a checkpoint writes the rows that arrived, found their first partner, or were deleted. In
memory, `Expiring` has the rows by timestamp. The operator builds it from the tables when it opens.

`interval_join.py` has the time rules. `column_interval_join.py` does the same for Arrow batches.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from operator import neg
from typing import Any, Final, TypeAlias

from penstock.runtime.operators.functions.function_operator import check_function, only_tables
from penstock.runtime.operators.joins.interval_join import LEFT, RIGHT, IntervalJoin, Side, other_side
from penstock.runtime.operators.joins.output_rows import OutputRows, reading_both
from penstock.runtime.operators.joins.row_join import Late, RowJoinOperator
from penstock.runtime.operators.operator import OperatorContext
from penstock.runtime.record.elements import RowBatch, Watermark
from penstock.runtime.state.state_table import StateTable

#: Names of the tables.
TABLES: Final = "join_left", "join_right"

#: Maximum number of rows of a key that are compared one by one; `ByTime` indexes more rows than these.
_FEW: Final = 64

#: Results that are collected together, unless a function of the user makes them.
_MOST_RESULTS: Final = 256

#: Rows that expire together if none of them comes out.
_MOST_EXPIRED: Final = 64

#: A row in state: timestamp, whether it had a partner, and the record.
Row: TypeAlias = tuple[int, bool, Any]


#: Key and number of a row in state.
Entry: TypeAlias = tuple[Any, int]


class Expiring:
    """Entries of a table by timestamp, in one sorted run for each batch, because most batches are sorted.

    Example:
        >>> due = Expiring()
        >>> due.add([3, 1], [("a", 0), ("b", 1)])
        >>> due.add([2], [("a", 2)])
        >>> due.first, list(due.until(2, 10)), len(due)
        (1, [[('b', 1)], [('a', 2)]], 1)
    """

    def __init__(self) -> None:
        #: First timestamp of each run, the run's number, its timestamps and its entries in reverse order.
        self._runs: list[tuple[int, int, list[int], list[Entry]]] = []
        self._next = 0
        self._length = 0

    def __len__(self) -> int:
        return self._length

    @property
    def first(self) -> int | None:
        return self._runs[0][0] if self._runs else None

    def add(self, times: list[int], entries: list[Entry]) -> None:
        """Add entries, and the timestamps of their rows."""
        if entries:
            self._length += len(entries)
            if times != sorted(times):
                order = sorted(range(len(times)), key=times.__getitem__)
                times, entries = [times[n] for n in order], [entries[n] for n in order]
            self._push(times[::-1], entries[::-1])

    def until(self, moment: int, most: int) -> Iterator[list[Entry]]:
        """Take out the entries up to a moment, at most `most` at once; entries that are not drawn stay."""
        while self._runs and self._runs[0][0] <= moment:
            _, _, times, entries = heappop(self._runs)
            start = max(len(times) - most, 0)
            if times[start] > moment:
                start = bisect_left(times, -moment, key=neg)
            taken = entries[start:]
            del times[start:], entries[start:]
            self._length -= len(taken)
            if times:
                self._push(times, entries)
            yield taken[::-1]

    def _push(self, times: list[int], entries: list[Entry]) -> None:
        heappush(self._runs, (times[-1], self._next, times, entries))
        self._next += 1


class ByTime:
    """The rows of one key by timestamp, for several searches; marks may change between searches.

    Example:
        >>> rows = {1: (30, False, "a"), 2: (10, False, "b"), 3: (20, False, "c")}
        >>> list(ByTime(rows).between(15, 30))
        [(1, (30, False, 'a')), (3, (20, False, 'c'))]
    """

    def __init__(self, rows: Mapping[int, Row]) -> None:
        self._rows = rows
        self._numbers = sorted(rows, key=lambda number: rows[number][0])
        self._times = [rows[number][0] for number in self._numbers]

    def between(self, first: int, last: int) -> Iterable[tuple[int, Row]]:
        """The rows from the first to the last timestamp, in order of arrival."""
        numbers = self._numbers[bisect_left(self._times, first) : bisect_right(self._times, last)]
        return [(number, self._rows[number]) for number in sorted(numbers)]


class RowIntervalJoinOperator(RowJoinOperator):
    """Joins rows by key and time.

    Args:
        output: Makes the output from a left and a right record.
        where: Condition on a left and a right record; `None` accepts every pair.
        late_tags: Names of the side outputs for late records of each side.
    """

    _tables: tuple[StateTable, StateTable]

    def __init__(
        self,
        join: IntervalJoin,
        key_selectors: tuple[Callable[[Any], Any], Callable[[Any], Any]],
        output: OutputRows,
        where: Callable[[Any, Any], Any] | None,
        late_tags: tuple[str, str],
    ) -> None:
        super().__init__(join, key_selectors, output, late_tags)
        self._join = join
        self._where = where
        self._due = Expiring(), Expiring()
        self._next_number = 0
        #: Whether rows of a key are in order of arrival in the table.
        self._keeps_order = False
        self.makes_watermarks = join.delay > 0

    def _open_state(self, context: OperatorContext) -> None:
        if self._where is not None:
            check_function(self.kind, self._where)
        self._condition = self._where
        if self.isolates and self._where is not None:
            self._condition = reading_both(self._where)
        left, right = only_tables(context, TABLES, "a join", nested=True)
        self._tables = left, right
        left.changed.never_in_place = right.changed.never_in_place = True
        for side in (LEFT, RIGHT):
            entries = self._tables[side].entries.items()
            rows = [(row[0], (key, number)) for key, held in entries for number, row in held.items()]
            self._next_number = max((self._next_number, *(number + 1 for _, (_, number) in rows)))
            self._due[side].add([at for at, _ in rows], [entry for _, entry in rows])
        self._keeps_order = not context.is_restored
        # A function may be slow, and may change a record that it has returned.
        self._most_results = 1 if tuple(self._functions) else _MOST_RESULTS

    @property
    def _functions(self) -> Iterable[Callable[..., Any]]:
        of_condition = () if self._where is None else (self._where,)
        return (*self._output.user_functions, *of_condition)

    def _joined(self, side: Side, keys: Sequence[Any], batch: RowBatch, late: Late) -> Iterator[list[Any]]:
        join, reached, other = self._join, self._reached.timestamp, other_side(side)
        expired = None if reached is None else join.expired(side, reached)
        partners, rows = self._tables[other].entries, self._tables[side].entries
        partners_of, rows_of_key, where = partners.get, rows.get, self._condition
        first_distance, last_distance = join.distances(side)
        marks_partners, emits_pairs, function = other in join.marks, join.emits_pairs, self._output.function
        drops_matched = side == LEFT and not emits_pairs
        number, most, keeps_order = self._next_number, self._most_results, self._keeps_order
        times: list[int] = []
        added: dict[Entry, Row] = {}
        marked: dict[Entry, Row] = {}
        results: list[Any] = []
        stamps: list[int] = []
        by_time: dict[Any, ByTime | None] = {}
        try:
            for key, at, row in zip(keys, batch.timestamps or (), self._cursor.over(batch.rows), strict=True):
                if reached is not None and at <= reached:
                    hash(key)
                    late.append((row, at))
                    continue
                is_matched = False
                has_key = not (key is None or (type(key) is tuple and None in key))
                found = partners_of(key) if has_key else None
                if found is not None:
                    first, last = at + first_distance, at + last_distance
                    candidates: Iterable[tuple[int, Row]]
                    if len(found) == 1:
                        candidates = found.items()
                    elif len(found) <= _FEW:
                        candidates = list(found.items()) if keeps_order else sorted(found.items())
                    elif key in by_time:
                        index = by_time[key] = by_time[key] or ByTime(found)
                        candidates = index.between(first, last)
                    else:
                        by_time[key] = None  # the next row of this batch will need an index
                        candidates = list(found.items()) if keeps_order else sorted(found.items())
                    for partner_number, (time, was_matched, record) in candidates:
                        if not first <= time <= last:
                            continue
                        left, right = (row, record) if side == LEFT else (record, row)
                        if where is not None and not where(left, right):
                            continue
                        is_matched = True
                        if marks_partners and not was_matched:
                            found[partner_number] = marked[key, partner_number] = (time, True, record)
                            if not emits_pairs and join.how == "semi":
                                results.append(record)
                                stamps.append(time)
                        if emits_pairs:
                            results.append(function(left, right))
                            stamps.append(at if at > time else time)
                        if len(results) >= most:
                            self._stamps = stamps
                            yield results
                            results, stamps = [], []
                if is_matched and drops_matched:
                    if join.how == "semi":
                        results.append(row)
                        stamps.append(at)
                elif not has_key or (expired is not None and at <= expired):
                    if not is_matched and join.comes_alone(side):
                        results.append(self._alone(side, row))
                        stamps.append(at)
                else:
                    value = (at, is_matched, row)
                    own = rows_of_key(key)
                    if own is None:
                        if found is None:
                            self._check_key(key)
                        rows[key] = {number: value}
                    else:
                        own[number] = value
                    added[key, number] = value
                    times.append(at)
                    number += 1
                if len(results) >= most:
                    self._stamps = stamps
                    yield results
                    results, stamps = [], []
        except TypeError:
            self._after_type_error(keys)
            raise
        if results:
            self._stamps = stamps
            yield results
        self._next_number = number
        self._due[side].add(times, list(added))
        # A report may evict rows from memory, so it comes when no row is in use any more.
        self._tables[other].changed.put_again(marked)
        self._tables[side].changed.put_many_new(added)

    def _alone(self, side: Side, row: Any) -> Any:
        return row if self._join.how == "anti" else self._output.alone(side, row)

    # -- time --------------------------------------------------------------------------------------------

    def _output_watermark(self, watermark: Watermark) -> Watermark:
        return self._join.output_watermark(watermark)

    def _next_at(self) -> int | None:
        """The watermark at which the next row expires."""
        firsts = [(side, self._due[side].first) for side in (LEFT, RIGHT)]
        return min((at + self._join.kept(side) for side, at in firsts if at is not None), default=None)

    def _rows(self, side: Side) -> int:
        return len(self._due[side])

    def _pop_due(self, until: int) -> Iterator[tuple[Side, list[Entry]]]:
        for side in (LEFT, RIGHT):
            most = self._most_results if self._join.comes_alone(side) else _MOST_EXPIRED
            for entries in self._due[side].until(self._join.expired(side, until), most):
                yield side, entries

    def _results(self, due: Iterable[tuple[Side, list[Entry]]]) -> Iterator[list[Any]]:
        for side, entries in due:
            table, alone = self._tables[side], []
            rows_by_key = table.entries
            for key, number in entries:
                rows = rows_by_key[key]
                row = rows.pop(number)
                if not rows:
                    del rows_by_key[key]
                if not row[1]:
                    alone.append(row)
            table.changed.remove_many(entries)
            if alone and self._join.comes_alone(side):
                self._stamps = [at for at, _, _ in alone]
                yield [self._alone(side, record) for _, _, record in alone]
