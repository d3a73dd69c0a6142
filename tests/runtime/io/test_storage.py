from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import pytest
from obstore.store import MemoryStore

from penstock.runtime.checkpoint.coordinator.location import TRIAL, SnapshotLocation
from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.checkpoint.log.records import AttemptBegun
from penstock.runtime.checkpoint.log.slots import Fenced
from penstock.runtime.errors import ObjectExistsError, ObjectNotFoundError, StorageError
from penstock.runtime.io.storage import (
    PROBE,
    ObjectStorage,
    RemoteObjects,
    _require_conditional_put,
    check_proof,
    open_location,
    open_storage,
    write_proof,
)
from penstock.runtime.snapshot.paths import SnapshotPaths


@pytest.fixture
def storage(tmp_path: Path) -> ObjectStorage:
    return open_storage(str(tmp_path / "new" / "folder"))


def test_a_missing_folder_is_made(tmp_path: Path) -> None:
    storage = open_storage(f"file://{tmp_path}/a%20b/c")
    storage.put("j/x", b"1")
    assert (tmp_path / "a b" / "c" / "j" / "x").read_bytes() == b"1"


def test_opening_twice_works(tmp_path: Path) -> None:
    open_storage(str(tmp_path)).put("j/x", b"1")
    assert open_storage(str(tmp_path)).get("j/x") == b"1"


def test_create_loses_against_what_is_there(storage: ObjectStorage) -> None:
    storage.put("j/x", b"1", create=True)
    with pytest.raises(ObjectExistsError, match="/folder/j/x exists already"):
        storage.put("j/x", b"2", create=True)
    assert storage.get("j/x") == b"1"
    storage.put("j/x", b"2")
    assert storage.get("j/x") == b"2"


def test_of_many_writers_one_wins(storage: ObjectStorage) -> None:
    def claim(number: int) -> bool:
        try:
            storage.put("j/log/1", b"%d" % number * 1000, create=True)
        except ObjectExistsError:
            return False
        return True

    with ThreadPoolExecutor(16) as pool:
        won = [number for number, claimed in enumerate(pool.map(claim, range(64))) if claimed]
    assert len(won) == 1
    assert storage.get("j/log/1") == b"%d" % won[0] * 1000


def test_large_and_empty_objects_come_back(storage: ObjectStorage) -> None:
    large = bytes(range(256)) * 4096 * 12
    storage.put("j/large", large)
    storage.put("j/empty", b"")
    assert storage.get("j/large") == large
    assert storage.get("j/empty") == b""
    assert type(storage.get("j/large")) is bytes


def test_only_what_lies_in_the_folder_is_listed(storage: ObjectStorage) -> None:
    for path in ("a/2", "a/1", "ab/1", "a/c/1"):
        storage.put(path, b"")
    assert storage.list("a/") == ["a/1", "a/2", "a/c/1"]
    assert storage.list("none/") == []
    assert storage.list("") == [PROBE, "a/1", "a/2", "a/c/1", "ab/1"]


def test_a_long_folder_is_listed_whole(storage: ObjectStorage) -> None:
    paths = [f"j/log/{n:020d}" for n in range(1203)]
    for path in paths:
        storage.put(path, b"")
    assert storage.list("j/log/") == paths


def test_deleting_goes_on_behind_what_is_not_there(storage: ObjectStorage) -> None:
    for path in ("j/1", "j/3"):
        storage.put(path, b"")
    storage.delete(["j/0", "j/1", "j/2", "j/3"])
    storage.delete([])
    assert storage.list("j/") == []
    with pytest.raises(ObjectNotFoundError, match="/folder/j/1 does not exist"):
        storage.get("j/1")


def test_no_empty_folder_stays(storage: ObjectStorage, tmp_path: Path) -> None:
    storage.put("j/chk-1-1/metadata", b"")
    storage.delete(["j/chk-1-1/metadata"])
    assert not (tmp_path / "new" / "folder" / "j" / "chk-1-1").exists()


