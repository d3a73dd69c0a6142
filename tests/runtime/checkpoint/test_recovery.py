from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

import pytest

from penstock.runtime.checkpoint.coordinator.completion import Finalized, complete_checkpoint
from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.checkpoint.recovery import left_at_end, load_latest, rebuild_store
from penstock.runtime.errors import CorruptSnapshotError
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import (
    FileHandle,
    KeyedStateHandle,
    KeyGroupRange,
    OperatorState,
    OperatorSubtaskState,
)
from penstock.runtime.snapshot.metadata import write_state_file
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.snapshot.storage import MemoryStorage

PATHS = SnapshotPaths("job")


class Job:
    """A job that takes checkpoints; each has a file of its own and names those it is given, too."""

    def __init__(self) -> None:
        self.storage = MemoryStorage()
        self.log = DecisionLog(self.storage, PATHS)
        self.attempt = 0
        self.restart()

    def restart(self) -> None:
        self.log = DecisionLog(self.storage, PATHS)
        self.log.begin_attempt(0.0)
        self.attempt = self.log.view.last_attempt

    def state_file(self, checkpoint_id: int, kind: SnapshotKind = SnapshotKind.CHECKPOINT) -> FileHandle:
        named = PATHS.savepoint_file if kind.is_savepoint else PATHS.shared_file
        path = named(
            checkpoint_id=checkpoint_id, attempt=self.attempt, operator_id="count", subtask=0, number=0
        )
        return write_state_file(self.storage, path, b"state")

    def checkpoint(
        self,
        checkpoint_id: int,
        *shared: FileHandle,
        kind: SnapshotKind = SnapshotKind.CHECKPOINT,
        retained: int = 5,
    ) -> CompletedCheckpoint:
        files = (*shared, self.state_file(checkpoint_id, kind))
        state = OperatorSubtaskState((KeyedStateHandle(KeyGroupRange(0, 127), files),))
        operators = {"count": OperatorState("count", 1, 128, {0: state})}
        taken = CompletedCheckpoint(checkpoint_id, self.attempt, kind, operators, 1.0, 2.0)
        outcome = complete_checkpoint(self.storage, PATHS, self.log, taken, retained=retained)
        assert isinstance(outcome, Finalized)
        return outcome.checkpoint


@pytest.fixture
def job() -> Job:
    return Job()


def state_path(checkpoint: CompletedCheckpoint) -> str:
    return next(handle.path for handle in checkpoint.files())


def metadata_path(checkpoint: CompletedCheckpoint) -> str:
    assert checkpoint.metadata is not None
    return checkpoint.metadata.path


def test_a_job_without_checkpoints_starts_from_nothing(job: Job) -> None:
    assert load_latest(job.storage, job.log.view, allow_older=False) is None


def test_a_job_starts_from_the_newest_checkpoint(job: Job) -> None:
    job.checkpoint(1)
    newest = job.checkpoint(2)
    job.restart()
    loaded = load_latest(job.storage, job.log.view, allow_older=False)
    assert loaded is not None
    assert (loaded.checkpoint, loaded.damaged, loaded.warning) == (newest, (), None)


@pytest.mark.parametrize("part", [state_path, metadata_path])
def test_a_newest_checkpoint_that_misses_a_file_is_an_error_that_names_it(
    job: Job, part: Callable[[CompletedCheckpoint], str]
) -> None:
    job.checkpoint(1)
    path = part(job.checkpoint(2))
    job.storage.delete([path])
    with pytest.raises(CorruptSnapshotError) as caught:
        load_latest(job.storage, job.log.view, allow_older=False)
    assert f"checkpoint 2: memory:/{path} is part of a snapshot but is not there" in str(caught.value)
    assert "set Checkpointing(allow_older=True) to start from an older checkpoint (available: 1)" in str(
        caught.value
    )


