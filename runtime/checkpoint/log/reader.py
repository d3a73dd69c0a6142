"""The reader of the decision log, and the hint that it begins with.

Reads the decision log: from the compaction that the hint names on, slot by slot, up to the first free one.

A listing can't be believed to be fresh: some stores and network file systems list late, or in part. One that
is older than two compactions shows slots of which some were deleted. A writer that took the slot behind them
for free would begin an attempt that no other writer sees, and both would decide. So the reader trusts single
reads alone, and these see the last write. It begins at the compaction of the hint and reads on until a slot
is missing. The listing only shows what should be there and is not.

Why it finds the end of the log, whatever the listing shows. Three rules of the writer matter here.

a) A hint is acknowledged before anything is deleted, and names a compaction that was claimed.
b) Slots in front of the last but one compaction are deleted. Older compactions go before all others, the
   oldest first, each in a call of its own.
c) There are no gaps: a slot is claimed only behind slots that were seen.

By b, *while a compaction can be read, no slot behind it has been deleted*. There is one exception. A writer
may sleep in the middle of its put of a compaction, and put it again after it was deleted. It then finds by
the hint that it is past (rule 5 of `decision_log`). So a writer that takes a slot for free looks at both:
its compaction must be there, and the hint must name no later one. The reader reads forwards, finds
slot e missing, and reads its compaction *last*. If that is there, e was not deleted before, so e was never
written, and by c nothing behind it. Without a hint it begins at slot 0 and looks for the hint last. If there
is still none, nothing was deleted, by a. Otherwise it begins again.

A hint may be old: a writer that was replaced wakes up, and its put lands late. Then it names an older
compaction. If that is there, the argument holds. If it was deleted, the reader begins at the newest
compaction that is listed and can be read. The argument holds for each of these. A listing that shows none is
too old, and the reader fails by name. So a wrong answer it never gives. What it can't
survive: a hint that is old or gone while listings are stale. Nor a hint that is old or damaged while the
compaction that it names was put a second time. The next attempt or compaction mends a hint.

A log whose hint is damaged is read from the newest slot that is listed, and backwards to a compaction. The
next attempt writes a new hint.
Where no compaction can be read, a damaged record may be one: the error names it, not a slot that is missing.

*Slots that are cut off.* The newest slots may be cut off after a power cut: their writers were never told
that they were written. The reader leaves them out. Whether they count is decided by the next record. It names
the slots that it passes over, and like any decision it is made by one writer alone. From then on they
have no effect, even if they can be read. A cut-off slot that no later record passes over is
damage: a later writer has seen it whole.

*Damage* is an error that names the file. With `allow_damaged` damaged slots are left out, too, and the next
record passes over them. What they decided is lost. The compaction before makes a damaged one good. Where
there is none any more, the damage is an error all the same.

`CompactionHint`: the slot of a compaction, in a file that is written before anything is deleted.

Why a listing is not enough, and why the hint may be old, is said above.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from penstock.runtime.checkpoint.log.records import LogCompacted, LogEntry, LogRecord, LogView, decode_entry
from penstock.runtime.errors import CorruptSnapshotError, ObjectNotFoundError
from penstock.runtime.ports import SnapshotStorage
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.snapshot.sealed_file import IncompleteFileError, damaged, seal, unseal

_MAGIC: Final = b"PENSTKLH"

_VERSION: Final = 1

_WHAT: Final = "the hint of the decision log"


class CompactionHint:
    """Reads and writes the hint of one job's log; every call blocks."""

    def __init__(self, storage: SnapshotStorage, paths: SnapshotPaths) -> None:
        self._storage = storage
        self._path = paths.log_hint

    def write(self, slot: int) -> None:
        """Point at a compaction.

        Raises:
            StorageError: It could not be written; it may be there all the same.
        """
        self._storage.put(self._path, seal(_MAGIC, _VERSION, [slot]))

    def is_there(self) -> bool:
        """Whether a hint was ever written, damaged or not."""
        try:
            self._storage.get(self._path)
        except ObjectNotFoundError:
            return False
        return True

    def is_older_than(self, slot: int) -> bool:
        """Whether it does not lead to the compaction in `slot`, or a later one."""
        try:
            found = self.read()
        except CorruptSnapshotError:
            return True
        return found is None or found < slot

    def read(self) -> int | None:
        """The slot of a compaction; `None` when there is no hint.

        Raises:
            CorruptSnapshotError: It is damaged.
        """
        try:
            data = self._storage.get(self._path)
        except ObjectNotFoundError:
            return None
        where = f"{self._storage.url}/{self._path}"
        body = unseal(_MAGIC, _VERSION, data, _WHAT, where)
        try:
            (slot,) = map(int, body)
        except (TypeError, ValueError) as error:
            raise damaged(_WHAT, where, f"its content makes no slot ({error})") from error
        return slot


