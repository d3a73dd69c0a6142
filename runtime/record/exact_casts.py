"""Arrow columns cast to other types without a change; what would change is refused.

Arrow's own cast checks ranges and digits. It misses losses where a struct has more fields, a time has a zone,
a date has a time, or a float gets fewer bits. It also makes numbers of texts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as kinds

from penstock.runtime.record.exact_values import ARROW_ERRORS, MisfitError

#: The most digits of a decimal of 128 bits.
_DIGITS: Final = 38


def exact_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch with the columns of a schema, in its order; both have the same names.

    Raises:
        MisfitError: A column can't be cast without a change, or holds nulls and must not.

    Example:
        >>> batch = pa.record_batch({"a": pa.array([1], pa.int8())})
        >>> exact_batch(batch, pa.schema({"a": pa.int64()})).schema.field("a").type
        DataType(int64)
    """
    columns = [exact_cast(batch.column(field.name), field.type, field.name) for field in schema]
    for field, column in zip(schema, columns, strict=True):
        if not field.nullable and column.null_count:
            msg = f"column '{field.name}' is 'not null' and holds nulls"
            raise MisfitError(msg)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def exact_cast(column: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    """A column in another type, with the same values.

    Raises:
        MisfitError: It can't be cast without a change.

    Example:
        >>> exact_cast(pa.array([1]), pa.float64(), "price").to_pylist()
        [1.0]
    """
    if column.type.equals(kind):
        return column
    _refuse_types(column.type, kind, name, nested=False)
    try:
        if kinds.is_integer(column.type) and kinds.is_decimal(kind):
            return _as_decimal(column, kind)
        cast = column.cast(kind)
    except ARROW_ERRORS as error:
        msg = f"column '{name}' of type {column.type} can't be had as {kind} unchanged ({error})"
        raise MisfitError(msg) from error
    if _is_narrower(column.type, kind):
        import pyarrow.compute as pc  # takes longer to load than all else here

        same = pc.or_(pc.equal(cast.cast(column.type), column), pc.is_nan(column))
        if not pc.all(same).as_py():
            raise _misfit(column.type, kind, name)
    return cast


def _as_decimal(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Arrow wants digits for the largest integers of the type, though these here may be small."""
    whole = column.cast(pa.decimal128(_DIGITS, 0))
    return whole.cast(pa.decimal128(_DIGITS, kind.scale)).cast(kind)


def _refuse_types(source: pa.DataType, kind: pa.DataType, path: str, *, nested: bool) -> None:
    """Refuse casts that may change values where Arrow does not look."""
    if source.equals(kind) or kinds.is_null(source):
        return
    if kinds.is_dictionary(source):
        source = source.value_type
        _refuse_types(source, kind, path, nested=nested)
    elif kinds.is_struct(source) and kinds.is_struct(kind):
        _refuse_fields(source, kind, path)
    elif kinds.is_map(source) and kinds.is_map(kind):
        _refuse_types(source.key_type, kind.key_type, f"{path}.key", nested=True)
        _refuse_types(source.item_type, kind.item_type, f"{path}.value", nested=True)
    elif _is_list(source) and _is_list(kind):
        _refuse_types(source.value_type, kind.value_type, f"{path}[]", nested=True)
    elif not _are_of_one_family(source, kind) or (nested and _is_narrower(source, kind)):
        raise _misfit(source, kind, path)


def _refuse_fields(source: pa.DataType, kind: pa.DataType, path: str) -> None:
    wanted = {field.name: field.type for field in kind}
    for field in source:
        if field.name not in wanted:
            msg = f"column '{path}' of type {kind} has no field {field.name!r}, and a batch has {source}"
            raise MisfitError(msg)
        _refuse_types(field.type, wanted[field.name], f"{path}.{field.name}", nested=True)


def _are_of_one_family(source: pa.DataType, kind: pa.DataType) -> bool:
    if kinds.is_integer(source):
        return bool(kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind))
    if kinds.is_timestamp(source) and kinds.is_timestamp(kind):
        return (source.tz is None) is (kind.tz is None)
    return any(is_so(source) and is_so(kind) for is_so in _FAMILIES)


def _is_text(kind: pa.DataType) -> bool:
    return bool(kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    views = kinds.is_binary_view(kind) or kinds.is_fixed_size_binary(kind)
    return bool(views or kinds.is_binary(kind) or kinds.is_large_binary(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind))


#: Within these nothing changes that Arrow's cast, or the comparison behind it, does not see.
_FAMILIES: Final[tuple[Callable[[Any], bool], ...]] = (
    _is_text,
    _is_bytes,
    kinds.is_floating,
    kinds.is_decimal,
    kinds.is_date,
    kinds.is_duration,
    kinds.is_time,
)


def _is_narrower(source: pa.DataType, kind: pa.DataType) -> bool:
    return bool(kinds.is_floating(source) and kinds.is_floating(kind) and kind.bit_width < source.bit_width)


def _misfit(source: pa.DataType, kind: pa.DataType, path: str) -> MisfitError:
    return MisfitError(f"column '{path}' of type {source} can't be had as {kind} unchanged")
