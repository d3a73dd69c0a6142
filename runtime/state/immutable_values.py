"""`ImmutableValues` and `OwnedValues`: values that a snapshot may take by reference.

Another thread encodes them while the task continues. So their bytes must be those of the barrier, whatever
the task does meanwhile.

**Immutable values** can't change. `ImmutableValues` decides by exact types, many values at a time.

**Copies** could change, but no code changes them. A view copies each mutable value that it takes from a
function or returns to it (`own_copy.py`). So only the table refers to the stored value, and the view only
replaces it. An overwritten value stays as it was: the copies that isolate a function are also the snapshot's
copy on write. `OwnedValues` therefore accepts lists, dicts, sets, arrays and plain objects, too.

It must never accept a value that `own_copy` may return uncopied. A class that defines how it is copied may
return the object itself. So values of such a class are accepted only if they are immutable. It must never
accept a value that can't be encoded. The task itself encodes a value that is not accepted, so the error names
the key and fails the task.

**Accumulators** of a reducing or aggregating state, of `reduce`, `aggregate` and of windows may be changed in
place. They are copied first, if a snapshot may hold them (`DirtyEntries.own_accumulators`). Nothing else
refers to an accumulator. `OwnedValues` accepts these, too. It notes whether it has accepted a mutable value,
because otherwise nothing needs a copy.
"""

from __future__ import annotations

import dataclasses
from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, time
from enum import Enum
from functools import cached_property, partial
from itertools import chain
from typing import Any, Final, TypeAlias

import numpy as np

from penstock.runtime.errors import CodecError
from penstock.runtime.record.record_classes import RecordShape, shape_of
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.state.own_copy import LEAVES, copies_parts


class Deleted:
    """Type of the marker that replaces the value of a deleted entry."""

    def __repr__(self) -> str:
        return "deleted"


DELETED: Final = Deleted()

#: Types whose values can't change and have no parts, with that of `DELETED`.
FIXED: Final = LEAVES | {Deleted}

#: Levels of nested tuples that are checked; a deeper value counts as mutable.
_DEPTH: Final = 8

#: Returns the parts of all given values of one type.
_PartsOf: TypeAlias = Callable[[Iterable[Any]], Iterable[Any]]
#: Returns a new iterator over the same values at each call.
_Values: TypeAlias = Callable[[], Iterable[Any]]


class ImmutableValues:
    """Distinguishes values that can't change from values that may.

    A snapshot keeps references to immutable values and encodes them in another thread. Exact types decide,
    because a subclass of `str` may have attributes of its own. These are immutable:

    * the leaves: `None`, `bool`, numbers, `str`, `bytes`, dates, durations, UUIDs; and members of enums;
    * tuples, named tuples without a `__dict__`, and frozen dataclasses, if all their values are immutable;
    * `datetime` and `time` with a fixed offset, or without one.

    Many values are checked at once, at C speed: their parts are chained, and the parts' types collected.
    A value must never count as immutable if one of its attributes, items or methods can change. Code that
    bypasses the rules on purpose (`object.__setattr__`) is not considered.

    Attributes:
        has_accepted_mutable: Whether a snapshot may refer to a value that could change.
    """

    def __init__(self, codec: ValueCodec) -> None:
        self._codec = codec
        self.has_accepted_mutable = False
        self._known: dict[type, _PartsOf | None] = {
            tuple: chain.from_iterable,
            datetime: _zones,
            time: _zones,
        }

    @cached_property
    def owned(self) -> OwnedValues:
        return OwnedValues(self._codec, self)

    def are_immutable(self, values: Sequence[Any]) -> bool:
        return self._check(values.__iter__, 0)

    def mutable(self, entries: Mapping[Any, Any]) -> list[Any]:
        """The entries whose values may change."""
        values = entries.values()
        types = set(map(type, values)) - FIXED
        never, mixed = set(), set()
        for kind in types:
            some = values.__iter__ if len(types) == 1 else partial(_of_type, values, kind)
            if self._parts_of(kind, values) is None:
                never.add(kind)
            elif not self._check(some, 0):
                mixed.add(kind)
        if not never and not mixed:
            return []
        return [
            entry
            for entry, value in entries.items()
            if type(value) in never or (type(value) in mixed and not self.are_immutable((value,)))
        ]

    def _check(self, values: _Values, depth: int) -> bool:
        types = set(map(type, values()))
        others = types - FIXED
        if not others:
            return True
        if depth == _DEPTH:
            return False
        for kind in others:
            some = values if len(types) == 1 else partial(_of_type, list(values()), kind)
            if not self._check_kind(kind, some, depth):
                return False
        return True

    def _check_kind(self, kind: type, some: _Values, depth: int) -> bool:
        parts = self._parts_of(kind, some())
        if parts is None or not self._have_form(kind, some):
            return False
        return self._check(partial(_call, parts, some), depth + 1)

    def _have_form(self, kind: type, some: _Values) -> bool:
        """Whether the codec can encode all of these values if it can encode one, apart from their parts.

        Without pickle it refuses attributes that hide a method.
        """
        if self._codec.allows_pickle:
            return True
        shape = shape_of(kind)
        if shape is None or not shape.has_dict:
            return True
        return shape.hides_method(set[str]().union(*map(vars, some()))) is None

    def _parts_of(self, kind: type, values: Iterable[Any]) -> _PartsOf | None:
        """Find the function that returns the parts of values of a type; `None` for a mutable type."""
        try:
            return self._known[kind]
        except KeyError:
            parts = self._find_parts(kind)
            if parts is not None:
                try:
                    self._codec.dumps(next(value for value in values if type(value) is kind))
                except CodecError:
                    return None
            self._known[kind] = parts
            return parts

    def _find_parts(self, kind: type) -> _PartsOf | None:
        return _parts_of(kind)


