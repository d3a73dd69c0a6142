"""The first or the latest record of each key, for keys that are columns.

`FirstOperator` (`dedup`) emits the record of a key that arrives first. Its state has only the keys, and with
a TTL the times of their last use.

`LatestOperator` (`latest_by`, and `dedup` with `keep="last"`) emits a record if no earlier record of its key
is newer. Among records with equal ranks, the later arrival is newer. For each key, it emits only the newest
record of a batch. So a receiver that keeps the last record of each key has the latest one. Ranks are the
values of a column or timestamps. Without either, the order of arrival decides, and no state is needed.

The newest row of each key in a batch is found without a loop. The rows are sorted by rank, unless they are
already in order, and each row writes its number to the cell of its key. The newest row writes last, so its
number remains.
"""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from penstock.runtime.operators.ranking.ranked_columns import Places, RankedColumnsOperator, RankedRows, Ranks
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.state.column_table import ColumnTable
from penstock.runtime.state.time_to_live import StateTtl
from penstock.runtime.state.typed_columns import Slots

#: Name of the state column that holds the newest rank.
_NEWEST: Final = ":newest"


class FirstOperator(RankedColumnsOperator):
    """Emits the first record of each key; Flink's deduplication with `keepFirstRow`, by arrival."""

    state_name: ClassVar[str] = "first"
    call: ClassVar[str] = "dedup"

    def __init__(self, key: ColumnKey, ttl: StateTtl | None = None) -> None:
        super().__init__(key, (), ttl)

    def _chosen(self, rows: RankedRows) -> Places:
        slots, new = self._table.slots_and_new(rows.keys)
        first = new[self._table.are_first(slots[new])]
        if self._ttl is None:
            self._table.note_changed(slots[first])
            return rows.places[first]
        if self._ttl.refreshed_by == "reads_and_writes":
            return rows.places[self._first_of_lives(slots, first, rows)]
        return rows.places[self._first_after_expiry(slots, first, rows)]

    def _first_of_lives(self, slots: Slots, first: Slots, rows: RankedRows) -> Slots:
        chosen = [first]
        for is_again, some in self._lives(slots, rows):
            if is_again:
                chosen.append(some[self._table.are_first(slots[some])])
        return np.concatenate(chosen)

    def _first_after_expiry(self, slots: Slots, first: Slots, rows: RankedRows) -> Slots:
        """The first rows of new keys, and rows a TTL or more after the last emitted row of their key."""
        lifetime, moments, chosen = self._lifetime, self._moments(rows), [first]
        assert lifetime is not None, "there is a TTL"
        lifetime.use(slots[first], moments[first])
        expired = np.flatnonzero(lifetime.have_expired(slots, moments))
        while len(expired):
            again = expired[self._table.are_first(slots[expired])]
            lifetime.use(slots[again], moments[again])
            chosen.append(again)
            expired = expired[lifetime.have_expired(slots[expired], moments[expired])]
        return np.concatenate(chosen)


class LatestOperator(RankedColumnsOperator):
    """Emits the newest record of each key, once per batch."""

    state_name: ClassVar[str] = "latest"
    call: ClassVar[str] = "latest_by"

    def __init__(self, key: ColumnKey, by: str | None, ttl: StateTtl | None) -> None:
        super().__init__(key, () if by is None else (by,), ttl)

    def _chosen(self, rows: RankedRows) -> Places:
        if not rows.ranks:
            # Each record is the latest of its key, so only the keys of this batch matter.
            table = ColumnTable("this batch", 1, tracks_changes=False)
            return rows.places[table.are_last(table.slots_of(rows.keys))]
        (ranks,), slots = rows.ranks, self._table.slots_of(rows.keys)
        chosen = []
        for is_again, some in self._lives(slots, rows):
            if is_again:
                self._column_of(_NEWEST, ranks).clear(slots[some])
            chosen.append(some[self._newest(slots[some], ranks[some])])
        return rows.places[np.concatenate(chosen)]

    def _newest(self, slots: Slots, ranks: Ranks) -> Slots:
        column = self._column_of(_NEWEST, ranks)
        # Most rows of an unordered stream are older than the newest row of their key, so they need no sort.
        rows = np.flatnonzero((ranks >= column.values.take(slots)) | ~column.valid.take(slots))
        slots, ranks = slots[rows], ranks[rows]
        if (ranks[1:] >= ranks[:-1]).all():
            newest = np.flatnonzero(self._table.are_last(slots))
        else:
            order = np.argsort(ranks, kind="stable")
            newest = order[self._table.are_last(slots[order])]
        own = slots[newest]
        column.values[own], column.valid[own] = ranks[newest], True
        self._table.note_changed(own)
        return rows[newest]
