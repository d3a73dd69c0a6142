"""`Changes`: the changes of one table of the heap since the last snapshot.

`keyed_snapshot.py` tells why it collects references, and which ones it must not hand out.

**Two ways to say it.** A view of a `ValueState` puts key and value into `written`: a reference to the value
costs no more than a key in a set. An operator without a value at hand puts the key into `looked_up`. A
snapshot looks these up in the table, which always has the newest value. So `looked_up` decides where both
have a key.

**Which values may change** is found out by a look at all of `written`: types first, then the parts of tuples
and records. No value is checked where every writer has said that it writes leaves (`is_sure`), as views do.
An operator with a batch of values at hand has them looked at when it puts them in (`put`). Elsewhere it is
done between two batches, as soon as `MOST_UNSEEN` entries have come together (`examine`). What was found
fixed waits in a dict of its own. So the task stops for a bounded time, however much has changed. A function
whose few keys come again and again never has so many.

**Entries that come and go.** A timer that was set and has fired between two snapshots is in none of them. Its
deletion need not be written: `put_new` and `remove` leave nothing behind. Of an entry that was deleted, put
in again and deleted again the deletion is kept: an older snapshot may have it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, Final, Protocol

from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.state.fixed_values import DELETED, LEAVES, FixedValues

#: So many entries wait to be examined at most. So few fit into the processor's cache until they are.
MOST_UNSEEN: Final = 1 << 14
#: From so many looked-up entries on, values that are at hand are looked at and kept. Few keys that come again
#: and again cost less in a set.
_MANY: Final = 1 << 16


class NotesWrites(Protocol):
    _written: dict[Any, Any]


class Changes:
    """Entries that were written or deleted since the last snapshot.

    Attributes:
        written: By entry the value that was written last, or `DELETED`. Another dict after each snapshot:
            views that hold it are attached.
        is_sure: Whether all values in `written` are leaves.
        takes_all: Whether values of any type may be written; `is_sure` then never holds.

    Example:
        >>> from penstock.runtime.record.value_codec import ValueCodec
        >>> entries = {"bob": [2], "cem": 3}
        >>> changes = Changes(entries, FixedValues(ValueCodec()))
        >>> changes.update(["bob", "cem"])
        >>> changes.written["ann"] = DELETED
        >>> loose = changes.loose()
        >>> loose, changes.take(loose)
        ({'bob': [2]}, [{'ann': deleted, 'cem': 3}])
    """

    __slots__ = (
        "_entries",
        "_examined",
        "_fixed",
        "_holders",
        "_is_wide",
        "_nested",
        "_revived",
        "add",
        "is_sure",
        "looked_up",
        "takes_all",
        "update",
        "written",
    )

    def __init__(self, entries: Mapping[Any, Any], fixed: FixedValues, *, nested: bool = False) -> None:
        self._entries, self._nested, self._fixed = entries, nested, fixed
        self.written: dict[Any, Any] = {}
        self.looked_up: set[Any] = set()
        self.add: Callable[[Any], None] = self.looked_up.add
        self.update: Callable[[Iterable[Any]], None] = self.looked_up.update
        self.takes_all = False
        self.is_sure = True
        self._examined: dict[Any, Any] = {}
        self._revived: set[Any] = set()
        self._holders: list[NotesWrites] = []
        self._is_wide = False

    def __iter__(self) -> Iterator[Any]:
        return iter(self.written.keys() | self._examined.keys() | self.looked_up)

    def __len__(self) -> int:
        return len(self.written.keys() | self._examined.keys() | self.looked_up)

    def attach(self, view: NotesWrites) -> None:
        """A view writes to `written`: give it the new one after each snapshot."""
        self._holders.append(view)
        view._written = self.written

    def accept_all(self) -> None:
        self.takes_all, self.is_sure = True, False

    def put(self, entries: Sequence[Any], values: Sequence[Any]) -> None:
        if not self._is_wide:
            self.looked_up.update(entries)
            self._is_wide = len(self.looked_up) > _MANY
        elif self._fixed.are_fixed(values):
            self.written.update(zip(entries, values, strict=True))
        else:
            self.looked_up.update(entries)

    def put_new(self, entry: Any, value: Any) -> None:
        """Note that an entry was put in. Only for a table whose entries are never written over."""
        if entry in self.written:
            self._revived.add(entry)
        if type(value) not in LEAVES:
            self.is_sure = False
        self.written[entry] = value

    def remove(self, entry: Any) -> None:
        """Note that an entry was deleted that `put_new` was called for."""
        if entry in self.written and entry not in self._revived and entry not in self.looked_up:
            del self.written[entry]
        else:
            self._revived.discard(entry)
            self.written[entry] = DELETED

    def put_all(self) -> None:
        if self._nested:
            for key, held in self._entries.items():
                self.written.update({(key, part): value for part, value in held.items()})
        else:
            self.written.update(self._entries)
        self.is_sure = False

    def remove_all(self) -> None:
        self.put_all()
        self.written.update(dict.fromkeys(self.written, DELETED))

    def clear(self) -> None:
        self.looked_up.clear()
        self._examined = {}
        self._begin_anew()

    @property
    def is_examination_due(self) -> bool:
        return not self.is_sure and len(self.written) > MOST_UNSEEN

    def examine(self) -> None:
        """Find out ahead which values can't change; between two batches."""
        for entry in (loose := self._fixed.loose(self.written)):
            del self.written[entry]
        self.looked_up.update(loose)
        if self._examined:
            self._examined.update(self.written)
        else:
            self._examined = self.written
        self._begin_anew()
        # Values that replace others set off no collection: as many die as are made. The next one would have
        # to walk all that were made since the last one, and would stop the task for it.
        gc.collect(0)

    def loose(self) -> dict[Any, Any]:
        """The values that have to be encoded now, as they may change; nothing is forgotten."""
        self._look_up()
        if self.is_sure:
            return {}
        written = self.written
        return {entry: written[entry] for entry in self._fixed.loose(written)}

    def take(self, loose: Iterable[Any]) -> list[dict[Any, Any]]:
        """Everything else, older changes first; nothing counts as changed from now on.

        Args:
            loose: The result of `loose`, just before.
        """
        for entry in loose:
            del self.written[entry]
        taken = [changes for changes in (self._examined, self.written) if changes]
        self._is_wide = self._is_wide and sum(map(len, taken)) > _MANY
        self._examined = {}
        self._begin_anew()
        return taken

    def _look_up(self) -> None:
        """Look up the values of `looked_up` and put them into `written`."""
        if not self.looked_up:
            return
        looked_up, entries = list(self.looked_up), self._entries
        if self._nested:
            found = [entries.get(key, {}).get(part, DELETED) for key, part in looked_up]
        else:
            found = list(map(entries.get, looked_up, repeat(DELETED)))
        if not LEAVES.issuperset(map(type, found)):
            self.is_sure = False
        self.written.update(zip(looked_up, found, strict=True))
        self.looked_up.clear()

    def _begin_anew(self) -> None:
        self.written = {}
        self._revived = set()
        self.is_sure = not self.takes_all
        for view in self._holders:
            view._written = self.written


