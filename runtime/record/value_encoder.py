"""Values to bytes: every value is *lowered* to types that msgpack distinguishes, then packed.

msgpack alone would write a tuple as a list, a bytearray as bytes and an int subclass as an int. So lowering
depends on the exact type, never on `isinstance`. Native values stay as they are. Dicts with native keys stay
maps, and most lists stay lists; their items are lowered. All other values become extensions.

Lists are lowered as *columns*: many tuples, dicts or records of one kind are transposed. So their kind, their
keys and their class are written once, and their items are handled at C speed.

Identity is not kept: a list that occurs twice in a value is decoded to two lists.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import Enum, Flag
from itertools import chain, cycle
from operator import is_
from typing import Any, Final, TypeAlias

import numpy as np
from msgpack import ExtType, Packer

from penstock.runtime.errors import CodecError
from penstock.runtime.record.leaf_types import (
    FLAGS_SEPARATOR,
    LEAF_TYPES,
    MAX_DEPTH,
    NATIVE_TYPES,
    UNSUPPORTED,
    ExtensionCode,
    array_to_native,
    datetimes_to_native,
    is_numpy_scalar_type,
    scalar_to_native,
    scalars_to_native,
)
from penstock.runtime.record.record_classes import (
    ClassDirectory,
    PickleFallback,
    RecordShape,
    describe_type,
    shape_of,
)

#: Lowers one value; the second argument is its nesting depth.
Lower: TypeAlias = Callable[[Any, int], Any]
#: Lowers a column of values of one type; `None` when they have to be lowered one by one.
LowerColumn: TypeAlias = Callable[[Sequence[Any], int], Any]

_ONLY_STRINGS: Final = {str}
#: Minimum number of strings for which joining them is faster than packing each.
_MANY_STRINGS: Final = 8

_SURROGATES: Final = "surrogatepass"

_new_extension: Final = tuple.__new__


_LEAVES: Final = {leaf.type: leaf for leaf in LEAF_TYPES}


class ValueEncoder:
    def __init__(self, classes: ClassDirectory, pickles: PickleFallback) -> None:
        self._classes = classes
        self._pickles = pickles
        self._packer = Packer(strict_types=True)
        self._single: dict[type, Lower] = {
            list: self.column,
            tuple: self._tuple,
            dict: self._dict,
            set: self._set,
            frozenset: self._frozenset,
            deque: self._deque,
        }
        self._columns: dict[type, LowerColumn] = {
            list: self._list_column,
            tuple: self._tuple_column,
            dict: self._dict_column,
        }

    def encode(self, value: Any) -> bytes:
        try:
            return self.pack(self.lower(value, 0))
        except CodecError:
            raise
        except (ValueError, OverflowError, RecursionError) as error:
            msg = f"a value of type {describe_type(type(value))} can't be encoded: {error}"
            raise CodecError(msg) from error

    def lower(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind in NATIVE_TYPES:
            return value
        if depth >= MAX_DEPTH:
            msg = f"a value is nested deeper than {MAX_DEPTH} levels, or contains itself. Flatten it"
            raise CodecError(msg)
        handler = self._single.get(kind)
        if handler is None:
            handler = self._learn(kind)
        return handler(value, depth + 1)

    def column(self, values: Sequence[Any], depth: int) -> Any:
        """Lower a list whose items are at nesting depth `depth`; the result decodes to a list."""
        kinds = set(map(type, values))
        if kinds <= NATIVE_TYPES:
            if kinds == _ONLY_STRINGS and len(values) >= _MANY_STRINGS:
                joined = "\0".join(values)
                if joined.count("\0") == len(values) - 1:
                    return extension_of(ExtensionCode.STRINGS, joined.encode("utf-8", _SURROGATES))
            return values if type(values) is list else list(values)
        if len(kinds) == 1 and len(values) > 1 and depth < MAX_DEPTH:
            (kind,) = kinds
            if kind not in self._single:
                self._learn(kind)
            by_column = self._columns.get(kind)
            lowered = by_column(values, depth + 1) if by_column is not None else None
            if lowered is not None:
                return lowered
        lower = self.lower
        return [lower(value, depth) for value in values]

    def pack(self, lowered: Any) -> bytes:
        try:
            packed: bytes = self._packer.pack(lowered)
        except (OverflowError, UnicodeEncodeError):
            packer = Packer(strict_types=True, default=_big_int, unicode_errors=_SURROGATES)
            packed = packer.pack(lowered)
        return packed

    def extension(self, code: int, native: Any) -> ExtType:
        return extension_of(code, self.pack(native))

    def _learn(self, kind: type) -> Lower:
        single, self._columns[kind] = self._resolve(kind)
        self._single[kind] = single
        return single

    def _tuple(self, value: tuple[Any, ...], depth: int) -> ExtType:
        return self.extension(ExtensionCode.TUPLE, self.column(value, depth))

    def _set(self, value: set[Any], depth: int) -> ExtType:
        return self.extension(ExtensionCode.SET, self.column(list(value), depth))

    def _frozenset(self, value: frozenset[Any], depth: int) -> ExtType:
        return self.extension(ExtensionCode.FROZENSET, self.column(list(value), depth))

    def _deque(self, value: deque[Any], depth: int) -> ExtType:
        return self.extension(ExtensionCode.DEQUE, [self.column(list(value), depth), value.maxlen])

    def _dict(self, value: dict[Any, Any], depth: int) -> Any:
        if not set(map(type, value)) <= NATIVE_TYPES:
            # In a map, two different keys could get equal bytes, and one would be lost.
            keys, values = self.column(list(value), depth), self.column(list(value.values()), depth)
            return self.extension(ExtensionCode.DICT, [keys, values])
        if set(map(type, value.values())) <= NATIVE_TYPES:
            return value
        lower = self.lower
        return {key: lower(item, depth) for key, item in value.items()}

    def _tuple_column(self, values: Sequence[tuple[Any, ...]], depth: int) -> ExtType | None:
        return self._transposed(ExtensionCode.TUPLES, values, depth)

    def _list_column(self, values: Sequence[list[Any]], depth: int) -> ExtType | None:
        return self._transposed(ExtensionCode.LISTS, values, depth)

    def _transposed(self, code: int, values: Sequence[Any], depth: int) -> ExtType | None:
        if not 0 < len(values[0]) <= len(values):
            return None
        try:
            columns = list(zip(*values, strict=True))
        except ValueError:  # of different lengths
            return None
        return self.extension(code, [self.column(column, depth) for column in columns])

    def _dict_column(self, values: Sequence[dict[Any, Any]], depth: int) -> ExtType | None:
        keys = list(values[0])
        if not 0 < len(keys) <= len(values) or not set(map(type, keys)) <= NATIVE_TYPES:
            return None
        try:
            columns = list(zip(*map(dict.values, values), strict=True))
        except ValueError:  # of different lengths
            return None
        if not _have_keys(values, keys):
            return None
        return self.extension(
            ExtensionCode.DICTS, [keys, *(self.column(column, depth) for column in columns)]
        )

    def _resolve(self, kind: type) -> tuple[Lower, LowerColumn]:
        leaf = _LEAVES.get(kind)
        if leaf is not None:
            return self._simple(leaf.code, leaf.to_native, datetimes_to_native if kind is datetime else None)
        if issubclass(kind, Enum):
            return self._enum(kind)
        if kind is np.ndarray:
            return self._array, _one_by_one
        if is_numpy_scalar_type(kind):
            return self._numpy_scalar()
        shape = shape_of(kind)
        return self._pickled(kind) if shape is None else self._record(shape)

    def _simple(
        self,
        code: int,
        to_native: Callable[[Any], Any],
        together: Callable[[Sequence[Any]], Any] | None,
    ) -> tuple[Lower, LowerColumn]:
        extension, pickled = self.extension, self._pickled_value

        def single(value: Any, depth: int) -> ExtType:
            native = to_native(value)
            return pickled(value) if native is UNSUPPORTED else extension(code, native)

        def column(values: Sequence[Any], depth: int) -> ExtType | None:
            native = UNSUPPORTED if together is None else together(values)
            if native is not UNSUPPORTED:
                return extension(ExtensionCode.DATETIMES, native)
            natives = list(map(to_native, values))
            return None if UNSUPPORTED in natives else extension(ExtensionCode.LEAVES, [code, natives])

        return single, column

    def _enum(self, kind: type[Enum]) -> tuple[Lower, LowerColumn]:
        name = self._classes.name_of(kind)
        members: Mapping[str, Any] = kind.__members__
        extension, pickled = self.extension, self._pickled_value
        combined = issubclass(kind, Flag)

        def token(value: Any) -> Any:
            name, number = value._name_, value._value_
            if members.get(name) is value:
                return name
            if not combined or type(number) is not int:
                return UNSUPPORTED
            parts: list[Any] = [part for part in value if members.get(part._name_) is part]
            is_named = len(parts) > 1 and sum(part._value_ for part in parts) == number
            return FLAGS_SEPARATOR.join(part._name_ for part in parts) if is_named else number

        def single(value: Any, depth: int) -> ExtType:
            native = token(value)
            return pickled(value) if native is UNSUPPORTED else extension(ExtensionCode.ENUM, [*name, native])

        def column(values: Sequence[Any], depth: int) -> ExtType | None:
            tokens = list(map(token, values))
            return None if UNSUPPORTED in tokens else extension(ExtensionCode.ENUMS, [*name, tokens])

        return single, column

    def _numpy_scalar(self) -> tuple[Lower, LowerColumn]:
        extension = self.extension
        single, _ = self._simple(ExtensionCode.NUMPY_SCALAR, scalar_to_native, None)

        def column(values: Sequence[Any], depth: int) -> ExtType | None:
            native = scalars_to_native(values)
            return None if native is UNSUPPORTED else extension(ExtensionCode.NUMPY_SCALARS, native)

        return single, column

    def _array(self, value: np.ndarray[Any, Any], depth: int) -> ExtType:
        native = array_to_native(value)
        if native is None:
            return self._pickled_value(value)
        dtype, shape, order, content = native
        lowered = self.column(content, depth) if isinstance(content, list) else content
        return self.extension(ExtensionCode.ARRAY, [dtype, shape, order, lowered])

    def _record(self, shape: RecordShape) -> tuple[Lower, LowerColumn]:
        name = self._classes.name_of(shape.cls)
        fields, extension, pickled = list(shape.names), self.extension, self._pickled_value

        def single(value: Any, depth: int) -> ExtType:
            state = shape.state_of(value)
            if state is None or (type(state) is dict and shape.hides_method(state) is not None):
                return pickled(value)
            return extension(ExtensionCode.RECORD, [*name, fields, self.lower(state, depth)])

        def column(values: Sequence[Any], depth: int) -> ExtType | None:
            states = shape.states_of(values)
            if states is None:
                return None
            return extension(ExtensionCode.RECORDS, [*name, fields, self.column(states, depth)])

        return single, column

    def _pickled(self, kind: type) -> tuple[Lower, LowerColumn]:
        def single(value: Any, depth: int) -> ExtType:
            return self._pickled_value(value)

        def column(values: Sequence[Any], depth: int) -> ExtType:
            # In one pickle the class is named once.
            return extension_of(ExtensionCode.PICKLES, self._pickles.dumps_all(list(values), kind))

        return single, column

    def _pickled_value(self, value: Any) -> ExtType:
        return extension_of(ExtensionCode.PICKLE, self._pickles.dumps(value, type(value)))


def extension_of(code: int, data: bytes) -> ExtType:
    """Make an extension of bytes, without its constructor's checks: they take longer than packing it."""
    return _new_extension(ExtType, (code, data))


def _have_keys(values: Sequence[dict[Any, Any]], keys: list[Any]) -> bool:
    """Return whether all dicts, of equal length, have these keys, of equal types and in this order."""
    if all(map(is_, chain.from_iterable(values), cycle(keys))):
        return True
    same = list(map(list, values)).count(keys) == len(values)
    return same and set(map(type, chain.from_iterable(values))) == _ONLY_STRINGS


def _big_int(value: Any) -> ExtType:
    if type(value) is not int:
        msg = f"{describe_type(type(value))} was not lowered"
        raise CodecError(msg)
    size = value.bit_length() // 8 + 1
    return extension_of(ExtensionCode.BIG_INT, value.to_bytes(size, "big", signed=True))


def _one_by_one(values: Sequence[Any], depth: int) -> None:
    return None
