"""Views of heap tables whose entries have a TTL.

An entry is a cell: a stamp and a value. `Cells` reads and writes cells of one table. It hides what has
expired, gives every write its stamp, and reports new entries to the lifetime. The views differ from those
without a TTL (`heap_states.py`) in nothing else.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from typing import Any, Final

from penstock.runtime.state.fixed_values import DELETED, LEAVES
from penstock.runtime.state.heap_states import check_map_key, meet_map_key, refuse_value, take_over
from penstock.runtime.state.keyed_states import (
    AggregatingState,
    KeyedState,
    ListState,
    MapState,
    ReducingState,
    ValueState,
)
from penstock.runtime.state.own_copy import own_copies, own_copy
from penstock.runtime.state.state_table import NO_KEY, HasCurrentKey, StateTable, without_key
from penstock.runtime.state.time_to_live import Lifetime


class _Missing:
    """Stands for no value, or an expired one."""


MISSING: Final = _Missing()


class Cells:
    """The cells of a table, for the current key.

    Args:
        table: Has a lifetime.
        owner: Knows the current key.
    """

    __slots__ = ("_changed", "_entries", "_isolates", "_life", "_name", "_owner", "_table", "_written")

    def __init__(self, table: StateTable, owner: HasCurrentKey) -> None:
        assert table.lifetime is not None, "a table with a TTL has a lifetime"
        self._life: Lifetime = table.lifetime
        self._entries, self._changed, self._owner = table.entries, table.changed, owner
        self._name, self._table, self._isolates = table.name, table, owner.isolates
        self._written: dict[Any, Any]
        self._changed.attach(self)

    def key(self) -> Any:
        """The current key.

        Raises:
            RuntimeError: There is none.
        """
        key = self._owner.current_key
        if key is NO_KEY:
            raise without_key(self._name)
        return key

    def read(self) -> Any:
        """The value of a flat table, or `MISSING`."""
        key = self.key()
        cell = self._entries.get(key)
        if cell is None:
            return MISSING
        life, (stamp, value) = self._life, cell
        now = life.now()
        if stamp is not None and stamp + life.microseconds <= now:
            return MISSING
        if life.on_read and (stamp is None or stamp < now):
            self._entries[key] = self._written[key] = self._cell(now, value)
        return value

    def write(self, value: Any, *, is_own: bool = False) -> None:
        """Set the value of a flat table.

        Args:
            is_own: Whether nobody else has it.
        """
        if self._isolates and not is_own:
            value = own_copy(value)
        key = self.key()
        stamp = self._stamp(self._entries.get(key), key)
        self._entries[key] = self._written[key] = self._cell(stamp, value)

    def given(self, value: Any) -> Any:
        """What is handed out for a value, which can't change the table."""
        return own_copy(value) if self._isolates else value

    def clear(self) -> None:
        """Delete all entries of the key."""
        key = self.key()
        held = self._entries.pop(key, None)
        if held is None:
            return
        gone = [(key, part) for part in held] if self._table.nested else [key]
        self._written.update(dict.fromkeys(gone, DELETED))

    def read_part(self, part: Any) -> Any:
        """The value of an entry of a nested table, or `MISSING`."""
        held = self.held()
        cell = held.get(part)
        if cell is None:
            return MISSING
        life, (stamp, value) = self._life, cell
        now = life.now()
        if stamp is not None and stamp + life.microseconds <= now:
            return MISSING
        if life.on_read and (stamp is None or stamp < now):
            held[part] = self._written[self.key(), part] = self._cell(now, value)
        return self.given(value)

    def write_part(self, part: Any, value: Any) -> None:
        """Set the value of an entry of a nested table."""
        value = self.given(value)
        key, held = self.key(), self.held()
        stamp = self._stamp(held.get(part), (key, part))
        cell = self._entries.setdefault(key, held)[part] = self._cell(stamp, value)
        self._written[key, part] = cell  # last: a backend may write back when it is told

    def has_part(self, part: Any) -> bool:
        """Whether an entry of a nested table is there and has not expired."""
        cell = self.held().get(part)
        if cell is None:
            return False
        stamp: int | None = cell[0]
        return stamp is None or stamp + self._life.microseconds > self._life.now()

    def delete_part(self, part: Any) -> None:
        """Delete an entry of a nested table that is there."""
        self._table.delete((self.key(), part))

    def live(self, *, reads: bool) -> dict[Any, Any]:
        """A copy of the key's entries that have not expired, by second part.

        Args:
            reads: Whether that reads their values, and so refreshes them where reads do.
        """
        held = self.held()
        live = self._life.live(held)
        if reads and self._life.on_read and live:
            now, key = self._life.now(), self.key()
            for part, value in live.items():
                stamp = held[part][0]
                if stamp is None or stamp < now:
                    held[part] = self._written[key, part] = self._cell(now, value)
        return (
            dict(zip(live, own_copies(list(live.values())), strict=True))
            if reads and self._isolates
            else live
        )

    def held(self) -> dict[Any, Any]:
        """All cells of the key, expired ones among them; a new dict when it has none."""
        held: dict[Any, Any] | None = self._entries.get(self.key())
        return {} if held is None else held

    def _cell(self, stamp: int, value: Any) -> tuple[int, Any]:
        """What stands for a value in the table."""
        if type(value) not in LEAVES:
            self._changed.accept_all()
        return stamp, value

    def _stamp(self, before: tuple[int | None, Any] | None, entry: Any) -> int:
        """The stamp of an entry that is written now."""
        now = self._life.now()
        if before is None:
            self._life.watch(entry, now)
        elif before[0] is not None and before[0] > now:
            return before[0]
        return now


