"""Where one subtask's state is written, and read when it is restored.

Checkpoints go into the job's own storage. A savepoint may go to another place, and a job may start from a
snapshot in another place. Such a place is opened at its first use, beside the task. If it can't be reached,
the checkpoint is declined and the task goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count

from penstock.runtime.errors import StorageError
from penstock.runtime.ports import SnapshotStorage, StorageOpener
from penstock.runtime.record.elements import CheckpointOptions
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.snapshot.state_files import StateFiles
from penstock.runtime.snapshot.subtask_id import SubtaskId


class OpenedLater:
    """A storage that is opened at its first use, once.

    Args:
        url: Where it is.
        open_location: Opens it; without one nothing can be done with it.
        create: It is to be written, and may not be there yet.
    """

    def __init__(self, url: str, open_location: StorageOpener | None, *, create: bool = False) -> None:
        self._url = url
        self._create = create
        self._open = open_location
        self._opened: SnapshotStorage | None = None

    @property
    def url(self) -> str:
        """Where it is."""
        return self._url

    def put(self, path: str, data: bytes, *, create: bool = False) -> None:
        """Store `data`.

        Raises:
            StorageError: It can't be opened or written.
        """
        self._storage.put(path, data, create=create)

    def get(self, path: str) -> bytes:
        """Read an object.

        Raises:
            StorageError: It can't be opened or read.
        """
        return self._storage.get(path)

    def list(self, prefix: str) -> list[str]:
        """Paths below a folder, sorted.

        Raises:
            StorageError: It can't be opened or read.
        """
        return self._storage.list(prefix)

    def delete(self, paths: Iterable[str]) -> None:
        """Delete objects.

        Raises:
            StorageError: It can't be opened or written.
        """
        self._storage.delete(paths)

    @property
    def _storage(self) -> SnapshotStorage:
        if self._opened is None:
            if self._open is None:
                msg = f"no opener is given for {self._url}, which is outside of the job's storage"
                raise StorageError(msg)
            self._opened = self._open(self._url, create=self._create)
        return self._opened


class SnapshotFiles:
    """Makes the places for the files of one subtask.

    Args:
        subtask: Whose files.
        storage: The job's checkpoint storage.
        open_location: Opens other places.
        inline_limit: Most bytes of a state that stay in the metadata; `None` for the usual limit.
    """

    def __init__(
        self,
        paths: SnapshotPaths,
        subtask: SubtaskId,
        attempt: int,
        storage: SnapshotStorage,
        open_location: StorageOpener | None = None,
        inline_limit: int | None = None,
    ) -> None:
        self._inline_limit = inline_limit
        self._paths = paths
        self._subtask = subtask
        self._attempt = attempt
        self._storage = storage
        self._open_location = open_location

    def written(self, checkpoint_id: int, options: CheckpointOptions, operator: str) -> StateFiles:
        """The place for one operator's state in one checkpoint."""
        next_path, place = self._next_path(checkpoint_id, options, operator), self._storage
        if options.location is not None:
            place = OpenedLater(options.location, self._open_location, create=True)
        return StateFiles(place, next_path, read_from=self._storage, inline_limit=self._inline_limit)

    def restored(self, location: str | None) -> StateFiles:
        """Reads what is restored.

        Args:
            location: URL of the storage that it is in; `None` for the job's own.
        """
        return StateFiles(self.place(location), _nowhere)

    def place(self, location: str | None) -> SnapshotStorage:
        """The storage at a URL; the job's own for `None`."""
        return self._storage if location is None else OpenedLater(location, self._open_location)

    def _next_path(self, checkpoint_id: int, options: CheckpointOptions, operator: str) -> Callable[[], str]:
        numbers, index = count(), self._subtask.index
        if options.location is not None:
            return lambda: self._paths.located_file(operator_id=operator, subtask=index, number=next(numbers))
        path = self._paths.savepoint_file if options.kind.is_savepoint else self._paths.shared_file
        return lambda: path(
            checkpoint_id=checkpoint_id,
            attempt=self._attempt,
            operator_id=operator,
            subtask=index,
            number=next(numbers),
        )


def _nowhere() -> str:
    msg = "what is restored is only read"
    raise StorageError(msg)
