"""One named table of keyed state on the heap.

All kinds of state have the same table. A *flat* table has one entry a key. A *nested* one has several: each
entry has a key and a second part. That is a map key, or the number of a list's element. What is saved is
entries. So a checkpoint's bytes follow the entries that changed, also where one key has a million of them.

The second part of an entry need not be a map key. The start of a window or the name of a timer service can
stand there as well. It is whatever tells entries of one key apart (Flink calls it a namespace).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn, Protocol

from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.state.changes import Changes
from penstock.runtime.state.fixed_values import DELETED, FixedValues
from penstock.runtime.state.time_to_live import Lifetime


class StateTable:
    """The state of one name.

    Operators read and write `entries` directly and say once a batch which entries they wrote or deleted:
    `table.changed.update(keys)`, or `table.changed.put(keys, values)` with the values at hand. An entry that
    is in `changed` and not in `entries` was deleted. A write that is not said is not in the next checkpoint;
    an entry that is said without a write costs only time. The table and its two containers stay the same
    objects for the life of the backend, so they may be bound once.

    The keys must be the stream's own keys: their key groups decide where the entries go when the job is
    rescaled.

    Attributes:
        name: The state's name, unique in its operator.
        entries: Value by key. In a nested table it is a dict by the second part, which is never empty.
        changed: What was written or deleted since the last snapshot; in a nested table pairs of key and
            second part. Always empty in a job that takes no snapshots.
        lifetime: The TTL; `None` for none. With one, each entry is a pair: its stamp (`time_to_live.py`), and
            the value.

    Args:
        changed: Where to keep what changed, given the entries; one of its own by default.

    Example:
        >>> counts = StateTable("counts")
        >>> counts.entries["word"] = counts.entries.get("word", 0) + 1
        >>> counts.changed.update(["word"])
        >>> pages = StateTable("pages", nested=True)
        >>> pages.entries.setdefault("ann", {})["/cart"] = 2
        >>> pages.changed.add(("ann", "/cart"))
    """

    __slots__ = ("changed", "entries", "lifetime", "name", "nested")

    def __init__(
        self,
        name: str,
        *,
        nested: bool = False,
        changed: Callable[[dict[Any, Any]], Changes] | None = None,
    ) -> None:
        self.name = name
        self.nested = nested
        self.entries: dict[Any, Any] = {}
        if changed is None:
            self.changed = Changes(self.entries, FixedValues(ValueCodec()), nested=nested)
        else:
            self.changed = changed(self.entries)
        self.lifetime: Lifetime | None = None

    def mark_all_changed(self) -> None:
        self.changed.put_all()

    def give_stamps(self, lifetime: Lifetime, *, has_stamps: bool) -> None:
        """The entries have a TTL from now on.

        Args:
            has_stamps: Whether they have had one before; otherwise all of them count as changed.
        """
        self.lifetime = lifetime
        if not has_stamps and self.entries:
            self._replace_all(lambda value: (None, value))
        if self.nested:
            pairs = ((key, part, cell) for key, held in self.entries.items() for part, cell in held.items())
            lifetime.watch_all(((key, part), cell[0]) for key, part, cell in pairs)
        else:
            lifetime.watch_all((key, cell[0]) for key, cell in self.entries.items())

    def take_stamps_away(self) -> None:
        """The entries have no TTL any more; all of them count as changed."""
        self._replace_all(lambda cell: cell[1])

    def _replace_all(self, replace: Callable[[Any], Any]) -> None:
        for key, held in self.entries.items():
            if self.nested:
                held.update({part: replace(value) for part, value in held.items()})
            else:
                self.entries[key] = replace(held)
        self.mark_all_changed()

    def stamp_of(self, entry: Any) -> tuple[bool, int | None]:
        cell = self.entries.get(entry[0], {}).get(entry[1]) if self.nested else self.entries.get(entry)
        return (False, None) if cell is None else (True, cell[0])

    def set_stamp(self, entry: Any, stamp: int) -> None:
        if self.nested:
            held = self.entries[entry[0]]
            held[entry[1]] = stamp, held[entry[1]][1]
        else:
            self.entries[entry] = stamp, self.entries[entry][1]
        self.changed.add(entry)

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
        """A copy of what has not expired: by key the value, or a dict by the second part."""
        if self.lifetime is None:
            return (
                {key: dict(held) for key, held in self.entries.items()} if self.nested else {**self.entries}
            )
        if not self.nested:
            return self.lifetime.live(self.entries)
        parts = ((key, self.lifetime.live(held)) for key, held in self.entries.items())
        return {key: held for key, held in parts if held}


class HasCurrentKey(Protocol):
    """Knows the key of the current record.

    Attributes:
        isolates: Whether views copy what they take and give, unless it can't change.
    """

    current_key: Any
    isolates: bool


class NoCurrentKeyError(RuntimeError):
    """Keyed state was touched where there is no current key."""


class _NoKey:
    """Takes the place of a key: no dictionary takes it, so states need not ask before each access."""

    def __repr__(self) -> str:
        return "no current key"

    def __hash__(self) -> NoReturn:
        msg = "keyed state was used where no record is processed"
        raise NoCurrentKeyError(msg)


#: The current key outside of a record.
NO_KEY: Final = _NoKey()


def without_key(name: str) -> RuntimeError:
    """The error for a state that was used without a current key."""
    return RuntimeError(
        f"state {name!r} was used where no record is processed; "
        "keyed state has a value only while a record or a timer of a key is processed"
    )
