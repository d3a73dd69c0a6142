"""A checkpoint storage with injected faults, and its folders opened as storages of their own.

A write is atomic, as the port demands, but its writer can't always know the outcome. A refused write stores
nothing. An uncertain write succeeds but raises an error. An unavailable storage refuses all calls for a
while; a full storage refuses all writes. A call that hangs times out, and may take effect much later. A power
cut strikes during a write or right after it: the writer gets no answer, and unsynced data may be lost. A
listing of the decision log may be outdated, and any listing may lack the newest names.

`Locations` opens folders of savepoints and of whole jobs as separate storages. They fail whenever the storage
fails, because they are the same storage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from penstock.runtime.errors import ObjectNotFoundError, StorageError, StorageTimeoutError
from penstock.runtime.ports import Clock, SnapshotStorage
from penstock.runtime.testing.simulation.world.agenda import Draws
from penstock.runtime.testing.simulation.world.disks import DiskStorage
from penstock.runtime.testing.simulation.world.faults import FaultCounts, FaultKind


class FaultyStorage:
    """Fails on request; see the module's docstring. The files are on a disk in memory by default."""

    def __init__(self, clock: Clock, counts: FaultCounts, storage: SnapshotStorage | None = None) -> None:
        self._files = storage or DiskStorage("memory:")
        self._clock = clock
        self._counts = counts
        self._away_until = self._full_until = 0.0
        self._cut: Draws | None = None
        self._hang: Callable[[Callable[[], None]], None] | None = None
        self._stale: Draws | None = None
        self._listings: dict[str, list[list[str]]] = {}
        self._next_writes: list[FaultKind] = []
        self._reads_to_refuse = 0
        self._is_reliable = self._lists_truly = False
        self._in_part: tuple[Draws, int] | None = None
        self._written: dict[str, int] = {}

    @property
    def url(self) -> str:
        return self._files.url

    @property
    def changes(self) -> int:
        return self._files.changes if isinstance(self._files, DiskStorage) else 0

    def fail_next(self, kind: FaultKind) -> None:
        if kind is FaultKind.READ_REFUSED:
            self._reads_to_refuse += 1
        else:
            self._next_writes.append(kind)

    def go_away(self, seconds: float) -> None:
        self._away_until = self._clock.monotonic() + seconds

    def fill_up(self, seconds: float) -> None:
        self._full_until = self._clock.monotonic() + seconds

    def cut_power_at_next_write(self, draws: Draws) -> None:
        self._cut = draws

    def hang_next(self, hang: Callable[[Callable[[], None]], None]) -> None:
        """Let the next call hang; `hang` receives its action, to run it later or never."""
        self._hang = hang

    def list_late(self, draws: Draws) -> None:
        self._stale = draws

    def list_in_part(self, draws: Draws, listings: int) -> None:
        self._in_part = draws, listings

    def damage(self, path: str, kind: FaultKind, draws: Draws | None) -> bool:
        """Flip a bit of a file, or delete it if `draws` is `None`; return whether the file was damaged."""
        if not isinstance(self._files, DiskStorage):
            return False
        if draws is None:
            self._files.delete([path])
        else:
            try:
                self._files.flip(path, draws)
            except ObjectNotFoundError:
                return False  # an earlier fault has removed it
        self._counts.happened(kind)
        self._lists_truly = self._lists_truly or "/log/" in path
        return True

    def become_reliable(self) -> None:
        self._is_reliable = True

    def put(self, path: str, data: bytes, *, create: bool = False) -> None:
        self._written[path] = len(self._written)
        self._check_hang(path, lambda: self._files.put(path, data, create=create))
        self._check_there(path)
        if self._clock.monotonic() < self._full_until and not self._is_reliable:
            self._fail(path, FaultKind.DISK_FULL)
        cut, self._cut = self._cut, None
        if cut is not None and isinstance(self._files, DiskStorage) and not self._is_reliable:
            self._counts.happened(FaultKind.POWER_CUT)
            self._files.put_and_cut(path, data, create=create, draws=cut)
        if self._next_writes and not self._is_reliable:
            kind = self._next_writes.pop(0)
            if kind is FaultKind.WRITE_UNSURE:
                self._files.put(path, data, create=create)
            self._fail(path, kind)
        self._files.put(path, data, create=create)

    def get(self, path: str) -> bytes:
        self._check_hang(path)
        self._check_read(path)
        return self._files.get(path)

    def list(self, prefix: str) -> list[str]:
        self._check_hang(prefix)
        self._check_read(prefix)
        found = self._files.list(prefix)
        if prefix.endswith("/log/"):
            earlier = self._listings.setdefault(prefix, [[]])
            earlier.append(found)
            stale, self._stale = self._stale, None
            if stale is not None and not (self._is_reliable or self._lists_truly):
                listed = stale.pick(earlier)
                self._counts.happened(FaultKind.LISTED_LATE, int(listed != found))
                return listed
        return [*self._without_newest(found)]

    def delete(self, paths: Iterable[str]) -> None:
        doomed = list(paths)
        self._check_hang("delete", lambda: self._files.delete(doomed))
        self._check_there("delete")
        self._files.delete(doomed)

    def _without_newest(self, found: Sequence[str]) -> Sequence[str]:
        if self._in_part is None or self._is_reliable or self._lists_truly or not found:
            return found
        draws, left = self._in_part
        self._in_part = (draws, left - 1) if left > 1 else None
        self._counts.happened(FaultKind.LISTED_IN_PART)
        in_order: Sequence[str] = sorted(found, key=lambda path: self._written.get(path, -1))
        return sorted(in_order[: -draws.between(1, 4)])

    def reliable(self) -> SnapshotStorage:
        return self._files

    def _check_read(self, path: str) -> None:
        self._check_there(path)
        if self._reads_to_refuse and not self._is_reliable:
            self._reads_to_refuse -= 1
            self._fail(path, FaultKind.READ_REFUSED)

    def _check_hang(self, path: str, effect: Callable[[], None] = lambda: None) -> None:
        hang, self._hang = self._hang, None
        if hang is None or self._is_reliable:
            return

        def late() -> None:
            with suppress(StorageError):  # the caller has given up
                effect()

        hang(late)
        self._counts.happened(FaultKind.STORAGE_HANGS)
        msg = f"{path}: no answer ({FaultKind.STORAGE_HANGS.value})"
        raise StorageTimeoutError(msg)

    def _check_there(self, path: str) -> None:
        if not self._is_reliable and self._clock.monotonic() < self._away_until:
            self._fail(path, FaultKind.STORAGE_AWAY)

    def _fail(self, path: str, kind: FaultKind) -> None:
        self._counts.happened(kind)
        msg = f"{path}: no answer ({kind.value})"
        raise StorageError(msg)


