"""Arrow types of Python values: of one value, and of a column as a whole.

**One value** (`type_of_value`). Batches may be cut anywhere, so the mix of values in one batch must not
decide the type of a column. Here each value has a type of its own. Columns are then made of values of one
type (`row_columns.py`).

    bool, int, float, str, bytes     bool; int64, or uint64 if larger; double; string; binary
    date, time, timedelta            date32, time64[us], duration[us]
    datetime                         timestamp[us], with its zone
    times of pandas and numpy        timestamp or duration in their own unit; dates of numpy: date32
    numbers of numpy                 as Python's
    Decimal                          decimal128 of its scale
    list, dict with string keys      list, struct

**A column** (`arrow_type_of`) is examined as a whole, level by level; `arrow_values.py` lists the types. All
lists of a column form one column of their elements. Dicts with the same names form one column for each name.
Several processes may examine parts of a column, and then unify the types that they find.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from itertools import chain
from typing import Any, Final, NoReturn
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from penstock.runtime.errors import PenstockError
from penstock.runtime.record.record_classes import describe_type

_NULL: Final = pa.null()

_INT64: Final = pa.int64()

_UINT64: Final = pa.uint64()
#: Python types that always map to the same Arrow type.
PLAIN: Final[dict[type, pa.DataType]] = {
    bool: pa.bool_(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    date: pa.date32(),
    timedelta: pa.duration("us"),
}
#: Maximum number of digits of a decimal of 128 bits.
DECIMAL_DIGITS: Final = 38
#: Units of times in pandas, numpy and Arrow.
_UNITS: Final = ("s", "ms", "us", "ns")


class NoColumnTypeError(PenstockError, TypeError):
    """A value that no Arrow column can hold exactly."""

    place: int = 0


def type_of_value(value: Any, *, digits: int | None = None) -> pa.DataType:
    """The Arrow type of a leaf, or of a list or a dict of values.

    Args:
        digits: Precision of decimals; by default as many digits as the value needs.

    Example:
        >>> type_of_value(2**63), type_of_value(b"a"), type_of_value(None)
        (DataType(uint64), DataType(binary), DataType(null))
    """
    kind = PLAIN.get(type(value))
    if kind is not None:
        return kind
    if value is None:
        return _NULL
    for base, find in _FINDERS:
        if isinstance(value, base):
            found: pa.DataType = find(value, digits)
            return found
    refuse(value, "no Arrow type fits it")


def are_family(one: pa.DataType, other: pa.DataType) -> bool:
    """Return whether values of the two types can be compared with `<`, as in Python."""
    return _family_of(one) == _family_of(other)


def _family_of(kind: pa.DataType) -> str:
    if kinds.is_boolean(kind) or kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind):
        return "number"
    if kinds.is_timestamp(kind):
        return "moment" if kind.tz is not None else "naive moment"
    if kinds.is_duration(kind):
        return "duration"
    return "date" if kinds.is_date(kind) else str(kind)


def refuse(value: Any, why: str) -> NoReturn:
    msg = f"{reprlib.repr(value)} ({describe_type(type(value))}) can't be stored exactly in a column: {why}"
    raise NoColumnTypeError(msg)


def _of_whole(value: Any, _: int | None) -> pa.DataType:
    number = int(value)
    if -(1 << 63) <= number < 1 << 63:
        return _INT64
    if 0 < number < 1 << 64:
        return _UINT64
    refuse(value, "an integer column has 64 bits; make it a decimal, a float or a string")


def _of_datetime(value: Any, _: int | None) -> pa.DataType:
    if value != value:  # pandas' NaT
        return _NULL
    # A time of pandas names its unit.
    unit = getattr(value, "unit", "us")
    return pa.timestamp(unit if unit in _UNITS else "ns", zone_name(value.tzinfo, value))


def zone_name(zone: tzinfo | None, value: Any) -> str | None:
    if zone is None:
        return None
    name = _standard_name(zone) or getattr(zone, "zone", None)  # pytz, which pandas uses, has `zone`
    if isinstance(name, str):
        return name
    refuse(value, "its zone has no name; use zoneinfo, or an offset of whole minutes")


def _standard_name(zone: tzinfo) -> str | None:
    """The name of a zone of `zoneinfo`, or of an offset of whole minutes."""
    if isinstance(zone, ZoneInfo):
        return zone.key
    if type(zone) is timezone:
        minutes, rest = divmod(zone.utcoffset(None), timedelta(minutes=1))
        if not rest:
            sign = "-" if minutes < 0 else "+"
            return f"{sign}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}" if minutes else "UTC"
    return None


def _of_time(value: time, _: int | None) -> pa.DataType:
    if value.tzinfo is not None:
        refuse(value, "Arrow's times of day have no zone")
    return pa.time64("us")


def _of_timedelta(value: Any, _: int | None) -> pa.DataType:
    unit = getattr(value, "unit", "us")
    return pa.duration(unit if unit in _UNITS else "ns")


def _of_numpy_time(value: Any, _: int | None) -> pa.DataType:
    if np.isnat(value):
        return _NULL
    unit, step = np.datetime_data(value.dtype)
    if step != 1 or unit not in (*_UNITS, "D"):
        refuse(value, f"Arrow has no times in steps of {step} {unit}; cast it to one of {', '.join(_UNITS)}")
    if isinstance(value, np.timedelta64):
        return pa.duration("s" if unit == "D" else unit)
    return pa.date32() if unit == "D" else pa.timestamp(unit)


def _of_decimal(value: Decimal, digits: int | None) -> pa.DataType:
    _, figures, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        refuse(value, "it is not a finite number")
    scale = max(0, -exponent)
    whole = max(0, len(figures) + exponent) if value else 0
    if whole + scale > (digits or DECIMAL_DIGITS):
        refuse(value, f"it has {whole + scale} digits, but a decimal has at most {DECIMAL_DIGITS}")
    return pa.decimal128(digits or max(1, whole + scale), scale)


def _of_list(value: Sequence[Any], digits: int | None) -> pa.DataType:
    found = dict.fromkeys(type_of_value(item, digits=digits) for item in value if item is not None)
    if len(found) > 1:
        refuse(value, f"it has elements of types {' and '.join(map(str, found))}")
    return pa.list_(next(iter(found), _NULL))


def _of_dict(value: dict[Any, Any], digits: int | None) -> pa.DataType:
    names = list(value)
    if not all(type(name) is str for name in names):
        refuse(value, "not all of its keys are strings")
    return pa.struct([(name, type_of_value(item, digits=digits)) for name, item in value.items()])


#: Base types, subclasses first: a `datetime` is a `date`, a `bool` is an `int`.
_FINDERS: Final[tuple[tuple[Any, Callable[[Any, int | None], pa.DataType]], ...]] = (
    (datetime, _of_datetime),
    (date, lambda *_: pa.date32()),
    (time, _of_time),
    (timedelta, _of_timedelta),
    ((np.datetime64, np.timedelta64), _of_numpy_time),
    ((bool, np.bool_), lambda *_: pa.bool_()),
    ((int, np.integer), _of_whole),
    ((float, np.floating), lambda *_: pa.float64()),
    (str, lambda *_: pa.string()),
    ((bytes, bytearray, memoryview), lambda *_: pa.binary()),
    (Decimal, _of_decimal),
    (list, _of_list),
    (dict, _of_dict),
)


_MICROSECONDS: Final = "us"


class NoArrowTypeError(PenstockError, TypeError):
    """Values that no Arrow column can hold exactly; the message names the column and a value."""


def arrow_type_of(values: Sequence[Any], name: str) -> pa.DataType:
    """The Arrow type that holds all these values exactly.

    Example:
        >>> arrow_type_of([{"n": 1}, {"n": None}, None], "value")
        StructType(struct<n: int64>)
        >>> arrow_type_of([{"n": 1}, {"m": 2}], "value")
        MapType(map<string, int64>)
    """
    present = [value for value in values if value is not None]
    types = list(dict.fromkeys(map(type, present)))
    if not types:
        return pa.null()
    if len(types) > 1:
        first, second = (next(v for v in present if type(v) is t) for t in types[:2])
        _refuse(name, f"it holds both {_shown(first)} and {_shown(second)}")
    only = types[0]
    if only in PLAIN:
        return PLAIN[only]
    find = _COLUMN_FINDERS.get(only)
    if find is not None:
        return find(present, name)
    names = record_names(only)
    if names is None:
        _refuse(name, f"it holds {_shown(present[0])}")
    return _struct([(field, [getattr(v, field) for v in present]) for field in names], name)


def unified_type(one: pa.DataType, other: pa.DataType, name: str) -> pa.DataType:
    """The type of a column that has values of both types, as `arrow_type_of` would find it."""
    if one.equals(other) or kinds.is_null(other):
        return one
    if kinds.is_null(one):
        return other
    if {one, other} == {pa.int64(), pa.uint64()}:
        return pa.uint64()  # a negative number is refused with its value when the column is made
    if kinds.is_decimal(one) and kinds.is_decimal(other):
        scale = max(one.scale, other.scale)
        return _decimal(max(one.precision - one.scale, other.precision - other.scale), scale, name)
    if kinds.is_list(one) and kinds.is_list(other):
        return pa.list_(unified_type(one.value_type, other.value_type, f"{name}[]"))
    are_structs = kinds.is_struct(one) and kinds.is_struct(other) and _is_dict(one) is _is_dict(other)
    if are_structs and set(names_of(one)) == set(names_of(other)):
        return pa.struct(
            [(f.name, unified_type(f.type, other.field(f.name).type, f"{name}.{f.name}")) for f in one]
        )
    if _is_dict(one) and _is_dict(other):
        (key, item), (other_key, other_item) = _as_map(one, name), _as_map(other, name)
        items = unified_type(item, other_item, f"{name} (its values)")
        keys = unified_type(key, other_key, f"{name} (its keys)")
        return pa.map_(pa.string() if kinds.is_null(keys) else keys, items)
    _refuse(name, f"some of its values are of type {one}, others of {other}")


def record_names(kind: type) -> tuple[str, ...] | None:
    if is_dataclass(kind):
        return tuple(field.name for field in fields(kind)) or None
    if issubclass(kind, tuple):
        return getattr(kind, "_fields", None) or None
    return None


def _refuse(name: str, what: str) -> NoReturn:
    msg = (
        f"no Arrow type can hold column {name!r} unchanged: {what}. Convert its values with a function "
        "(key=, value=), or take them encoded (encoded=True)"
    )
    raise NoArrowTypeError(msg)


def _shown(value: Any) -> str:
    return f"{value!r:.80} ({describe_type(type(value))})"


def _whole_type(values: Sequence[int], name: str) -> pa.DataType:
    least, most = min(values), max(values)
    if least >= -(1 << 63) and most < 1 << 63:
        return pa.int64()
    if least >= 0 and most < 1 << 64:
        return pa.uint64()
    if most >= 1 << 64 or least < -(1 << 63):
        _refuse(name, f"it holds {_shown(most if most >= 1 << 64 else least)} of more than 64 bits")
    _refuse(name, f"it holds both {_shown(least)} and {_shown(most)}, which no single type of 64 bits holds")


def _time_type(values: Sequence[time], name: str) -> pa.DataType:
    zoned = next((value for value in values if value.tzinfo is not None), None)
    if zoned is not None:
        _refuse(name, f"it holds {_shown(zoned)}")
    return pa.time64(_MICROSECONDS)


def _datetime_type(values: Sequence[datetime], name: str) -> pa.DataType:
    zones = {value.tzinfo: value for value in values}
    named = {_zone_name(zone, value, name): value for zone, value in zones.items()}
    if len(named) > 1:
        first, second = list(named.values())[:2]
        _refuse(name, f"it holds both {_shown(first)} and {_shown(second)}, of different zones")
    return pa.timestamp(_MICROSECONDS, next(iter(named)))


def _zone_name(zone: tzinfo | None, value: datetime, name: str) -> str | None:
    found = None if zone is None else _standard_name(zone)
    if zone is not None and found is None:
        _refuse(name, f"it holds {_shown(value)}, whose zone has no name in Arrow")
    return found


def _decimal_type(values: Sequence[Decimal], name: str) -> pa.DataType:
    whole = scale = 0
    for value in values:
        _, digits, exponent = value.as_tuple()
        if not isinstance(exponent, int):  # infinity or NaN
            _refuse(name, f"it holds {_shown(value)}")
        scale = max(scale, -exponent)
        whole = max(whole, len(digits) + exponent if value else 0)
    return _decimal(whole, scale, name)


def _decimal(whole: int, scale: int, name: str) -> pa.DataType:
    digits = max(1, whole + scale)
    if digits > DECIMAL_DIGITS:
        _refuse(name, f"its decimals need {digits} digits in all, but a type has at most {DECIMAL_DIGITS}")
    return pa.decimal128(digits, scale)


def _list_type(values: Sequence[list[Any]], name: str) -> pa.DataType:
    return pa.list_(arrow_type_of(list(chain.from_iterable(values)), f"{name}[]"))


def _tuple_type(values: Sequence[tuple[Any, ...]], name: str) -> pa.DataType:
    lengths = {len(value): value for value in values}
    if len(lengths) > 1:
        first, second = list(lengths.values())[:2]
        _refuse(name, f"it holds tuples of different lengths, {_shown(first)} and {_shown(second)}")
    if 0 in lengths:
        _refuse(name, f"it holds {_shown(())}")
    return _struct([(f"_{i}", list(part)) for i, part in enumerate(zip(*values, strict=True), 1)], name)


def _dict_type(values: Sequence[dict[Any, Any]], name: str) -> pa.DataType:
    names = list(values[0])
    same = all(value.keys() == values[0].keys() for value in values)
    if same and names and all(type(key) is str for key in names) and not are_of_tuple(names):
        return _struct([(key, [value[key] for value in values]) for key in names], name)
    keys = arrow_type_of(list(chain.from_iterable(values)), f"{name} (its keys)")
    every = list(chain.from_iterable(value.values() for value in values))
    return pa.map_(pa.string() if kinds.is_null(keys) else keys, arrow_type_of(every, f"{name} (its values)"))


def _struct(columns: Iterable[tuple[str, list[Any]]], name: str) -> pa.DataType:
    return pa.struct([(field, arrow_type_of(values, f"{name}.{field}")) for field, values in columns])


_COLUMN_FINDERS: Final[dict[type, Callable[[Any, str], pa.DataType]]] = {
    int: _whole_type,
    time: _time_type,
    datetime: _datetime_type,
    Decimal: _decimal_type,
    list: _list_type,
    tuple: _tuple_type,
    dict: _dict_type,
}


def is_list(kind: pa.DataType) -> bool:
    return bool(kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind))


def has_leaf(kind: pa.DataType, matches: Callable[[pa.DataType], bool]) -> bool:
    """Return whether a type, or a type nested in it, matches."""
    if kinds.is_dictionary(kind):
        kind = kind.value_type
    return matches(kind) or any(has_leaf(kind.field(at).type, matches) for at in range(kind.num_fields))


def with_leaves(kind: pa.DataType, convert: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A type in which `convert` replaces each type other than structs, maps and lists."""
    if kinds.is_struct(kind):
        return pa.struct([field.with_type(with_leaves(field.type, convert)) for field in kind])
    if kinds.is_map(kind):
        key, item = (with_leaves(inner, convert) for inner in (kind.key_type, kind.item_type))
        return pa.map_(kind.key_field.with_type(key), kind.item_field.with_type(item), kind.keys_sorted)
    if is_list(kind):
        inner = kind.value_field.with_type(with_leaves(kind.value_type, convert))
        if kinds.is_fixed_size_list(kind):
            return pa.list_(inner, kind.list_size)
        return pa.large_list(inner) if kinds.is_large_list(kind) else pa.list_(inner)
    return convert(kind)


def names_of(kind: pa.StructType) -> list[str]:
    return [field.name for field in kind]


def are_of_tuple(names: Sequence[str]) -> bool:
    return list(names) == [f"_{i}" for i in range(1, len(names) + 1)]


def _is_dict(kind: pa.DataType) -> bool:
    return bool(kinds.is_map(kind) or (kinds.is_struct(kind) and not are_of_tuple(names_of(kind))))


def _as_map(kind: pa.DataType, name: str) -> tuple[pa.DataType, pa.DataType]:
    if kinds.is_map(kind):
        # Arrow has no null keys, so the keys of empty dicts count as strings.
        no_keys = kinds.is_null(kind.item_type) and kinds.is_string(kind.key_type)
        return pa.null() if no_keys else kind.key_type, kind.item_type
    item = pa.null()
    for field in kind:
        item = unified_type(item, field.type, f"{name} (its values)")
    return pa.string(), item