class TtlValueState(ValueState[Any]):
    """A `ValueState` with a TTL."""

    __slots__ = ("_cells", "_type")

    def __init__(self, declaration: ValueState[Any], table: StateTable, owner: HasCurrentKey) -> None:
        take_over(self, declaration)
        self.of_type, self.default = declaration.of_type, declaration.default
        self._cells, self._type = Cells(table, owner), declaration.of_type or object

    def value(self) -> Any:
        """The current key's value, or the default."""
        found = self._cells.read()
        return self._cells.given(self.default if found is MISSING else found)

    def update(self, value: Any) -> None:
        """Set the current key's value."""
        if not isinstance(value, self._type):
            refuse_value(self.name, self._type, value)
        self._cells.write(value)

    def clear(self) -> None:
        """Delete the current key's value."""
        self._cells.clear()


class TtlReducingState(ReducingState[Any]):
    """A `ReducingState` with a TTL; an expired value is no part of the next one."""

    __slots__ = ("_cells", "_type")

    def __init__(self, declaration: ReducingState[Any], table: StateTable, owner: HasCurrentKey) -> None:
        take_over(self, declaration)
        self.of_type, self.function = declaration.of_type, declaration.function
        self._cells, self._type = Cells(table, owner), declaration.of_type or object

    def get(self) -> Any:
        """The current key's value."""
        found = self._cells.read()
        return None if found is MISSING else self._cells.given(found)

    def add(self, value: Any) -> None:
        """Combine the current key's value with another one."""
        if not isinstance(value, self._type):
            refuse_value(self.name, self._type, value)
        before = self._cells.read()
        if before is not MISSING:
            value = self.function(before, value)
            if not isinstance(value, self._type):
                refuse_value(self.name, self._type, value)
        self._cells.write(value)

    def clear(self) -> None:
        """Delete the current key's value."""
        self._cells.clear()


