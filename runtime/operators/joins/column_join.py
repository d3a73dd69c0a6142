"""`ColumnJoinOperator`: the base of the joins of two streams over Arrow batches.

It emits late rows to side outputs. Rows with a null in their keys have no partner, so it emits them alone or
drops them. A row without a partner has nulls in the other side's columns. So the operator saves the types of
the columns of both sides in snapshots.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow.types import is_null

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.aggregation.batch_columns import plain_column
from penstock.runtime.operators.functions.input_keys import InputKeys
from penstock.runtime.operators.functions.record_functions import arrow_parts
from penstock.runtime.operators.held_watermark import ReachedWatermark
from penstock.runtime.operators.joins.column_names import Columns, OutputColumns, columns_of
from penstock.runtime.operators.joins.interval_join import LEFT, REACHED, RIGHT, SIDES, Side, no_timestamps
from penstock.runtime.operators.joins.join_shape import SHAPE, JoinShape
from penstock.runtime.operators.metrics import LATE_OF_SIDE, ROWS_OF_SIDE, Gauge
from penstock.runtime.operators.operator import (
    BatchFormats,
    OperatorContext,
    Output,
    SavedList,
    Tagged,
    TwoInputOperator,
)
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import ArrowBatch, Batch
from penstock.runtime.snapshot.handles import RedistributionMode
from penstock.runtime.state.column_log import NUMBER, TIME, ColumnLog
from penstock.runtime.state.row_ring import Moments
from penstock.runtime.state.typed_columns import Slots
from penstock.runtime.trust.data import read_batch, write_batch

#: Name of the list state with the columns of each side.
COLUMNS: Final = "columns"

#: Maximum number of rows of an output batch.
SLICE: Final = 1 << 16

Mask: TypeAlias = NDArray[np.bool_]


class ColumnJoinOperator(TwoInputOperator):
    """Joins Arrow batches; rows of dicts are converted.

    Args:
        join: Settings of the join; `str(join)` is part of the `JoinShape`.
        keys: Key of each side.
        late_tags: Names of the side outputs for late rows of each side.
    """

    batch_format: ClassVar[BatchFormats] = "both"

    keyed = True

    #: Names of the columns that the operator itself adds to the logs.
    own_columns: ClassVar[tuple[str, ...]] = ()

    _logs: tuple[ColumnLog, ColumnLog]
    _reached: ReachedWatermark

    def __init__(
        self, join: object, keys: tuple[ColumnKey, ColumnKey], suffix: str, late_tags: tuple[str, str]
    ) -> None:
        self._keys = keys
        self._shape = JoinShape.of(join, keys)
        self._late_tags = late_tags
        self._output = OutputColumns(keys, suffix)
        self._input_keys = InputKeys()
        self._late = [0, 0]
        #: Types of the columns of each side.
        self._types: tuple[dict[str, pa.DataType], dict[str, pa.DataType]] = {}, {}

    def open(self, context: OperatorContext) -> None:
        self._open_state(context)
        if any(self._rows(side) for side in (LEFT, RIGHT)):
            self._shape.check(context.restored.get(SHAPE, ()))
        self._reached = ReachedWatermark(context, REACHED)
        for side, data in context.restored.get(COLUMNS, ()):
            self._note_types(side, {field.name: field.type for field in read_batch(data).schema})
        self._gauges = [context.metrics.built_in(Gauge, name) for name in ROWS_OF_SIDE]
        for side in (LEFT, RIGHT):
            self._gauges[side].set(self._rows(side))

    @abstractmethod
    def _open_state(self, context: OperatorContext) -> None:
        """Open the state, and set `_logs`."""

    @abstractmethod
    def _joined(self, side: Side, keys: Columns, values: Columns, times: Moments) -> Iterator[Output]:
        """Join rows that are not late and have no null in their keys; `values` has the other columns."""

    @abstractmethod
    def _alone(self, side: Side, columns: Columns, times: Moments) -> Iterator[Output]:
        """Emit rows without a partner."""

    def _comes_alone(self, side: Side) -> bool:
        """Whether rows of a side are emitted if they have no partner."""
        raise NotImplementedError

    def _rows(self, side: Side) -> int:
        """Number of rows of a side in state."""
        return len(self._logs[side])

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
            reached = self._reached.timestamp
            if reached is not None and len(part) and part.timestamps.to_numpy().min() <= reached:
                is_late = pc.less_equal(part.timestamps, reached)
                self._late[side] += is_late.true_count
                yield Tagged(self._late_tags[side], part.filter(is_late))
                in_time = part.filter(pc.invert(is_late))
            if len(in_time):
                yield from self._in_time(side, in_time)
        self._gauges[side].set(self._rows(side))

    def _in_time(self, side: Side, batch: ArrowBatch) -> Iterator[Output]:
        assert batch.timestamps is not None
        times = batch.timestamps.to_numpy()
        key = self._keys[side]
        self._check_names(side, batch.batch.schema.names)
        keys = dict(zip(key.names, key.columns(batch.batch), strict=True))
        self._check_kinds(side, keys)
        values = self._values_of(side, keys, batch.batch)
        has_key = all_valid(keys, len(times))
        if not has_key.all():
            if self._comes_alone(side):
                yield from self._alone(side, filtered({**keys, **values}, ~has_key), times[~has_key])
            keys, values, times = filtered(keys, has_key), filtered(values, has_key), times[has_key]
        if len(times):
            yield from self._joined(side, keys, values, times)

    def _values_of(self, side: Side, keys: Columns, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """The columns that are not in the key, with nulls for columns that only earlier batches had."""
        values = {
            name: plain_column(column)
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
            if name not in keys
        }
        self._note_types(side, {name: column.type for name, column in {**keys, **values}.items()})
        for name, kind in self._types[side].items():
            if name not in keys and (name not in values or is_null(values[name].type)):
                values[name] = pa.nulls(batch.num_rows, kind)
        return {name: values[name] for name in self._types[side] if name not in keys}

    def _note_types(self, side: Side, types: Mapping[str, pa.DataType]) -> None:
        known = self._types[side]
        known.update({name: kind for name, kind in types.items() if name not in known or not is_null(kind)})

    def _stored(self, side: Side, slots: Slots, keys: Columns | None = None) -> dict[str, pa.Array]:
        """Rows of a log; `keys` has their key columns. Without `keys`, the keys must be of one type."""
        log = self._logs[side]
        columns = columns_of(log.keys(slots)) if keys is None else dict(keys)
        for name, kind in self._types[side].items():
            if name not in columns:
                stored = log.columns.get(name)
                if stored is None or is_null(stored.kind):
                    columns[name] = pa.nulls(len(slots), kind)
                else:
                    columns[name] = log.value(name, slots)
        return columns

    def _alike(self, side: Side, slots: Slots) -> Iterator[Slots]:
        """Split `slots` into output batches: positions of at most `SLICE` rows with keys of one type."""
        for some in self._logs[side].alike(slots):
            for start in range(0, len(some), SLICE):
                yield some[start : start + SLICE]

    def _check_names(self, side: Side, names: Sequence[str]) -> None:
        reserved = (NUMBER, TIME, *self.own_columns)
        for at, name in enumerate(names):
            if name in reserved:
                msg = (
                    f"the {SIDES[side]} stream has a column {name!r}, which is reserved for the join's state"
                )
            elif name in names[:at]:
                msg = f"a batch of the {SIDES[side]} stream has the column {name!r} twice: {', '.join(names)}"
            else:
                continue
            raise PenstockError(msg + "; rename it with map_batches")

    def _check_kinds(self, side: Side, keys: Columns) -> None:
        one = [next((v.as_py() for v in column.slice(0, 1)), None) for column in keys.values()]
        self._input_keys.check(side, [one[0] if len(one) == 1 else tuple(one)])

    def snapshot(self, checkpoint_id: int) -> Mapping[str, SavedList]:
        columns = [
            (side, write_batch(pa.RecordBatch.from_pylist([], pa.schema(types)), any_type=False))
            for side, types in enumerate(self._types)
            if types
        ]
        return {
            REACHED: self._reached.state(),
            SHAPE: self._shape.state(),
            COLUMNS: SavedList(columns, RedistributionMode.UNION),
        }

    def built_in_counts(self) -> Mapping[str, int]:
        return dict(zip(LATE_OF_SIDE, self._late, strict=True))


def all_valid(columns: Columns, rows: int) -> Mask:
    valid = np.ones(rows, np.bool_)
    for column in columns.values():
        if column.null_count:
            valid &= column.is_valid().to_numpy(zero_copy_only=False)
    return valid


def filtered(columns: Columns, mask: Mask) -> dict[str, pa.Array]:
    chosen = pa.array(mask)
    return {name: column.filter(chosen) for name, column in columns.items()}
