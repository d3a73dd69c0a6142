"""Simple types of the standard library: how each becomes something that msgpack knows, and back.

A payload is made of native values and lists only. Where a value can't be written without loss (a time zone
of an unknown class) the answer is `UNSUPPORTED`, and the value is pickled instead.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from operator import index
from typing import Any, Final
from uuid import UUID, SafeUUID
from zoneinfo import ZoneInfo

from penstock.runtime.record.extension_codes import ExtensionCode

#: The answer for a value that has no payload.
UNSUPPORTED: Final = object()

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - wall time; the zone is written beside it
_MICROSECOND: Final = timedelta(microseconds=1)
_SECOND: Final = 1_000_000
_COMPLEX: Final = struct.Struct("<dd")


@dataclass(frozen=True, slots=True)
class LeafType:
    """How one type is written.

    Attributes:
        type: Exactly this type, no subclass.
        code: Its extension code.
        to_payload: Makes the payload, or `UNSUPPORTED`.
        from_payload: Makes the value again.
    """

    type: type
    code: int
    to_payload: Callable[[Any], Any]
    from_payload: Callable[[Any], Any]


def zone_to_payload(zone: tzinfo | None) -> Any:
    """Write a time zone: a fixed offset as numbers, a `ZoneInfo` by its key.

    Example:
        >>> zone_to_payload(timezone(timedelta(hours=1)))
        [0, 3600, 0]
    """
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


def zone_from_payload(payload: Any) -> tzinfo | None:
    """Read a time zone that `zone_to_payload` wrote."""
    if payload is None:
        return None
    if isinstance(payload, str):
        return ZoneInfo(payload)
    days, seconds, microseconds, *name = payload
    return timezone(timedelta(days, seconds, microseconds), *name)


def _with_zone(number: int, fold: int, zone: tzinfo | None) -> Any:
    if zone is None and not fold:
        return number
    payload = zone_to_payload(zone)
    return UNSUPPORTED if payload is UNSUPPORTED else [number, fold, payload]


def _datetime_to_payload(value: datetime) -> Any:
    zone = value.tzinfo
    wall = value if zone is None else datetime.combine(value, value.time())
    return _with_zone((wall - _EPOCH) // _MICROSECOND, value.fold, zone)


def _datetime_from_payload(payload: Any) -> datetime:
    if type(payload) is int:
        return _EPOCH + timedelta(0, 0, payload)
    number, fold, zone = payload
    return (_EPOCH + timedelta(0, 0, number)).replace(fold=fold, tzinfo=zone_from_payload(zone))


def _time_to_payload(value: time) -> Any:
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return _with_zone(seconds * _SECOND + value.microsecond, value.fold, value.tzinfo)


def _time_from_payload(payload: Any) -> time:
    number, fold, zone = (payload, 0, None) if type(payload) is int else payload
    seconds, microsecond = divmod(number, _SECOND)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return time(hour, minute, second, microsecond, zone_from_payload(zone), fold=fold)


def _timedelta_to_payload(value: timedelta) -> Any:
    return [value.days, value.seconds, value.microseconds]


def _timedelta_from_payload(payload: Any) -> timedelta:
    days, seconds, microseconds = payload
    return timedelta(days, seconds, microseconds)


def _uuid_to_payload(value: UUID) -> Any:
    safe = value.is_safe
    return value.bytes if safe is SafeUUID.unknown else [value.bytes, safe.value]


def _uuid_from_payload(payload: Any) -> UUID:
    if isinstance(payload, bytes):
        return UUID(bytes=payload)
    raw, safe = payload
    return UUID(bytes=raw, is_safe=SafeUUID(safe))


def _complex_to_payload(value: complex) -> Any:
    return _COMPLEX.pack(value.real, value.imag)


def _complex_from_payload(payload: Any) -> complex:
    return complex(*_COMPLEX.unpack(payload))


def _decimal_from_payload(payload: Any) -> Decimal:
    if not isinstance(payload, str):
        msg = f"a decimal is written as text, not as {type(payload).__name__}"
        raise TypeError(msg)
    return Decimal(payload)


def _fraction_to_payload(value: Fraction) -> Any:
    parts = [value.numerator, value.denominator]
    return parts if set(map(type, parts)) == {int} else UNSUPPORTED  # numpy's integers stay in it


def _fraction_from_payload(payload: Any) -> Fraction:
    numerator, denominator = payload
    index(numerator), index(denominator)  # refuses text, which would make a number of any length
    return Fraction(numerator, denominator)


def _bytearray_from_payload(payload: Any) -> bytearray:
    if not isinstance(payload, bytes):
        msg = f"a bytearray is written as bytes, not as {type(payload).__name__}"
        raise TypeError(msg)
    return bytearray(payload)


#: Every simple type.
LEAF_TYPES: Final = (
    LeafType(bytearray, ExtensionCode.BYTEARRAY, bytes, _bytearray_from_payload),
    LeafType(datetime, ExtensionCode.DATETIME, _datetime_to_payload, _datetime_from_payload),
    LeafType(date, ExtensionCode.DATE, date.toordinal, date.fromordinal),
    LeafType(time, ExtensionCode.TIME, _time_to_payload, _time_from_payload),
    LeafType(timedelta, ExtensionCode.TIMEDELTA, _timedelta_to_payload, _timedelta_from_payload),
    LeafType(Decimal, ExtensionCode.DECIMAL, str, _decimal_from_payload),
    LeafType(UUID, ExtensionCode.UUID, _uuid_to_payload, _uuid_from_payload),
    LeafType(complex, ExtensionCode.COMPLEX, _complex_to_payload, _complex_from_payload),
    LeafType(Fraction, ExtensionCode.FRACTION, _fraction_to_payload, _fraction_from_payload),
)
