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
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.types as kinds

from penstock.runtime.record.arrow_types import NoArrowTypeError as NoArrowTypeError
from penstock.runtime.record.arrow_types import are_of_tuple, arrow_type_of, is_list, names_of, with_leaves
from penstock.runtime.record.exact_values import exact_column


def to_arrow(values: Sequence[Any], name: str, kind: pa.DataType | None = None) -> pa.Array:
    """A column of values.

    Args:
        kind: Type of the column; by default the result of `arrow_type_of`.

    Raises:
        NoArrowTypeError: No Arrow type carries the values exactly, or `kind` does not.
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
        return pa.date32()  # Python's dates are of whole days, too
    return with_leaves(kind.value_type, _in_microseconds) if kinds.is_dictionary(kind) else kind
