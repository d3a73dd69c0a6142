"""Python values as Arrow columns and back, without silent conversions.

Arrow has one type a column, Python one a value. So a column needs values of one Python type (beside `None`)
that an Arrow type carries exactly. `[1, 2.5]` is refused, not turned into floats. A caller that wants that
converts the values before.

    bool, int, float, str, bytes                 bool, int64, double, string, binary
    int from 2**63 on, none of them negative     uint64
    date, time, timedelta, naive datetime        date32, time64[us], duration[us], timestamp[us]
    datetime in a zone                           timestamp[us, zone]: one zone a column
    Decimal (38 digits)                          decimal128
    list                                         list
    tuple (one length)                           struct<_1, _2, ...>, as Spark names them
    dict (the same names everywhere)             struct
    dict (any other)                             map
    dataclass, named tuple                       struct; comes back as a dict

The way back depends on the Arrow type alone, so it is the same for columns of Spark, pandas or a file.

**Arrow bytes that a stranger may have written** are read without running code, and checked in full.

A column may be of an extension type. Its class is called when a schema is read, and when values are taken
out. Ray has one whose values are pickles. So where pickle is refused, such types are refused before Arrow
sees them: the bytes of the schema are searched for their mark. A few types of Arrow itself run no code. To
learn the names, the schema is read with another mark, which makes every column a plain one.

Arrow reads the bounds of a column from the data. `validate` of a batch looks at the lengths of its buffers,
and in full also at every offset, index and text. Only the latter keeps a reader inside of the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, timedelta, timezone, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.types as kinds

from penstock.runtime.error_text import error_text
from penstock.runtime.errors import CodecError
from penstock.runtime.record.arrow_types import NoArrowTypeError as NoArrowTypeError
from penstock.runtime.record.arrow_types import are_of_tuple, arrow_type_of, names_of
from penstock.runtime.record.exact_values import exact_column


def to_arrow(values: Sequence[Any], name: str, kind: pa.DataType | None = None) -> pa.Array:
    """A column of values.

    Args:
        kind: Type of the column; by default the result of `arrow_type_of`.

    Raises:
        NoArrowTypeError: No Arrow type carries the values exactly, or `kind` does not.

    Example:
        >>> to_arrow([("a", 1)], "value").type
        StructType(struct<_1: string, _2: int64>)
    """
    found = arrow_type_of(values, name) if kind is None else kind
    plain = _to_plain(found)
    try:
        members = values if plain is None else list(map(plain, values))
        # A type that was found carries them; one that the user gave is checked.
        return pa.array(members, found) if kind is None else exact_column(members, kind, name, rounds=True)
    except (pa.ArrowException, ValueError, TypeError, OverflowError, AttributeError) as error:
        msg = f"column {name!r} of type {found} can't carry its values: {error}"
        raise NoArrowTypeError(msg) from error


def from_arrow(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column: tuples for a struct `_1, _2, ...`, dicts for other structs and for maps.

    Times of less than a microsecond are refused, zones become those of `zoneinfo`.

    Raises:
        NoArrowTypeError: The column's values have no Python type that keeps them.

    Example:
        >>> from_arrow(to_arrow([("a", 1), None], "value"))
        [('a', 1), None]
    """
    kind = _in_microseconds(column.type)
    try:
        values: list[Any] = (column if kind.equals(column.type) else column.cast(kind)).to_pylist()
    except (pa.ArrowException, ValueError, OverflowError) as error:
        msg = f"a column of type {column.type} can't be read as Python values: {error}"
        raise NoArrowTypeError(msg) from error
    restore = _from_plain(kind)
    return values if restore is None else [None if v is None else restore(v) for v in values]


def zone_of(name: str) -> tzinfo:
    """The time zone of an Arrow zone name."""
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
                    msg = f"{value!r:.80} has other names"
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
    if _is_any_list(kind) and (inner := _from_plain(kind.value_type)) is not None:
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


def _is_any_list(kind: pa.DataType) -> bool:
    return bool(kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind))


def _in_microseconds(kind: pa.DataType) -> pa.DataType:
    if kinds.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if kinds.is_duration(kind):
        return pa.duration("us")
    if kinds.is_time64(kind):
        return pa.time64("us")
    if kinds.is_date64(kind):
        return pa.date32()  # Python's dates are of whole days, too
    if kinds.is_dictionary(kind):
        return _in_microseconds(kind.value_type)
    if kinds.is_list(kind):
        return pa.list_(kind.value_field.with_type(_in_microseconds(kind.value_type)))
    if kinds.is_struct(kind):
        return pa.struct([field.with_type(_in_microseconds(field.type)) for field in kind])
    return kind


