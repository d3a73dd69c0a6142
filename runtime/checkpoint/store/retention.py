"""Which completed checkpoints a job keeps, while it runs and when it has ended.

The decision log and the store in memory use the same rule, so that both let go of the same checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from penstock.runtime.config.checkpointing import KeepAfter
from penstock.runtime.record.elements import SnapshotKind


class Retained(Protocol):
    """What the rule needs of a checkpoint."""

    @property
    def checkpoint_id(self) -> int:
        """Its id."""
        ...

    @property
    def kind(self) -> SnapshotKind:
        """Checkpoint or savepoint."""
        ...


C = TypeVar("C", bound=Retained)


def split_retained(completed: Sequence[C], retained: int) -> tuple[list[C], list[C]]:
    """Split into checkpoints that are kept and those that are let go, both by id.

    The newest `retained` checkpoints are kept. Savepoints don't count and are never deleted. The job keeps a
    savepoint only while it is newer than the oldest kept checkpoint, because a restart may have to begin with
    it. It keeps at most `retained` of them.

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
    """Whether checkpoints stay when a job has ended.

    Args:
        job_state: `finished`, `failed`, `cancelled` or `suspended` (left by its JobMaster; counts as
            cancelled).
        keep_after: The job's setting.

    Raises:
        ValueError: There is no such end of a job.

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
    msg = f"a job does not end as {job_state!r}"
    raise ValueError(msg)
