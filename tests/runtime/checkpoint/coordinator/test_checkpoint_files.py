"""`CheckpointFiles` by itself: late files, forgotten ends, folders outside the job's storage, counters."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from manual_work import ManualAsyncRunner
from memory_storages import MemoryPlaces

from penstock.runtime.checkpoint.completed_store import CompletedCheckpointStore
from penstock.runtime.checkpoint.coordinator.files import REMEMBERED_ENDS, CheckpointFiles
from penstock.runtime.config.checkpointing import KeepAfter
from penstock.runtime.errors import StorageError
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import FileHandle
from penstock.runtime.snapshot.metadata import write_state_file
from penstock.runtime.snapshot.paths import METADATA, SnapshotPaths
from penstock.runtime.snapshot.storage import MemoryStorage

PATHS = SnapshotPaths("job")
SAVED = "/saved/savepoint-7"


class ReadOnly(MemoryStorage):
    """Deletes nothing."""

    def delete(self, paths: Iterable[str]) -> None:
        raise StorageError("read-only")


class World:
    """Files of one job, and places outside its storage."""

    def __init__(self, storage: MemoryStorage | None = None) -> None:
        self.storage = MemoryStorage() if storage is None else storage
        self.places = MemoryPlaces()
        self.runner = ManualAsyncRunner()
        self.files = CheckpointFiles(self.storage, PATHS, self.runner, self.places)

    def begin_attempt(self) -> None:
        self.files.begin_attempt(store())

    def file(self, checkpoint_id: int, number: int = 0) -> FileHandle:
        path = PATHS.shared_file(
            checkpoint_id=checkpoint_id, attempt=1, operator_id="count", subtask=0, number=number
        )
        return write_state_file(self.storage, path, b"state")

    def left(self) -> list[str]:
        self.runner.run_all()
        return self.storage.list("job/")


def store() -> CompletedCheckpointStore:
    return CompletedCheckpointStore(1, may_delete=PATHS.may_delete)


def completed(checkpoint_id: int) -> CompletedCheckpoint:
    return CompletedCheckpoint(checkpoint_id, 1, SnapshotKind.CHECKPOINT, {}, 1.0, 2.0)


def test_before_the_first_attempt_there_is_no_checkpoint_and_no_base() -> None:
    files = World().files
    assert not files.has_store
    assert (files.latest, files.base_id) == (None, -1)
    assert (files.deleted, files.failed_deletions) == (0, 0)


def test_region_goes_on_with_the_checkpoints_that_it_found() -> None:
    world, found = World(), store()
    world.begin_attempt()
    found.add(completed(4))
    world.files.begin_region(found)
    assert world.files.base_id == 4


def test_aborted_savepoint_is_deleted_from_its_own_folder() -> None:
    world = World()
    place = world.places(SAVED, create=True)
    state = write_state_file(place, "count-0-0", b"state")
    place.put(METADATA, b"half written")
    place.put("notes", b"the user's")
    world.files.discard_aborted(7, [state], SAVED)
    world.runner.run_all()
    assert place.list("") == ["notes"]
    assert (world.files.deleted, world.files.failed_deletions) == (2, 0)


def test_aborted_savepoint_of_which_nothing_came_leaves_its_folder_alone() -> None:
    world = World()
    world.files.discard_aborted(7, [], SAVED)
    assert world.runner.waiting == 0


def test_without_a_way_to_open_folders_the_files_of_a_savepoint_stay() -> None:
    world = World()
    files = CheckpointFiles(world.storage, PATHS, world.runner)
    files.discard_aborted(7, [FileHandle("count-0-0", 1, "")], SAVED)
    assert world.runner.waiting == 0


def test_checkpoint_takes_only_its_own_files_with_it() -> None:
    world = World()
    older, own, newer = (world.file(checkpoint_id) for checkpoint_id in (1, 2, 3))
    world.files.discard(2, [older, own, newer])
    assert world.left() == [older.path, newer.path]
    assert world.files.deleted == 1


def test_deletion_that_fails_is_counted_once_however_many_files_it_is_for() -> None:
    world = World(ReadOnly())
    world.files.discard(1, [world.file(1), world.file(1, number=1)])
    assert len(world.left()) == 2
    assert (world.files.deleted, world.files.failed_deletions) == (0, 1)


def test_late_file_goes_when_its_checkpoint_was_aborted_even_after_the_end_of_the_job() -> None:
    world = World()
    world.begin_attempt()
    world.files.discard_aborted(1, [], None)
    world.files.add(completed(2), None)
    world.files.end_job("failed", KeepAfter.ALWAYS)
    late, of_completed = world.file(1), world.file(2)
    world.files.discard_late(1, [late], was_started=True)
    world.files.discard_late(2, [of_completed], was_started=True)
    assert world.left() == [of_completed.path], "what a completed one names is not known any more"


def test_late_file_of_a_completed_checkpoint_goes_when_nothing_names_it() -> None:
    world = World()
    world.begin_attempt()
    world.files.add(completed(1), None)
    world.files.discard_late(1, [world.file(1)], was_started=True)
    assert world.left() == []


def test_late_file_stays_when_an_earlier_attempt_has_ended_its_checkpoint() -> None:
    world = World()
    world.begin_attempt()
    world.files.discard_aborted(1, [], None)
    world.begin_attempt()
    late = world.file(1)
    world.files.discard_late(1, [late], was_started=True)
    assert world.left() == [late.path]


@pytest.mark.parametrize(("ends", "is_forgotten"), [(REMEMBERED_ENDS, False), (REMEMBERED_ENDS + 1, True)])
def test_late_file_stays_when_too_many_others_have_ended_since(ends: int, is_forgotten: bool) -> None:
    world = World()
    world.begin_attempt()
    for checkpoint_id in range(1, ends + 1):
        world.files.discard_aborted(checkpoint_id, [], None)
    first, last = world.file(1), world.file(ends)
    world.files.discard_late(1, [first], was_started=True)
    world.files.discard_late(ends, [last], was_started=True)
    assert world.left() == ([first.path] if is_forgotten else [])