def test_paths_out_of_the_storage_are_refused(storage: ObjectStorage) -> None:
    for call in (
        lambda: storage.put("../a", b""),
        lambda: storage.get("/etc/passwd"),
        lambda: storage.list("a/../../"),
        lambda: storage.delete(["a//b"]),
    ):
        with pytest.raises(StorageError, match="must be relative"):
            call()


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("memory://", "a separate, empty storage in every process"),
        ("memory:", "a separate, empty storage in every process"),
        ("checkpoints", "relative path, which names a different folder on every node"),
        ("./checkpoints", "relative path"),
        ("~/checkpoints", "relative path"),
        ("", "relative path"),
        ("file:///saved?/x", "write a folder's name with %3F"),
        ("s3://bucket/saved#1", "%23 for #"),
        ("s3://bucket/.\t./x", r"contains the character U\+0009"),
        ("/saved/a\0b", r"contains the character U\+0000, .* without control characters"),
        ("/saved/\udcff", r"contains the character U\+DCFF, .* in UTF-8"),
        ("file:///saved/a%0Ab", r"contains the character U\+000A"),
        ("ftp://host/x", "unknown scheme 'ftp'"),
        ("http://host/x", "unknown scheme 'http'"),
        ("file://host/x", "names the host 'host'"),
        ("s3://", "can't be opened"),
    ],
)
def test_a_url_that_is_no_storage_is_refused_with_the_reason(url: str, why: str) -> None:
    with pytest.raises(StorageError, match=why):
        open_storage(url)


@pytest.mark.parametrize("name", ["注文", "U\N{COMBINING DIAERESIS}", " a b ", "%2F", "a#b?", "\N{CAT FACE}"])
def test_a_folder_of_any_alphabet_is_a_storage(tmp_path: Path, name: str) -> None:
    for url in (f"{tmp_path}/{name}", f"file://{quote(f'{tmp_path}/{name}-')}"):
        open_storage(url).put("j/x", b"1")
        assert open_location(url).get("j/x") == b"1"
    assert sorted(found.name for found in tmp_path.iterdir()) == sorted([name, f"{name}-"])


def test_a_file_is_no_storage(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StorageError, match="is a file; name a folder"):
            open_storage(str(folder))


def test_a_place_that_can_not_be_written_is_named() -> None:
    with pytest.raises(StorageError, match=r"/proc/penstock.*Name a folder that may be written"):
        open_storage("/proc/penstock")


@pytest.mark.parametrize("name", ["savepoint-words", "savepiont-words-1", "kept"])
def test_a_folder_with_a_wrong_name_is_answered_with_the_nearest_one(tmp_path: Path, name: str) -> None:
    for folder in ("savepoint-words-1", "savings"):
        (tmp_path / folder).mkdir()
    meant = "" if name == "kept" else r"; did you mean 'savepoint-words-1'\?"
    with pytest.raises(StorageError, match=f"{name} is not a folder; check the path{meant}$"):
        open_storage(str(tmp_path / name), create=False)


def test_reading_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is not a folder"):
        open_storage(str(tmp_path / "none"), create=False)
    assert open_storage(str(tmp_path), create=False).list("") == []
    assert list(tmp_path.iterdir()) == []


class Overwriting(ObjectStorage):
    """A store that accepts the condition and ignores it, as some that speak S3 do."""

    def put(self, path: str, data: bytes, *, create: bool = False) -> None:
        super().put(path, data)


def test_a_store_that_ignores_the_condition_is_refused() -> None:
    with pytest.raises(StorageError, match="it overwrites an object that a writer may only create"):
        _require_conditional_put(Overwriting(RemoteObjects(MemoryStore()), "s3://old"))


