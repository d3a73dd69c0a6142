"""States that no decision log may ever show, whichever process wrote it and whenever it died."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.runtime.checkpoint.log.records import AttemptBegun, JobEnded, LogRecord, decode_record
from penstock.runtime.ports import SnapshotStorage
from penstock.runtime.snapshot.paths import SnapshotPaths


def records_in(storage: SnapshotStorage, paths: SnapshotPaths) -> list[LogRecord]:
    """The records of all slots as they lie there, read past the log's own reader."""
    slots = sorted(path for path in storage.list(paths.log) if paths.slot_of(path) is not None)
    return [decode_record(storage.get(path), path) for path in slots]


def check_order(happened: Sequence[LogRecord]) -> None:
    """Each record is of the attempt that began last in front of it, and nothing follows the end."""
    owner = 0
    for record in happened:
        if isinstance(record, AttemptBegun):
            assert record.attempt > owner
            owner = record.attempt
        assert record.attempt == owner, f"attempt {owner} owned the job when {record} was written"
    assert all(not isinstance(record, JobEnded) for record in happened[:-1])
