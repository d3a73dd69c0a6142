"""`top_n` over columns: the best records of each key.

The state has the ranks of the best records in *places*, the best record first. A new record must be better
than the record in the last place. So of records with equal ranks the incumbent stays. Nearly all records fail
this one comparison, which costs two reads. The others are inserted into the places of their keys, all keys at
once. If a key has many new records, as in the first batches, all are sorted by key, rank and arrival instead.

**Several orders.** Each order has a column of ranks in every place. Between records with equal ranks the next
order decides. New records and the incumbents of their keys are sorted by all orders. Their positions then
replace their ranks in that step. Records with equal ranks have equal positions.

All records of a batch count as one step. A record that enters and leaves within a batch is not emitted.

**Changes.** With a change kind, the columns of the best records are in the state, too: a column for each
place. The texts of all places of a column are in one pool, so only their views move from place to place. A
record that leaves is emitted again as `"delete"`, with the timestamp of the newest record of its key
that entered. A column keeps its type. A missing column is null. A key whose state expires by its TTL emits no
change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar, Final, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.aggregation.batch_columns import plain_column
from penstock.runtime.operators.aggregation.column_aggregate import distinct, rounds_of
from penstock.runtime.operators.functions.record_functions import arrow_parts
from penstock.runtime.operators.operator import OperatorContext, Output
from penstock.runtime.operators.ranking.ranked_columns import Places, RankedColumnsOperator, RankedRows, Ranks
from penstock.runtime.operators.ranking.saved_ranking import SavedRanking
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import ArrowBatch, Batch
from penstock.runtime.state.text_column import TextColumn, TextPool, is_text
from penstock.runtime.state.time_to_live import StateTtl
from penstock.runtime.state.typed_columns import GrowingColumn, Slots

#: Kinds of changes in the output.
ChangeKind: TypeAlias = Literal["insert", "delete"]

#: Maximum number of places of a key: each is a column of the state.
MOST_PLACES: Final = 1_000

#: Prefix of the names of rank columns.
_RANK: Final = ":rank"

#: Maximum number of new rows of a key for which inserting them one by one is faster than a sort.
_FEW_ROUNDS: Final = 64


def _column(name: str, place: int) -> str:
    return f"{name} #{place + 1}"


class Order(NamedTuple):
    """A column that ranks records; with `descending` the greatest ranks are the best."""

    column: str
    descending: bool

    def best_first(self, ranks: Ranks) -> Ranks:
        """Convert ranks to numbers that ascend from the best rank to the worst."""
        if not self.descending:
            return ranks
        return -ranks if ranks.dtype.kind == "f" else ~ranks


@dataclass(frozen=True, slots=True)
class _Ranking:
    """New places of the keys that a step has changed.

    Members of a ranking are numbered: the incumbents by place and key, then the new rows.

    Attributes:
        slots: The changed keys.
        rows: Indexes of the new rows that have a place, in the order of their numbers.
        members: The number of each member by key and place; -1 for an empty place.
        left: The numbers of the incumbents that have lost their places.
    """

    slots: Slots
    rows: Slots
    members: NDArray[np.int64]
    left: NDArray[np.int64]

    @property
    def first_row(self) -> int:
        return self.members.size

    def moves(self) -> Iterator[tuple[Slots, NDArray[np.int64]]]:
        """For each place, the keys whose member there has changed, and its number."""
        keys = len(self.slots)
        for place, members in enumerate(self.members.T):
            (moved,) = ((members >= 0) & (members != place * keys + np.arange(keys))).nonzero()
            yield self.slots.take(moved), members.take(moved)


def taken_name(name: str) -> str:
    return f"top_n: records already have a column {name!r}; choose another name for change_kind"


def ranking_of_top_n(
    state: str, by: str, n: int, change_kind: str | None, descending: Sequence[bool]
) -> SavedRanking:
    """The arguments on which the state of `top_n` depends; with a change kind it has whole records."""
    has_changes = change_kind is not None
    down: bool | str = descending[0] if len(descending) == 1 else ", ".join(map(str, descending))
    return SavedRanking("top_n", state=state, by=by, n=n, descending=down, changes=has_changes)


class TopNOperator(RankedColumnsOperator):
    """Emits records that enter the best `n` of their key; the first order is the most important one."""

    state_name: ClassVar[str] = "top_n"
    call: ClassVar[str] = "top_n"

    def __init__(
        self, key: ColumnKey, orders: Sequence[Order], n: int, *, ttl: StateTtl | None = None
    ) -> None:
        super().__init__(key, [order.column for order in orders], ttl)
        self._n = n
        self._orders = orders
        #: Names of the ranks of each order in the state.
        self._rank_names = [_RANK if not at else f"{_RANK}{at + 1}" for at in range(len(orders))]

    @property
    def _ranking(self) -> SavedRanking:
        return self._ranking_of(None)

    def _ranking_of(self, change_kind: str | None) -> SavedRanking:
        descending = [order.descending for order in self._orders]
        return ranking_of_top_n("columns", ", ".join(self._by), self._n, change_kind, descending)

    def _chosen(self, rows: RankedRows) -> Places:
        chosen = [rows.places[:0]]
        for some, ranking in self._rankings(rows):
            chosen.append(rows.places[some[ranking.rows]])
        return np.concatenate(chosen)

    def _rankings(self, rows: RankedRows) -> Iterator[tuple[Slots, _Ranking]]:
        """Yield the rankings that the rows change, each with the indexes of its rows."""
        slots = self._table.slots_of(rows.keys)
        for is_again, some in self._lives(slots, rows):
            is_all = len(some) == len(slots)
            own, ranks = (slots, rows.ranks) if is_all else (slots[some], [one[some] for one in rows.ranks])
            if is_again:
                for column in chain.from_iterable(self._places_of(ranks)):
                    column.clear(own)
            ranking = self._ranked(own, ranks)
            if ranking is not None:
                yield some, ranking

    def _places_of(self, ranks: Sequence[Ranks]) -> list[list[GrowingColumn]]:
        """The columns of ranks by order and place."""
        return [
            [self._column_of(_column(name, place), own) for place in range(self._n)]
            for name, own in zip(self._rank_names, ranks, strict=True)
        ]

    def _ranked(self, slots: Slots, ranks: Sequence[Ranks]) -> _Ranking | None:
        last = [places[-1] for places in self._places_of(ranks)]
        enters = ~last[0].valid.take(slots)
        is_tied: NDArray[np.bool_] | bool = True
        for order, own, column in zip(self._orders, ranks, last, strict=True):
            incumbents = column.values.take(slots)
            enters |= is_tied & (own > incumbents if order.descending else own < incumbents)
            if column is not last[-1]:
                is_tied = is_tied & (own == incumbents)
        rows = np.flatnonzero(enters)
        if self._n == 1:
            rows = self._best_of_keys(slots, ranks, rows)
        return self._placed(slots[rows], [own[rows] for own in ranks], rows) if len(rows) else None

    def _best_of_keys(self, slots: Slots, ranks: Sequence[Ranks], rows: Slots) -> Slots:
        """The best of these rows of each key; of equal rows the first."""
        for own in self._best_first(ranks):
            found, keys = own[rows], slots[rows]
            best = np.empty(int(keys.max(initial=-1)) + 1, own.dtype)
            best[keys] = found
            np.minimum.at(best, keys, found)
            rows = rows[found == best[keys]]
        return rows[self._table.are_first(slots[rows])]

    def _placed(self, slots: Slots, ranks: Sequence[Ranks], rows: Slots) -> _Ranking:
        """Place new rows; their numbers follow those of the incumbents."""
        n, keys = self._n, distinct(slots)
        columns = self._places_of(ranks)
        known = [np.stack([column.values[keys] for column in places], axis=1) for places in columns]
        has = np.stack([column.valid[keys] for column in columns[0]], axis=1)
        before = np.where(has, np.arange(has.size).reshape(n, len(keys)).T, -1)
        of_row = self._table.last_rows(keys, slots)
        most = int(np.bincount(of_row).max())
        incumbents = before[has]
        numbers = before.size + np.arange(len(rows))
        if most > _FEW_ROUNDS:
            every = [
                np.concatenate((old[has], own))
                for old, own in zip(*(self._best_first(table) for table in (known, ranks)), strict=True)
            ]
            members = _sorted(every, before, of_row, numbers)
        else:
            of_known, of_new = self._as_one(known, ranks)
            members = _inserted(rounds_of(of_row), (of_known, before), (of_row, of_new, numbers))
        for places, old, own in zip(columns, known, ranks, strict=True):
            values = np.concatenate((old.T.ravel(), own))  # indexed by the numbers of the members
            for place, column in enumerate(places):
                column.values[keys] = values[members[:, place]]
                column.valid[keys] = members[:, place] >= 0
        self._table.note_changed(keys)
        stay = np.zeros(before.size + len(rows), np.bool_)
        stay[members[members >= 0]] = True
        left = np.sort(incumbents[~stay[incumbents]])
        has_place = stay[before.size :]
        numbers[has_place] = before.size + np.arange(int(has_place.sum()))
        is_row = members >= before.size
        members[is_row] = numbers[members[is_row] - before.size]
        return _Ranking(keys, rows[has_place], members, left)

    def _best_first(self, ranks: Sequence[Ranks]) -> list[Ranks]:
        return [order.best_first(own) for order, own in zip(self._orders, ranks, strict=True)]

    def _as_one(self, known: Sequence[Ranks], new: Sequence[Ranks]) -> tuple[Ranks, Ranks]:
        """Combine all orders into one rank, the best one smallest, for incumbents and for new rows."""
        every = self._best_first(
            [np.concatenate((old.ravel(), own)) for old, own in zip(known, new, strict=True)]
        )
        one = every[0] if len(every) == 1 else _positions(every)
        return one[: known[0].size].reshape(known[0].shape), one[known[0].size :]


def _positions(ranks: Sequence[Ranks]) -> NDArray[np.int64]:
    """The position of each row in the order of all ranks; equal rows have equal positions.

    Example:
        >>> _positions([np.array([2, 1, 2, 1]), np.array([0.5, 9.0, 0.5, 8.0])])
        array([2, 1, 2, 0])
    """
    order = np.lexsort(ranks[::-1])
    differs = np.zeros(len(order), np.bool_)
    for own in ranks:
        differs[1:] |= own[order][1:] != own[order][:-1]
    positions = np.empty(len(order), np.int64)
    positions[order] = np.cumsum(differs)
    return positions


#: Ranks by key and place, smaller ranks first, and the members there.
_Places: TypeAlias = tuple[Ranks, NDArray[np.int64]]
#: Key, rank and number of each new row, in the order of arrival.
_NewRows: TypeAlias = tuple[NDArray[np.int64], Ranks, NDArray[np.int64]]


def _inserted(rounds: Iterable[Slots | None], best: _Places, new: _NewRows) -> NDArray[np.int64]:
    """Insert one new row of each key at a time, for all keys at once."""
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
    return members


def _sorted(
    ranks: Sequence[Ranks], members: NDArray[np.int64], of_row: NDArray[np.int64], numbers: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Sort all members; faster than `_inserted` if a key has many rows.

    Args:
        ranks: The ranks of the incumbents and the new rows by each order, the best one smallest.
    """
    keys, n = members.shape
    of_key, _ = np.nonzero(members >= 0)
    all_keys = np.concatenate((of_key, of_row))
    all_members = np.concatenate((members[members >= 0], numbers))
    # Incumbents come first and in the order of their places, and the sort is stable. So they win ties.
    order = np.lexsort((*ranks[::-1], all_keys))
    ordered = all_keys[order]
    place = np.arange(len(order)) - np.searchsorted(ordered, np.arange(keys))[ordered]
    stays = place < n
    members = np.full_like(members, -1)
    members[ordered[stays], place[stays]] = all_members[order[stays]]
    return members


