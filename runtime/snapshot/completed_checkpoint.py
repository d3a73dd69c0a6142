"""A completed checkpoint: its content, the restored state of a subtask, and the permit to commit.

A sink needs a `CommitPermit` to commit. In a job with checkpoints, only a completed checkpoint, whose record
is in the decision log, issues one. So code that commits too early has no permit. A subtask of a job without
checkpoints gets the permit of its ended input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import CompletedCheckpointStatistics
from penstock.runtime.snapshot.handles import (
    ChannelStateHandle,
    FileHandle,
    KeyedStateHandle,
    MasterState,
    OperatorState,
    RedistributionMode,
)


@dataclass(frozen=True, slots=True)
class CarriedState:
    """Subtasks by operator that finished before a checkpoint, and the URL of the storage with their state."""

    subtasks: Mapping[str, tuple[int, ...]]
    location: str | None


@dataclass(frozen=True, slots=True)
class CompletedCheckpoint:
    """A checkpoint with all acknowledgements; it is complete once its record is in the decision log.

    Attributes:
        triggered_at: Wall-clock seconds.
        completed_at: Wall-clock seconds.
        metadata: Metadata file; `None` until it is written.
        size: Bytes of all state, including shared files.
        location: URL of the storage of its state files; `None` for the storage of its metadata.
        carried: State of finished subtasks whose files may have to be copied; `None` once the metadata is
            written.
        statistics: Statistics; `None` when not measured, or if another version wrote them.
        drained: Whether the job was drained before this savepoint: event time advanced to its end.
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
        """Whether the user owns its files."""
        return self.kind.is_savepoint

    def files(self) -> Iterator[FileHandle]:
        """All files of the checkpoint, the metadata last; may repeat a file."""
        for operator in self.operators.values():
            yield from operator.files()
        if self.metadata is not None:
            yield self.metadata

    def own_files(self) -> Iterator[FileHandle]:
        if self.location is None:
            yield from self.files()
        elif self.metadata is not None:
            yield self.metadata


def state_size(operators: Mapping[str, OperatorState], masters: Iterable[MasterState] = ()) -> int:
    in_operators = sum(handle.size for operator in operators.values() for handle in operator.handles())
    return in_operators + sum(len(state.data) for state in masters)


def snapshot_url(checkpoint: CompletedCheckpoint, storage_url: str) -> str:
    """The URL from which a job can start.

    Example:
        >>> point, metadata = SnapshotKind.SAVEPOINT, FileHandle("j/savepoint-7-1/metadata", 1, "")
        >>> snapshot_url(CompletedCheckpoint(7, 1, point, {}, 0.0, 0.0, metadata), "/data")
        '/data/j/savepoint-7-1'
    """
    if checkpoint.location is not None or checkpoint.metadata is None:
        return checkpoint.location or storage_url
    return f"{storage_url}/{checkpoint.metadata.path.rpartition('/')[0]}"


@dataclass(frozen=True, slots=True)
class OperatorRestore:
    """The state that one operator of one subtask starts from; `lists` has encoded values.

    `unasked` has this subtask's part of each list. Until the operator requests a list, snapshots hold this
    part unchanged.
    """

    keyed: tuple[KeyedStateHandle, ...] = ()
    lists: Mapping[str, Sequence[bytes]] = field(default_factory=dict)
    raw_keyed: tuple[KeyedStateHandle, ...] = ()
    raw_operator: Sequence[bytes] = ()
    unasked: Mapping[str, tuple[RedistributionMode, Sequence[bytes]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChannelRestore:
    """The in-flight data that one subtask starts with.

    If `is_rescaled`, the handles hold all in-flight data of the exchanges to this subtask, and the subtask
    takes its part.
    """

    handles: tuple[ChannelStateHandle, ...]
    is_rescaled: bool = False


@dataclass(frozen=True, slots=True)
class TaskRestore:
    """The part of a completed checkpoint that one subtask starts from.

    Attributes:
        operators: State by operator id; a new operator has no entry.
        is_savepoint: Whether the job does not own the files, so no later checkpoint may use them.
        finished: Whether the subtask had finished: it only sends its end elements, and its operators do not
            run again.
        location: URL of the storage of its files; `None` for the job's own.
    """

    checkpoint_id: int
    attempt: int
    operators: Mapping[str, OperatorRestore] = field(default_factory=dict)
    is_savepoint: bool = False
    channels: ChannelRestore | None = None
    finished: bool = False
    location: str | None = None


_ISSUER: Final = object()


@dataclass(frozen=True, slots=True, init=False)
class CommitPermit:
    """The right to commit everything that was pre-committed up to one checkpoint.

    Attributes:
        checkpoint_id: The completed checkpoint; `None` for the ended input of a job without checkpoints.
        attempt: The attempt that completed the checkpoint.

    Example:
        >>> CommitPermit(7, 1)
        Traceback (most recent call last):
        ...
        TypeError: a CommitPermit comes only from a completed checkpoint
    """

    checkpoint_id: int | None
    attempt: int

    def __init__(self, checkpoint_id: int | None, attempt: int, *, _issuer: object = None) -> None:
        if _issuer is not _ISSUER:
            msg = "a CommitPermit comes only from a completed checkpoint"
            raise TypeError(msg)
        object.__setattr__(self, "checkpoint_id", checkpoint_id)
        object.__setattr__(self, "attempt", attempt)

    def covers(self, checkpoint_id: int) -> bool:
        """Return whether work that was pre-committed for `checkpoint_id` may be committed."""
        return self.checkpoint_id is None or checkpoint_id <= self.checkpoint_id


def permit_of_completed_checkpoint(checkpoint_id: int, attempt: int) -> CommitPermit:
    """Issue the permit of a checkpoint; call only after its record is in the log."""
    return CommitPermit(checkpoint_id, attempt, _issuer=_ISSUER)


def permit_of_ended_input(attempt: int) -> CommitPermit:
    """Issue the permit of a subtask that takes no checkpoints and has seen the end of its input."""
    return CommitPermit(None, attempt, _issuer=_ISSUER)
