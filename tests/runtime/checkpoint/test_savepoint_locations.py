"""The folder that the metadata of a savepoint names: believed only where a user has declared it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from memory_storages import MemoryPlaces

from penstock.runtime.checkpoint.coordinator.completion import complete_checkpoint, complete_elsewhere
from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.checkpoint.recovery import (
    check_own_location,
    load_latest,
    open_snapshot,
)
from penstock.runtime.errors import CorruptSnapshotError, RestoreError, StorageError
from penstock.runtime.io.storage import open_location, open_storage
from penstock.runtime.ports import SnapshotStorage
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.metadata import encode_metadata
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.trust.paths import check_named_location, inside_of

PATHS = SnapshotPaths("job")
OWN = "savepoint-job-7-1"


def savepoint(location: str) -> CompletedCheckpoint:
    return CompletedCheckpoint(7, 1, SnapshotKind.SAVEPOINT, {}, 1.0, 2.0, location=location)


@pytest.mark.parametrize(
    "location",
    [
        f"/saved/{OWN}",
        f"s3://bucket/{OWN}",
        f"memory:/saved/{OWN}",
        f"/100% sure?/#1/{OWN}",
        f"file:///my%20data/100%25%20sure%3F/%231/{OWN}",
        f"s3://bucket/my%20data/{OWN}",
    ],
)
def test_the_folder_that_penstock_has_made_is_believed(location: str) -> None:
    checkpoint = savepoint(location)
    assert check_own_location(checkpoint, "job") is checkpoint


@pytest.mark.parametrize(
    "location",
    [
        "/etc",
        "s3://theirs/secrets",
        "/saved/savepoint-job-8-1",
        "/saved/savepoint-job-7-2",
        "/saved/savepoint-other-7-1",
        f"/saved/../etc/{OWN}",
        f"/saved/{OWN}/",
        f"/saved/{OWN}/..",
        "",
        f"file:///saved/%2e%2e/etc/{OWN}",
        f"file:///saved/..%2fetc/{OWN}",
        f"file:///etc?/{OWN}",
        f"file:///etc#/{OWN}",
        f"s3://theirs/%2E./secrets/{OWN}",
        f"s3://theirs/.\t./secrets/{OWN}",
        f"s3://theirs/secrets?/{OWN}",
        f"s3://theirs/secrets#/{OWN}",
        f"s3://theirs/a\\..\\secrets/{OWN}",
        f"/saved/\0/{OWN}",
    ],
)
def test_any_other_folder_is_refused_by_name(location: str) -> None:
    with pytest.raises(CorruptSnapshotError, match=f"only a folder {OWN} may be named"):
        check_own_location(savepoint(location), "job")


def test_a_checkpoint_has_no_folder_elsewhere() -> None:
    checkpoint = replace(savepoint(f"/saved/{OWN}"), kind=SnapshotKind.CHECKPOINT)
    with pytest.raises(CorruptSnapshotError, match="metadata of checkpoint 7"):
        check_own_location(checkpoint, "job")


class Opened(MemoryPlaces):
    """Remembers which places were opened."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def __call__(self, url: str, *, create: bool = False) -> MemoryStorage:
        self.asked.append(url)
        return super().__call__(url, create=create)


def job_with_savepoint_in(places: Opened, location: str) -> MemoryStorage:
    """The storage of a job whose newest snapshot is a savepoint in `location`."""
    storage = MemoryStorage("/data")
    places.storages["/data"] = storage
    places("/data/job", create=True)
    places(location, create=True)
    log = DecisionLog(storage, PATHS)
    log.begin_attempt(0.0)
    complete_checkpoint(storage, PATHS, log, savepoint(location), open_location=places)
    places.asked.clear()
    return storage


def change_location(storage: MemoryStorage, location: str) -> None:
    """Point the note elsewhere, with checksums that fit, as someone does who can write the storage."""
    path = PATHS.metadata(SnapshotKind.SAVEPOINT, 7, 1)
    changed = savepoint(location)
    storage.delete([path])
    storage.put(path, encode_metadata(changed, path))


def test_a_named_storage_that_points_elsewhere_opens_nothing_there_until_the_user_names_it() -> None:
    places = Opened()
    job_with_savepoint_in(places, f"/saved/{OWN}")
    with pytest.raises(RestoreError, match=f"files are in /saved/{OWN}.*Name that folder"):
        open_snapshot("/data/job", places)
    assert f"/saved/{OWN}" not in places.asked
    assert open_snapshot(f"/saved/{OWN}", places).checkpoint.checkpoint_id == 7


def test_a_savepoint_inside_of_the_named_storage_is_found() -> None:
    places = Opened()
    job_with_savepoint_in(places, f"/data/saved/{OWN}")
    assert open_snapshot("/data/job", places).checkpoint.location == f"/data/saved/{OWN}"


