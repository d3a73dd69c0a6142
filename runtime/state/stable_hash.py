"""A hash of keys that is the same in every process, on every machine and in every release.

Python's own `hash` of a string differs between processes, so it can't decide which subtask owns a key. The
stable hash can. Checkpoints contain its results. **Never change a hash that this file computes.** A test pins
a table of them.

Values that are equal as keys of a dictionary (`1`, `1.0`, `True`, `Decimal(1)`) must go to the same subtask.
Otherwise two subtasks would hold state for the same key. So:

* whole numbers of every type from -2**63 to 2**64-1 go through one mixer. Other numbers go through Python's
  numeric hash, which the language defines to be equal for equal numbers (CPython, 64 bits: modulus 2**61-1);
* strings and bytes go through xxh3, with a separate seed for each kind of value;
* compound values hash the hashes of their parts; frozensets in sorted order;
* times are counted in microseconds, aware ones in UTC. A time in an hour that clocks repeat or skip is
  refused: two such times of one zone are equal in Python even if they are different moments. Fixed offsets,
  as in UTC, have no such hours;
* a subclass counts as its base when it compares and hashes as its base, and is refused otherwise.

Other values are refused with `KeyTypeError`: lists, dicts and sets (mutable), NaN (not equal to itself), and
unknown types. So are numpy's narrow floats, because `np.float32(0.1) == 0.1` although their hashes differ.
Only one NaN object has a hash: the one that a `ColumnKey` substitutes for every NaN.

**The mixer** for whole numbers is the finaliser of SplitMix64 (Steele, Lea, Flood: "Fast Splittable
Pseudorandom Number Generators", 2014). This file has it for one number and for an array. Its results are well
mixed, so `% max_parallelism` needs no further mixing.
"""

from __future__ import annotations

import dataclasses
import functools
import reprlib
import struct
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag
from fractions import Fraction
from itertools import chain
from typing import Any, Final, NoReturn, TypeAlias
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from penstock.runtime.errors import KeyTypeError
from penstock.runtime.record.column_key import NAN
from penstock.runtime.record.stable_names import name_in_hash

#: An array of unsigned 64-bit hashes.
HashArray: TypeAlias = NDArray[np.uint64]

MASK64: Final = (1 << 64) - 1

_GAMMA: Final = 0x9E3779B97F4A7C15

_FIRST: Final = 0xBF58476D1CE4E5B9

_SECOND: Final = 0x94D049BB133111EB

_GAMMA64, _FIRST64, _SECOND64 = np.uint64(_GAMMA), np.uint64(_FIRST), np.uint64(_SECOND)

_SHIFT30, _SHIFT27, _SHIFT31 = np.uint64(30), np.uint64(27), np.uint64(31)

#: Elements per chunk, so that intermediate results stay in the processor's cache.
CHUNK: Final = 1 << 13


def mix64(number: int) -> int:
    """Scatter the low 64 bits of a whole number over 64 bits, one to one."""
    z = (number + _GAMMA) & MASK64
    z = ((z ^ (z >> 30)) * _FIRST) & MASK64
    z = ((z ^ (z >> 27)) * _SECOND) & MASK64
    return z ^ (z >> 31)


def mix64_array(numbers: NDArray[Any]) -> HashArray:
    hashes: HashArray = np.empty(len(numbers), np.uint64)
    rest = np.empty(min(len(numbers), CHUNK), np.uint64)
    for start in range(0, len(numbers), CHUNK):
        z = hashes[start : start + CHUNK]
        # Sign extension to 64 bits, as `mix64` does with a mask.
        np.copyto(z.view(np.int64), numbers[start : start + CHUNK], casting="unsafe")
        shifted = rest[: len(z)]
        z += _GAMMA64
        z ^= np.right_shift(z, _SHIFT30, out=shifted)
        z *= _FIRST64
        z ^= np.right_shift(z, _SHIFT27, out=shifted)
        z *= _SECOND64
        z ^= np.right_shift(z, _SHIFT31, out=shifted)
    return hashes


_Hasher: TypeAlias = Callable[[Any], int]

# One seed for each kind of value, so that "a" and b"a" need not collide. They are part of the format.
STR, BYTES, TUPLE, FROZENSET, DATACLASS, ENUM, UUID_, DATE, NAIVE, AWARE, TIME, DELTA = range(1, 13)
#: The hash of `None`, and the hash of the one NaN that can be a key.
NONE_HASH: Final = mix64(0xD1B54A32D192ED03)

NAN_HASH: Final = mix64(0xA0761D6478BD642F)
#: Seed that is mixed into Python's hash of a number that is fractional or larger than 64 bits.
OTHER_NUMBER: Final = 0x8CB92BA72F3D8DD7

