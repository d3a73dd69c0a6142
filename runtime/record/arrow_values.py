"""Python values as Arrow columns and back, and columns cast to other types, without silent conversions.

Arrow has one type per column, Python one type per value. So a column needs values of one Python type (apart
from `None`) that an Arrow type carries exactly. `[1, 2.5]` is refused, not turned into floats.

    bool, int, float, str, bytes                 bool, int64, double, string, binary
    non-negative int, some at least 2**63        uint64
    date, time, timedelta, naive datetime        date32, time64[us], duration[us], timestamp[us]
    datetime in a zone                           timestamp[us, zone]: one zone per column
    Decimal (38 digits)                          decimal128
    list                                         list
    tuple (one length)                           struct<_1, _2, ...>, as Spark names them
    dict (the same names everywhere)             struct
    dict (any other)                             map
    dataclass, named tuple                       struct; read as a dict

The conversion back depends on the Arrow type alone, so it is the same for columns of Spark, pandas or a file.

**A column of a given type.** `pa.array` turns `10.9` into 10 in a column of integers, and reads the integer 5
as 5 microseconds. It drops fields that a struct lacks. It drops the time of a `datetime` in a column of
dates, and the zone in a naive column. So the Python types are compared with the column's type, in nested
values too. Arrow checks the rest: ranges, digits, integers that a float can't hold.

**Casts.** Arrow's own cast checks ranges and digits. It silently drops fields of structs, zones, times of day
and bits of floats. It also turns strings into numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from itertools import chain
from types import NoneType
from typing import Any, Final, TypeAlias
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from penstock.runtime.record.arrow_types import (
    DECIMAL_DIGITS,
    are_of_tuple,
    arrow_type_of,
    is_list,
    names_of,
    with_leaves,
)
from penstock.runtime.record.arrow_types import NoArrowTypeError as NoArrowTypeError

#: Errors of pyarrow for values that it can't take.
ARROW_ERRORS: Final = (pa.ArrowException, TypeError, ValueError, OverflowError)
#: Types of Python and numpy that a column takes, by a test of the column's type.
_TAKEN: Final = (
    (kinds.is_boolean, (bool, np.bool_)),
    (kinds.is_integer, (int, np.integer)),
    (kinds.is_floating, (float, int, np.floating, np.integer)),
    (kinds.is_decimal, (Decimal, int, np.integer)),
    (kinds.is_string, (str,)),
    (kinds.is_large_string, (str,)),
    (kinds.is_binary, (bytes, bytearray, memoryview)),
    (kinds.is_large_binary, (bytes, bytearray, memoryview)),
    (kinds.is_fixed_size_binary, (bytes, bytearray, memoryview)),
    (kinds.is_date, (date,)),
    (kinds.is_timestamp, (datetime, np.datetime64)),
    (kinds.is_duration, (timedelta, np.timedelta64)),
    (kinds.is_time, (time,)),
)
#: Subclasses that a column of their base refuses: `True` is an `int`, a `datetime` is a `date`.
_NOT_TAKEN: Final = ((int, bool), (date, datetime), (np.integer, np.timedelta64))
#: Microseconds in each unit that is coarser than a microsecond.
_UNITS: Final = {"s": 1_000_000, "ms": 1_000}


class MisfitError(ValueError):
    """A value or a column can't be converted unchanged; the message names the column."""


def exact_column(
    values: Sequence[Any], kind: pa.DataType | None, name: str, *, rounds: bool = False
) -> pa.Array:
    """A column of values; entries may be `None`.

    Args:
        kind: The column's type; `None` lets Arrow infer it.
        rounds: Whether Python's floats may be rounded to a type of fewer bits, at the user's request.
    """
    try:
        column = pa.array(values, kind)
    except ARROW_ERRORS as error:
        if kind is not None:
            _refuse_misfits(values, kind, name, rounds)
        of = "" if kind is None else f" of type {kind}"
        msg = f"column '{name}'{of} can't be built from its values ({error})"
        raise MisfitError(msg) from error
    _refuse_misfits(values, column.type, name, rounds)
    return column


def _refuse_misfits(values: Sequence[Any], kind: pa.DataType, path: str, rounds: bool) -> None:
    nested = _NESTED.get(kind.id)
    if nested is not None:
        present = [value for value in values if value is not None]
        for part, part_kind, part_path in nested(present, kind, path):
            _refuse_misfits(part, part_kind, part_path, rounds)
    elif kinds.is_dictionary(kind):
        _refuse_misfits(values, kind.value_type, path, rounds)
    else:
        _refuse_leaves(values, kind, path, rounds)


