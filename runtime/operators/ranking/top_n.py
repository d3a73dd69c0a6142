"""`top_n` over columns: the best records of each key.

The state has the ranks of the best records in *places*, the best one first. A new record must be better than
the record in the last place. So of records with equal ranks the incumbent stays. Nearly all records fail this
one comparison, which costs two reads. The others are inserted into the places of their keys, all keys at
once. If a key has many new records, as in the first batches, all are sorted by key, rank and arrival instead.

All records of a batch count as one step. A record that enters and leaves within a batch is not emitted.

**Changes.** With a change kind, the columns of the best records are in the state, too: a column for each
place. A record that leaves is emitted again as `"delete"`, with the timestamp of the newest record of its key
that entered. A column keeps its type. A missing column is null. A key that is forgotten after its TTL emits
no change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.aggregation.batch_columns import plain_column
from penstock.runtime.operators.aggregation.column_aggregate import distinct, rounds_of
from penstock.runtime.operators.functions.record_functions import arrow_parts
from penstock.runtime.operators.operator import Output
from penstock.runtime.operators.ranking.ranked_columns import Places, RankedColumnsOperator, RankedRows, Ranks
from penstock.runtime.operators.ranking.saved_ranking import SavedRanking
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import ArrowBatch, Batch
from penstock.runtime.state.time_to_live import StateTtl
from penstock.runtime.state.typed_columns import Slots

#: Kinds of changes in the output.
ChangeKind: TypeAlias = Literal["insert", "delete"]

#: Maximum number of places of a key: each is a column of the state.
MOST_PLACES: Final = 1_000

_RANK: Final = ":rank"

#: Maximum number of new rows of a key for which inserting them one by one is faster than a sort.
_FEW_ROUNDS: Final = 64


def _column(name: str, place: int) -> str:
    return f"{name} #{place + 1}"


@dataclass(frozen=True, slots=True)
class _Ranking:
    """New places of the keys that a step has changed.

    Members of a ranking are numbered: the incumbents by place and key, then the new rows.

    Attributes:
        slots: The changed keys.
        rows: Indexes of the new rows, in the order of their numbers.
        members: The number of each member by key and place; -1 for an empty place.
        entered: Indexes into `rows` of the rows that have a place.
        left: The numbers of the incumbents that have lost their places.
    """

    slots: Slots
    rows: Slots
    members: NDArray[np.int64]
    entered: Slots
    left: NDArray[np.int64]

    @property
    def first_row(self) -> int:
        return self.members.size


def taken_name(name: str) -> str:
    return f"top_n: records have a column {name!r} already; give change_kind another name"


def ranking_of_top_n(
    state: str, by: str | None, n: int, change_kind: str | None, *, descending: bool
) -> SavedRanking:
    """The arguments of `top_n` on which its state depends; it has whole records if there is a change kind."""
    has_changes = change_kind is not None
    return SavedRanking("top_n", state=state, by=by, n=n, descending=descending, changes=has_changes)


class TopNOperator(RankedColumnsOperator):
    """Emits the records that enter the best `n` of their key.

    Args:
        descending: Whether the greatest ranks are the best.
    """

    state_name: ClassVar[str] = "top_n"
    call: ClassVar[str] = "top_n"

    def __init__(
        self, key: ColumnKey, by: str, n: int, *, descending: bool = True, ttl: StateTtl | None = None
    ) -> None:
        super().__init__(key, by, ttl)
        self._n = n
        self._descending = descending

    @property
    def _ranking(self) -> SavedRanking:
        return ranking_of_top_n("columns", self._by, self._n, None, descending=self._descending)

    def _chosen(self, rows: RankedRows) -> Places:
        chosen = [rows.places[:0]]
        for _, some, ranking in self._rankings(rows):
            chosen.append(rows.places[some[ranking.rows[ranking.entered]]])
        return np.concatenate(chosen)

    def _rankings(self, rows: RankedRows) -> Iterator[tuple[Ranks, Slots, _Ranking]]:
        """The rankings that the rows change, one after the other."""
        assert rows.ranks is not None, "a column ranks the records"
        slots = self._table.slots_of(rows.keys)
        for is_again, some in self._lives(slots, rows):
            is_all = len(some) == len(slots)
            own, ranks = (slots, rows.ranks) if is_all else (slots[some], rows.ranks[some])
            if is_again:
                for place in range(self._n):
                    self._column_of(_column(_RANK, place), ranks).clear(own)
            ranking = self._ranked(own, ranks)
            if ranking is not None:
                yield ranks, some, ranking

    def _ranked(self, slots: Slots, ranks: Ranks) -> _Ranking | None:
        last = self._column_of(_column(_RANK, self._n - 1), ranks)
        incumbents = last.values.take(slots)
        enters = ranks > incumbents if self._descending else ranks < incumbents
        enters |= ~last.valid.take(slots)
        rows = np.flatnonzero(enters)
        if not len(rows):
            return None
        return self._placed(slots[rows], ranks[rows], rows)

    def _placed(self, slots: Slots, ranks: Ranks, rows: Slots) -> _Ranking:
        """Place new rows; their numbers follow those of the incumbents."""
        n, keys = self._n, distinct(slots)
        columns = [self._column_of(_column(_RANK, place), ranks) for place in range(n)]
        known = np.stack([column.values[keys] for column in columns], axis=1)
        has = np.stack([column.valid[keys] for column in columns], axis=1)
        before = np.where(has, np.arange(has.size).reshape(n, len(keys)).T, -1)
        of_row = np.searchsorted(keys, slots)
        rounds = list(rounds_of(of_row))
        incumbents = before[has]
        best = self._best_first(known), before
        new = of_row, self._best_first(ranks), before.size + np.arange(len(rows))
        place = _sorted if len(rounds) > _FEW_ROUNDS else partial(_inserted, rounds)
        placed, members = place(best, new)
        placed = self._best_first(placed)
        for number, column in enumerate(columns):
            column.values[keys], column.valid[keys] = placed[:, number], members[:, number] >= 0
        self._table.note_changed(keys)
        stay = np.zeros(before.size + len(rows), np.bool_)
        stay[members[members >= 0]] = True
        left = np.sort(incumbents[~stay[incumbents]])
        return _Ranking(keys, rows, members, np.flatnonzero(stay[before.size :]), left)

    def _best_first(self, ranks: Ranks) -> Ranks:
        """Numbers whose ascending order is the order of the places; a second call converts them back."""
        if not self._descending:
            return ranks
        return -ranks if ranks.dtype.kind == "f" else ~ranks


#: Ranks by key and place, smaller ones first, and the members there.
_Places: TypeAlias = tuple[Ranks, NDArray[np.int64]]
#: Key, rank and number of each new row, in the order of arrival.
_NewRows: TypeAlias = tuple[NDArray[np.int64], Ranks, NDArray[np.int64]]


def _inserted(rounds: Sequence[Slots | None], best: _Places, new: _NewRows) -> _Places:
    """Insert rows one after the other, all keys at once."""
    (ranks, members), (of_row, new_ranks, numbers) = best, new
    every = np.arange(ranks.shape[1])
    for some in rounds:
        rows = slice(None) if some is None else some
        keys, rank, number = of_row[rows], new_ranks[rows][:, None], numbers[rows][:, None]
        own, there = ranks[keys], members[keys]
        # Incumbents of equal rank come first.
        place = ((own <= rank) & (there >= 0)).sum(axis=1)[:, None]
        for table, old, value in ((ranks, own, rank), (members, there, number)):
            shifted = np.concatenate((old[:, :1], old[:, :-1]), axis=1)
            table[keys] = np.where(every < place, old, np.where(every == place, value, shifted))
    return ranks, members


def _sorted(best: _Places, new: _NewRows) -> _Places:
    """Sort all members; better than `_inserted` if a key has many rows."""
    (ranks, members), (of_row, new_ranks, numbers) = best, new
    keys, n = members.shape
    of_key, _ = np.nonzero(members >= 0)
    all_keys = np.concatenate((of_key, of_row))
    all_ranks = np.concatenate((ranks[members >= 0], new_ranks))
    all_members = np.concatenate((members[members >= 0], numbers))
    # Incumbents come first and in the order of their places, and the sort is stable. So they win ties.
    order = np.lexsort((all_ranks, all_keys))
    ordered = all_keys[order]
    place = np.arange(len(order)) - np.searchsorted(ordered, np.arange(keys))[ordered]
    stays = place < n
    ranks, members = np.zeros_like(ranks), np.full_like(members, -1)
    ranks[ordered[stays], place[stays]] = all_ranks[order[stays]]
    members[ordered[stays], place[stays]] = all_members[order[stays]]
    return ranks, members


class ChangesOfTopNOperator(TopNOperator):
    """Emits Arrow batches of all changes; `change_kind` is the name of the column with the kind."""

    def __init__(
        self,
        key: ColumnKey,
        by: str,
        n: int,
        change_kind: str,
        *,
        descending: bool = True,
        ttl: StateTtl | None = None,
    ) -> None:
        super().__init__(key, by, n, descending=descending, ttl=ttl)
        self._change_kind = change_kind

    @property
    def _ranking(self) -> SavedRanking:
        return ranking_of_top_n("columns", self._by, self._n, self._change_kind, descending=self._descending)

    def process(self, batch: Batch) -> Iterator[Output]:
        for part in arrow_parts(batch, wanted="top_n with change_kind", instead="no change_kind"):
            if not isinstance(batch, ArrowBatch):
                part = self._complete(part)
            self._check_names(part.batch.schema.names)
            for rows in self._rows_of(part):
                for _, some, ranking in self._rankings(rows):
                    yield self._changes(part, rows.places[some[ranking.rows]], ranking)

    def _complete(self, part: ArrowBatch) -> ArrowBatch:
        """Add the columns that rows lack and the operator reads: a missing value of a row is null."""
        assert self._by is not None, "a column ranks the records"
        columns = part.batch
        for name in (*self._key.names, self._by):
            if name not in columns.schema.names:
                columns = columns.append_column(name, pa.nulls(len(part)))
        return part if columns is part.batch else ArrowBatch(columns, part.timestamps)

    def _check_names(self, names: list[str]) -> None:
        for name in names:
            if name in (self._change_kind, _RANK):
                raise PenstockError(taken_name(name))

    def _changes(self, batch: ArrowBatch, places: Places, ranking: _Ranking) -> ArrowBatch:
        """Store the records in their places, and return the changes: records that left, then new ones."""
        new = batch.batch.take(pa.array(places))
        emitted = pa.array(np.concatenate((ranking.left, ranking.first_row + ranking.entered)))
        columns = {name: plain_column(new.column(name)) for name in new.schema.names}
        known = [name.rpartition(" #")[0] for name in self._table.columns if name.endswith(" #1")]
        names = [name for name in dict.fromkeys((*known, *columns)) if name != _RANK]
        found = {name: self._stored(name, columns.get(name), ranking).take(emitted) for name in names}
        left, entered = len(ranking.left), len(ranking.entered)
        found[self._change_kind] = pa.array(["delete"] * left + ["insert"] * entered, pa.string())
        stamps = None if batch.timestamps is None else np.asarray(batch.timestamps, np.int64)[places]
        return ArrowBatch(
            pa.RecordBatch.from_arrays(list(found.values()), names=list(found)),
            None if stamps is None else pa.array(self._timestamps(stamps, ranking)),
        )

    def _stored(self, name: str, new: pa.Array | None, ranking: _Ranking) -> pa.Array:
        """Return the values of all members in a column; store the values of members that have moved."""
        slots, (keys, n) = ranking.slots, ranking.members.shape
        if new is None:
            new = pa.nulls(len(ranking.rows))
        known = self._table.columns.get(_column(name, 0))
        before = new.type if known is None else known.all[-1].kind
        if not (before.equals(new.type) or pa.types.is_null(before) or pa.types.is_null(new.type)):
            msg = (
                f"top_n: column {name!r} is of type {new.type} here and of type {before} in the state; "
                "convert the column to one type with a map or with_columns first"
            )
            raise PenstockError(msg)
        columns = [self._table.column(_column(name, place), new.type) for place in range(n)]
        kind = columns[0].kind
        members = pa.concat_arrays([*(column.take(slots).cast(kind) for column in columns), new.cast(kind)])
        for place, column in enumerate(columns):
            wanted = ranking.members[:, place]
            moved = np.flatnonzero((wanted >= 0) & (wanted != place * keys + np.arange(keys)))
            column.put(slots[moved], members.take(pa.array(wanted[moved])))
        return members

    def _timestamps(self, stamps: NDArray[np.int64], ranking: _Ranking) -> NDArray[np.int64]:
        keys = len(ranking.slots)
        newest = np.full(keys, np.iinfo(np.int64).min)
        is_row = ranking.members >= ranking.first_row
        of_key, _ = np.nonzero(is_row)
        np.maximum.at(newest, of_key, stamps[ranking.members[is_row] - ranking.first_row])
        return np.concatenate((newest[ranking.left % keys], stamps[ranking.entered]))
