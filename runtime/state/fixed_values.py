"""Values that can't change: a snapshot keeps a reference to them and encodes them beside the task.

Whatever else a state holds might change the next moment, in place, by a reference that a function has kept.
So a snapshot encodes it at once. What counts as fixed is decided by exact types, because a subclass of `str`
may have attributes of its own:

* `None`, `bool`, numbers, `str`, `bytes`, dates, UUIDs, members of enums: the *leaves*.
* Tuples, named tuples without a `__dict__`, and frozen dataclasses, whose values are all fixed, recursively.
  `datetime` and `time` are fixed with a fixed offset or without one.

A frozen dataclass with a list in it is not fixed; one without is. So types decide for leaves alone, and the
values of everything else are looked at. That is done for many values at once: their parts are chained and the
set of their types is taken, both at C speed.

It must never call a value fixed that some attribute, item or method can change. What goes round the rules on
purpose (`object.__setattr__`) is not considered.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from functools import cached_property, partial
from itertools import chain
from types import NoneType
from typing import Any, Final, TypeAlias
from uuid import UUID

from penstock.runtime.errors import CodecError
from penstock.runtime.record.record_classes import RecordShape, shape_of
from penstock.runtime.record.value_codec import ValueCodec


class Deleted:
    """Stands for "this entry was deleted" where a value would stand."""

    def __repr__(self) -> str:
        return "deleted"


DELETED: Final = Deleted()

#: Values of exactly these types can't change, and have no parts.
LEAVES: Final = frozenset(
    {NoneType, bool, int, float, complex, Decimal, str, bytes, date, timedelta, timezone, UUID, Deleted}
)

#: How deep tuples within tuples are looked into; what is deeper counts as changeable.
_DEPTH: Final = 8

#: From many values of one type to all of their parts; called for each look.
_Parts: TypeAlias = Callable[[Iterable[Any]], Iterable[Any]]
#: Begins to iterate over values, as often as it is called.
_Again: TypeAlias = Callable[[], Iterable[Any]]


class FixedValues:
    """Tells which values can't change.

    Example:
        >>> fixed = FixedValues(ValueCodec())
        >>> fixed.is_fixed(("ann", 3)), fixed.is_fixed(("ann", [3]))
        (True, False)
        >>> fixed.loose({"a": 1, "b": ("x", {}), "c": []})
        ['b', 'c']
    """

    def __init__(self, codec: ValueCodec) -> None:
        self._codec = codec
        self._known: dict[type, _Parts | None] = {
            tuple: chain.from_iterable,
            datetime: _zones,
            time: _zones,
        }

    def is_fixed(self, value: Any) -> bool:
        return self._are_fixed(lambda: (value,), 0)

    def are_fixed(self, values: Sequence[Any]) -> bool:
        return self._are_fixed(values.__iter__, 0)

    def loose(self, entries: Mapping[Any, Any]) -> list[Any]:
        values = entries.values()
        kinds = set(map(type, values)) - LEAVES
        if not kinds:
            return []
        never, mixed = set(), set()
        for kind in kinds:
            some = values.__iter__ if len(kinds) == 1 else partial(_of_type, values, kind)
            if self._parts_of(kind, values) is None:
                never.add(kind)
            elif not self._are_fixed(some, 0):
                mixed.add(kind)
        if not never and not mixed:
            return []
        return [
            entry
            for entry, value in entries.items()
            if type(value) in never or (type(value) in mixed and not self.is_fixed(value))
        ]

    def _are_fixed(self, values: _Again, depth: int) -> bool:
        kinds = set(map(type, values()))
        others = kinds - LEAVES
        if not others:
            return True
        if depth == _DEPTH:
            return False
        for kind in others:
            some = values if len(kinds) == 1 else partial(_of_type, list(values()), kind)
            parts = self._parts_of(kind, some())
            if parts is None or not self._are_fixed(partial(_parts_of_all, parts, some), depth + 1):
                return False
        return True

    def _parts_of(self, kind: type, values: Iterable[Any]) -> _Parts | None:
        """Way to take values of a type apart; `None` when they may change whatever is in them."""
        try:
            return self._known[kind]
        except KeyError:
            parts = _parts_of(kind)
            if parts is not None:
                try:
                    self._codec.dumps(next(value for value in values if type(value) is kind))
                except CodecError:
                    return None
            self._known[kind] = parts
            return parts


def _of_type(values: Collection[Any], kind: type) -> list[Any]:
    return [value for value in values if type(value) is kind]


def _parts_of_all(parts: _Parts, values: _Again) -> Iterable[Any]:
    return parts(values())


def _parts_of(kind: type) -> _Parts | None:
    if issubclass(kind, Enum):
        return _nothing  # encoded by its name
    shape = shape_of(kind)
    if shape is None:
        return None
    if shape.is_tuple:
        is_plain = not shape.has_dict and kind.__iter__ is tuple.__iter__  # type: ignore[attr-defined]
        return chain.from_iterable if is_plain else None
    params = vars(kind).get("__dataclass_params__")
    if params is None or not params.frozen or not dataclasses.is_dataclass(kind):
        return None
    if any(isinstance(part, cached_property) for base in kind.__mro__ for part in vars(base).values()):
        return None
    if shape.has_dict and not shape.slots:
        return _attributes
    return partial(_all_attributes, shape)


def _nothing(values: Iterable[Any]) -> Iterable[Any]:
    return ()


def _zones(values: Iterable[datetime | time]) -> Iterator[Any]:
    return (value.tzinfo for value in values)


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