_Parts: TypeAlias = Iterator[tuple[Sequence[Any], pa.DataType, str]]


def _parts_of_structs(values: Sequence[Any], kind: pa.DataType, path: str) -> _Parts:
    names = [field.name for field in kind]
    if set(map(type, values)) <= {dict} and all(map(set(names).issuperset, values)):
        for field in kind:
            yield [value.get(field.name) for value in values], field.type, f"{path}.{field.name}"
        return
    rows = [_members(value, names, kind, path) for value in values]
    for index, field in enumerate(kind):
        yield [row[index] for row in rows], field.type, f"{path}.{field.name}"


def _parts_of_maps(values: Sequence[Any], kind: pa.DataType, path: str) -> _Parts:
    pairs = list(chain.from_iterable(_pairs(value, kind, path) for value in values))
    yield [key for key, _ in pairs], kind.key_type, f"{path}.key"
    yield [item for _, item in pairs], kind.item_type, f"{path}.value"


def _parts_of_lists(values: Sequence[Any], kind: pa.DataType, path: str) -> _Parts:
    if not set(map(type, values)) <= {list}:
        values = [_elements(value, kind, path) for value in values]
    yield list(chain.from_iterable(values)), kind.value_type, f"{path}[]"


#: Functions that split nested values into columns of their parts, by type.
_NESTED: Final = {
    pa.struct([]).id: _parts_of_structs,
    pa.map_(pa.int8(), pa.int8()).id: _parts_of_maps,
    pa.list_(pa.int8()).id: _parts_of_lists,
    pa.large_list(pa.int8()).id: _parts_of_lists,
    pa.list_(pa.int8(), 1).id: _parts_of_lists,
}


def _members(value: Any, names: Sequence[str], kind: pa.DataType, path: str) -> Sequence[Any]:
    if isinstance(value, list) and all(
        isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) for pair in value
    ):
        value = dict(value)
    if isinstance(value, Mapping):
        unknown = [name for name in value if name not in names]
        if unknown:
            msg = (
                f"column '{path}' of type {kind} has no field {unknown[0]!r}, but a value is {_shown(value)}"
            )
            raise MisfitError(msg)
        return [value.get(name) for name in names]
    if isinstance(value, tuple) and len(value) == len(names):
        return value
    raise misfit(value, kind, path)


def _pairs(value: Any, kind: pa.DataType, path: str) -> Iterable[tuple[Any, Any]]:
    if type(value) is dict or isinstance(value, Mapping):
        return value.items()
    pairs: list[Any] = list(value) if isinstance(value, Iterable) else [()]
    if all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
        return pairs
    raise misfit(value, kind, path)


def _elements(value: Any, kind: pa.DataType, path: str) -> Iterable[Any]:
    """The elements to check: for a numpy array of the right type, only the first one."""
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | bytearray | Mapping):
        raise misfit(value, kind, path)
    if isinstance(value, np.ndarray) and value.dtype.kind in "iufb":
        return value[:1] if kind.value_type == pa.from_numpy_dtype(value.dtype) else value
    return value


def _refuse_leaves(values: Sequence[Any], kind: pa.DataType, path: str, rounds: bool) -> None:
    taken = next((types for is_so, types in _TAKEN if is_so(kind)), None)
    if taken is None:
        return
    odd = {found for found in set(map(type, values)) if not _is_taken(found, taken)}
    wrong: Any = next((value for value in values if type(value) in odd), None)
    if wrong is None and kinds.is_temporal(kind) and not kinds.is_date(kind):
        wrong = next((v for v in values if v is not None and not _keeps_time(v, kind)), None)
    if wrong is None and kinds.is_floating(kind) and kind != pa.float64():
        wrong = _not_kept(values, kind, rounds)
    if wrong is not None:
        raise misfit(wrong, kind, path)


def _is_taken(found: type, taken: tuple[type, ...]) -> bool:
    if found in taken or found is NoneType:
        return True
    refused = any(base in taken and issubclass(found, other) for base, other in _NOT_TAKEN)
    return issubclass(found, taken) and not refused


def _keeps_time(value: Any, kind: pa.DataType) -> bool:
    """Whether the column keeps the value's digits, and both or neither of them have a zone."""
    is_span = kinds.is_duration(kind)
    if not is_span and (getattr(value, "tzinfo", None) is None) is not (getattr(kind, "tz", None) is None):
        return False
    below: int = getattr(value, "nanoseconds" if is_span else "nanosecond", 0)
    if below:
        return False  # only pandas' times have nanoseconds, which Arrow drops in a column of microseconds
    rest: int = getattr(value, "microseconds" if is_span else "microsecond", 0)
    return kind.unit not in _UNITS or not rest % _UNITS[kind.unit]


