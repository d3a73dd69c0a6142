"""Values that can't change, and copies of those that can.

**Fixed values.** A snapshot keeps a reference to them and encodes them beside the task.

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

**Copies** (`own_copy`). A record is what it was when it was emitted, and a state holds what was put into it.
So what leaves the hands of a user's function is copied there, unless it can't change. A copy shares nothing
that can change with its value. It has the same types in the same places, as if it had gone through a channel.
Two places that hold one list hold two lists afterwards, as behind a channel, too. Objects of plain classes
are copied attribute by attribute, without a call of `__init__`. What has ways of its own (`__deepcopy__`,
`__reduce_ex__`, a builtin base) is left to `copy.deepcopy`. The look at an atom, a tuple of atoms or a flat
dict is what every record costs. So these come first, and the types of all parts are compared in C. A copy
must never hand out a part that can change as it is.
"""

from __future__ import annotations

import copy
import dataclasses
import gc
import sysconfig
import weakref
from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from functools import cached_property, partial
from itertools import chain, islice
from sys import getrefcount
from types import NoneType
from typing import Any, Final, TypeAlias
from uuid import UUID

import numpy as np
import pyarrow as pa

from penstock.runtime.error_text import error_text
from penstock.runtime.errors import CodecError, PenstockError
from penstock.runtime.record.record_classes import RecordShape, shape_of
from penstock.runtime.record.value_codec import ValueCodec