_NAN_ADVICE: Final = (
    "NaN is not equal to itself; filter such records out, use None, or give key_by the column's name"
)
#: Maximum size of a `Decimal`'s exponent, with either sign, because its hash expands all digits.
_MOST_DIGITS: Final = 4096

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 (the offset is subtracted below)

_MICROSECOND: Final = timedelta(microseconds=1)


def stable_hash(key: Any) -> int:
    """The hash of a key: an unsigned 64-bit number.

    Raises:
        KeyTypeError: The value can't be a key; the message has the reason and an alternative.

    Example:
        >>> stable_hash(1) == stable_hash(1.0) == stable_hash(True) == stable_hash(Decimal(1))
        True
        >>> stable_hash("word") % 128
        95
        >>> stable_hash([1, 2])
        Traceback (most recent call last):
        ...
        penstock.runtime.errors.KeyTypeError: [1, 2] of type list can't be a key: it can change; use a tuple
    """
    kind: type = type(key)
    hasher = _BY_TYPE.get(kind)
    return _hasher_of(kind)(key) if hasher is None else hasher(key)


def types_of_keys(keys: Sequence[Any]) -> set[type]:
    """The types of keys, and of the parts of keys that are tuples.

    Finding a key in a dictionary does not show that its type is allowed: the key 0.5 also matches
    `np.float32(0.5)`. Checking the types costs less than a hash.
    """
    kinds = set(map(type, keys))
    if tuple in kinds:
        tuples = keys if len(kinds) == 1 else [key for key in keys if type(key) is tuple]
        parts = set(map(type, chain.from_iterable(tuples)))
        kinds |= types_of_keys(list(chain.from_iterable(tuples))) if tuple in parts else parts
    return kinds


def _refuse(key: Any, why: str) -> NoReturn:
    msg = f"{reprlib.repr(key)} of type {type(key).__qualname__} can't be a key: {why}"
    raise KeyTypeError(msg)


def _hash_int(key: int) -> int:
    number = int.__index__(key)
    return mix64(number) if -(1 << 63) <= number <= MASK64 else _hash_other_number(number)


def _hash_other_number(key: Any) -> int:
    return mix64(hash(key) ^ OTHER_NUMBER)


def _hash_float(key: float) -> int:
    number = float.__float__(key)  # a subclass may have another `float()`
    if number != number:
        if key is NAN:
            return NAN_HASH
        _refuse(key, _NAN_ADVICE)
    return _hash_int(int(number)) if number.is_integer() else _hash_other_number(number)


def _hash_decimal(key: Decimal) -> int:
    if key.is_nan():
        _refuse(key, "NaN is not equal to itself; filter such records out or use None")
    if key.is_finite() and abs(key.adjusted()) > _MOST_DIGITS:
        _refuse(key, f"its exponent is not between -{_MOST_DIGITS} and {_MOST_DIGITS}; use a string")
    if -(1 << 63) <= key <= MASK64 and key == key.to_integral_value():
        return _hash_int(int(key))
    return _hash_other_number(key)


def _hash_fraction(key: Fraction) -> int:
    return _hash_int(key.numerator) if key.denominator == 1 else _hash_other_number(key)


def _hash_str(key: str) -> int:
    return xxh3_64_intdigest(str.encode(key, "utf-8", "surrogatepass"), STR)


def _hash_bytes(key: bytes) -> int:
    return xxh3_64_intdigest(key, BYTES)


def _hash_parts(hashes: Iterable[int], seed: int) -> int:
    parts = tuple(hashes)
    return xxh3_64_intdigest(struct.pack(f"<{len(parts)}Q", *parts), seed)


def _hash_tuple(key: tuple[Any, ...]) -> int:
    return _hash_parts(map(stable_hash, key), TUPLE)


def _hash_frozenset(key: frozenset[Any]) -> int:
    return _hash_parts(sorted(map(stable_hash, key)), FROZENSET)


def _hash_ticks(ticks: int, seed: int) -> int:
    return xxh3_64_intdigest(struct.pack("<q", ticks), seed)


def micros_of_key(key: datetime) -> tuple[int, bool]:
    """Return microseconds since 1970, in UTC for a time with a zone, and whether it has a zone."""
    zone = key.tzinfo
    since_epoch = (key.replace(tzinfo=None, fold=0) - _EPOCH) // _MICROSECOND
    if zone is None:
        return since_epoch, False
    offset = key.utcoffset()
    if offset is None:
        return since_epoch, False
    if type(zone) is not timezone and offset != key.replace(fold=1 - key.fold).utcoffset():
        _refuse(
            key,
            f"the clocks of its zone show {key:%Y-%m-%d %H:%M} twice, or skip it, so Python does not say "
            "which times are equal to it; use key.astimezone(UTC), or give key_by the column's name",
        )
    return since_epoch - offset // _MICROSECOND, True


