"""Views of heap tables for the current key: what a function's states are while a subtask runs.

Reading and writing state is the inner loop of every process function, so each method does its work itself.
None asks whether there is a current key. `NO_KEY` has no hash, so the first look into a dict raises. Only
then is the error with the state's name made.

A write is noted with the value (`changes.py`). So each view keeps the types of the values that it has taken.
One look at them tells that a value is of the declared type. Only a value of a new type is looked at more
closely, and `is_sure` of the changes with it.

A state holds what was put into it, and what it gives can't change it: both are copied unless they can't
change (`own_copy.py`). So a value that is changed in place and not put back changes nothing, on the heap as
in RocksDB. An accumulator is the state's own, and its function may change it in place.

An element of a list is an entry whose second part is a number. Numbers grow within a list, so their order is
the list's. Appending is one new entry, and a list that a thousand records have grown costs a checkpoint what
was added to it.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from typing import Any, Final, NoReturn, Protocol

from penstock.runtime.errors import KeyTypeError
from penstock.runtime.state.changes import Changes
from penstock.runtime.state.declared_state import type_name
from penstock.runtime.state.fixed_values import DELETED, LEAVES
from penstock.runtime.state.keyed_states import (
    AggregatingState,
    KeyedState,
    ListState,
    MapState,
    ReducingState,
    ValueState,
)
from penstock.runtime.state.own_copy import can_change, own_copies, own_copy
from penstock.runtime.state.stable_hash import stable_hash, types_of_keys
from penstock.runtime.state.state_table import HasCurrentKey, NoCurrentKeyError, StateTable, without_key


class HeapValueState(ValueState[Any]):
    """A `ValueState` on the heap."""

    __slots__ = ("_changed", "_entries", "_is_loose", "_isolates", "_kinds", "_owner", "_type", "_written")

    def __init__(self, declaration: ValueState[Any], table: StateTable, owner: HasCurrentKey) -> None:
        take_over(self, declaration)
        self.of_type, self.default = declaration.of_type, declaration.default
        self._entries, self._changed, self._owner = table.entries, table.changed, owner
        self._isolates = owner.isolates
        # Whether any value may change. Entries of a backend with a disk are not looked through.
        held = table.entries
        others = [self.default, *held.values()] if type(held) is dict else [self.default]
        self._is_loose = self._isolates and (can_change(others) or (type(held) is not dict and bool(held)))
        self._type: type = declaration.of_type or object
        self._kinds: set[type] = set()
        self._written: dict[Any, Any]
        self._changed.attach(self)

    def value(self) -> Any:
        """The current key's value, or the default."""
        try:
            value = self._entries.get(self._owner.current_key, self.default)
        except NoCurrentKeyError:
            raise without_key(self.name) from None
        return own_copy(value) if self._is_loose else value

    def update(self, value: Any) -> None:
        if type(value) not in self._kinds:
            meet(self, value)
        if self._isolates and type(value) not in LEAVES:
            own = own_copy(value)
            if own is not value:
                value, self._is_loose = own, True
        key = self._owner.current_key
        try:
            self._entries[key] = value
        except NoCurrentKeyError:
            raise without_key(self.name) from None
        self._written[key] = value

    def clear(self) -> None:
        _clear_value(self._entries, self._written, self._owner, self.name)


class HeapReducingState(ReducingState[Any]):
    """A `ReducingState` on the heap; see `HeapValueState` for the arguments."""

    __slots__ = ("_changed", "_entries", "_isolates", "_kinds", "_owner", "_type", "_written")

    def __init__(self, declaration: ReducingState[Any], table: StateTable, owner: HasCurrentKey) -> None:
        take_over(self, declaration)
        self.of_type, self.function = declaration.of_type, declaration.function
        self._entries, self._changed, self._owner = table.entries, table.changed, owner
        self._isolates = owner.isolates
        self._type: type = declaration.of_type or object
        self._kinds: set[type] = set()
        self._written: dict[Any, Any]
        self._changed.attach(self)

    def get(self) -> Any:
        try:
            value = self._entries.get(self._owner.current_key)
        except NoCurrentKeyError:
            raise without_key(self.name) from None
        return own_copy(value) if self._isolates and type(value) not in LEAVES else value

    def add(self, value: Any) -> None:
        if type(value) not in self._kinds:
            meet(self, value)
        key, entries = self._owner.current_key, self._entries
        try:
            if key in entries:
                value = self.function(entries[key], value)
                if type(value) not in self._kinds:
                    meet(self, value)
            if self._isolates and type(value) not in LEAVES:
                value = own_copy(value)
            entries[key] = value
        except NoCurrentKeyError:
            raise without_key(self.name) from None
        self._written[key] = value

    def clear(self) -> None:
        _clear_value(self._entries, self._written, self._owner, self.name)