def _not_kept(values: Sequence[Any], kind: pa.DataType, rounds: bool) -> Any:
    """A float that changes in a type of fewer bits; with `rounds`, one that becomes infinite."""
    floats = [value for value in values if isinstance(value, float | np.floating)]
    wide = np.array(floats, np.float64)
    with np.errstate(over="ignore"):
        narrow = wide.astype(kind.to_pandas_dtype())
    lost = (narrow != wide) & ~np.isnan(wide)
    if rounds:
        lost &= np.isinf(narrow)
    return floats[int(np.argmax(lost))] if lost.any() else None


def misfit(value: Any, kind: pa.DataType, path: str) -> MisfitError:
    return MisfitError(
        f"column '{path}' of type {kind} can't hold {_shown(value)} of type {type(value).__name__} unchanged"
    )


def _shown(value: Any) -> str:
    return f"{value!r:.80}"


def exact_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch with the columns of a schema, in its order; both have the same names."""
    columns = [exact_cast(batch.column(field.name), field.type, field.name) for field in schema]
    for field, column in zip(schema, columns, strict=True):
        if not field.nullable and column.null_count:
            msg = f"column '{field.name}' is 'not null' but holds nulls"
            raise MisfitError(msg)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def exact_cast(column: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    """A column in another type, with the same values."""
    if column.type.equals(kind):
        return column
    _refuse_types(column.type, kind, name, nested=False)
    try:
        if kinds.is_integer(column.type) and kinds.is_decimal(kind):
            return _as_decimal(column, kind)
        cast = column.cast(kind)
    except ARROW_ERRORS as error:
        msg = f"column '{name}' of type {column.type} can't be cast to {kind} unchanged ({error})"
        raise MisfitError(msg) from error
    if _is_narrower(column.type, kind):
        import pyarrow.compute as pc  # slow to load, and rarely needed

        same = pc.or_(pc.equal(cast.cast(column.type), column), pc.is_nan(column))
        if not pc.all(same).as_py():
            raise _misfit(column.type, kind, name)
    return cast


def _as_decimal(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast integers; Arrow's own cast demands room for the largest value of the type."""
    whole = column.cast(pa.decimal128(DECIMAL_DIGITS, 0))
    return whole.cast(pa.decimal128(DECIMAL_DIGITS, kind.scale)).cast(kind)


def _refuse_types(source: pa.DataType, kind: pa.DataType, path: str, *, nested: bool) -> None:
    """Refuse casts that may change values where Arrow does not check."""
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
    elif is_list(source) and is_list(kind):
        _refuse_types(source.value_type, kind.value_type, f"{path}[]", nested=True)
    elif not _are_of_one_family(source, kind) or (nested and _is_narrower(source, kind)):
        raise _misfit(source, kind, path)


def _refuse_fields(source: pa.DataType, kind: pa.DataType, path: str) -> None:
    wanted = {field.name: field.type for field in kind}
    for field in source:
        if field.name not in wanted:
            msg = f"column '{path}' of type {kind} has no field {field.name!r}, but a batch has {source}"
            raise MisfitError(msg)
        _refuse_types(field.type, wanted[field.name], f"{path}.{field.name}", nested=True)


def _are_of_one_family(source: pa.DataType, kind: pa.DataType) -> bool:
    if kinds.is_integer(source):
        return bool(kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind))
    if kinds.is_timestamp(source) and kinds.is_timestamp(kind):
        return (source.tz is None) is (kind.tz is None)
    return any(is_so(source) and is_so(kind) for is_so in _FAMILIES)


