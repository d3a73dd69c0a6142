"""The completion of a checkpoint: its metadata, its record in the decision log, and the notifications.

A checkpoint exists when its record is in the log. `complete_checkpoint` copies the state of finished subtasks
(`operator_states.py`), writes the metadata, then the record. A restart never reads metadata without a record.
A record without metadata would be a checkpoint that can't be restored.

`CheckpointFinalizer` completes checkpoints in the background, one after the other. While a record is being
written, it is unknown whether the log has it. So the checkpoint can't be aborted, and a new attempt waits for
the outcome (`when_idle`). A checkpoint that waits for its turn can be withdrawn.

`CheckpointCompletions` finalizes a fully acknowledged checkpoint. Once the record is written, it registers
the checkpoint's files, notifies subtasks and operator coordinators, and answers the request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from penstock.runtime.checkpoint.completed_store import split_retained
from penstock.runtime.checkpoint.coordinator.aborts import CheckpointAborts
from penstock.runtime.checkpoint.coordinator.files import oldest_base
from penstock.runtime.checkpoint.coordinator.operator_states import (
    CarriedStateError,
    bring_along,
    completed_checkpoint,
    left_behind,
)
from penstock.runtime.checkpoint.coordinator.parts import CoordinatorParts
from penstock.runtime.checkpoint.coordinator.pending_checkpoint import PendingCheckpoint, PendingState
from penstock.runtime.checkpoint.coordinator.requests import CheckpointSucceeded
from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.checkpoint.log.records import CheckpointCompleted
from penstock.runtime.checkpoint.log.slots import Fenced, OutcomeUnknownError
from penstock.runtime.error_text import error_text
from penstock.runtime.errors import CorruptSnapshotError, StorageError
from penstock.runtime.ports import AsyncRunner, SnapshotStorage, StorageOpener
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason as Reason
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint, state_size
from penstock.runtime.snapshot.handles import FileHandle
from penstock.runtime.snapshot.metadata import encode_metadata, write_state_file
from penstock.runtime.snapshot.paths import METADATA, SnapshotPaths


@dataclass(frozen=True, slots=True)
class Finalized:
    """Outcome of a checkpoint whose record is in the log."""

    checkpoint: CompletedCheckpoint


FinalizeOutcome: TypeAlias = Finalized | Fenced

#: Writes the metadata and the record of a checkpoint; blocks.
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
        return any(waiting.checkpoint_id == checkpoint_id for waiting in self._waiting)

    def submit(
        self,
        checkpoint_id: int,
        begin: Callable[[], CompletedCheckpoint],
        on_outcome: Callable[[FinalizeOutcome], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        """Queue the checkpoint that `begin` returns, to be finalized after earlier ones.

        After an error, the log may or may not have the record.
        """
        self._waiting.append(_Waiting(checkpoint_id, begin, on_outcome, on_error))
        self._next()

    def withdraw(self, checkpoint_id: int) -> None:
        """Remove a waiting checkpoint; one that is being written continues."""
        self._waiting = deque(w for w in self._waiting if w.checkpoint_id != checkpoint_id)

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call back once no checkpoint is waiting or being written: at once, or after the last outcome."""
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


def complete_checkpoint(
    storage: SnapshotStorage,
    paths: SnapshotPaths,
    log: DecisionLog,
    checkpoint: CompletedCheckpoint,
    *,
    retained: int | None = None,
    open_location: StorageOpener | None = None,
) -> FinalizeOutcome:
    """Write a checkpoint's metadata and record, unless a newer attempt owns the job; blocks.

    Args:
        checkpoint: The checkpoint; the outcome has it with `metadata` and `size`. This call copies the
            `carried` files.
        retained: Number of checkpoints that the job keeps; the record drops the others. With `None` the
            caller must drop them.
        open_location: Opens the folder of a savepoint outside `storage`.

    Raises:
        StorageError: The checkpoint was not completed.
        OutcomeUnknownError: The checkpoint may exist, so its files must stay.
    """
    path = paths.metadata(checkpoint.kind, checkpoint.checkpoint_id, checkpoint.attempt)
    given = checkpoint
    checkpoint = bring_along(given, storage, paths, open_location)
    size = state_size(checkpoint.operators, checkpoint.master_states)
    sized = replace(checkpoint, size=size, metadata=None)
    if sized.location is not None:
        if open_location is None:
            msg = f"the savepoint's location {sized.location} can't be opened: no file system was given"
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
        # A later attempt sweeps a file that can't be deleted now.
        with suppress(StorageError):
            storage.delete([path])
            if sized.location is not None and open_location is not None:
                open_location(sized.location).delete([METADATA])
        return outcome
    if left := left_behind(given, sized, paths):
        with suppress(StorageError):  # the files cost only space
            storage.delete(left)
    return Finalized(replace(sized, metadata=metadata))