def test_a_savepoint_is_found_where_a_listing_leaves_out_its_metadata(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    places = Opened()
    job_with_savepoint_in(places, f"/saved/{OWN}")
    storage = places(f"/saved/{OWN}")
    assert storage.list("") == ["metadata"]
    monkeypatch.setattr(storage, "list", lambda prefix: [])
    assert open_snapshot(f"/saved/{OWN}", places).checkpoint.checkpoint_id == 7


@pytest.mark.parametrize(
    "root",
    ["/data", "/", "/100% sure?", "memory:", "file:///my%20data/100%25", "s3://bucket/data", "s3://bucket"],
)
@pytest.mark.parametrize(
    ("rest", "is_plain"),
    [
        (f"saved/{OWN}", True),
        (OWN, True),
        (f"%2e%2e/other/{OWN}", False),
        (f"%2e%2e%2fother/{OWN}", False),
        (f"../other/{OWN}", False),
        (f"./{OWN}", False),
        (f".\t./other/{OWN}", False),
        (f"..\\other/{OWN}", False),
        (f"saved?/{OWN}", False),
        (f"saved#/{OWN}", False),
        (f"/other/{OWN}", False),
        (f"\x1b/{OWN}", False),
    ],
)
def test_behind_the_storage_that_a_user_names_only_plain_folders_may_stand(
    root: str, rest: str, is_plain: bool
) -> None:
    location = f"{root.rstrip('/')}/{rest}"
    assert inside_of(root, location) == (rest if is_plain else None)
    assert inside_of(root + "2", location) is None


@pytest.mark.parametrize("rest", [f"/store2/{OWN}", f"/store/sub//{OWN}", f"/store/a%20b/{OWN}", f"/{OWN}"])
def test_a_folder_that_is_not_plainly_in_the_named_storage_is_refused(rest: str) -> None:
    with pytest.raises(RestoreError, match="not in the storage that you have named"):
        check_named_location(f"file://{rest}", "file:///store", "job")


def test_a_folder_inside_of_the_named_storage_that_is_a_link_is_not_opened(tmp_path: Path) -> None:
    outside, root = tmp_path / "outside", tmp_path / "storage"
    outside.mkdir()
    complete_elsewhere(open_location(str(outside)), savepoint(str(outside)))
    storage = open_storage(str(root))
    path = PATHS.metadata(SnapshotKind.SAVEPOINT, 7, 1)
    (root / OWN).symlink_to(outside)
    storage.put(path, encode_metadata(savepoint(f"{root}/{OWN}"), path))
    log = DecisionLog(storage, PATHS)
    log.begin_attempt(0.0)
    complete_checkpoint(storage, PATHS, log, savepoint(f"{root}/{OWN}"), open_location=open_location)
    opened: list[str] = []

    def opener(url: str, *, create: bool = False) -> SnapshotStorage:
        opened.append(url)
        return open_location(url, create=create)

    with pytest.raises(StorageError, match="symbolic link"):
        open_snapshot(f"{root}/job", opener)
    assert f"{root}/{OWN}" not in opened


@pytest.mark.parametrize("location", ["/etc", f"/data/../etc/{OWN}", "s3://theirs/secrets"])
def test_a_changed_note_in_a_named_storage_is_refused(location: str) -> None:
    places = Opened()
    storage = job_with_savepoint_in(places, f"/data/saved/{OWN}")
    change_location(storage, location)
    with pytest.raises(RestoreError, match=r"was changed or is damaged|checksum"):
        open_snapshot("/data/job", places)
    assert location not in places.asked


def test_a_job_that_restarts_opens_the_folder_of_its_own_savepoint() -> None:
    places = Opened()
    storage = job_with_savepoint_in(places, f"/saved/{OWN}")
    loaded = load_latest(
        storage, DecisionLog(storage, PATHS).replay(), allow_older=False, open_location=places
    )
    assert loaded is not None
    assert loaded.checkpoint.location == f"/saved/{OWN}"


def test_a_job_that_restarts_opens_no_other_folder() -> None:
    places = Opened()
    storage = MemoryStorage("/data")
    log = DecisionLog(storage, PATHS)
    log.begin_attempt(0.0)
    places("/etc", create=True)
    complete_elsewhere(places("/etc"), savepoint("/etc"))
    complete_checkpoint(storage, PATHS, log, savepoint("/etc"), open_location=places)
    places.asked.clear()
    with pytest.raises(CorruptSnapshotError, match="only a folder savepoint-job-7-1 may be named"):
        load_latest(storage, log.replay(), allow_older=False, open_location=places)
    assert places.asked == []
