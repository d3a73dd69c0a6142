"""The place of a snapshot is written before its checkpoint starts, and nothing of that stays."""

import pytest

from penstock.runtime.checkpoint.coordinator.place import SnapshotPlace
from penstock.runtime.errors import StorageError
from penstock.runtime.snapshot.memory_storage import MemoryStorage
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.testing.memory_places import MemoryPlaces

PATHS = SnapshotPaths("job")


class Watched(MemoryStorage):
    """Remembers what was written; may refuse, with or without having written."""

    def __init__(self, url="memory:"):
        super().__init__(url)
        self.written, self.refuses, self.writes_all_the_same, self.keeps = [], False, False, False

    def put(self, path, data, *, create=False):
        self.written.append(path)
        if not self.refuses or self.writes_all_the_same:
            super().put(path, data, create=create)
        if self.refuses:
            raise StorageError(f"can't write {self.url}/{path}: the disk is full")

    def delete(self, paths):
        if self.keeps:
            raise StorageError("nothing can be deleted")
        super().delete(paths)


class WatchedPlaces(MemoryPlaces):
    def __call__(self, url, *, create=False):
        if create and url not in self.storages:
            self.storages[url] = Watched(url)
        return super().__call__(url, create=create)


def test_the_storage_of_the_job_keeps_the_newest_id_and_nothing_else():
    storage = Watched()
    place = SnapshotPlace(storage, PATHS)
    place.prepare(None, 7, 2)
    assert storage.list("") == ["job/ids/7"]
    place.prepare(None, 8, 2)
    assert storage.list("") == ["job/ids/8"]
    assert PATHS.given_by("job/ids/8") == 8
    assert [PATHS.given_by(path) for path in ("job/ids/x", "job/chk-8-2/metadata", "else/ids/8")] == [
        None
    ] * 3


def test_an_id_that_can_not_be_deleted_stops_nothing():
    storage = Watched()
    place = SnapshotPlace(storage, PATHS)
    place.prepare(None, 7, 2)
    storage.keeps = True
    place.prepare(None, 8, 2)
    assert storage.list("") == ["job/ids/7", "job/ids/8"]


def test_a_savepoint_elsewhere_is_tried_in_its_own_folder():
    storage, places = Watched(), WatchedPlaces()
    SnapshotPlace(storage, PATHS, places).prepare("/saved", 7, 2)
    [(url, place)] = places.storages.items()
    assert (url, len(place.written)) == ("/saved/savepoint-job-7-2", 1)
    assert storage.list("") == ["job/ids/7"]
    assert place.list("") == []


@pytest.mark.parametrize("all_the_same", [False, True])
def test_a_place_that_refuses_is_named_and_keeps_nothing(all_the_same):
    storage = Watched()
    storage.refuses, storage.writes_all_the_same = True, all_the_same
    with pytest.raises(StorageError, match=r"memory:/job/ids/7: the disk is full"):
        SnapshotPlace(storage, PATHS).prepare(None, 7, 2)
    assert storage.list("") == []


def test_a_place_outside_that_nobody_can_open_is_named():
    with pytest.raises(StorageError, match="/saved/savepoint-job-7-2"):
        SnapshotPlace(MemoryStorage(), PATHS).prepare("/saved", 7, 2)


def test_a_place_outside_that_refuses_keeps_nothing_and_takes_no_id():
    storage, places = Watched(), WatchedPlaces()
    places("/saved/savepoint-job-7-2", create=True).refuses = True
    with pytest.raises(StorageError, match="/saved/savepoint-job-7-2/place: the disk is full"):
        SnapshotPlace(storage, PATHS, places).prepare("/saved", 7, 2)
    assert storage.list("") == []
    assert places("/saved/savepoint-job-7-2").list("") == []
