"""The extension codes of the wire format: which kind of value a msgpack extension stands for.

The numbers are the format. They are in every checkpoint that was ever written. So a number never changes and
never gets another meaning. A new kind takes the next free number.
"""

from __future__ import annotations

from types import NoneType
from typing import Final

#: Types that msgpack itself keeps apart and gives back unchanged.
NATIVE_TYPES: Final = frozenset({NoneType, bool, int, float, str, bytes})

#: Between the names of flags that are combined.
FLAGS_SEPARATOR: Final = "|"
#: How deeply containers may be nested; bounds the stack that encoder and decoder take.
MAX_DEPTH: Final = 100


class ExtensionCode:
    """What an extension holds; the comment says how its payload is built.

    Where it says `module`, `penstock` stands for a class of Penstock, whose name is in `stable_names.py`.

    Plain integers and no enum: they are looked up for every value.
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
    LEAVES: Final = 12  # [code, [payload, ...]]: a column of one simple type
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
    DEQUE: Final = 30  # [column, maximal length]
