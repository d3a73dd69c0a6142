"""A subtask's descriptor, the files of its state, and its messages from and to other processes.

`SnapshotFiles` opens the locations of snapshots. Checkpoints go into the job's own storage. A savepoint may
go to another location, and a job may start from a snapshot in another location. Such a location is opened at
its first use: by the asynchronous part of a savepoint, or when the subtask is built. If the location of a
savepoint can't be reached, the subtask declines the savepoint and continues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol, TypeAlias

from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.errors import OperatorLocation, StorageError
from penstock.runtime.graph.execution_graph import ExecutionSubtask, OutputChannelSpec
from penstock.runtime.graph.job_graph import OperatorSpec
from penstock.runtime.ports import SnapshotStorage, StorageOpener
from penstock.runtime.record.elements import CheckpointBarrier, CheckpointOptions
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason, CheckpointMetrics
from penstock.runtime.snapshot.completed_checkpoint import (
    CommitPermit,
    TaskRestore,
    permit_of_completed_checkpoint,
)
from penstock.runtime.snapshot.handles import SubtaskSnapshot
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.metadata import StateFiles
from penstock.runtime.snapshot.paths import SnapshotPaths


@dataclass(frozen=True, slots=True)
class TaskDescriptor:
    """A subtask of one attempt: plain data, pickled once per deployment.

    Attributes:
        restore: State to begin with; `None` on a fresh start.
        splits: Fresh splits of the source at the head of the chain (none when restored).
        classes: Classes of the user's `__main__`, which the subtask can't import.
        assigned_id: Highest checkpoint id assigned before this attempt; -1 for none, or when not needed.
    """

    job_id: str
    job_name: str
    attempt: int
    subtask: ExecutionSubtask
    config: JobConfig
    restore: TaskRestore | None = None
    splits: Sequence[Any] = ()
    classes: tuple[type, ...] = ()
    assigned_id: int = -1

    @property
    def id(self) -> SubtaskId:
        return self.subtask.id

    @property
    def operators(self) -> Sequence[OperatorSpec]:
        return self.subtask.vertex.operators

    @property
    def locations(self) -> Sequence[OperatorLocation]:
        return self.subtask.vertex.locations(self.id.index)

    @property
    def finished_before(self) -> bool:
        """Whether the subtask had finished in the restored checkpoint; its operators then don't run again."""
        return self.restore is not None and self.restore.finished

    @property
    def restored_permit(self) -> CommitPermit | None:
        restore = self.restore
        if restore is None:
            return None
        return permit_of_completed_checkpoint(restore.checkpoint_id, restore.attempt)


@dataclass(frozen=True, slots=True)
class TriggerCheckpoint:
    """Take a checkpoint; for sources, and subtasks whose data has ended or whose senders have finished."""

    barrier: CheckpointBarrier


@dataclass(frozen=True, slots=True)
class NotifyComplete:
    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class NotifyAborted:
    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class EventForOperator:
    """An event of an operator coordinator; its number, counted per subtask, reveals repetitions."""

    operator_id: str
    number: int
    event: Any


SubtaskControl: TypeAlias = TriggerCheckpoint | NotifyComplete | NotifyAborted | EventForOperator


class OpenedLater:
    """A storage that is opened at its first use (without an opener, every call fails)."""

    def __init__(self, url: str, open_location: StorageOpener | None, *, create: bool = False) -> None:
        self._url = url
        self._create = create
        self._open = open_location
        self._opened: SnapshotStorage | None = None

    @property
    def url(self) -> str:
        return self._url

    def put(self, path: str, data: bytes, *, create: bool = False) -> None:
        self._storage.put(path, data, create=create)

    def get(self, path: str) -> bytes:
        return self._storage.get(path)

    def list(self, prefix: str) -> list[str]:
        return self._storage.list(prefix)

    def delete(self, paths: Iterable[str]) -> None:
        self._storage.delete(paths)

    @property
    def _storage(self) -> SnapshotStorage:
        if self._opened is None:
            if self._open is None:
                msg = f"{self._url} is outside of the job's storage, but this process has no opener for it"
                raise StorageError(msg)
            self._opened = self._open(self._url, create=self._create)
        return self._opened


class SnapshotFiles:
    """Names the state files of one subtask, and opens the storages that hold them.

    Args:
        inline_limit: Maximum bytes of a state that is kept in the metadata; `None` for the default.
    """

    def __init__(
        self,
        paths: SnapshotPaths,
        subtask: SubtaskId,
        attempt: int,
        storage: SnapshotStorage,
        open_location: StorageOpener | None = None,
        inline_limit: int | None = None,
    ) -> None:
        self._inline_limit = inline_limit
        self._paths = paths
        self._subtask = subtask
        self._attempt = attempt
        self._storage = storage
        self._open_location = open_location

    def written(self, checkpoint_id: int, options: CheckpointOptions, operator: str) -> StateFiles:
        next_path, place = self._next_path(checkpoint_id, options, operator), self._storage
        if options.location is not None:
            place = OpenedLater(options.location, self._open_location, create=True)
        return StateFiles(place, next_path, read_from=self._storage, inline_limit=self._inline_limit)

    def restored(self, location: str | None) -> StateFiles:
        """A reader of restored files; `location` is their storage's URL, `None` for the job's own."""
        return StateFiles(self.place(location), _nowhere)

    def place(self, location: str | None) -> SnapshotStorage:
        return self._storage if location is None else OpenedLater(location, self._open_location)

    def _next_path(self, checkpoint_id: int, options: CheckpointOptions, operator: str) -> Callable[[], str]:
        numbers, index = count(), self._subtask.index
        if options.location is not None:
            return lambda: self._paths.savepoint_file_name(
                operator_id=operator, subtask=index, number=next(numbers)
            )
        path = self._paths.savepoint_file if options.kind.is_savepoint else self._paths.shared_file
        return lambda: path(
            checkpoint_id=checkpoint_id,
            attempt=self._attempt,
            operator_id=operator,
            subtask=index,
            number=next(numbers),
        )


def _nowhere() -> str:
    msg = "files of a restored snapshot are only read"
    raise StorageError(msg)


class SubtaskGateway(Protocol):
    """The outgoing calls of a subtask. No call blocks; every call is made by the task thread."""

    def send(self, channel: OutputChannelSpec, first_sequence_number: int, elements: list[bytes]) -> None:
        """Deliver a frame.

        `Subtask.frame_consumed` is called when the receiver has consumed it, and `Subtask.receiver_gone` when
        the receiver has ended or runs another attempt.
        """
        ...

    def consumed(self, channel: int, next_sequence_number: int) -> None:
        """Acknowledge that an input channel's deliveries below this sequence number are consumed."""
        ...

    def acknowledge(
        self, checkpoint_id: int, snapshot: SubtaskSnapshot, metrics: CheckpointMetrics
    ) -> None: ...

    def decline(self, checkpoint_id: int, reason: CheckpointFailureReason, detail: str) -> None: ...

    def operator_event(self, operator_id: str, event: Any) -> None: ...

    def warn(self, operator_id: str, text: str) -> None:
        """Show a warning in the job's report; only an operator's first warning is shown."""
        ...

    def end_of_data(self) -> None:
        """Report that this subtask has processed the end of all its inputs."""
        ...
