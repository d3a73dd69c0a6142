"""Views of a table for the current key: the states of a function in a running subtask.

Views are the same on the heap, in RocksDB and with a TTL. Only the entries behind them differ: a dict, a
cache in front of a disk, or `LiveEntries` (`state_table.py`).

Reading and writing state is the inner loop of every process function, so methods repeat code instead of
calling each other. Only `clear` checks whether there is a current key. Elsewhere the first access to a dict
raises, because `NO_KEY` has no hash.

A write is reported with the value (`dirty_entries.py`). Each view keeps the types of the values that it has
accepted, so one look-up checks a value. Only a value of a new type is checked in full, and clears
`only_leaves` of the dirty entries if it is not a leaf.

A state copies the values that it takes and returns, unless they are immutable (`own_copy.py`). So changing a
value in place without putting it back changes nothing, on the heap as in RocksDB. The state owns an
accumulator, and its function may change it in place. A snapshot may still refer to the accumulator, until it
is encoded. So the function gets a copy, once per key and snapshot, and the state keeps the copy
(`DirtyEntries.own_accumulators`). `get_result` may change an accumulator, too, but the state keeps no result
of that. So it gets a copy that is not kept.

Each element of a list is an entry `(key, number)`. Numbers grow within a list, so they give the order of its
elements. An appended element is one new entry, so a checkpoint writes only the elements that were added.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, ValuesView
from typing import Any, Final

from penstock.runtime.errors import KeyTypeError
from penstock.runtime.state.declared_state import type_name
from penstock.runtime.state.dirty_entries import DirtyEntries
from penstock.runtime.state.immutable_values import DELETED
from penstock.runtime.state.keyed_states import (
    AggregatingState,
    KeyedState,
    ListState,
    MapState,
    ReducingState,
    ValueState,
)
from penstock.runtime.state.own_copy import LEAVES, can_change, own_copies, own_copy
from penstock.runtime.state.stable_hash import stable_hash, types_of_keys
from penstock.runtime.state.state_table import (
    NO_KEY,
    HasCurrentKey,
    LiveEntries,
    NoCurrentKeyError,
    StateTable,
    without_key,
)

_ABSENT: Final = object()
#: Entries of a key without entries; never written to.
_EMPTY: Final[dict[Any, Any]] = {}
#: Slots of a view in addition to the slots of its declaration.
_SLOTS: Final = ("_changed", "_entries", "_isolates", "_kinds", "_owner", "_type", "_written")


class _View(KeyedState):
    __slots__ = ()

    _entries: Any
    _changed: DirtyEntries | LiveEntries
    _written: dict[Any, Any]
    _owner: HasCurrentKey
    _isolates: bool
    _type: type
    #: Types of values that are known to be of the declared type.
    _kinds: set[type]

    def __init__(self, declaration: KeyedState, table: StateTable, owner: HasCurrentKey) -> None:
        self._take_over(declaration)
        view: Any = self  # subclasses define the slots
        view._entries, view._changed = table.for_views()
        view._owner, view._isolates = owner, owner.isolates
        view._type, view._kinds = (object, *declaration.types)[-1], set()
        view._changed.attach(view)
        if owner.isolates:
            table.changed.accept_copies()

    def _key(self) -> Any:
        """Return the current key; refuse a missing one, because an empty dict might not hash it."""
        key = self._owner.current_key
        if key is NO_KEY:
            raise without_key(self.name)
        return key

    def _check_new_type(self, value: Any) -> None:
        """Check a value of a type that the view does not know yet."""
        if not isinstance(value, self._type):
            msg = f"state {self.name!r} is declared as {type_name(self._type)} and can't hold {value!r:.200}"
            raise TypeError(msg)
        kind = type(value)
        if kind not in LEAVES:
            self._changed.accept_all()
        if self._type in kind.__mro__:  # otherwise the next value of this type may be refused
            self._kinds.add(kind)


class _FlatView(_View):
    __slots__ = ()

    def clear(self) -> None:
        key = self._key()
        before = self._entries.pop(key, _ABSENT)
        if before is not _ABSENT:
            self._written[key] = DELETED


class _NestedView(_View):
    __slots__ = ()

    def clear(self) -> None:
        key = self._key()
        held = self._entries.pop(key, _EMPTY)
        if held:
            # This must come last: a backend may write the value back during this call.
            self._written.update(dict.fromkeys([(key, part) for part in held], DELETED))

    def _held(self) -> Any:
        try:
            return self._entries.get(self._owner.current_key, _EMPTY)
        except NoCurrentKeyError:
            raise without_key(self.name) from None


class ValueView(_FlatView, ValueState[Any]):
    __slots__ = (*_SLOTS, "_has_mutable")

    def __init__(self, declaration: ValueState[Any], table: StateTable, owner: HasCurrentKey) -> None:
        super().__init__(declaration, table, owner)
        # Whether any value may be mutable. Only a dict's entries are checked; others count as mutable.
        held = self._entries
        others = [self.default, *held.values()] if type(held) is dict else [self.default]
        self._has_mutable = self._isolates and (can_change(others) or (type(held) is not dict and bool(held)))

    def value(self) -> Any:
        try:
            value = self._entries.get(self._owner.current_key, self.default)
        except NoCurrentKeyError:
            raise without_key(self.name) from None
        return own_copy(value) if self._has_mutable else value

    def update(self, value: Any) -> None:
        if type(value) not in self._kinds:
            self._check_new_type(value)
        if self._isolates and type(value) not in LEAVES:
            own = own_copy(value)
            if own is not value:
                value, self._has_mutable = own, True
        key = self._owner.current_key
        try:
            self._entries[key] = value
        except NoCurrentKeyError:
            raise without_key(self.name) from None
        self._written[key] = value


class _AccumulatingView(_FlatView):
    __slots__ = ()

    #: Keys whose accumulators no snapshot refers to.
    _own: set[Any]
    #: Whether a snapshot may refer to the other accumulators.
    _lends: bool

    def __init__(self, declaration: KeyedState, table: StateTable, owner: HasCurrentKey) -> None:
        super().__init__(declaration, table, owner)
        view: Any = self
        view._own = table.changed.own_accumulators
        view._lends = owner.isolates and table.changed.lends


class ReducingView(_AccumulatingView, ReducingState[Any]):
    __slots__ = (*_SLOTS, "_lends", "_own")

    def get(self) -> Any:
        try:
            value = self._entries.get(self._owner.current_key)
        except NoCurrentKeyError:
            raise without_key(self.name) from None
        return own_copy(value) if self._isolates and type(value) not in LEAVES else value

    def add(self, value: Any) -> None:
        if type(value) not in self._kinds:
            self._check_new_type(value)
        key, entries = self._owner.current_key, self._entries
        try:
            before = entries.get(key, _ABSENT)
            if before is not _ABSENT:
                if self._lends and type(before) not in LEAVES and key not in self._own:
                    before = own_copy(before)
                value = self.function(before, value)
                if type(value) not in self._kinds:
                    self._check_new_type(value)
            if self._isolates and type(value) not in LEAVES:
                value = own_copy(value)
                if self._lends:
                    self._own.add(key)
            entries[key] = value
        except NoCurrentKeyError:
            raise without_key(self.name) from None
        self._written[key] = value


class AggregatingView(_AccumulatingView, AggregatingState[Any, Any]):
    __slots__ = (*_SLOTS, "_lends", "_own")

    def __init__(self, declaration: KeyedState, table: StateTable, owner: HasCurrentKey) -> None:
        super().__init__(declaration, table, owner)
        self._changed.accept_all()

    def get(self) -> Any:
        key = self._owner.current_key
        try:
            accumulator = self._entries.get(key, _ABSENT)
        except NoCurrentKeyError:
            raise without_key(self.name) from None
        if self._lends and accumulator is not _ABSENT and key not in self._own:
            accumulator = own_copy(accumulator)
        value = None if accumulator is _ABSENT else self.function.get_result(accumulator)
        return own_copy(value) if self._isolates and type(value) not in LEAVES else value

    def add(self, value: Any) -> None:
        key, entries = self._owner.current_key, self._entries
        try:
            accumulator = entries.get(key, _ABSENT)
            if accumulator is _ABSENT:
                accumulator = self.function.create_accumulator()
                if self._isolates:
                    accumulator = own_copy(accumulator)
            elif self._lends and key not in self._own:
                accumulator = own_copy(accumulator)
            if self._isolates:
                value = own_copy(value)
            entries[key] = accumulator = self.function.add(value, accumulator)
        except NoCurrentKeyError:
            raise without_key(self.name) from None
        if self._lends:
            self._own.add(key)
        self._written[key] = accumulator


class ListView(_NestedView, ListState[Any]):
    __slots__ = _SLOTS

    def get(self) -> list[Any]:
        held = self._held().values()
        return own_copies(list(held)) if self._isolates else list(held)

    def add(self, value: Any) -> None:
        if type(value) not in self._kinds:
            self._check_new_type(value)
        if self._isolates and type(value) not in LEAVES:
            value = own_copy(value)
        key = self._owner.current_key
        held = self._held()
        if held:
            number = next(reversed(held)) + 1
        else:
            number, held = 0, self._entries.setdefault(key, {})
        held[number] = self._written[key, number] = value

    def update(self, values: Iterable[Any]) -> None:
        elements = list(values)
        for element in elements:
            if type(element) not in self._kinds:
                self._check_new_type(element)
        self.clear()
        self.extend(elements)

    def __len__(self) -> int:
        return len(self._held())


class MapView(_NestedView, MapState[Any, Any]):
    __slots__ = (*_SLOTS, "_key_kinds", "_key_type")

    def __init__(self, declaration: MapState[Any, Any], table: StateTable, owner: HasCurrentKey) -> None:
        super().__init__(declaration, table, owner)
        self._key_type: type = declaration.key_type or object
        self._key_kinds: set[type] = set()

    def get(self, key: Any, default: Any = None) -> Any:
        value = self._held().get(key, default)
        return own_copy(value) if self._isolates and type(value) not in LEAVES else value

    def __getitem__(self, key: Any) -> Any:
        value = self._held()[key]
        return own_copy(value) if self._isolates and type(value) not in LEAVES else value

    def __setitem__(self, key: Any, value: Any) -> None:
        if type(value) not in self._kinds:
            self._check_new_type(value)
        if self._isolates and type(value) not in LEAVES:
            value = own_copy(value)
        held, current = self._held(), self._owner.current_key
        if key not in (held if type(held) is dict else held.cells):
            _check_map_key(self.name, self._key_type, key)
            if not held:
                held = self._entries.setdefault(current, {})
        elif type(key) not in self._key_kinds:
            _check_key_type(self, key)
        held[key] = self._written[current, key] = value

    def __delitem__(self, key: Any) -> None:
        held, current = self._held(), self._owner.current_key
        del held[key]
        if not held:
            self._entries.pop(current, None)
        self._written[current, key] = DELETED

    def __contains__(self, key: object) -> bool:
        return key in self._held()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._held())

    def __len__(self) -> int:
        return len(self._held())

    def keys(self) -> KeysView[Any]:
        keys: KeysView[Any] = self._held().keys()
        return keys

    def values(self) -> ValuesView[Any]:
        return _OwnValues(self._held()) if self._isolates else self._held().values()

    def items(self) -> ItemsView[Any, Any]:
        return _OwnItems(self._held()) if self._isolates else self._held().items()


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


VIEWS: Final[dict[str, type[_View]]] = {
    "value": ValueView,
    "list": ListView,
    "map": MapView,
    "reducing": ReducingView,
    "aggregating": AggregatingView,
}


def _check_map_key(name: str, of_type: type, key: Any) -> None:
    """Refuse a map key that could not be found again after it was saved."""
    if not isinstance(key, of_type):
        msg = f"state {name!r} has map keys of type {type_name(of_type)} and can't have {key!r:.200}"
        raise TypeError(msg)
    try:
        stable_hash(key)
    except KeyTypeError as error:
        msg = f"state {name!r} can't have this map key: {error}"
        raise KeyTypeError(msg) from None


def _check_key_type(view: MapView, key: Any) -> None:
    """Check a key whose type may differ from that of an equal key in the map: 0.5 and np.float32(0.5)."""
    kinds = types_of_keys((key,)) - {tuple}  # the parts of each tuple are checked
    if not kinds <= view._key_kinds:
        _check_map_key(view.name, view._key_type, key)
        view._key_kinds |= kinds