class TtlAggregatingState(AggregatingState[Any, Any]):
    """An `AggregatingState` with a TTL; the accumulator expires as a whole."""

    __slots__ = ("_cells",)

    def __init__(
        self, declaration: AggregatingState[Any, Any], table: StateTable, owner: HasCurrentKey
    ) -> None:
        take_over(self, declaration)
        self.function, self._cells = declaration.function, Cells(table, owner)

    def get(self) -> Any:
        """The result for the current key."""
        found = self._cells.read()
        return None if found is MISSING else self._cells.given(self.function.get_result(found))

    def add(self, value: Any) -> None:
        """Fold a value into the current key's accumulator."""
        before = self._cells.read()
        given = self._cells.given
        accumulator = given(self.function.create_accumulator()) if before is MISSING else before
        self._cells.write(self.function.add(given(value), accumulator), is_own=True)

    def clear(self) -> None:
        """Delete the current key's accumulator."""
        self._cells.clear()


class TtlListState(ListState[Any]):
    """A `ListState` with a TTL; its elements expire one by one."""

    __slots__ = ("_cells", "_type")

    def __init__(self, declaration: ListState[Any], table: StateTable, owner: HasCurrentKey) -> None:
        take_over(self, declaration)
        self.of_type = declaration.of_type
        self._cells, self._type = Cells(table, owner), declaration.of_type or object

    def get(self) -> list[Any]:
        """A copy of the current key's list."""
        return list(self._cells.live(reads=True).values())

    def add(self, value: Any) -> None:
        """Append an element."""
        if not isinstance(value, self._type):
            refuse_value(self.name, self._type, value)
        held = self._cells.held()
        self._cells.write_part(next(reversed(held)) + 1 if held else 0, value)

    def clear(self) -> None:
        """Delete the current key's list."""
        self._cells.clear()

    def __len__(self) -> int:
        return len(self._cells.live(reads=False))


class TtlMapState(MapState[Any, Any]):
    """A `MapState` with a TTL; its entries expire one by one."""

    __slots__ = ("_cells", "_key_kinds", "_key_type", "_value_type")

    def __init__(self, declaration: MapState[Any, Any], table: StateTable, owner: HasCurrentKey) -> None:
        take_over(self, declaration)
        self.key_type, self.value_type = declaration.key_type, declaration.value_type
        self._cells = Cells(table, owner)
        self._key_type: type = declaration.key_type or object
        self._key_kinds: set[type] = set()
        self._value_type: type = declaration.value_type or object

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a map key, or the default."""
        found = self._cells.read_part(key)
        return default if found is MISSING else found

    def clear(self) -> None:
        """Delete the current key's map."""
        self._cells.clear()

    def keys(self) -> KeysView[Any]:
        """The keys of the current key's map."""
        return self._cells.live(reads=False).keys()

    def values(self) -> ValuesView[Any]:
        """The values of the current key's map."""
        return self._cells.live(reads=True).values()

    def items(self) -> ItemsView[Any, Any]:
        """The entries of the current key's map."""
        return self._cells.live(reads=True).items()

    def __getitem__(self, key: Any) -> Any:
        found = self._cells.read_part(key)
        if found is MISSING:
            raise KeyError(key)
        return found

    def __setitem__(self, key: Any, value: Any) -> None:
        if not isinstance(value, self._value_type):
            refuse_value(self.name, self._value_type, value)
        if key not in self._cells.held():
            check_map_key(self.name, self._key_type, key)
        elif type(key) not in self._key_kinds:
            meet_map_key(self, key)
        self._cells.write_part(key, value)

    def __delitem__(self, key: Any) -> None:
        if not self._cells.has_part(key):
            raise KeyError(key)
        self._cells.delete_part(key)

    def __contains__(self, key: object) -> bool:
        return self._cells.has_part(key)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cells.live(reads=False))

    def __len__(self) -> int:
        return len(self._cells.live(reads=False))


VIEWS_WITH_TTL: Final[dict[str, type[KeyedState]]] = {
    "value": TtlValueState,
    "list": TtlListState,
    "map": TtlMapState,
    "reducing": TtlReducingState,
    "aggregating": TtlAggregatingState,
}
