"""Converts simple types of the standard library and numpy to a native form for msgpack, and back.

A native form consists of values of `NATIVE_TYPES` and of lists. A value without a native form (such as a
datetime with a time zone of an unknown class) is `UNSUPPORTED`, and is pickled instead.

**Extension codes** give the kind of value of a msgpack extension. The numbers are part of the format, and are
in every checkpoint that was ever written. So a number never changes and never gets another meaning. A new
kind takes the next free number.

**Columns of datetimes** in one zone are 64-bit microseconds, made and read at C speed. Python subtracts
datetimes with the same zone object by their wall time, and adds a duration to the wall time too. The epoch
here is in that zone, so no result depends on the zone's rules.

**Numpy scalars and arrays** are written as dtype and raw bytes if the description of the dtype restores it
exactly. An array of objects is written as a column of its items. Values of all other dtypes (with metadata,
variable-width strings, foreign dtypes) are pickled. Bytes are never read as objects: a dtype that holds
references is refused before numpy sees the data.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from itertools import repeat
from operator import add, attrgetter, floordiv, index, sub
from types import NoneType
from typing import Any, Final
from uuid import UUID, SafeUUID
from zoneinfo import ZoneInfo

import numpy as np

#: Types that msgpack itself keeps apart and restores unchanged, except for integers of more than 64 bits.
NATIVE_TYPES: Final = frozenset({NoneType, bool, int, float, str, bytes})

#: Separates the names of combined flags.
FLAGS_SEPARATOR: Final = "|"
#: Maximum nesting of containers; bounds the stack of encoder and decoder.
MAX_DEPTH: Final = 100


class ExtensionCode:
    """Kinds of extensions; each comment describes the content.

    In the comments, `module` is `penstock` for a class of Penstock, whose name is in `stable_names.py`.

    Plain integers, not an enum, because they are looked up for every value.
    """

    PICKLE: Final = 1  # raw pickle
    PICKLES: Final = 2  # raw pickle of a list: a column of values of one type
    BIG_INT: Final = 3  # raw two's complement, big endian
    STRINGS: Final = 4  # raw UTF-8 of a column of strings, joined by NUL
    TUPLE: Final = 5  # column
    TUPLES: Final = 6  # [column, ...]: tuples of one length
    LISTS: Final = 7  # [column, ...]: lists of one length
    DICTS: Final = 8  # [[key, ...], column, ...]: dicts with the same keys in the same order
    DICT: Final = 9  # [column of keys, column of values]
    SET: Final = 10  # column
    FROZENSET: Final = 11  # column
    LEAVES: Final = 12  # [code, [native, ...]]: a column of one simple type
    RECORD: Final = 13  # [module, qualified name, [field, ...], tuple of values | dict of attributes]
    RECORDS: Final = 14  # [module, qualified name, [field, ...], column of tuples]
    ENUM: Final = 15  # [module, qualified name, name | names of flags | value of a flag]
    ENUMS: Final = 16  # [module, qualified name, [name | names | value, ...]]
    ARRAY: Final = 17  # [dtype, shape, order, bytes | column of objects]
    NUMPY_SCALAR: Final = 18  # [dtype, bytes | text]
    NUMPY_SCALARS: Final = 19  # [dtype, bytes]
    BYTEARRAY: Final = 20  # bytes
    DATETIME: Final = 21  # microseconds of wall time | [microseconds, fold, zone]
    DATE: Final = 22  # proleptic ordinal
    TIME: Final = 23  # microseconds since midnight | [microseconds, fold, zone]
    TIMEDELTA: Final = 24  # [days, seconds, microseconds]
    DECIMAL: Final = 25  # text
    UUID: Final = 26  # 16 bytes | [16 bytes, safety]
    COMPLEX: Final = 27  # two doubles
    FRACTION: Final = 28  # [numerator, denominator]
    DATETIMES: Final = 29  # [zone, int64 microseconds of wall time]: all in one zone, none in a fold
    DEQUE: Final = 30  # [column, maximum length]


#: Marks a value that has no native form.
UNSUPPORTED: Final = object()

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - wall time; the zone is written beside it

_MICROSECOND: Final = timedelta(microseconds=1)

_SECOND: Final = 1_000_000

_COMPLEX: Final = struct.Struct("<dd")


@dataclass(frozen=True, slots=True)
class LeafType:
    type: type
    code: int
    to_native: Callable[[Any], Any]
    from_native: Callable[[Any], Any]


def _expect(native: Any, kind: type, what: str) -> Any:
    if not isinstance(native, kind):
        msg = f"{what}, not as {type(native).__name__}"
        raise TypeError(msg)
    return native


def zone_to_native(zone: tzinfo | None) -> Any:
    """Write a time zone: a fixed offset as numbers, a `ZoneInfo` by its key."""
    if zone is None:
        return None
    if type(zone) is timezone:
        offset = zone.utcoffset(None)
        name = zone.tzname(None)
        numbers: list[Any] = [offset.days, offset.seconds, offset.microseconds]
        return numbers if timezone(offset).tzname(None) == name else [*numbers, name]
    if type(zone) is ZoneInfo and zone.key is not None:
        return zone.key
    return UNSUPPORTED


def zone_from_native(native: Any) -> tzinfo | None:
    if native is None:
        return None
    if isinstance(native, str):
        return ZoneInfo(native)
    days, seconds, microseconds, *name = native
    return timezone(timedelta(days, seconds, microseconds), *name)


def _with_zone(number: int, fold: int, zone: tzinfo | None) -> Any:
    if zone is None and not fold:
        return number
    native = zone_to_native(zone)
    return UNSUPPORTED if native is UNSUPPORTED else [number, fold, native]


def _datetime_to_native(value: datetime) -> Any:
    zone = value.tzinfo
    wall = value if zone is None else datetime.combine(value, value.time())
    return _with_zone((wall - _EPOCH) // _MICROSECOND, value.fold, zone)


def _datetime_from_native(native: Any) -> datetime:
    if type(native) is int:
        return _EPOCH + timedelta(0, 0, native)
    number, fold, zone = native
    return (_EPOCH + timedelta(0, 0, number)).replace(fold=fold, tzinfo=zone_from_native(zone))


def _time_to_native(value: time) -> Any:
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return _with_zone(seconds * _SECOND + value.microsecond, value.fold, value.tzinfo)


def _time_from_native(native: Any) -> time:
    number, fold, zone = (native, 0, None) if type(native) is int else native
    seconds, microsecond = divmod(number, _SECOND)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return time(hour, minute, second, microsecond, zone_from_native(zone), fold=fold)


def _timedelta_to_native(value: timedelta) -> Any:
    return [value.days, value.seconds, value.microseconds]


def _timedelta_from_native(native: Any) -> timedelta:
    days, seconds, microseconds = native
    return timedelta(days, seconds, microseconds)


def _uuid_to_native(value: UUID) -> Any:
    safe = value.is_safe
    return value.bytes if safe is SafeUUID.unknown else [value.bytes, safe.value]


def _uuid_from_native(native: Any) -> UUID:
    if isinstance(native, bytes):
        return UUID(bytes=native)
    raw, safe = native
    return UUID(bytes=raw, is_safe=SafeUUID(safe))


def _complex_to_native(value: complex) -> Any:
    return _COMPLEX.pack(value.real, value.imag)


def _complex_from_native(native: Any) -> complex:
    return complex(*_COMPLEX.unpack(native))


def _decimal_from_native(native: Any) -> Decimal:
    return Decimal(_expect(native, str, "a decimal is written as text"))


def _fraction_to_native(value: Fraction) -> Any:
    parts = [value.numerator, value.denominator]
    return parts if set(map(type, parts)) == {int} else UNSUPPORTED  # its parts may be numpy's integers


def _fraction_from_native(native: Any) -> Fraction:
    numerator, denominator = native
    index(numerator), index(denominator)  # refuses text: a few characters can be a huge number
    return Fraction(numerator, denominator)


def _bytearray_from_native(native: Any) -> bytearray:
    return bytearray(_expect(native, bytes, "a bytearray is written as bytes"))


#: Every simple type.
LEAF_TYPES: Final = (
    LeafType(bytearray, ExtensionCode.BYTEARRAY, bytes, _bytearray_from_native),
    LeafType(datetime, ExtensionCode.DATETIME, _datetime_to_native, _datetime_from_native),
    LeafType(date, ExtensionCode.DATE, date.toordinal, date.fromordinal),
    LeafType(time, ExtensionCode.TIME, _time_to_native, _time_from_native),
    LeafType(timedelta, ExtensionCode.TIMEDELTA, _timedelta_to_native, _timedelta_from_native),
    LeafType(Decimal, ExtensionCode.DECIMAL, str, _decimal_from_native),
    LeafType(UUID, ExtensionCode.UUID, _uuid_to_native, _uuid_from_native),
    LeafType(complex, ExtensionCode.COMPLEX, _complex_to_native, _complex_from_native),
    LeafType(Fraction, ExtensionCode.FRACTION, _fraction_to_native, _fraction_from_native),
)


_fold = attrgetter("fold")

_zone = attrgetter("tzinfo")


def datetimes_to_native(values: Sequence[datetime]) -> Any:
    r"""Write datetimes that all have the same zone object and no fold; else `UNSUPPORTED`."""
    zones = list(map(_zone, values))
    zone = zones[0]
    # By identity: two zones of equal offset but different names are equal.
    if len(set(map(id, zones))) != 1 or any(map(_fold, values)):
        return UNSUPPORTED
    native = zone_to_native(zone)
    if native is UNSUPPORTED:
        return UNSUPPORTED
    since_epoch = map(sub, values, repeat(_EPOCH.replace(tzinfo=zone)))
    return [native, struct.pack(f"<{len(values)}q", *map(floordiv, since_epoch, repeat(_MICROSECOND)))]


def datetimes_from_native(native: Any) -> list[datetime]:
    zone, raw = native
    epoch = _EPOCH.replace(tzinfo=zone_from_native(zone))
    since_epoch: list[timedelta] = np.frombuffer(raw, dtype="<m8[us]").tolist()
    return list(map(add, repeat(epoch), since_epoch))


_SIMPLE_KINDS: Final = frozenset("biufcmMSU")

_PLAIN_KINDS: Final = frozenset("biufc")


def is_numpy_scalar_type(cls: type) -> bool:
    """Whether this is one of numpy's own scalar types, not a subclass of one."""
    return issubclass(cls, np.generic) and cls.__module__ == "numpy"


