"""`RankedColumnsOperator`: chooses records of a batch by key, with keyed state in columns.

Rows and Arrow batches share one state: the keys, and for each key the ranks that the operator needs. Chosen
records are emitted in the format in which they arrived, as rows or as Arrow batches.

`ranks_of` converts a column that ranks records to numbers. The operator never chooses a record with a rank
that is null or NaN; it counts such records. Numbers of different units can't be compared, such as days of
dates and microseconds of times. So the operator accepts one kind of rank per column, and saves its name.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds
from numpy.typing import NDArray

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.aggregation.batch_columns import BatchColumns
from penstock.runtime.operators.aggregation.column_aggregate import filtered
from penstock.runtime.operators.expressions import rows_where
from penstock.runtime.operators.functions.function_operator import keyed_state_of, only_column_tables
from penstock.runtime.operators.keyed_state_requests import StateSweep
from penstock.runtime.operators.metrics import UNRANKED_RECORDS
from penstock.runtime.operators.operator import BatchFormats, Operator, OperatorContext, Output, SavedList
from penstock.runtime.operators.ranking.saved_ranking import RANKING, SavedRanking
from penstock.runtime.record.column_key import ColumnKey, canonical_column
from penstock.runtime.record.elements import Batch, Watermark
from penstock.runtime.snapshot.handles import RedistributionMode
from penstock.runtime.state.column_lifetime import ColumnLifetime, Moments
from penstock.runtime.state.column_table import ColumnTable
from penstock.runtime.state.time_to_live import StateTtl
from penstock.runtime.state.typed_columns import GrowingColumn, Slots, valid_of

#: Row numbers in a batch.
Places = NDArray[np.int64]

#: Ranks of rows: int64 or float64.
Ranks = NDArray[Any]

_TYPES: Final = "numbers, dates or times"

#: Name of the list state with the columns that rank, and the kinds of their ranks.
RANK_KIND: Final = "rank_kind"


@dataclass(frozen=True, slots=True)
class RankedRows:
    """Rows of a batch with their keys; each column has one type.

    Attributes:
        places: Numbers of the rows in the batch.
        ranks: The ranks by each column, or by timestamps; empty if neither ranks the rows.
        moments: The time of each row for the TTL; `None` without a TTL.
    """

    places: Places
    keys: Mapping[str, pa.Array]
    ranks: tuple[Ranks, ...]
    moments: Moments | None

    def those(self, chosen: NDArray[np.bool_]) -> RankedRows:
        return RankedRows(
            self.places[chosen],
            filtered(self.keys, pa.array(chosen)),
            tuple(ranks[chosen] for ranks in self.ranks),
            None if self.moments is None else self.moments[chosen],
        )


class RankedColumnsOperator(Operator):
    """Keeps keys and ranks in a column table.

    Args:
        by: The columns that rank records, the most important one first.

    Attributes:
        state_name: Name of the state table.
        call: Name of the stream's method, for error messages.
    """

    batch_format: ClassVar[BatchFormats] = "both"
    keyed = True
    state_name: ClassVar[str]
    call: ClassVar[str]

    _table: ColumnTable
    _lifetime: ColumnLifetime | None = None
    _sweep: StateSweep

    def __init__(self, key: ColumnKey, by: Sequence[str], ttl: StateTtl | None) -> None:
        self._key = key
        self._by = tuple(by)
        self._ttl = ttl
        self._columns = BatchColumns(key, self._by, in_order=True, call=self.call)
        self._unranked = 0
        #: Kind of ranks by column, for the columns that have had a rank.
        self._kinds: dict[str, str] = {}

    @property
    def _ranking(self) -> SavedRanking:
        return SavedRanking(self.call, state="columns", by=next(iter(self._by), None))

    def open(self, context: OperatorContext) -> None:
        self._ranking.check(context)
        self._columns.open(context)
        for name, kind in context.restored.get(RANK_KIND, ()):
            self._check_kind(name, kind)
        state = keyed_state_of(context)
        tables = only_column_tables(context, [self.state_name], f"a {self.call} by columns")
        self._table, self._time = tables[self.state_name], state.time
        if self._ttl is not None:
            self._lifetime = self._table.set_ttl(self._ttl, state.time)
        self._sweep = StateSweep(state, context.connector.clock)

    def snapshot(self, checkpoint_id: int) -> Mapping[str, SavedList]:
        kinds = SavedList(list(self._kinds.items()), RedistributionMode.BROADCAST)
        return {RANKING: self._ranking.saved(), RANK_KIND: kinds}

    @property
    def doing(self) -> str:
        return f"{self.call} by {self._key.__name__}"

    @property
    def only_reads(self) -> bool:
        return True

    def process(self, batch: Batch) -> Iterator[Output]:
        chosen = np.zeros(len(batch), np.bool_)
        for rows in self._rows_of(batch):
            chosen[self._chosen(rows)] = True
        if chosen.any():
            yield batch if chosen.all() else rows_where(batch, pa.array(chosen))

    @abstractmethod
    def _chosen(self, rows: RankedRows) -> Places:
        """Bring the state up to date, and return the places of the chosen rows."""

    def _rows_of(self, batch: Batch) -> Iterator[RankedRows]:
        stamps = batch.timestamps
        moments = None if self._lifetime is None else self._lifetime.moments(len(batch), stamps)
        for rows, keys, inputs in self._columns.of(batch):
            places = np.arange(len(batch)) if rows is None else rows
            own = None if moments is None else moments[places]
            if not self._by:
                by_time = () if stamps is None else (np.asarray(stamps, np.int64)[places],)
                yield RankedRows(places, keys, by_time, own)
                continue
            ranks, have = zip(*(self._ranks(name, inputs[name]) for name in self._by), strict=True)
            has_rank = np.logical_and.reduce(have)
            found = RankedRows(places, keys, ranks, own)
            if not has_rank.all():
                self._unranked += int(len(places) - has_rank.sum())
                found = found.those(has_rank)
            if len(found.places):
                yield found

    def process_watermark(self, watermark: Watermark) -> Iterator[Output]:
        self._time.advance(watermark.timestamp)
        return iter(())

    @property
    def flush_at(self) -> float | None:
        return self._sweep.due_at

    def flush(self) -> Iterator[Output]:
        self._sweep.run_if_due()
        return iter(())

    def built_in_counts(self) -> Mapping[str, int]:
        return {UNRANKED_RECORDS: self._unranked} if self._by else {}

    def _ranks(self, name: str, column: pa.Array) -> tuple[Ranks, NDArray[np.bool_]]:
        try:
            ranks, has_rank = ranks_of(column, name)
        except PenstockError as error:
            msg = f"{self.call}: {error}"
            raise type(error)(msg) from error
        if has_rank.any():
            self._check_kind(name, _kind_of(column.type))
        return ranks, has_rank

    def _check_kind(self, name: str, kind: str) -> None:
        known = self._kinds.setdefault(name, kind)
        if kind != known:
            msg = (
                f"{self.call}: column {name!r} has {kind} here and {known} in the state; convert "
                "the column to one type with a map or with_columns first"
            )
            raise PenstockError(msg)

    def _column_of(self, name: str, ranks: Ranks) -> GrowingColumn:
        return self._table.column(name, pa.from_numpy_dtype(ranks.dtype))

    def _lives(self, slots: Slots, rows: RankedRows) -> Iterator[tuple[bool, Slots]]:
        """Yield the indexes of the rows, grouped by the lives of their keys, earlier lives first.

        Expiry by TTL ends a life, and every row counts as a use. The first item of a pair is true if the
        state of these keys still belongs to an earlier life.
        """
        lives = None if self._lifetime is None else self._lifetime.lives(slots, self._moments(rows))
        if lives is None:
            yield False, np.arange(len(slots))
        else:
            for number in range(int(lives.max()) + 1):
                yield number > 0, np.flatnonzero(lives == number)
        if self._lifetime is not None:
            self._lifetime.use(slots, self._moments(rows))

    def _moments(self, rows: RankedRows) -> Moments:
        assert rows.moments is not None, "rows have their times if there is a TTL"
        return rows.moments


def _kind_of(kind: pa.DataType) -> str:
    """Name of the kind of ranks of a type; ranks of different kinds can't be compared."""
    names: Iterable[tuple[Callable[[pa.DataType], bool], str]] = (
        (kinds.is_integer, "whole numbers"),
        (kinds.is_floating, "floats"),
        (kinds.is_date, "dates"),
        (kinds.is_time, "times of day"),
        (kinds.is_duration, "durations"),
    )
    for is_kind, name in names:
        if is_kind(kind):
            return name
    return "times" if kind.tz is None else "times with a time zone"


