"""`left.join(right, ...)` over rows: records and keys of any type, state on the heap or in RocksDB.

Each side has a `RowLog`, which finds rows by key and time. A batch is joined with the other side's log, and
then added to its own side's log. So the row of a pair that arrives second finds the first. A row's flag says
whether it had a partner.

One search finds the partners of several rows of a batch. A row may have a million partners, and their number
is not known in advance. So the number of rows in a search depends on the number of partners that the previous
rows had. A search that finds too many partners leaves its last rows to the next search.

`interval_join.py` has the time rules. `column_interval_join.py` is this join over Arrow batches.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np

from penstock.runtime.operators.functions.function_operator import check_function, only_row_logs
from penstock.runtime.operators.joins.interval_join import (
    LEFT,
    RIGHT,
    IntervalJoin,
    Side,
    has_null,
    moved,
    other_side,
)
from penstock.runtime.operators.joins.output_rows import OutputRows, reading_both
from penstock.runtime.operators.joins.row_join import Late, RowJoinOperator
from penstock.runtime.operators.operator import OperatorContext
from penstock.runtime.record.elements import RowBatch, Watermark
from penstock.runtime.state.row_log import Flags, HashedKeys, RowLog
from penstock.runtime.state.row_ring import Moments
from penstock.runtime.state.typed_columns import Slots

#: Names of the logs.
TABLES: Final = "join_left", "join_right"

#: Number of results that are collected together, unless a user's function makes them.
_MOST_RESULTS: Final = 4096

#: Number of rows that expire together if none of them is emitted.
_MOST_EXPIRED: Final = 1 << 14

#: Segments of a log whose due rows are looked up together.
_SEGMENTS: Final = 16

#: Number of pairs that a search should find.
_PAIRS: Final = 1 << 14

#: Approximate maximum number of pairs in memory, unless a single row has more.
_MOST_PAIRS: Final = 1 << 17

#: Number of rows in the first search.
_FIRST_ROWS: Final = 1 << 8


class RowIntervalJoinOperator(RowJoinOperator):
    """Joins rows by key and time.

    Args:
        output: Makes the output from a left and a right record.
        where: Condition on a left and a right record; `None` accepts every pair.
        late_tags: Names of the side outputs for late records of each side.
    """

    _logs: tuple[RowLog, RowLog]

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
        self._searched = _FIRST_ROWS
        self.makes_watermarks = join.delay > 0

    def _open_state(self, context: OperatorContext) -> None:
        if self._where is not None:
            check_function(self.kind, self._where)
        self._condition = self._where
        if self.isolates and self._where is not None:
            self._condition = reading_both(self._where)
        left, right = only_row_logs(context, TABLES, "a join")
        self._logs = left, right
        # A function may be slow, and may change a record that it has returned.
        self._most_results = 1 if tuple(self._functions) else _MOST_RESULTS

    @property
    def _functions(self) -> Iterable[Callable[..., Any]]:
        of_condition = () if self._where is None else (self._where,)
        return (*self._output.user_functions, *of_condition)

    def _joined(self, side: Side, keys: Sequence[Any], batch: RowBatch, late: Late) -> Iterator[list[Any]]:
        self._check_keys(keys, batch.rows)
        hashed, rows, times = HashedKeys.of(keys), batch.rows, np.array(batch.timestamps, np.int64)
        reached = self._reached.timestamp
        if reached is not None and len(times) and times.min() <= reached:
            in_time = times > reached
            late += [(rows[at], int(times[at])) for at in np.flatnonzero(~in_time).tolist()]
            rows = [rows[at] for at in np.flatnonzero(in_time).tolist()]
            hashed, times = hashed[in_time], times[in_time]
        start = 0
        while start < len(times):
            some = slice(start, start + self._searched)
            start += yield from self._join_some(side, hashed[some], rows[some], times[some])

    def _join_some(
        self, side: Side, keys: HashedKeys, rows: Sequence[Any], times: Moments
    ) -> Generator[list[Any], None, int]:
        """Join as many rows as have about `_MOST_PAIRS` partners, at least one; return their number."""
        join, other = self._join, self._logs[other_side(side)]
        first, last = join.distances(side)
        places, slots, joined = other.find_some(keys, moved(times, first), moved(times, last), _MOST_PAIRS)
        keys, rows, times = keys[:joined], rows[:joined], times[:joined]
        expected = max(1, len(times) * _PAIRS // max(1, len(places)))
        self._searched = min(2 * self._searched, expected, _PAIRS)
        matched = np.zeros(len(times), np.bool_)
        if self._condition is not None or (join.emits_pairs and self._output.user_functions):
            accepted: list[int] = []
            yield from self._pairs_one_by_one(side, rows, times, places, slots, accepted)
            places, slots = places[accepted], slots[accepted]
        elif join.emits_pairs:
            yield from self._pairs(side, rows, times, places, slots)
        matched[places] = True
        if other_side(side) in join.marks and len(slots):
            new = np.array(list(dict.fromkeys(slots[~other.flags[slots]].tolist())), np.int64)
            if join.how == "semi" and len(new):
                self._stamps = other.times[new].tolist()
                yield other.records(new)
            other.flag(new)
        yield from self._add(side, keys, rows, times, matched)
        return joined

    def _pairs(
        self, side: Side, rows: Sequence[Any], times: Moments, places: Slots, slots: Slots
    ) -> Iterator[list[Any]]:
        """The outputs of pairs, if no function of the user makes them."""
        log = self._logs[other_side(side)]
        for start in range(0, len(places), self._most_results):
            some = slice(start, start + self._most_results)
            mine, theirs = places[some], slots[some]
            own, others = [rows[at] for at in mine.tolist()], log.records(theirs)
            self._stamps = np.maximum(times[mine], log.times[theirs]).tolist()
            yield self._output.pairs(*((own, others) if side == LEFT else (others, own)))

    def _pairs_one_by_one(
        self,
        side: Side,
        rows: Sequence[Any],
        times: Moments,
        places: Slots,
        slots: Slots,
        accepted: list[int],
    ) -> Iterator[list[Any]]:
        """Call the user's functions, and collect the positions of the pairs that the condition accepts."""
        log, where, function = self._logs[other_side(side)], self._condition, self._output.function
        cursor, at = self._cursor.over(rows), -1
        for start in range(0, len(places), _MOST_RESULTS):
            some = slice(start, start + _MOST_RESULTS)
            stamps = np.maximum(times[places[some]], log.times[slots[some]]).tolist()
            pairs = zip(places[some].tolist(), log.records(slots[some]), stamps, strict=True)
            for position, (place, record, stamp) in enumerate(pairs, start):
                while at < place:
                    row = next(cursor)
                    at += 1
                left, right = (row, record) if side == LEFT else (record, row)
                if where is None or where(left, right):
                    accepted.append(position)
                    if self._join.emits_pairs:
                        self._stamps = [stamp]
                        yield [function(left, right)]

    def _add(
        self, side: Side, keys: HashedKeys, rows: Sequence[Any], times: Moments, matched: Flags
    ) -> Iterator[list[Any]]:
        """Add rows to the log, except those that can have no further partner, or need none."""
        join, reached = self._join, self._reached.timestamp
        is_over = np.zeros(len(times), np.bool_)
        if not keys.are_exact:
            is_over |= np.fromiter(map(has_null, keys.keys), np.bool_, len(keys))
        if reached is not None:
            is_over |= times <= join.expired(side, reached)
        if join.comes_alone(side):
            alone = np.flatnonzero(is_over & ~matched)
            yield from self._alone(side, [rows[at] for at in alone.tolist()], times[alone])
        if side == LEFT and not join.emits_pairs:
            if join.how == "semi" and matched.any():
                self._stamps = times[matched].tolist()
                yield [rows[at] for at in np.flatnonzero(matched).tolist()]
            is_over |= matched
        if is_over.any():
            rows = [rows[at] for at in np.flatnonzero(~is_over).tolist()]
            keys, times, matched = keys[~is_over], times[~is_over], matched[~is_over]
        if rows:
            self._logs[side].append(keys, times, rows, matched)

    def _alone(self, side: Side, rows: Sequence[Any], times: Moments) -> Iterator[list[Any]]:
        """The outputs of rows without a partner, which have their own timestamps."""
        alone, is_anti, most = self._output.alone, self._join.how == "anti", self._most_results
        cursor = self._cursor.over(rows)
        for start in range(0, len(rows), most):
            self._stamps = times[start : start + most].tolist()
            yield [row if is_anti else alone(side, row) for row in islice(cursor, most)]
        self._cursor.done()

    # -- time --------------------------------------------------------------------------------------------

    def _output_watermark(self, watermark: Watermark) -> Watermark:
        return self._join.output_watermark(watermark)

    def _next_at(self) -> int | None:
        """The watermark at which the next row expires."""
        firsts = [(side, self._logs[side].first_time) for side in (LEFT, RIGHT)]
        return min((at + self._join.kept(side) for side, at in firsts if at is not None), default=None)

    def _rows(self, side: Side) -> int:
        return len(self._logs[side])

    def _pop_due(self, until: int) -> Generator[tuple[Side, Slots]]:
        for side in (LEFT, RIGHT):
            log, moment = self._logs[side], self._join.expired(side, until)
            most = self._most_results if self._join.comes_alone(side) else _MOST_EXPIRED
            while len(slots := log.until(moment, _SEGMENTS)):
                drawn = 0
                try:
                    while drawn < len(slots):
                        some = slots[drawn : drawn + most]
                        drawn += len(some)
                        yield side, some
                finally:
                    log.delete(slots[:drawn])

    def _results(self, due: Iterable[tuple[Side, Slots]]) -> Iterator[list[Any]]:
        for side, slots in due:
            if self._join.comes_alone(side):
                log = self._logs[side]
                alone = slots[~log.flags[slots]]
                yield from self._alone(side, log.records(alone), log.times[alone])
