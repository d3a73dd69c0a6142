"""`stream.lookup(...)` over Arrow batches: all records of a batch are found at once.

A `pyarrow.Table` is indexed by its keys when the subtask starts. A function takes a batch of distinct keys
that are not in the cache, and returns their records with these keys. So a batch needs at most one call.

A cache knows the types of all columns that a function has returned. A snapshot has these types, so a batch
without any record has the same columns after a restart. A snapshot does not have the records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.aggregation.batch_columns import plain_column
from penstock.runtime.operators.functions.function_operator import FunctionOperator
from penstock.runtime.operators.functions.input_keys import InputKeys
from penstock.runtime.operators.functions.record_functions import arrow_parts
from penstock.runtime.operators.joins.column_join import COLUMNS, Mask, all_valid, filtered
from penstock.runtime.operators.joins.column_names import Columns, OutputColumns
from penstock.runtime.operators.joins.column_records import (
    NO_RECORD,
    OWN_COLUMNS,
    UNKNOWN,
    CachedRecords,
    KeyedRecords,
    Places,
    TableRecords,
)
from penstock.runtime.operators.joins.interval_join import LEFT, RIGHT, Side
from penstock.runtime.operators.joins.lookup_join import CacheSettings
from penstock.runtime.operators.metrics import LOOKUP_CALLS, Counter
from penstock.runtime.operators.operator import BatchFormats, Operator, OperatorContext, Output, SavedList
from penstock.runtime.operators.user_code.failure import short_repr
from penstock.runtime.ports import Clock
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import ArrowBatch, Batch, one_batch
from penstock.runtime.snapshot.handles import RedistributionMode
from penstock.runtime.state.column_table import ColumnTable
from penstock.runtime.state.own_copy import own_batch
from penstock.runtime.state.typed_columns import Slots
from penstock.runtime.trust.data import read_batch, write_batch


@dataclass(frozen=True, slots=True)
class LookedUp:
    """A batch that was looked up in a table or cache.

    Attributes:
        places: Number of the record of each row; `NO_RECORD` if the key has none, `UNKNOWN` for the rows in
            `unknown`.
        known: The columns of these records, null for other rows.
        unknown: Positions of the rows whose keys are not in the cache; empty for a table.
        missing: The distinct keys of these rows.
        of_row: For each row in `unknown`, the index of its key in `missing`.
    """

    batch: ArrowBatch
    places: Places
    known: Columns
    unknown: Slots
    missing: Columns
    of_row: Slots

    @property
    def is_complete(self) -> bool:
        return not len(self.unknown)

    @property
    def argument(self) -> pa.RecordBatch:
        """The argument of the function: the distinct keys to look up."""
        return pa.RecordBatch.from_arrays(list(self.missing.values()), names=list(self.missing))


class ColumnLookup:
    """Keys, records and output of a lookup over Arrow batches.

    Args:
        source: The table, or the settings of the cache of a function.
        emits_alone: Whether rows without a record are emitted.
    """

    _records: KeyedRecords
    _clock: Clock

    def __init__(
        self, source: pa.Table | CacheSettings, key: ColumnKey, suffix: str, emits_alone: bool
    ) -> None:
        self._source = source
        self.key = key
        self._output = OutputColumns((key, key), suffix)
        self._emits_alone = emits_alone
        self._kinds = InputKeys()
        self._cache: CachedRecords | None = None

    def open(self, context: OperatorContext) -> None:
        self._clock = context.connector.clock
        if isinstance(self._source, pa.Table):
            self._records = table = TableRecords(one_batch(self._source), self.key, "the table")
            self._check_kinds(RIGHT, table.first_key)
            return
        self._records = self._cache = CachedRecords(self._source, self.key.names)
        self.calls = context.metrics.built_in(Counter, LOOKUP_CALLS)
        for data in context.restored.get(COLUMNS, ()):
            self._cache.note(read_batch(data).schema)

    def state(self) -> Mapping[str, SavedList]:
        if self._cache is None or not self._cache.types:
            return {}
        columns = write_batch(pa.RecordBatch.from_pylist([], pa.schema(self._cache.types)), any_type=False)
        return {COLUMNS: SavedList([columns], RedistributionMode.UNION)}

    def look_up(self, batch: ArrowBatch) -> LookedUp:
        """Look up the keys of a batch in the table or cache."""
        self._check_names(batch.batch.schema.names)
        keys = dict(zip(self.key.names, self.key.columns(batch.batch), strict=True))
        places = self._places_of(keys, all_valid(keys, len(batch)))
        unknown = np.flatnonzero(places == UNKNOWN)
        missing, of_row = _distinct(keys, unknown)
        return LookedUp(batch, places, self._records.take(places), unknown, missing, of_row)

    def _places_of(self, keys: Columns, has_key: Mask) -> Places:
        some = keys if has_key.all() else filtered(keys, has_key)
        if has_key.any():
            self._check_kinds(LEFT, [column.slice(0, 1) for column in some.values()])
        places = self._records.find(some, self._clock.monotonic())
        if some is keys:
            return places
        of_all = np.full(len(has_key), NO_RECORD)
        of_all[has_key] = places
        return of_all

    def output(self, found: LookedUp, answer: pa.RecordBatch | None) -> Iterator[ArrowBatch]:
        """The rows with their records; the answer has the records of missing keys and goes into the cache."""
        batch, records, has = found.batch, found.known, found.places >= 0
        if answer is not None:
            places, values = self._keep(found.missing, answer)
            records = self._with_answer(found, places, values)
            has[found.unknown] = places[found.of_row] >= 0
        rows = dict(zip(batch.batch.schema.names, batch.batch.columns, strict=True))
        stamps = batch.timestamps
        if not self._emits_alone and not has.all():
            rows, records = filtered(rows, has), filtered(records, has)
            stamps = None if stamps is None else stamps.filter(pa.array(has))
        if self._emits_alone or has.any():
            yield ArrowBatch(self._output.pairs(rows, records), stamps)

    def _keep(self, missing: Columns, answer: pa.RecordBatch) -> tuple[Places, Columns]:
        """Put an answer into the cache; return each missing key's row in the answer, and its columns."""
        assert self._cache is not None, "only a function answers"
        columns = [plain_column(column) for column in answer.columns]
        plain = pa.RecordBatch.from_arrays(columns, names=answer.schema.names)
        answered = TableRecords(plain, self.key, "the answer of the function")
        if answer.num_rows:
            self._check_kinds(RIGHT, answered.first_key)
        now = self._clock.monotonic()
        places = answered.find(missing, now)
        self._cache.note(pa.schema(answered.types))
        self._cache.put(missing, places, answered.values, now)
        return places, answered.values

    def _with_answer(self, found: LookedUp, places: Places, values: Columns) -> Columns:
        assert self._cache is not None, "only a function answers"
        rows, more = len(found.batch), len(next(iter(values.values()), ()))
        index = np.arange(rows)
        index[found.unknown] = np.where(places < 0, -1, rows + places)[found.of_row]
        chosen = pa.array(index, mask=index < 0)
        return {
            name: pa.concat_arrays(
                [_typed(found.known.get(name), kind, rows), _typed(values.get(name), kind, more)]
            ).take(chosen)
            for name, kind in self._cache.types.items()
        }

    def _check_names(self, names: Sequence[str]) -> None:
        if len(set(names)) < len(names):
            twice = next(name for at, name in enumerate(names) if name in names[:at])
            msg = f"lookup: a batch has the column {twice!r} twice; rename one with map_batches"
            raise PenstockError(msg)

    def _check_kinds(self, side: Side, firsts: Sequence[pa.Array]) -> None:
        one = [next(iter(column.to_pylist()), None) for column in firsts]
        self._kinds.check(side, [one[0] if len(one) == 1 else tuple(one)])

    def checked_answer(self, answer: Any) -> pa.RecordBatch:
        """Return a function's answer as one batch with memory of its own."""
        if isinstance(answer, pa.Table):
            answer = one_batch(answer)
        if not isinstance(answer, pa.RecordBatch):
            msg = (
                f"it returned {short_repr(answer)} of type {type(answer).__name__}; give a pa.RecordBatch or "
                f"pa.Table of the records, with the {self.key.__name__}"
            )
            raise PenstockError(msg)
        check_table(answer, self.key, "it returned a batch that")
        return own_batch(answer)


