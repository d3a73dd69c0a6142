"""`left.join_asof(right, ...)` and `left.join_temporal(versions, ...)` over rows.

`asof_join.py` has the rules. Each side has a nested table of the rows that wait, by key and number. A flat
table has the version of each key. When the watermark advances, events are handled in the order of event time:

- A right row decides the waiting left rows of its key. Each gets the right row, or the version of the key if
  that is at least as near. In a join that looks back, the right row then becomes the version of its key. A
  delete deletes this version instead.
- A left row gets the version of its key, or waits until its *deadline* for a right row.
- At its deadline, a left row that still waits is decided without a later right row.
- A version is deleted when no left row can reach it.

Each event needs only the state at its moment, because events of one moment are ordered. If the join looks
back, right rows come before the left rows of the same timestamp. If it only looks ahead, they come after
them. If a right row with the left row's timestamp must not be its partner, both orders are reversed. Right
rows of one timestamp come in the order of arrival, so the last one remains the version. If the join looks
ahead, the last one comes first, so waiting left rows get it.

The events are in a heap in memory. The operator builds it from the tables when it opens. A restart may come
between two events. A left row that was waiting for its deadline then becomes an event at its own timestamp
again. This changes nothing: a right row of its key after this timestamp would have decided the left row.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from operator import itemgetter
from typing import Any, Final, TypeAlias

from penstock.runtime.operators.functions.function_operator import check_function, own_state
from penstock.runtime.operators.joins.asof_join import VERSIONS, AsofJoin
from penstock.runtime.operators.joins.interval_join import LEFT, RIGHT, Side, has_null
from penstock.runtime.operators.joins.output_rows import OutputRows
from penstock.runtime.operators.joins.row_join import Late, RowJoinOperator
from penstock.runtime.operators.operator import OperatorContext
from penstock.runtime.operators.user_code.result_collector import reading
from penstock.runtime.record.elements import END_OF_TIME, RowBatch, Watermark
from penstock.runtime.state.state_table import StateTable

#: Names of the tables of the rows that wait.
TABLES: Final = "join_left", "join_right"

#: A row that waits: timestamp, whether it is a delete, and the record.
Row: TypeAlias = tuple[int, bool, Any]

#: Timestamp, number and record of a right row that is or becomes a version.
Version: TypeAlias = tuple[int, int, Any]

#: Moment, rank within this moment, order within this rank, and the number and key of the row.
Event: TypeAlias = tuple[int, int, int, int, Any]

#: Ranks of events within one moment; the arrivals of rows have ranks 0 and 1, one for each side.
DEADLINE: Final = 2
OUTDATED: Final = 3


class RowAsofJoinOperator(RowJoinOperator):
    """Joins each left row with at most one right row.

    Args:
        deleted: Returns whether a right record is a delete; `None` if no record is a delete.
    """

    _tables: tuple[StateTable, StateTable]
    _versions: StateTable

    def __init__(
        self,
        join: AsofJoin,
        key_selectors: tuple[Callable[[Any], Any], Callable[[Any], Any]],
        output: OutputRows,
        deleted: Callable[[Any], Any] | None,
        late_tags: tuple[str, str],
    ) -> None:
        super().__init__(join, key_selectors, output, late_tags)
        self._join = join
        self._deleted = self._is_delete = deleted
        right = 0 if join.is_exact == join.looks_back else 1
        self._ranks = 1 - right, right
        self._events: list[Event] = []
        self._next_number = self._next_order = 0
        self._counts = [0, 0]
        #: Timestamps of undecided left rows by key and number, in ascending order.
        self._undecided: OrderedDict[tuple[Any, int], int] = OrderedDict()
        #: The same timestamps in a dict for each key.
        self._waiting: dict[Any, dict[int, int]] = {}
        self.makes_watermarks = join.looks_ahead

    def _open_state(self, context: OperatorContext) -> None:
        if self._deleted is not None:
            check_function(self.kind, self._deleted)
            self._is_delete = reading(self._deleted) if self.isolates else self._deleted
        state = own_state(context, (*TABLES, VERSIONS), "an as-of join")
        left, right = (state.table(name, nested=True) for name in TABLES)
        self._tables, self._versions = (left, right), state.table(VERSIONS)
        for table in (*self._tables, self._versions):
            table.changed.never_in_place = True
        numbers = [-1]
        for side in (LEFT, RIGHT):
            entries = self._tables[side].entries.items()
            rows = [(number, row[0], key) for key, held in entries for number, row in held.items()]
            rows.sort(key=itemgetter(0))  # keys can't be compared
            for number, at, key in rows:
                self._add(side, at, number, key)
            numbers += [number for number, _, _ in rows[-1:]]
        kept = self._join.kept
        for key, (at, number, _) in self._versions.entries.items():
            numbers.append(number)
            self._counts[RIGHT] += 1
            if kept is not None:
                self._push(at + kept, OUTDATED, number, key)
        self._next_number = max(numbers) + 1

    @property
    def _functions(self) -> Iterable[Callable[..., Any]]:
        of_deletes = () if self._deleted is None else (self._deleted,)
        return (*self._output.user_functions, *of_deletes)

    def _joined(self, side: Side, keys: Sequence[Any], batch: RowBatch, late: Late) -> Iterator[list[Any]]:
        reached, is_delete = self._reached.timestamp, self._is_delete if side == RIGHT else None
        table = self._tables[side]
        added: dict[tuple[Any, int], Row] = {}
        try:
            for key, at, row in zip(keys, batch.timestamps or (), self._cursor.over(batch.rows), strict=True):
                if reached is not None and at <= reached:
                    hash(key)
                    late.append((row, at))
                elif has_null(key):
                    if side == LEFT and self._join.emits_alone:
                        self._stamps = [at]
                        yield [self._output.alone(LEFT, row)]
                else:
                    rows = table.entries.get(key)
                    if rows is None:
                        self._check_key(key)
                        rows = table.entries[key] = {}
                    number = self._next_number
                    self._next_number += 1
                    value = (at, is_delete is not None and bool(is_delete(row)), row)
                    rows[number] = added[key, number] = value
                    self._add(side, at, number, key)
        except TypeError:
            self._after_type_error(keys)
            raise
        table.changed.put_many_new(added)

    def _add(self, side: Side, at: int, number: int, key: Any) -> None:
        self._counts[side] += 1
        is_last_first = side == RIGHT and self._join.looks_ahead
        self._push(at, self._ranks[side], number, key, is_last_first=is_last_first)

    def _push(self, at: int, rank: int, number: int, key: Any, *, is_last_first: bool = False) -> None:
        # No two events have the same order, so the heap never compares keys, which may not be comparable.
        self._next_order += 1
        order = -self._next_order if is_last_first else self._next_order
        heappush(self._events, (at, rank, order, number, key))

    # -- time --------------------------------------------------------------------------------------------

    def _output_watermark(self, watermark: Watermark) -> Watermark:
        first = next(iter(self._undecided.values()), None)
        return watermark if first is None else Watermark(min(watermark.timestamp, first - 1))

    def _next_at(self) -> int | None:
        return self._events[0][0] if self._events else None

    def _rows(self, side: Side) -> int:
        return self._counts[side]

    def _pop_due(self, until: int) -> Generator[Event]:
        while self._events and self._events[0][0] <= until:
            yield heappop(self._events)

    def _results(self, due: Iterable[Event]) -> Iterator[list[Any]]:
        left, right = self._ranks
        for at, rank, _, number, key in due:
            if rank == right:
                yield from self._come(at, number, key)
            elif rank == left:
                yield from self._probe(at, number, key)
            elif rank == DEADLINE:
                time = self._undecided.get((key, number))
                if time is not None:
                    yield from self._decide(number, key, self._version_for(time, key))
            else:
                self._outdate(number, key)

    def _come(self, at: int, number: int, key: Any) -> Iterator[list[Any]]:
        _, is_delete, record = self._taken(RIGHT, number, key)
        version = at, number, record
        for waiting, time in list(self._waiting.get(key, {}).items()):
            earlier = self._version_for(time, key)
            is_nearer = earlier is None or at - time < time - earlier[0]
            yield from self._decide(waiting, key, version if is_nearer else earlier)
        if not self._join.looks_back:
            return
        before = self._versions.entries.get(key)
        if before is not None and before[:2] > version[:2]:
            return
        if is_delete:
            if before is not None:
                self._delete_version(key)
            return
        self._counts[RIGHT] += before is None
        self._versions.entries[key] = version
        self._versions.changed.add(key)
        if self._join.kept is not None:
            self._push(at + self._join.kept, OUTDATED, number, key)

    def _probe(self, at: int, number: int, key: Any) -> Iterator[list[Any]]:
        version = self._version_for(at, key)
        distance = END_OF_TIME if version is None else at - version[0]
        if not self._join.looks_ahead or distance == 0:
            yield from self._decide(number, key, version)
            return
        self._undecided[key, number] = at
        self._waiting.setdefault(key, {})[number] = at
        self._push(min(at + min(distance, self._join.furthest), END_OF_TIME), DEADLINE, number, key)

    def _version_for(self, at: int, key: Any) -> Version | None:
        """The version of the key, if a left row of this timestamp may get it."""
        if not self._join.looks_back:
            return None
        version: Version | None = self._versions.entries.get(key)
        if version is None:
            return None
        nearest = 0 if self._join.is_exact else 1
        return version if nearest <= at - version[0] <= self._join.furthest else None

    def _decide(self, number: int, key: Any, version: Version | None) -> Iterator[list[Any]]:
        at, _, record = self._taken(LEFT, number, key)
        if self._undecided.pop((key, number), None) is not None:
            del self._waiting[key][number]
            if not self._waiting[key]:
                del self._waiting[key]
        self._stamps = [at]
        if version is not None:
            yield [self._output.function(record, version[2])]
        elif self._join.emits_alone:
            yield [self._output.alone(LEFT, record)]

    def _taken(self, side: Side, number: int, key: Any) -> Row:
        table = self._tables[side]
        rows = table.entries[key]
        row: Row = rows.pop(number)
        if not rows:
            del table.entries[key]
        table.changed.remove((key, number))
        self._counts[side] -= 1
        return row

    def _outdate(self, number: int, key: Any) -> None:
        # The end of time deletes no versions, because the job may continue from its last savepoint.
        version = self._versions.entries.get(key)
        if version is not None and version[1] == number and self._reached.timestamp != END_OF_TIME:
            self._delete_version(key)

    def _delete_version(self, key: Any) -> None:
        del self._versions.entries[key]
        self._versions.changed.add(key)
        self._counts[RIGHT] -= 1
