from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from manual_work import ManualAsyncRunner
from memory_storages import MemoryPlaces

from penstock.runtime.checkpoint.coordinator.completion import (
    CheckpointFinalizer,
    Fenced,
    Finalized,
    complete_checkpoint,
)
from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.checkpoint.log.slots import OutcomeUnknownError
from penstock.runtime.errors import StorageError
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import (
    FileHandle,
    InlineHandle,
    KeyedStateHandle,
    KeyGroupRange,
    OperatorState,
    OperatorSubtaskState,
)
from penstock.runtime.snapshot.metadata import read_metadata, write_state_file
from penstock.runtime.snapshot.paths import METADATA, SnapshotPaths
from penstock.runtime.snapshot.storage import MemoryStorage

PATHS = SnapshotPaths("job")


class Failing(MemoryStorage):
    """Fails to put or delete what lies in a folder, or to say that it was put."""

    no_put = no_delete = no_answer = "nowhere"

    def put(self, path: str, data: bytes, *, create: bool = False) -> None:
        if path.startswith(self.no_put):
            raise StorageError("disk full")
        super().put(path, data, create=create)
        if path.startswith(self.no_answer):
            raise StorageError("no answer")

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
    outcome = complete_checkpoint(storage, PATHS, log, acknowledged(storage, 1))
    assert isinstance(outcome, Finalized)
    (record,) = DecisionLog(storage, PATHS).replay().completed
    assert read_metadata(storage, record.metadata) == outcome.checkpoint
    assert outcome.checkpoint.size == 8
    assert record.metadata == outcome.checkpoint.metadata


def test_the_log_lets_go_of_what_is_not_retained(storage: Failing, log: DecisionLog) -> None:
    for number in (1, 2, 3):
        complete_checkpoint(storage, PATHS, log, acknowledged(storage, number), retained=2)
    complete_checkpoint(storage, PATHS, log, acknowledged(storage, 4, SnapshotKind.SAVEPOINT), retained=2)
    assert [c.checkpoint_id for c in log.replay().completed] == [2, 3, 4]


def test_without_a_number_the_log_keeps_all(storage: Failing, log: DecisionLog) -> None:
    for number in (1, 2, 3):
        complete_checkpoint(storage, PATHS, log, acknowledged(storage, number))
    assert len(log.replay().completed) == 3


def test_a_fenced_checkpoint_leaves_no_metadata(storage: Failing, log: DecisionLog) -> None:
    DecisionLog(storage, PATHS).begin_attempt(1.0)
    assert complete_checkpoint(storage, PATHS, log, acknowledged(storage, 1)) == Fenced(2)
    assert storage.list("job/chk-1-1/") == []
    assert log.replay().completed == ()


def test_a_fenced_checkpoint_is_fenced_even_when_its_metadata_stays(
    storage: Failing, log: DecisionLog
) -> None:
    DecisionLog(storage, PATHS).begin_attempt(1.0)
    storage.no_delete = "job/chk-"
    assert complete_checkpoint(storage, PATHS, log, acknowledged(storage, 1)) == Fenced(2)


def test_a_checkpoint_without_metadata_does_not_exist(storage: Failing, log: DecisionLog) -> None:
    storage.no_put = "job/chk-"
    with pytest.raises(StorageError, match="disk full") as caught:
        complete_checkpoint(storage, PATHS, log, acknowledged(storage, 1))
    assert not isinstance(caught.value, OutcomeUnknownError)
    assert log.replay().completed == ()


def test_metadata_that_was_written_although_the_storage_refused_it_is_deleted(
    storage: Failing, log: DecisionLog
) -> None:
    storage.no_answer = "job/chk-"
    with pytest.raises(StorageError, match="no answer"):
        complete_checkpoint(storage, PATHS, log, acknowledged(storage, 1))
    assert storage.list("job/chk-1-1/") == []


def test_a_checkpoint_in_doubt_keeps_its_metadata(storage: Failing, log: DecisionLog) -> None:
    storage.no_put = "job/log/"
    with pytest.raises(OutcomeUnknownError):
        complete_checkpoint(storage, PATHS, log, acknowledged(storage, 1))
    assert storage.list("job/chk-1-1/") == ["job/chk-1-1/metadata"]


# -- savepoints in folders of their own ---------------------------------------------------------------------


def saved_elsewhere(places: MemoryPlaces, location: str = "/saved/savepoint-1") -> CompletedCheckpoint:
    place = places(location, create=True)
    files = tuple(write_state_file(place, f"count-0-{number}", b"12345") for number in (0, 1))
    state = OperatorSubtaskState((KeyedStateHandle(KeyGroupRange(0, 127), files),))
    operators = {"count": OperatorState("count", 1, 128, {0: state})}
    return CompletedCheckpoint(1, 1, SnapshotKind.SAVEPOINT, operators, 1.0, 2.0, location=location)


def test_savepoint_is_complete_in_its_own_folder_which_can_be_moved(
    storage: Failing, log: DecisionLog
) -> None:
    places = MemoryPlaces()
    outcome = complete_checkpoint(storage, PATHS, log, saved_elsewhere(places), open_location=places)
    assert isinstance(outcome, Finalized)
    place = places("/saved/savepoint-1")
    assert place.list("") == ["count-0-0", "count-0-1", METADATA]
    found = read_metadata(place, place_metadata(place))
    assert found.location is None
    assert found.operators == outcome.checkpoint.operators
    assert outcome.checkpoint.location == "/saved/savepoint-1"


def place_metadata(place: MemoryStorage) -> FileHandle:
    return write_state_file(MemoryStorage(), METADATA, place.get(METADATA))


