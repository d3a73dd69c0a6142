"""`DiskStorage`: the checkpoint storage of a simulated run, files on a disk whose power may fail.

The files are written by the real `SyncedFiles`. A power cut strikes in the middle of a write, after any call
of the disk. The writer gets no answer, and what was not synced may be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any, NoReturn, cast

from penstock.runtime.errors import ObjectExistsError, ObjectNotFoundError, StorageError
from penstock.runtime.ports import Disk, DiskFolder
from penstock.runtime.snapshot.paths import check_folder, check_path
from penstock.runtime.snapshot.synced_files import SyncedFiles
from penstock.runtime.testing.simulation.world.draws import Draws
from penstock.runtime.testing.simulation.world.model_disk import ModelDisk


class DiskStorage:
    """Files on a `ModelDisk`; a `SnapshotStorage`.

    Args:
        url: A name for messages.

    Attributes:
        changes: How often a file was written, deleted or damaged.

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
        """Store; see the port."""
        self.changes += 1
        with self._described(check_path(path)):
            self._files.put(path, data, create=create)

    def get(self, path: str) -> bytes:
        """Read; see the port."""
        with self._described(check_path(path)):
            return self._files.get(path)

    def list(self, prefix: str) -> list[str]:
        """List; see the port."""
        return sorted(self._files.list(check_folder(prefix)))

    def delete(self, paths: Iterable[str]) -> None:
        """Delete; see the port."""
        self.changes += 1
        self._files.delete([check_path(path) for path in paths])

    def flip(self, path: str, draws: Draws) -> None:
        """Let a bit of an object flip.

        Raises:
            ObjectNotFoundError: Nothing is there.
        """
        size = len(self.get(path))
        self.changes += 1
        if size:
            self._disk.flip(path, draws.below(8 * size))

    def put_and_cut(self, path: str, data: bytes, *, create: bool, draws: Draws) -> NoReturn:
        """Begin to store, and let the power fail on the way or right behind it.

        Raises:
            StorageError: Always: nobody answers.
        """
        self.changes += 1
        with self._described(check_path(path)):
            disk = cast(Disk, _CutDisk(self._disk, draws.below(16)))
            with suppress(_PowerCutError, OSError):  # nobody hears an answer
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


class _PowerCutError(Exception):
    """Nothing happens any more."""


class _CutDisk:
    """A disk whose power fails in front of one of its calls."""

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
        """Make one more call, if there is power."""
        if self._calls <= 0:
            raise _PowerCutError
        self._calls -= 1


class _CutFolder:
    def __init__(self, folder: DiskFolder, spend: Callable[[], None]) -> None:
        self._folder = folder
        self._spend = spend

    def sync(self) -> None:
        """Make the names in it durable, if there is power."""
        self._spend()
        self._folder.sync()

    def is_still_there(self) -> bool:
        """Whether its path still leads to it."""
        return self._folder.is_still_there()
