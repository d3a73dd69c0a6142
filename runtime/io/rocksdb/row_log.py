"""`RocksDBRowLog`: a `RowLog` whose records are in RocksDB; keys, times and flags are in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.runtime.state.captured_rows import CapturedRows
from penstock.runtime.state.row_log import Flags, HashedKeys, Row, RowLog
from penstock.runtime.state.row_ring import Moments
from penstock.runtime.state.state_table import StateTable
from penstock.runtime.state.typed_columns import Slots


class RocksDBRowLog(RowLog):
    """The rows of a nested table.

    The table may drop entries from memory after each report of changes, so changes are reported last. A
    search reports an empty change. Otherwise a log that is only read would keep all read entries in memory.
    """

    def __init__(self, table: StateTable) -> None:
        super().__init__(table.name, tracks_changes=False)
        self._table = table
        self.load()

    def load(self) -> None:
        """Read keys, times and flags of all rows."""
        rows = self._table.entries.items()
        self.fill({key: {n: (at, flag, None) for n, (at, flag, _) in held.items()} for key, held in rows})

    def append(self, keys: HashedKeys, times: Moments, records: Sequence[Any], flags: Flags) -> None:
        numbers = self._new_numbers(len(times))
        super().append(keys, times, [None] * len(times), flags)
        entries = self._table.entries
        added: dict[tuple[Any, int], Row] = {}
        rows = zip(keys.keys, numbers.tolist(), times.tolist(), flags.tolist(), records, strict=True)
        for key, number, at, flag, record in rows:
            value = added[key, number] = (at, flag, record)
            held = entries.get(key)
            if held is None:
                entries[key] = {number: value}
            else:
                held[number] = value
        self._table.changed.put_many_new(added)

    def find_some(
        self, keys: HashedKeys, earliest: Moments, latest: Moments, most: int | None
    ) -> tuple[Slots, Slots, int]:
        self._table.changed.update(())  # the entries that were read after the last search may leave memory
        return super().find_some(keys, earliest, latest, most)

    def records(self, slots: Slots) -> list[Any]:
        entries = self._table.entries
        return [entries[key][number][2] for key, number in self._entries(slots)]

    def flag(self, slots: Slots) -> None:
        super().flag(slots)
        entries = self._table.entries
        flagged: dict[tuple[Any, int], Row] = {}
        for key, number in self._entries(slots):
            held = entries[key]
            at, _, record = held[number]
            held[number] = flagged[key, number] = (at, True, record)
        self._table.changed.put_again(flagged)

    def delete(self, slots: Slots) -> None:
        entries, deleted = self._table.entries, list(self._entries(slots))
        for key, number in deleted:
            held = entries[key]
            del held[number]
            if not held:
                del entries[key]
        super().delete(slots)
        self._table.changed.remove_many(deleted)

    def take_changes(self) -> Iterator[CapturedRows]:
        """Nothing: the table reports the changes."""
        return iter(())

    def _entries(self, slots: Slots) -> Iterator[tuple[Any, int]]:
        numbers: list[int] = self._numbers[slots].tolist()
        return zip(self._keys.take(slots), numbers, strict=True)
