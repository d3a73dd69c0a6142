"""Moments of an Arrow column as event time: whole microseconds since the epoch."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from penstock.runtime.errors import PenstockError


def micros_of_column(batch: pa.RecordBatch, name: str) -> pa.Int64Array:
    """The moments of a column: timestamps with a time zone, or whole numbers of microseconds.

    What is finer than a microsecond is cut off.

    Raises:
        PenstockError: The column is not there, has another type, or holds a null; names it.

    Example:
        >>> batch = pa.record_batch({"at": pa.array([5_000], pa.timestamp("ms", "UTC"))})
        >>> micros_of_column(batch, "at").to_pylist()
        [5000000]
    """
    places = batch.schema.get_all_field_indices(name)
    if len(places) != 1:
        what = "several columns" if places else "no column"
        msg = f"a batch has {what} {name!r} for timestamps: it has {', '.join(map(repr, batch.schema.names))}"
        raise PenstockError(msg)
    column = batch.column(places[0])
    if kinds.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.null_count:
        import pyarrow.compute as pc  # half a tenth of a second that most subtasks never need

        place = pc.index(column.is_null(), True).as_py()
        msg = f"the timestamp column {name!r} is null in row {place} of a batch; filter such rows out before"
        raise PenstockError(msg)
    return _micros(column, name)


def _micros(column: pa.Array, name: str) -> pa.Int64Array:
    kind = column.type
    try:
        if kinds.is_timestamp(kind) and kind.tz is not None:
            if kind.unit == "ns":
                nanos = column.view(pa.int64()).to_numpy()
                return pa.array(np.floor_divide(nanos, 1_000))
            return column.cast(pa.timestamp("us", kind.tz)).view(pa.int64())
        if kinds.is_integer(kind):
            return column.cast(pa.int64())
    except pa.ArrowInvalid as error:
        msg = f"the timestamp column {name!r} of type {kind} holds moments that are too far: {error}"
        raise PenstockError(msg) from error
    what = "has no time zone; cast it to one, for example pa.timestamp('us', 'UTC')"
    if not kinds.is_timestamp(kind):
        what = "holds no moments; it takes timestamps with a time zone, or integers of microseconds"
    msg = f"the timestamp column {name!r} of type {kind} {what}"
    raise PenstockError(msg)