class HeapAggregatingState(AggregatingState[Any, Any]):
    """An `AggregatingState` on the heap; see `HeapValueState` for the arguments."""

    __slots__ = ("_entries", "_isolates", "_owner", "_written")

    def __init__(
        self, declaration: AggregatingState[Any, Any], table: StateTable, owner: HasCurrentKey
    ) -> None:
        take_over(self, declaration)
        self.function = declaration.function
        self._entries, self._owner = table.entries, owner
        self._isolates = owner.isolates
        self._written: dict[Any, Any]
        table.changed.attach(self)
        table.changed.accept_all()

    def get(self) -> Any:
        key, entries = self._owner.current_key, self._entries
        try:
            value = self.function.get_result(entries[key]) if key in entries else None
        except NoCurrentKeyError:
            raise without_key(self.name) from None
        return own_copy(value) if self._isolates and type(value) not in LEAVES else value

    def add(self, value: Any) -> None:
        key, entries = self._owner.current_key, self._entries
        try:
            is_new = key not in entries
            had = self.function.create_accumulator() if is_new else entries[key]
            if self._isolates:
                value, had = own_copy(value), own_copy(had) if is_new else had
            entries[key] = accumulator = self.function.add(value, had)
        except NoCurrentKeyError:
            raise without_key(self.name) from None
        self._written[key] = accumulator

    def clear(self) -> None:
        _clear_value(self._entries, self._written, self._owner, self.name)


class HeapListState(ListState[Any]):
    """A `ListState` on the heap: elements by growing numbers; see `HeapValueState` for the arguments."""

    __slots__ = ("_changed", "_entries", "_isolates", "_kinds", "_owner", "_type", "_written")

    def __init__(self, declaration: ListState[Any], table: StateTable, owner: HasCurrentKey) -> None:
        take_over(self, declaration)
        self.of_type = declaration.of_type
        self._entries, self._changed, self._owner = table.entries, table.changed, owner
        self._isolates = owner.isolates
        self._type: type = declaration.of_type or object
        self._kinds: set[type] = set()
        self._written: dict[Any, Any]
        self._changed.attach(self)

    def get(self) -> list[Any]:
        held = self._held().values()
        return own_copies(list(held)) if self._isolates else list(held)

    def add(self, value: Any) -> None:
        if type(value) not in self._kinds:
            meet(self, value)
        if self._isolates and type(value) not in LEAVES:
            value = own_copy(value)
        key = self._owner.current_key
        held = self._held()
        if held:
            number = next(reversed(held)) + 1
        else:
            number, held = 0, self._entries.setdefault(key, {})
        held[number] = self._written[key, number] = value

    def clear(self) -> None:
        _clear_parts(self._held(), self._entries, self._written, self._owner.current_key)

    def __len__(self) -> int:
        return len(self._held())

    def _held(self) -> dict[int, Any]:
        return _held(self._entries, self._owner, self.name)


