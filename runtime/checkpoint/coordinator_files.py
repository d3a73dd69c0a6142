"""Deletes the files of checkpoints that will never be.

A snapshot names files of its own checkpoint and, for incremental state, files of older ones. Only its *own*
new files may go when it is given up; the older ones belong to completed checkpoints. Deletion runs in the
background and is best effort: a file that stays behind costs space and nothing else, and is counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.runtime.checkpoint.paths import SnapshotPaths
from penstock.runtime.checkpoint.snapshot import FileHandle
from penstock.runtime.ports import AsyncRunner, SnapshotStorage


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
    """

    def __init__(self, storage: SnapshotStorage, paths: SnapshotPaths, runner: AsyncRunner) -> None:
        self._storage = storage
        self._paths = paths
        self._runner = runner
        self._deleted = self._failed = 0
        self._last_error = ""

    def discard(self, checkpoint_id: int, files: Iterable[FileHandle]) -> None:
        """A checkpoint is dead: of these files, delete those that were written for it."""
        self.delete(h.path for h in files if self._paths.checkpoint_of(h.path) == checkpoint_id)

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files that nobody needs any more."""
        doomed = sorted(set(paths))
        if doomed:
            self._runner.run(
                lambda: self._storage.delete(doomed), lambda _: self._done(len(doomed)), self._fail
            )

    def statistics(self) -> DeletionStatistics:
        """Counters so far."""
        return DeletionStatistics(self._deleted, self._failed, self._last_error)

    def _done(self, count: int) -> None:
        self._deleted += count

    def _fail(self, error: BaseException) -> None:
        self._failed += 1
        self._last_error = f"{type(error).__name__}: {error}"