class Folder:
    def __init__(self, storage: SnapshotStorage, path: str) -> None:
        self._storage = storage
        self._prefix = f"{path}/"

    @property
    def url(self) -> str:
        return f"{self._storage.url}/{self._prefix[:-1]}"

    def put(self, path: str, data: bytes, *, create: bool = False) -> None:
        self._storage.put(self._prefix + path, data, create=create)

    def get(self, path: str) -> bytes:
        return self._storage.get(self._prefix + path)

    def list(self, prefix: str) -> list[str]:
        return [path.removeprefix(self._prefix) for path in self._storage.list(self._prefix + prefix)]

    def delete(self, paths: Iterable[str]) -> None:
        self._storage.delete([self._prefix + path for path in paths])


class Locations:
    """Opens the folders of a storage by their URL; a `StorageOpener`.

    Example:
        >>> from penstock.runtime.snapshot.storage import MemoryStorage
        >>> locations = Locations(MemoryStorage("memory:"))
        >>> locations("memory:/saved").put("a", b"1")
        >>> locations("memory:").list("saved/")
        ['saved/a']
    """

    def __init__(self, storage: SnapshotStorage) -> None:
        self._storage = storage

    def __call__(self, url: str, *, create: bool = False) -> SnapshotStorage:
        root = self._storage.url
        if url == root:
            return self._storage
        if not url.startswith(f"{root}/"):
            msg = f"{url} is not a location of {root}"
            raise StorageError(msg)
        return Folder(self._storage, url.removeprefix(f"{root}/"))
