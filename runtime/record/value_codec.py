"""The codec of single values: a decoded value is equal to the encoded one and of the same type.

`ValueDecoder` is the inverse of the encoder. Whatever the bytes are, the outcome is a value or a
`CodecError`. Lengths are checked against the data before memory is taken. Nesting is bounded, because every
level takes C stack. Without pickle, no function that the data names is called, and no user's module is
imported; only records and enums are rebuilt.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum, EnumType, Flag, IntFlag
from functools import partial, reduce
from itertools import repeat
from operator import or_, setitem
from typing import Any, Final, cast

from msgpack import Unpacker, unpackb

from penstock.runtime.error_text import error_text
from penstock.runtime.errors import CodecError
from penstock.runtime.record.leaf_types import (
    FLAGS_SEPARATOR,
    LEAF_TYPES,
    MAX_DEPTH,
    ExtensionCode,
    array_from_native,
    datetimes_from_native,
    scalar_from_native,
    scalars_from_native,
)
from penstock.runtime.record.record_classes import (
    ClassDirectory,
    PickleFallback,
    RecordShape,
    describe_type,
    shape_of,
)
from penstock.runtime.record.value_encoder import ValueEncoder
from penstock.runtime.trust.data import PicklePolicy

_SURROGATES: Final = "surrogatepass"
#: `unpackb` keeps 40 kB on the C stack while it calls the hook; deeper than this, a heap object is used.
_DEPTH_ON_STACK: Final = 16

#: First byte of an extension whose size has four bytes, and the bytes before its content.
_LONG_EXTENSION: Final = 0xC9
_LONG_HEADER: Final = 6

_LEAVES: Final[dict[int, Callable[[Any], Any]]] = {
    **{leaf.code: leaf.from_native for leaf in LEAF_TYPES},
    ExtensionCode.NUMPY_SCALAR: scalar_from_native,
}


class ValueDecoder:
    def __init__(self, policy: PicklePolicy, classes: ClassDirectory, pickles: PickleFallback) -> None:
        self._policy = policy
        self._classes = classes
        self._shapes: dict[tuple[str, str], RecordShape] = {}
        self._raw: dict[int, Callable[[bytes], Any]] = {
            ExtensionCode.PICKLE: pickles.loads,
            ExtensionCode.PICKLES: pickles.loads_all,
            ExtensionCode.BIG_INT: partial(int.from_bytes, byteorder="big", signed=True),
            ExtensionCode.STRINGS: _strings,
        }
        self._builders: dict[int, Callable[[Any], Any]] = {
            **_LEAVES,
            ExtensionCode.TUPLE: _tuple,
            ExtensionCode.TUPLES: _tuples,
            ExtensionCode.LISTS: _lists,
            ExtensionCode.DICTS: _dicts,
            ExtensionCode.DICT: _dict,
            ExtensionCode.SET: _set,
            ExtensionCode.FROZENSET: _frozenset,
            ExtensionCode.DEQUE: _deque,
            ExtensionCode.LEAVES: self._leaf_column,
            ExtensionCode.DATETIMES: datetimes_from_native,
            ExtensionCode.NUMPY_SCALARS: scalars_from_native,
            ExtensionCode.ARRAY: array_from_native,
            ExtensionCode.RECORD: self._record,
            ExtensionCode.RECORDS: self._records,
            ExtensionCode.ENUM: self._enum,
            ExtensionCode.ENUMS: self._enums,
        }
        #: Hooks by depth; each is created when a value first reaches its depth, because most values are flat.
        self._hooks: list[Callable[[int, bytes], Any]] = []

    def decode(self, data: bytes | bytearray | memoryview) -> Any:
        try:
            if data and data[0] == _LONG_EXTENSION:
                return self._long_extension(memoryview(data))
            return self._unpack(data, 0)
        except CodecError:
            raise
        except Exception as error:  # invalid bytes can raise anything
            msg = f"data of length {len(data)} can't be decoded to a value: {error_text(error)}"
            raise CodecError(msg) from error

    def _unpack(self, data: bytes | bytearray | memoryview, depth: int) -> Any:
        if depth < _DEPTH_ON_STACK:
            while depth >= len(self._hooks):
                self._hooks.append(partial(self._extension, len(self._hooks)))
            hook = self._hooks[depth]
            return unpackb(data, ext_hook=hook, strict_map_key=False, unicode_errors=_SURROGATES)
        deep_hook = partial(self._extension, depth)
        unpacker = Unpacker(
            ext_hook=deep_hook, strict_map_key=False, unicode_errors=_SURROGATES, max_buffer_size=len(data)
        )
        unpacker.feed(data)
        value = unpacker.unpack()
        if unpacker.tell() != len(data):
            msg = f"{len(data) - unpacker.tell()} bytes are left over after a value: the data is damaged"
            raise CodecError(msg)
        return value

    def _long_extension(self, data: memoryview) -> Any:
        """Decode an extension from a view of its content; msgpack would copy it."""
        size, code = int.from_bytes(data[1:5]), data[_LONG_HEADER - 1]
        builder = self._builders.get(code)
        if builder is None or size != len(data) - _LONG_HEADER:
            return self._unpack(data, 0)
        return builder(self._unpack(data[_LONG_HEADER:], 1))

    def _extension(self, depth: int, code: int, data: bytes) -> Any:
        raw = self._raw.get(code)
        if raw is not None:
            return raw(data)
        builder = self._builders.get(code)
        if builder is None:
            msg = f"the data holds an unknown kind of value ({code}): it is damaged, or of a newer version"
            raise CodecError(msg)
        if depth >= MAX_DEPTH:
            msg = f"the data is nested deeper than {MAX_DEPTH} levels: it is damaged"
            raise CodecError(msg)
        return builder(self._unpack(data, depth + 1))

    def _leaf_column(self, native: Any) -> list[Any]:
        code, natives = native
        return list(map(_LEAVES[code], natives))

    def _shape(self, module: str, qualname: str) -> RecordShape:
        shape = self._shapes.get((module, qualname))
        if shape is None:
            cls = self._classes.find(module, qualname)
            shape = shape_of(cls, may_finalize=True)
            if shape is None:
                msg = (
                    f"the data holds a record of {describe_type(cls)}, "
                    "which is neither a named tuple nor a dataclass"
                )
                raise CodecError(msg)
            self._policy.check_class(cls, describe_type(cls))
            self._shapes[module, qualname] = shape
        return shape

    def _record(self, native: Any) -> Any:
        module, qualname, names, state = native
        shape = self._shape(module, qualname)
        if type(state) is dict and not self._policy.allowed:
            self._policy.check_hidden(shape.hides_method(state), describe_type(shape.cls))
        return shape.build(names, state)

    def _records(self, native: Any) -> list[Any]:
        module, qualname, names, states = native
        return self._shape(module, qualname).build_all(names, states)

    def _enum(self, native: Any) -> Enum:
        module, qualname, token = native
        cls = self._enum_class(module, qualname)
        return _member(cls, token, may_call=self._policy.allowed)

    def _enums(self, native: Any) -> list[Enum]:
        module, qualname, tokens = native
        member = partial(_member, self._enum_class(module, qualname), may_call=self._policy.allowed)
        return list(map(member, tokens))

    def _enum_class(self, module: str, qualname: str) -> type[Enum]:
        cls = self._classes.find(module, qualname)
        if not issubclass(cls, Enum):
            msg = f"the data holds a member of {describe_type(cls)}, which is not an enum"
            raise CodecError(msg)
        return cls


def _member(cls: type[Enum], token: Any, *, may_call: bool) -> Enum:
    if issubclass(cls, Flag):
        if type(token) is int:
            return _flags(cls, token, may_call=may_call)
        if type(token) is str and FLAGS_SEPARATOR in token and token not in cls.__members__:
            names = token.split(FLAGS_SEPARATOR)
            numbers = [_member(cls, name, may_call=may_call)._value_ for name in names]
            return _flags(cls, reduce(or_, numbers), may_call=may_call)
    member = cls.__members__.get(token)
    if member is None:
        what = f"enum {describe_type(cls)} no longer has the member {token!r}"
        msg = f"{what} that the data holds. Keep the member"
        raise CodecError(msg)
    return member


def _flags(cls: type[Flag], number: int, *, may_call: bool) -> Flag:
    """Return the flags with a number; the class's `_missing_` makes a combination that has no member yet."""
    known = cls._value2member_map_.get(number)
    if known is not None:
        return cast("Flag", known)
    if not (may_call or _makes_plain_members(cls)):
        msg = (
            f"the data holds the flags {number} of {describe_type(cls)}. Only the class's own code can make "
            "this combination, and pickle is not allowed here (allow_pickle=False). Allow it, or give the "
            "combination a name"
        )
        raise CodecError(msg)
    return cls(number)