def test_nodes_prove_that_they_see_the_same_storage(tmp_path: Path) -> None:
    paths = SnapshotPaths("j")
    here, same, other = (open_storage(str(tmp_path / name)) for name in ("a", "a", "b"))
    write_proof(here, paths.same_storage, "token-1")
    check_proof(same, paths.same_storage, "token-1", "10.0.0.2")
    with pytest.raises(StorageError, match=r"node 10\.0\.0\.2 does not see the same .*missing there"):
        check_proof(other, paths.same_storage, "token-1", "10.0.0.2")
    with pytest.raises(StorageError, match="not what the JobMaster wrote"):
        check_proof(same, paths.same_storage, "token-2", "10.0.0.2")


def test_threads_that_begin_attempts_on_a_disk_each_get_their_own(storage: ObjectStorage) -> None:
    paths = SnapshotPaths("j")

    def work(number: int) -> list[int]:
        log = DecisionLog(storage, paths, compact_every=3)
        begun = []
        for _ in range(4):
            record = log.begin_attempt(float(number))
            assert isinstance(record, AttemptBegun)
            begun.append(record.attempt)
            for _ in range(30):
                if isinstance(log.drop((), 0.0), Fenced):
                    break
        return begun

    with ThreadPoolExecutor(4) as pool:
        attempts = [attempt for begun in pool.map(work, range(4)) for attempt in begun]
    assert len(set(attempts)) == len(attempts) == 16
    assert DecisionLog(storage, paths).replay().last_attempt == max(attempts)


def test_folders_that_were_made_for_a_snapshot_go_when_nothing_is_in_them(tmp_path: Path) -> None:
    (tmp_path / "saved").mkdir()
    place = open_location(str(tmp_path / "saved" / "of" / "today"), create=True)
    place.put("place", b"1")
    place.put("metadata", b"1")
    place.delete(["place"])
    assert (tmp_path / "saved" / "of" / "today" / "metadata").exists()
    place.delete(["metadata"])
    assert list(tmp_path.iterdir()) == [tmp_path / "saved"], "what the user has made stays"
    assert list((tmp_path / "saved").iterdir()) == []
    place.put("place", b"1")
    assert place.get("place") == b"1", "it is made again when it is needed"


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system in which folders can be made, and no byte can be written."""
    folder = tmp_path / "full"
    folder.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mounting, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a file system, which is to be full")
    (folder / "file").write_bytes(bytes(4096))
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_nothing_stays_of_a_snapshot_on_a_full_disk(full_disk: Path) -> None:
    place = SnapshotLocation(open_location(str(full_disk)), SnapshotPaths("job"), lambda: None, open_location)
    refused = pytest.raises(StorageError, match=rf"can't write {full_disk}/.*No space left")
    with refused:
        place.prepare(7, 2)
    with refused:
        place.try_target(f"{full_disk}/saved")
    assert list(full_disk.iterdir()) == [full_disk / "file"]


def without_permission(folder: Path) -> None:
    """Take the permission to write away; root is refused by a folder that stands where the file should be."""
    if os.geteuid():
        folder.chmod(0o500)
    else:
        (folder / TRIAL / "in the way").mkdir(parents=True)


def test_a_folder_that_can_be_opened_and_not_written_is_refused_by_name(tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    saved.mkdir()
    without_permission(saved)
    before = list(saved.rglob("*"))
    open_location(str(saved), create=True)
    place = SnapshotLocation(open_location(str(tmp_path)), SnapshotPaths("job"), lambda: None, open_location)
    with pytest.raises(StorageError, match=f"can't write {saved}/{TRIAL}: "):
        place.try_target(str(saved))
    assert list(saved.rglob("*")) == before, "nothing of it stays"


def test_a_write_that_fails_removes_only_folders_that_it_has_made(tmp_path: Path) -> None:
    (tmp_path / "mine" / "empty").mkdir(parents=True)
    (tmp_path / "mine" / "file").write_bytes(b"1")
    place = open_location(str(tmp_path))
    for path in ("mine/empty/" + "x" * 300, "mine/empty/new/of/" + "x" * 300, "mine/file/x"):
        with pytest.raises(StorageError, match="can't write"):
            place.put(path, b"1")
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "mine", tmp_path / "mine/empty", tmp_path / "mine/file"]
