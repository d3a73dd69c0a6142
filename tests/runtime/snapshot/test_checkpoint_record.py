"""Records of checkpoints, as they are kept with the record of a job."""

import pytest

from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import (
    CheckpointFailureReason,
    CheckpointRecord,
    CheckpointStatus,
)
from penstock.runtime.snapshot.plain_values import from_plain, to_plain


@pytest.mark.parametrize("status", CheckpointStatus)
def test_a_record_comes_back_equal_from_plain_values(status: CheckpointStatus) -> None:
    failure = CheckpointFailureReason.CHECKPOINT_EXPIRED if status is CheckpointStatus.FAILED else None
    record = CheckpointRecord(7, 2, SnapshotKind.SAVEPOINT, status, 10.0, 1, 2, failure=failure)
    assert from_plain(CheckpointRecord, to_plain(record)) == record


def test_a_status_that_there_is_not_is_refused() -> None:
    data = to_plain(CheckpointRecord(7, 2, SnapshotKind.CHECKPOINT, CheckpointStatus.FINALIZING, 10.0))
    assert data["status"] == "finalizing"
    with pytest.raises(TypeError, match="status is 'vanished', not a valid CheckpointStatus"):
        from_plain(CheckpointRecord, {**data, "status": "vanished"})
