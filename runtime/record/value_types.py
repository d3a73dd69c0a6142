"""Which Arrow type one Python value has, whatever stands beside it.

A batch of rows has any length, so what it holds together must not decide the type of a column. Here each
value has a type of its own. Columns are then made of values of one type (`row_columns.py`).

    bool, int, float, str, bytes     bool; int64, from 2**63 on uint64; double; string; binary
    date, time, timedelta            date32, time64[us], duration[us]
    datetime                         timestamp[us], with the zone that it has
    times of pandas and numpy        timestamp or duration in their own unit, nanoseconds included
    numbers of numpy                 as Python's
    Decimal                          decimal128 of its scale
    list, dict with texts as names   list, struct
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any, Final, NoReturn
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from penstock.runtime.errors import PenstockError
from penstock.runtime.record.class_directory import describe_type

_NULL: Final = pa.null()
_INT64: Final = pa.int64()
_UINT64: Final = pa.uint64()
#: Types whose values all have one Arrow type.
PLAIN: Final[dict[type, pa.DataType]] = {
    bool: pa.bool_(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    date: pa.date32(),
    timedelta: pa.duration("us"),
}
#: The most digits of a decimal of 128 bits.
_DIGITS: Final = 38
#: Units of times in pandas, numpy and Arrow.
_UNITS: Final = ("s", "ms", "us", "ns")


class NoColumnTypeError(PenstockError, TypeError):
    """A value that no column of Arrow carries exactly.

    Attributes:
        place: Number of the row that has it.
    """

    place: int = 0


def type_of_value(value: Any, *, digits: int | None = None) -> pa.DataType:
    """The Arrow type of a value.

    Args:
        value: A leaf, or a list or a dict of values.
        digits: Precision of decimals; by default as many digits as the value needs.

    Raises:
        NoColumnTypeError: No type carries the value; says why.

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
    refuse(value, "it is of no type that Arrow has")


def are_family(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether values of two types have an order among each other, as in Python.

    Example:
        >>> are_family(pa.int64(), pa.float64()), are_family(pa.string(), pa.binary())
        (True, False)
    """
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
    """Raise for a value."""
    msg = f"{reprlib.repr(value)} ({describe_type(type(value))}) has no exact form in a column: {why}"
    raise NoColumnTypeError(msg)


def _of_whole(value: Any, _: int | None) -> pa.DataType:
    number = int(value)
    if -(1 << 63) <= number < 1 << 63:
        return _INT64
    if 0 < number < 1 << 64:
        return _UINT64
    refuse(value, "whole numbers have 64 bits; make it a decimal, a float or a text")


def _of_datetime(value: Any, _: int | None) -> pa.DataType:
    if value != value:  # pandas' NaT
        return _NULL
    # pandas says in which unit it holds a time.
    unit = getattr(value, "unit", "us")
    return pa.timestamp(unit if unit in _UNITS else "ns", zone_name(value.tzinfo, value))


def zone_name(zone: tzinfo | None, value: Any) -> str | None:
    """The name of a zone in Arrow.

    Raises:
        NoColumnTypeError: It has none.
    """
    if zone is None or (type(zone) is ZoneInfo and zone.key is not None):
        return None if zone is None else zone.key
    offset = zone.utcoffset(None)
    if type(zone) is timezone and offset is not None and not offset % timedelta(minutes=1):
        minutes = abs(offset) // timedelta(minutes=1)
        sign = "-" if offset < timedelta() else "+"
        return f"{sign}{minutes // 60:02d}:{minutes % 60:02d}" if minutes else "UTC"
    key = getattr(zone, "zone", None)  # of pytz, which pandas uses
    if isinstance(key, str):
        return key
    refuse(value, "its zone has no name; use zoneinfo, or an offset of whole minutes")


def _of_time(value: time, _: int | None) -> pa.DataType:
    if value.tzinfo is not None:
        refuse(value, "times of day have no zone there")
    return pa.time64("us")


def _of_timedelta(value: Any, _: int | None) -> pa.DataType:
    unit = getattr(value, "unit", "us")
    return pa.duration(unit if unit in _UNITS else "ns")


def _of_numpy_time(value: Any, _: int | None) -> pa.DataType:
    if np.isnat(value):
        return _NULL
    unit, step = np.datetime_data(value.dtype)
    if step != 1 or unit not in (*_UNITS, "D"):
        refuse(value, f"there are no times in steps of {step} {unit}; cast it to one of {', '.join(_UNITS)}")
    if isinstance(value, np.timedelta64):
        return pa.duration("s" if unit == "D" else unit)
    return pa.date32() if unit == "D" else pa.timestamp(unit)


def _of_decimal(value: Decimal, digits: int | None) -> pa.DataType:
    _, figures, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        refuse(value, "it is no finite number")
    scale = max(0, -exponent)
    whole = max(0, len(figures) + exponent) if value else 0
    if whole + scale > (digits or _DIGITS):
        refuse(value, f"it takes {whole + scale} digits, and {_DIGITS} is the most")
    return pa.decimal128(digits or max(1, whole + scale), scale)


def _of_list(value: Sequence[Any], digits: int | None) -> pa.DataType:
    found = dict.fromkeys(type_of_value(each, digits=digits) for each in value if each is not None)
    if len(found) > 1:
        refuse(value, f"it has elements of types {' and '.join(map(str, found))}")
    return pa.list_(next(iter(found), _NULL))


def _of_dict(value: dict[Any, Any], digits: int | None) -> pa.DataType:
    names = list(value)
    if not all(type(name) is str for name in names):
        refuse(value, "its names are no texts")
    return pa.struct([(name, type_of_value(each, digits=digits)) for name, each in value.items()])


def _of_bytes(value: Any, _: int | None) -> pa.DataType:
    return pa.binary()


#: Bases in the order in which they are looked for: a `datetime` is a `date`, a `bool` is an `int`.
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
    ((bytes, bytearray, memoryview), _of_bytes),
    (Decimal, _of_decimal),
    (list, _of_list),
    (dict, _of_dict),
)
