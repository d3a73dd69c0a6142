"""`FilesInReading`: tracks the files that are read to their end, and those that a checkpoint covers.

Only the enumerator can know: the splits of a file go to several readers. A reader that asks for a split has
read all its earlier ones. So a file has been read when none of its splits waits, and each reader that got one
has asked again.

**Why a covered file may be deleted.** A reader asks after the last record of its split. The enumerator's
snapshot is taken before the readers' barriers. So when the snapshot counts a file as read, all its records
are before the barriers, and no reader's snapshot has a split of it. Once this checkpoint is complete, no
restart reads the file again.

A reader that fails goes back to an older checkpoint, and reads some splits again. So all files that it had a
split of, and that no completed checkpoint covers, count as held by it until it asks again. After a restore it
is not known which readers have the splits of a file, so every reader holds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from penstock.runtime.io.connectors.filesystem import FileInfo


@dataclass(slots=True)
class _File:
    """A file whose splits are known.

    Attributes:
        waiting: Number of splits that no reader has.
        holders: Readers that may not have read their splits of it to the end.
        readers: Readers that have or had a split of it.
    """

    info: FileInfo
    waiting: int = 0
    holders: set[int] = field(default_factory=set)
    readers: set[int] = field(default_factory=set)

    @property
    def is_read(self) -> bool:
        return not self.waiting and not self.holders


class FilesInReading:
    """The files that are being read, or are read and not covered yet.

    Example:
        >>> files = FilesInReading()
        >>> files.add(FileInfo("/in/a", 5), 1)
        >>> files.assigned(0, "/in/a")
        >>> files.snapshot_taken(1)
        >>> files.reader_asks(0)
        >>> files.snapshot_taken(2)
        >>> files.covered(1), files.covered(2)
        ([], [FileInfo(path='/in/a', size=5, unreadable='', modified=None)])
    """

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}
        self._held_by: dict[int, set[str]] = {}
        #: Files that were read when a checkpoint was taken. A later file of the same name is another one.
        self._taken: dict[int, list[_File]] = {}

    def restored(self, files: Iterable[FileInfo], waiting: Iterable[str], readers: Iterable[int]) -> None:
        """Take over files of a checkpoint; `waiting` has the path of each split that no reader has."""
        everyone = set(readers)
        for info in files:
            self._files[info.path] = _File(info, 0, set(everyone), set(everyone))
        for path in waiting:
            if path in self._files:
                self._files[path].waiting += 1
        for reader in everyone:
            self._held_by[reader] = set(self._files)

    def add(self, info: FileInfo, splits: int) -> None:
        """Add a file with this number of splits, which wait."""
        self._files[info.path] = _File(info, splits)

    def assigned(self, reader: int, path: str) -> None:
        file = self._files.get(path)
        if file is not None:
            file.waiting -= 1
            file.holders.add(reader)
            file.readers.add(reader)
            self._held_by.setdefault(reader, set()).add(path)

    def reader_asks(self, reader: int) -> None:
        """Count the splits of a reader as read."""
        for path in self._held_by.pop(reader, ()):
            if path in self._files:
                self._files[path].holders.discard(reader)

    def reader_failed(self, reader: int) -> None:
        """Count all splits that a reader had as not read."""
        mine = {path for path, file in self._files.items() if reader in file.readers}
        for path in mine:
            self._files[path].holders.add(reader)
        self._held_by[reader] = mine

    def given_back(self, path: str) -> None:
        """Count a split as waiting again."""
        if path in self._files:
            self._files[path].waiting += 1

    def snapshot_taken(self, checkpoint_id: int) -> None:
        self._taken[checkpoint_id] = [file for file in self._files.values() if file.is_read]

    def covered(self, checkpoint_id: int) -> list[FileInfo]:
        """Remove and return the files that this completed checkpoint covers."""
        taken = self._taken.get(checkpoint_id, [])
        self._taken = {known: files for known, files in self._taken.items() if known > checkpoint_id}
        covered = [file.info for file in taken if self._files.get(file.info.path) is file and file.is_read]
        for info in covered:
            del self._files[info.path]
        return sorted(covered, key=lambda info: info.path)

    def unread(self) -> Sequence[FileInfo]:
        return [file.info for file in self._files.values() if not file.is_read]

    def read(self) -> Sequence[FileInfo]:
        """The files that the next checkpoint covers."""
        return [file.info for file in self._files.values() if file.is_read]