class DirtyKeys(Changes):
    """Puts every entry that was written or deleted into a set, and keeps no value."""

    __slots__ = ()

    def __init__(self, keys: set[Any]) -> None:
        super().__init__({}, FixedValues(ValueCodec()))
        self.looked_up = keys
        self.add, self.update = keys.add, keys.update
        self.written = _Into(keys)

    def put(self, entries: Sequence[Any], values: Sequence[Any]) -> None:
        self.update(entries)

    def put_new(self, entry: Any, value: Any) -> None:
        self.add(entry)

    def remove(self, entry: Any) -> None:
        self.add(entry)

    def clear(self) -> None:
        self.looked_up.clear()


class _Into(dict[Any, Any]):
    def __init__(self, keys: set[Any]) -> None:
        super().__init__()
        self._keys = keys

    def __setitem__(self, entry: Any, value: Any, /) -> None:
        self._keys.add(entry)

    def update(self, values: Iterable[Any]) -> None:  # type: ignore[override]
        self._keys.update(values)


class UntrackedChanges(DirtyKeys):
    """Changes of a job without snapshots, which keep nothing: only a snapshot would ever empty them."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(set())
        self.add = self.update = _ignore
        self.written = NOTED_ELSEWHERE

    def put_all(self) -> None:
        """Do nothing."""


class _Nowhere(dict[Any, Any]):
    def __setitem__(self, entry: Any, value: Any, /) -> None:
        """Do nothing."""

    def update(self, *entries: Iterable[Any]) -> None:  # type: ignore[override]
        """Do nothing."""


#: The `written` of a view whose writes are noted by what it writes to, or not at all.
NOTED_ELSEWHERE: Final[dict[Any, Any]] = _Nowhere()


def _ignore(entry: Any, /) -> None:
    """Do nothing."""
