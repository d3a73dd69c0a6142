"""`LogView`: the state of a job after the records of its decision log."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from penstock.runtime.checkpoint.log.records import (
    AttemptBegun,
    CheckpointCompleted,
    CheckpointsDropped,
    JobEnded,
    LogCompacted,
    LogRecord,
    Parallelism,
)
from penstock.runtime.config.restart import NO_RESTARTS, RestartMemory


@dataclass(frozen=True, slots=True)
class LogView:
    """The state of a job after the records of the slots in front of `next_slot`.

    Attributes:
        last_attempt: The attempt that owns the job; 0 before the first.
        completed: Completed checkpoints and savepoints that are kept, by id; the last one is the newest.
        ended: How the job ended; `None` while it lives.
        next_slot: The first slot that is not known to be taken.
        highest_checkpoint_id: Highest id of a checkpoint that ever completed, dropped or not; -1 for none.
        begun_slots: Slots of all `AttemptBegun` records.
        compacted_at: Slot of the newest compaction; `None` before the first.
        parallelism: Vertices of another parallelism than the job was submitted with.
        age: Highest age of the job that a record has, in seconds.
        restarts: What the restart strategy had counted when the last attempt began.
        passed_slots: Slots of no effect, because a later record passes over them.
        to_pass: Slots that the next record must pass over.
        damage: Descriptions of those of them that are damaged, and not merely cut off.
        submission: Token of the submission that the last attempt serves; empty when it is not known.
        hinted: The slot that the hint named when the log was read; -1 for none. Views that differ in it alone
            are equal.

    Example:
        >>> view = LogView().after(AttemptBegun(1, None, 0.0))
        >>> view.last_attempt, view.next_slot
        (1, 1)
    """

    last_attempt: int = 0
    completed: tuple[CheckpointCompleted, ...] = ()
    ended: JobEnded | None = None
    next_slot: int = 0
    highest_checkpoint_id: int = -1
    begun_slots: tuple[int, ...] = ()
    compacted_at: int | None = None
    parallelism: Parallelism = ()
    age: float = 0.0
    restarts: RestartMemory = NO_RESTARTS
    passed_slots: tuple[int, ...] = ()
    to_pass: tuple[int, ...] = ()
    damage: tuple[str, ...] = ()
    submission: str = ""
    hinted: int = field(default=-1, compare=False)

    @property
    def newest(self) -> CheckpointCompleted | None:
        """The checkpoint or savepoint that a restart begins with."""
        return self.completed[-1] if self.completed else None

    @property
    def records_since_compaction(self) -> int:
        """Number of records that a replay has to read."""
        return self.next_slot - (self.compacted_at or 0)

    def is_of(self, submission: str) -> bool:
        """Whether the last attempt is known to serve this submission; never true of an empty token."""
        return bool(submission) and submission == self.submission

    def after(self, record: LogRecord) -> LogView:
        """The view when `record` is in `next_slot` and passes over the slots of `to_pass`."""
        slot = self.next_slot
        view = replace(
            self,
            next_slot=slot + 1,
            last_attempt=max(self.last_attempt, record.attempt),
            passed_slots=(*self.passed_slots, *self.to_pass),
            to_pass=(),
            damage=(),
        )
        match record:
            case AttemptBegun():
                begun_slots = (*self.begun_slots, slot)
                return replace(
                    view,
                    begun_slots=begun_slots,
                    parallelism=record.parallelism,
                    age=max(self.age, record.age),
                    restarts=record.restarts,
                    submission=record.submission,
                )
            case CheckpointCompleted(checkpoint_id):
                gone = (*record.subsumes, checkpoint_id)
                kept = replace(record, subsumes=(), age=0.0)
                return replace(
                    view,
                    completed=_by_id((*_without(self.completed, gone), kept)),
                    highest_checkpoint_id=max(self.highest_checkpoint_id, checkpoint_id),
                    age=max(self.age, record.age),
                )
            case CheckpointsDropped(gone):
                return replace(view, completed=_without(self.completed, gone))
            case JobEnded():
                return replace(view, ended=record)
            case LogCompacted():
                return replace(view, compacted_at=slot)

    def passing(self) -> LogView:
        """The view when the next slot is cut off and the record behind it is to pass over it."""
        return replace(self, next_slot=self.next_slot + 1, to_pass=(*self.to_pass, self.next_slot))

    def compacted(self, at: float) -> LogCompacted:
        """The record that stands for this view."""
        return LogCompacted(
            self.last_attempt,
            self.completed,
            self.highest_checkpoint_id,
            self.begun_slots,
            self.compacted_at,
            at,
            self.parallelism,
            self.age,
            self.restarts,
            (*self.passed_slots, *self.to_pass),
            self.submission,
        )

    @staticmethod
    def at_compaction(record: LogCompacted, slot: int) -> LogView:
        """The view after a compaction in `slot`."""
        return LogView(
            record.attempt,
            record.completed,
            None,
            slot + 1,
            record.highest_checkpoint_id,
            record.begun_slots,
            slot,
            record.parallelism,
            record.age,
            record.restarts,
            record.passed_slots,
            submission=record.submission,
        )


def _without(
    completed: tuple[CheckpointCompleted, ...], gone: Collection[int]
) -> tuple[CheckpointCompleted, ...]:
    return tuple(c for c in completed if c.checkpoint_id not in gone)


def _by_id(completed: tuple[CheckpointCompleted, ...]) -> tuple[CheckpointCompleted, ...]:
    return tuple(sorted(completed, key=lambda c: c.checkpoint_id))
