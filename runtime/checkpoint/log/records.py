"""The records of the decision log, their form in storage, and the state they come to (`LogView`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from penstock.runtime.config.restart import NO_RESTARTS, RestartMemory
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.handles import FileHandle
from penstock.runtime.snapshot.sealed_file import damaged, seal, unseal

#: Vertices and their parallelism, as far as a job was rescaled.
Parallelism: TypeAlias = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class AttemptBegun:
    """A new attempt owns the job; older ones can't decide anything any more.

    Attributes:
        attempt: Its number, larger than every earlier one; gaps are normal.
        restored_checkpoint: The newest completed checkpoint at this moment; `None` when there is none.
        at: Wall-clock seconds.
        parallelism: Vertices of another parallelism than the job was submitted with, sorted by id.
        age: Seconds of the job's life, see `runtime.config.restart`.
        writer: Token of the JobMaster's process, which no other one has; empty when it is not known.
        submission: Token of the job's submission, which all its JobMasters have; empty when it is not known.
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
    """A checkpoint or savepoint exists from now on.

    Attributes:
        at: Wall-clock seconds.
        subsumes: Checkpoints that are dropped in the same step.
        age: Seconds of the job's life.
        drained: Whether it is the savepoint of a stop that let event time go to its end first.
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
    """The job is not restored from these checkpoints any more; their files may be deleted.

    Attributes:
        at: Wall-clock seconds.
    """

    checkpoint_ids: tuple[int, ...]
    attempt: int
    at: float


@dataclass(frozen=True, slots=True)
class JobEnded:
    """The job has ended for good; no attempt begins any more.

    It holds every answer that depends on the end. The JobMaster may die before it has given one.

    Attributes:
        state: How: `finished`, `failed` or `cancelled`.
        cause: Why, when it failed.
        at: Wall-clock seconds.
        savepoint: URL of the complete savepoint that the job was stopped with; `None` without one.
        drained: Whether event time went to its end before that savepoint.
        failure: The failure behind `cause` as plain values, see `FailureCause.to_dict`; `None` for none.
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
    """Stands for all records in front of it; most of them may be deleted.

    Attributes:
        attempt: The attempt that compacted; the newest one.
        highest_checkpoint_id: Highest id of a checkpoint that ever completed; -1 for none.
        begun_slots: Slots of all `AttemptBegun` records; these are never deleted.
        previous: Slot of the compaction before this one; `None` for the first.
        at: Wall-clock seconds.
        parallelism: As in the newest `AttemptBegun`.
        restarts: As in the newest `AttemptBegun`.
        passed_slots: Slots without effect, see `LogEntry`; these are never deleted.
        submission: As in the newest `AttemptBegun`.
    """

    attempt: int
    completed: tuple[CheckpointCompleted, ...]
    highest_checkpoint_id: int
    begun_slots: tuple[int, ...]
    previous: int | None
    at: float
    parallelism: Parallelism = ()
    age: float = 0.0
    restarts: RestartMemory = NO_RESTARTS
    passed_slots: tuple[int, ...] = ()
    submission: str = ""


LogRecord: TypeAlias = AttemptBegun | CheckpointCompleted | CheckpointsDropped | JobEnded | LogCompacted


@dataclass(frozen=True, slots=True)
class LogEntry:
    """The content of a slot.

    Attributes:
        passes: Slots in front of this one that have no effect, whatever they hold, because this record says
            so: its writer found them cut off, or damaged.
    """

    record: LogRecord
    passes: tuple[int, ...] = ()


_MAGIC: Final = b"PENSTKLG"
_VERSION: Final = 1

_WHAT: Final = "a record of the decision log"


def encode_record(record: LogRecord, passes: tuple[int, ...] = ()) -> bytes:
    """A record as the content of its file; `passes` as in `LogEntry`."""
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
        case LogCompacted():
            return [
                "compacted",
                record.attempt,
                [[*_encode_completed(c), 0.0, c.drained] for c in record.completed],
                record.highest_checkpoint_id,
                record.begun_slots,
                record.previous,
                record.at,
                record.parallelism,
                record.age,
                _encode_restarts(record.restarts),
                record.passed_slots,
                record.submission,
            ]


def decode_record(data: bytes, path: str) -> LogRecord:
    """The record in a file.

    Raises:
        IncompleteFileError: It is cut off.
        CorruptSnapshotError: It is damaged; names the file.
        StorageError: A newer version wrote it.

    Example:
        >>> ended = JobEnded("finished", None, 2, 0.0)
        >>> decode_record(encode_record(ended), "x") == ended
        True
    """
    return decode_entry(data, path).record


def decode_entry(data: bytes, path: str) -> LogEntry:
    """The content of a slot; arguments and errors as for `decode_record`."""
    body = unseal(_MAGIC, _VERSION, data, _WHAT, path, is_sized=True)
    try:
        if body[0] == "passing":
            _, passes, *body = body
            return LogEntry(_decode(body), tuple(passes))
        return LogEntry(_decode(body))
    except (ValueError, TypeError, IndexError) as error:
        raise damaged(_WHAT, path, f"its content makes no record ({error})") from error


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
            return LogCompacted(
                attempt,
                tuple(_decode_completed(c) for c in completed),
                highest,
                tuple(begun),
                previous,
                at,
                _decode_parallelism(parallelism),
                age,
                _decode_restarts(restarts),
                tuple(passed),
                submission,
            )
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
        return self.completed[-1] if self.completed else None

    @property
    def records_since_compaction(self) -> int:
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
