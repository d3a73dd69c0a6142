"""Storages of checkpoints: on a disk that may lose power (`SyncedFiles`), and in memory.

When `SyncedFiles.put` returns, the object survives a power cut as a whole. After a put that was refused or
did not return, the object exists as a whole or not at all. Why this is right:

1. *Content before name.* The bytes go to a staging file, `<name>#<token>`, which is synced before the object
   gets its name. A conditional create makes a hard link, which fails if the name exists. Any other put
   renames the staging file.
2. *Name before answer.* The folder is synced before `put` returns. The name of a new folder is synced too, in
   the folder above, and so on up to the root. *Another* writer may have made a folder without syncing it. So
   each writer syncs all folders above once, for each folder that it uses, and keeps the folder open. A folder
   that was removed and made again has a different inode from the open one. A folder may also be removed
   during a put, until the staging file is in it. So the put checks again after it has made the name.
3. *A refusal is an answer.* A reader acts on an object that exists: the decision log reads the record. The
   writer may have died between the link and the sync. So the folder is synced before a refusal, too.
4. *A record that is read but not yet durable* does no harm to the log. A reader that decides something puts a
   record into the same folder, and that put syncs the earlier one.
5. *Deletions* are synced at the end of a call. So a power cut never undoes the deletions of one call and
   keeps those of a later one; the decision log needs that order.

A killed writer leaves its staging file. `staged` lists these files, and `delete` deletes them.

What it must never do: return before the sync, or give a file its name before its content is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableSequence, Sequence
from contextlib import suppress
from typing import Final

from penstock.runtime.errors import ObjectExistsError, ObjectNotFoundError
from penstock.runtime.ports import Disk, DiskFolder
from penstock.runtime.snapshot.paths import check_folder
from penstock.runtime.trust.paths import check_path

#: Separates the name of an object from the token of the call that writes it; no name contains it.
STAGED: Final = "#"
#: Maximum number of open folders; the names of all folders above an open one are durable.
_MOST_OPEN: Final = 32
#: Maximum number of tries of one put. Each further try follows a removal of its folder by another writer.
_TRIES: Final = 10


class SyncedFiles:
    """Puts, gets, lists and deletes files, from any thread; `new_token` makes unique tokens."""

    def __init__(self, disk: Disk, new_token: Callable[[], str]) -> None:
        self._disk = disk
        self._new_token = new_token
        self._durable: dict[str, DiskFolder] = {}

    def put(self, path: str, data: bytes, *, create: bool = False) -> None:
        """Store `data` durably."""
        made: list[str] = []
        try:
            for tries_left in reversed(range(_TRIES)):
                try:
                    return self._put(path, data, made, create=create)
                except FileNotFoundError:
                    if not tries_left:
                        raise
        except FileExistsError:
            raise
        except OSError:
            for folder in reversed(made):
                self._remove_empty(folder)
            raise

    def get(self, path: str, on_progress: Callable[[], None] = lambda: None) -> bytes:
        return self._disk.read(path, on_progress)

    def list(self, prefix: str, on_progress: Callable[[], None] = lambda: None) -> list[str]:
        """Paths of objects below the folder `prefix`, unordered, without staging files."""
        return [path for path in self._walk(prefix.rstrip("/"), on_progress) if STAGED not in path]

    def staged(self, prefix: str) -> Sequence[str]:
        """Paths of staging files below the folder `prefix`, of running and killed writers."""
        return [path for path in self._walk(prefix.rstrip("/")) if STAGED in path.rpartition("/")[2]]

    def folders(self) -> Sequence[str]:
        return self._disk.names("")[1]

    def delete(self, paths: Iterable[str]) -> None:
        """Delete objects, and folders that become empty; a missing object is not an error."""
        touched: set[str] = set()
        for path in paths:
            with suppress(FileNotFoundError, NotADirectoryError):
                self._disk.remove(path)
                touched.add(_above(path))
        # The deepest first, because a folder is empty only after its inner folders are removed.
        for folder in sorted(touched, key=lambda path: path.count("/"), reverse=True):
            while folder and self._remove_empty(folder):
                folder = _above(folder)
            with suppress(FileNotFoundError):
                self._disk.open_folder(folder).sync()

    def _put(self, path: str, data: bytes, made: MutableSequence[str], *, create: bool) -> None:
        folder = self._durable_folder(_above(path), made)
        staged = f"{path}{STAGED}{self._new_token()}"
        try:
            self._disk.write(staged, data, sync=True)
            try:
                if create:
                    self._disk.link(staged, path)
                    self._disk.remove(staged)
                else:
                    self._disk.rename(staged, path)
            except FileExistsError:
                self._sync_names(folder, _above(path), made)
                raise
            self._sync_names(folder, _above(path), made)
        except OSError:
            with suppress(OSError):  # the first error is the one to report
                self._disk.remove(staged)
            raise

    def _sync_names(self, folder: DiskFolder, path: str, made: MutableSequence[str]) -> None:
        """Make the names in a folder durable; the folder holds an object, so it is not removed again."""
        folder.sync()
        if not folder.is_still_there():
            self._durable_folder(path, made).sync()

    def _durable_folder(self, path: str, made: MutableSequence[str]) -> DiskFolder:
        """An open folder whose name, and the names of all folders above, are durable."""
        known = self._durable.get(path)
        if known is not None and known.is_still_there():
            return known
        above = self._durable_folder(_above(path), made) if path else None
        with suppress(FileExistsError):
            self._disk.make_folder(path)
            if path:
                made.append(path)
        opened = self._disk.open_folder(path)
        if above is None:
            self._disk.sync_way_up()
        else:
            above.sync()
        for oldest in list(self._durable)[: -_MOST_OPEN + 1]:
            self._durable.pop(oldest, None)
        self._durable[path] = opened
        return opened

    def _remove_empty(self, folder: str) -> bool:
        try:
            self._disk.remove_folder(folder)
        except OSError:  # the folder is not empty, or another process has removed it
            return False
        # Close the removed folder: while it is open, its file system can't be made read-only.
        self._durable.pop(folder, None)
        return True

    def _walk(self, folder: str, on_progress: Callable[[], None] = lambda: None) -> Sequence[str]:
        on_progress()
        try:
            files, folders = self._disk.names(folder)
        except (FileNotFoundError, NotADirectoryError):
            return ()
        inside = f"{folder}/" if folder else ""
        found = [inside + name for name in files]
        for name in folders:
            found += self._walk(inside + name, on_progress)
        return found


def _above(path: str) -> str:
    return path.rpartition("/")[0]


class MemoryStorage:
    """Objects in a dict; for the log of jobs without a checkpoint storage, for tests and the simulation."""

    def __init__(self, url: str = "memory:") -> None:
        self.url = url
        self._objects: dict[str, bytes] = {}

    def put(self, path: str, data: bytes, *, create: bool = False) -> None:
        if create and check_path(path) in self._objects:
            msg = f"{self.url}/{path} exists already"
            raise ObjectExistsError(msg)
        self._objects[check_path(path)] = bytes(data)

    def get(self, path: str) -> bytes:
        data = self._objects.get(check_path(path))
        if data is None:
            msg = f"{self.url}/{path} does not exist"
            raise ObjectNotFoundError(msg)
        return data

    def list(self, prefix: str) -> list[str]:
        check_folder(prefix)
        return sorted(path for path in self._objects if path.startswith(prefix))

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._objects.pop(check_path(path), None)