class ChangesOfTopNOperator(TopNOperator):
    """Emits Arrow batches of all changes; `change_kind` is the name of the column with the kind."""

    def __init__(
        self,
        key: ColumnKey,
        orders: Sequence[Order],
        n: int,
        change_kind: str,
        *,
        ttl: StateTtl | None = None,
    ) -> None:
        super().__init__(key, orders, n, ttl=ttl)
        self._change_kind = change_kind
        #: The texts of all places of a column, by its name.
        self._pools: dict[str, TextPool] = {}

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._table.set_columns(self._new_column)

    def _new_column(self, name: str, kind: pa.DataType) -> GrowingColumn:
        if not is_text(kind):
            return GrowingColumn(name, kind)
        pool = self._pools.setdefault(name.rpartition(" #")[0], TextPool())
        return TextColumn(name, kind, pool)

    @property
    def _ranking(self) -> SavedRanking:
        return self._ranking_of(self._change_kind)

    def process(self, batch: Batch) -> Iterator[Output]:
        for part in arrow_parts(batch, wanted="top_n with change_kind", instead="no change_kind"):
            if not isinstance(batch, ArrowBatch):
                part = self._complete(part)
            self._check_names(part.batch.schema.names)
            for rows in self._rows_of(part):
                for some, ranking in self._rankings(rows):
                    yield self._changes(part, rows.places[some[ranking.rows]], ranking)

    def _complete(self, part: ArrowBatch) -> ArrowBatch:
        """Add columns that the operator reads and the rows lack; their values are null."""
        columns = part.batch
        for name in (*self._key.names, *self._by):
            if name not in columns.schema.names:
                columns = columns.append_column(name, pa.nulls(len(part)))
        return part if columns is part.batch else ArrowBatch(columns, part.timestamps)

    def _check_names(self, names: list[str]) -> None:
        for name in names:
            if name == self._change_kind:
                raise PenstockError(taken_name(name))
            if name in self._rank_names:
                msg = (
                    f"top_n: records have a column {name!r}, a name that the state needs; rename the column "
                    "with with_columns, select or a map before top_n"
                )
                raise PenstockError(msg)

    def _changes(self, batch: ArrowBatch, places: Places, ranking: _Ranking) -> ArrowBatch:
        """Store the records in their places, and return the changes: records that left, then new records."""
        new = batch.batch.take(pa.array(places))
        emitted = np.concatenate((ranking.left, ranking.first_row + np.arange(len(ranking.rows))))
        moves = list(ranking.moves())
        columns = {name: plain_column(new.column(name)) for name in new.schema.names}
        known = [name.rpartition(" #")[0] for name in self._table.columns if name.endswith(" #1")]
        names = [name for name in dict.fromkeys((*known, *columns)) if name not in self._rank_names]
        found = {name: self._stored(name, columns.get(name), ranking, emitted, moves) for name in names}
        left, entered = len(ranking.left), len(ranking.rows)
        found[self._change_kind] = pa.array(["delete"] * left + ["insert"] * entered, pa.string())
        stamps = None if batch.timestamps is None else np.asarray(batch.timestamps, np.int64)[places]
        return ArrowBatch(
            pa.RecordBatch.from_arrays(list(found.values()), names=list(found)),
            None if stamps is None else pa.array(self._timestamps(stamps, ranking)),
        )

    def _stored(
        self,
        name: str,
        new: pa.Array | None,
        ranking: _Ranking,
        emitted: NDArray[np.int64],
        moves: Sequence[tuple[Slots, NDArray[np.int64]]],
    ) -> pa.Array:
        """Store a column's values of members whose place has changed, and return those of emitted members."""
        slots, n = ranking.slots, len(moves)
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
        columns = [self._table.column(_column(name, place), kind) for place in range(n)]
        # Values only move from place to place, so they stay as the state has them.
        own = columns[0].arrays_of(new.cast(kind))
        values = np.concatenate((*(column.values[slots] for column in columns), own[0]))
        valid = np.concatenate((*(column.valid[slots] for column in columns), own[1]))
        for column, (moved, members) in zip(columns, moves, strict=True):
            column.values[moved] = values.take(members)
            column.valid[moved] = valid.take(members)
        found = columns[0].array_of(values[emitted], valid[emitted])
        if isinstance(columns[0], TextColumn):
            columns[0].pool.drop_unused()
        return found

    def _timestamps(self, stamps: NDArray[np.int64], ranking: _Ranking) -> NDArray[np.int64]:
        keys = len(ranking.slots)
        newest = np.full(keys, np.iinfo(np.int64).min)
        is_row = ranking.members >= ranking.first_row
        of_key, _ = np.nonzero(is_row)
        np.maximum.at(newest, of_key, stamps[ranking.members[is_row] - ranking.first_row])
        return np.concatenate((newest[ranking.left % keys], stamps))