def _makes_plain_members(cls: type[Flag]) -> bool:
    """Whether Python makes combinations of a class without the class's code."""
    if type(cls) is not EnumType or getattr(cls, "_member_type_", None) not in (object, int):
        return False
    return getattr(cls._missing_, "__func__", None) in _MAKERS


#: The methods with which Python makes combinations of flags.
_MAKERS: Final = frozenset({Flag._missing_.__func__, IntFlag._missing_.__func__})  # type: ignore[attr-defined]


def _strings(data: bytes) -> list[str]:
    return data.decode("utf-8", _SURROGATES).split("\0")


def _items(native: Any) -> list[Any]:
    if type(native) is not list:
        msg = f"the data holds a {type(native).__name__} instead of a list: it is damaged"
        raise CodecError(msg)
    return native


def _transposed(columns: list[Any]) -> zip[tuple[Any, ...]]:
    return zip(*map(_items, columns), strict=True)


def _tuple(native: Any) -> tuple[Any, ...]:
    return tuple(_items(native))


def _tuples(native: Any) -> list[tuple[Any, ...]]:
    return list(_transposed(_items(native)))


def _lists(native: Any) -> list[list[Any]]:
    return list(map(list, _transposed(_items(native))))


def _dicts(native: Any) -> list[dict[Any, Any]]:
    keys, *columns = _items(native)
    if len(columns) != len(keys):
        msg = f"the numbers of keys ({len(keys)}) and columns ({len(columns)}) differ: the data is damaged"
        raise CodecError(msg)
    template = dict.fromkeys(keys)
    _check_distinct(len(keys), len(template), "keys of a dict")
    size = min(map(len, map(_items, columns)), default=0)
    # Copying a dict and setting its values by column is twice as fast as building each dict from pairs.
    built: list[dict[Any, Any]] = list(map(dict.copy, repeat(template, size)))
    for key, column in zip(keys, columns, strict=True):
        if len(column) != size:
            msg = f"the data holds columns of lengths {size} and {len(column)}: it is damaged"
            raise CodecError(msg)
        deque(map(setitem, built, repeat(key), column), maxlen=0)  # runs the map, keeps nothing
    return built


