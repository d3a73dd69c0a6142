"""Casts of columns to the numbers that aggregate functions compute with."""

from __future__ import annotations

import reprlib
from typing import NoReturn

import pyarrow as pa
import pyarrow.types as kinds

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.aggregation.column_aggregate import ColumnAggregate


def widened(column: pa.Array, function: ColumnAggregate) -> pa.Array:
    """Numbers in their widest type: int64 of whole numbers and truth values, doubles, decimals as they are.

    Raises:
        PenstockError: They are no numbers, or do not fit 64 bits.
    """
    kind = column.type
    if kinds.is_null(kind) or kinds.is_decimal128(kind):
        return column
    if kinds.is_integer(kind) or kinds.is_boolean(kind):
        return column if kind.equals(pa.int64()) else _cast(column, pa.int64(), function)
    if kinds.is_floating(kind):
        return _cast(column, pa.float64(), function)
    _need_numbers(column, function)


def as_doubles(column: pa.Array, function: ColumnAggregate) -> pa.Array:
    """Numbers as doubles, which may lose digits.

    Raises:
        PenstockError: They are no numbers.
    """
    kind = column.type
    if kinds.is_boolean(kind):
        return column.cast(pa.int8()).cast(pa.float64())
    if kinds.is_null(kind) or kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind):
        return column.cast(pa.float64(), safe=False)
    _need_numbers(column, function)


def _need_numbers(column: pa.Array, function: ColumnAggregate) -> NoReturn:
    msg = f"{type(function).__name__}({function.column!r}) needs numbers; the column is of type {column.type}"
    if len(values := column.drop_null()):
        msg += f" and holds {reprlib.repr(values[0].as_py())}"
    raise PenstockError(msg)


def _cast(column: pa.Array, kind: pa.DataType, function: ColumnAggregate) -> pa.Array:
    try:
        return column.cast(kind)
    except pa.ArrowInvalid as error:
        msg = f"{type(function).__name__}({function.column!r}): {error}; cast the column yourself"
        raise PenstockError(msg) from error
