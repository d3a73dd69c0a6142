"""The last step of a checkpoint: its record is written into the decision log.

The record decides whether a checkpoint exists. `finalize` first brings along what finished subtasks kept
(`operator_states.py`), then writes the metadata, then claims the record. The metadata comes first: without a
record it is a file that is never read. A record without metadata would be a checkpoint that can't be
restored.

`CheckpointFinalizer` runs it in the background, for one checkpoint after the other. While a record is being
written it is unknown whether it is in the log. So its checkpoint can neither be aborted nor overtaken, and a
new attempt waits until the outcome is known (`when_idle`). A checkpoint that waits for its turn can be
withdrawn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

from penstock.runtime.checkpoint.coordinator.operator_states import bring_along, left_behind
from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.checkpoint.log.decision_log import Fenced as Fenced
from penstock.runtime.checkpoint.log.records import CheckpointCompleted
from penstock.runtime.checkpoint.store.completed_store import split_retained
from penstock.runtime.errors import StorageError
from penstock.runtime.ports import AsyncRunner, SnapshotStorage, StorageOpener
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint, state_size
from penstock.runtime.snapshot.handles import FileHandle
from penstock.runtime.snapshot.metadata import encode_metadata, write_state_file
from penstock.runtime.snapshot.paths import METADATA, SnapshotPaths


@dataclass(frozen=True, slots=True)
class Finalized:
    """The checkpoint exists."""

    checkpoint: CompletedCheckpoint


FinalizeOutcome: TypeAlias = Finalized | Fenced

#: Makes a checkpoint exist; blocks, and raises when it could not.
Finalize: TypeAlias = Callable[[CompletedCheckpoint], FinalizeOutcome]


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    checkpoint_id: int
    begin: Callable[[], CompletedCheckpoint]
    on_outcome: Callable[[FinalizeOutcome], None]
    on_error: Callable[[BaseException], None]


class CheckpointFinalizer:
    """Finalizes checkpoints in the background, one at a time."""

    def __init__(self, finalize: Finalize, runner: AsyncRunner) -> None:
        self._finalize = finalize
        self._runner = runner
        self._waiting: deque[_Waiting] = deque()
        self._is_writing = False
        self._when_idle: list[Callable[[], None]] = []

    @property
    def is_idle(self) -> bool:
        return not self._is_writing and not self._waiting

    def waits(self, checkpoint_id: int) -> bool:
        return any(each.checkpoint_id == checkpoint_id for each in self._waiting)

    def submit(
        self,
        checkpoint_id: int,
        begin: Callable[[], CompletedCheckpoint],
        on_outcome: Callable[[FinalizeOutcome], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        """Finalize a checkpoint when its turn comes.

        Args:
            begin: Called when its turn has come, in the caller's thread; returns what to write.
            on_error: Called with the error; whether the record is in the log depends on it.
        """
        self._waiting.append(_Waiting(checkpoint_id, begin, on_outcome, on_error))
        self._next()

    def withdraw(self, checkpoint_id: int) -> None:
        """Forget a checkpoint that still waits; one that is being written continues."""
        self._waiting = deque(each for each in self._waiting if each.checkpoint_id != checkpoint_id)

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call back as soon as nothing is being written: at once, or after the last outcome."""
        self._when_idle.append(callback)
        self._call_if_idle()

    def _next(self) -> None:
        if self._is_writing or not self._waiting:
            return
        this = self._waiting.popleft()
        self._is_writing = True

        def ended(outcome: FinalizeOutcome) -> None:
            this.on_outcome(outcome)
            self._go_on()

        def failed(error: BaseException) -> None:
            this.on_error(error)
            self._go_on()

        checkpoint = this.begin()
        self._runner.run(lambda: self._finalize(checkpoint), ended, failed)

    def _go_on(self) -> None:
        self._is_writing = False
        self._next()
        self._call_if_idle()

    def _call_if_idle(self) -> None:
        if not self.is_idle:
            return
        callbacks, self._when_idle = self._when_idle, []
        for callback in callbacks:
            callback()


def finalize(
    storage: SnapshotStorage,
    paths: SnapshotPaths,
    log: DecisionLog,
    checkpoint: CompletedCheckpoint,
    *,
    retained: int | None = None,
    open_location: StorageOpener | None = None,
) -> FinalizeOutcome:
    """Make a checkpoint exist, unless a newer attempt owns the job; blocks.

    Args:
        checkpoint: Its `metadata` and `size` are filled in here, and `carried` files are copied.
        retained: Number of checkpoints that the job keeps. The same record lets go of the others, and their
            files may be deleted after it. With `None` the caller has to `drop` them.
        open_location: Opens the folder of a savepoint outside `storage`.

    Raises:
        StorageError: The metadata could not be written, or a carried file could not be copied. The checkpoint
            does not exist.
        OutcomeUnknownError: It may exist, so none of its files may be deleted.
    """
    path = paths.metadata(checkpoint.kind, checkpoint.checkpoint_id, checkpoint.attempt)
    given = checkpoint
    checkpoint = bring_along(given, storage, paths, open_location)
    size = state_size(checkpoint.operators, checkpoint.master_states)
    sized = replace(checkpoint, size=size, metadata=None)
    if sized.location is not None:
        if open_location is None:
            msg = f"nobody can open {sized.location}, where the savepoint is to be"
            raise StorageError(msg)
        complete_elsewhere(open_location(sized.location, create=True), sized)
    metadata = _write_metadata(storage, path, sized)
    record = CheckpointCompleted(
        checkpoint.checkpoint_id,
        checkpoint.attempt,
        checkpoint.kind,
        metadata,
        checkpoint.completed_at,
        drained=checkpoint.drained,
    )
    if retained is not None:
        _, gone = split_retained((*log.view.completed, record), retained)
        record = replace(record, subsumes=tuple(c.checkpoint_id for c in gone if c is not record))
    outcome = log.complete(record)
    if isinstance(outcome, Fenced):
        # The outcome is known whether or not the file is deleted; a later attempt sweeps one that stays.
        with suppress(StorageError):
            storage.delete([path])
            if sized.location is not None and open_location is not None:
                open_location(sized.location).delete([METADATA])
        return outcome
    if left := left_behind(given, sized, paths):
        with suppress(StorageError):  # they cost space only
            storage.delete(left)
    return Finalized(replace(sized, metadata=metadata))


def _write_metadata(storage: SnapshotStorage, path: str, checkpoint: CompletedCheckpoint) -> FileHandle:
    try:
        return write_state_file(storage, path, encode_metadata(checkpoint, path))
    except StorageError:
        # The storage may have taken the file all the same, and no record will name it.
        with suppress(StorageError):
            storage.delete([path])
        raise


def complete_elsewhere(place: SnapshotStorage, checkpoint: CompletedCheckpoint) -> None:
    """Complete a savepoint in its own folder, which can be moved; blocks.

    Args:
        place: The folder as a storage; the files of state are there.

    Raises:
        StorageError: A file can't be seen here, or the metadata could not be written.
    """
    own = replace(checkpoint, location=None)
    present = frozenset(place.list(""))
    lost = sorted({handle.path for handle in own.files()} - present)
    if lost:
        msg = (
            f"{place.url}/{lost[0]} was written by a subtask and is not seen by the JobMaster; give a place "
            "that all nodes share (an object store, or a network file system mounted everywhere)"
        )
        raise StorageError(msg)
    write_state_file(place, METADATA, encode_metadata(own, METADATA))
