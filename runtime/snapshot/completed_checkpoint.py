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

    It exists once its record is in the decision log.

    Attributes:
        attempt: The attempt that took it.
        operators: State by operator id.
        triggered_at: Wall-clock seconds.
        completed_at: Wall-clock seconds.
        metadata: Its metadata file; `None` until it is written.
        size: Bytes of all its state, shared files included.
        location: URL of the storage that holds its files of state; `None` for the storage that holds its
            metadata.
        master_states: State of master hooks.
        carried: State of finished subtasks whose files are still to be copied; `None` once its metadata is
            written.
        statistics: `None` when it was not measured, or an older version wrote it.
        drained: Whether it is the savepoint of a stop that let event time go to its end first.
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
    drained: bool = False

    @property
    def is_savepoint(self) -> bool:
        """Whether it is a savepoint: the user owns its files."""
        return self.kind.is_savepoint

    def files(self) -> Iterator[FileHandle]:
        """All its files, its metadata last; a file that is named twice comes twice."""
        for operator in self.operators.values():
            yield from operator.files()
        if self.metadata is not None:
            yield self.metadata

    def own_files(self) -> Iterator[FileHandle]:
        """Its files in the job's own storage."""
        if self.location is None:
            yield from self.files()
        elif self.metadata is not None:
            yield self.metadata


def state_size(operators: Mapping[str, OperatorState], masters: Iterable[MasterState] = ()) -> int:
    """Bytes of all state, in files and inline."""
    in_operators = sum(handle.size for operator in operators.values() for handle in operator.handles())
    return in_operators + sum(len(state.data) for state in masters)


def snapshot_url(checkpoint: CompletedCheckpoint, storage_url: str) -> str:
    """The URL by which a job can start from a snapshot.

    Args:
        checkpoint: With its metadata.
        storage_url: The storage that its metadata is in.

    Example:
        >>> point, metadata = SnapshotKind.SAVEPOINT, FileHandle("j/savepoint-7-1/metadata", 1, "")
        >>> snapshot_url(CompletedCheckpoint(7, 1, point, {}, 0.0, 0.0, metadata), "/data")
        '/data/j/savepoint-7-1'
    """
    if checkpoint.location is not None or checkpoint.metadata is None:
        return checkpoint.location or storage_url
    return f"{storage_url}/{checkpoint.metadata.path.rpartition('/')[0]}"
