"""`CompletedCheckpoint`: a checkpoint that a job can be restored from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.completed_statistics import CompletedCheckpointStatistics
from penstock.runtime.snapshot.handles import FileHandle, MasterState, OperatorState


@dataclass(frozen=True, slots=True)
class CarriedState:
    """What a checkpoint takes over of subtasks that had finished before it.

    Attributes:
        subtasks: Their indices by operator id.
        location: URL of the storage that their files are in; `None` for the job's own.
    """

    subtasks: Mapping[str, tuple[int, ...]]
    location: str | None


@dataclass(frozen=True, slots=True)
class CompletedCheckpoint:
    """A checkpoint to which every subtask has given its part.

    It exists for the job once its record stands in the decision log.

    Attributes:
        attempt: The attempt that took it.
        operators: State by operator id.
        triggered_at: Wall-clock seconds.
        completed_at: Wall-clock seconds.
        metadata: The file that holds all of this; `None` as long as it is not written.
        size: Bytes of all its state, shared files included.
        location: URL of the storage that its state's files are in; `None` for the one that its metadata was
            read from.
        master_states: What master hooks gave for it.
        carried: What is to be brought along before its metadata is written; `None` from then on.
        statistics: How it was taken; `None` when nobody has measured it, or an older version wrote it.
    """

    checkpoint_id: int
    attempt: int
    kind: SnapshotKind
    operators: Mapping[str, OperatorState]
    triggered_at: float
    completed_at: float
    metadata: FileHandle | None = None
    size: int = 0
    location: str | None = None
    master_states: tuple[MasterState, ...] = ()
    carried: CarriedState | None = None
    statistics: CompletedCheckpointStatistics | None = None

    @property
    def is_savepoint(self) -> bool:
        """Whether the user owns it."""
        return self.kind.is_savepoint

    def files(self) -> Iterator[FileHandle]:
        """Every file that it needs, its metadata last; a file that is named twice comes twice."""
        for operator in self.operators.values():
            yield from operator.files()
        if self.metadata is not None:
            yield self.metadata

    def own_files(self) -> Iterator[FileHandle]:
        """Those of its files that are in the job's own storage."""
        if self.location is None:
            yield from self.files()
        elif self.metadata is not None:
            yield self.metadata


def state_size(operators: Mapping[str, OperatorState], masters: Iterable[MasterState] = ()) -> int:
    """Bytes of all state, in files and inline."""
    in_operators = sum(handle.size for operator in operators.values() for handle in operator.handles())
    return in_operators + sum(len(state.data) for state in masters)


def snapshot_url(checkpoint: CompletedCheckpoint, storage_url: str) -> str:
    """Where a snapshot is, as a job can be told to start from it.

    Args:
        checkpoint: The snapshot, with its metadata.
        storage_url: The storage that its metadata is in.

    Example:
        >>> point, metadata = SnapshotKind.SAVEPOINT, FileHandle("j/savepoint-7-1/metadata", 1, "")
        >>> snapshot_url(CompletedCheckpoint(7, 1, point, {}, 0.0, 0.0, metadata), "/data")
        '/data/j/savepoint-7-1'
    """
    if checkpoint.location is not None or checkpoint.metadata is None:
        return checkpoint.location or storage_url
    return f"{storage_url}/{checkpoint.metadata.path.rpartition('/')[0]}"
