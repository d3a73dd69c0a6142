"""`ModelDisk`: a disk in memory that loses what was not synced when its power fails.

It is as bad as a disk may be. Each change of a name that was not synced is there after the cut or not,
whatever became of the changes before and behind it. The content of a file that was not synced is whole, cut
off, or empty. A name that is durable may lead to such a file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from penstock.runtime.testing.simulation.world.draws import Draws


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
    """Files in memory; a `Disk`. See the module's text.

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
        """The disk as it is found when its power has come back; this one stays as it is."""
        found = ModelDisk()
        found._root = _survivor(self._root, draws)
        return found

    def write(self, path: str, data: bytes, *, sync: bool) -> None:
        """Write a new file; see the port."""
        folder, name = self._place(path)
        if name in folder.entries:
            raise FileExistsError(path)
        folder.entries[name] = _File(bytes(data), synced=sync)

    def link(self, path: str, to: str) -> None:
        """Give a file a second name; see the port."""
        file = self._file(path)
        folder, name = self._place(to)
        if name in folder.entries:
            raise FileExistsError(to)
        folder.entries[name] = file

    def rename(self, path: str, to: str) -> None:
        """Rename a file; see the port."""
        file = self._file(path)
        folder, name = self._place(to)
        if isinstance(folder.entries.get(name), _Folder):
            raise IsADirectoryError(to)
        folder.entries[name] = file
        self.remove(path)

    def remove(self, path: str) -> None:
        """Remove a name of a file; see the port."""
        self._file(path)
        folder, name = self._place(path)
        del folder.entries[name]

    def read(self, path: str, on_progress: Callable[[], None] = lambda: None) -> bytes:
        """The content of a file; see the port."""
        return self._file(path).data

    def make_folder(self, path: str) -> None:
        """Make one folder; see the port."""
        if not path:
            raise FileExistsError(path)
        folder, name = self._place(path)
        if name in folder.entries:
            raise FileExistsError(path)
        folder.entries[name] = _Folder()

    def remove_folder(self, path: str) -> None:
        """Remove an empty folder; see the port."""
        found = self._folder(path)
        if found.entries:
            msg = f"{path} is not empty"
            raise OSError(msg)
        folder, name = self._place(path)
        del folder.entries[name]

    def sync_way_up(self) -> None:
        """The root is always there."""

    def open_folder(self, path: str) -> _OpenFolder:
        """Open a folder; see the port."""
        return _OpenFolder(self, path, self._folder(path))

    def names(self, path: str) -> tuple[list[str], list[str]]:
        """Names of the files and of the folders in a folder; see the port."""
        entries = self._folder(path).entries.items()
        files = [name for name, node in entries if isinstance(node, _File)]
        return files, [name for name, node in entries if isinstance(node, _Folder)]

    def flip(self, path: str, bit: int) -> None:
        """Let a bit of a file turn over, counted from its first."""
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


class _OpenFolder:
    def __init__(self, disk: ModelDisk, path: str, folder: _Folder) -> None:
        self._disk = disk
        self._path = path
        self._folder = folder

    def sync(self) -> None:
        """Make the names in it durable."""
        self._folder.durable = dict(self._folder.entries)

    def is_still_there(self) -> bool:
        """Whether its path still leads to it."""
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