def dtype_to_native(dtype: np.dtype[Any]) -> Any:
    if dtype.metadata is not None or not dtype.itemsize:
        return UNSUPPORTED
    if dtype.names is not None:
        return _structured_to_native(dtype)
    if dtype.kind not in _SIMPLE_KINDS:
        return UNSUPPORTED
    for text in (dtype.str, dtype.char):  # the character distinguishes `long long` from `long`
        if np.dtype(text) == dtype and np.dtype(text).char == dtype.char:
            return text
    return UNSUPPORTED


def _structured_to_native(dtype: np.dtype[Any]) -> Any:
    assert dtype.names is not None
    assert dtype.fields is not None
    fields: list[Any] = []
    for name in dtype.names:
        field = dtype.fields[name][0]
        title = dtype.fields[name][2:]
        base = dtype_to_native(field.base)
        if base is UNSUPPORTED or any(type(word) is not str for word in (*title, name)):
            return UNSUPPORTED
        fields.append([[*title, name], base, list(field.shape)])
    same = dtype_from_native(fields)
    exact = (
        same == dtype and same.isalignedstruct == dtype.isalignedstruct and same.itemsize == dtype.itemsize
    )
    return fields if exact else UNSUPPORTED


def dtype_from_native(native: Any) -> np.dtype[Any]:
    if isinstance(native, str):
        dtype: np.dtype[Any] = np.dtype(native)
    else:
        dtype = np.dtype(
            [
                (names[0] if len(names) == 1 else tuple(names), dtype_from_native(base), tuple(shape))
                for names, base, shape in native
            ]
        )
    if dtype.hasobject:
        msg = "the data describes raw bytes as Python objects"
        raise ValueError(msg)
    return dtype


