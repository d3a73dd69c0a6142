"""One named table of keyed state, and the view of one key of it."""

from __future__ import annotations

from typing import Any, Final, Protocol


class StateTable:
    """The state of one name: one value a key.

    Operators read and write `entries` directly and say once a batch which keys they wrote or deleted:
    `table.changed.update(keys)`. A key that is in `changed` and not in `entries` was deleted. A write that is
    not said is not in the next checkpoint; a key that is said without a write costs only time. The table and
    its two containers stay the same objects for the life of the backend, so they may be bound once.

    The keys must be the stream's own keys: their key groups decide where the entries go when the job is
    rescaled. A key with several values (one a window, say) has one entry whose value holds them all.

    Attributes:
        name: The state's name, unique in its operator.
        entries: Value by key.
        changed: Keys written or deleted since the last snapshot; always empty in a job that takes none.

    Args:
        name: The state's name.
        changed: Where to keep what changed; a set of its own by default.

    Example:
        >>> counts = StateTable("counts")
        >>> counts.entries["word"] = counts.entries.get("word", 0) + 1
        >>> counts.changed.update(["word"])
    """

    __slots__ = ("changed", "entries", "name")

    def __init__(self, name: str, changed: set[Any] | None = None) -> None:
        self.name = name
        self.entries: dict[Any, Any] = {}
        self.changed: set[Any] = set() if changed is None else changed


class HasCurrentKey(Protocol):
    """Knows the key of the current record."""

    current_key: Any


class _NoKey:
    def __repr__(self) -> str:
        return "no current key"


#: The current key outside of a record.
NO_KEY: Final = _NoKey()


class ValueState:
    """One value for the current key (Flink's `ValueState`).

    A value that is changed in place is *not* seen by checkpoints: call `update` with it afterwards.

    Args:
        table: Where the values are.
        owner: Knows the current key.
        default: What `value` gives for a key that has none; use an immutable one, all keys share it.
    """

    __slots__ = ("_changed", "_default", "_entries", "_name", "_owner")

    def __init__(self, table: StateTable, owner: HasCurrentKey, default: Any = None) -> None:
        self._entries = table.entries
        self._changed = table.changed
        self._name = table.name
        self._owner = owner
        self._default = default

    def value(self) -> Any:
        """The current key's value, or the default.

        Raises:
            RuntimeError: There is no current key.
        """
        return self._entries.get(self._key(), self._default)

    def update(self, value: Any) -> None:
        """Set the current key's value.

        Raises:
            RuntimeError: There is no current key.
        """
        key = self._key()
        self._entries[key] = value
        self._changed.add(key)

    def clear(self) -> None:
        """Delete the current key's value; nothing happens when it has none.

        Raises:
            RuntimeError: There is no current key.
        """
        key = self._key()
        if key in self._entries:
            del self._entries[key]
            self._changed.add(key)

    def _key(self) -> Any:
        key = self._owner.current_key
        if key is NO_KEY:
            msg = (
                f"state {self._name!r} was used where no record is processed; "
                "keyed state has a value only while a record or a timer of a key is processed"
            )
            raise RuntimeError(msg)
        return key
