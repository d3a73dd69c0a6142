"""Rows of an Arrow column by place, for the encodings that Arrow itself can't take from.

Run ends and views have no kernel for it. Such a column is decoded, taken from and encoded again, so that its
type stays.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as kinds


def take_rows(batch: pa.RecordBatch, places: pa.Array) -> pa.RecordBatch:
    """The rows at these places, in their order, copied.

    Raises:
        pa.ArrowNotImplementedError: Arrow can't take from a nested column of such an encoding.

    Example:
        >>> batch = pa.record_batch({"k": pa.array(["a", "b", "c"], pa.string_view())})
        >>> take_rows(batch, pa.array([2, 0]))["k"].to_pylist()
        ['c', 'a']
    """
    if not batch.num_columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(places), pa.struct([])))
    try:
        return batch.take(places)
    except pa.ArrowNotImplementedError:
        columns = [_taken(column, places) for column in batch.columns]
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _taken(column: pa.Array, places: pa.Array) -> pa.Array:
    kind = column.type
    if kinds.is_run_end_encoded(kind):
        import pyarrow.compute as pc  # half a tenth of a second that most subtasks never need

        return pc.run_end_encode(pc.run_end_decode(column).take(places), run_end_type=kind.run_end_type)
    if kinds.is_string_view(kind):
        return column.cast(pa.string()).take(places).cast(kind)
    if kinds.is_binary_view(kind):
        return column.cast(pa.binary()).take(places).cast(kind)
    return column.take(places)
