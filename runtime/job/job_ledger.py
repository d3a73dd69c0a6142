"""`JobLedger`: the durable records of a job, as blocking calls for the scheduler's background work.

The ledger writes to the decision log and the checkpoint storage when an attempt begins, a checkpoint
completes or the job ends. Only one call may be in progress at a time, except `newer_attempt`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from penstock.runtime.checkpoint.completed_store import CompletedCheckpointStore, is_kept_after
from penstock.runtime.checkpoint.coordinator.completion import Finalized, complete_checkpoint
from penstock.runtime.checkpoint.log.decision_log import COMPACT_EVERY, DecisionLog
from penstock.runtime.checkpoint.log.records import AttemptBegun, JobEnded, LogView
from penstock.runtime.checkpoint.log.slots import Fenced
from penstock.runtime.checkpoint.recovery import (
    LoadedCheckpoint,
    check_own_location,
    left_at_end,
    load_latest,
    open_snapshot,
    rebuild_store,
)
from penstock.runtime.config.checkpointing import Checkpointing, KeepAfter
from penstock.runtime.config.restart import RestartMemory
from penstock.runtime.errors import CorruptSnapshotError, RestoreError, UnusableSnapshotError
from penstock.runtime.job.failover import FailureCause, FailureRecord
from penstock.runtime.job.job_state import JobState
from penstock.runtime.ports import SnapshotStorage, StorageOpener
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint, snapshot_url
from penstock.runtime.snapshot.metadata import read_metadata
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.snapshot.plain_values import from_plain, to_plain

#: Counts the death of a JobMaster in the restart strategy's memory; takes the memory and the job's age.
AfterDeath: TypeAlias = Callable[[RestartMemory, float], RestartMemory]


@dataclass(frozen=True, slots=True)
class AttemptStart:
    """An attempt whose record is in the log.

    Attributes:
        restore: The checkpoint that it starts from; `None` for a fresh start.
        highest_id: The highest id of the job's completed checkpoints and its initial snapshot; -1 for none.
        assigned_id: The highest known id that was given to any checkpoint; -1 for none.
        orphans: Files that earlier attempts have left in the storage.
        taken_over: The restart strategy's memory from the log; `None` unless this JobMaster has taken the job
            over.
        warning: A warning about `restore`, for the user.
        parallelism: Parallelism of the vertices that were rescaled since the job was submitted.
        restarts: Restarts during the job's life, including this attempt if it is a restart.
        was_stopped: Whether `restore` is the savepoint that the job was stopped with, so that no work is
            left.
    """

    attempt: int
    restore: CompletedCheckpoint | None
    store: CompletedCheckpointStore
    highest_id: int
    orphans: tuple[str, ...] = ()
    taken_over: RestartMemory | None = None
    warning: str | None = None
    parallelism: Mapping[str, int] = field(default_factory=dict)
    was_stopped: bool = False
    assigned_id: int = -1
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class EndedBefore:
    """The end of the job in the log.

    Attributes:
        attempt: The job's last attempt.
        at: Wall-clock seconds.
        savepoint: URL of the savepoint that it was stopped with; `None` without one.
        drained: Whether event time advanced to its end before that savepoint.
        failure: The failure behind `cause`; `None` if there is none.
        newest_checkpoint: The highest id of a completed checkpoint; -1 for none.
    """

    state: JobState
    cause: str
    attempt: int = 0
    at: float = 0.0
    restarts: int = 0
    savepoint: str | None = None
    drained: bool = False
    failure: FailureRecord | None = None
    newest_checkpoint: int = -1


@dataclass(frozen=True, slots=True)
class LostToOther:
    """Another JobMaster has begun an attempt of this job."""


@dataclass(frozen=True, slots=True)
class OnlyOlder:
    """The newest checkpoint is damaged. A whole job may start from an older checkpoint; a region must not."""


BeginOutcome: TypeAlias = AttemptStart | EndedBefore | LostToOther


class JobLedger:
    """The durable records of one job.

    Args:
        checkpointing: `None` when no checkpoints are taken.
        known_attempt: An attempt that is known to have begun; a log that lacks it was deleted.
        open_location: Opens storages of snapshots that are not in `storage`.
        restore_from: URL of the snapshot from which the job starts while it has no snapshot of its own.
        is_new: Whether the job was only just submitted. A log of another submission under its id then belongs
            to another job.
        monotonic: Returns seconds that never go backwards; called by any thread.
        after_death: Counts the death of the previous JobMaster as a restart.
        writer: A token that only this JobMaster's process has.
        submission: A token of the job's submission, which all its JobMasters have.
        compact_every: Number of records after which the log is compacted.
        storage_timeout: Seconds that the end of the job may wait for the storage.
    """

    def __init__(
        self,
        job_id: str,
        storage: SnapshotStorage,
        checkpointing: Checkpointing | None,
        known_attempt: int = 0,
        open_location: StorageOpener | None = None,
        restore_from: str | None = None,
        *,
        is_new: bool = False,
        monotonic: Callable[[], float] = lambda: 0.0,
        after_death: AfterDeath = lambda memory, age: memory,
        writer: str = "",
        submission: str = "",
        compact_every: int = COMPACT_EVERY,
        storage_timeout: float = 60.0,
    ) -> None:
        self._storage_timeout = storage_timeout
        self._open_location = open_location
        self._restore_from = restore_from
        self.paths = SnapshotPaths(job_id)
        self._storage = storage
        self._checkpointing = checkpointing
        self._log = DecisionLog(
            storage,
            self.paths,
            compact_every=compact_every,
            monotonic=monotonic,
            writer=writer,
            submission=submission,
            allow_damaged=checkpointing is not None and checkpointing.allow_older,
        )
        self._is_new = is_new
        self._after_death = after_death
        #: Whether this JobMaster has taken over the job, and its restart strategy still needs the log's
        #: count.
        self._succeeds = False
        self._owned: int | None = None
        self._known_attempt = known_attempt
        #: Checkpoints whose damage was found when they were restored, with a description.
        self._damaged: dict[int, str] = {}
        #: The savepoint that the job was stopped with; `None` if this process has not seen it.
        self._stopped_with: CompletedCheckpoint | None = None
        #: A warning from an attempt that was never deployed.
        self._unsaid = ""

    @property
    def storage_timeout(self) -> float | None:
        """Return the seconds that the job's end may wait for the storage; `None` without checkpointing."""
        return None if self._checkpointing is None else self._storage_timeout

    def age(self) -> float:
        """Return the job's age in seconds, as the restart strategy counts it; never blocks."""
        return self._log.age()

    def begin_attempt(
        self,
        now: float,
        restarts: RestartMemory,
        parallelism: Mapping[str, int] | None = None,
    ) -> BeginOutcome:
        """Write a new attempt into the log, and load the checkpoint that it starts from.

        Args:
            now: Wall-clock seconds.
            restarts: The restart strategy's memory; a JobMaster that takes over reads it from the log
                instead.
            parallelism: New parallelism by vertex; `None` for no change.

        Raises:
            StorageError: The storage could not be read or written.
            CorruptSnapshotError: The checkpoint to start from is damaged, or the log has lost records.
            JobIdTakenError: The job is new, and its id has the log of another submission.
        """
        begun = self._write_attempt(now, restarts, parallelism)
        return self._start(begun, self._latest(), now) if isinstance(begun, AttemptBegun) else begun

    def begin_attempt_of_region(
        self, now: float, restarts: RestartMemory, newest: int | None
    ) -> BeginOutcome | OnlyOlder:
        """Write a new attempt, for a region that restarts while the others continue.

        Such a region starts from `newest` or from a newer checkpoint in the log; else the result is
        `OnlyOlder`. An older checkpoint can't be used, because the other regions have committed `newest`. The
        coordinators of the region's sources have also forgotten the splits that it covers. Raises the errors
        of `begin_attempt`.
        """
        begun = self._write_attempt(now, restarts, None)
        if not isinstance(begun, AttemptBegun):
            return begun
        latest = self._latest()
        if newest is not None and (latest is None or latest.checkpoint.checkpoint_id < newest):
            self._unsaid, self._owned = self._lost(), begun.attempt
            return OnlyOlder()
        return self._start(begun, latest, now)

    def _write_attempt(
        self, now: float, restarts: RestartMemory, parallelism: Mapping[str, int] | None
    ) -> AttemptBegun | EndedBefore | LostToOther:
        if self._owned is not None and self._log.replay().last_attempt > self._owned:
            return LostToOther()
        # From here on, a failure may leave a record of this JobMaster in the log.
        self._owned = None
        rescaled = None if parallelism is None else tuple(sorted(parallelism.items()))

        def count(view: LogView, is_other: bool) -> RestartMemory:
            self._succeeds = self._succeeds or is_other
            return self._after_death(view.restarts, view.age) if self._succeeds else restarts

        begun = self._log.begin_attempt(now, self._known_attempt, rescaled, count=count, is_new=self._is_new)
        match begun:
            case JobEnded():
                return self._ended_before(begun)
            case Fenced():
                return LostToOther()
        return begun

    def give_up_damaged(self, checkpoint_id: int, what: str) -> bool:
        """Give up a damaged checkpoint; return whether the next attempt may start from an older checkpoint.

        A snapshot that the user has named is not given up: there is no older one.
        """
        if self._checkpointing is None or not self._checkpointing.allow_older:
            return False
        if all(record.checkpoint_id != checkpoint_id for record in self._log.view.completed):
            return False
        self._damaged[checkpoint_id] = what
        return True

    def complete_checkpoint(self, checkpoint: CompletedCheckpoint) -> Finalized | Fenced:
        """Write the record of a complete checkpoint.

        Raises:
            StorageError: The record was certainly not written.
            OutcomeUnknownError: The record may have been written.
        """
        retained = None if self._checkpointing is None else self._checkpointing.retain
        outcome = complete_checkpoint(
            self._storage,
            self.paths,
            self._log,
            checkpoint,
            retained=retained,
            open_location=self._open_location,
        )
        if isinstance(outcome, Finalized):
            self._remember_stop(outcome.checkpoint)
        return outcome

    def _remember_stop(self, checkpoint: CompletedCheckpoint) -> None:
        if checkpoint.kind is SnapshotKind.SYNC_SAVEPOINT:
            self._stopped_with = checkpoint

    def end(
        self, state: JobState, cause: str, now: float, failure: FailureCause | None = None
    ) -> EndedBefore | LostToOther | None:
        """Write the end of the job, unless the log already has it.

        Returns `EndedBefore` if the job had ended before this JobMaster began an attempt.

        Raises:
            StorageError: The end could not be written.
            JobIdTakenError: The job is new, and its id has the log of another submission.
        """
        if self._log.attempt == 0:
            begun = self._log.begin_attempt(now, self._known_attempt, is_new=self._is_new)
            if isinstance(begun, Fenced):
                return LostToOther()
            if isinstance(begun, JobEnded):
                return self._ended_before(begun)
        savepoint = self._last_savepoint()
        outcome = self._log.end(
            state.value,
            cause or None,
            now,
            savepoint=None if savepoint is None else snapshot_url(savepoint, self._storage.url),
            drained=savepoint is not None and savepoint.drained,
            failure=to_plain(failure),
        )
        return LostToOther() if isinstance(outcome, Fenced) else None

    def _last_savepoint(self) -> CompletedCheckpoint | None:
        """Return the complete savepoint that the job was stopped with; `None` without one."""
        record, known = self._log.view.newest, self._stopped_with
        if record is None or record.kind is not SnapshotKind.SYNC_SAVEPOINT:
            return None
        if known is not None and known.metadata == record.metadata:
            return known
        try:
            return self.newest()
        except CorruptSnapshotError:
            return None  # no job can start from it

    def _ended_before(self, ended: JobEnded) -> EndedBefore:
        view = self._log.view
        cause = from_plain(FailureCause | None, ended.failure)
        return EndedBefore(
            JobState(ended.state),
            ended.cause or "",
            ended.attempt,
            ended.at,
            view.restarts.restarts,
            ended.savepoint,
            ended.drained,
            None if cause is None else FailureRecord(ended.attempt, ended.at, cause),
            view.highest_checkpoint_id,
        )

    def newest(self) -> CompletedCheckpoint | None:
        """Return the newest completed checkpoint or savepoint in the log; raises if it can't be read."""
        record = self._log.view.newest
        if record is None:
            return None
        return check_own_location(read_metadata(self._storage, record.metadata), self.paths.job_id)

    def newer_attempt(self) -> int | None:
        """Return a newer attempt of another JobMaster, or `None`; may run while another call runs."""
        return self._log.newer_attempt()

    def delete_at_end(self, state: JobState, paths: Iterable[str]) -> None:
        """Delete `paths` (files of an ended job) and files that its attempts have left.

        Files of an attempt that could not load its checkpoint stay: the user may repair the checkpoint.

        Raises:
            StorageError: The files could not be deleted.
        """
        self._storage.delete(paths)
        config = self._checkpointing
        if config is None or self._owned is None:
            self._storage.delete(self._storage.list(self.paths.assigned_ids))
            return
        keeps = is_kept_after(state.value, KeepAfter(config.keep_after))
        self._storage.delete(left_at_end(self._storage, self.paths, self._log.view, keeps=keeps))

    def _latest(self) -> LoadedCheckpoint | None:
        config = self._checkpointing
        if config is None:
            return None
        try:
            return load_latest(
                self._storage,
                self._log.view,
                allow_older=config.allow_older,
                open_location=self._open_location,
                known_damage=self._damaged,
            )
        except CorruptSnapshotError as error:
            lost = "; ".join(self._log.lost or self._log.view.damage)
            if not lost:
                raise
            # A lost record may have completed a newer checkpoint. Then the files of this one were deleted.
            msg = f"{error}. Earlier records of the job's decision log are damaged: {lost}"
            raise CorruptSnapshotError(msg) from error

    def _start(
        self, begun: AttemptBegun, loaded: LoadedCheckpoint | None, now: float
    ) -> AttemptStart | LostToOther:
        start = self._load(begun, loaded, now)
        if isinstance(start, AttemptStart):
            taken_over, self._succeeds = begun.restarts if self._succeeds else None, False
            start = replace(start, taken_over=taken_over, restarts=begun.restarts.restarts)
        self._owned = begun.attempt
        return start

    def _load(
        self, begun: AttemptBegun, loaded: LoadedCheckpoint | None, now: float
    ) -> AttemptStart | LostToOther:
        config = self._checkpointing
        if config is None:
            initial = self._initial(self._log.view)
            return AttemptStart(begun.attempt, initial, CompletedCheckpointStore(), -1)
        damaged = () if loaded is None else loaded.damaged
        if damaged and isinstance(self._log.drop(damaged, now), Fenced):
            return LostToOther()
        for dropped in damaged:
            self._damaged.pop(dropped, None)
        if loaded is not None:
            self._remember_stop(loaded.checkpoint)
        view = self._log.view
        rebuilt = rebuild_store(
            self._storage, self.paths, view, attempt=begun.attempt, retained=config.retain
        )
        initial = self._initial(view)
        newest = initial if loaded is None else loaded.checkpoint
        unsaid, self._unsaid = self._unsaid, ""
        warnings = (unsaid, self._lost(), loaded.warning if loaded else None)
        return AttemptStart(
            begun.attempt,
            newest,
            rebuilt.store,
            # Sinks commit by id, so ids continue after the id of the snapshot that the job began with.
            max(view.highest_checkpoint_id, -1 if initial is None else initial.checkpoint_id),
            rebuilt.orphans,
            warning="; ".join(filter(None, warnings)) or None,
            parallelism=dict(begun.parallelism),
            was_stopped=loaded is not None and loaded.checkpoint.kind is SnapshotKind.SYNC_SAVEPOINT,
            assigned_id=rebuilt.assigned_id,
        )

    def _lost(self) -> str:
        """Return a warning about damaged records that were skipped; empty when there are none."""
        lost = "; ".join(self._log.lost)
        if not lost:
            return ""
        return (
            f"the job continues without damaged records of its decision log ({lost}). "
            "If one of them completed a checkpoint, sinks may repeat output that was committed since"
        )

    def _initial(self, view: LogView) -> CompletedCheckpoint | None:
        """Return the snapshot that the user has named, unless the job has a checkpoint of its own."""
        if self._restore_from is None or view.highest_checkpoint_id >= 0:
            return None
        if self._open_location is None:
            msg = f"this JobMaster can't open {self._restore_from}, the snapshot to start from"
            raise RestoreError(msg)
        try:
            return open_snapshot(self._restore_from, self._open_location).checkpoint
        except RestoreError as error:
            raise UnusableSnapshotError(str(error)) from error
