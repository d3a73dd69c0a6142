"""Simulated disks: a disk whose power may fail, the checkpoint storage on it, and a disk for spill files.

`ModelDisk` is the worst possible disk. After a power cut each unsynced change of a name is kept or lost,
independently of earlier and later changes. The content of an unsynced file is whole, truncated, or empty,
even if its name is durable.

`DiskStorage` is the checkpoint storage of a simulated run, on a disk whose power may fail. The real
`SyncedFiles` writes the files. A power cut strikes before one of the disk calls of a write, or right after
the write. The writer gets no answer, and unsynced changes may be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any, NoReturn, TypeAlias, cast

from penstock.runtime.errors import ObjectExistsError, ObjectNotFoundError, StorageError
from penstock.runtime.ports import Disk, DiskFolder
from penstock.runtime.snapshot.paths import check_folder
from penstock.runtime.snapshot.storage import SyncedFiles
from penstock.runtime.testing.simulation.world.agenda import Draws
from penstock.runtime.trust.paths import check_path


class _File:
    def __init__(self, data: bytes, *, synced: bool) -> None:
        self.data = data
        self.synced = synced


class _Folder:
    def __init__(self) -> None:
        self.entries: dict[str, _Node] = {}
        self.durable: dict[str, _Node] = {}


_Node: TypeAlias = _File | _Folder


class ModelDisk:
    """A `Disk` in memory; see the module's docstring.

    Example:
        >>> disk = ModelDisk()
        >>> disk.write("a", b"synced", sync=True)
        >>> disk.open_folder("").sync()
        >>> disk.write("b", b"whose name is not", sync=True)
        >>> found = set()
        >>> for seed in range(9):
        ...     found.add(tuple(disk.after_power_cut(Draws(seed)).names("")[0]))
        >>> sorted(found)
        [('a',), ('a', 'b')]
    """

    def __init__(self) -> None:
        self._root = _Folder()

    def after_power_cut(self, draws: Draws) -> ModelDisk:
        """Return the disk after a power cut; this disk stays unchanged."""
        found = ModelDisk()
        found._root = _survivor(self._root, draws)
        return found

    def write(self, path: str, data: bytes, *, sync: bool) -> None:
        folder, name = self._place(path)
        if name in folder.entries:
            raise FileExistsError(path)
        folder.entries[name] = _File(bytes(data), synced=sync)

    def link(self, path: str, to: str) -> None:
        file = self._file(path)
        folder, name = self._place(to)
        if name in folder.entries:
            raise FileExistsError(to)
        folder.entries[name] = file

    def rename(self, path: str, to: str) -> None:
        file = self._file(path)
        folder, name = self._place(to)
        if isinstance(folder.entries.get(name), _Folder):
            raise IsADirectoryError(to)
        folder.entries[name] = file
        self.remove(path)

    def remove(self, path: str) -> None:
        self._file(path)
        folder, name = self._place(path)
        del folder.entries[name]

    def read(self, path: str, on_progress: Callable[[], None] = lambda: None) -> bytes:
        return self._file(path).data

    def make_folder(self, path: str) -> None:
        if not path:
            raise FileExistsError(path)
        folder, name = self._place(path)
        if name in folder.entries:
            raise FileExistsError(path)
        folder.entries[name] = _Folder()

    def remove_folder(self, path: str) -> None:
        found = self._folder(path)
        if found.entries:
            msg = f"{path} is not empty"
            raise OSError(msg)
        folder, name = self._place(path)
        del folder.entries[name]

    def sync_way_up(self) -> None: ...

    def open_folder(self, path: str) -> KeptFolder:
        return KeptFolder(self, path, self._folder(path))

    def names(self, path: str) -> tuple[list[str], list[str]]:
        entries = self._folder(path).entries.items()
        files = [name for name, node in entries if isinstance(node, _File)]
        return files, [name for name, node in entries if isinstance(node, _Folder)]

    def flip(self, path: str, bit: int) -> None:
        file = self._file(path)
        changed = bytearray(file.data)
        changed[bit // 8] ^= 1 << bit % 8
        file.data = bytes(changed)

    def _file(self, path: str) -> _File:
        folder, name = self._place(path)
        node = folder.entries.get(name)
        if node is None:
            raise FileNotFoundError(path)
        if isinstance(node, _Folder):
            raise IsADirectoryError(path)
        return node

    def _folder(self, path: str) -> _Folder:
        folder = self._root
        for name in path.split("/") if path else ():
            node = folder.entries.get(name)
            if node is None:
                raise FileNotFoundError(path)
            if isinstance(node, _File):
                raise NotADirectoryError(path)
            folder = node
        return folder

    def _place(self, path: str) -> tuple[_Folder, str]:
        above, _, name = path.rpartition("/")
        return self._folder(above), name


class KeptFolder:
    """An open folder of a `ModelDisk`; a `DiskFolder`."""

    def __init__(self, disk: ModelDisk, path: str, folder: _Folder) -> None:
        self._disk = disk
        self._path = path
        self._folder = folder

    def sync(self) -> None:
        self._folder.durable = dict(self._folder.entries)

    def is_still_there(self) -> bool:
        try:
            return self._disk._folder(self._path) is self._folder
        except (FileNotFoundError, NotADirectoryError):
            return False


def _survivor(folder: _Folder, draws: Draws) -> _Folder:
    found = _Folder()
    for name in sorted(folder.entries.keys() | folder.durable.keys()):
        now, durable = folder.entries.get(name), folder.durable.get(name)
        node = now if now is durable or draws.chance(0.5) else durable
        if isinstance(node, _Folder):
            found.entries[name] = _survivor(node, draws)
        elif node is not None:
            left = node.data if node.synced else node.data[: draws.below(len(node.data) + 1)]
            found.entries[name] = _File(left, synced=True)
    found.durable = dict(found.entries)
    return found


class DiskStorage:
    """Files on a `ModelDisk`; a `SnapshotStorage`.

    Attributes:
        changes: Number of writes, deletions and flipped bits so far.

    Example:
        >>> storage = DiskStorage("disk:")
        >>> storage.put("j/a", b"1")
        >>> storage.put_and_cut("j/b", b"2", create=True, draws=Draws(3))
        Traceback (most recent call last):
        ...
        penstock.runtime.errors.StorageError: disk:/j/b: the power has failed
        >>> storage.get("j/a")
        b'1'
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.changes = 0
        self._tokens = count()
        self._disk = ModelDisk()
        self._files = self._mounted(self._disk)

    def put(self, path: str, data: bytes, *, create: bool = False) -> None:
        self.changes += 1
        with self._described(check_path(path)):
            self._files.put(path, data, create=create)

    def get(self, path: str) -> bytes:
        with self._described(check_path(path)):
            return self._files.get(path)

    def list(self, prefix: str) -> list[str]:
        return sorted(self._files.list(check_folder(prefix)))

    def delete(self, paths: Iterable[str]) -> None:
        self.changes += 1
        self._files.delete([check_path(path) for path in paths])

    def flip(self, path: str, draws: Draws) -> None:
        size = len(self.get(path))
        self.changes += 1
        if size:
            self._disk.flip(path, draws.below(8 * size))

    def put_and_cut(self, path: str, data: bytes, *, create: bool, draws: Draws) -> NoReturn:
        """Store an object, and cut the power during the write or right after; raises `StorageError`."""
        self.changes += 1
        with self._described(check_path(path)):
            disk = cast(Disk, _CutDisk(self._disk, draws.below(16)))
            with suppress(_PowerCutError, OSError):  # the caller gets no answer
                self._mounted(disk).put(path, data, create=create)
        self._disk = self._disk.after_power_cut(draws)
        self._files = self._mounted(self._disk)
        msg = f"{self.url}/{path}: the power has failed"
        raise StorageError(msg)

    def _mounted(self, disk: Disk) -> SyncedFiles:
        return SyncedFiles(disk, lambda: str(next(self._tokens)))

    @contextmanager
    def _described(self, path: str) -> Iterator[None]:
        where = f"{self.url}/{path}"
        try:
            yield
        except FileNotFoundError as error:
            msg = f"{where} does not exist"
            raise ObjectNotFoundError(msg) from error
        except FileExistsError as error:
            msg = f"{where} exists already"
            raise ObjectExistsError(msg) from error