def _dict(native: Any) -> dict[Any, Any]:
    keys, values = native
    built = dict(zip(_items(keys), _items(values), strict=True))
    _check_distinct(len(keys), len(built), "keys of a dict")
    return built


def _set(native: Any) -> set[Any]:
    built = set(_items(native))
    _check_distinct(len(native), len(built), "items of a set")
    return built


def _frozenset(native: Any) -> frozenset[Any]:
    return frozenset(_set(native))


def _deque(native: Any) -> deque[Any]:
    items, length = native
    return deque(_items(items), length)


def _check_distinct(written: int, built: int, what: str) -> None:
    if written != built:
        msg = (
            f"only {built} of {written} {what} are left, because some became equal when they were decoded. "
            "Their classes must compare and hash by what is encoded"
        )
        raise CodecError(msg)


class ValueCodec:
    """Encodes values as msgpack with extensions, and decodes them.

    These types are kept exactly: `None`, bool, int (any size), float, complex, Decimal, Fraction, str, bytes,
    bytearray, UUID, datetime, date, time and timedelta. So are list, tuple, dict, set, frozenset, deque, enum
    members, numpy scalars and arrays, named tuples and dataclasses. Everything else, including subclasses of
    these types, is pickled.

    Equal values may have different bytes, such as equal sets whose items are in another order. Shared
    references become copies.

    Args:
        allow_pickle: Whether values of other types may be pickled and unpickled. Without pickle, data can't
            cause the import of a user's module.
        classes: Classes of records, enums and pickled objects that can't be found through their module in
            this process, such as those of a job's `__main__`.

    Example:
        >>> from decimal import Decimal
        >>> codec = ValueCodec(allow_pickle=False)
        >>> codec.loads(codec.dumps({"price": Decimal("1.10"), "at": (1, 2.0)}))
        {'price': Decimal('1.10'), 'at': (1, 2.0)}
    """

    def __init__(self, allow_pickle: bool = True, classes: Iterable[type] = ()) -> None:
        self.allows_pickle = allow_pickle
        self._classes = tuple(classes)
        policy = PicklePolicy(allow_pickle)
        directory = ClassDirectory(policy, self._classes)
        self._pickles = PickleFallback(policy, directory)
        self._encoder = ValueEncoder(directory, self._pickles)
        self._decoder = ValueDecoder(policy, directory, self._pickles)
        #: Codecs that other threads have returned after use; appending and popping are atomic.
        self._idle: deque[ValueCodec] = deque()

    def dumps(self, value: Any) -> bytes:
        """Encode a value; raises `CodecError` if it can't be encoded, or needs a pickle that is refused."""
        return self._encoder.encode(value)

    def loads(self, data: bytes | bytearray | memoryview) -> Any:
        """Decode a value; raises `CodecError` for damage, an unknown class, or a pickle that is refused."""
        return self._decoder.decode(data)

    @contextmanager
    def for_another_thread(self) -> Iterator[ValueCodec]:
        """Lend a codec with the same settings until the end of the `with`.

        One codec serves one thread: its packer has a buffer of its own. Codecs are large, and only the cycle
        collector would free them. So they are reused.
        """
        try:
            codec = self._idle.pop()
        except IndexError:
            codec = ValueCodec(self.allows_pickle, self._classes)
        try:
            yield codec
        finally:
            self._idle.append(codec)

    @property
    def pickled(self) -> int:
        return self._pickles.pickled