def _write_metadata(storage: SnapshotStorage, path: str, checkpoint: CompletedCheckpoint) -> FileHandle:
    try:
        return write_state_file(storage, path, encode_metadata(checkpoint, path))
    except StorageError:
        # The file may exist despite the error, but no record will name it.
        with suppress(StorageError):
            storage.delete([path])
        raise


def complete_elsewhere(place: SnapshotStorage, checkpoint: CompletedCheckpoint) -> None:
    """Write the metadata of a savepoint into its own, relocatable folder; blocks.

    Raises:
        StorageError: A file is not visible here, or the metadata could not be written.
    """
    own = replace(checkpoint, location=None)
    present = frozenset(place.list(""))
    lost = sorted({handle.path for handle in own.files()} - present)
    if lost:
        msg = (
            f"a subtask wrote {place.url}/{lost[0]}, but the JobMaster does not find it; name a folder "
            "that all nodes share (an object store, or a network file system mounted everywhere)"
        )
        raise StorageError(msg)
    write_state_file(place, METADATA, encode_metadata(own, METADATA))


class CheckpointCompletions:
    """Finalizes fully acknowledged checkpoints and removes completed ones from `pending`.

    `restored` is the snapshot that the attempt started from.
    """

    def __init__(
        self, parts: CoordinatorParts, finalizer: CheckpointFinalizer, aborts: CheckpointAborts
    ) -> None:
        self._parts = parts
        self._finalizer = finalizer
        self._aborts = aborts
        self.restored: CompletedCheckpoint | None = None

    def finalize_if_complete(self, pending: PendingCheckpoint) -> None:
        """Finalize, unless an acknowledgement or a subtask's event for its coordinator is missing."""
        if not pending.is_fully_acknowledged or pending.state is not PendingState.COLLECTING:
            return
        checkpoint_id = pending.checkpoint_id
        if not self._finalizer.waits(checkpoint_id) and self._parts.coordinators.have_all_events(
            checkpoint_id
        ):
            begin, completed = partial(self._begin, pending), partial(self._finalized, pending)
            self._finalizer.submit(checkpoint_id, begin, completed, partial(self._not_finalized, pending))

    def _begin(self, pending: PendingCheckpoint) -> CompletedCheckpoint:
        pending.begin_finalizing(self._parts.coordinators.recorded_states(pending.checkpoint_id))
        self._parts.history.finalizing(pending.checkpoint_id)
        duration = self._parts.clock.monotonic() - pending.started_at
        return completed_checkpoint(
            pending,
            self._parts.planner.graph.execution,
            self._parts.files.latest or self.restored,
            self._parts.clock.now(),
            self._parts.history.completing(duration, pending.metrics),
        )

    def _finalized(self, pending: PendingCheckpoint, outcome: FinalizeOutcome) -> None:
        """Complete the checkpoint, unless another attempt owns the log or the job has ended."""
        if isinstance(outcome, Fenced) or not self._parts.files.has_store:
            self._aborts.fenced()
            return
        checkpoint, checkpoint_id = outcome.checkpoint, pending.checkpoint_id
        pending.complete()
        del self._parts.pending[checkpoint_id]
        self._parts.failures.succeeded(checkpoint_id)
        duration = self._parts.clock.monotonic() - pending.started_at
        self._parts.history.completed(checkpoint_id, checkpoint.completed_at, duration, checkpoint.size)
        self._parts.files.add(checkpoint, oldest_base(self._parts.pending.values()))
        self._parts.requests.begin_pause()
        if pending.attempt == self._parts.served.number:
            for attempt, subtasks in self._parts.planner.by_attempt(pending.plan.commit):
                self._parts.gateway.notify_checkpoint_complete(attempt, subtasks, checkpoint_id)
            self._parts.coordinators.notify_checkpoint_complete(checkpoint_id)
        self._parts.requests.answer(pending.request, CheckpointSucceeded(checkpoint, duration))
        self._parts.requests.poll()
        self._aborts.subsume_older_than(checkpoint_id)

    def _not_finalized(self, pending: PendingCheckpoint, error: BaseException) -> None:
        """Handle an error; keep all files if the log may have the record."""
        reason = Reason.FINALIZE_CHECKPOINT_FAILURE
        files = pending.abort(reason)
        no_other_can_be = isinstance(error, CarriedStateError)
        is_unknown = isinstance(error, (OutcomeUnknownError, CorruptSnapshotError)) and not no_other_can_be
        if isinstance(error, StorageError) and not is_unknown:
            self._parts.files.discard_aborted(pending.checkpoint_id, files, pending.location)
        detail = f"its record could not be written: {error_text(error)}"
        fails_job = no_other_can_be and not pending.kind.is_savepoint
        self._aborts.aborted(pending, reason, detail, fails_job=fails_job)
