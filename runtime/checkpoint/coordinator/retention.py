"""Which files of checkpoints stay: what may go when one completes, when one fails, and what comes too late.

A checkpoint that runs may build on the newest completed one, so the files of that one stay until it has
ended. One that ends badly takes its own files with it, and what comes for it later. Of one of which nobody
knows whether its record was written nothing is ever deleted here.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.runtime.checkpoint.coordinator.files import CheckpointFiles
from penstock.runtime.checkpoint.store.completed_store import CompletedCheckpointStore
from penstock.runtime.checkpoint.store.ended_checkpoints import CheckpointEnd, EndedCheckpoints
from penstock.runtime.config.checkpointing import KeepAfter
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import FileHandle


class CheckpointRetention:
    """Knows the completed checkpoints of the job and how the last others ended.

    Args:
        files: Deletes what nobody needs.
    """

    def __init__(self, files: CheckpointFiles) -> None:
        self._files = files
        self._ended = EndedCheckpoints()
        self._store: CompletedCheckpointStore | None = None

    @property
    def has_store(self) -> bool:
        """Whether the job lives: completed checkpoints can be taken in."""
        return self._store is not None

    @property
    def latest(self) -> CompletedCheckpoint | None:
        """The newest completed checkpoint or savepoint."""
        return None if self._store is None else self._store.latest

    @property
    def base_id(self) -> int:
        """The checkpoint on which one that starts now builds; -1 when there is none."""
        newest = None if self._store is None else self._store.latest_checkpoint
        return -1 if newest is None else newest.checkpoint_id

    def begin_attempt(self, store: CompletedCheckpointStore) -> None:
        """Go on with these completed checkpoints; what older attempts say late is not listened to."""
        self._store = store
        self._ended.clear()

    def begin_region(self, store: CompletedCheckpointStore) -> None:
        """Go on with these completed checkpoints; what the rest of the job says late is known as late."""
        self._store = store

    def end_job(self, job_state: str, keep_after: KeepAfter) -> tuple[str, ...]:
        """The job has ended: paths of what may be deleted of its completed checkpoints."""
        store, self._store = self._store, None
        return () if store is None else tuple(h.path for h in store.shutdown(job_state, keep_after))

    def completed(self, checkpoint: CompletedCheckpoint, oldest_base: int | None) -> None:
        """A record is written.

        Args:
            checkpoint: The checkpoint.
            oldest_base: The oldest checkpoint on which one that still runs builds; `None` for none.
        """
        self._ended.remember(checkpoint.checkpoint_id, CheckpointEnd.COMPLETED)
        if self._store is not None:
            self._delete(self._store.add(checkpoint, oldest_pending_base=oldest_base))

    def dead(self, checkpoint_id: int, files: Iterable[FileHandle], location: str | None) -> None:
        """A checkpoint will never be.

        Args:
            checkpoint_id: Its id.
            files: What was acknowledged of it.
            location: Where its files are, when that is not the job's storage.
        """
        self._ended.remember(checkpoint_id, CheckpointEnd.DEAD)
        self._files.discard(checkpoint_id, files, location)

    def release(self, oldest_base: int | None) -> None:
        """A checkpoint that ran has failed: let go of what only that one built on."""
        if self._store is not None:
            self._delete(self._store.release(oldest_base))

    def discard(self, checkpoint_id: int, files: Iterable[FileHandle]) -> None:
        """Of these files, delete those that were written for this checkpoint."""
        self._files.discard(checkpoint_id, files)

    def discard_late(self, checkpoint_id: int, files: Iterable[FileHandle], *, was_started: bool) -> None:
        """Files came for a checkpoint that does not run: delete those that nothing can need.

        Nothing is deleted of a checkpoint of which nobody knows whether its record was written, nor of one
        that ended so long ago that its end is forgotten.
        """
        end = self._ended.end_of(checkpoint_id)
        if end is CheckpointEnd.DEAD or not was_started:
            self.discard(checkpoint_id, files)
        elif end is CheckpointEnd.COMPLETED and self._store is not None:
            self.discard(checkpoint_id, self._store.unreferenced(files))

    def _delete(self, handles: Iterable[FileHandle]) -> None:
        self._files.delete(handle.path for handle in handles)
