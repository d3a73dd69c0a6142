"""One named table of keyed state on the heap.

All kinds of state have the same table. A *flat* table has one entry a key. A *nested* one has several: each
entry has a key and a second part. That is a map key, or the number of a list's element. What is saved is
entries. So a checkpoint's bytes follow the entries that changed, also where one key has a million of them.

The second part of an entry need not be a map key. The start of a window or the name of a timer service can
stand there as well. It is whatever tells entries of one key apart (Flink calls it a namespace).
"""

from __future__ import annotations

from typing import Any, Final, NoReturn, Protocol


class StateTable:
    """The state of one name.

    Operators read and write `entries` directly and say once a batch which entries they wrote or deleted:
    `table.changed.update(keys)`. An entry that is in `changed` and not in `entries` was deleted. A write that
    is not said is not in the next checkpoint; an entry that is said without a write costs only time. The
    table and its two containers stay the same objects for the life of the backend, so they may be bound once.

    The keys must be the stream's own keys: their key groups decide where the entries go when the job is
    rescaled.

    Attributes:
        name: The state's name, unique in its operator.
        nested: Whether a key has several entries.
        entries: Value by key. In a nested table it is a dict by the second part, which is never empty.
        changed: Keys written or deleted since the last snapshot; in a nested table pairs of key and second
            part. Always empty in a job that takes no snapshots.

    Args:
        name: The state's name.
        changed: Where to keep what changed; a set of its own by default.
        nested: Whether a key has several entries.

    Example:
        >>> counts = StateTable("counts")
        >>> counts.entries["word"] = counts.entries.get("word", 0) + 1
        >>> counts.changed.update(["word"])
        >>> pages = StateTable("pages", nested=True)
        >>> pages.entries.setdefault("ann", {})["/cart"] = 2
        >>> pages.changed.add(("ann", "/cart"))
    """

    __slots__ = ("changed", "entries", "name", "nested")

    def __init__(self, name: str, changed: set[Any] | None = None, *, nested: bool = False) -> None:
        self.name = name
        self.nested = nested
        self.entries: dict[Any, Any] = {}
        self.changed: set[Any] = set() if changed is None else changed

    def mark_all_changed(self) -> None:
        """Every entry is to be in the next snapshot."""
        if not self.nested:
            self.changed.update(self.entries)
            return
        for key, parts in self.entries.items():
            self.changed.update([(key, part) for part in parts])

    def take_changes(self) -> tuple[list[Any], list[Any], list[Any]]:
        """What changed: written entries, their values, and deleted entries; `changed` stays as it is.

        Entries of one key stand together, those of a nested table in the order of the key's dict.
        """
        entries, changed = self.entries, self.changed
        if not self.nested:
            written = [key for key in changed if key in entries]
            values = [entries[key] for key in written]
            gone = [] if len(written) == len(changed) else [key for key in changed if key not in entries]
            return written, values, gone
        parts_by_key: dict[Any, list[Any]] = {}
        for key, part in changed:
            parts_by_key.setdefault(key, []).append(part)
        written, values, gone = [], [], []
        for key, parts in parts_by_key.items():
            held = entries.get(key, {})
            for part in parts:
                if part in held:
                    written.append((key, part))
                    values.append(held[part])
                else:
                    gone.append((key, part))
        return written, values, gone


class HasCurrentKey(Protocol):
    """Knows the key of the current record."""

    current_key: Any


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