class Deleted:
    """Marks a deleted entry in the place of its value."""

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
    """Finds out which values can't change.

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


#: Types whose values can't change and have no parts that can.
_ATOMS: Final = LEAVES | {datetime, time, range, type(...), type(NotImplemented)}

_are_atoms: Final = _ATOMS.issuperset

_is_tracked: Final = gc.is_tracked
#: Raises a `TypeError` for values that have no hash: it looks for each of them among nothing.
_have_hashes: Final = frozenset[Any]().isdisjoint

_Copier: TypeAlias = Callable[[Any], Any]

#: Methods with which a class says itself how it is copied.
_OWN_WAYS: Final = ("__deepcopy__", "__setstate__", "__getnewargs_ex__", "__del__")

_WAYS_OF_COPYING: Final = (
    *_OWN_WAYS,
    "__copy__",
    "__reduce_ex__",
    "__reduce__",
    "__getstate__",
    "__getnewargs__",
)

_HEAP_TYPE: Final = 1 << 9
#: Builtins whose values can't change, and what reads one out of an instance of a subclass, whatever methods
#: that has. The instances can have attributes that change.
_FIXED_BASES: Final[dict[Any, _Copier]] = {
    int: int.__int__,
    float: float.__float__,
    complex: complex.__complex__,
    str: str.__str__,
    bytes: bytes.__bytes__,
    tuple: tuple.__iter__,
    frozenset: frozenset.__iter__,
}


def own_copy(value: Any) -> Any:
    """The value itself if it can't change, else a copy that shares with it only what can't.

    Raises:
        PenstockError: The value is mutable and can't be copied.

    Example:
        >>> items = ["tea"]
        >>> kept = own_copy({"id": 1, "items": items})
        >>> items.append("jam")
        >>> kept
        {'id': 1, 'items': ['tea']}
        >>> pair = ("ann", 3)
        >>> own_copy(pair) is pair
        True
    """
    kind = type(value)
    if kind is dict:
        # Python does not track a dict whose keys and values can't refer to anything. Of these values, arrays
        # and bytearrays can change, and have no hash.
        if not _is_tracked(value):
            try:
                _have_hashes(value.values())
            except TypeError:
                return _copied(value)
            return {**value}
    elif kind is tuple:
        if len(value) == 2:
            first, second = value
            if type(first) in _ATOMS and type(second) in _ATOMS:
                return value
        elif _are_atoms(map(type, value)):
            return value
    elif kind in _ATOMS:
        return value
    try:
        return _copied(value)
    except RecursionError:
        return _deep(value)  # it holds itself, or is very deep: `deepcopy` knows what it has seen


def own_copies(values: Sequence[Any]) -> list[Any]:
    """The values in a list of its own, which are copies where they can change."""
    kinds = set(map(type, values))
    if (
        kinds == {dict}
        and not any(map(_is_tracked, values))
        and _are_atoms(map(type, chain.from_iterable(map(dict.values, values))))
    ):
        return list(map(dict.copy, values))
    kinds -= _ATOMS
    if not kinds or (kinds == {tuple} and _are_atoms(map(type, chain.from_iterable(_tuples_of(values))))):
        return list(values)
    return list(map(own_copy, values))


def own_draws(values: Iterator[Any], most: int) -> list[Any]:
    """The next values of an iterator, at most `most`, each copied before the next one is drawn.

    Each record that a function emits one by one costs this. So the looks of `own_copy` stand here again. A
    flat dict without another reference is not copied.

    Example:
        >>> def grown():
        ...     row = {"n": 1}
        ...     yield row
        ...     row["n"] = 2
        ...     yield row
        >>> own_draws(grown(), 5)
        [{'n': 1}, {'n': 2}]
    """
    drawn: list[Any] = []
    append, alone, atoms = drawn.append, _ALONE, _ATOMS
    is_tracked, have_hashes = _is_tracked, _have_hashes
    for value in islice(values, most):
        kind = type(value)
        if kind is dict and not is_tracked(value):
            try:
                have_hashes(value.values())
            except TypeError:
                append(_copied(value))
            else:
                append(value if getrefcount(value) <= alone else {**value})
        elif kind is tuple and len(value) == 2:
            first, second = value
            append(value if type(first) in atoms and type(second) in atoms else own_copy(value))
        elif kind in atoms:
            append(value)
        else:
            append(own_copy(value))
    return drawn


def _references_of_one() -> int:
    """Result of `getrefcount` in a loop like that of `own_draws`, of a value that only the loop has."""
    for value in islice((dict(n=1) for _ in range(1)), 1):  # noqa: C408
        return getrefcount(value)
    return 0


#: Without a global lock counts of references say less, so then every dict is copied.
_ALONE: Final = 0 if sysconfig.get_config_var("Py_GIL_DISABLED") else _references_of_one()


def can_change(values: Sequence[Any]) -> bool:
    return any(own_copy(value) is not value for value in values)


def own_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch in memory of its own: `pa.array` of a numpy array shares that array's memory."""
    written = pa.BufferOutputStream()
    with pa.ipc.new_stream(written, batch.schema) as stream:
        stream.write_batch(batch)
    return pa.ipc.open_stream(written.getvalue()).read_next_batch()


