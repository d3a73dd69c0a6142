"""Replays the decision log from the compaction that its hint names, slot by slot, up to the first free one.

Some stores list files late, or only in part. A listing older than two compactions shows a deleted slot as the
end of the log. An attempt that begins there is invisible to other writers, and two attempts would decide. So
the reader relies on reads of single files, which see the last write. A listing only helps to find slots that
should be there.

*Why it finds the end of the log.* Three rules of the writer matter:

a) A hint is written before anything is deleted, and names a compaction that is in the log.
b) Only slots before the second-newest compaction are deleted. Compactions are deleted first, from the
   oldest to the newest, each in a call of its own.
c) There are no gaps.

By b, *while a compaction can be read, no slot after it has been deleted*. The reader reads forwards to a
missing slot e, and reads its compaction *last*. If the compaction is there, e was never written, and by c
neither was any later slot. Without a hint the reader begins at slot 0, and looks for the hint last. If there
still is no hint, nothing was deleted, by a. Otherwise it begins again.

There is one exception: a paused writer may put a deleted compaction again. It then learns from the hint that
it is fenced (rule 5 of `decision_log`). So a writer that considers a slot free checks both: its compaction is
there, and the hint names no later compaction.

*Old hints.* A paused writer may overwrite the hint with an older compaction. If that compaction is there, the
argument holds. If not, the reader begins at the newest compaction that is listed and readable. Without one,
the listing is too old, and the reader fails. The next attempt or compaction repairs the hint. With a damaged
hint, the reader goes backwards from the newest listed slot to a compaction. If none can be read, the error
names the damaged record, which may be the compaction. Two cases are not covered: stale listings while the
hint is old or missing, and an old or damaged hint whose compaction was put twice.

*Truncated slots.* A power cut may truncate the newest slots, whose puts were not confirmed. The reader skips
them. The next record names them in its `passes`; from then on they have no effect, even if they become
readable. A truncated slot that no later record names is damage, because a later writer has read it intact.

*Damage* is an error that names the file. With `allow_damaged` the reader skips damaged slots, and their
decisions are lost. Another readable compaction replaces a damaged one; without one, the error stays.
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
    """The slot of a compaction, in a file that is written before anything is deleted; every call blocks."""

    def __init__(self, storage: SnapshotStorage, paths: SnapshotPaths) -> None:
        self._storage = storage
        self._path = paths.log_hint

    def write(self, slot: int) -> None:
        self._storage.put(self._path, seal(_MAGIC, _VERSION, [slot]))

    def is_there(self) -> bool:
        """Whether a hint was ever written, damaged or not."""
        try:
            self._storage.get(self._path)
        except ObjectNotFoundError:
            return False
        return True

    def is_older_than(self, slot: int) -> bool:
        """Whether the hint is missing, is damaged, or names a compaction before `slot`."""
        try:
            found = self.read()
        except CorruptSnapshotError:
            return True
        return found is None or found < slot

    def read(self) -> int | None:
        """The slot of a compaction; `None` without a hint."""
        try:
            data = self._storage.get(self._path)
        except ObjectNotFoundError:
            return None
        where = f"{self._storage.url}/{self._path}"
        body = unseal(_MAGIC, _VERSION, data, _WHAT, where)
        try:
            (slot,) = map(int, body)
        except (TypeError, ValueError) as error:
            raise damaged(_WHAT, where, f"its content is not a slot ({error})") from error
        return slot


#: Maximum number of replays when a slot is missing, because another writer may have compacted meanwhile.
REPLAY_TRIES: Final = 5

#: Consecutive slots, each with its entry or its damage.
_Found: TypeAlias = list[tuple[int, LogEntry | CorruptSnapshotError]]


class DecisionLogReader:
    """Reads one job's log and, with `allow_damaged`, skips damaged slots; every call blocks."""

    def __init__(
        self, storage: SnapshotStorage, paths: SnapshotPaths, *, allow_damaged: bool = False
    ) -> None:
        self._storage = storage
        self._paths = paths
        self._allow_damaged = allow_damaged
        self.hint = CompactionHint(storage, paths)

    def replay(self) -> LogView:
        """The state of the job after all records."""
        for _ in range(REPLAY_TRIES):
            found = self._try_replay()
            if isinstance(found, LogView):
                return found
            error = found
        raise error

    def require_no_loss(self, found: LogView, known: LogView, known_attempt: int) -> None:
        """Raise a `CorruptSnapshotError` if a log has lost records that are known.

        A deleted log looks like the log of a new job, which would begin again and write its output twice.
        """
        if found.next_slot >= known.next_slot and (found.last_attempt >= known_attempt or found.damage):
            return
        msg = (
            f"{self._storage.url}/{self._paths.log} has lost records: attempt "
            f"{max(known_attempt, known.last_attempt)} of the job had begun, but the log ends with attempt "
            f"{found.last_attempt}. Put the files back, and let only Penstock delete files there"
        )
        raise CorruptSnapshotError(msg)

    def read(self, slot: int) -> LogRecord:
        """The record in a slot; an `IncompleteFileError` for a truncated one."""
        return self._entry(slot).record

    def is_intact(self, view: LogView) -> bool:
        """Whether no slot at or after the end of `view` has been deleted up to now.

        Returns `False` if another writer may have compacted since. A readable compaction alone proves
        nothing: a paused writer may have put it again.
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
            return True  # the next attempt repairs the hint
        return hinted is None or hinted <= max(view.compacted_at, view.hinted)

    def compacted_behind(self, slot: int) -> LogView | None:
        """The log if it has a compaction after `slot`, which may have deleted that slot; else `None`."""
        view = self.replay()
        return view if view.compacted_at is not None and view.compacted_at > slot else None

    def compactions_before(self, slot: int) -> Sequence[int]:
        """Compactions before the one in `slot` that were not deleted, oldest first."""
        found: list[int] = []
        try:
            while isinstance(record := self.read(slot), LogCompacted):
                previous = record.state.compacted_at
                if previous is None:
                    break
                if previous >= slot:
                    msg = (
                        f"{self._storage.url}/{self._paths.log_slot(slot)} is damaged: it names slot "
                        f"{previous} as the compaction before it"
                    )
                    raise CorruptSnapshotError(msg)
                slot = previous
                self._storage.get(self._paths.log_slot(slot))
                found.append(slot)
        except ObjectNotFoundError:
            pass  # this compaction and all earlier ones are deleted
        return found[::-1]

    def superseded(self, before: int, keep: Collection[int]) -> list[str]:
        """Paths of the slots below `before`, except those in `keep`."""
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
            "put it back, and let only Penstock delete files there"
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
            found += self._read_on(end)  # the owner may have written more slots meanwhile
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
        """The newest compaction after a slot that is listed and can be read; `None` without one."""
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

        Without a readable compaction, a damaged record may be the compaction that replaced the missing slots.
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
        """The content of the slots from `slot` on, up to the first free one."""
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
    """The newest damage; a truncated slot does not count."""
    errors = (error for _, error in reversed(found) if isinstance(error, CorruptSnapshotError))
    return next((error for error in errors if not isinstance(error, IncompleteFileError)), None)