def _sized_dtype(native: Any) -> np.dtype[Any]:
    """Read a dtype; refuse one of size 0, because a few bytes of data could claim any number of values."""
    dtype = dtype_from_native(native)
    if not dtype.itemsize:
        msg = f"the data describes values of dtype {dtype}, which take no bytes"
        raise ValueError(msg)
    return dtype


def scalar_to_native(value: np.generic) -> Any:
    # As raw memory, and in numpy's own conversions, text would lose NULs at its end.
    if isinstance(value, np.str_):
        return ["U", str.__getitem__(value, slice(None))]
    if isinstance(value, np.bytes_):
        return ["S", bytes.__getitem__(value, slice(None))]
    dtype = dtype_to_native(value.dtype)
    exact = dtype is not UNSUPPORTED and value.dtype.type is type(value)
    return [dtype, value.tobytes()] if exact else UNSUPPORTED


def scalar_from_native(native: Any) -> Any:
    dtype, raw = native
    if dtype == "U" and isinstance(raw, str):
        return np.str_(raw)
    if dtype == "S" and isinstance(raw, bytes):
        return np.bytes_(raw)
    _expect(raw, bytes, "a scalar is written as bytes")  # `bytearray` of a number would make that many zeros
    (value,) = np.frombuffer(bytearray(raw), _sized_dtype(dtype))
    return value


