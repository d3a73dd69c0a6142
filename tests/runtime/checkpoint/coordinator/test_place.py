"""The place of a snapshot is written before its checkpoint starts, and nothing of that stays."""

import pytest

from penstock.runtime.checkpoint.coordinator.place import SnapshotPlace
from penstock.runtime.errors import StorageError
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.memory_storage import MemoryStorage
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.testing.memory_places import MemoryPlaces

PATHS = SnapshotPaths("job")


class Watched(MemoryStorage):
    """Remembers what was written; may refuse, with or without having written."""

    def __init__(self, url="memory:"):
        super().__init__(url)
        self.written, self.refuses, self.writes_all_the_same = [], False, False

    def put(self, path, data, *, create=False):
        self.written.append(path)
        if not self.refuses or self.writes_all_the_same:
            super().put(path, data, create=create)
        if self.refuses:
            raise StorageError(f"can't write {self.url}/{path}: the disk is full")


class WatchedPlaces(MemoryPlaces):
    def __call__(self, url, *, create=False):
        if create and url not in self.storages:
            self.storages[url] = Watched(url)
        return super().__call__(url, create=create)


@pytest.mark.parametrize(
    ("kind", "folder"),
    [
        (SnapshotKind.CHECKPOINT, "job/chk-7-2/"),
        (SnapshotKind.SAVEPOINT, "job/savepoint-7-2/"),
        (SnapshotKind.SYNC_SAVEPOINT, "job/savepoint-7-2/"),
    ],
)
def test_the_folder_of_a_snapshot_in_the_storage_of_the_job_is_written_and_left_empty(kind, folder):
    storage = Watched()
    SnapshotPlace(storage, PATHS).prepare(kind, None, 7, 2)
    assert [path.rpartition("/")[0] + "/" for path in storage.written] == [folder]
    assert storage.list("") == []
    assert PATHS.checkpoint_of(storage.written[0]) == 7, "swept as an orphan if the JobMaster dies here"


def test_a_savepoint_elsewhere_is_tried_in_its_own_folder():
    storage, places = Watched(), WatchedPlaces()
    SnapshotPlace(storage, PATHS, places).prepare(SnapshotKind.SAVEPOINT, "/saved", 7, 2)
    [(url, place)] = places.storages.items()
    assert (url, storage.written, len(place.written)) == ("/saved/savepoint-job-7-2", [], 1)
    assert place.list("") == []


@pytest.mark.parametrize("all_the_same", [False, True])
def test_a_place_that_refuses_is_named_and_keeps_nothing(all_the_same):
    storage = Watched()
    storage.refuses, storage.writes_all_the_same = True, all_the_same
    with pytest.raises(StorageError, match=r"memory:/job/chk-7-2/.*the disk is full"):
        SnapshotPlace(storage, PATHS).prepare(SnapshotKind.CHECKPOINT, None, 7, 2)
    assert storage.list("") == []


def test_a_place_outside_that_nobody_can_open_is_named():
    with pytest.raises(StorageError, match="/saved/savepoint-job-7-2"):
        SnapshotPlace(MemoryStorage(), PATHS).prepare(SnapshotKind.SAVEPOINT, "/saved", 7, 2)
