"""The bytes of a key, for a backend that stores bytes: equal keys have equal bytes.

A dictionary treats `1`, `1.0`, `True` and `Decimal(1)` as one key. A backend that looks keys up by bytes must
do the same, or results would depend on the backend. So the bytes encode a canonical form. It follows the
rules of the stable hash (`stable_hash.py`); a value that the hash refuses can't be a key here either.

The bytes have three more properties:

* No key's bytes are a prefix of another's. So all entries of one key are adjacent.
* Whole numbers sort by value. So the numbered elements of a list are read in order.
* A key of `str`, `bytes`, `int`, `None` or a tuple of these can be decoded from its bytes. Its form is
  *natural*. Any other key must also be stored beside its value: a `float` of 2.0 has the bytes of an `int`.

**Never change these bytes.** They are in checkpoints.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag
from fractions import Fraction
from math import isinf
from typing import Any, Final, TypeAlias
from uuid import UUID

import numpy as np

from penstock.runtime.record.column_key import NAN
from penstock.runtime.record.stable_names import name_in_hash
from penstock.runtime.state.stable_hash import compares_as, micros_of_key, stable_hash

# Tags, the first byte of a key. Tags from 0x40 to 0xBF are whole numbers; most of them include the length.
_NONE, _TEXT, _BYTES, _TUPLE, _FROZENSET, _DATACLASS, _ENUM, _UUID = range(1, 9)
_DATE, _NAIVE, _AWARE, _TIME, _DELTA, _RATIO, _INFINITY, _MINUS_INFINITY, _NAN = range(9, 18)
_ZERO: Final = 0x80
#: Maximum bytes of a whole number whose tag includes the length; longer numbers store it after the tag.
_SHORT: Final = 0x3E
_LONG_NEGATIVE, _LONG_POSITIVE = 0x40, 0xBF

_MICROSECOND: Final = timedelta(microseconds=1)

#: First bytes of short text and of numbers below `_FAST`, by length; most keys are of these kinds.
_TEXT_HEADS: Final = [bytes([_TEXT, length]) for length in range(0x80)]
_WHOLE_HEADS: Final = [bytes([_ZERO + size]) for size in range(9)]
_FAST: Final = 1 << 64

#: Appends the bytes of a key; returns whether the form is natural.
_Writer: TypeAlias = Callable[[Any, bytearray], bool]


def key_bytes(key: Any) -> tuple[bytes, bool]:
    r"""Return the bytes of a key, and whether the key can be decoded from them.

    Example:
        >>> key_bytes("word")
        (b'\x02\x04word', True)
        >>> key_bytes(1.0)[0] == key_bytes(True)[0] == key_bytes(1)[0]
        True
    """
    kind = type(key)
    if kind is str:
        raw = key.encode("utf-8", "surrogatepass")
        if len(raw) < 0x80:
            return _TEXT_HEADS[len(raw)] + raw, True
    elif kind is int and 0 <= key < _FAST:
        size = (key.bit_length() + 7) >> 3
        return _WHOLE_HEADS[size] + key.to_bytes(size), True
    out = bytearray()
    is_natural = _write(key, out)
    return bytes(out), is_natural


def key_of(data: bytes, start: int = 0) -> tuple[Any, int]:
    """Decode a key from natural bytes; return the key and the position after it.

    Example:
        >>> key_of(key_bytes(("ann", -3))[0])
        (('ann', -3), 9)
    """
    tag = data[start]
    at = start + 1
    if tag in (_TEXT, _BYTES):
        length, at = _length(data, at)
        end = at + length
        raw = bytes(data[at:end])
        return (raw.decode("utf-8", "surrogatepass") if tag == _TEXT else raw), end
    if _LONG_NEGATIVE <= tag <= _LONG_POSITIVE:
        return _whole_of(tag, data, at)
    if tag == _NONE:
        return None, at
    if tag == _TUPLE:
        length, at = _length(data, at)
        parts = []
        for _ in range(length):
            part, at = key_of(data, at)
            parts.append(part)
        return tuple(parts), at
    msg = f"byte {tag} at {start} is not the first byte of a key that can be decoded"
    raise ValueError(msg)


def _write(key: Any, out: bytearray) -> bool:
    writer = _BY_TYPE.get(type(key))
    if writer is not None:
        return writer(key, out)
    stable_hash(key)  # raises for a value that can't be a key
    kind: type = type(key)
    _writer_of(kind)(key, out)
    return False


def _write_length(length: int, out: bytearray) -> None:
    if length < 0x80:
        out.append(length)
    else:
        out += (length | 0x80000000).to_bytes(4)


def _length(data: bytes, at: int) -> tuple[int, int]:
    first = data[at]
    if first < 0x80:
        return first, at + 1
    return int.from_bytes(data[at : at + 4]) & 0x7FFFFFFF, at + 4


def _write_raw(tag: int, raw: bytes, out: bytearray) -> None:
    out.append(tag)
    _write_length(bytes.__len__(raw), out)
    out += raw


def _text(key: str, out: bytearray) -> bool:
    _write_raw(_TEXT, str.encode(key, "utf-8", "surrogatepass"), out)
    return True


def _bytes(key: bytes, out: bytearray) -> bool:
    _write_raw(_BYTES, key, out)
    return True


def _none(_: None, out: bytearray) -> bool:
    out.append(_NONE)
    return True


def _whole(key: int, out: bytearray) -> bool:
    """Append a tag with sign and number of bytes, then the bytes; negative numbers are complemented."""
    number = int.__index__(key)  # a subclass may override `__int__`
    size = (abs(number).bit_length() + 7) // 8
    raw = abs(number).to_bytes(size)
    if number < 0:
        raw = bytes(255 - byte for byte in raw)
    if size <= _SHORT:
        out.append(_ZERO + size if number >= 0 else _ZERO - size)
    elif number >= 0:
        out.append(_LONG_POSITIVE)
        out += size.to_bytes(4)
    else:
        out.append(_LONG_NEGATIVE)
        out += (0xFFFFFFFF - size).to_bytes(4)
    out += raw
    return True


def _whole_of(tag: int, data: bytes, at: int) -> tuple[int, int]:
    is_negative = tag < _ZERO
    if tag in (_LONG_NEGATIVE, _LONG_POSITIVE):
        size = int.from_bytes(data[at : at + 4])
        size = 0xFFFFFFFF - size if is_negative else size
        at += 4
    else:
        size = abs(tag - _ZERO)
    raw = data[at : at + size]
    if is_negative:
        return -int.from_bytes(bytes(255 - byte for byte in raw)), at + size
    return int.from_bytes(raw), at + size


def _tuple(key: tuple[Any, ...], out: bytearray) -> bool:
    out.append(_TUPLE)
    _write_length(tuple.__len__(key), out)
    is_natural = True
    for part in key:
        is_natural &= _write(part, out)
    return is_natural


def _frozenset(key: frozenset[Any], out: bytearray) -> bool:
    out.append(_FROZENSET)
    _write_length(len(key), out)
    for part in sorted(key_bytes(part)[0] for part in key):
        out += part
    return False


def _number(key: Any, out: bytearray) -> bool:
    if key is NAN:
        out.append(_NAN)
        return False
    if not isinstance(key, Fraction) and isinf(key):
        out.append(_INFINITY if key > 0 else _MINUS_INFINITY)
        return False
    above, below = key.as_integer_ratio()
    if below == 1:
        _whole(above, out)
        return False
    out.append(_RATIO)
    _whole(above, out)
    _whole(below, out)
    return False


def _checked_number(key: Any, out: bytearray) -> bool:
    stable_hash(key)  # refuses NaN
    return _number(key, out)


def _ticks(tag: int, ticks: int, out: bytearray) -> bool:
    out.append(tag)
    _whole(ticks, out)
    return False


def _datetime(key: datetime, out: bytearray) -> bool:
    micros, is_aware = micros_of_key(key)
    return _ticks(_AWARE if is_aware else _NAIVE, micros, out)


def _time(key: time, out: bytearray) -> bool:
    stable_hash(key)  # refuses a time with a zone
    seconds = (key.hour * 60 + key.minute) * 60 + key.second
    return _ticks(_TIME, seconds * 1_000_000 + key.microsecond, out)


def _uuid(key: UUID, out: bytearray) -> bool:
    out.append(_UUID)
    out += key.bytes
    return False


def _dataclass(key: Any, out: bytearray) -> bool:
    out.append(_DATACLASS)
    _text(name_in_hash(type(key)), out)
    for field in dataclasses.fields(key):
        if field.compare:
            _write(getattr(key, field.name), out)
    return False


def _enum(key: Enum, out: bytearray) -> bool:
    out.append(_ENUM)
    _text(name_in_hash(type(key)), out)
    # A combination of flags has a value, but not always a name.
    _write(key._value_ if isinstance(key, Flag) else key._name_, out)
    return False


def _not_natural(writer: _Writer) -> _Writer:
    def write(key: Any, out: bytearray) -> bool:
        writer(key, out)
        return False

    return write


_BY_TYPE: Final[dict[type, _Writer]] = {
    str: _text,
    int: _whole,
    bytes: _bytes,
    type(None): _none,
    tuple: _tuple,
    bool: _not_natural(_whole),
    float: _checked_number,
    datetime: _datetime,
    date: lambda key, out: _ticks(_DATE, key.toordinal(), out),
    time: _time,
    timedelta: lambda key, out: _ticks(_DELTA, key // _MICROSECOND, out),
    UUID: _uuid,
    Decimal: _checked_number,
    Fraction: _number,
    frozenset: _frozenset,
}


@functools.lru_cache(maxsize=1024)
def _writer_of(kind: type) -> _Writer:
    """Find the writer of a type that is not in the table; checks in the order of `stable_hash`."""
    if issubclass(kind, (np.integer, np.bool_)):
        return lambda key, out: _whole(int(key), out)
    if kind is np.float64:
        return _number
    if kind in (np.str_, np.bytes_):
        return _text if kind is np.str_ else _bytes
    for base, writer in _BY_TYPE.items():
        if issubclass(kind, base) and compares_as(kind, base):
            return writer
    return _dataclass if dataclasses.is_dataclass(kind) else _enum