def scalars_to_native(values: Sequence[np.generic]) -> Any:
    dtype = values[0].dtype
    if dtype.kind not in _PLAIN_KINDS or dtype.type is not type(values[0]):
        return UNSUPPORTED
    return [dtype_to_native(dtype), np.array(values, dtype).tobytes()]


def scalars_from_native(native: Any) -> list[Any]:
    dtype, raw = native
    return list(np.frombuffer(raw, _sized_dtype(dtype)))


def array_to_native(array: np.ndarray[Any, Any]) -> tuple[Any, list[int], str, bytes | list[Any]] | None:
    """An array's dtype, shape, memory order and raw bytes or objects; `None` if its dtype is unsupported."""
    order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    shape = list(array.shape)
    if array.dtype.char == "O" and array.dtype.metadata is None:
        return "O", shape, "C", array.ravel().tolist()
    dtype = dtype_to_native(array.dtype)
    return (
        None if dtype is UNSUPPORTED else (dtype, shape, order, array.tobytes("A" if order == "F" else "C"))
    )


def array_from_native(native: Any) -> np.ndarray[Any, Any]:
    """Read an array, which is writable and shares no memory with `native`."""
    dtype, shape, order, content = native
    if dtype == "O":
        if not isinstance(content, list) or min(shape, default=0) < 0 or math.prod(shape) != len(content):
            msg = f"the data does not have one item for each place of an object array of shape {shape}"
            raise ValueError(msg)
        flat = np.empty(len(content), dtype=object)
        for index, item in enumerate(content):  # one by one: numpy would turn sequences into axes
            flat[index] = item
        return flat.reshape(shape)
    kind = _sized_dtype(dtype)
    if min(shape, default=0) < 0 or math.prod(shape) * kind.itemsize != len(content):
        msg = f"an array of shape {shape} and dtype {kind} does not fit data of length {len(content)}"
        raise ValueError(msg)
    return np.ndarray(shape, kind, bytearray(content), order=order)
