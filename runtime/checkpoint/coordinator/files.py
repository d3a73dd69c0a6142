"""Deletes the files of checkpoints that will never be.

A snapshot names files of its own checkpoint and, for incremental state, files of older ones. Only its *own*
new files may go when it is given up; the older ones belong to completed checkpoints. Deletion runs in the
background and is best effort: a file that stays behind costs space and nothing else, and is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from penstock.runtime.ports import AsyncRunner, SnapshotStorage, StorageOpener
from penstock.runtime.snapshot.handles import FileHandle
from penstock.runtime.snapshot.paths import METADATA, SnapshotPaths


@dataclass(frozen=True, slots=True)
class DeletionStatistics:
    """Counters of deletions.

    Attributes:
        deleted: Files that were deleted.
        failed: Deletions that failed.
        last_error: The last failure, for people; empty when there was none.
    """

    deleted: int
    failed: int
    last_error: str


class CheckpointFiles:
    """Deletes files in the background.

    Args:
        storage: Where they are.
        paths: Tells which checkpoint a file belongs to.
        runner: Runs the deletions.
        open_location: Opens the places of savepoints that are not in the job's storage.
    """

    def __init__(
        self,
        storage: SnapshotStorage,
        paths: SnapshotPaths,
        runner: AsyncRunner,
        open_location: StorageOpener | None = None,
    ) -> None:
        self._open_location = open_location
        self._storage = storage
        self._paths = paths
        self._runner = runner
        self._deleted = self._failed = 0
        self._last_error = ""

    def location(self, target: str | None, checkpoint_id: int, attempt: int) -> str | None:
        """URL of a savepoint's own folder below `target`; `None` for one in the job's storage."""
        return None if target is None else self._paths.savepoint_location(target, checkpoint_id, attempt)

    def discard(self, checkpoint_id: int, files: Iterable[FileHandle], location: str | None = None) -> None:
        """A checkpoint is dead: of these files, delete those that were written for it.

        Args:
            checkpoint_id: Which.
            files: What was acknowledged of it.
            location: Where its files are, when that is not the job's storage.
        """
        paths = [handle.path for handle in files]
        if location is None:
            self.delete(path for path in paths if self._paths.checkpoint_of(path) == checkpoint_id)
        elif paths and self._open_location is not None:
            opener, doomed = self._open_location, sorted({METADATA, *paths})
            self._run(lambda: opener(location).delete(doomed), len(doomed))

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files that nobody needs any more."""
        doomed = sorted(set(paths))
        if doomed:
            self._run(lambda: self._storage.delete(doomed), len(doomed))

    def statistics(self) -> DeletionStatistics:
        """Counters so far."""
        return DeletionStatistics(self._deleted, self._failed, self._last_error)

    def _run(self, deletion: Callable[[], None], count: int) -> None:
        self._runner.run(deletion, lambda _: self._done(count), self._fail)

    def _done(self, count: int) -> None:
        self._deleted += count

    def _fail(self, error: BaseException) -> None:
        self._failed += 1
        self._last_error = f"{type(error).__name__}: {error}"
