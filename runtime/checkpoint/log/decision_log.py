"""`DecisionLog`: the numbered log that holds all durable decisions of a job.

Each decision (an attempt began, a checkpoint completed, checkpoints were dropped, the job ended) is a file in
a numbered *slot*: 0, 1, 2, ... Writers claim slots by put-if-absent. Exactly one contender gets a slot, and a
decision is made when its file appears. Old and new attempts contend for the same slots. So a completion of
the old attempt is either before the new attempt's `AttemptBegun` or not in the log. In the first case the new
attempt restores from it.

Why it is right:

1. *No gaps.* A writer claims slot n only after it has seen all slots up to n - 1.
2. *One writer per attempt.* An attempt begins only when the storage has confirmed the put. If the put gets no
   answer, or another record has the slot, the writer replays the log. It tries again with a number above all
   attempts that it finds. So only one writer writes an attempt's records.
3. *Fencing.* After the records of a running attempt, the first record of another writer is an
   `AttemptBegun`. It is in the slot that the old writer claims next. The old writer does not get the slot,
   reads it, and is `Fenced`.
4. *Lost answers.* A put that seems to fail may have happened, or may happen later. The writer puts the same
   bytes again; it owns a slot that holds its own record. Without an answer it raises `OutcomeUnknownError`.
   Its next record contends for the *same* slot, so the record in doubt gets the slot now or never.
5. *Compaction.* A compaction writes the whole state as one record (`LogCompacted`) into a slot. Then it
   writes the hint that points readers to it, and then deletes older slots. After a crash in between, the next
   compaction deletes the rest. A paused writer may put a deleted slot again, which looks like a success. Four
   rules prevent that:
   a) Slots of `AttemptBegun` are never deleted, and by 3 an old writer claims such a slot. The exception is a
      slot in doubt: it may have held the writer's own record and been deleted since. So a writer that gets a
      slot in doubt, or finds its own record in a slot, looks for a compaction after it. If there is one, the
      writer is fenced.
   b) A writer that *begins* may claim any deleted slot. After its put it reads the compaction that its replay
      began with, and the hint. If the compaction is there and the hint names no later one, no slot after the
      compaction was deleted. Otherwise its record has no effect or is fenced, and it begins again. A writer
      that *compacts* checks the same before it writes the hint. Its put may have happened twice, the second
      time after the slot was deleted.
   c) Only slots before the *last but one* compaction are deleted, so a reader can finish while another
      writer compacts.
   d) Older compactions are deleted first, from the oldest to the newest, each in a call of its own. So a
      compaction that can be read, and was put once, proves that no slot after it was deleted.
6. *Power cuts.* A put without an answer may leave a truncated slot. A writer that finds it as the newest slot
   continues after it, and its record names the slots that it passes (see `reader`). Such slots are never
   deleted, because a paused writer may still claim them.

One slot per attempt stays for ever, about 100 bytes. If it were deleted, a writer that was paused since then
would get the slot and mistake this for success. Each claim would need one more read to prevent that.

What it must never do:

* return `Claimed` for a record that a replay does not find, or `Fenced` for one that it finds,
* delete the slot of an `AttemptBegun`, or a passed slot,
* treat silence of the storage as a refusal.

All methods block, and one thread at a time calls them. Only `newer_attempt` may run concurrently with another
method.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, TypeAlias

from penstock.runtime.checkpoint.log.reader import DecisionLogReader
from penstock.runtime.checkpoint.log.records import (
    AttemptBegun,
    CheckpointCompleted,
    CheckpointsDropped,
    JobEnded,
    LogRecord,
    LogView,
    Parallelism,
    encode_record,
)
from penstock.runtime.checkpoint.log.slots import (
    PUT_TRIES,
    Claim,
    Claimed,
    Fenced,
    LogSlots,
    OutcomeUnknownError,
)
from penstock.runtime.config.restart import RestartMemory
from penstock.runtime.errors import (
    CorruptSnapshotError,
    JobIdTakenError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StorageTimeoutError,
)
from penstock.runtime.ports import SnapshotStorage
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.snapshot.sealed_file import IncompleteFileError

#: Maximum number of tries to begin an attempt; only a storage that returns wrong answers needs many.
BEGIN_TRIES: Final = 1000

#: Number of records after which the log is compacted.
COMPACT_EVERY: Final = 200

#: Computes a new attempt's restart memory from the log; the bool is whether another JobMaster had the job.
CountRestarts: TypeAlias = Callable[[LogView, bool], RestartMemory]


class DecisionLog:
    """Reads and writes the log of one job.

    Args:
        compact_every: Number of records after which the log is compacted; at least 2.
        monotonic: Seconds of a monotonic clock, for the age of the job.
        writer: A unique token, by which a writer recognises an attempt that it began without an answer.
        submission: A token that only the writers of one submission of the job have.
        allow_damaged: Whether to begin after damaged records, and lose their decisions; see `reader`.

    Attributes:
        view: The log as far as this writer knows it.
        attempt: The attempt that this writer writes for; 0 before the first.
        lost: Descriptions of the damaged records that the last attempt of this writer has passed.

    Example:
        >>> from penstock.runtime.snapshot.storage import MemoryStorage
        >>> place = MemoryStorage(), SnapshotPaths("job")
        >>> old, new = DecisionLog(*place), DecisionLog(*place)
        >>> old.begin_attempt(now=1.0).attempt, new.begin_attempt(now=2.0).attempt
        (1, 2)
        >>> old.end("finished", None, now=3.0)
        Fenced(newer_attempt=2)
    """

    def __init__(
        self,
        storage: SnapshotStorage,
        paths: SnapshotPaths,
        *,
        compact_every: int = COMPACT_EVERY,
        monotonic: Callable[[], float] = lambda: 0.0,
        writer: str = "",
        submission: str = "",
        allow_damaged: bool = False,
    ) -> None:
        if compact_every < 2:
            msg = f"compact_every={compact_every}: a compaction is itself a record, so give at least 2"
            raise ValueError(msg)
        self._storage = storage
        self._paths = paths
        self._reader = DecisionLogReader(storage, paths, allow_damaged=allow_damaged)
        self._writer = writer
        self._submission = submission
        self._compact_every = compact_every
        self.view = LogView()
        self.attempt = 0
        #: Attempts that this writer may have begun although it got no answer.
        self._unanswered: set[int] = set()
        self._monotonic = monotonic
        #: An age of the job, and the monotonic time at which it had that age.
        self._aged = (0.0, monotonic())
        self._fenced: Fenced | None = None
        self._slots = LogSlots(storage, paths, self._reader)
        self.lost: tuple[str, ...] = ()

    def age(self) -> float:
        """Age of the job in seconds: its age in the log plus the time since then."""
        age, since = self._aged
        return age + self._monotonic() - since

    def replay(self) -> LogView:
        """Read the log; changes nothing."""
        return self._reader.replay()

    def begin_attempt(
        self,
        now: float,
        known_attempt: int = 0,
        parallelism: Parallelism | None = None,
        *,
        count: CountRestarts | None = None,
        is_new: bool = False,
    ) -> AttemptBegun | JobEnded | Fenced:
        """Take over the job with a new attempt; returns the job's end if it has ended.

        Returns `Fenced` if this is the first writer of a submission (`is_new`), and another writer replaced
        it while it was suspended.

        Args:
            now: Wall-clock seconds.
            known_attempt: An attempt that is known to have begun.
            parallelism: New parallelism of a rescale; `None` keeps the old one.
            count: Computes the restart memory; by default the memory stays unchanged.
            is_new: Set by the first writer of a submission: its attempt must be in slot 0.

        Raises:
            CorruptSnapshotError: A record is damaged or missing, or the log has been deleted.
            JobIdTakenError: A new job finds the log of another submission; nothing was written.
            StorageError: The storage does not answer; no writer acts for an attempt that may have begun.
        """
        unanswered = 0
        #: Attempts of this call whose records may be in the log; these records already count the restart.
        tried: set[int] = set()
        for _ in range(BEGIN_TRIES):
            view = self._reader.replay()
            self._reader.require_no_loss(view, self.view, known_attempt)
            is_other = self.attempt == 0 and view.next_slot > 0 and view.last_attempt not in self._unanswered
            if is_new and is_other:
                if view.is_of(self._submission):
                    return Fenced(view.last_attempt)
                raise JobIdTakenError(self._taken(view))
            if self.attempt == 0:
                # The log's age and this writer's age are both at most the real age.
                self._aged = (max(self.age(), view.age), self._monotonic())
            if view.ended is not None:
                self.view = view
                return view.ended
            newest = None if view.newest is None else view.newest.checkpoint_id
            parallel = view.parallelism if parallelism is None else parallelism
            restarts = view.restarts
            if count is not None and view.last_attempt not in tried:
                restarts = count(view, is_other)
            # A damaged record may have begun an attempt, so its number is not used again.
            number = view.last_attempt + 1 + len(view.to_pass)
            tokens = self._writer, self._submission
            record = AttemptBegun(number, newest, now, parallel, self.age(), restarts, *tokens)
            try:
                self._slots.put_once(view.next_slot, encode_record(record, view.to_pass))
            except ObjectExistsError:
                # A retry inside the storage may report the writer's own record as another writer's.
                if not self._is_own(view.next_slot, record):
                    continue
            except StorageError as error:
                unanswered += 1
                self._unanswered.add(number)
                tried.add(number)
                if unanswered == PUT_TRIES or isinstance(error, StorageTimeoutError):
                    raise
                continue
            self._unanswered.add(number)  # if the next check fails, the writer later recognises its number
            tried.add(number)
            if self._reader.is_intact(view):
                self._begun(view, record)
                return record
        where = f"{self._storage.url}/{self._paths.log}"
        msg = (
            f"no attempt could begin: slots of {where} look free but are taken. "
            "Use a storage that shows new files at once"
        )
        raise StorageError(msg)

    def complete(self, record: CheckpointCompleted) -> Claim:
        """Record a completed checkpoint; after an `OutcomeUnknownError` its files must stay."""
        if record.attempt != self.attempt:
            msg = f"a record of attempt {record.attempt} can't be written by attempt {self.attempt}"
            raise ValueError(msg)
        return self._append(replace(record, age=self.age()))

    def drop(self, checkpoint_ids: tuple[int, ...], now: float) -> Claim:
        """Record dropped checkpoints; their files may be deleted only after this returns `Claimed`."""
        return self._append(CheckpointsDropped(tuple(checkpoint_ids), self.attempt, now))

    def end(
        self,
        state: str,
        cause: str | None,
        now: float,
        *,
        savepoint: str | None = None,
        drained: bool = False,
        failure: Mapping[str, Any] | None = None,
    ) -> Claim:
        """End the job for good; after an `OutcomeUnknownError`, a second call recognises a written end."""
        return self._append(JobEnded(state, cause, self.attempt, now, savepoint, drained, failure))

    def newer_attempt(self) -> int | None:
        """Return the number of a newer attempt of another writer; `None` without one.

        By rule 3, the attempt's record is in the slot that this writer claims next, or after more of this
        writer's own records. The method changes nothing, so it may run concurrently with another one. During
        `begin_attempt` it may also find the attempt that this writer begins.
        """
        slot = self.view.next_slot
        try:
            while (found := self._attempt_in(slot)) <= self.attempt:
                slot += 1
        except ObjectNotFoundError:
            past = self._reader.compacted_behind(slot) if self._slots.in_doubt == slot else None
            return None if past is None else past.last_attempt
        return found

    def _begun(self, view: LogView, record: AttemptBegun) -> None:
        self.lost = view.damage
        self.view, self.attempt, self._fenced = view.after(record), record.attempt, None
        if view.compacted_at is not None:
            # The hint may be missing because its writer died, or old because a paused writer wrote it. If
            # this write fails, the next compaction writes the hint.
            with suppress(StorageError):
                if self._reader.hint.is_older_than(view.compacted_at):
                    self._reader.hint.write(view.compacted_at)

    def _is_own(self, slot: int, record: AttemptBegun) -> bool:
        """Whether a taken slot holds this writer's record; its token proves that no other writer wrote it."""
        if not self._writer:
            return False
        try:
            return self._reader.read(slot) == record
        except StorageError:  # the following replay reports the cause
            return False

    def _attempt_in(self, slot: int) -> int:
        try:
            return self._reader.read(slot).attempt
        except IncompleteFileError:
            return 0

    def _taken(self, view: LogView) -> str:
        job = self._paths.log.split("/")[0]
        where = f"{self._storage.url}/{self._paths.log}"
        return (
            f"job id {job!r} is taken: {where} holds the records of an earlier job, whose last attempt is "
            f"{view.last_attempt}. Nothing was changed there; submit the job again"
        )

    def _append(self, record: LogRecord) -> Claim:
        claim, view = self._claim(record), self.view
        is_due = view.ended is None and view.records_since_compaction >= self._compact_every
        if is_due and isinstance(claim, Claimed):
            self._compact(record.at)
        return claim

    def _claim(self, record: LogRecord) -> Claim:
        if self.attempt == 0:
            msg = "an attempt must begin before it decides anything"
            raise RuntimeError(msg)
        while True:
            if self._fenced is not None:
                return self._fenced
            known = self._known(record)
            if known is not None:
                return known
            slot = self.view.next_slot
            data = encode_record(record, self.view.to_pass)
            try:
                found = self._slots.claim(slot, data)
            except IncompleteFileError:
                self.view = self.view.passing()
                continue
            if found == record:  # a retry inside the storage may report the writer's own record as taken
                self._slots.may_hold.add(data)
            is_own = found is not None and found.attempt == self.attempt
            if is_own or (found is None and self._slots.was_in_doubt):
                past = self._past(slot, record, data)
                if past is not None:
                    return past
            if found is None or found == record:
                self.view = self.view.after(record)
                return Claimed(slot)
            self._follow(slot, found)

    def _known(self, record: LogRecord) -> Claim | None:
        """The outcome if the job has ended, or if an earlier, unanswered try wrote the record."""
        ended = self.view.ended
        if isinstance(record, JobEnded) and ended is not None and ended.state == record.state:
            return Claimed(self.view.next_slot - 1)
        if ended is not None:
            return Fenced(ended.attempt)
        if isinstance(record, CheckpointCompleted):
            for completed in self.view.completed:
                if completed.metadata == record.metadata:
                    return Claimed(self.view.next_slot - 1)
        return None

    def _past(self, slot: int, record: LogRecord, data: bytes) -> Claim | None:
        """The outcome for a slot in doubt if a newer attempt has compacted the log after it, else `None`.

        No `AttemptBegun` has the slot, so it held a record of this writer, which may have been deleted. If
        this writer has tried to put only one record there, the slot held that record.
        """
        try:
            view = None if self._reader.is_intact(self.view) else self._reader.compacted_behind(slot)
        except CorruptSnapshotError:
            raise
        except StorageError as error:
            self._slots.in_doubt = slot
            where = f"{self._storage.url}/{self._paths.log}"
            msg = f"it is unknown whether slot {slot} of {where} counts: {error}"
            raise OutcomeUnknownError(msg) from error
        if view is None:
            return None
        self._fenced = Fenced(view.last_attempt)
        if isinstance(record, JobEnded):
            return self._fenced  # no attempt begins after the end of a job
        is_kept = isinstance(record, CheckpointCompleted) and any(
            completed.metadata == record.metadata for completed in view.completed
        )
        if is_kept or self._slots.may_hold == {data}:
            return Claimed(slot)
        if data not in self._slots.may_hold:
            return self._fenced
        where = f"{self._storage.url}/{self._paths.log_slot(slot)}"
        msg = (
            f"it is unknown whether a record was ever in {where}: several puts into that slot were "
            f"not answered, and attempt {view.last_attempt} has compacted the log since"
        )
        raise OutcomeUnknownError(msg)

    def _follow(self, slot: int, found: LogRecord) -> None:
        """Add the record that has the slot to the view, or note that a newer attempt owns the job."""
        if found.attempt > self.attempt:
            self._fenced = Fenced(found.attempt)
        elif found.attempt == self.attempt:
            self.view = self.view.after(found)
        else:
            msg = (
                f"{self._storage.url}/{self._paths.log_slot(slot)} was written by attempt {found.attempt} "
                f"after attempt {self.attempt} had begun. The storage must refuse to create an existing file"
            )
            raise CorruptSnapshotError(msg)

    def _compact(self, now: float) -> None:
        record, slot = self.view.compacted(now), self.view.next_slot
        try:
            found = self._slots.claim(slot, encode_record(record, self.view.to_pass))
            if found is not None and found != record:
                # A compaction covers the slots before its own, so it would be wrong in any other slot.
                self._follow(slot, found)
                return
            # Unless the log is known to be intact, the next record checks whether this writer is fenced.
            self._slots.in_doubt = slot
            if not self._reader.is_intact(self.view):
                return
            self._slots.in_doubt = -1
            self.view = self.view.after(record)
            self._reader.hint.write(slot)
            state = record.state
            if state.compacted_at is not None:
                self._delete_superseded(state.compacted_at, {*state.begun_slots, *state.passed_slots})
        except StorageError:
            pass  # the next compaction completes it

    def _delete_superseded(self, before: int, keep: Collection[int]) -> None:
        for slot in self._reader.compactions_before(before):
            self._storage.delete([self._paths.log_slot(slot)])
        self._storage.delete(self._reader.superseded(before, keep))
