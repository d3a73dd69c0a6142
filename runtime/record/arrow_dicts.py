"""Arrow batches as rows: one dict a row, made by a literal that is compiled for the names of the columns.

`dict(zip(names, values))` makes an iterator and a growing dict for each row. A literal `{'k': a, 'v': b}`
in a list comprehension is one instruction a row. It is compiled once for each list of names.

Times without a zone, and in zones of a fixed offset, are made by numpy. Arrow itself makes one Python object
after the other, with some microseconds for each time in a zone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Any, Final, TypeAlias
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from penstock.runtime.errors import PenstockError

_Literal: TypeAlias = Callable[[Sequence[Sequence[Any]]], list[dict[str, Any]]]

#: Arrow before this version makes an object of every value on the way, and numpy is several times as fast.
_LISTS_ARE_FAST: Final = int(pa.__version__.partition(".")[0]) >= 26
#: With more columns than this compiling takes longer than it saves.
_MOST_COMPILED: Final = 256

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS: Final = {"s": 1, "ms": 1_000, "us": 1_000_000}
_FIRST_SECOND: Final = -62_135_596_800
_END_OF_SECONDS: Final = 253_402_300_800
_NOT_A_TIME: Final = -(1 << 63)


class NoPythonValueError(PenstockError):
    """A column holds a value that Python has no object for; the message names the column."""


def dicts_of_arrow(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """One dict per row, from column name to value.

    Raises:
        NoPythonValueError: Python has no value for one of them, or two columns have one name; names the
            column.

    Example:
        >>> dicts_of_arrow(pa.record_batch({"a": [1, 2], "b": ["x", None]}))
        [{'a': 1, 'b': 'x'}, {'a': 2, 'b': None}]
    """
    if not batch.num_columns:
        return [{} for _ in range(batch.num_rows)]
    names = batch.schema.names
    if len(set(names)) < len(names):
        twice = next(name for at, name in enumerate(names) if name in names[:at])
        msg = f"column {twice!r} is there twice, and a row can hold one of them: rename or drop the other"
        raise NoPythonValueError(msg)
    columns = [values_of_column(name, column) for name, column in zip(names, batch.columns, strict=True)]
    return dicts_of_lists(names, columns)


def dicts_of_lists(names: Sequence[str], columns: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """One dict per row of columns that are lists of one length; there is at least one column.

    Example:
        >>> dicts_of_lists(["a", "b"], [[1, 2], ["x", None]])
        [{'a': 1, 'b': 'x'}, {'a': 2, 'b': None}]
    """
    if len(names) > _MOST_COMPILED:
        return [dict(zip(names, values, strict=False)) for values in zip(*columns, strict=True)]
    return _literal(tuple(names))(columns)


@lru_cache(maxsize=512)
def _literal(names: tuple[str, ...]) -> _Literal:
    variables = [f"v{index}" for index in range(len(names))]
    pairs = ", ".join(f"{name!r}: {variable}" for name, variable in zip(names, variables, strict=True))
    rows = "columns[0]" if len(names) == 1 else "zip(*columns)"
    # Names of columns are written as literals of strings, so that nothing in them is executed.
    code = f"lambda columns: [{{{pairs}}} for {', '.join(variables)} in {rows}]"
    return eval(code, {"zip": zip})  # type: ignore[no-any-return]


def values_of_column(name: str, column: pa.Array) -> list[Any]:
    """The values of a column as Python objects.

    Raises:
        NoPythonValueError: Python has no value for one of them; the message names the column.
    """
    try:
        return _values(column)
    except (OverflowError, ValueError) as error:
        msg = (
            f"column '{name}' of type {column.type} holds what Python has no value for ({error}): its dates "
            "and times are of the years 1 to 9999, in the zone of the column, and of whole microseconds. "
            "Take Arrow batches instead of rows, or cast the column before"
        )
        raise NoPythonValueError(msg) from error


def _values(column: pa.Array) -> list[Any]:
    # Arrow cuts what Python's times and dates don't hold; a cast refuses it.
    kind = _in_python(column.type)
    if kind != column.type:
        column = column.cast(kind)
    if kinds.is_timestamp(kind) and kind.unit in _UNITS and (times := _times(column)) is not None:
        return times
    if _LISTS_ARE_FAST:
        # `to_numpy` would import pandas where that is installed: half a second in every process.
        return column.to_pylist()  # type: ignore[no-any-return]
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    if text or (number and not column.null_count):
        return column.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]
    return column.to_pylist()  # type: ignore[no-any-return]


@lru_cache(maxsize=512)
def _in_python(kind: pa.DataType) -> pa.DataType:
    """The type with dates of whole days, and times of day of whole microseconds."""
    if kinds.is_date64(kind):
        return pa.date32()
    if kinds.is_time64(kind):
        return pa.time64("us")
    if kinds.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _in_python(kind.value_type), kind.ordered)
    if kinds.is_struct(kind):
        return pa.struct([field.with_type(_in_python(field.type)) for field in kind])
    if kinds.is_map(kind):
        return pa.map_(_in_python(kind.key_type), _in_python(kind.item_type), kind.keys_sorted)
    if kinds.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_in_python(kind.value_type)), kind.list_size)
    if kinds.is_list(kind):
        return pa.list_(kind.value_field.with_type(_in_python(kind.value_type)))
    if kinds.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_in_python(kind.value_type)))
    return kind


def _times(column: pa.Array) -> list[Any] | None:
    """The times of a column; `None` if its zone has no fixed offset, or Python has no such time."""
    kind = column.type
    epoch = None if kind.tz is None else _epoch_in(kind.tz)
    if not len(column) or (kind.tz is not None and epoch is None):
        return None
    numbers = column.view(pa.int64())
    present = numbers.drop_null()
    if len(present):
        values = _raw(present)
        if values.min() < _FIRST_SECOND * _UNITS[kind.unit] or (
            values.max() >= _END_OF_SECONDS * _UNITS[kind.unit]
        ):
            return None
    raw = _raw(numbers.fill_null(_NOT_A_TIME) if column.null_count else numbers)
    if epoch is None:
        return raw.view(f"M8[{kind.unit}]").tolist()  # type: ignore[no-any-return]
    spans: list[timedelta | None] = raw.view(f"m8[{kind.unit}]").tolist()
    if column.null_count:
        return [None if span is None else epoch + span for span in spans]
    return [epoch + span for span in spans]  # type: ignore[operator]


def _raw(numbers: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.frombuffer(numbers.buffers()[1], np.int64, len(numbers), numbers.offset * 8)


@lru_cache(maxsize=64)
def _epoch_in(zone: str) -> datetime | None:
    """The epoch in a zone of a fixed offset, where adding to wall time is exact; `None` for other zones."""
    found: tzinfo | None = pa.scalar(0, pa.timestamp("us", zone)).as_py().tzinfo
    fixed = isinstance(found, timezone) or (isinstance(found, ZoneInfo) and found.key in {"UTC", "Etc/UTC"})
    return _EPOCH.astimezone(found) if fixed else None