class HeapMapState(MapState[Any, Any]):
    """A `MapState` on the heap; see `HeapValueState` for the arguments."""

    __slots__ = (
        "_changed",
        "_entries",
        "_isolates",
        "_key_kinds",
        "_key_type",
        "_kinds",
        "_owner",
        "_type",
        "_written",
    )

    def __init__(self, declaration: MapState[Any, Any], table: StateTable, owner: HasCurrentKey) -> None:
        take_over(self, declaration)
        self.key_type, self.value_type = declaration.key_type, declaration.value_type
        self._entries, self._changed, self._owner = table.entries, table.changed, owner
        self._isolates = owner.isolates
        self._key_type: type = declaration.key_type or object
        self._key_kinds: set[type] = set()
        self._type: type = declaration.value_type or object
        self._kinds: set[type] = set()
        self._written: dict[Any, Any]
        self._changed.attach(self)

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a map key, or the default."""
        value = self._held().get(key, default)
        return own_copy(value) if self._isolates and type(value) not in LEAVES else value

    def clear(self) -> None:
        _clear_parts(self._held(), self._entries, self._written, self._owner.current_key)

    def __getitem__(self, key: Any) -> Any:
        value = self._held()[key]
        return own_copy(value) if self._isolates and type(value) not in LEAVES else value

    def __setitem__(self, key: Any, value: Any) -> None:
        if type(value) not in self._kinds:
            meet(self, value)
        if self._isolates and type(value) not in LEAVES:
            value = own_copy(value)
        held, current = self._held(), self._owner.current_key
        if key not in held:
            check_map_key(self.name, self._key_type, key)
            if not held:
                held = self._entries.setdefault(current, {})
        elif type(key) not in self._key_kinds:
            meet_map_key(self, key)
        held[key] = self._written[current, key] = value

    def __delitem__(self, key: Any) -> None:
        held, current = self._held(), self._owner.current_key
        del held[key]
        if not held:
            del self._entries[current]
        self._written[current, key] = DELETED

    def __contains__(self, key: object) -> bool:
        return key in self._held()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._held())

    def __len__(self) -> int:
        return len(self._held())

    def keys(self) -> KeysView[Any]:
        return self._held().keys()

    def values(self) -> ValuesView[Any]:
        return _OwnValues(self._held()) if self._isolates else self._held().values()

    def items(self) -> ItemsView[Any, Any]:
        return _OwnItems(self._held()) if self._isolates else self._held().items()

    def _held(self) -> dict[Any, Any]:
        return _held(self._entries, self._owner, self.name)


class _OwnValues(ValuesView[Any]):
    """The values of a map, each copied when it is read."""

    _mapping: dict[Any, Any]

    def __iter__(self) -> Iterator[Any]:
        return map(own_copy, self._mapping.values())


class _OwnItems(ItemsView[Any, Any]):
    """The entries of a map, each value copied when it is read."""

    _mapping: dict[Any, Any]

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return ((key, own_copy(value)) for key, value in self._mapping.items())


#: What a key without entries holds; it is never written to.
_EMPTY: dict[Any, Any] = {}

VIEWS: Final[dict[str, type[KeyedState]]] = {
    "value": HeapValueState,
    "list": HeapListState,
    "map": HeapMapState,
    "reducing": HeapReducingState,
    "aggregating": HeapAggregatingState,
}


def take_over(view: KeyedState, declaration: KeyedState) -> None:
    view.name, view.where = declaration.name, declaration.where
    view.migrate, view.renamed_from, view.ttl = declaration.migrate, declaration.renamed_from, declaration.ttl


def _held(entries: dict[Any, dict[Any, Any]], owner: HasCurrentKey, name: str) -> dict[Any, Any]:
    try:
        return entries.get(owner.current_key, _EMPTY)
    except NoCurrentKeyError:
        raise without_key(name) from None


class _ChecksTypes(Protocol):
    """A view that takes values of one type."""

    name: str
    _type: type
    _kinds: set[type]
    _changed: Changes


class _ChecksMapKeys(Protocol):
    """A map that takes keys of one type."""

    name: str
    _key_type: type
    _key_kinds: set[type]


def meet(view: _ChecksTypes, value: Any) -> None:
    """A view is given a value of a type that it does not know yet.

    Raises:
        TypeError: It is not of the declared type.
    """
    if not isinstance(value, view._type):
        refuse_value(view.name, view._type, value)
    kind = type(value)
    if kind not in LEAVES:
        view._changed.accept_all()
    if view._type in kind.__mro__:  # else the value has decided, and the next one may decide otherwise
        view._kinds.add(kind)


def _clear_value(entries: dict[Any, Any], written: dict[Any, Any], owner: HasCurrentKey, name: str) -> None:
    key = owner.current_key
    try:
        if key in entries:
            del entries[key]
            written[key] = DELETED
    except NoCurrentKeyError:
        raise without_key(name) from None


def _clear_parts(held: dict[Any, Any], entries: dict[Any, Any], written: dict[Any, Any], key: Any) -> None:
    if held:
        del entries[key]
        # Last: a backend may write back on this call.
        written.update(dict.fromkeys([(key, part) for part in held], DELETED))


def check_map_key(name: str, of_type: type, key: Any) -> None:
    """Refuse what could not be found again as the key of a map once it was saved.

    Raises:
        TypeError: It is not of the declared type.
        KeyTypeError: It has no stable hash.
    """
    if not isinstance(key, of_type):
        msg = f"state {name!r} has map keys of type {type_name(of_type)} and can't have {key!r:.200}"
        raise TypeError(msg)
    try:
        stable_hash(key)
    except KeyTypeError as error:
        msg = f"state {name!r} can't have this map key: {error}"
        raise KeyTypeError(msg) from None


def meet_map_key(view: _ChecksMapKeys, key: Any) -> None:
    """A map has an equal key, and this one may be of another type: 0.5 is there, and this is np.float32(0.5).

    Raises:
        TypeError: It is not of the declared type.
        KeyTypeError: It has no stable hash.
    """
    kinds = types_of_keys((key,)) - {tuple}  # the parts of each tuple are looked at
    if not kinds <= view._key_kinds:
        check_map_key(view.name, view._key_type, key)
        view._key_kinds |= kinds


def refuse_value(name: str, of_type: type, value: Any) -> NoReturn:
    """Raise the error for a value that is not of the declared type.

    Raises:
        TypeError: Always.
    """
    msg = f"state {name!r} is declared as {type_name(of_type)} and can't hold {value!r:.200}"
    raise TypeError(msg)
