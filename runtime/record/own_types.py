"""Arrow types of values that may be nested, and Arrow batches that do not depend on how rows were batched.

The type of a value depends on the value alone (`own_type`). Two callers treat a column of several types
differently. A file may store it as a common type that loses nothing (`common_type`). A user's function sees
columns, and their types are part of its input. So in `batches_of_rows` rows share a batch only if they have
the same names and the same types, nulls included.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import chain, groupby
from types import NoneType
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from penstock.runtime.record.arrow_types import (
    DECIMAL_DIGITS,
    PLAIN,
    NoColumnTypeError,
    refuse,
    type_of_value,
    zone_name,
)
from penstock.runtime.record.arrow_values import ARROW_ERRORS, MisfitError, exact_column
from penstock.runtime.record.row_columns import RowColumn, uniform_rows

_INT64: Final = pa.int64()
_INT64_RANGE: Final = (-(1 << 63), (1 << 63) - 1)
_NULL: Final = pa.null()


def batches_of_rows(rows: Sequence[dict[Any, Any]]) -> Iterator[pa.RecordBatch]:
    """Cut rows into batches, in order; all rows of a batch have the same names and types.

    Raises:
        NoColumnTypeError: A value has no type; the error's `place` is the index of the first such row.
    """
    try:
        batches = list(_batches_of(rows))
    except NoColumnTypeError:
        for place, row in enumerate(rows):
            try:
                list(_batches_of([row]))
            except NoColumnTypeError as error:
                error.place = place
                raise
        raise
    yield from batches


def _batches_of(rows: Sequence[dict[Any, Any]]) -> Iterator[pa.RecordBatch]:
    names_of = list(map(tuple, rows))
    if len(set(names_of)) == 1:
        yield from _batches_of_names(names_of[0], rows)
        return
    start = 0
    for names, alike in groupby(names_of):
        end = start + sum(1 for _ in alike)
        yield from _batches_of_names(names, rows[start:end])
        start = end


def _batches_of_names(names: Sequence[Any], rows: Sequence[dict[Any, Any]]) -> Iterator[pa.RecordBatch]:
    if not names:
        yield pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), pa.struct([])))
        return
    if (whole := _plain_batch(names, rows)) is not None:
        yield whole
        return
    columns = row_columns({name: [row[name] for row in rows] for name in names}, merged=False)
    for _, arrays in uniform_rows(columns, len(rows), in_order=True):
        yield pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def _plain_batch(names: Sequence[Any], rows: Sequence[dict[Any, Any]]) -> pa.RecordBatch | None:
    """The rows as one batch; `None` unless all values of a name are of one plain type."""
    arrays = []
    for name in names:
        values = [row[name] for row in rows]
        types = set(map(type, values))
        only = types.pop()
        kind = _INT64 if only is int else PLAIN.get(only)
        if types or kind is None or type(name) is not str:
            return None
        try:
            arrays.append(pa.array(values, kind))
        except ARROW_ERRORS:
            return None  # a value does not fit its type; the caller names it
    return pa.RecordBatch.from_arrays(arrays, names)


def row_columns(values: Mapping[Any, Sequence[Any]], *, merged: bool) -> dict[str, RowColumn]:
    """Make a column of the values of each name; an error names the column."""
    columns: dict[str, RowColumn] = {}
    for name, of_name in values.items():
        if type(name) is not str:
            msg = f"{name!r:.80} is the name of a column, but names must be strings"
            raise NoColumnTypeError(msg)
        try:
            columns[name] = _row_column(of_name, merged=merged)
        except NoColumnTypeError as error:
            msg = f"column {name!r}: {error}"
            raise NoColumnTypeError(msg) from error
    return columns


def _row_column(values: Sequence[Any], *, merged: bool) -> RowColumn:
    """Make a column of values, perhaps nested, each with its own type (`own_type`).

    Args:
        merged: Whether values with a common type (`common_type`) share this type. Otherwise each value keeps
            its own type, and nulls are kept apart too.
    """
    digits = None if merged else DECIMAL_DIGITS
    types = set(map(type, values)) - {NoneType}
    if len(types) == 1 and types <= {list, dict, datetime}:
        kind = _type_of_all(values, digits=digits, apart=not merged)
        if kind is not None:
            return RowColumn(values, [kind], None)
    column = RowColumn.of(values, partial(own_type, digits=digits), nulls_apart=not merged)
    return _merged(column) if merged and column.codes is not None else column


def own_type(value: Any, *, digits: int | None = None) -> pa.DataType:
    """The type of a value by itself; a list may mix integers and floats, or dicts with different fields.

    Example:
        >>> own_type([{"x": 1}, {"x": 2.5, "y": None}])
        ListType(list<item: struct<x: double, y: null>>)
    """
    if isinstance(value, dict):
        if not all(type(name) is str for name in value):
            refuse(value, "not all of its keys are strings")
        return pa.struct([(name, own_type(part, digits=digits)) for name, part in value.items()])
    if isinstance(value, list | tuple):
        found = _type_of_all(value, digits=digits, numbers=True)
        if found is None:
            refuse(value, "its elements have no common type")
        return pa.list_(found)
    try:
        return type_of_value(value, digits=digits)
    except NoColumnTypeError as error:
        if type(value).__module__ in ("builtins", "datetime", "decimal"):
            raise
        try:
            return exact_column([value], None, "value").type
        except MisfitError:
            raise error from None


def _type_of_all(
    values: Sequence[Any], *, digits: int | None, numbers: bool = False, apart: bool = False
) -> pa.DataType | None:
    """The type of all values; `None` if they have no common type, or a dict has a key that is not a string.

    Args:
        apart: Whether every value must have exactly this type by itself; otherwise the result is `None`.
    """
    types = set(map(type, values))
    has_null = NoneType in types
    types.discard(NoneType)
    if not types:
        return _NULL
    if has_null and apart:
        return None
    present = [value for value in values if value is not None] if has_null else values
    if types == {dict}:
        return _struct_of_all(present, digits=digits, numbers=numbers, apart=apart)
    if types == {list}:
        if apart and not all(present):
            return None if any(present) else pa.list_(_NULL)
        kind = _type_of_all(list(chain.from_iterable(present)), digits=digits, numbers=numbers, apart=apart)
        return None if kind is None else pa.list_(kind)
    if types == {datetime} and len(zones := {value.tzinfo for value in present}) == 1:
        return pa.timestamp("us", zone_name(zones.pop(), present[0]))
    if types == {int} and _INT64_RANGE[0] <= min(present) and max(present) <= _INT64_RANGE[1]:
        return _INT64
    if len(types) == 1 and (plain := PLAIN.get(next(iter(types)))) is not None:
        return plain
    found: pa.DataType | None = _NULL
    for value in present:
        kind = own_type(value, digits=digits)
        if apart and found not in (_NULL, kind):
            return None
        found = common_type(found, kind, numbers=numbers)
        if found is None:
            return None
    return found


def _struct_of_all(
    values: Sequence[dict[Any, Any]], *, digits: int | None, numbers: bool, apart: bool
) -> pa.DataType | None:
    names = dict.fromkeys(chain.from_iterable(values))
    if not all(type(name) is str for name in names):
        return None
    if apart and len(set(map(tuple, values))) > 1:
        return None
    fields = []
    for name in names:
        parts = [value.get(name) for value in values]
        kind = _type_of_all(parts, digits=digits, numbers=numbers, apart=apart)
        if kind is None:
            return None
        fields.append((name, kind))
    return pa.struct(fields)


def common_type(one: pa.DataType, other: pa.DataType, *, numbers: bool = False) -> pa.DataType | None:
    """The type that holds values of both unchanged; `None` if there is none.

    Nulls fit every type. A dict may lack fields. Decimals get the digits that both need. With `numbers`,
    the type of integers and floats is double.
    """
    if one.equals(other) or kinds.is_null(other):
        return one
    if kinds.is_null(one):
        return other
    if kinds.is_decimal128(one) and kinds.is_decimal128(other):
        scale = max(one.scale, other.scale)
        digits = scale + max(one.precision - one.scale, other.precision - other.scale)
        return pa.decimal128(digits, scale) if digits <= DECIMAL_DIGITS else None
    if kinds.is_list(one) and kinds.is_list(other):
        kind = common_type(one.value_type, other.value_type, numbers=numbers)
        return None if kind is None else pa.list_(kind)
    if kinds.is_struct(one) and kinds.is_struct(other):
        fields = common_fields(list(one), list(other), numbers=numbers)
        return None if fields is None else pa.struct(fields)
    if numbers and {one, other} == {_INT64, pa.float64()}:
        return pa.float64()
    return None


def common_fields(
    one: Sequence[pa.Field], other: Sequence[pa.Field], *, numbers: bool = False
) -> list[pa.Field] | None:
    """The fields of both, in the order of the first; `None` if a field has no common type.

    A field that only one of them has may be null.
    """
    more = {field.name: field for field in other}
    fields = []
    for field in one:
        beside = more.pop(field.name, None)
        if beside is None:
            fields.append(field.with_nullable(True))
            continue
        kind = common_type(field.type, beside.type, numbers=numbers)
        if kind is None:
            return None
        fields.append(field.with_type(kind).with_nullable(field.nullable or beside.nullable))
    return fields + [field.with_nullable(True) for field in more.values()]


def _merged(column: RowColumn) -> RowColumn:
    found: list[pa.DataType] = []
    code_of = []
    for kind in column.kinds:
        for code, known in enumerate(found):
            if (common := common_type(known, kind)) is not None:
                found[code] = common
                code_of.append(code)
                break
        else:
            code_of.append(len(found))
            found.append(kind)
    codes = None if len(found) == 1 else np.array(code_of, np.int64)[column.codes]
    return RowColumn(column.values, found, codes)
