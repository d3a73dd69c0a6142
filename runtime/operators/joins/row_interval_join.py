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
from operator import itemgetter
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

#: A row in state: timestamp, whether it had a partner, and the record.
Row: TypeAlias = tuple[int, bool, Any]


class Expiring:
    """Rows by timestamp, in one sorted run for each batch, because most batches are already sorted.

    Example:
        >>> due = Expiring()
        >>> due.add([(3, 0, "a"), (1, 1, "b")])
        >>> due.add([(2, 2, "a")])
        >>> due.first, list(due.until(2)), len(due)
        (1, [(1, 1, 'b'), (2, 2, 'a')], 1)
    """

    def __init__(self) -> None:
        #: First timestamp of each run, the run's number, and its rows in reverse order.
        self._runs: list[tuple[int, int, list[tuple[int, int, Any]]]] = []
        self._next = 0
        self._length = 0

    def __len__(self) -> int:
        return self._length

    @property
    def first(self) -> int | None:
        return self._runs[0][0] if self._runs else None

    def add(self, rows: list[tuple[int, int, Any]]) -> None:
        """Add rows: timestamp, number and key."""
        if rows:
            rows.sort(key=itemgetter(0), reverse=True)
            self._length += len(rows)
            self._push(rows)

    def until(self, moment: int) -> Iterator[tuple[int, int, Any]]:
        """Take out the rows up to a moment, run by run; rows that the caller does not draw stay."""
        while self._runs and self._runs[0][0] <= moment:
            run = heappop(self._runs)[2]
            try:
                while run and run[-1][0] <= moment:
                    self._length -= 1
                    yield run.pop()
            finally:
                if run:
                    self._push(run)

    def _push(self, run: list[tuple[int, int, Any]]) -> None:
        heappush(self._runs, (run[-1][0], self._next, run))
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
            rows = [(row[0], number, key) for key, held in entries for number, row in held.items()]
            self._next_number = max((self._next_number, *(number + 1 for _, number, _ in rows)))
            self._due[side].add(rows)
        self._keeps_order = not context.is_restored

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
        number = self._next_number
        added: list[tuple[int, int, Any]] = []
        marked: list[tuple[Any, int]] = []
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
                    if len(found) <= _FEW:
                        candidates = self._in_order(found)
                    elif key in by_time:
                        index = by_time[key] = by_time[key] or ByTime(found)
                        candidates = index.between(first, last)
                    else:
                        by_time[key] = None  # the next row of this batch will need an index
                        candidates = self._in_order(found)
                    for partner_number, partner in candidates:
                        time, was_matched, record = partner
                        if not first <= time <= last:
                            continue
                        left, right = (row, record) if side == LEFT else (record, row)
                        if where is not None and not where(left, right):
                            continue
                        is_matched = True
                        if marks_partners and not was_matched:
                            found[partner_number] = (time, True, record)
                            marked.append((key, partner_number))
                            if not emits_pairs and join.how == "semi":
                                self._stamp = time
                                yield [record]
                        if emits_pairs:
                            self._stamp = at if at > time else time
                            yield [function(left, right)]
                if is_matched and drops_matched:
                    if join.how == "semi":
                        self._stamp = at
                        yield [row]
                    continue
                if not has_key or (expired is not None and at <= expired):
                    if not is_matched and join.comes_alone(side):
                        self._stamp = at
                        yield [self._alone(side, row)]
                    continue
                own = rows_of_key(key)
                if own is None:
                    if found is None:
                        self._check_key(key)
                    own = rows[key] = {}
                own[number] = (at, is_matched, row)
                added.append((at, number, key))
                number += 1
        except TypeError:
            self._after_type_error(keys)
            raise
        self._next_number = number
        self._due[side].add(added)
        # A report may evict rows from memory, so it comes when no row is in use any more.
        self._tables[other].changed.update(marked)
        self._tables[side].changed.update([(key, number) for _, number, key in added])

    def _in_order(self, rows: Mapping[int, Row]) -> Iterable[tuple[int, Row]]:
        """A copy of a key's rows in order of arrival; the rows may change while a caller iterates it."""
        items = list(rows.items())
        if len(items) > 1 and not self._keeps_order:
            items.sort()
        return items

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

    def _pop_due(self, until: int) -> Iterator[tuple[Side, int, int, Any]]:
        for side in (LEFT, RIGHT):
            for at, number, key in self._due[side].until(self._join.expired(side, until)):
                yield side, at, number, key

    def _results(self, due: Iterable[tuple[Side, int, int, Any]]) -> Iterator[list[Any]]:
        for side, at, number, key in due:
            table = self._tables[side]
            rows = table.entries[key]
            _, is_matched, record = rows.pop(number)
            if not rows:
                del table.entries[key]
            table.changed.add((key, number))
            if not is_matched and self._join.comes_alone(side):
                self._stamp = at
                yield [self._alone(side, record)]
