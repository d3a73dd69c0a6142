"""Key columns of Arrow batches in canonical form: one form for values that are one key.

Types that encode the same values in another way become the plain one: dictionaries, run ends, views,
large texts, extension types. Times become microseconds, as Python's are. NaN becomes one bit pattern
and -0.0 becomes 0.0.
What is left is numbers, text, bytes, decimals, dates and times, each with a validity bitmap.

Lists, maps and structs are refused: they have no stable hash that a dict of rows would agree with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from penstock.runtime.errors import KeyTypeError

#: Narrower decimals are widened.
_DECIMAL_BITS: Final = 128
_ADVICE: Final = "use a tuple of its parts with a key function, or make a column of plain values before"


def column_of(batch: pa.RecordBatch, name: str) -> pa.Array:
    """The column of this name.

    Raises:
        KeyTypeError: There is none, or there are several.
    """
    places = batch.schema.get_all_field_indices(name)
    if len(places) != 1:
        what = f"has {len(places)} columns {name!r}" if places else f"has no column {name!r}"
        msg = f"key_by names the column {name!r}, and a batch {what}: it has {', '.join(batch.schema.names)}"
        raise KeyTypeError(msg)
    return batch.column(places[0])


def canonical_column(column: pa.Array | pa.ChunkedArray, name: str) -> pa.Array:
    """A column of keys in canonical form; the same object where it is that already.

    Args:
        name: Of the column, for messages.

    Raises:
        KeyTypeError: Its type has no stable hash, or a time is not of whole microseconds; names both.

    Example:
        >>> canonical_column(pa.array(["a", None, "a"]).dictionary_encode(), "k").type
        DataType(string)
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    given = column.type
    column = _plain(column, name)
    kind = column.type
    if kinds.is_floating(kind):
        return _one_nan_one_zero(column)
    target = _one_width(kind)
    if target.equals(kind):
        return column
    try:
        return column.cast(target)
    except pa.ArrowInvalid as error:
        msg = (
            f"column {name!r} of type {given} can't be a key: {error}; keys have times of whole "
            "microseconds, and a batch has texts of less than 2 GiB"
        )
        raise KeyTypeError(msg) from error


def _plain(column: pa.Array, name: str) -> pa.Array:
    """The values without their encoding."""
    given = column.type
    while (why := _why_no_key(column.type)) is None and (decode := _decoder(column.type)) is not None:
        column = decode(column)
    if why is not None:
        msg = f"column {name!r} of type {given} can't be a key: {why}"
        raise KeyTypeError(msg)
    return column


def _why_no_key(kind: pa.DataType) -> str | None:
    if isinstance(kind, pa.UuidType):
        return "cast it to text or to fixed_size_binary(16) before"
    if kinds.is_interval(kind):
        return "months and days have no fixed length; cast it to a duration or to text before"
    if kinds.is_nested(kind) and not kinds.is_run_end_encoded(kind):
        return f"it has no stable hash; {_ADVICE}"
    return None


def _decoder(kind: pa.DataType) -> Callable[[pa.Array], pa.Array] | None:
    if isinstance(kind, pa.Bool8Type):
        return lambda column: column.cast(pa.bool_())
    if isinstance(kind, pa.BaseExtensionType):
        return lambda column: column.storage
    if kinds.is_dictionary(kind):
        return lambda column: column.dictionary_decode()
    if kinds.is_run_end_encoded(kind):
        import pyarrow.compute as pc  # half a tenth of a second that most subtasks never need

        return lambda column: pc.run_end_decode(column)
    if kinds.is_string_view(kind):
        return lambda column: column.cast(pa.string())
    if kinds.is_binary_view(kind):
        return lambda column: column.cast(pa.binary())
    return None


def _one_nan_one_zero(column: pa.Array) -> pa.Array:
    values = column.to_numpy(zero_copy_only=False)  # a null reads NaN
    is_nan, is_zero = values != values, values == 0
    if not is_nan.any() and not (is_zero & np.signbit(values)).any():
        return column
    values = values.copy()
    values[is_zero] = 0.0
    values[is_nan] = np.nan
    mask = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    return pa.array(values, column.type, mask=mask, from_pandas=False)


def _one_width(kind: pa.DataType) -> pa.DataType:
    if kinds.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if kinds.is_duration(kind):
        return pa.duration("us")
    if kinds.is_time(kind):
        return pa.time64("us")
    if kinds.is_large_string(kind):
        return pa.string()
    if kinds.is_large_binary(kind):
        return pa.binary()
    if kinds.is_decimal(kind) and kind.bit_width < _DECIMAL_BITS:
        return pa.decimal128(kind.precision, kind.scale)
    return pa.date32() if kinds.is_date64(kind) else kind