def test_fenced_savepoint_leaves_no_metadata_in_its_own_folder(storage: Failing, log: DecisionLog) -> None:
    places = MemoryPlaces()
    DecisionLog(storage, PATHS).begin_attempt(1.0)
    savepoint = saved_elsewhere(places)
    assert complete_checkpoint(storage, PATHS, log, savepoint, open_location=places) == Fenced(2)
    assert places("/saved/savepoint-1").list("") == ["count-0-0", "count-0-1"]


def test_savepoint_in_a_folder_that_nobody_can_open_does_not_exist(
    storage: Failing, log: DecisionLog
) -> None:
    with pytest.raises(StorageError, match="location /saved/savepoint-1 can't be opened"):
        complete_checkpoint(storage, PATHS, log, saved_elsewhere(MemoryPlaces()))
    assert log.replay().completed == ()


def test_savepoint_without_files_gets_its_folder(storage: Failing, log: DecisionLog) -> None:
    places = MemoryPlaces()
    savepoint = CompletedCheckpoint(1, 1, SnapshotKind.SAVEPOINT, {}, 1.0, 2.0, location="/saved/empty")
    assert isinstance(complete_checkpoint(storage, PATHS, log, savepoint, open_location=places), Finalized)
    assert places("/saved/empty").list("") == [METADATA]


def test_files_that_a_savepoint_has_copied_are_deleted_when_it_is_complete(storage: Failing) -> None:
    """A subtask wrote its file in attempt 1; attempt 2 completes the savepoint in its own folder."""
    log = DecisionLog(storage, PATHS)
    for at in (0.0, 1.0):
        log.begin_attempt(at)
    names = [
        PATHS.savepoint_file(checkpoint_id=1, attempt=attempt, operator_id="count", subtask=0, number=0)
        for attempt in (1, 2)
    ]
    file = write_state_file(storage, names[0], b"12345")
    state = OperatorSubtaskState((KeyedStateHandle(KeyGroupRange(0, 127), (file,)),))
    operators = {"count": OperatorState("count", 1, 128, {0: state})}
    savepoint = CompletedCheckpoint(1, 2, SnapshotKind.SAVEPOINT, operators, 1.0, 2.0)
    outcome = complete_checkpoint(storage, PATHS, log, savepoint)
    assert isinstance(outcome, Finalized)
    assert names[1] in [handle.path for handle in outcome.checkpoint.files()]
    assert [path for path in storage.list("") if path in names] == names[1:]


def test_fenced_checkpoint_of_the_jobs_own_storage_opens_no_folder(
    storage: Failing, log: DecisionLog
) -> None:
    DecisionLog(storage, PATHS).begin_attempt(1.0)

    def refuse(url: str, *, create: bool = False) -> MemoryStorage:
        raise AssertionError(url)

    assert complete_checkpoint(storage, PATHS, log, acknowledged(storage, 1), open_location=refuse) == Fenced(
        2
    )


def test_savepoint_whose_file_is_on_another_node_does_not_exist(storage: Failing, log: DecisionLog) -> None:
    places = MemoryPlaces()
    savepoint = saved_elsewhere(places)
    places("/saved/savepoint-1").delete(["count-0-0", "count-0-1"])
    with pytest.raises(
        StorageError, match="a subtask wrote /saved/savepoint-1/count-0-0, but the JobMaster does not find it"
    ):
        complete_checkpoint(storage, PATHS, log, savepoint, open_location=places)
    assert log.replay().completed == ()


# -- one after the other ------------------------------------------------------------------------------------


class Turns:
    """A finalizer that notes what is written and what came of it."""

    def __init__(self) -> None:
        self.runner = ManualAsyncRunner()
        self.finalizer = CheckpointFinalizer(self._write, self.runner)
        self.written: list[int] = []
        self.said: list[str] = []

    def _write(self, checkpoint: CompletedCheckpoint) -> Finalized:
        if checkpoint.checkpoint_id == 13:
            raise StorageError("disk full")
        self.written.append(checkpoint.checkpoint_id)
        return Finalized(checkpoint)

    def submit(self, checkpoint_id: int) -> None:
        self.finalizer.submit(
            checkpoint_id,
            lambda: replace(EMPTY, checkpoint_id=checkpoint_id),
            lambda outcome: self.said.append(f"{checkpoint_id} is written"),
            lambda error: self.said.append(f"{checkpoint_id}: {error}"),
        )


EMPTY = CompletedCheckpoint(0, 1, SnapshotKind.CHECKPOINT, {}, 1.0, 2.0)


def test_withdrawn_checkpoint_is_not_written_and_its_neighbours_are() -> None:
    turns = Turns()
    for checkpoint_id in (1, 2, 3, 4):
        turns.submit(checkpoint_id)
    turns.finalizer.withdraw(3)
    turns.finalizer.withdraw(1)
    assert [checkpoint_id for checkpoint_id in range(6) if turns.finalizer.waits(checkpoint_id)] == [2, 4]
    turns.runner.run_all()
    assert turns.written == [1, 2, 4], "the first was being written"


def test_idle_finalizer_calls_back_at_once_and_a_busy_one_after_the_last_outcome() -> None:
    turns = Turns()
    turns.finalizer.when_idle(lambda: turns.said.append("idle"))
    assert turns.said == ["idle"]
    turns.submit(13)
    turns.submit(14)
    turns.finalizer.when_idle(lambda: turns.said.append("idle again"))
    turns.runner.run_all()
    assert turns.said == ["idle", "13: disk full", "14 is written", "idle again"]
