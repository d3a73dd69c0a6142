"""`CompletedCheckpoint`: a checkpoint that a job can be restored from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from penstock.runtime.checkpoint.snapshot import FileHandle, MasterState, OperatorState
from penstock.runtime.record.elements import SnapshotKind


@dataclass(frozen=True, slots=True)
class CompletedCheckpoint:
    """A checkpoint to which every subtask has given its part.

    It exists for the job once its record stands in the log of decisions.

    Attributes:
        checkpoint_id: Its id.
        attempt: The attempt that took it.
        kind: Checkpoint or savepoint.
        operators: State by operator id.
        triggered_at: Wall-clock seconds.
        completed_at: Wall-clock seconds.
        metadata: The file that holds all of this; `None` as long as it is not written.
        size: Bytes of all its state, shared files included.
        master_states: What master hooks gave for it.
    """

    checkpoint_id: int
    attempt: int
    kind: SnapshotKind
    operators: Mapping[str, OperatorState]
    triggered_at: float
    completed_at: float
    metadata: FileHandle | None = None
    size: int = 0
    master_states: tuple[MasterState, ...] = ()

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


def state_size(operators: Mapping[str, OperatorState], masters: Iterable[MasterState] = ()) -> int:
    """Bytes of all state, in files and inline."""
    in_operators = sum(handle.size for operator in operators.values() for handle in operator.handles())
    return in_operators + sum(len(state.data) for state in masters)
