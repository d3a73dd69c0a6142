"""The ports through which the pure runtime reaches the outside world.

`runtime/` decides and never acts: time, timers, storage and background work are passed in. The actors pass
real implementations; `penstock.runtime.testing` has deterministic ones.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

T = TypeVar("T")


class Clock(Protocol):
    def now(self) -> float:
        """Wall-clock seconds since the epoch; for timestamps that people read and for processing time."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go backwards; for every deadline and duration."""
        ...


class Cancellable(Protocol):
    def cancel(self) -> None: ...


class TimerService(Protocol):
    def call_later(self, delay: float, callback: Callable[[], None]) -> Cancellable:
        """Run `callback` after `delay` seconds."""
        ...


class AsyncRunner(Protocol):
    def run(
        self,
        work: Callable[[], T],
        on_result: Callable[[T], None],
        on_error: Callable[[BaseException], None],
    ) -> Cancellable:
        """Run `work` in the background; then call exactly one callback, in the caller's own thread.

        After `cancel` neither callback is called; the work itself may still run to its end.
        """
        ...


class EventLoop(Protocol):
    """An asyncio event loop that runs one operator's coroutines for a single-threaded owner."""

    def start(
        self,
        work: Callable[[], Coroutine[Any, Any, T]],
        on_result: Callable[[T], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        """Make and run a coroutine on the loop; then call exactly one callback, in the owner's own thread.

        After `close` neither callback is called.
        """
        ...

    def close(self, last: Callable[[], Coroutine[Any, Any, object]] | None = None) -> None:
        """Cancel all coroutines, then run `last` to its end, and end the loop; blocks for a limited time.

        Raises:
            BaseException: The error of `last`.
        """
        ...


#: Makes an event loop. The argument is a callback for a coroutine that blocks the loop. It is called in the
#: owner's thread, with the blocking line and the seconds so far.
EventLoopOpener: TypeAlias = Callable[[Callable[[str, float], None]], EventLoop]


class SnapshotStorage(Protocol):
    """A flat store of named byte objects; calls block, so they run in an `AsyncRunner`.

    Paths are relative, use `/`, and are validated by the caller. A `put` is all or nothing.
    """

    @property
    def url(self) -> str: ...

    def put(self, path: str, data: bytes, *, create: bool = False) -> None:
        """Store `data` under `path`.

        With `create`, raises `ObjectExistsError` if the path is taken; the check is atomic among all writers.
        """
        ...

    def get(self, path: str) -> bytes:
        """Read an object; raises `ObjectNotFoundError` if there is none at the path."""
        ...

    def list(self, prefix: str) -> list[str]:
        """All paths in the folder `prefix`, sorted; the prefix ends with `/`, or is empty for all paths."""
        ...

    def delete(self, paths: Iterable[str]) -> None:
        """Delete these objects; a missing one is not an error."""
        ...


class DiskFolder(Protocol):
    def sync(self) -> None: ...

    def is_still_there(self) -> bool:
        """Return whether the folder's path still leads to this open folder."""
        ...


class Disk(Protocol):
    """A file system below one folder. Paths are relative to it and use `/`; the empty path is that folder.

    Nothing is durable before it is synced: neither the content of a file nor a name in a folder. Calls block,
    may come from several threads, and raise the subclasses of `OSError` that the operating system's calls do.
    """

    def write(self, path: str, data: bytes, *, sync: bool) -> None:
        """Write a new file; with `sync` its content, but not its name, is durable on return.

        Raises:
            OSError: The file exists, or could not be written; part of it may remain.
        """
        ...

    def link(self, path: str, to: str) -> None:
        """Give a file a second name, atomically; raises `FileExistsError` when the name is taken."""
        ...

    def rename(self, path: str, to: str) -> None:
        """Rename a file atomically; replaces an existing file with the new name."""
        ...

    def remove(self, path: str) -> None: ...

    def read(self, path: str, on_progress: Callable[[], None] = ...) -> bytes: ...

    def make_folder(self, path: str) -> None:
        """Make one folder, and for the root its missing parents; a taken name raises `FileExistsError`."""
        ...

    def remove_folder(self, path: str) -> None:
        """Remove a folder; fails unless it is empty."""
        ...

    def sync_way_up(self) -> None:
        """Make the name of the root durable, and those of all folders above it."""
        ...

    def open_folder(self, path: str) -> DiskFolder: ...

    def names(self, path: str) -> tuple[list[str], list[str]]:
        """Names of the files and of the folders in a folder."""
        ...


class SpillFile(Protocol):
    def append(self, data: bytes) -> None:
        """Append `data`, all of it or nothing.

        Raises:
            StorageError: The disk is full or fails. Earlier content stays.
        """
        ...

    def read(self, size: int) -> bytes:
        """The next `size` bytes; fewer at the end."""
        ...

    def close(self) -> None: ...


#: Makes a new, empty file.
SpillFileOpener: TypeAlias = Callable[[], SpillFile]


@runtime_checkable
class StagesFiles(Protocol):
    """A storage whose writers leave files behind when they are killed."""

    def delete_staged(self, prefix: str, is_past: Callable[[str], bool]) -> int:
        """Delete leftovers of killed writers; return the number of files.

        Args:
            is_past: Returns whether no writer can still be writing the object at a path.
        """
        ...


@runtime_checkable
class ReadsAhead(Protocol):
    """A storage that reads an object while its caller works."""

    def start_get(self, path: str) -> Callable[[], bytes]:
        """Start to read an object; the returned function waits for it, and raises the errors of `get`."""
        ...


class StorageOpener(Protocol):
    """Opens storages other than the job's own: a savepoint's folder, or that of the initial snapshot."""

    def __call__(self, url: str, *, create: bool = False) -> SnapshotStorage:
        """Open the storage behind a URL; blocks.

        Args:
            create: Whether the storage will be written, and may not exist yet.

        Raises:
            StorageError: There is no storage at the URL.
        """
        ...