def _tuples_of(values: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    return (value for value in values if type(value) is tuple)


def _copied(value: Any) -> Any:
    kind = type(value)
    if kind in _ATOMS:
        return value
    try:
        copier = _COPIERS[kind]
    except KeyError:
        copier = _COPIERS[kind] = _copier_of(kind)
    return copier(value)


def _itself(value: Any) -> Any:
    return value


def _tuple(value: tuple[Any, ...]) -> tuple[Any, ...]:
    parts = tuple(map(_copied, value))
    return value if _are_same(parts, value) else parts


def _frozenset(value: frozenset[Any]) -> frozenset[Any]:
    parts = list(map(_copied, value))
    return value if _are_same(parts, value) else frozenset(parts)


def _dict(value: dict[Any, Any]) -> dict[Any, Any]:
    if _are_atoms(map(type, value.values())) and _are_atoms(map(type, value)):
        return value.copy()
    return {_copied(key): _copied(part) for key, part in value.items()}


def _list(value: list[Any]) -> list[Any]:
    return list(value) if _are_atoms(map(type, value)) else list(map(_copied, value))


def _set(value: set[Any]) -> set[Any]:
    return set(map(_copied, value))


def _deque(value: deque[Any]) -> deque[Any]:
    return deque(map(_copied, value), value.maxlen)


def _array(value: Any) -> Any:
    return _deep(value) if value.dtype.hasobject else value.copy(order="K")


def _named_tuple(kind: type, value: Any) -> Any:
    parts = tuple(map(_copied, value))
    return value if _are_same(parts, value) else tuple.__new__(kind, parts)


def _from_base(base: Any, kind: type, value: Any) -> Any:
    """A value of a subclass of `int`, `str` and the like, without a call of the subclass's own `__new__`."""
    content = _FIXED_BASES[base](value)
    made = base.__new__(kind, map(_copied, content) if isinstance(content, Iterator) else content)
    if kind.__dictoffset__:
        vars(made).update({name: _copied(part) for name, part in vars(value).items()})
    return made


def _object(kind: type, value: Any) -> Any:
    made: Any = object.__new__(kind)
    vars(made).update({name: _copied(part) for name, part in vars(value).items()})
    return made


def _frozen(shape: RecordShape, copier: _Copier, value: Any) -> Any:
    """A frozen dataclass, which is its own copy if all of its values are."""
    state = shape.state_of(value)
    if state is None:
        return copier(value)
    parts = state.values() if isinstance(state, dict) else state
    return value if _are_same(map(_copied, parts), parts) else copier(value)


def _are_same(some: Iterable[Any], others: Iterable[Any]) -> bool:
    return all(one is other for one, other in zip(some, others, strict=True))


def _deep(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception as error:  # any error of the value's own methods
        msg = (
            f"a value of type {type(value).__module__}.{type(value).__qualname__} can't be copied "
            f"({error_text(error, 200)}), so nobody could tell whether it is changed later; "
            "emit or keep values that can be copied, and make such objects in `open`"
        )
        raise PenstockError(msg) from error


def _copier_of(kind: type) -> _Copier:
    if issubclass(kind, Enum | type | weakref.ref):
        return _itself
    if issubclass(kind, np.generic) and not issubclass(kind, np.void | np.object_):
        return _itself
    if issubclass(kind, tuple) and hasattr(kind, "_fields") and not kind.__dictoffset__:
        return _deep if _has_own_ways(kind) else partial(_named_tuple, kind)
    for base in _FIXED_BASES:
        if issubclass(kind, base):
            return partial(_from_base, base, kind) if _is_made_of(base, kind) else _deep
    copier = partial(_object, kind) if _is_plain_object(kind) and not _has_own_ways(kind) else _deep
    params, shape = vars(kind).get("__dataclass_params__"), shape_of(kind)
    if params is not None and params.frozen and shape is not None:
        return partial(_frozen, shape, copier)
    return copier


def _has_own_ways(kind: Any) -> bool:
    return any(hasattr(kind, name) for name in _OWN_WAYS) or any(
        getattr(kind, name, None) is not getattr(object, name, None)
        for name in ("__reduce_ex__", "__reduce__", "__getstate__")
    )


def _is_made_of(base: type, kind: type) -> bool:
    """Whether a value of a builtin and attributes are all there is to an instance of its subclass."""
    own = kind.__mro__[: kind.__mro__.index(base)]
    if any(not each.__flags__ & _HEAP_TYPE or _slots_of(each) for each in own):
        return False
    return not any(
        name in vars(each) and not (name == "__getnewargs__" and "_fields" in vars(each))  # a named tuple's
        for each in own
        for name in _WAYS_OF_COPYING
    )


def _is_plain_object(kind: type) -> bool:
    bases = kind.__mro__[:-1]
    return kind.__dictoffset__ != 0 and all(
        base.__flags__ & _HEAP_TYPE and not _slots_of(base) for base in bases
    )


def _slots_of(base: type) -> bool:
    return bool(set(vars(base).get("__slots__", ())) - {"__dict__", "__weakref__"})


_COPIERS: Final[dict[type, _Copier]] = {
    tuple: _tuple,
    frozenset: _frozenset,
    dict: _dict,
    list: _list,
    set: _set,
    deque: _deque,
    bytearray: bytearray,
    array: copy.copy,
    np.ndarray: _array,
}