def _hash_datetime(key: datetime) -> int:
    micros, is_aware = micros_of_key(key)
    return _hash_ticks(micros, AWARE if is_aware else NAIVE)


def _hash_time(key: time) -> int:
    if key.tzinfo is not None:
        _refuse(key, "a time of day with a zone needs a date; use a datetime, or remove the zone")
    seconds = (key.hour * 60 + key.minute) * 60 + key.second
    return _hash_ticks(seconds * 1_000_000 + key.microsecond, TIME)


@functools.lru_cache(maxsize=1024)
def _name_of(kind: type) -> int:
    return _hash_str(name_in_hash(kind))


def _hash_enum(key: Enum) -> int:
    # A combination of flags has a value, but not always a name.
    what = stable_hash(key._value_) if isinstance(key, Flag) else _hash_str(key._name_)
    kind: type = type(key)
    return _hash_parts((_name_of(kind), what), ENUM)


def _hash_dataclass(key: Any) -> int:
    values = (getattr(key, field.name) for field in dataclasses.fields(key) if field.compare)
    kind: type = type(key)
    return _hash_parts((_name_of(kind), *map(stable_hash, values)), DATACLASS)


_BY_TYPE: Final[dict[type, _Hasher]] = {
    str: _hash_str,
    int: _hash_int,
    bool: _hash_int,
    bytes: _hash_bytes,
    tuple: _hash_tuple,
    float: _hash_float,
    type(None): lambda _: NONE_HASH,
    datetime: _hash_datetime,
    date: lambda key: _hash_ticks(key.toordinal(), DATE),
    time: _hash_time,
    timedelta: lambda key: _hash_parts(((key // _MICROSECOND) & MASK64, key.days & MASK64), DELTA),
    UUID: lambda key: xxh3_64_intdigest(key.bytes, UUID_),
    Decimal: _hash_decimal,
    Fraction: _hash_fraction,
    frozenset: _hash_frozenset,
}

_WHY_NOT: Final[tuple[tuple[type, str], ...]] = (
    (list, "it can change; use a tuple"),
    (dict, "it can change; use a tuple of its items"),
    (set, "it can change; use a frozenset"),
    (bytearray, "it can change; use bytes"),
    (memoryview, "it can change; use bytes"),
    (np.ndarray, "it can change; use a tuple of its values or its bytes"),
    (np.generic, "numpy compares it in its own way; use int(key), float(key) or key.item()"),
    (datetime, "it compares in its own way; use Python's datetime: key.to_pydatetime() in pandas"),
    (timedelta, "it compares in its own way; use Python's timedelta: key.to_pytimedelta() in pandas"),
    (complex, "complex numbers are not supported; use a tuple of two floats"),
)


@functools.lru_cache(maxsize=1024)
def _hasher_of(kind: type) -> _Hasher:
    """Find the hasher of a type outside the table: a subclass, numpy's scalars, a dataclass, an enum."""
    if issubclass(kind, (np.integer, np.bool_)) and not issubclass(kind, np.timedelta64):
        return lambda key: _hash_int(int(key))
    if kind is np.float64:
        return _hash_float
    if kind in (np.str_, np.bytes_):
        return _hash_str if kind is np.str_ else _hash_bytes
    for base, hasher in _BY_TYPE.items():
        if issubclass(kind, base) and compares_as(kind, base):
            return hasher
    if dataclasses.is_dataclass(kind):
        why_not = _why_dataclass_is_no_key(kind)
        return _hash_dataclass if why_not is None else lambda key: _refuse(key, why_not)
    if issubclass(kind, Enum) and kind.__eq__ is object.__eq__ and kind.__hash__ is Enum.__hash__:
        return _hash_enum
    why = next((why for base, why in _WHY_NOT if issubclass(kind, base)), None)
    why = why or "it has no form that is the same in every process; use a string, a number or a tuple of them"
    return lambda key: _refuse(key, why)


def compares_as(kind: type, base: type) -> bool:
    return kind.__eq__ is base.__eq__ and kind.__hash__ is base.__hash__


def _why_dataclass_is_no_key(kind: type) -> str | None:
    """The reason that instances of a dataclass can't be keys; `None` when they can."""
    if getattr(kind, "__hash__", None) is None:
        return "it can change; declare it with @dataclass(frozen=True)"
    code = getattr(kind.__eq__, "__code__", None)
    compared = {field.name for field in dataclasses.fields(kind) if field.compare}
    # A generated comparison names only the class, `NotImplemented` and the compared fields.
    if code is None or code.co_filename != "<string>" or set(code.co_names) - compared != _GENERATED_NAMES:
        return "it does not compare by its fields (eq=False or an __eq__ of its own); key by a tuple of them"
    return None


_GENERATED_NAMES: Final = {"__class__", "NotImplemented"}