#: Extension types of Arrow whose values are plain Python values.
_HARMLESS: Final = frozenset(
    {"arrow.bool8", "arrow.fixed_shape_tensor", "arrow.json", "arrow.opaque", "arrow.uuid"}
)

_MARK: Final = b"ARROW:extension:name"

_OTHER_MARK: Final = b"Arrow-extension-name"

_CONTINUED: Final = b"\xff\xff\xff\xff"

_HEAD: Final = len(_CONTINUED) + 4
#: Maximum number of rows that take no bytes, as nulls without a type do.
_MOST_EMPTY_ROWS: Final = 1 << 20


def read_batch(
    data: bytes, start: int = 0, *, any_type: bool = False, thorough: bool = True
) -> pa.RecordBatch:
    """The first batch of an Arrow IPC stream; its columns are views into the data.

    Raises:
        CodecError: A column has an extension type that may run code; the message says what to do.
        pyarrow.ArrowException: The bytes are damaged. Other errors are possible, too.
    """
    if not any_type:
        check_types(data, start)
    with pa.ipc.open_stream(pa.py_buffer(data).slice(start)) as reader:
        batch = reader.read_next_batch()
    batch.validate(full=thorough)
    if thorough:
        _check_rows(batch, len(data))
    return batch


def read_schema(data: bytes) -> pa.Schema:
    """A schema that was serialized alone; none with an extension type that may run code."""
    try:
        check_types(data)
        return pa.ipc.read_schema(pa.py_buffer(data))
    except CodecError:
        raise
    except Exception as error:  # anything: the bytes decide what goes wrong
        msg = f"a schema of {len(data)} bytes is damaged: {error_text(error)}"
        raise CodecError(msg) from error


def check_types(data: bytes, start: int = 0) -> None:
    first = start + _HEAD
    end = first + int.from_bytes(data[start + len(_CONTINUED) : first], "little")
    if data[start : start + len(_CONTINUED)] != _CONTINUED or end > len(data):
        msg = f"{len(data) - start} bytes don't begin with the schema of an Arrow stream: they are damaged"
        raise CodecError(msg)
    if data.find(_MARK, first, end) < 0:
        return
    if data.find(_OTHER_MARK, first, end) >= 0:
        msg = f"a schema has the metadata {_OTHER_MARK!r}, which no writer gives it: it is damaged"
        raise CodecError(msg)
    plain = pa.py_buffer(data[start:first] + data[first:end].replace(_MARK, _OTHER_MARK))
    _check_names(pa.ipc.read_schema(plain))
    _check_names(pa.ipc.read_schema(pa.py_buffer(data[start:end])))


def _check_names(schema: pa.Schema) -> None:
    for column in schema:
        for name in _names_in(column):
            if name not in _HARMLESS:
                msg = (
                    f"column {column.name!r} has the Arrow extension type {name!r}, which may run code where "
                    "it is read, and pickle is not allowed here (allow_pickle=False). Take its storage "
                    "(`column.storage`) before, or allow it"
                )
                raise CodecError(msg)


def _names_in(field: pa.Field) -> Iterator[str]:
    kind, metadata = field.type, field.metadata or {}
    for mark in (_MARK, _OTHER_MARK):
        if mark in metadata:
            yield metadata[mark].decode(errors="replace")
    if isinstance(kind, pa.BaseExtensionType):
        yield kind.extension_name
        if isinstance(kind, pa.FixedShapeTensorType) and kind.storage_type.list_size != math.prod(kind.shape):
            yield f"{kind.extension_name} of another size"
        kind = kind.storage_type
    if kinds.is_dictionary(kind):
        yield from _names_in(pa.field("", kind.value_type))
        return
    for number in range(kind.num_fields):
        yield from _names_in(kind.field(number))


def _check_rows(batch: pa.RecordBatch, size: int) -> None:
    """Check that no column, nor a part of one, is longer than the data could make it."""
    most = max(_MOST_EMPTY_ROWS, 8 * size)
    arrays: list[pa.Array] = list(batch.columns)
    rows = batch.num_rows
    while rows <= most and arrays:
        array = arrays.pop()
        arrays += _inside(array)
        rows = len(array)
    if rows > most:
        msg = f"{size} bytes hold {rows} values, more than one for each bit: they are damaged"
        raise CodecError(msg)


def _inside(array: pa.Array) -> list[pa.Array]:
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return [array.storage]
    if kinds.is_dictionary(kind):
        return [array.dictionary]
    if kinds.is_struct(kind) or kinds.is_union(kind):
        return [array.field(number) for number in range(kind.num_fields)]
    return [array.values] if kinds.is_nested(kind) or kinds.is_run_end_encoded(kind) else []
