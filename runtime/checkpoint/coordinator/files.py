"""`CheckpointFiles`: the files of completed checkpoints, and the deletion of all others.

A running checkpoint may use files of the newest completed one (its *base*), so these files stay until it has
ended. Files that a failed checkpoint wrote are deleted, including files that late acknowledgements name.
Older files that its snapshots name belong to completed checkpoints and stay.

It must never delete files of a checkpoint whose log record may have been written, or whose outcome it has
forgotten. The next attempt deletes files that no checkpoint names.

Deletion runs in the background and is best effort. A failed deletion costs only space and is counted.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

from penstock.runtime.checkpoint.completed_store import CompletedCheckpointStore
from penstock.runtime.checkpoint.coordinator.pending_checkpoint import PendingCheckpoint
from penstock.runtime.config.checkpointing import KeepAfter
from penstock.runtime.ports import AsyncRunner, SnapshotStorage, StorageOpener
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import FileHandle
from penstock.runtime.snapshot.paths import METADATA, SnapshotPaths

#: Number of ended checkpoints whose ids are kept. A subtask is late by a few checkpoints at most: a missing
#: acknowledgement delays the next checkpoints until the timeout.
REMEMBERED_ENDS: Final = 1000


class CheckpointFiles:
    """Holds the completed checkpoints and the outcomes of recently ended ones, and deletes files."""

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
        self._store: CompletedCheckpointStore | None = None
        #: Whether a checkpoint completed, by id, in the order in which they ended.
        self._ended: OrderedDict[int, bool] = OrderedDict()
        self.deleted = self.failed_deletions = 0

    @property
    def url(self) -> str:
        return self._storage.url

    @property
    def has_store(self) -> bool:
        """Whether an attempt has begun and the job has not ended."""
        return self._store is not None

    @property
    def latest(self) -> CompletedCheckpoint | None:
        return None if self._store is None else self._store.latest

    @property
    def base_id(self) -> int:
        """The base of a checkpoint that starts now; -1 for none."""
        newest = None if self._store is None else self._store.latest_checkpoint
        return -1 if newest is None else newest.checkpoint_id

    def location(self, target: str | None, checkpoint_id: int, attempt: int) -> str | None:
        """URL of a savepoint's own folder below `target`; `None` for one in the job's storage."""
        return None if target is None else self._paths.savepoint_location(target, checkpoint_id, attempt)

    # -- attempts -------------------------------------------------------------------------------------------

    def begin_attempt(self, store: CompletedCheckpointStore) -> None:
        """Continue with these completed checkpoints; late messages of older attempts are refused."""
        self._store = store
        self._ended.clear()

    def begin_region(self, store: CompletedCheckpointStore) -> None:
        """Continue with these completed checkpoints; other regions may still send late messages."""
        self._store = store

    def end_job(self, job_state: str, keep_after: KeepAfter) -> tuple[str, ...]:
        """End the job; return the files of its completed checkpoints that may be deleted."""
        store, self._store = self._store, None
        return () if store is None else tuple(h.path for h in store.shutdown(job_state, keep_after))

    # -- ends of checkpoints --------------------------------------------------------------------------------

    def add(self, checkpoint: CompletedCheckpoint, oldest_base: int | None) -> None:
        """Add a completed checkpoint; `oldest_base` is the smallest base of the running ones."""
        self._remember(checkpoint.checkpoint_id, completed=True)
        if self._store is not None:
            self._delete(self._store.add(checkpoint, oldest_pending_base=oldest_base))

    def release(self, oldest_base: int | None) -> None:
        """Delete files that only a failed checkpoint could still have used."""
        if self._store is not None:
            self._delete(self._store.release(oldest_base))

    def discard_aborted(self, checkpoint_id: int, files: Iterable[FileHandle], location: str | None) -> None:
        """Delete files that an aborted checkpoint wrote; `location` is a savepoint's own folder."""
        self._remember(checkpoint_id, completed=False)
        paths = [handle.path for handle in files]
        if location is None:
            self._delete_own(checkpoint_id, paths)
        elif paths and self._open_location is not None:
            opener, doomed = self._open_location, sorted({METADATA, *paths})
            self._run(lambda: opener(location).delete(doomed), len(doomed))

    def discard(self, checkpoint_id: int, files: Iterable[FileHandle]) -> None:
        self._delete_own(checkpoint_id, (handle.path for handle in files))

    def discard_late(self, checkpoint_id: int, files: Iterable[FileHandle], *, was_started: bool) -> None:
        """Delete files of a late acknowledgement that no checkpoint can need."""
        completed = self._ended.get(checkpoint_id)
        if completed is False or not was_started:
            self.discard(checkpoint_id, files)
        elif completed and self._store is not None:
            self.discard(checkpoint_id, self._store.unreferenced(files))

    def delete(self, paths: Iterable[str]) -> None:
        doomed = sorted(set(paths))
        if doomed:
            self._run(lambda: self._storage.delete(doomed), len(doomed))

    def _remember(self, checkpoint_id: int, *, completed: bool) -> None:
        self._ended[checkpoint_id] = completed
        if len(self._ended) > REMEMBERED_ENDS:
            self._ended.popitem(last=False)

    def _delete_own(self, checkpoint_id: int, paths: Iterable[str]) -> None:
        self.delete(path for path in paths if self._paths.checkpoint_of(path) == checkpoint_id)

    def _delete(self, handles: Iterable[FileHandle]) -> None:
        self.delete(handle.path for handle in handles)

    def _run(self, deletion: Callable[[], None], count: int) -> None:
        def deleted(_: None) -> None:
            self.deleted += count

        def failed(_: BaseException) -> None:
            self.failed_deletions += 1

        self._runner.run(deletion, deleted, failed)


def oldest_base(running: Iterable[PendingCheckpoint]) -> int | None:
    """The smallest base id of the running checkpoints."""
    return min((pending.base_id for pending in running if pending.base_id >= 0), default=None)
