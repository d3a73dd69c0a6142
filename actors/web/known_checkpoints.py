"""All checkpoints of a job, kept by the server so that its JobMaster is asked for them once.

A report has the last 20 checkpoints. The JobMaster remembers a thousand, and packing these costs it some
twenty milliseconds. A page that shows them wants them anew with each checkpoint. So the server asks once, and
from then on adds what reports bring. When a report does not join what is known, it asks once more: nobody
had looked for a while, and many checkpoints were taken meanwhile.

A record that has ended never changes. What another JobMaster has forgotten stays here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from penstock.actors.shared.job_report import CHECKPOINTS_SHOWN
from penstock.runtime.checkpoint.coordinator.checkpoint_records import CAPACITY, CheckpointRecords
from penstock.runtime.snapshot.checkpoint_record import CheckpointRecord, CheckpointStatus

_Key: TypeAlias = tuple[int, int, float]
#: States that a checkpoint does not leave.
_ENDED: Final = (CheckpointStatus.COMPLETED, CheckpointStatus.FAILED)
#: Records beyond the capacity that may gather before they are let go of; rare ones stay beyond it.
_SLACK: Final = 200


class KnownCheckpoints:
    """The checkpoints of one job.

    Attributes:
        is_complete: Whether it has all that the JobMaster remembers.
    """

    def __init__(self) -> None:
        self.is_complete = False
        self._known: dict[_Key, CheckpointRecord] = {}

    def records(self, shown: Iterable[CheckpointRecord] = ()) -> list[CheckpointRecord]:
        """All that are known, oldest first; with those of a report."""
        return [*self._joined(shown).values()]

    def merge(self, shown: Sequence[CheckpointRecord]) -> None:
        """A report has come, with these."""
        newest = shown[-CHECKPOINTS_SHOWN:]
        if len(newest) < CHECKPOINTS_SHOWN:  # there are no others
            self._known = _by_key(shown)
            self.is_complete = True
        elif self.is_complete and _key(newest[0]) in self._known:
            running = {_key(each) for each in newest if each.status not in _ENDED}
            joined = self._joined(newest)
            self._known = {
                key: each for key, each in joined.items() if each.status in _ENDED or key in running
            }
            self._bound()
        else:
            self.is_complete = False

    def take(self, remembered: Iterable[CheckpointRecord]) -> None:
        """The JobMaster has given all that it remembers."""
        given = _by_key(remembered)
        self._known = {
            key: each
            for key, each in self._joined(given.values()).items()
            if each.status in _ENDED or key in given
        }
        self._bound()
        self.is_complete = True

    def _joined(self, newer: Iterable[CheckpointRecord]) -> dict[_Key, CheckpointRecord]:
        joined = dict(self._known)
        is_in_order = True
        newest = next(reversed(joined), None)
        for key, each in _by_key(newer).items():
            known = joined.get(key)
            if known is None or known.status not in _ENDED:
                is_in_order &= known is not None or newest is None or key > newest
                joined[key] = each
        return joined if is_in_order else dict(sorted(joined.items()))

    def _bound(self) -> None:
        if len(self._known) > CAPACITY + _SLACK:
            bounded = CheckpointRecords()
            bounded.replace_all(self._known.values())
            self._known = _by_key(bounded)


def _key(record: CheckpointRecord) -> _Key:
    return record.attempt, record.checkpoint_id, record.triggered_at


def _by_key(records: Iterable[CheckpointRecord]) -> dict[_Key, CheckpointRecord]:
    return {_key(each): each for each in records}