class _PowerCutError(Exception): ...


class _CutDisk:
    """A disk whose power fails after `calls` calls."""

    def __init__(self, disk: ModelDisk, calls: int) -> None:
        self._disk = disk
        self._calls = calls

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call: Callable[..., Any] = getattr(self._disk, name)

        def counted(*arguments: Any, **more: Any) -> Any:
            self.spend()
            result = call(*arguments, **more)
            return _CutFolder(result, self.spend) if name == "open_folder" else result

        return counted

    def spend(self) -> None:
        if self._calls <= 0:
            raise _PowerCutError
        self._calls -= 1


class _CutFolder:
    def __init__(self, folder: DiskFolder, spend: Callable[[], None]) -> None:
        self._folder = folder
        self._spend = spend

    def sync(self) -> None:
        self._spend()
        self._folder.sync()

    def is_still_there(self) -> bool:
        return self._folder.is_still_there()


class SpillDisk:
    """Makes spill files in memory; a `SpillFileOpener`. Asks `has_room` before each write.

    The spill files of a job have no names, so they disappear when their process dies; `die` does the same.
    """

    def __init__(self, has_room: Callable[[], bool]) -> None:
        self._has_room = has_room
        self._files: list[SpillFileInMemory] = []

    @property
    def open_files(self) -> int:
        return sum(file.is_open for file in self._files)

    def __call__(self) -> SpillFileInMemory:
        file = SpillFileInMemory(self._has_room)
        self._files.append(file)
        return file

    def die(self) -> None:
        for file in self._files:
            file.close()


class SpillFileInMemory:
    def __init__(self, has_room: Callable[[], bool]) -> None:
        self._has_room = has_room
        self.is_open = True
        self._data = bytearray()
        self._position = 0

    def append(self, data: bytes) -> None:
        if not self._has_room():
            msg = "no room on the simulated disk"
            raise StorageError(msg)
        self._data += data

    def read(self, size: int) -> bytes:
        read = bytes(self._data[self._position : self._position + size])
        self._position += len(read)
        return read

    def close(self) -> None:
        self.is_open = False
        self._data.clear()
