"""`LogSlots`: claims slots of the decision log by put-if-absent.

A put that seems to fail may have succeeded, or may still take effect. So a claim retries the same bytes.
If the slot is then taken, the claim reads its record, which may be the writer's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from penstock.runtime.checkpoint.log.reader import DecisionLogReader
from penstock.runtime.checkpoint.log.records import LogRecord
from penstock.runtime.errors import CorruptSnapshotError, ObjectExistsError, StorageError, StorageTimeoutError
from penstock.runtime.ports import SnapshotStorage
from penstock.runtime.snapshot.paths import SnapshotPaths


class OutcomeUnknownError(StorageError):
    """The log may or may not have the record; files that depend on it must stay."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """The decision is in the log."""

    slot: int


@dataclass(frozen=True, slots=True)
class Fenced:
    """The decision is not in the log: a newer attempt owns the job, or the job has ended."""

    newer_attempt: int


Claim: TypeAlias = Claimed | Fenced


#: Number of failed puts after which the outcome counts as unknown; a put that times out is the last one.
PUT_TRIES: Final = 3


class LogSlots:
    """Puts records into the slots of one job's log; every call blocks.

    Attributes:
        in_doubt: The slot of the last claim if its content is unknown, else -1.
        was_in_doubt: Whether an earlier put into the slot of the last claim may have succeeded.
        may_hold: All data that this writer may have put into the slot of the last claim.
    """

    def __init__(self, storage: SnapshotStorage, paths: SnapshotPaths, reader: DecisionLogReader) -> None:
        self._storage = storage
        self._paths = paths
        self._reader = reader
        self.in_doubt = -1
        self.was_in_doubt = False
        self.may_hold: set[bytes] = set()

    def put_once(self, slot: int, data: bytes) -> None:
        """Try once to claim a slot; after a `StorageError` the put may have succeeded."""
        self._storage.put(self._paths.log_slot(slot), data, create=True)

    def claim(self, slot: int, data: bytes) -> LogRecord | None:
        """Claim a slot; return `None` on success, otherwise the record that has the slot.

        Raises:
            OutcomeUnknownError: Every put failed, or the storage can't read the taken slot.
            CorruptSnapshotError: The record in the taken slot is damaged; `IncompleteFileError` if truncated.
        """
        self.was_in_doubt = self.in_doubt == slot
        if not self.was_in_doubt:
            self.may_hold.clear()
        self.in_doubt = slot
        for _ in range(PUT_TRIES):
            try:
                self.put_once(slot, data)
            except ObjectExistsError:
                found = self._found(slot)
                self.in_doubt = -1
                return found
            except StorageError as error:
                silence = error
                self.was_in_doubt = True
                self.may_hold.add(data)
                if isinstance(error, StorageTimeoutError):
                    break  # the wait has reached the user's limit
            else:
                self.in_doubt = -1
                self.may_hold.add(data)
                return None
        msg = (
            "it is unknown whether a record was written to "
            f"{self._storage.url}/{self._paths.log_slot(slot)}: {silence}"
        )
        raise OutcomeUnknownError(msg) from silence

    def _found(self, slot: int) -> LogRecord:
        try:
            return self._reader.read(slot)
        except CorruptSnapshotError:
            raise
        except StorageError as error:
            msg = f"it is unknown what slot {slot} of {self._storage.url}/{self._paths.log} holds: {error}"
            raise OutcomeUnknownError(msg) from error
