"""`RocksDBTimers`: timers in memory, which are written to RocksDB in batches and never read back.

The order of all timers is in memory anyway (`operators/timers.py`). So their numbers are in memory, too, in a
dict by key and moment. Setting, firing and deleting a timer then reads nothing from RocksDB. A read takes
longer than all other steps together, because it seeks the rows of a key among deleted ones. RocksDB has the
timers only for snapshots and restores.

**Invariant.** RocksDB has the row of a timer that is in `_numbers` and not in `_changed`. It has no row of a
timer that is in neither. A timer in `_changed` was set or removed since the last `write_back`. Its value
there is whether RocksDB may have its row. So a timer that is set and removed between two calls leaves no
trace: it costs no row and no deletion. A row that is removed, set and removed again is deleted.

`write_back` writes the newest number of each changed timer, or deletes its row. It runs before a snapshot,
and when `_BATCH` timers have changed. It forgets the changes only after RocksDB has accepted them. A snapshot
must never link RocksDB's files before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from penstock.runtime.io.rocksdb.database import Database
from penstock.runtime.io.rocksdb.rows import TableRows
from penstock.runtime.state.timer_table import TimerTable

#: Changed timers that are written at once, which takes about 25 ms. A snapshot writes at most as many.
_BATCH: Final = 1 << 13


class RocksDBTimers(TimerTable):
    def __init__(self, rows: TableRows, database: Database, key_groups: range) -> None:
        self._rows, self._key_groups = rows, key_groups
        self._numbers: dict[tuple[Any, int], int] = {}
        self._changed: dict[tuple[Any, int], bool] = {}  # type: ignore[assignment]
        self.load(database)

    def load(self, database: Database) -> None:
        """Replace all timers by those of a database, which later changes are written to."""
        self._database = database
        self._changed.clear()
        self._numbers.clear()
        for group in self._key_groups:
            for row, data in database.scan(self._rows.begin(group)):
                key, at, number = self._rows.decode(row, data)
                self._numbers[key, at] = number

    def __iter__(self) -> Iterator[tuple[Any, int, int]]:
        return ((key, at, number) for (key, at), number in self._numbers.items())

    def number_of(self, key: Any, at: int) -> int | None:
        return self._numbers.get((key, at))

    def put(self, key: Any, at: int, number: int) -> None:
        self._make_room()
        timer = key, at
        self._numbers[timer] = number
        self._changed.setdefault(timer, False)

    def remove(self, key: Any, at: int) -> None:
        self._make_room()
        timer = key, at
        del self._numbers[timer]
        if self._changed.get(timer, True):
            self._changed[timer] = True
        else:
            del self._changed[timer]

    def _make_room(self) -> None:
        """Write a full batch before a change, so that an error leaves the timer as it was."""
        if len(self._changed) >= _BATCH:
            self.write_back()

    def write_back(self) -> None:
        """Write all changes to RocksDB; an error loses none."""
        numbers = self._numbers
        written = [timer for timer in self._changed if timer in numbers]
        deleted = [timer for timer in self._changed if timer not in numbers]
        self._database.write(
            self._rows.encode_parts(written, [numbers[timer] for timer in written]),
            self._rows.of_parts(deleted),
        )
        self._changed.clear()