class OwnedValues(ImmutableValues):
    """Also accepts values that `own_copy` copies, because no other code refers to the copy."""

    def __init__(self, codec: ValueCodec, immutable: ImmutableValues) -> None:
        super().__init__(codec)
        self._immutable = immutable
        self._known = {**_COPIED}
        if not codec.allows_pickle:
            del self._known[array]
            self._known[np.ndarray] = self._arrays_without_form

    def mutable(self, entries: Mapping[Any, Any]) -> list[Any]:
        values = entries.values()
        types = set(map(type, values)) - FIXED
        others = set()
        for kind in types:
            some = values.__iter__ if len(types) == 1 else partial(_of_type, values, kind)
            if not self._check(some, 0):
                others.add(kind)
        if not others:
            return []
        return [
            entry
            for entry, value in entries.items()
            if type(value) in others and not self.are_immutable((value,))
        ]

    def _check_kind(self, kind: type, some: _Values, depth: int) -> bool:
        if self._parts_of(kind, some()) is None:
            return self._immutable._check_kind(kind, some, depth)
        if self._immutable._parts_of(kind, some()) is None:
            self.has_accepted_mutable = True
        return super()._check_kind(kind, some, depth)

    def _arrays_without_form(self, values: Iterable[Any]) -> Iterable[Any]:
        """The arrays that the codec refuses; such an array is then its own part, as in `_COPIED`."""
        values = tuple(values)
        refused = {dtype for dtype in {value.dtype for value in values} if not self._has_form(dtype)}
        return (value for value in values if value.dtype in refused)

    def _has_form(self, dtype: np.dtype[Any]) -> bool:
        try:
            self._codec.dumps(np.empty(0, dtype))
        except CodecError:
            return False
        return True

    def _find_parts(self, kind: type) -> _PartsOf | None:
        shape = shape_of(kind) if copies_parts(kind) else None
        if shape is None:
            return None
        if shape.is_tuple:
            return chain.from_iterable if kind.__iter__ is tuple.__iter__ else None  # type: ignore[attr-defined]
        return None if shape.slots or _has_cached_property(kind) else _attributes


def _of_type(values: Collection[Any], kind: type) -> list[Any]:
    return [value for value in values if type(value) is kind]


def _call(parts: _PartsOf, values: _Values) -> Iterable[Any]:
    return parts(values())


def _parts_of(kind: type) -> _PartsOf | None:
    if issubclass(kind, Enum):
        return lambda values: ()  # encoded by name
    shape = shape_of(kind)
    if shape is None:
        return None
    if shape.is_tuple:
        is_plain = not shape.has_dict and kind.__iter__ is tuple.__iter__  # type: ignore[attr-defined]
        return chain.from_iterable if is_plain else None
    params = vars(kind).get("__dataclass_params__")
    if params is None or not params.frozen or not dataclasses.is_dataclass(kind):
        return None
    if _has_cached_property(kind):
        return None
    if shape.has_dict and not shape.slots:
        return _attributes
    return partial(_all_attributes, shape)


def _has_cached_property(kind: type) -> bool:
    return any(isinstance(part, cached_property) for base in kind.__mro__ for part in vars(base).values())


def _zones(values: Iterable[datetime | time]) -> Iterator[Any]:
    return (value.tzinfo for value in values)


def _no_parts(_: Iterable[Any]) -> Iterable[Any]:
    return ()


def _keys_and_values(values: Iterable[dict[Any, Any]]) -> Iterable[Any]:
    return chain.from_iterable(chain(value, value.values()) for value in values)


def _objects_of(values: Iterable[Any]) -> Iterable[Any]:
    """The arrays of objects themselves: such an array is then its own part, and never accepted."""
    return (value for value in values if value.dtype.hasobject)


def _attributes(values: Iterable[Any]) -> Iterable[Any]:
    attributes: Iterable[Any] = map(vars, values)
    return chain.from_iterable(map(dict.values, attributes))


def _all_attributes(shape: RecordShape, values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        for name in shape.slots:
            with suppress(AttributeError):
                yield getattr(value, name)
        if shape.has_dict:
            yield from vars(value).values()


#: Types whose values `own_copy` always copies, with functions that return their parts.
_COPIED: Final[dict[type, _PartsOf | None]] = {
    list: chain.from_iterable,
    set: chain.from_iterable,
    frozenset: chain.from_iterable,
    deque: chain.from_iterable,
    tuple: chain.from_iterable,
    dict: _keys_and_values,
    bytearray: _no_parts,
    array: _no_parts,
    np.ndarray: _objects_of,
}
