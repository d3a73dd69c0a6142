"""`StateTable`: one named table of keyed state on the heap, and its entries with a TTL as views see them.

All kinds of users' keyed state use this table. A *flat* table has one entry per key. A *nested* table has
several entries per key, each with a second part: a map key, or the number of a list element. Each entry is
saved separately. So a checkpoint's size depends on the changed entries, even if one key has a million of
them. Other operators use a window or the time of a timer as the second part, like Flink's namespace.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, MutableMapping, ValuesView
from typing import Any, Final, NoReturn, Protocol

from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.state.dirty_entries import UNREPORTED, DirtyEntries, HasWritten
from penstock.runtime.state.immutable_values import DELETED, ImmutableValues
from penstock.runtime.state.own_copy import LEAVES
from penstock.runtime.state.time_to_live import Lifetime


class StateTable:
    """The entries of one named state.

    Operators read and write `entries` directly. Once per batch they report the entries that they wrote or
    deleted: `table.changed.update(keys)`, or `table.changed.put(keys, values)` with the values at hand. An
    entry that is in `changed` but not in `entries` was deleted. A write that is not reported is missing from
    the next checkpoint; a report without a write only costs time. `entries` and `changed` are never replaced.

    The keys must be the stream's own keys: their key groups decide where the entries go when the job is
    rescaled.

    Attributes:
        entries: Value by key. In a nested table the value is a dict by second part, which is never empty.
        changed: Entries written or deleted since the last snapshot; in a nested table pairs of key and second
            part. Always empty in a job without snapshots.
        lifetime: The TTL; `None` for none. With a TTL each value is a *cell*: a pair of its stamp
            (`time_to_live.py`) and the user's value.
    """

    __slots__ = ("changed", "entries", "lifetime", "name", "nested")

    def __init__(
        self,
        name: str,
        *,
        nested: bool = False,
        changed: Callable[[dict[Any, Any]], DirtyEntries] | None = None,
    ) -> None:
        self.name = name
        self.nested = nested
        self.entries: dict[Any, Any] = {}
        if changed is None:
            self.changed = DirtyEntries(self.entries, ImmutableValues(ValueCodec()), nested=nested)
        else:
            self.changed = changed(self.entries)
        self.lifetime: Lifetime | None = None

    def cells(self) -> Iterator[tuple[Any, Any]]:
        """Yield all entries with their values or cells; the caller may replace these with `put`."""
        for key, held in self.entries.items():
            if self.nested:
                yield from [((key, part), cell) for part, cell in held.items()]
            else:
                yield key, held

    def key_of(self, entry: Any) -> Any:
        return entry[0] if self.nested else entry

    def put(self, entry: Any, cell: Any) -> None:
        """Replace the value or cell of an entry, and report it.

        The report includes the value, like the report of a view. So a table whose entries are all replaced is
        examined between two batches, and not in the synchronous part of the next snapshot.
        """
        if self.nested:
            self.entries[entry[0]][entry[1]] = cell
        else:
            self.entries[entry] = cell
        self.changed.only_leaves = False
        self.changed.written[entry] = cell

    def add_stamps(self, lifetime: Lifetime, *, has_stamps: bool) -> None:
        """Give the entries a TTL; all of them count as changed if they have no stamps yet."""
        self.lifetime = lifetime
        if not has_stamps:
            for entry, value in self.cells():
                self.put(entry, (None, value))
        lifetime.watch_all((entry, cell[0]) for entry, cell in self.cells())

    def remove_stamps(self) -> None:
        """Remove the stamps; all entries count as changed."""
        for entry, cell in self.cells():
            self.put(entry, cell[1])

    def for_views(self) -> tuple[Any, DirtyEntries | LiveEntries]:
        """Return the entries for views, and the object to which views report changes."""
        if self.lifetime is None:
            return self.entries, self.changed
        live = (NestedLiveEntries if self.nested else LiveEntries)(self.entries, self.changed, self.lifetime)
        return live, live

    def cell_of(self, entry: Any) -> tuple[int | None, Any] | None:
        """Return the cell of an entry in a table with a TTL; `None` when there is none."""
        return self.entries.get(entry[0], {}).get(entry[1]) if self.nested else self.entries.get(entry)

    def delete(self, entry: Any) -> None:
        if self.nested:
            key, part = entry
            held = self.entries[key]
            del held[part]
            if not held:
                del self.entries[key]
        else:
            del self.entries[entry]
        self.changed.written[entry] = DELETED

    def live(self) -> dict[Any, Any]:
        """Return a copy of the entries that have not expired: by key a value, or a dict by second part."""
        live = dict if self.lifetime is None else self.lifetime.live
        if not self.nested:
            return live(self.entries)
        parts = ((key, live(held)) for key, held in self.entries.items())
        return {key: held for key, held in parts if held}

    def live_keys(self) -> list[Any]:
        """Return the keys with entries that have not expired."""
        if self.lifetime is None:
            return list(self.entries)
        live = self.lifetime.live
        return [key for key, held in self.entries.items() if live(held if self.nested else {key: held})]


class LiveEntries:
    """The entries of a flat table with a TTL, as views use them.

    An entry is a cell: a stamp and a value. Expired cells are hidden. A write gets a stamp and is recorded as
    a change here, so a view uses this object instead of the table's changes.
    """

    __slots__ = ("_cells", "_changed", "_life", "_written")

    _written: dict[Any, Any]

    def __init__(self, cells: dict[Any, Any], changed: DirtyEntries, life: Lifetime) -> None:
        self._cells, self._changed, self._life = cells, changed, life
        changed.attach(self)

    def __bool__(self) -> bool:
        """Return whether there are cells, including expired ones."""
        return bool(self._cells)

    def attach(self, view: HasWritten) -> None:
        view._written = UNREPORTED

    def accept_all(self) -> None:
        self._changed.accept_all()

    def get(self, key: Any, default: Any = None) -> Any:
        cell = self._cells.get(key)
        if cell is None:
            return default
        life, (stamp, value) = self._life, cell
        now = life.now()
        if stamp is not None and stamp + life.microseconds <= now:
            return default
        if life.on_read and (stamp is None or stamp < now):
            if type(value) not in LEAVES:
                self._changed.accept_all()
            self._cells[key] = self._written[key] = now, value
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        before, now = self._cells.get(key), self._life.now()
        if before is None:
            self._life.watch(key, now)
        elif before[0] is not None and before[0] > now:
            now = before[0]
        self._cells[key] = self._written[key] = now, value

    def pop(self, key: Any, default: Any) -> Any:
        """Delete and return a cell, even an expired one; return `default` when there is none."""
        cell = self._cells.pop(key, default)
        if cell is not default:
            self._written[key] = DELETED
        return cell


class NestedLiveEntries(LiveEntries):
    """`LiveEntries` of a nested table: a key's entries are `LiveParts`."""

    __slots__ = ("_latest",)

    def __init__(self, cells: dict[Any, Any], changed: DirtyEntries, life: Lifetime) -> None:
        super().__init__(cells, changed, life)
        self._latest = LiveParts(self, None, {})

    def get(self, key: Any, default: Any = None) -> Any:
        held = self._cells.get(key)
        if held is None:
            return default
        if self._latest.cells is not held:
            self._latest = LiveParts(self, key, held)
        return self._latest

    def setdefault(self, key: Any, default: dict[Any, Any]) -> LiveParts:
        self._latest = LiveParts(self, key, self._cells.setdefault(key, default))
        return self._latest

    def pop(self, key: Any, default: Any) -> Any:
        held = self._cells.pop(key, None)
        if held:
            self._written.update(dict.fromkeys([(key, part) for part in held], DELETED))
        return default


