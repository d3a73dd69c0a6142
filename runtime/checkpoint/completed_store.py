"""`CompletedCheckpointStore`: the retained checkpoints of a job, and the files that it may delete.

The store keeps the newest checkpoints and *drops* older ones, from which the job is never restored again.
Newer or running checkpoints may still use files of a dropped checkpoint. So a file may be deleted only when

* no checkpoint in the store names it,
* no dropped checkpoint that is still *held* names it,
* no savepoint names it, because the user owns savepoints, and
* it belongs to this job (`may_delete`).

Why it is right: a running checkpoint names new files and files of its base, the checkpoint that its barrier
confirms. While b is the smallest base of all running checkpoints, b and all later dropped checkpoints are
held. A completed checkpoint is added before any file is released.

The store must never return a file that is still named, or return a file twice. The decision log drops
checkpoints by the same rule, `split_retained`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from penstock.runtime.checkpoint.log.records import CheckpointCompleted, LogView
from penstock.runtime.config.checkpointing import KeepAfter
from penstock.runtime.config.job_config import Semantics
from penstock.runtime.errors import ConfigurationError, CorruptSnapshotError
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import FileHandle


class Retained(Protocol):
    @property
    def checkpoint_id(self) -> int: ...

    @property
    def kind(self) -> SnapshotKind: ...


C = TypeVar("C", bound=Retained)


def split_retained(completed: Sequence[C], retained: int) -> tuple[list[C], list[C]]:
    """Split into retained and dropped checkpoints, both sorted by id.

    The newest `retained` checkpoints stay. Savepoints don't count. At most `retained` savepoints stay, and
    only those newer than the oldest retained checkpoint, because a restart may begin from a savepoint.

    Example:
        >>> from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
        >>> def completed(number, kind):
        ...     return CompletedCheckpoint(number, 1, kind, {}, 0.0, 0.0)
        >>> point, save = SnapshotKind.CHECKPOINT, SnapshotKind.SAVEPOINT
        >>> kept, gone = split_retained([completed(1, point), completed(2, save), completed(3, point)], 1)
        >>> [c.checkpoint_id for c in kept], [c.checkpoint_id for c in gone]
        ([3], [1, 2])
    """
    by_id = sorted(completed, key=lambda c: c.checkpoint_id)
    checkpoints = [c.checkpoint_id for c in by_id if not c.kind.is_savepoint][-retained:]
    oldest = checkpoints[0] if checkpoints else -1
    savepoints = [c.checkpoint_id for c in by_id if c.kind.is_savepoint and c.checkpoint_id > oldest][
        -retained:
    ]
    ids = {*checkpoints, *savepoints}
    return [c for c in by_id if c.checkpoint_id in ids], [c for c in by_id if c.checkpoint_id not in ids]


def is_kept_after(job_state: str, keep_after: KeepAfter) -> bool:
    """Whether checkpoints are kept when a job has ended; `suspended` counts as cancelled.

    Example:
        >>> is_kept_after("failed", KeepAfter.FAILURE), is_kept_after("finished", KeepAfter.FAILURE)
        (True, False)
    """
    match job_state:
        case "finished":
            return keep_after is KeepAfter.ALWAYS
        case "failed":
            return keep_after is not KeepAfter.NEVER
        case "cancelled" | "suspended":
            return keep_after in (KeepAfter.FAILURE_OR_CANCELLATION, KeepAfter.ALWAYS)
    msg = f"{job_state!r} is not a final job state"
    raise ValueError(msg)


class SharedFiles:
    """Counts the checkpoints that name each file (Flink's `SharedStateRegistry`).

    Example:
        >>> files, a, b = SharedFiles(), FileHandle("a", 1, ""), FileHandle("b", 1, "")
        >>> files.retain([a, b])
        >>> files.retain([b])
        >>> files.release([a, b])
        [FileHandle(path='a', size=1, checksum='')]
    """

    def __init__(self) -> None:
        self._holders: Counter[str] = Counter()
        self._pinned: set[str] = set()

    def retain(self, files: Iterable[FileHandle]) -> None:
        self._holders.update({handle.path for handle in files})

    def release(self, files: Iterable[FileHandle]) -> list[FileHandle]:
        """Remove one checkpoint's references; return files that have none left, sorted by path."""
        free = []
        for path, handle in sorted({handle.path: handle for handle in files}.items()):
            if path not in self._holders:
                raise KeyError(path)
            self._holders[path] -= 1
            if self._holders[path] == 0:
                del self._holders[path]
                if path not in self._pinned:
                    free.append(handle)
        return free

    def pin(self, paths: Iterable[str]) -> None:
        """Never return these files, because savepoints name them."""
        self._pinned.update(paths)

    def __contains__(self, path: str) -> bool:
        return path in self._holders or path in self._pinned

    def __len__(self) -> int:
        return len(self._holders.keys() | self._pinned)


class CompletedCheckpointStore:
    """Keeps the newest completed checkpoints of one job; `may_delete` is `SnapshotPaths.may_delete`."""

    def __init__(
        self,
        retained: int = 1,
        *,
        may_delete: Callable[[FileHandle], bool] | None = None,
        semantics: Semantics = Semantics.current(),
    ) -> None:
        if retained < 1:
            msg = f"retain={retained!r}: at least 1 completed checkpoint must be kept"
            raise ConfigurationError(msg)
        self._retained = retained
        self._may_delete = may_delete
        self._semantics = semantics
        self._completed: list[CompletedCheckpoint] = []
        self._held: list[CompletedCheckpoint] = []
        self._keep_after: dict[int, KeepAfter] = {}
        self._files = SharedFiles()

    @property
    def all(self) -> tuple[CompletedCheckpoint, ...]:
        return tuple(self._completed)

    @property
    def latest(self) -> CompletedCheckpoint | None:
        return self._completed[-1] if self._completed else None

    @property
    def latest_checkpoint(self) -> CompletedCheckpoint | None:
        """The newest checkpoint that is not a savepoint; later checkpoints may reuse only its files."""
        return next((c for c in reversed(self._completed) if not c.is_savepoint), None)

    def add(
        self,
        checkpoint: CompletedCheckpoint,
        *,
        oldest_pending_base: int | None = None,
        keep_after: KeepAfter | None = None,
    ) -> tuple[FileHandle, ...]:
        """Add a checkpoint, drop checkpoints beyond the limit, and return files that may be deleted.

        Args:
            oldest_pending_base: Smallest base of the other running checkpoints; `None` without any.
            keep_after: Final job states that keep this checkpoint; `None` uses the rule of `shutdown`.
        """
        self._take(checkpoint)
        if keep_after is not None:
            self._keep_after[checkpoint.checkpoint_id] = keep_after
        if self._semantics.savepoints_count:
            kept, gone = self._completed[-self._retained :], self._completed[: -self._retained]
        else:
            kept, gone = split_retained(self._completed, self._retained)
        self._completed = kept
        self._held += gone
        return self.release(oldest_pending_base)

    def release(self, oldest_pending_base: int | None = None) -> tuple[FileHandle, ...]:
        """Return the files that may be deleted after a running checkpoint has ended."""
        free = [c for c in self._held if oldest_pending_base is None or c.checkpoint_id < oldest_pending_base]
        self._held = [c for c in self._held if c not in free]
        return self._released(free)

    def unreferenced(self, files: Iterable[FileHandle]) -> tuple[FileHandle, ...]:
        """The `files` that belong to this job and that no checkpoint in the store names."""
        return tuple(handle for handle in files if handle.path not in self._files and self._is_ours(handle))

    def names(self, path: str) -> bool:
        return path in self._files

    def recover(
        self, view: LogView, read: Callable[[CheckpointCompleted], CompletedCheckpoint]
    ) -> tuple[CheckpointCompleted, ...]:
        """Fill the empty store from the log; skip and return damaged checkpoints. `read` blocks."""
        damaged = []
        for record in view.completed:
            try:
                self._take(read(record))
            except CorruptSnapshotError:
                damaged.append(record)
        return tuple(damaged)

    def shutdown(self, job_state: str, keep_after: KeepAfter) -> tuple[FileHandle, ...]:
        """Empty the store at the end of the job; return the files to delete.

        `keep_after` is the rule for checkpoints that were added without one.
        """
        stays = {rule: is_kept_after(job_state, rule) for rule in KeepAfter}
        gone = [c for c in self._completed if not stays[self._keep_after.get(c.checkpoint_id, keep_after)]]
        self._held += gone
        self._completed = []
        return self.release()

    def _take(self, checkpoint: CompletedCheckpoint) -> None:
        if any(c.checkpoint_id == checkpoint.checkpoint_id for c in (*self._completed, *self._held)):
            msg = f"checkpoint {checkpoint.checkpoint_id} is already in the store"
            raise ValueError(msg)
        files = list(checkpoint.own_files())
        self._files.retain(files)
        if checkpoint.is_savepoint:
            self._files.pin(handle.path for handle in files if self._is_ours(handle))
        self._completed.append(checkpoint)

    def _released(self, checkpoints: Iterable[CompletedCheckpoint]) -> tuple[FileHandle, ...]:
        free = [handle for c in checkpoints for handle in self._files.release(c.own_files())]
        return tuple(handle for handle in free if self._is_ours(handle))

    def _is_ours(self, handle: FileHandle) -> bool:
        return self._may_delete is None or self._may_delete(handle)