@pytest.mark.parametrize("shown", [0, 1])
def test_a_file_that_an_old_listing_lacks_is_not_missing(
    job: Job, shown: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = job.checkpoint(2, job.state_file(1))
    listed = job.storage.list
    monkeypatch.setattr(job.storage, "list", lambda prefix: listed(prefix)[:shown])
    loaded = load_latest(job.storage, job.log.view, allow_older=False)
    assert loaded is not None
    assert (loaded.checkpoint, loaded.warning) == (newest, None)


def test_damaged_metadata_is_an_error_that_names_it(job: Job) -> None:
    path = metadata_path(job.checkpoint(1))
    job.storage.put(path, b"x" + job.storage.get(path)[1:])
    with pytest.raises(CorruptSnapshotError, match=rf"memory:/{path} should be .* damaged.* start a new job"):
        load_latest(job.storage, job.log.view, allow_older=False)


def test_an_older_checkpoint_is_taken_when_the_user_allows_it_and_the_user_is_told(job: Job) -> None:
    older = job.checkpoint(1)
    path = metadata_path(job.checkpoint(2))
    job.storage.delete([path])
    loaded = load_latest(job.storage, job.log.view, allow_older=True)
    assert loaded is not None
    assert (loaded.checkpoint, loaded.damaged) == (older, (2,))
    assert loaded.warning is not None
    assert path in loaded.warning
    assert "Sinks may repeat output that was committed since checkpoint 1" in loaded.warning


def test_damage_that_showed_when_a_checkpoint_was_restored_counts_like_any_other(job: Job) -> None:
    older, newer = job.checkpoint(1), job.checkpoint(2)
    known = {newer.checkpoint_id: "job/shared/2-1-count-0-0 is damaged"}
    loaded = load_latest(job.storage, job.log.view, allow_older=True, known_damage=known)
    assert loaded is not None
    assert (loaded.checkpoint, loaded.damaged) == (older, (2,))
    assert loaded.warning is not None
    assert known[2] in loaded.warning


def test_if_all_are_damaged_all_are_named(job: Job) -> None:
    paths = [metadata_path(job.checkpoint(number)) for number in (1, 2)]
    job.storage.delete(paths)
    with pytest.raises(CorruptSnapshotError) as caught:
        load_latest(job.storage, job.log.view, allow_older=True)
    assert all(path in str(caught.value) for path in paths)
    assert "allow_older" not in str(caught.value)


def test_the_store_is_rebuilt_from_the_log(job: Job) -> None:
    first = job.checkpoint(1)
    second = job.checkpoint(2)
    job.restart()
    rebuilt = rebuild_store(job.storage, PATHS, job.log.view, attempt=2, retained=2)
    assert rebuilt.store.all == (first, second)
    assert (rebuilt.damaged, rebuilt.orphans) == ((), ())


def test_files_that_a_past_attempt_left_behind_are_found(job: Job) -> None:
    kept = job.checkpoint(1)
    gone = job.checkpoint(2, retained=1)
    orphan = job.state_file(3)
    job.log.drop((2,), 0.0)
    job.storage.put("job/status.json", b"")
    job.restart()
    own = job.state_file(4)
    rebuilt = rebuild_store(job.storage, PATHS, job.log.view, attempt=2, retained=1)
    expected = {state_path(kept), metadata_path(kept), state_path(gone), metadata_path(gone), orphan.path}
    assert set(rebuilt.orphans) == expected
    assert own.path not in rebuilt.orphans


def test_in_flight_data_of_a_past_attempt_that_no_checkpoint_names_is_found(job: Job) -> None:
    job.checkpoint(1)
    place = {"checkpoint_id": 2, "vertex": "count", "subtask": 0}
    left, own = (PATHS.channel_state(attempt=attempt, **place) for attempt in (1, 2))
    for path in (left, own):
        job.storage.put(path, b"rows")
    job.restart()
    rebuilt = rebuild_store(job.storage, PATHS, job.log.view, attempt=2, retained=1)
    assert rebuilt.orphans == (left,)


def test_a_file_that_an_older_checkpoint_shares_with_a_kept_one_is_no_orphan(job: Job) -> None:
    first = job.checkpoint(1)
    shared = next(first.files())
    job.checkpoint(2, shared, retained=1)
    job.restart()
    rebuilt = rebuild_store(job.storage, PATHS, job.log.view, attempt=2, retained=1)
    assert rebuilt.orphans == (metadata_path(first),)


def test_savepoints_stay_and_are_not_read_also_where_a_listing_leaves_out_their_metadata(job: Job) -> None:
    saved = [job.checkpoint(number, kind=SnapshotKind.SAVEPOINT, retained=1) for number in range(1, 50)]
    job.checkpoint(50, retained=1)
    job.restart()
    hidden = [metadata_path(savepoint) for savepoint in saved]
    storage = Counting(job.storage, hidden)
    view = replace(job.log.view, completed=job.log.view.completed[-1:])
    rebuilt = rebuild_store(storage, PATHS, view, attempt=2, retained=1)
    assert rebuilt.orphans == ()
    assert len(storage.read) == 1, "the checkpoint"


def test_nothing_is_swept_while_a_checkpoint_is_damaged(job: Job) -> None:
    job.storage.delete([metadata_path(job.checkpoint(1))])
    job.state_file(2)
    job.restart()
    rebuilt = rebuild_store(job.storage, PATHS, job.log.view, attempt=2, retained=1)
    assert (rebuilt.damaged, rebuilt.orphans) == ((1,), ())


class Counting(MemoryStorage):
    """Notes what is read, and what is to be swept; lists in part."""

    def __init__(self, objects: MemoryStorage, hidden: Collection[str] = ()) -> None:
        super().__init__()
        self._hidden = frozenset(hidden)
        self._objects = objects._objects
        self.read: list[str] = []
        self.past: list[bool] = []

    def get(self, path: str) -> bytes:
        self.read.append(path)
        return super().get(path)

    def list(self, prefix: str) -> list[str]:
        return [path for path in super().list(prefix) if path not in self._hidden]

    def delete_staged(self, prefix: str, is_past: Callable[[str], bool]) -> int:
        names = ("shared/1-7-count-0-0", "savepoint-7-1/metadata", "log/7", "shared/2-8-count-0-0")
        self.past = [is_past(prefix + name) for name in names]
        return 0


def test_what_killed_writers_of_earlier_attempts_left_half_way_is_swept(job: Job) -> None:
    job.checkpoint(1)
    job.restart()
    storage = Counting(job.storage)
    rebuild_store(storage, PATHS, job.log.view, attempt=2, retained=1)
    assert storage.past == [True, True, True, False]


def test_a_job_that_has_ended_leaves_no_file_of_aborted_checkpoints_but_what_is_kept(job: Job) -> None:
    kept = job.checkpoint(1)
    saved = job.checkpoint(2, kind=SnapshotKind.SAVEPOINT)
    late = job.state_file(3)
    in_flight = PATHS.channel_state(checkpoint_id=3, attempt=1, vertex="count", subtask=0)
    for path in (in_flight, PATHS.assigned_id(3), "job/status.json"):
        job.storage.put(path, b"")
    left = {late.path, in_flight, PATHS.assigned_id(3)}
    assert set(left_at_end(job.storage, PATHS, job.log.view, keeps=True)) == left
    of_the_kept = {state_path(kept), metadata_path(kept)}
    assert set(left_at_end(job.storage, PATHS, job.log.view, keeps=False)) == left | of_the_kept
    assert not left & {state_path(saved), metadata_path(saved)}


def test_a_job_that_has_ended_sweeps_nothing_while_a_kept_checkpoint_is_damaged(job: Job) -> None:
    job.storage.delete([metadata_path(job.checkpoint(1))])
    job.state_file(2)
    assert left_at_end(job.storage, PATHS, job.log.view, keeps=True) == ()