def is_text(kind: pa.DataType) -> bool:
    return bool(kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    views = kinds.is_binary_view(kind) or kinds.is_fixed_size_binary(kind)
    return bool(views or kinds.is_binary(kind) or kinds.is_large_binary(kind))


#: Families of types within which Arrow's cast, or the comparison after it, notices every loss.
_FAMILIES: Final[tuple[Callable[[Any], bool], ...]] = (
    is_text,
    is_bytes,
    kinds.is_floating,
    kinds.is_decimal,
    kinds.is_date,
    kinds.is_duration,
    kinds.is_time,
)


def _is_narrower(source: pa.DataType, kind: pa.DataType) -> bool:
    return bool(kinds.is_floating(source) and kinds.is_floating(kind) and kind.bit_width < source.bit_width)


def _misfit(source: pa.DataType, kind: pa.DataType, path: str) -> MisfitError:
    return MisfitError(f"column '{path}' of type {source} can't be cast to {kind} unchanged")


def to_arrow(values: Sequence[Any], name: str, kind: pa.DataType | None = None) -> pa.Array:
    """A column of values.

    Args:
        kind: Type of the column; by default the result of `arrow_type_of`.

    Raises:
        NoArrowTypeError: No Arrow type can hold the values exactly, or the given `kind` can't.
    """
    found = arrow_type_of(values, name) if kind is None else kind
    plain = _to_plain(found)
    try:
        members = values if plain is None else list(map(plain, values))
        # An inferred type fits the values; a type that the user gave is checked.
        return pa.array(members, found) if kind is None else exact_column(members, kind, name, rounds=True)
    except (pa.ArrowException, ValueError, TypeError, OverflowError, AttributeError) as error:
        msg = f"column {name!r} of type {found} can't hold its values: {error}"
        raise NoArrowTypeError(msg) from error


def from_arrow(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column: tuples for a struct `_1, _2, ...`, dicts for other structs and for maps.

    Times with a fraction of a microsecond are refused. Named zones become zones of `zoneinfo`. UTC and
    offsets become zones of `datetime`.

    Example:
        >>> from_arrow(to_arrow([("a", 1), None], "value"))
        [('a', 1), None]
    """
    kind = with_leaves(column.type, _in_microseconds)
    try:
        values: list[Any] = (column if kind.equals(column.type) else column.cast(kind)).to_pylist()
    except (pa.ArrowException, ValueError, OverflowError) as error:
        msg = f"a column of type {column.type} can't be read as Python values: {error}"
        raise NoArrowTypeError(msg) from error
    restore = _from_plain(kind)
    return values if restore is None else [None if v is None else restore(v) for v in values]


def zone_of(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    if name[:1] in ("+", "-"):
        hours, minutes = int(name[1:3]), int(name[-2:])
        offset = timedelta(hours=hours, minutes=minutes)
        return timezone(-offset if name[0] == "-" else offset)
    return ZoneInfo(name)


def _to_plain(kind: pa.DataType) -> Callable[[Any], Any] | None:
    if kinds.is_struct(kind):
        parts = [(f.name, _to_plain(f.type)) for f in kind]
        names = set(names_of(kind))
        is_tuple = are_of_tuple(names_of(kind))

        def struct(value: Any) -> Any:
            members: Iterable[Any]
            if value is None:
                return None
            if isinstance(value, dict):
                if not value.keys() <= names:
                    msg = f"{value!r:.80} has keys that the type lacks"
                    raise ValueError(msg)
                members = [value.get(name) for name, _ in parts]
            elif is_tuple and type(value) is tuple:
                members = value
            else:
                members = [getattr(value, name) for name, _ in parts]
            pairs = zip(parts, members, strict=True)
            return {name: member if plain is None else plain(member) for (name, plain), member in pairs}

        return struct
    if kinds.is_map(kind):
        key, item = _to_plain(kind.key_type) or _same, _to_plain(kind.item_type) or _same
        return lambda value: None if value is None else [(key(k), item(v)) for k, v in value.items()]
    if kinds.is_list(kind) and (inner := _to_plain(kind.value_type)) is not None:
        return lambda value: None if value is None else list(map(inner, value))
    return None


def _from_plain(kind: pa.DataType) -> Callable[[Any], Any] | None:
    if kinds.is_struct(kind):
        parts = [(field.name, _optional(_from_plain(field.type))) for field in kind]
        if are_of_tuple([name for name, _ in parts]):
            return lambda value: tuple(restore(value[name]) for name, restore in parts)
        if all(restore is _same for _, restore in parts):
            return None
        return lambda value: {name: restore(value[name]) for name, restore in parts}
    if kinds.is_map(kind):
        key, item = _optional(_from_plain(kind.key_type)), _optional(_from_plain(kind.item_type))
        return lambda value: {key(k): item(v) for k, v in value}
    if is_list(kind) and (inner := _from_plain(kind.value_type)) is not None:
        element = _optional(inner)
        return lambda value: list(map(element, value))
    if kinds.is_timestamp(kind) and kind.tz is not None:
        zone = zone_of(kind.tz)
        return lambda value: value.astimezone(zone)
    return None


def _same(value: Any) -> Any:
    return value


def _optional(restore: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    return _same if restore is None else lambda value: None if value is None else restore(value)


def _in_microseconds(kind: pa.DataType) -> pa.DataType:
    if kinds.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if kinds.is_duration(kind):
        return pa.duration("us")
    if kinds.is_time64(kind):
        return pa.time64("us")
    if kinds.is_date64(kind):
        return pa.date32()  # Python's dates are whole days, too
    return with_leaves(kind.value_type, _in_microseconds) if kinds.is_dictionary(kind) else kind
