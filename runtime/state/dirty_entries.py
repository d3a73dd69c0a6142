"""`DirtyEntries`: the entries of one table on the heap that were written since the last snapshot.

`keyed_snapshot.py` explains why a write records a reference, and which values are encoded at once.

**Two ways to report a write.** A view of a `ValueState` puts key and value into `written`: a reference to the
value costs no more than a key in a set. An operator without the value at hand puts the key into `dirty_keys`.
A snapshot looks these keys up in the table, which always has the newest value. So `dirty_keys` takes
precedence.

**Immutable values.** `ImmutableValues` (`immutable_values.py`) checks all of `written` in one step: types
first, then the parts of tuples and records. Where views copy values, `OwnedValues` accepts mutable ones, too.
Nothing is checked while all values are leaves (`only_leaves`). `put` checks a batch of
values. Other values are examined between two batches, as soon as `MAX_UNEXAMINED` have accumulated
(`examine`). So the task stops for a bounded time, however much has changed. Only a report of a whole table is
examined in one step.

**Short-lived entries.** A timer that was set and has fired between two snapshots is in neither. `put_new` and
`remove` leave no trace of it. But an entry may have existed before, been deleted, and been inserted again. A
second deletion of this entry is kept, because an older snapshot may have it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from itertools import repeat
from typing import Any, Final, Protocol

from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.state.immutable_values import DELETED, FIXED, ImmutableValues
from penstock.runtime.state.own_copy import LEAVES, own_copy

#: Maximum number of unexamined entries; this many fit into the processor's cache.
MAX_UNEXAMINED: Final = 1 << 14
#: Number of dirty keys above which `put` keeps values instead; a few recurring keys are cheaper in a set.
_MANY: Final = 1 << 16


class HasWritten(Protocol):
    _written: dict[Any, Any]


class DirtyEntries:
    """Entries that were written or deleted since the last snapshot.

    Attributes:
        written: Last written value of each entry, or `DELETED`. A snapshot and `examine` replace this dict,
            and give the new one to attached views.
        dirty_keys: Entries whose values a snapshot looks up in the table.
        only_leaves: Whether all values in `written` are leaves, or were found immutable by `put`.
        accepts_all: Whether values of any type may be written; `only_leaves` is then never true.
        own_accumulators: Keys whose accumulators no snapshot refers to: they were made or copied after
            the last snapshot.
        keeps_values: Whether entries are examined when they are reported, because they are many.
        lends: Whether a snapshot may refer to values that are in the table.
        never_in_place: Whether no value is changed after it was written, whatever its type. Then no value is
            encoded while the task waits.
    """

    __slots__ = (
        "_entries",
        "_examined",
        "_immutable",
        "_nested",
        "_revived",
        "_views",
        "accepts_all",
        "add",
        "dirty_keys",
        "keeps_values",
        "lends",
        "never_in_place",
        "only_leaves",
        "own_accumulators",
        "update",
        "written",
    )

    def __init__(
        self, entries: MutableMapping[Any, Any], immutable: ImmutableValues, *, nested: bool = False
    ) -> None:
        self._entries, self._immutable, self._nested = entries, immutable, nested
        self.written: dict[Any, Any] = {}
        self.dirty_keys: set[Any] = set()
        self.add: Callable[[Any], None] = self.dirty_keys.add
        self.update: Callable[[Iterable[Any]], None] = self.dirty_keys.update
        self.accepts_all = False
        self.never_in_place = False
        self.only_leaves = True
        self.own_accumulators: set[Any] = set()
        self.lends = True
        self._examined: dict[Any, Any] = {}
        self._revived: set[Any] = set()
        self._views: list[HasWritten] = []
        self.keeps_values = False

    def __iter__(self) -> Iterator[Any]:
        return iter(self.written.keys() | self._examined.keys() | self.dirty_keys)

    def __len__(self) -> int:
        return len(self.written.keys() | self._examined.keys() | self.dirty_keys)

    def attach(self, view: HasWritten) -> None:
        """Let a view write to `written`, even after a snapshot has replaced it."""
        self._views.append(view)
        view._written = self.written

    def accept_all(self) -> None:
        self.accepts_all, self.only_leaves = True, False

    def accept_copies(self) -> None:
        """Note that no written value changes any more: each is from `own_copy`, or an accumulator.

        Before an accumulator is changed in place, `own` or a view must copy it.
        """
        self._immutable = self._immutable.owned

    @property
    def lends_mutable(self) -> bool:
        """Whether a snapshot may refer to a value that could change; `own` then has values to copy."""
        return self.lends and self._immutable.has_accepted_mutable

    def own(self, keys: Collection[Any]) -> Collection[Any]:
        """Let the accumulators of these keys be changed in place; copies those that a snapshot may hold.

        Returns the keys that were not owned before.
        """
        if not self.lends:
            return keys
        if self.own_accumulators.issuperset(keys):
            return ()
        entries, others = self._entries, set(keys).difference(self.own_accumulators)
        if self.lends_mutable:
            for key, accumulator in zip(others, self._values_of(others), strict=True):
                if type(accumulator) in FIXED:
                    continue
                if self._nested:
                    entries[key[0]][key[1]] = own_copy(accumulator)
                else:
                    entries[key] = own_copy(accumulator)
        self.own_accumulators.update(others)
        return others

    def put_owned(self, keys: Iterable[Any], others: Iterable[Any], parts: Sequence[Any]) -> None:
        """Report owned accumulators of `keys` that were changed, but not replaced.

        Args:
            others: The keys that were not owned before. The accumulators of the other keys are known.
            parts: All objects that the changes have put into the accumulators; needed if `keeps_values`.
        """
        if self.keeps_values and self._immutable.are_immutable(parts):
            others = list(others)
            self.put(others, self._values_of(others))
        else:
            self.dirty_keys.update(keys)
            self.keeps_values = len(self.dirty_keys) > MAX_UNEXAMINED

    def disown(self, key: Any) -> None:
        """Report that the owned accumulator of a key was deleted."""
        self.own_accumulators.discard(key)
        self.written[key] = DELETED

    def put(self, entries: Sequence[Any], values: Sequence[Any]) -> None:
        if not self.keeps_values:
            self.dirty_keys.update(entries)
            self.keeps_values = len(self.dirty_keys) > _MANY
        elif self._immutable.are_immutable(values):
            self.written.update(zip(entries, values, strict=True))
        else:
            self.dirty_keys.update(entries)

    def put_new(self, entry: Any, value: Any) -> None:
        """Report a new entry; only for a table whose entries are never overwritten."""
        if entry in self.written:
            self._revived.add(entry)
        if type(value) not in LEAVES:
            self.only_leaves = False
        self.written[entry] = value

    def put_many_new(self, entries: Mapping[Any, Any]) -> None:
        """Report new entries; none of them was ever in the table before."""
        if entries:
            self.only_leaves = False
            self.written.update(entries)

    def put_again(self, entries: Mapping[Any, Any]) -> None:
        """Report new values of entries that were reported as new entries before."""
        if entries:
            self._revived.update(entries.keys() - self.written.keys())
            self.only_leaves = False
            self.written.update(entries)

    def remove(self, entry: Any) -> None:
        """Report the deletion of an entry that was reported by `put_new`."""
        if entry in self.written and entry not in self._revived and entry not in self.dirty_keys:
            del self.written[entry]
        else:
            self._revived.discard(entry)
            self.written[entry] = DELETED

    def remove_many(self, entries: Sequence[Any]) -> None:
        """Report the deletion of entries, as `remove` does; for entries of a key that were deleted together.

        A backend may write back all reported changes of a key at once. A deletion that is not reported yet
        would then be lost.
        """
        if self.dirty_keys or not self.written.keys().isdisjoint(entries):
            for entry in entries:
                self.remove(entry)
        else:
            self.written.update(zip(entries, repeat(DELETED)))

    def put_all(self) -> None:
        if self._nested:
            for key, parts in self._entries.items():
                self.written.update({(key, part): value for part, value in parts.items()})
        else:
            self.written.update(self._entries)
        self.only_leaves = False

    def remove_all(self) -> None:
        self.put_all()
        self.written.update(dict.fromkeys(self.written, DELETED))

    def clear(self) -> None:
        self.dirty_keys.clear()
        self.own_accumulators.clear()
        self._examined = {}
        self._replace_written()

    @property
    def is_examination_due(self) -> bool:
        return not (self.only_leaves or self.never_in_place) and len(self.written) > MAX_UNEXAMINED

    def examine(self) -> None:
        """Separate immutable values from others ahead of the snapshot; called between two batches."""
        for entry in (mutable := self._immutable.mutable(self.written)):
            del self.written[entry]
        self.dirty_keys.update(mutable)
        if self._examined:
            self._examined.update(self.written)
        else:
            self._examined = self.written
        self._replace_written()
        # Values that replace others trigger no garbage collection: as many are freed as are made. The next
        # collection would walk all values made since the last one, and stop the task for that long. So the
        # values become old here, a few at a time.
        gc.collect(1)

    def mutable(self) -> dict[Any, Any]:
        """The values that must be encoded now because they may change; all entries stay dirty."""
        are_known = self.only_leaves
        found = self._look_up()
        if self.only_leaves or self.never_in_place:
            return {}
        written = self.written
        return {entry: written[entry] for entry in self._immutable.mutable(found if are_known else written)}

    def take(self, mutable: Iterable[Any]) -> list[dict[Any, Any]]:
        """Take all entries except those in `mutable`, older ones first; afterwards no entry is dirty."""
        for entry in mutable:
            del self.written[entry]
        taken = [entries for entries in (self._examined, self.written) if entries]
        self.keeps_values = self.keeps_values and sum(map(len, taken)) > _MANY
        self.own_accumulators.clear()
        self._examined = {}
        self._replace_written()
        return taken

    def _look_up(self) -> dict[Any, Any]:
        """Move the dirty keys to `written`, with their values; return these entries."""
        if not self.dirty_keys:
            return {}
        keys = list(self.dirty_keys)
        found = self._values_of(keys)
        if not FIXED.issuperset(map(type, found)):
            self.only_leaves = False
        looked_up = dict(zip(keys, found, strict=True))
        self.written.update(looked_up)
        self.dirty_keys.clear()
        return looked_up

    def _values_of(self, keys: Iterable[Any]) -> list[Any]:
        """Look up the values of entries; `DELETED` for those that the table does not have."""
        entries = self._entries
        if self._nested:
            return [entries.get(key, {}).get(part, DELETED) for key, part in keys]
        return list(map(entries.get, keys, repeat(DELETED)))

    def _replace_written(self) -> None:
        self.written = {}
        self._revived = set()
        self.only_leaves = not self.accepts_all
        for view in self._views:
            view._written = self.written


class DirtyKeys(DirtyEntries):
    """Collects only the keys of dirty entries, in a set."""

    __slots__ = ()

    def __init__(self, keys: set[Any], written: dict[Any, Any] | None = None) -> None:
        super().__init__({}, ImmutableValues(ValueCodec()))
        self.dirty_keys = keys
        self.lends = False
        self.add, self.update = keys.add, keys.update
        self.written = _KeysOnly(keys) if written is None else written

    def put(self, entries: Sequence[Any], values: Sequence[Any]) -> None:
        self.update(entries)

    def put_owned(self, keys: Iterable[Any], others: Iterable[Any], parts: Sequence[Any]) -> None:
        self.update(keys)

    def put_new(self, entry: Any, value: Any) -> None:
        self.add(entry)

    def remove(self, entry: Any) -> None:
        self.add(entry)

    def put_many_new(self, entries: Mapping[Any, Any]) -> None:
        self.update(entries)

    def put_again(self, entries: Mapping[Any, Any]) -> None:
        self.update(entries)

    def remove_many(self, entries: Sequence[Any]) -> None:
        self.update(entries)

    def clear(self) -> None:
        self.dirty_keys.clear()


class _KeysOnly(dict[Any, Any]):
    def __init__(self, keys: set[Any]) -> None:
        super().__init__()
        self._keys = keys

    def __setitem__(self, entry: Any, value: Any, /) -> None:
        self._keys.add(entry)

    def update(self, values: Iterable[Any]) -> None:  # type: ignore[override]
        self._keys.update(values)


class _NoKeys(set[Any]):
    def add(self, entry: Any, /) -> None:
        """Do nothing."""

    def update(self, *entries: Iterable[Any]) -> None:
        """Do nothing."""


class _NoEntries(dict[Any, Any]):
    def __setitem__(self, entry: Any, value: Any, /) -> None:
        """Do nothing."""

    def update(self, *entries: Iterable[Any]) -> None:  # type: ignore[override]
        """Do nothing."""


#: `_written` of a view that reports no writes itself: `LiveEntries` reports them, or nothing does.
UNREPORTED: Final[dict[Any, Any]] = _NoEntries()


def untracked() -> DirtyKeys:
    """Make entries that record nothing, for a job without snapshots, which would never empty them."""
    return DirtyKeys(_NoKeys(), UNREPORTED)
