"""`left.join(right, on="k", within=...)` over Arrow batches.

Each side's rows are in a `RowLog`, found by key and time. A batch is joined with the other side's log, and
then added to the log of its own side. So the row that comes second finds the pair. `interval_join.py` has the
rules of time.

A column `:matched` in the log says whether a row had a partner, where the kind of join needs it. It is part
of the snapshot. The residual condition is checked first, so a pair that it refuses does not count.

Rows are deleted only as the watermark advances, never while a batch is joined. A row may come when no partner
can follow it. Such a row is joined with the rows in the log, but not added. If it has no partner, the join
emits it alone where its kind requires that.

A row with a null in its key has no partner. A join that emits rows alone emits it at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.runtime.operators.aggregation.batch_columns import plain_column
from penstock.runtime.operators.expressions import as_mask, compute
from penstock.runtime.operators.functions.function_operator import only_row_logs
from penstock.runtime.operators.functions.input_keys import InputKeys
from penstock.runtime.operators.functions.record_functions import arrow_parts
from penstock.runtime.operators.held_watermark import ReachedWatermark
from penstock.runtime.operators.joins.column_names import Columns, OutputColumns
from penstock.runtime.operators.joins.interval_join import (
    LEFT,
    REACHED,
    RIGHT,
    SIDES,
    IntervalJoin,
    Side,
    no_timestamps,
    other_side,
)
from penstock.runtime.operators.metrics import LATE_OF_SIDE
from penstock.runtime.operators.operator import (
    BatchFormats,
    OperatorContext,
    Output,
    SavedList,
    Tagged,
    TwoInputOperator,
)
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import ArrowBatch, Batch, Watermark
from penstock.runtime.snapshot.handles import RedistributionMode
from penstock.runtime.state.row_log import Moments, RowLog
from penstock.runtime.state.stable_hash_arrays import key_hashes
from penstock.runtime.state.typed_columns import Slots
from penstock.runtime.trust.data import read_batch, write_batch

#: Name of the list state with the columns of each side.
COLUMNS: Final = "columns"

#: Names of the logs.
LOGS: Final = "join_left_columns", "join_right_columns"

#: The column of a log that says whether the row had a partner.
MATCHED: Final = ":matched"

#: Rows of an output batch of expired rows.
_SLICE: Final = 1 << 16

Mask: TypeAlias = NDArray[np.bool_]


class ColumnIntervalJoinOperator(TwoInputOperator):
    """Joins Arrow batches; rows of dicts are converted.

    Args:
        keys: Key of each side.
        where: Condition over the output's columns.
        late_tags: Side output of the late rows of each side.
    """

    batch_format: ClassVar[BatchFormats] = "both"

    keyed = True

    _logs: tuple[RowLog, RowLog]
    _reached: ReachedWatermark

    def __init__(
        self,
        join: IntervalJoin,
        keys: tuple[ColumnKey, ColumnKey],
        where: pc.Expression | None,
        suffix: str,
        late_tags: tuple[str, str],
    ) -> None:
        self._join = join
        self._keys = keys
        self._where = where
        self._late_tags = late_tags
        self._output = OutputColumns(keys, suffix)
        self._input_keys = InputKeys()
        self._late = [0, 0]
        #: Types of the columns of each side besides those of the key.
        self._types: tuple[dict[str, pa.DataType], dict[str, pa.DataType]] = {}, {}
        self.makes_watermarks = join.delay > 0

    def open(self, context: OperatorContext) -> None:
        left, right = only_row_logs(context, LOGS, "a join over columns")
        self._logs = left, right
        self._reached = ReachedWatermark(context, REACHED)
        for side, data in context.restored.get(COLUMNS, ()):
            for field in read_batch(data).schema:
                self._types[side].setdefault(field.name, field.type)
        self._gauges = [context.gauge(f"rows_{side}") for side in SIDES]
        for gauge, log in zip(self._gauges, self._logs, strict=True):
            gauge.set(len(log))

    @property
    def doing(self) -> str:
        return f"joining by {self._keys[LEFT].__name__}"

    @property
    def only_reads(self) -> bool:
        return True

    def process_element1(self, batch: Batch) -> Iterator[Output]:
        return self._process(LEFT, batch)

    def process_element2(self, batch: Batch) -> Iterator[Output]:
        return self._process(RIGHT, batch)

    def _process(self, side: Side, batch: Batch) -> Iterator[Output]:
        for part in arrow_parts(batch):
            if part.timestamps is None:
                raise no_timestamps(side)
            in_time = part
            if self._reached.timestamp is not None:
                is_late = pc.less_equal(part.timestamps, self._reached.timestamp)
                if is_late.true_count:
                    self._late[side] += is_late.true_count
                    yield Tagged(self._late_tags[side], part.filter(is_late))
                    in_time = part.filter(pc.invert(is_late))
            if len(in_time):
                yield from self._joined(side, in_time)
        self._gauges[side].set(len(self._logs[side]))

    def _joined(self, side: Side, batch: ArrowBatch) -> Iterator[Output]:
        assert batch.timestamps is not None
        times = batch.timestamps.to_numpy()
        key = self._keys[side]
        keys = dict(zip(key.names, key.columns(batch.batch), strict=True))
        self._check_kinds(side, keys)
        values = {
            name: plain_column(column)
            for name, column in zip(batch.batch.schema.names, batch.batch.columns, strict=True)
            if name not in keys
        }
        self._types[side].update({name: column.type for name, column in values.items()})
        has_key = _all_valid(keys, len(times))
        if not has_key.all():
            if self._join.comes_alone(side):
                yield from self._alone(side, _filtered({**keys, **values}, ~has_key), times[~has_key])
            keys, values, times = _filtered(keys, has_key), _filtered(values, has_key), times[has_key]
            if not len(times):
                return
        hashes = key_hashes(list(keys.values()))
        other = self._logs[other_side(side)]
        first, last = self._join.distances(side)
        places, slots = other.find(keys, times + first, times + last, hashes)
        pairs, own, theirs = self._pairs(side, {**keys, **values}, places, slots)
        if pairs is not None and self._join.emits_pairs:
            stamps = np.maximum(times[own], other.times[theirs])
            yield ArrowBatch(pairs, pa.array(stamps))
        yield from self._mark(side, own, theirs, keys, values, times)

        matched = np.zeros(len(times), np.bool_)
        matched[own] = True
        yield from self._add(side, keys, values, times, matched, hashes)

    def _pairs(
        self, side: Side, columns: Columns, places: Slots, slots: Slots
    ) -> tuple[pa.RecordBatch | None, Slots, Slots]:
        """The pairs that the condition accepts, with their places in the batch and slots in the log."""
        if not len(places) or not (self._join.emits_pairs or self._where is not None):
            return None, places, slots
        mine = {name: column.take(pa.array(places)) for name, column in columns.items()}
        theirs = self._stored(other_side(side), slots)
        pairs = self._output.pairs(*((mine, theirs) if side == LEFT else (theirs, mine)))
        if self._where is None:
            return pairs, places, slots
        (result,) = compute({"where": self._where}, pairs)
        chosen = np.flatnonzero(as_mask(result, "join").fill_null(False).to_numpy(zero_copy_only=False))
        return pairs.take(pa.array(chosen)), places[chosen], slots[chosen]

    def _mark(
        self, side: Side, own: Slots, theirs: Slots, keys: Columns, values: Columns, times: Moments
    ) -> Iterator[Output]:
        """Mark rows that have found a partner; a semi join emits them."""
        other = other_side(side)
        if other in self._join.marks and len(theirs):
            log = self._logs[other]
            flags = log.columns[MATCHED].values
            new = np.unique(theirs[~flags[theirs]])
            flags[new] = True
            log.note_changed(new)
            if self._join.how == "semi" and len(new):
                yield ArrowBatch(self._output.only(self._stored(other, new)), pa.array(log.times[new]))
        if self._join.how == "semi" and side == LEFT and len(own):
            matched = np.unique(own)
            columns = {name: column.take(pa.array(matched)) for name, column in {**keys, **values}.items()}
            yield ArrowBatch(self._output.only(columns), pa.array(times[matched]))

    def _add(
        self,
        side: Side,
        keys: Columns,
        values: Columns,
        times: Moments,
        matched: Mask,
        hashes: NDArray[np.uint64],
    ) -> Iterator[Output]:
        """Add rows to the log, except those that have expired or need no partner any more."""
        join, reached = self._join, self._reached.timestamp
        expired = np.zeros(len(times), np.bool_)
        if reached is not None:
            expired = times <= join.expired(side, reached)
        if join.comes_alone(side):
            alone = expired & ~matched
            if alone.any():
                yield from self._alone(side, _filtered({**keys, **values}, alone), times[alone])
        kept = ~expired
        if not join.emits_pairs and side == LEFT:
            kept &= ~matched
        if not kept.all():
            keys, values = _filtered(keys, kept), _filtered(values, kept)
            times, matched, hashes = times[kept], matched[kept], hashes[kept]
        if side in join.marks:
            values = {**values, MATCHED: pa.array(matched)}
        if len(times):
            self._logs[side].append(keys, times, values, hashes)

    def process_watermark(self, watermark: Watermark) -> Iterator[Output]:
        reached = self._reached.advance(watermark.timestamp)
        for side in (LEFT, RIGHT):
            log = self._logs[side]
            slots = log.until(self._join.expired(side, reached))
            if self._join.comes_alone(side) and len(slots):
                alone = slots[~log.columns[MATCHED].values[slots]]
                for start in range(0, len(alone), _SLICE):
                    some = alone[start : start + _SLICE]
                    yield from self._alone(side, self._stored(side, some), log.times[some])
            log.delete(slots)
            self._gauges[side].set(len(log))
        if self.makes_watermarks:
            yield self._join.output_watermark(Watermark(reached))

    def _alone(self, side: Side, columns: Columns, times: Moments) -> Iterator[Output]:
        if self._join.how == "anti":
            yield ArrowBatch(self._output.only(columns), pa.array(times))
        else:
            yield ArrowBatch(
                self._output.alone(side, columns, self._types[other_side(side)]), pa.array(times)
            )

    def _stored(self, side: Side, slots: Slots) -> Columns:
        log = self._logs[side]
        keys = log.keys(slots)
        values = {name: column.take(slots) for name, column in log.columns.items() if name != MATCHED}
        return {**dict(zip(keys.schema.names, keys.columns, strict=True)), **values}

    def _check_kinds(self, side: Side, keys: Columns) -> None:
        one = [next((v.as_py() for v in column.slice(0, 1)), None) for column in keys.values()]
        self._input_keys.check(side, [one[0] if len(one) == 1 else tuple(one)])

    def snapshot(self, checkpoint_id: int) -> Mapping[str, SavedList]:
        columns = [
            (side, write_batch(pa.RecordBatch.from_pylist([], pa.schema(types)), any_type=False))
            for side, types in enumerate(self._types)
            if types
        ]
        return {REACHED: self._reached.state(), COLUMNS: SavedList(columns, RedistributionMode.UNION)}

    def built_in_counts(self) -> Mapping[str, int]:
        return dict(zip(LATE_OF_SIDE, self._late, strict=True))


def _all_valid(columns: Columns, rows: int) -> Mask:
    valid = np.ones(rows, np.bool_)
    for column in columns.values():
        if column.null_count:
            valid &= column.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _filtered(columns: Columns, mask: Mask) -> dict[str, pa.Array]:
    chosen = pa.array(mask)
    return {name: column.filter(chosen) for name, column in columns.items()}