class LiveParts(MutableMapping[Any, Any]):
    """The entries of one key of a nested table with a TTL, by second part."""

    __slots__ = ("_entries", "_key", "_life", "cells")

    def __init__(self, entries: NestedLiveEntries, key: Any, cells: dict[Any, Any]) -> None:
        self._entries, self._key, self.cells, self._life = entries, key, cells, entries._life

    def __bool__(self) -> bool:
        return bool(self.cells)

    def __reversed__(self) -> Iterator[Any]:
        """Second parts of all cells, so that the number of an expired element is not reused."""
        return reversed(self.cells.keys())

    def __len__(self) -> int:
        return len(self._life.live(self.cells))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._life.live(self.cells))

    def __contains__(self, part: object) -> bool:
        cell = self.cells.get(part)
        if cell is None:
            return False
        stamp: int | None = cell[0]
        return stamp is None or stamp + self._life.microseconds > self._life.now()

    def __getitem__(self, part: Any) -> Any:
        value = self.get(part, UNREPORTED)
        if value is UNREPORTED:
            raise KeyError(part)
        return value

    def get(self, part: Any, default: Any = None) -> Any:
        cell = self.cells.get(part)
        if cell is None:
            return default
        life, (stamp, value) = self._life, cell
        now = life.now()
        if stamp is not None and stamp + life.microseconds <= now:
            return default
        if life.on_read and (stamp is None or stamp < now):
            self._refresh(part, value, now)
        return value

    def __setitem__(self, part: Any, value: Any) -> None:
        entry, before, now = (self._key, part), self.cells.get(part), self._life.now()
        if before is None:
            self._life.watch(entry, now)
        elif before[0] is not None and before[0] > now:
            now = before[0]
        # The cell is set before the change is noted, because a backend may write it back at once.
        self.cells[part] = self._entries._written[entry] = now, value

    def __delitem__(self, part: Any) -> None:
        if part not in self:
            raise KeyError(part)
        del self.cells[part]
        if not self.cells:
            self._entries._cells.pop(self._key, None)
        self._entries._written[self._key, part] = DELETED

    def values(self) -> ValuesView[Any]:
        return self._read().values()

    def items(self) -> ItemsView[Any, Any]:
        return self._read().items()

    def _read(self) -> dict[Any, Any]:
        """Copy the entries that have not expired; refreshes them if reads count as use."""
        life = self._life
        live = life.live(self.cells)
        if life.on_read and live:
            now = life.now()
            for part, value in live.items():
                stamp = self.cells[part][0]
                if stamp is None or stamp < now:
                    self._refresh(part, value, now)
        return live

    def _refresh(self, part: Any, value: Any, now: int) -> None:
        if type(value) not in LEAVES:
            self._entries.accept_all()
        self.cells[part] = self._entries._written[self._key, part] = now, value


class HasCurrentKey(Protocol):
    """Provides the key of the current record.

    Attributes:
        isolates: Whether views copy the mutable values that they take and return.
    """

    current_key: Any
    isolates: bool


class NoCurrentKeyError(RuntimeError):
    pass


class _NoKey:
    """Unhashable placeholder for a missing key: lookups in dicts raise, so states need no check."""

    def __repr__(self) -> str:
        return "no current key"

    def __hash__(self) -> NoReturn:
        msg = "keyed state was used outside the processing of a record"
        raise NoCurrentKeyError(msg)


#: The current key outside of a record.
NO_KEY: Final = _NoKey()


def without_key(name: str) -> RuntimeError:
    return RuntimeError(
        f"state {name!r} was used outside the processing of a record; "
        "keyed state has a value only while a record or a timer of a key is processed"
    )