def ranks_of(column: pa.Array, name: str) -> tuple[Ranks, NDArray[np.bool_]]:
    """Ranks as int64 or float64, and whether each row has one; times are microseconds, dates are days.

    Example:
        >>> ranks, have = ranks_of(pa.array([2.5, None, float("nan")]), "price")
        >>> float(ranks[0]), have.tolist()
        (2.5, [True, False, False])
    """
    kind = column.type
    has_rank = valid_of(column)
    if kinds.is_null(kind):
        return np.zeros(len(column), np.int64), has_rank
    if kinds.is_floating(kind):
        floats = column.cast(pa.float64()).to_numpy(zero_copy_only=False)  # a null becomes NaN
        return floats, ~np.isnan(floats)
    if not kinds.is_integer(kind) and not kinds.is_temporal(kind):
        msg = f"column {name!r} is of type {kind}, which can't rank records: use a column of {_TYPES}"
        raise PenstockError(msg)
    if kinds.is_temporal(kind):
        column = canonical_column(column, name)
        column = column.view(pa.int32() if kinds.is_date32(column.type) else pa.int64())
    try:
        numbers = column.cast(pa.int64())
    except pa.ArrowInvalid as error:
        msg = f"column {name!r} of type {kind} does not fit into 64 bits: {error}"
        raise PenstockError(msg) from error
    numbers = numbers.fill_null(0) if numbers.null_count else numbers
    return numbers.to_numpy(zero_copy_only=False), has_rank