#: Number of replays when a slot is missing: another writer may have compacted meanwhile.
REPLAY_TRIES: Final = 5

#: What was found in the slots from one on: an entry, or why there is none.
_Found: TypeAlias = list[tuple[int, LogEntry | CorruptSnapshotError]]


class DecisionLogReader:
    """Reads one job's log; every call blocks.

    Args:
        allow_damaged: Whether damaged slots are left out.

    Attributes:
        hint: Where a replay begins.
    """

    def __init__(
        self, storage: SnapshotStorage, paths: SnapshotPaths, *, allow_damaged: bool = False
    ) -> None:
        self._storage = storage
        self._paths = paths
        self._allow_damaged = allow_damaged
        self.hint = CompactionHint(storage, paths)

    def replay(self) -> LogView:
        """The state of the job after all records.

        Raises:
            CorruptSnapshotError: A record is damaged or missing.
        """
        for _ in range(REPLAY_TRIES):
            found = self._try_replay()
            if isinstance(found, LogView):
                return found
            error = found
        raise error

    def require_no_loss(self, found: LogView, known: LogView, known_attempt: int) -> None:
        """Check that a log still holds what is known of it.

        A log that was deleted looks like that of a new job. Such a job would begin again from nothing and
        write everything a second time.

        Raises:
            CorruptSnapshotError: It has lost its last records, or all of them.
        """
        if found.next_slot >= known.next_slot and (found.last_attempt >= known_attempt or found.damage):
            return
        msg = (
            f"{self._storage.url}/{self._paths.log} has lost records: attempt "
            f"{max(known_attempt, known.last_attempt)} of the job had begun, and the log ends with attempt "
            f"{found.last_attempt}. Put the files back, and see that nothing but Penstock deletes files there"
        )
        raise CorruptSnapshotError(msg)

    def read(self, slot: int) -> LogRecord:
        """The record in a slot.

        Raises:
            ObjectNotFoundError: There is none.
            IncompleteFileError: It is cut off.
            CorruptSnapshotError: It is damaged.
        """
        return self._entry(slot).record

    def is_intact(self, view: LogView) -> bool:
        """Whether no slot at or behind the end of `view` has been deleted up to now; blocks.

        `False` means that another writer has compacted since, not that something was deleted. A compaction
        that can be read is no proof by itself: the late put of a writer that slept may have brought it back.
        """
        if view.compacted_at is None:
            return not self.hint.is_there()
        try:
            self._storage.get(self._paths.log_slot(view.compacted_at))
        except ObjectNotFoundError:
            return False
        try:
            hinted = self.hint.read()
        except CorruptSnapshotError:
            return True  # it tells nothing; the next attempt writes it anew
        return hinted is None or hinted <= max(view.compacted_at, view.hinted)

    def compacted_behind(self, slot: int) -> LogView | None:
        """The log, if a compaction comes after `slot`: that may have been deleted."""
        view = self.replay()
        return view if view.compacted_at is not None and view.compacted_at > slot else None

    def compactions_before(self, slot: int) -> Sequence[int]:
        """Compactions in front of the one in `slot` that were not deleted, oldest first.

        Raises:
            CorruptSnapshotError: One is damaged, or names one behind itself.
        """
        found: list[int] = []
        try:
            while isinstance(record := self.read(slot), LogCompacted) and record.previous is not None:
                if record.previous >= slot:
                    msg = (
                        f"{self._storage.url}/{self._paths.log_slot(slot)} is damaged: it says that the "
                        f"compaction in front of it is in slot {record.previous}"
                    )
                    raise CorruptSnapshotError(msg)
                slot = record.previous
                self._storage.get(self._paths.log_slot(slot))
                found.append(slot)
        except ObjectNotFoundError:
            pass  # it and all in front of it are gone
        return found[::-1]

    def superseded(self, before: int, keep: Collection[int]) -> list[str]:
        """Paths of the slots in front of `before`, without those in `keep`."""
        kept = frozenset(keep)
        return [self._paths.log_slot(slot) for slot in self._slots() if slot < before and slot not in kept]

    def _entry(self, slot: int) -> LogEntry:
        path = self._paths.log_slot(slot)
        return decode_entry(self._storage.get(path), f"{self._storage.url}/{path}")

    def _slots(self) -> list[int]:
        found = map(self._paths.slot_of, self._storage.list(self._paths.log))
        return sorted(slot for slot in found if slot is not None)

    def _missing(self, slot: int) -> CorruptSnapshotError:
        msg = (
            f"{self._storage.url}/{self._paths.log_slot(slot)} is missing from the decision log; "
            "put it back, and see that nothing but Penstock deletes files there"
        )
        return CorruptSnapshotError(msg)

    def _try_replay(self) -> LogView | CorruptSnapshotError:
        try:
            hinted, is_damaged = self.hint.read(), False
        except CorruptSnapshotError:
            hinted, is_damaged = None, True
        if hinted is not None:
            view = self._replay_behind_hint(hinted)
            return replace(view, hinted=hinted) if isinstance(view, LogView) else view
        found = self._read_on(0)
        listed = self._slots()
        if is_damaged or (listed and listed[-1] > len(found)):
            return self._replay_backwards(listed, is_damaged)
        return self._missing(len(found)) if self.hint.is_there() else self._view(LogView(), found)

    def _replay_behind_hint(self, hinted: int) -> LogView | CorruptSnapshotError:
        found = self._replay_from(hinted)
        if isinstance(found, LogView) or (newer := self._compaction_behind(hinted)) is None:
            return found
        return self._replay_from(newer)

    def _replay_from(self, compaction: int) -> LogView | CorruptSnapshotError:
        found = self._read_on(compaction + 1)
        end = compaction + 1 + len(found)
        listed = self._slots()
        if listed and listed[-1] > end:
            found += self._read_on(end)  # an owner that is still at work may have written them meanwhile
            end = compaction + 1 + len(found)
            if listed[-1] > end:
                return self._missing(end)
        try:
            record = self.read(compaction)
        except ObjectNotFoundError:
            return self._missing(compaction)
        except CorruptSnapshotError:
            if not self._allow_damaged:
                raise
            found_before = self._replay_backwards([*range(end)], is_hinted=True)
            if isinstance(found_before, LogView):
                return found_before
            if (newer := self._compaction_behind(compaction)) is None:
                raise
            return self._replay_from(newer)
        if not isinstance(record, LogCompacted):
            msg = f"{self._storage.url}/{self._paths.log_slot(compaction)} should be a compaction of the log"
            raise CorruptSnapshotError(msg)
        return self._view(LogView.at_compaction(record, compaction), found)

    def _compaction_behind(self, slot: int) -> int | None:
        """The newest compaction behind a slot that is listed and can be read; `None` when there is none."""
        passed: set[int] = set()
        for listed in reversed(self._slots()):
            if listed <= slot:
                break
            if listed in passed:
                continue
            try:
                entry = self._entry(listed)
            except (ObjectNotFoundError, CorruptSnapshotError):
                continue
            if isinstance(entry.record, LogCompacted):
                return listed
            passed.update(entry.passes)
        return None

    def _replay_backwards(self, listed: Sequence[int], is_hinted: bool) -> LogView | CorruptSnapshotError:
        """Read from the last slot back to the newest compaction.

        Where there is none, a damaged record may be the compaction, and what is missing was deleted by it.
        """
        last = listed[-1] if listed else -1
        found = self._read_on(last + 1)
        base = LogView()
        for slot in range(last, -1, -1):
            try:
                entry = self._entry(slot)
            except ObjectNotFoundError:
                return _damage_in(found) or self._missing(slot)
            except CorruptSnapshotError as error:
                found.insert(0, (slot, error))
                continue
            if isinstance(entry.record, LogCompacted):
                base = LogView.at_compaction(entry.record, slot)
                break
            found.insert(0, (slot, entry))
        if is_hinted and base.compacted_at is None:
            return _damage_in(found) or self._missing(last + 1)
        return self._view(base, found)

    def _read_on(self, slot: int) -> _Found:
        """The content of the slots from one on, up to the first that is not there."""
        found: _Found = []
        while True:
            try:
                found.append((slot, self._entry(slot)))
            except ObjectNotFoundError:
                return found
            except CorruptSnapshotError as error:
                found.append((slot, error))
            slot += 1

    def _view(self, base: LogView, found: _Found) -> LogView:
        passed: set[int] = set()
        kept: list[tuple[int, LogEntry]] = []
        to_pass: dict[int, CorruptSnapshotError] = {}
        for slot, entry in reversed(found):
            if slot in passed:
                continue
            if isinstance(entry, LogEntry):
                kept.append((slot, entry))
                passed.update(entry.passes)
            elif self._allow_damaged or (isinstance(entry, IncompleteFileError) and not kept):
                to_pass[slot] = entry
            else:
                raise entry
        view = base
        for slot, entry in reversed(kept):
            view = replace(view, next_slot=slot, to_pass=entry.passes).after(entry.record)
        damage = [str(error) for error in to_pass.values() if not isinstance(error, IncompleteFileError)]
        return replace(
            view,
            next_slot=base.next_slot + len(found),
            to_pass=tuple(sorted(to_pass)),
            damage=tuple(damage[::-1]),
        )


def _damage_in(found: _Found) -> CorruptSnapshotError | None:
    """The newest damage; a slot that is cut off is none."""
    errors = (error for _, error in reversed(found) if isinstance(error, CorruptSnapshotError))
    return next((error for error in errors if not isinstance(error, IncompleteFileError)), None)
