"""The records of the decision log, their encoding, and the state that they add up to (`LogView`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from penstock.runtime.config.restart import NO_RESTARTS, RestartMemory
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.handles import FileHandle
from penstock.runtime.snapshot.sealed_file import damaged, seal, unseal

#: The parallelism of rescaled vertices, sorted by vertex id.
Parallelism: TypeAlias = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class AttemptBegun:
    """A new attempt owns the job; older attempts can no longer decide anything.

    Attributes:
        attempt: Number of the attempt, larger than every earlier one; gaps are normal.
        restored_checkpoint: The newest completed checkpoint when the attempt began; `None` without one.
        at: Wall-clock seconds.
        age: Age of the job in seconds, see `runtime.config.restart`.
        writer: Unique token of the JobMaster's process; empty when unknown.
        submission: Token that all JobMasters of a submission share; empty when unknown.
    """

    attempt: int
    restored_checkpoint: int | None
    at: float
    parallelism: Parallelism = ()
    age: float = 0.0
    restarts: RestartMemory = NO_RESTARTS
    writer: str = ""
    submission: str = ""


@dataclass(frozen=True, slots=True)
class CheckpointCompleted:
    """A checkpoint or savepoint; it is complete once this record is in the log.

    Attributes:
        at: Wall-clock seconds.
        subsumes: Checkpoints that this record drops.
        age: Age of the job in seconds.
        drained: Whether the job was drained before this savepoint: event time advanced to its end.
    """

    checkpoint_id: int
    attempt: int
    kind: SnapshotKind
    metadata: FileHandle
    at: float
    subsumes: tuple[int, ...] = ()
    age: float = 0.0
    drained: bool = False


@dataclass(frozen=True, slots=True)
class CheckpointsDropped:
    """These checkpoints can no longer be restored; their files may be deleted."""

    checkpoint_ids: tuple[int, ...]
    attempt: int
    at: float


@dataclass(frozen=True, slots=True)
class JobEnded:
    """The job has ended for good; no further attempt begins.

    The record holds every answer that depends on the end, because the JobMaster may die before it answers.

    Attributes:
        state: `finished`, `failed` or `cancelled`.
        cause: Cause of a failure.
        at: Wall-clock seconds.
        savepoint: URL of the complete savepoint that the job was stopped with; `None` without one.
        drained: Whether event time advanced to its end before that savepoint.
        failure: The `FailureCause` behind `cause`, as plain data; `None` without one.
    """

    state: str
    cause: str | None
    attempt: int
    at: float
    savepoint: str | None = None
    drained: bool = False
    failure: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class LogCompacted:
    """Replaces all records before it; most of them may be deleted.

    `state` is the state before this record. Its `next_slot` is 0; the slot of the record's file replaces it.
    """

    state: LogView
    at: float

    @property
    def attempt(self) -> int:
        """The attempt that compacted the log; always the newest one."""
        return self.state.last_attempt


LogRecord: TypeAlias = AttemptBegun | CheckpointCompleted | CheckpointsDropped | JobEnded | LogCompacted


@dataclass(frozen=True, slots=True)
class LogEntry:
    """The content of a slot.

    Earlier slots in `passes` have no effect, because the writer found them truncated or damaged.
    """

    record: LogRecord
    passes: tuple[int, ...] = ()


_MAGIC: Final = b"PENSTKLG"
_VERSION: Final = 1

_WHAT: Final = "a record of the decision log"


def encode_record(record: LogRecord, passes: tuple[int, ...] = ()) -> bytes:
    """Encode a record as the content of its file; `passes` as in `LogEntry`."""
    body = _encode(record)
    return seal(_MAGIC, _VERSION, ["passing", passes, *body] if passes else body, is_sized=True)


def _encode(record: LogRecord) -> list[Any]:
    match record:
        case AttemptBegun(attempt, restored, at, parallelism, age, restarts, writer, submission):
            counted = _encode_restarts(restarts)
            return ["begun", attempt, restored, at, parallelism, age, counted, writer, submission]
        case CheckpointCompleted():
            return ["completed", *_encode_completed(record), record.age, record.drained]
        case CheckpointsDropped(ids, attempt, at):
            return ["dropped", ids, attempt, at]
        case JobEnded(state, cause, attempt, at, savepoint, drained, failure):
            return ["ended", state, cause, attempt, at, savepoint, drained, failure]
        case LogCompacted(state, at):
            return [
                "compacted",
                state.last_attempt,
                [[*_encode_completed(c), 0.0, c.drained] for c in state.completed],
                state.highest_checkpoint_id,
                state.begun_slots,
                state.compacted_at,
                at,
                state.parallelism,
                state.age,
                _encode_restarts(state.restarts),
                state.passed_slots,
                state.submission,
            ]


def decode_record(data: bytes, path: str) -> LogRecord:
    """Decode the record in a file.

    Raises:
        IncompleteFileError: The file is truncated.
        CorruptSnapshotError: The file is damaged.
        StorageError: A newer version wrote the file.

    Example:
        >>> ended = JobEnded("finished", None, 2, 0.0)
        >>> decode_record(encode_record(ended), "x") == ended
        True
    """
    return decode_entry(data, path).record


def decode_entry(data: bytes, path: str) -> LogEntry:
    """Decode the content of a slot; errors as for `decode_record`."""
    body = unseal(_MAGIC, _VERSION, data, _WHAT, path, is_sized=True)
    try:
        if body[0] == "passing":
            _, passes, *body = body
            return LogEntry(_decode(body), tuple(passes))
        return LogEntry(_decode(body))
    except (ValueError, TypeError, IndexError) as error:
        raise damaged(_WHAT, path, f"its content is not a record ({error})") from error


def _decode(body: list[Any]) -> LogRecord:
    name, *rest = body
    match name:
        case "begun":
            attempt, restored, at, parallelism, age, restarts, writer, submission = rest
            vertices, memory = _decode_parallelism(parallelism), _decode_restarts(restarts)
            return AttemptBegun(attempt, restored, at, vertices, age, memory, writer, submission)
        case "completed":
            return _decode_completed(rest)
        case "dropped":
            ids, attempt, at = rest
            return CheckpointsDropped(tuple(ids), attempt, at)
        case "ended":
            return JobEnded(*rest)
        case "compacted":
            attempt, completed, highest, begun, previous, at, parallelism, age, *more = rest
            restarts, passed, submission = more
            state = LogView(
                last_attempt=attempt,
                completed=tuple(_decode_completed(c) for c in completed),
                highest_checkpoint_id=highest,
                begun_slots=tuple(begun),
                compacted_at=previous,
                parallelism=_decode_parallelism(parallelism),
                age=age,
                restarts=_decode_restarts(restarts),
                passed_slots=tuple(passed),
                submission=submission,
            )
            return LogCompacted(state, at)
    msg = f"there is no kind {name!r}"
    raise ValueError(msg)


def _decode_parallelism(item: list[Any]) -> Parallelism:
    return tuple((vertex, number) for vertex, number in item)


def _encode_restarts(memory: RestartMemory) -> list[Any]:
    return [memory.restarts, memory.in_a_row, memory.times]


def _decode_restarts(item: list[Any]) -> RestartMemory:
    restarts, in_a_row, times = item
    return RestartMemory(restarts, in_a_row, tuple(times))


def _encode_completed(record: CheckpointCompleted) -> list[Any]:
    file = record.metadata
    return [
        record.checkpoint_id,
        record.attempt,
        record.kind.value,
        [file.path, file.size, file.checksum],
        record.at,
        record.subsumes,
    ]


def _decode_completed(item: list[Any]) -> CheckpointCompleted:
    checkpoint_id, attempt, kind, file, at, subsumes, age, drained = item
    return CheckpointCompleted(
        checkpoint_id, attempt, SnapshotKind(kind), FileHandle(*file), at, tuple(subsumes), age, drained
    )


@dataclass(frozen=True, slots=True)
class LogView:
    """The state of a job after the records of all slots before `next_slot`.

    Attributes:
        last_attempt: The attempt that owns the job; 0 before the first.
        completed: Retained checkpoints and savepoints, sorted by id.
        ended: `None` while the job has not ended.
        next_slot: The first slot that is not known to be taken.
        highest_checkpoint_id: Highest id of a checkpoint that ever completed, dropped or not; -1 for none.
        begun_slots: Slots of all `AttemptBegun` records; these are never deleted.
        compacted_at: Slot of the newest compaction; `None` before the first.
        age: Highest age of the job in any record, in seconds.
        restarts: The memory of the restart strategy when the last attempt began.
        passed_slots: Slots without effect, see `LogEntry`; these are never deleted.
        to_pass: Slots that the next record must name in `passes`.
        damage: Descriptions of the damaged slots in `to_pass`; all other slots in it are truncated.
        submission: Token of the last attempt's submission; empty when unknown.
        hinted: The slot that the file `log/compaction` named when the log was read; -1 if it named none.

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
        return self.completed[-1] if self.completed else None

    @property
    def records_since_compaction(self) -> int:
        return self.next_slot - (self.compacted_at or 0)

    def is_of(self, submission: str) -> bool:
        """Whether the last attempt is known to serve this submission; false for an empty token."""
        return bool(submission) and submission == self.submission

    def after(self, record: LogRecord) -> LogView:
        """The view after `record`, which is in `next_slot` and names `to_pass` in its `passes`."""
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
        """The view after a truncated next slot, which the next record must name."""
        return replace(self, next_slot=self.next_slot + 1, to_pass=(*self.to_pass, self.next_slot))

    def compacted(self, at: float) -> LogCompacted:
        passed = (*self.passed_slots, *self.to_pass)
        state = replace(self, next_slot=0, passed_slots=passed, to_pass=(), damage=(), hinted=-1)
        return LogCompacted(state, at)

    @staticmethod
    def at_compaction(record: LogCompacted, slot: int) -> LogView:
        return replace(record.state, next_slot=slot).after(record)


def _without(
    completed: tuple[CheckpointCompleted, ...], gone: Collection[int]
) -> tuple[CheckpointCompleted, ...]:
    return tuple(c for c in completed if c.checkpoint_id not in gone)


def _by_id(completed: tuple[CheckpointCompleted, ...]) -> tuple[CheckpointCompleted, ...]:
    return tuple(sorted(completed, key=lambda c: c.checkpoint_id))
