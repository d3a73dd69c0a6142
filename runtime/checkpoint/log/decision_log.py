"""`DecisionLog`: the numbered log that holds all durable decisions of a job.

What it does. Each decision (an attempt began, a checkpoint completed, checkpoints were dropped, the job
ended) is a file of its own, a *slot*: 0, 1, 2, ... A slot is claimed by put-if-absent: exactly one of its
contenders gets it, and a decision is made at the moment its file appears. Old and new attempts contend for
the same slots. So a completion of the old attempt is in front of the new one's
`AttemptBegun`, or nowhere. In the first case the new attempt restores from it.

Why it is right.

1. *No gaps.* A writer asks for slot n only when it has seen slots up to n - 1.
2. *One writer an attempt.* An attempt begins only when the storage has *answered* that the put succeeded. A
   writer that gets no answer, or finds the slot taken (even by itself), begins again with a larger number. So
   no two writers have one number, and every record with the writer's number is its own.
3. *Fencing.* A writer that has begun continues from its own slot. The first record of another writer
   behind it is therefore an `AttemptBegun`, in exactly the slot that this writer wants next. It loses the
   slot, reads it, and knows that it is past: `Fenced`. Everything it claimed before is in front of that
   record.
4. *Lost answers.* A put may have happened although it looks failed, or may happen later. The same bytes are
   put again; a slot that turns out to hold the writer's own record is claimed. If nothing helps,
   `OutcomeUnknownError` is raised. The next record contends for the *same* slot, so the record in doubt gets
   in now or never.
5. *Compaction* writes all that matters as one record (`LogCompacted`), in a slot of its own. Then it writes
   the hint, by which readers find it, and then it deletes older slots. `reader` tells how the log is
   read, and that a replay is exact whatever a listing shows. A crash in between leaves files that the next
   compaction deletes. But a writer that was paused can put a deleted slot again, and that would look like
   success. Four rules prevent it:
   a) The slots of `AttemptBegun` are never deleted. By 3, a writer of an old attempt wants just such a slot.
      There is one exception. The slot that it is in doubt about may hold its own record, and be deleted.
      So when it gets such a slot, or finds itself in it, it looks for a compaction behind it. If there is
      one, the writer is past.
   b) A writer that is about to *begin* may want any deleted slot. After its put it looks for the compaction
      that it has replayed from, and for the hint. If the first can be read, and the second names no later
      compaction, nothing behind it was ever deleted. If not, its record has no effect, or is that of an
      attempt that is past: it begins again. A writer that *compacts* looks in the same way before it writes
      the hint. Its put may have happened twice: once before it slept, and once after the slot was deleted.
   c) Only slots in front of the *last but one* compaction are deleted, so a reader still finds what it reads
      while another writer compacts.
   d) Older compactions are deleted first, the oldest in front, each in a call of its own. So a compaction
      that can be read, and was put once, shows that no slot behind it was deleted.
6. *Power cuts.* A put that was not answered may leave a slot that is cut off. A writer that finds it newest
   continues behind it, and its record names the slots that it passes over (see `reader`). Such slots are
   never deleted: a paused writer may still want them, and must not get them.

7. *What stays for ever* is one slot an attempt, and its number in each compaction. Could the slots of old
   attempts be deleted? A writer that was paused since then would get such a slot, and take it for a success.
   It does not know that it is past: it has seen nothing behind its own slot. It would have to look for a
   compaction after each claim. That is one more read for each checkpoint, against about 100 bytes an attempt.
   One restart a day leaves 365 slots a year: 37 kB, or 1.5 MB where each file takes a block of 4 KiB. One
   every ten minutes leaves 52,560: 5 MB, or 215 MB. They are listed at
   each replay and compaction, 1,000 names a page on S3, and not read again.

What it must never do:

* return `Claimed` for a record that a replay does not find, or `Fenced` for one that it finds,
* delete the slot of an `AttemptBegun`, or one that is passed over,
* take silence of the storage for a refusal.

All methods block, and are called from one thread at a time. Only `newer_attempt` may run beside another one.
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
from penstock.runtime.checkpoint.log.slots import PUT_TRIES, Claim, LogSlots
from penstock.runtime.checkpoint.log.slots import Claimed as Claimed
from penstock.runtime.checkpoint.log.slots import Fenced as Fenced
from penstock.runtime.checkpoint.log.slots import OutcomeUnknownError as OutcomeUnknownError
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

#: Number of tries to begin an attempt; only a storage with wrong answers needs so many.
BEGIN_TRIES: Final = 1000

#: Number of records after which the log is compacted.
COMPACT_EVERY: Final = 200

#: Computes a new attempt's restart memory from the log, and from whether another JobMaster had the job.
CountRestarts: TypeAlias = Callable[[LogView, bool], RestartMemory]


class DecisionLog:
    """Reads and writes the log of one job.

    Args:
        storage: It must have an atomic put-if-absent.
        compact_every: Number of records after which the log is compacted; at least 2.
        monotonic: Seconds that never go backwards, from any thread; records get the age of the job from it.
        writer: A token that no other writer has. With it the writer recognises its own attempt after a begin
            that was not answered. Without it, another attempt begins.
        submission: A token that only the writers of one submission of the job have.
        allow_damaged: Begin behind damaged records and lose what they decided; see `reader`.

    Raises:
        ValueError: `compact_every` is less than 2.

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
            msg = f"compact_every={compact_every}: a compaction is a record itself, so give at least 2"
            raise ValueError(msg)
        self._storage = storage
        self._paths = paths
        self._reader = DecisionLogReader(storage, paths, allow_damaged=allow_damaged)
        self._writer = writer
        self._submission = submission
        self._compact_every = compact_every
        self._view = LogView()
        self._attempt = 0
        #: Attempts that this writer may have begun although it got no answer.
        self._unanswered: set[int] = set()
        self._monotonic = monotonic
        #: An age of the job, and the monotonic time at which it had that age.
        self._aged = (0.0, monotonic())
        self._fenced: Fenced | None = None
        self._slots = LogSlots(storage, paths, self._reader)
        self._lost: tuple[str, ...] = ()

    @property
    def view(self) -> LogView:
        return self._view

    def age(self) -> float:
        """Age of the job in seconds: the age that the log shows, and the time of this writer."""
        age, since = self._aged
        return age + self._monotonic() - since

    def replay(self) -> LogView:
        """Read the log; changes nothing.

        Raises:
            CorruptSnapshotError: A record is damaged or missing.
            StorageError: The log could not be read.
        """
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
        """Take the job over; returns how the job ended if it has.

        The first writer of a submission may sleep until another one has taken its place. It finds the log of
        that writer, is `Fenced`, and writes nothing.

        Args:
            now: Wall-clock seconds.
            known_attempt: An attempt that is known to have begun.
            parallelism: New parallelism of a rescale; `None` keeps the old one.
            count: Computes the restart memory; by default the memory stays unchanged.
            is_new: The job was only just submitted, so this writer's first attempt must be in slot 0. Only
                the first writer of a submission says so.

        Raises:
            CorruptSnapshotError: A record is damaged or missing, or the log has been deleted.
            JobIdTakenError: A new job finds the log of another submission; nothing was written.
            StorageError: The storage does not answer; no writer acts for an attempt that may have begun.
        """
        unanswered = 0
        #: Attempts of this call whose records may be in the log: what they counted is counted.
        tried: set[int] = set()
        for _ in range(BEGIN_TRIES):
            view = self._reader.replay()
            self._reader.require_no_loss(view, self._view, known_attempt)
            is_other = self._attempt == 0 and view.next_slot > 0 and view.last_attempt not in self._unanswered
            if is_new and is_other:
                if view.is_of(self._submission):
                    return Fenced(view.last_attempt)
                raise JobIdTakenError(self._taken(view))
            if self._attempt == 0:
                # The log's age and this writer's age are both at most the real age.
                self._aged = (max(self.age(), view.age), self._monotonic())
            if view.ended is not None:
                self._view = view
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
                # A retry below the storage may report the writer's own record as that of another writer.
                if not self._is_own(view.next_slot, record):
                    continue
            except StorageError as error:
                unanswered += 1
                self._unanswered.add(number)
                tried.add(number)
                if unanswered == PUT_TRIES or isinstance(error, StorageTimeoutError):
                    raise
                continue
            self._unanswered.add(number)  # if this fails, the writer later recognises its number
            tried.add(number)
            if self._reader.is_intact(view):
                self._begun(view, record)
                return record
        where = f"{self._storage.url}/{self._paths.log}"
        msg = (
            f"no attempt could begin: {where} lists slots as free that are taken; is the listing up to date?"
        )
        raise StorageError(msg)

    @property
    def lost(self) -> tuple[str, ...]:
        """Descriptions of the damaged records that the last attempt of this writer has passed over."""
        return self._lost

    def complete(self, record: CheckpointCompleted) -> Claim:
        """Record a completed checkpoint; the checkpoint exists from then on.

        Raises:
            OutcomeUnknownError: The checkpoint may exist, so its files must stay.
            CorruptSnapshotError: The log is damaged.
            ValueError: The record is of another attempt than this writer.
        """
        if record.attempt != self._attempt:
            msg = f"a record of attempt {record.attempt} can't be written by attempt {self._attempt}"
            raise ValueError(msg)
        return self._append(replace(record, age=self.age()))

    def drop(self, checkpoint_ids: tuple[int, ...], now: float) -> Claim:
        """Drop checkpoints; their files may be deleted once this is claimed, never before.

        Raises:
            OutcomeUnknownError: Their files must stay.
            CorruptSnapshotError: The log is damaged.
        """
        return self._append(CheckpointsDropped(tuple(checkpoint_ids), self._attempt, now))

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
        """End the job for good; the arguments are those of `JobEnded`.

        Raises:
            OutcomeUnknownError: Call again; an end that was written is found.
            CorruptSnapshotError: The log is damaged.
        """
        return self._append(JobEnded(state, cause, self._attempt, now, savepoint, drained, failure))

    def newer_attempt(self) -> int | None:
        """Look for another writer that has begun a newer attempt; `None` when there is none.

        By 3 its record is in the slot that this writer wants next, or behind records of this writer. The
        method changes nothing, so it may run beside another one. Beside `begin_attempt` it may also find
        the attempt that this writer begins.

        Raises:
            CorruptSnapshotError: The log is damaged.
            StorageError: It could not be read.
        """
        slot = self._view.next_slot
        try:
            while (found := self._attempt_in(slot)) <= self._attempt:
                slot += 1
        except ObjectNotFoundError:
            past = self._reader.compacted_behind(slot) if self._slots.in_doubt == slot else None
            return None if past is None else past.last_attempt
        return found

    @property
    def attempt(self) -> int:
        """The attempt that this writer writes for; 0 before the first."""
        return self._attempt

    def _begun(self, view: LogView, record: AttemptBegun) -> None:
        self._lost = view.damage
        self._view, self._attempt, self._fenced = view.after(record), record.attempt, None
        if view.compacted_at is not None:
            # The hint is missing because its writer died, or old because a paused writer wrote it. If this
            # fails, the next compaction writes it.
            with suppress(StorageError):
                if self._reader.hint.is_older_than(view.compacted_at):
                    self._reader.hint.write(view.compacted_at)

    def _is_own(self, slot: int, record: AttemptBegun) -> bool:
        """Whether a slot that is taken holds this writer's record, which no other writer can have written."""
        if not self._writer:
            return False
        try:
            return self._reader.read(slot) == record
        except StorageError:  # the replay that follows says what is wrong
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
            f"job id {job!r} is taken: {where} holds {view.next_slot} records of an earlier job, whose last "
            f"attempt is {view.last_attempt}. Nothing was changed there; submit the job again"
        )

    def _append(self, record: LogRecord) -> Claim:
        claim, view = self._claim(record), self._view
        is_due = view.ended is None and view.records_since_compaction >= self._compact_every
        if is_due and isinstance(claim, Claimed):
            self._compact(record.at)
        return claim

    def _claim(self, record: LogRecord) -> Claim:
        if self._attempt == 0:
            msg = "an attempt must begin before it decides anything"
            raise RuntimeError(msg)
        while True:
            if self._fenced is not None:
                return self._fenced
            known = self._known(record)
            if known is not None:
                return known
            slot = self._view.next_slot
            data = encode_record(record, self._view.to_pass)
            try:
                found = self._slots.claim(slot, data)
            except IncompleteFileError:
                self._view = self._view.passing()
                continue
            if found == record:  # a retry below the storage may report the writer's own record as taken
                self._slots.may_hold.add(data)
            is_own = found is not None and found.attempt == self._attempt
            if is_own or (found is None and self._slots.was_in_doubt):
                past = self._past(slot, record, data)
                if past is not None:
                    return past
            if found is None or found == record:
                self._view = self._view.after(record)
                return Claimed(slot)
            self._follow(slot, found)

    def _known(self, record: LogRecord) -> Claim | None:
        """The outcome, if the log is known to have the record from an earlier try without an answer."""
        ended = self._view.ended
        if isinstance(record, JobEnded) and ended is not None and ended.state == record.state:
            return Claimed(self._view.next_slot - 1)
        if ended is not None:
            return Fenced(ended.attempt)
        if isinstance(record, CheckpointCompleted):
            for completed in self._view.completed:
                if completed.metadata == record.metadata:
                    return Claimed(self._view.next_slot - 1)
        return None

    def _past(self, slot: int, record: LogRecord, data: bytes) -> Claim | None:
        """The answer for a slot in doubt when a newer attempt has compacted the log behind it, else `None`.

        No `AttemptBegun` has the slot, so a record of this writer had it. That record may have been deleted,
        and the present content of the slot may have no effect. If this writer can have put no other record
        there, the record in doubt had the slot.
        """
        try:
            view = None if self._reader.is_intact(self._view) else self._reader.compacted_behind(slot)
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
            return self._fenced  # no attempt begins behind the end of a job
        is_kept = isinstance(record, CheckpointCompleted) and any(
            completed.metadata == record.metadata for completed in view.completed
        )
        if is_kept or self._slots.may_hold == {data}:
            return Claimed(slot)
        if data not in self._slots.may_hold:
            return self._fenced
        where = f"{self._storage.url}/{self._paths.log_slot(slot)}"
        msg = (
            f"it is unknown whether a record was ever in {where}: it was one of several whose writing was "
            f"not answered, and attempt {view.last_attempt} has compacted the log since"
        )
        raise OutcomeUnknownError(msg)

    def _follow(self, slot: int, found: LogRecord) -> None:
        """Add the record that has the slot to the view, or note that a newer attempt owns the job."""
        if found.attempt > self._attempt:
            self._fenced = Fenced(found.attempt)
        elif found.attempt == self._attempt:
            self._view = self._view.after(found)
        else:
            msg = (
                f"{self._storage.url}/{self._paths.log_slot(slot)} was written by attempt {found.attempt} "
                f"after attempt {self._attempt} had begun; does the storage really refuse to overwrite?"
            )
            raise CorruptSnapshotError(msg)

    def _compact(self, now: float) -> None:
        record, slot = self._view.compacted(now), self._view.next_slot
        try:
            found = self._slots.claim(slot, encode_record(record, self._view.to_pass))
            if found is not None and found != record:
                # A compaction covers the slots in front of its own, so it would be wrong in any other slot.
                self._follow(slot, found)
                return
            # Unless the log is known to be intact, the next record checks whether this writer is fenced.
            self._slots.in_doubt = slot
            if not self._reader.is_intact(self._view):
                return
            self._slots.in_doubt = -1
            self._view = self._view.after(record)
            self._reader.hint.write(slot)
            if record.previous is not None:
                self._delete_superseded(record.previous, {*record.begun_slots, *record.passed_slots})
        except StorageError:
            pass  # the next compaction makes up for it

    def _delete_superseded(self, before: int, keep: Collection[int]) -> None:
        for slot in self._reader.compactions_before(before):
            self._storage.delete([self._paths.log_slot(slot)])
        self._storage.delete(self._reader.superseded(before, keep))
