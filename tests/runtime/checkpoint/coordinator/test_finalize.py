from __future__ import annotations

from collections.abc import Iterable

import pytest

from penstock.runtime.checkpoint.coordinator.finalize import Fenced, Finalized, finalize
from penstock.runtime.checkpoint.log.decision_log import DecisionLog, OutcomeUnknownError
from penstock.runtime.errors import StorageError
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import (
    InlineHandle,
    KeyedStateHandle,
    KeyGroupRange,
    OperatorState,
    OperatorSubtaskState,
)
from penstock.runtime.snapshot.memory_storage import MemoryStorage
from penstock.runtime.snapshot.metadata import read_metadata, write_state_file
from penstock.runtime.snapshot.paths import SnapshotPaths

PATHS = SnapshotPaths("job")


class Failing(MemoryStorage):
    """Fails to put or delete what lies in a folder."""

    no_put = no_delete = "nowhere"

    def put(self, path: str, data: bytes, *, create: bool = False) -> None:
        if path.startswith(self.no_put):
            raise StorageError("disk full")
        super().put(path, data, create=create)

    def delete(self, paths: Iterable[str]) -> None:
        paths = list(paths)
        if any(path.startswith(self.no_delete) for path in paths):
            raise StorageError("read-only")
        super().delete(paths)


@pytest.fixture
def storage() -> Failing:
    return Failing()


@pytest.fixture
def log(storage: Failing) -> DecisionLog:
    log = DecisionLog(storage, PATHS)
    log.begin_attempt(0.0)
    return log


def acknowledged(
    storage: Failing, checkpoint_id: int, kind: SnapshotKind = SnapshotKind.CHECKPOINT
) -> CompletedCheckpoint:
    path = PATHS.shared_file(checkpoint_id=checkpoint_id, attempt=1, operator_id="count", subtask=0, number=0)
    files = (write_state_file(storage, path, b"12345"), InlineHandle(b"678"))
    state = OperatorSubtaskState((KeyedStateHandle(KeyGroupRange(0, 127), files),))
    operators = {"count": OperatorState("count", 1, 128, {0: state})}
    return CompletedCheckpoint(checkpoint_id, 1, kind, operators, 1.0, 2.0)


def test_a_finalized_checkpoint_stands_in_the_log_and_can_be_read(storage: Failing, log: DecisionLog) -> None:
    outcome = finalize(storage, PATHS, log, acknowledged(storage, 1))
    assert isinstance(outcome, Finalized)
    (record,) = DecisionLog(storage, PATHS).replay().completed
    assert read_metadata(storage, record.metadata) == outcome.checkpoint
    assert outcome.checkpoint.size == 8
    assert record.metadata == outcome.checkpoint.metadata


def test_the_log_lets_go_of_what_is_not_retained(storage: Failing, log: DecisionLog) -> None:
    for number in (1, 2, 3):
        finalize(storage, PATHS, log, acknowledged(storage, number), retained=2)
    finalize(storage, PATHS, log, acknowledged(storage, 4, SnapshotKind.SAVEPOINT), retained=2)
    assert [c.checkpoint_id for c in log.replay().completed] == [2, 3, 4]


def test_without_a_number_the_log_keeps_all(storage: Failing, log: DecisionLog) -> None:
    for number in (1, 2, 3):
        finalize(storage, PATHS, log, acknowledged(storage, number))
    assert len(log.replay().completed) == 3


def test_a_fenced_checkpoint_leaves_no_metadata(storage: Failing, log: DecisionLog) -> None:
    DecisionLog(storage, PATHS).begin_attempt(1.0)
    assert finalize(storage, PATHS, log, acknowledged(storage, 1)) == Fenced(2)
    assert storage.list("job/chk-1-1/") == []
    assert log.replay().completed == ()


def test_a_fenced_checkpoint_is_fenced_even_when_its_metadata_stays(
    storage: Failing, log: DecisionLog
) -> None:
    DecisionLog(storage, PATHS).begin_attempt(1.0)
    storage.no_delete = "job/chk-"
    assert finalize(storage, PATHS, log, acknowledged(storage, 1)) == Fenced(2)


def test_a_checkpoint_without_metadata_does_not_exist(storage: Failing, log: DecisionLog) -> None:
    storage.no_put = "job/chk-"
    with pytest.raises(StorageError, match="disk full") as caught:
        finalize(storage, PATHS, log, acknowledged(storage, 1))
    assert not isinstance(caught.value, OutcomeUnknownError)
    assert log.replay().completed == ()


def test_a_checkpoint_in_doubt_keeps_its_metadata(storage: Failing, log: DecisionLog) -> None:
    storage.no_put = "job/log/"
    with pytest.raises(OutcomeUnknownError):
        finalize(storage, PATHS, log, acknowledged(storage, 1))
    assert storage.list("job/chk-1-1/") == ["job/chk-1-1/metadata"]
