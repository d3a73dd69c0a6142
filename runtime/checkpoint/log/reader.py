"""Reads the decision log: backwards to the newest compaction, then forwards from there."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from penstock.runtime.checkpoint.log.records import LogCompacted, LogRecord, decode_record
from penstock.runtime.checkpoint.log.view import LogView
from penstock.runtime.errors import CorruptSnapshotError, ObjectNotFoundError
from penstock.runtime.ports import SnapshotStorage
from penstock.runtime.snapshot.paths import SnapshotPaths

#: Number of replays when a slot is missing: another writer may have compacted meanwhile.
REPLAY_TRIES: Final = 5


class DecisionLogReader:
    """Reads one job's log; every call blocks."""

    def __init__(self, storage: SnapshotStorage, paths: SnapshotPaths) -> None:
        self._storage = storage
        self._paths = paths

    def replay(self) -> LogView:
        """The state of the job after all records.

        Raises:
            CorruptSnapshotError: A record is damaged or missing.
            StorageError: The storage could not be read.
        """
        absent = 0
        for _ in range(REPLAY_TRIES):
            found = self._try_replay()
            if isinstance(found, LogView):
                return found
            absent = found
        msg = (
            f"{self._storage.url}/{self._paths.log_slot(absent)} is missing from the decision log; "
            "put it back, and see that nothing but Penstock deletes files there"
        )
        raise CorruptSnapshotError(msg)

    def require_no_loss(self, found: LogView, known: LogView, known_attempt: int) -> None:
        """Check that a log still holds what is known of it.

        A log that was deleted looks like that of a new job. Such a job would begin again from nothing and
        write everything a second time.

        Raises:
            CorruptSnapshotError: It has lost its last records, or all of them.
        """
        if found.next_slot >= known.next_slot and found.last_attempt >= known_attempt:
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
            CorruptSnapshotError: It is damaged.
            StorageError: It could not be read.
        """
        path = self._paths.log_slot(slot)
        return decode_record(self._storage.get(path), f"{self._storage.url}/{path}")

    def compacted_behind(self, slot: int) -> LogView | None:
        """The log, if a compaction comes after `slot`: that may have been deleted."""
        if not any(later > slot for later in self._slots()):
            return None
        view = self.replay()
        return view if view.compacted_at is not None and view.compacted_at > slot else None

    def superseded(self, before: int, keep: Collection[int]) -> list[str]:
        """Paths of the slots in front of `before`, without those in `keep`."""
        kept = frozenset(keep)
        return [self._paths.log_slot(slot) for slot in self._slots() if slot < before and slot not in kept]

    def _slots(self) -> list[int]:
        found = map(self._paths.slot_of, self._storage.list(self._paths.log))
        return sorted(slot for slot in found if slot is not None)

    def _try_replay(self) -> LogView | int:
        """The view, or the slot that is missing."""
        slots = self._slots()
        if not slots:
            return LogView()
        present = frozenset(slots)
        later: list[LogRecord] = []
        view = LogView()
        for slot in range(slots[-1], -1, -1):
            if slot not in present:
                return slot
            try:
                record = self.read(slot)
            except ObjectNotFoundError:
                return slot
            if isinstance(record, LogCompacted):
                view = LogView.at_compaction(record, slot)
                break
            later.append(record)
        for record in reversed(later):
            view = view.after(record)
        return view
