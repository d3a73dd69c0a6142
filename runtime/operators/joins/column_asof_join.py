"""`left.join_asof(right, ...)` and `left.join_temporal(versions, ...)` over Arrow batches.

`asof_join.py` has the rules. Each side has a `ColumnLog` of the rows that wait. A `ColumnTable` has the
version of each key. When the watermark advances, the partners of all left rows that may be decided are looked
up together. They are found among the right rows up to the watermark, and in the table. `SortedRows` sorts
these right rows by key and time if a search is needed. In joins that look back, the newest right row of each
key then becomes the key's version.

In a join that looks ahead, a left row's time in its log is the watermark at which the row is due. The column
`:at` has the row's timestamp. With *nearest*, a left row is first due at its timestamp. If it is not decided
then, it is added again, and is due when no later right row can be nearer than the earlier one. So a row is
examined only when it is due, or when its key has a new right row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.runtime.errors import StateMismatchError
from penstock.runtime.operators.expressions import as_mask, batch_of, compute
from penstock.runtime.operators.functions.function_operator import own_state
from penstock.runtime.operators.joins.asof_join import VERSIONS, AsofJoin
from penstock.runtime.operators.joins.column_join import SLICE, ColumnJoinOperator
from penstock.runtime.operators.joins.column_names import Columns, columns_of
from penstock.runtime.operators.joins.interval_join import LEFT, RIGHT, SIDES, Side
from penstock.runtime.operators.operator import OperatorContext, Output
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import END_OF_TIME, ArrowBatch, Watermark
from penstock.runtime.state.column_table import ColumnTable
from penstock.runtime.state.row_ring import Moments
from penstock.runtime.state.typed_columns import Slots

#: Names of the logs.
LOGS: Final = "join_left_columns", "join_right_columns"

#: The timestamp of a left row or of a version.
AT: Final = ":at"

#: Whether a right row is a delete.
DELETED: Final = ":deleted"

#: Positions in an array; -1 for none.
Places = NDArray[np.int64]


class SortedRows:
    """Right rows by key and time. With `is_exact`, a row at the very moment of a search counts.

    Args:
        groups: Number of each row's key.
        times: Timestamps in ascending order; of a key's rows with equal timestamps the last one counts.

    Example:
        >>> rows = SortedRows(np.array([0, 1, 0, 0]), np.array([10, 20, 30, 30]))
        >>> keys, times = np.array([0, 0, 1, 2]), np.array([29, 30, 19, 20])
        >>> rows.before(keys, times, is_exact=True), rows.after(keys, times, is_exact=True)
        (array([ 0,  3, -1, -1]), array([ 3,  3,  1, -1]))
    """

    def __init__(self, groups: Slots, times: Moments) -> None:
        self._groups, self._times = groups, times
        self._base = len(times) + 1
        # One number combines key and row, and rows are in order of time. Sorting these numbers costs less
        # than an argsort.
        self._numbers = np.sort(groups * self._base + np.arange(len(groups)))

    def before(self, groups: Slots, times: Moments, *, is_exact: bool) -> Places:
        """For each key and moment, the last row up to this moment."""
        ends = np.searchsorted(self._times, times, side="right" if is_exact else "left")
        return self._rows(groups, np.searchsorted(self._numbers, groups * self._base + ends) - 1)

    def after(self, groups: Slots, times: Moments, *, is_exact: bool) -> Places:
        """For each key and moment, the last row with the first timestamp at or after this moment."""
        starts = np.searchsorted(self._times, times, side="left" if is_exact else "right")
        rows = self._rows(groups, np.searchsorted(self._numbers, groups * self._base + starts))
        found = np.flatnonzero(rows >= 0)
        rows[found] = self.before(groups[found], self._times[rows[found]], is_exact=True)
        return rows

    def _rows(self, groups: Slots, places: Places) -> Places:
        """The rows at some places in sorted order; -1 where the row there has another key."""
        found = np.full(len(places), -1, np.int64)
        inside = np.flatnonzero((places >= 0) & (places < len(self._numbers)))
        rows = self._numbers[places[inside]] % self._base
        same = self._groups[rows] == groups[inside]
        found[inside[same]] = rows[same]
        return found


class ColumnAsofJoinOperator(ColumnJoinOperator):
    """Joins each left row with at most one right row.

    Args:
        deleted: Condition over the right columns that is true for deletes; `None` if no row is a delete.
    """

    own_columns = (AT, DELETED)

    _versions: ColumnTable

    def __init__(
        self,
        join: AsofJoin,
        keys: tuple[ColumnKey, ColumnKey],
        deleted: pc.Expression | None,
        suffix: str,
        late_tags: tuple[str, str],
    ) -> None:
        super().__init__(join, keys, suffix, late_tags)
        self._join = join
        self._deleted = deleted
        #: Watermark at which old versions were last deleted.
        self._swept_at: int | None = None
        self.makes_watermarks = join.looks_ahead

    def _open_state(self, context: OperatorContext) -> None:
        state = own_state(context, (*LOGS, VERSIONS), "an as-of join over columns")
        left, right = (state.column_log(name) for name in LOGS)
        self._logs, self._versions = (left, right), state.column_table(VERSIONS)

    def _comes_alone(self, side: Side) -> bool:
        return side == LEFT and self._join.emits_alone

    def _rows(self, side: Side) -> int:
        return len(self._logs[side]) + (len(self._versions) if side == RIGHT else 0)

    def _joined(self, side: Side, keys: Columns, values: Columns, times: Moments) -> Iterator[Output]:
        due, own = times, {}
        if side == LEFT and self._join.looks_ahead:
            own = {AT: pa.array(times)}
            due = times if self._join.looks_back else _later(times, self._join.furthest)
        elif side == RIGHT and self._deleted is not None:
            columns = {**keys, **values}
            (result,) = compute({"deleted": self._deleted}, batch_of(columns, len(times)))
            own = {DELETED: as_mask(result, "join_temporal: deleted")}
        self._logs[side].append(keys, due, {**values, **own})
        for name, types in self._logs[side].key_types.items():
            if len(types) > 1:
                msg = (
                    f"key column {name!r} of the {SIDES[side]} stream is of type {types[0]} in one batch and "
                    f"of type {types[-1]} in another; cast it to one type before the join"
                )
                raise StateMismatchError(msg)
        yield from ()

    def _alone(self, side: Side, columns: Columns, times: Moments) -> Iterator[Output]:
        yield ArrowBatch(self._output.alone(side, columns, self._types[RIGHT]), pa.array(times))

    def process_watermark(self, watermark: Watermark) -> Iterator[Output]:
        reached = self._reached.advance(watermark.timestamp)
        yield from self._advance(reached)
        self._sweep(reached)
        for side in (LEFT, RIGHT):
            self._gauges[side].set(self._rows(side))
        if self.makes_watermarks:
            first = self._first_undecided(reached)
            yield Watermark(reached if first is None else min(reached, first - 1))

    def _advance(self, reached: int) -> Iterator[Output]:
        left, right = self._logs
        new = right.until(reached)
        # In a join without versions the table only numbers the keys of this step.
        table = self._versions if self._join.looks_back else ColumnTable("step", 1, tracks_changes=False)
        table.column(AT, pa.int64())
        groups = table.slots_of(columns_of(right.keys(new))) if len(new) else np.empty(0, np.int64)
        last = np.flatnonzero(table.are_last(groups)) if len(new) else new
        slots = self._candidates(reached, new[last])
        if len(slots):
            at = self._times(slots)
            keys = table.find(columns_of(left.keys(slots)))
            partners, due = self._partners(table, groups, new, keys, at)
            is_decided = due <= reached
            yield from self._emit(slots[is_decided], at[is_decided], partners[is_decided], new)
        if self._join.looks_back and len(new):
            self._set_versions(groups[last], new[last])
        right.delete(new)
        if len(slots):
            self._remove(slots, due, reached)

    def _candidates(self, reached: int, last: Slots) -> Slots:
        """Left rows up to the watermark that are due, or whose key has a new right row.

        `last` has one new right row per key.
        """
        left, right = self._logs
        slots = left.until(reached)
        if not self._join.looks_ahead:
            return slots
        if len(last):
            furthest = np.full(len(last), END_OF_TIME)
            found = left.find(columns_of(right.keys(last)), -furthest, furthest)[1]
            slots = np.union1d(slots, found[self._times(found) <= reached])
        return slots[np.argsort(self._times(slots), kind="stable")]

    def _partners(
        self, table: ColumnTable, groups: Slots, new: Slots, keys: Slots, at: Moments
    ) -> tuple[Places, Moments]:
        """The partner of each left row, and the watermark that decides it.

        A partner is a position in `new`, `len(new)` plus the slot of a version, or -1 for none.
        """
        join, times = self._join, self._logs[RIGHT].times[new]
        partners, distances = np.full(len(at), -1, np.int64), np.full(len(at), END_OF_TIME)
        if join.looks_back:
            partners = self._before(table, groups, times, keys, at)
            found = np.flatnonzero(partners >= 0)
            distances[found] = at[found] - times[partners[found]]
            versions = table.column(AT, pa.int64())
            stored = np.flatnonzero(keys >= 0)
            stored = stored[versions.valid[keys[stored]]]
            distance = at[stored] - versions.values[keys[stored]]
            is_nearer = (distance >= (0 if join.is_exact else 1)) & (distance < distances[stored])
            stored = stored[is_nearer]
            partners[stored], distances[stored] = len(new) + keys[stored], distance[is_nearer]
            if self._deleted is not None and len(new):
                found = np.flatnonzero((partners >= 0) & (partners < len(new)))
                is_deleted = self._logs[RIGHT].columns[DELETED].values[new[partners[found]]]
                partners[found[is_deleted]] = -1
            partners[distances > join.furthest] = -1
        if not join.looks_ahead:
            return partners, at
        due = _later(at, np.minimum(distances, join.furthest))
        ahead = SortedRows(groups, times).after(keys, at, is_exact=join.is_exact)
        found = np.flatnonzero(ahead >= 0)
        moments = times[ahead[found]]
        is_nearer = (moments < due[found]) | ((moments == due[found]) & (partners[found] < 0))
        partners[found[is_nearer]] = ahead[found[is_nearer]]
        due[found] = np.minimum(due[found], moments)
        return partners, due

    def _before(self, table: ColumnTable, groups: Slots, times: Moments, keys: Slots, at: Moments) -> Places:
        """The last right row up to each left row; `groups` and `times` are those of the right rows.

        Usually the key has no right row in this step, or its last one is the partner. Only the other left
        rows need a search.
        """
        partners = table.last_rows(groups, keys)
        found = np.flatnonzero(partners >= 0)
        last = times[partners[found]]
        found = found[(last > at[found]) if self._join.is_exact else (last >= at[found])]
        if len(found):
            wanted = np.flatnonzero(table.last_rows(keys[found], groups) >= 0)
            rows = SortedRows(groups[wanted], times[wanted])
            earlier = rows.before(keys[found], at[found], is_exact=self._join.is_exact)
            partners[found] = np.where(earlier < 0, -1, wanted[earlier])
        return partners

    def _emit(self, slots: Slots, at: Moments, partners: Places, new: Slots) -> Iterator[Output]:
        if not self._join.emits_alone:
            has_partner = partners >= 0
            slots, at, partners = slots[has_partner], at[has_partner], partners[has_partner]
        for start in range(0, len(slots), SLICE):
            some = slice(start, start + SLICE)
            right = self._right_columns(partners[some], new)
            pairs = self._output.pairs(self._stored(LEFT, slots[some]), right)
            yield ArrowBatch(pairs, pa.array(at[some]))

    def _right_columns(self, partners: Places, new: Slots) -> Columns:
        """The right columns of the partners; a row without a partner gets nulls."""
        is_new, is_version = (partners >= 0) & (partners < len(new)), partners >= len(new)
        some_new, some_versions = new[partners[is_new]], partners[is_version] - len(new)
        parts = [
            (len(some_new), self._stored(RIGHT, some_new) if len(some_new) else {}),
            (len(some_versions), self._stored_versions(some_versions) if len(some_versions) else {}),
        ]
        places = np.full(len(partners), -1, np.int64)
        places[is_new] = np.arange(len(some_new))
        places[is_version] = len(some_new) + np.arange(len(some_versions))
        index = pa.array(places, mask=places < 0)
        shared = self._keys[RIGHT].names if self._output.shares_key else ()
        columns = {}
        for name, kind in self._types[RIGHT].items():
            if name not in shared:
                arrays = [_typed(part.get(name), kind, rows) for rows, part in parts]
                columns[name] = pa.concat_arrays(arrays).take(index)
        return columns

    def _stored_versions(self, slots: Slots) -> dict[str, pa.Array]:
        values = {name: typed.take(slots) for name, typed in self._versions.columns.items() if name != AT}
        return {**columns_of(self._versions.keys(slots)), **values}

    def _set_versions(self, slots: Slots, rows: Slots) -> None:
        """Make right rows the versions of their keys; `slots` has the slot of each row's key."""
        table, right = self._versions, self._logs[RIGHT]
        at = table.column(AT, pa.int64())
        is_newer = ~(at.valid[slots] & (at.values[slots] > right.times[rows]))
        slots, rows = slots[is_newer], rows[is_newer]
        for name in table.columns.keys() - right.columns.keys():
            table.columns[name].clear(slots)
        for name, column in right.columns.items():
            if name != DELETED:
                table.column(name, column.kind).put(slots, column.take(rows))
        at.put(slots, pa.array(right.times[rows]))
        table.note_changed(slots)
        if self._deleted is not None:
            table.delete(slots[right.columns[DELETED].values[rows]])

    def _remove(self, slots: Slots, due: Moments, reached: int) -> None:
        """Delete decided left rows; add undecided rows again if they are now due at another moment."""
        left = self._logs[LEFT]
        is_moved = (due > reached) & (due != left.times[slots])
        moved, later = slots[is_moved], due[is_moved]
        keys = columns_of(left.keys(moved)) if len(moved) else {}
        values = {name: column.take(moved) for name, column in left.columns.items()}
        left.delete(slots[(due <= reached) | is_moved])
        if len(moved):
            left.append(keys, later, values)

    def _sweep(self, reached: int) -> None:
        """Delete the versions that no left row can reach."""
        kept = self._join.kept
        # The end of time deletes no versions, because the job may continue from its last savepoint.
        if kept is None or reached == END_OF_TIME or not len(self._versions):
            return
        if self._swept_at is not None and reached - self._swept_at < kept:
            return
        self._swept_at = reached
        slots = self._versions.all_slots
        times = self._versions.column(AT, pa.int64()).values[slots]
        self._versions.delete(slots[times + kept <= reached])

    def _times(self, slots: Slots) -> Moments:
        left = self._logs[LEFT]
        times: Moments = left.columns[AT].values[slots] if AT in left.columns else left.times[slots]
        return times

    def _first_undecided(self, reached: int) -> int | None:
        times = self._times(self._logs[LEFT].all_slots)
        times = times[times <= reached]
        return int(times.min()) if len(times) else None


def _later(times: Moments, distances: Moments | int) -> Moments:
    """Add distances of at least 0 to times; no result is later than the end of time."""
    later: Moments = np.where(times > END_OF_TIME - distances, END_OF_TIME, times + distances)
    return later


def _typed(column: pa.Array | None, kind: pa.DataType, rows: int) -> pa.Array:
    return pa.nulls(rows, kind) if column is None or pa.types.is_null(column.type) else column