def check_table(table: pa.Table | pa.RecordBatch, key: ColumnKey, what: str) -> None:
    """Refuse a table that lacks a key column, repeats a column, or uses a column name of the cache."""
    names = table.schema.names
    lacks = [name for name in key.names if name not in names]
    twice = [name for at, name in enumerate(names) if name in names[:at] or name in OWN_COLUMNS]
    if lacks:
        shown = ", ".join(map(repr, names)) or "none"
        msg = f"{what} lacks the key column {lacks[0]!r}; its columns are {shown}. Add the key to each record"
        raise PenstockError(msg)
    if twice:
        msg = f"{what} has the column {twice[0]!r} twice, or the lookup needs this name; rename it"
        raise PenstockError(msg)


def _distinct(keys: Columns, rows: Slots) -> tuple[Columns, Slots]:
    """The distinct keys of some rows, and the number of each row's key."""
    if not len(rows):
        return {}, rows
    chosen = pa.array(rows)
    some = {name: column.take(chosen) for name, column in keys.items()}
    table = ColumnTable("step", 1, tracks_changes=False)
    slots = table.slots_of(some)
    firsts = np.flatnonzero(table.are_first(slots))
    numbers = np.empty(int(slots.max()) + 1, np.int64)
    numbers[slots[firsts]] = np.arange(len(firsts))
    return {name: column.take(pa.array(firsts)) for name, column in some.items()}, numbers[slots]


def _typed(column: pa.Array | None, kind: pa.DataType, rows: int) -> pa.Array:
    return pa.nulls(rows, kind) if column is None or pa.types.is_null(column.type) else column


class TableLookupOperator(Operator):
    """Looks up records in a table."""

    batch_format: ClassVar[BatchFormats] = "both"

    def __init__(self, lookup: ColumnLookup) -> None:
        self._lookup = lookup

    def open(self, context: OperatorContext) -> None:
        self._lookup.open(context)

    @property
    def doing(self) -> str:
        return f"lookup by {self._lookup.key.__name__}"

    @property
    def only_reads(self) -> bool:
        return True

    def process(self, batch: Batch) -> Iterator[Output]:
        for part in arrow_parts(batch):
            yield from self._lookup.output(self._lookup.look_up(part), None)


class ColumnLookupOperator(FunctionOperator):
    """Looks up records with a function of a batch of keys."""

    kind: ClassVar[str] = "lookup"

    def __init__(self, function: Callable[[Any], Any], lookup: ColumnLookup) -> None:
        super().__init__(function)
        self._lookup = lookup

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._lookup.open(context)

    def process(self, batch: Batch) -> Iterator[Output]:
        lookup = self._lookup
        for part in arrow_parts(batch):
            found, answer = lookup.look_up(part), None
            if not found.is_complete:
                lookup.calls.increment()
                answer = lookup.checked_answer(self._function(found.argument))
            yield from lookup.output(found, answer)

    def snapshot(self, checkpoint_id: int) -> Mapping[str, SavedList]:
        return self._lookup.state()
