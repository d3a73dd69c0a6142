"""Counters that all checkpoint storages share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StorageStatistics:
    """Calls to a storage.

    Attributes:
        puts: Objects written.
        put_bytes: Bytes written.
        gets: Objects read.
        get_bytes: Bytes read.
        lists: Listings.
        deletes: Objects deleted.
        conflicts: Puts-if-absent that found an object.
        errors: Calls that failed for any other reason than a missing object.
    """

    puts: int
    put_bytes: int
    gets: int
    get_bytes: int
    lists: int
    deletes: int
    conflicts: int
    errors: int


@dataclass(slots=True)
class StorageCounters:
    """The counters of `StorageStatistics` while they grow.

    They are not guarded against threads: a lost count is a wrong number on a dashboard, nothing else.
    """

    puts: int = 0
    put_bytes: int = 0
    gets: int = 0
    get_bytes: int = 0
    lists: int = 0
    deletes: int = 0
    conflicts: int = 0
    errors: int = 0

    def wrote(self, size: int) -> None:
        """Count a put."""
        self.puts += 1
        self.put_bytes += size

    def read(self, size: int) -> None:
        """Count a get."""
        self.gets += 1
        self.get_bytes += size

    def freeze(self) -> StorageStatistics:
        """A copy of the counters."""
        return StorageStatistics(
            self.puts,
            self.put_bytes,
            self.gets,
            self.get_bytes,
            self.lists,
            self.deletes,
            self.conflicts,
            self.errors,
        )
