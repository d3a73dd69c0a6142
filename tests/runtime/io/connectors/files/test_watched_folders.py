"""New files of a folder are found once, when they are complete, and cleaned up when they are covered."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from enumerated_job import EnumeratedJob
from memory_folder import memory_folder
from obstore.store import MemoryStore

from penstock import CollectionSource, FileSource, HybridSource
from penstock.files import FolderWatch
from penstock.runtime.errors import ConfigurationError, OperatorError
from penstock.runtime.io.connectors.files import file_source, watching_enumerator
from penstock.runtime.io.connectors.files.file_cleaner import FileCleaner
from penstock.runtime.io.connectors.files.folder_lister import FolderLister
from penstock.runtime.io.connectors.filesystem import FileInfo
from penstock.runtime.io.connectors.local_files import LocalFileSystem
from penstock.runtime.io.connectors.object_files import ObjectFileSystem

EVERY = 10.0


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder in memory."""
    with memory_folder() as folder:
        yield folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "in"
    made.mkdir()
    return made


def watched(folder: Path | str, **settings: Any) -> FileSource[str]:
    of_source = {name: settings.pop(name) for name in ("filesystem",) if name in settings}
    return FileSource.text(
        folder, watch=FolderWatch(EVERY, **{"rest": 0, "order": "name", **settings}), **of_source
    )


def put(folder: Path, name: str, text: str | None = None, modified: int | None = None) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{name}\n" if text is None else text)
    if modified is not None:
        os.utime(path, (modified, modified))
    return path


# -- new files ---------------------------------------------------------------------------------------------


def test_files_are_read_as_they_come(folder):
    put(folder, "a")
    job = EnumeratedJob(watched(folder))
    assert job.read_on() == ["a"]
    put(folder, "deep/b")
    put(folder, "_hidden")
    assert job.read_on() == ["deep/b"]
    assert job.read_on() == []


def test_a_reader_gets_several_small_files_at_once_and_leaves_some_for_the_others(folder):
    for number in range(20):
        put(folder, f"{number:02}")
    job = EnumeratedJob(watched(folder), parallelism=2)
    while not job.rows:
        job.poll()
    point = job.snapshot()
    assert len(point.splits) > 2 * 3, "each of two readers has several splits"
    job.complete(point)
    job.kill()
    job.start()
    job.read_on(60)
    assert sorted(job.rows) == [f"{number:02}" for number in range(20)]


def test_a_large_file_is_given_alone(folder, monkeypatch):
    monkeypatch.setattr(watching_enumerator, "_BYTES_AT_ONCE", 10)
    for number in range(8):
        put(folder, f"{number}", f"{number}" * 20 + "\n")
    job = EnumeratedJob(watched(folder), parallelism=1)
    while not job.rows:
        job.poll()
    assert len(job.snapshot().splits) <= 1
    job.read_on(60)
    assert len(job.rows) == 8


def test_a_file_with_an_old_time_is_not_missed(folder):
    put(folder, "new")
    job = EnumeratedJob(watched(folder))
    assert job.read_on() == ["new"]
    put(folder, "moved here", modified=1)
    assert job.read_on() == ["moved here"]


@pytest.mark.parametrize(("order", "expected"), [("name", ["a", "b", "c"]), ("modified", ["b", "a", "c"])])
def test_files_of_one_listing_are_read_in_their_order(folder, order, expected):
    for name, modified in [("c", 300), ("a", 200), ("b", 100)]:
        put(folder, name, modified=modified)
    job = EnumeratedJob(watched(folder, order=order), parallelism=1)
    assert job.read_on() == expected


def test_an_empty_file_is_read_when_it_has_content(folder):
    put(folder, "a", "")
    job = EnumeratedJob(watched(folder))
    assert job.read_on() == []
    put(folder, "a", "1\n")
    assert job.read_on() == ["1"]


def test_a_file_that_changes_after_its_read_is_not_read_again_and_is_logged(folder, caplog):
    put(folder, "a", modified=100)
    job = EnumeratedJob(watched(folder))
    assert job.read_on() == ["a"]
    put(folder, "a", "a\nmore\n", modified=200)
    assert job.read_on() == []
    (logged,) = [record.message for record in caplog.records if "changed after the read" in record.message]
    assert str(folder / "a") in logged


def test_the_job_waits_for_a_first_file(folder):
    job = EnumeratedJob(watched(folder))
    assert job.read_on() == []
    put(folder, "a")
    assert job.read_on() == ["a"]


def test_a_missing_folder_fails_the_job(folder):
    with pytest.raises(OperatorError, match=r"can't be listed: .*missing.*Check the path"):
        EnumeratedJob(watched(folder / "missing"))


def test_a_folder_that_is_away_for_a_while_is_not_read_again(folder, caplog):
    """As a disk that is unmounted and mounted again."""
    put(folder, "a")
    job = EnumeratedJob(watched(folder, forget_after=2 * EVERY))
    assert job.read_on() == ["a"]
    folder.rename(folder.with_name("away"))
    assert job.read_on() == []
    folder.with_name("away").rename(folder)
    put(folder, "b")
    assert job.read_on() == ["b"]
    assert any("can't be listed" in record.message for record in caplog.records)


def test_an_empty_mount_point_forgets_no_file(folder):
    put(folder, "a")
    job = EnumeratedJob(watched(folder))
    assert job.read_on() == ["a"]
    (folder / "a").rename(folder.with_name("a"))
    assert job.read_on() == []
    folder.with_name("a").rename(folder / "a")
    assert job.read_on() == []


def test_a_missing_file_is_forgotten_after_a_while(folder):
    put(folder, "a")
    job = EnumeratedJob(watched(folder, forget_after=3 * EVERY))
    assert job.read_on() == ["a"]
    (folder / "a").unlink()
    assert job.read_on() == []
    put(folder, "a", "again\n")
    assert job.read_on() == ["again"]


def test_the_source_ends_when_no_file_comes_for_the_idle_timeout(folder):
    put(folder, "a")
    job = EnumeratedJob(watched(folder, idle_timeout=3 * EVERY))
    job.read_all()
    assert job.rows == ["a"]


def test_many_new_files_are_taken_in_parts(folder, monkeypatch):
    """The first listing returns ten files, and the next one waits until they are divided."""
    monkeypatch.setattr(file_source, "FolderLister", partial(FolderLister, most=10))
    names = [f"{number:03}" for number in range(95)]
    for name in names:
        put(folder, name)
    job = EnumeratedJob(watched(folder), parallelism=1)
    assert job.read_on(polls=400) == names


# -- files that are still written --------------------------------------------------------------------------


def test_a_file_is_left_until_it_rests(folder):
    job = EnumeratedJob(watched(folder, rest=2 * EVERY))
    job.poll()
    path = put(folder, "a", "1\n", modified=100)
    for size in range(2, 6):
        job.poll()
        put(folder, "a", "1\n" * size, modified=100)
    assert not job.rows
    assert job.read_on() == ["1"] * 5
    assert path.exists()


def test_files_on_disk_rest_for_one_interval_by_default_and_objects_do_not():
    watch = FolderWatch(EVERY)
    assert (watch.rest_of("/in"), watch.rest_of("s3://bucket/in")) == (EVERY, 0.0)
    assert FolderWatch(EVERY, rest=timedelta(minutes=1)).rest_of("s3://bucket/in") == 60.0


def test_a_file_is_left_until_its_marker_comes(folder):
    put(folder, "a")
    put(folder, "b")
    put(folder, "b.done", "")
    job = EnumeratedJob(watched(folder, marker="*.done"))
    assert job.read_on() == ["b"]
    put(folder, "a.done", "whatever\n")
    assert job.read_on() == ["a"]


def test_the_files_of_a_folder_are_left_until_its_marker_comes(folder):
    put(folder, "day=1/a")
    put(folder, "day=2/b")
    put(folder, "day=1/_SUCCESS", "")
    job = EnumeratedJob(watched(folder, marker="_SUCCESS"))
    assert job.read_on() == ["day=1/a"]
    put(folder, "day=2/_SUCCESS", "")
    assert job.read_on() == ["day=2/b"]


# -- files that a checkpoint covers ------------------------------------------------------------------------


def test_a_file_is_deleted_when_a_completed_checkpoint_covers_it(folder):
    path, marker = put(folder, "a"), put(folder, "a.done")
    job = EnumeratedJob(watched(folder, clean_source="delete", marker="*.done"))
    job.read_on()
    checkpoint = job.snapshot()
    job.read_on()
    assert path.exists()
    job.complete(checkpoint)
    job.read_on()
    assert not path.exists()
    assert not marker.exists()


def test_a_file_that_is_read_after_the_snapshot_is_not_deleted_with_it(folder):
    job = EnumeratedJob(watched(folder, clean_source="delete"))
    job.read_on()
    checkpoint = job.snapshot()
    path = put(folder, "a")
    job.read_on()
    job.complete(checkpoint)
    job.read_on()
    assert path.exists()
    job.checkpoint()
    job.read_on()
    assert not path.exists()


def test_a_file_with_several_splits_is_deleted_when_all_of_them_are_read(folder):
    path = put(folder, "a", "".join(f"{number}\n" for number in range(40)))
    watch = FolderWatch(EVERY, rest=0, clean_source="delete")
    job = EnumeratedJob(FileSource.text(folder, split_size=20, watch=watch), parallelism=3)
    job.read(1)
    while len(job.rows) < 40:
        job.checkpoint()
        job.poll()
        assert path.exists()
    for _ in range(3):
        job.checkpoint()
        job.read_on()
    assert sorted(map(int, job.rows)) == list(range(40))
    assert not path.exists()


def test_files_that_were_read_when_the_job_died_are_deleted_after_the_restore(folder):
    path = put(folder, "a")
    job = EnumeratedJob(watched(folder, clean_source="delete"))
    job.read_on()
    job.decide(job.snapshot())
    job.kill()
    job.start(parallelism=3)
    assert job.read_on() == []
    assert not path.exists()


def test_a_restored_job_that_no_longer_cleans_leaves_the_files_of_its_checkpoint(folder, tmp_path):
    path, marker = put(folder, "a"), put(folder, "a.done")
    job = EnumeratedJob(watched(folder, clean_source="delete", marker="*.done"))
    job.read_on()
    job.decide(job.snapshot())
    job.kill()
    off = EnumeratedJob(watched(folder, marker="*.done"), restored=job.completed)
    assert off.read_on() == []
    off.checkpoint()
    off.read_on()
    assert sorted(tmp_path.glob("**/a*")) == [path, marker]


def test_no_cleaner_is_made_without_permission():
    with pytest.raises(ValueError, match="no file may be cleaned up"):
        FileCleaner(["/in"], FolderWatch(EVERY), lambda path: LocalFileSystem(), trusts_paths=True)


def test_a_checkpoint_deletes_no_new_file_of_the_same_name(folder):
    """Two checkpoints overlap, and both count the old file as read."""
    path = put(folder, "a", "old\n", modified=100)
    job = EnumeratedJob(watched(folder, clean_source="delete"))
    job.read_on()
    first, second = job.snapshot(), job.snapshot()
    job.complete(first)
    job.read_on()
    assert not path.exists()
    put(folder, "a", "new\n", modified=200)
    assert job.read_on() == ["new"]
    job.complete(second)
    job.read_on()
    assert path.exists()
    job.kill()
    job.start()
    assert job.read_on() == ["new"]


def test_a_reader_that_fails_keeps_its_files(folder):
    path = put(folder, "a")
    job = EnumeratedJob(watched(folder, clean_source="delete"), parallelism=1)
    job.checkpoint()
    job.read_on()
    taken = job.snapshot()
    job.restart_reader(0)
    assert job.read_on(1) == []
    job.notify(taken)
    assert path.exists()
    assert job.read_on() == ["a"]
    job.checkpoint()
    job.read_on()
    assert not path.exists()


def test_a_name_may_be_used_again_when_the_file_was_deleted(folder):
    job = EnumeratedJob(watched(folder, clean_source="delete"))
    for text in ("1", "2", "3"):
        put(folder, "a", f"{text}\n")
        assert job.read_on() == [text]
        job.checkpoint()
        job.read_on()
        assert not (folder / "a").exists()


def test_a_new_file_with_the_name_of_a_deleted_one_survives_a_restore(folder):
    put(folder, "a", "old\n", modified=100)
    job = EnumeratedJob(watched(folder, clean_source="delete"))
    job.read_on()
    job.decide(job.snapshot())
    job.kill()
    put(folder, "a", "new\n", modified=200)
    job.start()
    assert job.read_on() == ["new"]


def test_files_are_archived_below_their_path_and_no_archived_file_is_replaced(folder, tmp_path):
    source = watched(folder, clean_source="archive", archive_dir=tmp_path / "old")
    job = EnumeratedJob(source)
    for text in ("1", "2"):
        put(folder, "day=1/a", text, modified=int(text))
        job.read_on()
        job.checkpoint()
        job.read_on()
    archived = {path.name: path.read_text() for path in (tmp_path / "old" / "day=1").iterdir()}
    assert archived == {"a": "1", "a~2000000": "2"}
    assert not list(folder.glob("**/a"))


def test_a_file_that_can_t_be_archived_is_tried_again(folder, tmp_path, caplog):
    put(folder, "a")
    put(tmp_path, "old", "a file where the archive should be")
    job = EnumeratedJob(watched(folder, clean_source="archive", archive_dir=tmp_path / "old"))
    job.read_on()
    job.checkpoint()
    assert job.read_on() == []
    assert any("could not be cleaned" in record.message for record in caplog.records)
    (tmp_path / "old").unlink()
    job.checkpoint()
    job.read_on()
    assert (tmp_path / "old" / "a").exists()


def test_an_archive_on_another_disk_fails_the_job(folder, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    if other.stat().st_dev == folder.stat().st_dev:
        pytest.skip("this machine has no folder in memory")
    for location in (folder, folder / "*.csv"):
        source = watched(location, clean_source="archive", archive_dir=other / "old")
        with pytest.raises(OperatorError, match=f"another disk than {folder}, .*give a folder on the same"):
            EnumeratedJob(source).read_on()


def test_a_bounded_number_of_files_is_cleaned_up_again_and_no_other_is_read_again(
    folder, tmp_path, caplog, monkeypatch
):
    monkeypatch.setattr(watching_enumerator, "MOST_LEFT_FILES", 2)
    archive = put(tmp_path, "old", "a file where the archive should be")
    job = EnumeratedJob(watched(folder, clean_source="archive", archive_dir=archive))
    for name in ("a", "b", "c"):
        put(folder, name)
        assert job.read_on() == [name]
        job.checkpoint()
        job.read_on()
    assert any("1 file(s) could not be cleaned up and stay" in record.message for record in caplog.records)
    archive.unlink()
    job.checkpoint()
    job.kill()
    job.start()
    assert job.read_on() == []
    assert sorted(path.name for path in archive.iterdir()) == ["b", "c"]
    assert [path.name for path in folder.iterdir()] == ["a"]


def test_a_changed_snapshot_deletes_no_other_file(folder, tmp_path):
    victim = put(tmp_path, "victim")
    put(folder, "a")
    source: Any = watched(folder, clean_source="delete")
    job = EnumeratedJob(source)
    job.read_on()
    codec = job._enumerator._codec  # type: ignore[union-attr]
    checkpoint = job.snapshot()
    state = codec.loads(checkpoint.enumerator)
    state["read"] = [(str(victim), victim.stat().st_size, None)]
    object.__setattr__(checkpoint, "enumerator", codec.dumps(state))
    job.decide(checkpoint)
    job.kill()
    with pytest.raises(OperatorError, match="victim"):
        job.start().read_on()
    assert victim.exists()


# -- columns -----------------------------------------------------------------------------------------------


def test_folder_columns_keep_the_types_of_the_first_files(folder):
    put(folder, "day=1/a.jsonl", '{"n": 1}\n')
    source = FileSource.json(folder, watch=FolderWatch(EVERY, rest=0), partitioning="hive")
    job = EnumeratedJob(source, parallelism=1)
    assert job.read_on() == [{"n": 1, "day": 1}]
    put(folder, "day=__HIVE_DEFAULT_PARTITION__/a.jsonl", '{"n": 2}\n')
    assert job.read_on() == [{"n": 2, "day": None}]
    job.checkpoint()
    job.kill()
    put(folder, "day=3/hour=04/a.jsonl", '{"n": 3}\n')
    job.start()
    assert job.read_on() == [{"n": 3, "day": 3, "hour": "04"}]
    put(folder, "day=x/a.jsonl", '{"n": 4}\n')
    with pytest.raises(OperatorError, match="folders of column 'day' can't be read as int64"):
        job.read_on()


@pytest.mark.parametrize(
    ("make", "settings", "texts"),
    [
        (FileSource.csv, {"schema": "infer"}, ["n\n1\n", "n\nx\n"]),
        (FileSource.json, {}, ['{"n": 1}\n', '{"n": "x"}\n']),
    ],
)
def test_inferred_columns_are_those_of_the_first_files(folder, make, settings, texts):
    put(folder, "a", texts[0])
    source = make(folder, batch_format="arrow", watch=FolderWatch(EVERY, rest=0), **settings)
    job = EnumeratedJob(source, parallelism=1)
    assert job.read_on() == [{"n": 1}]
    job.checkpoint()
    job.kill()
    put(folder, "b", texts[1])
    with pytest.raises(OperatorError, match=r"/in/b, line .*int64"):
        job.start().read_on()


def test_row_groups_of_parquet_files_are_read_as_they_come(folder):
    def write(name: str, numbers: list[int]) -> None:
        pq.write_table(pa.table({"n": numbers, "m": numbers}), folder / name, row_group_size=2)

    write("a.parquet", [1, 2, 3])
    source = FileSource.parquet(folder, watch=FolderWatch(EVERY, rest=0)).with_projection(["n"])
    job = EnumeratedJob(source)
    assert sorted(row["n"] for row in job.read_on()) == [1, 2, 3]
    write("b.parquet", [4, 5, 6])
    assert sorted(row["n"] for row in job.read_on()) == [4, 5, 6]


# -- after a history ---------------------------------------------------------------------------------------


def test_a_watched_folder_follows_a_history(folder):
    put(folder, "a")
    live = watched(folder, clean_source="delete")
    job = EnumeratedJob(HybridSource(CollectionSource(["h1", "h2"]), then=live))
    assert sorted(job.read_on()[:2]) == ["h1", "h2"]
    assert job.rows[2:] == ["a"]
    job.checkpoint()
    job.read_on()
    assert not (folder / "a").exists()
    job.kill()
    put(folder, "b")
    job.start(parallelism=3)
    assert job.read_on() == ["b"]


# -- object stores -----------------------------------------------------------------------------------------


@pytest.fixture
def bucket() -> tuple[MemoryStore, Callable[..., FileSource[str]]]:
    store = MemoryStore()
    files = ObjectFileSystem(store, "s3://bucket")
    return store, lambda **settings: watched("s3://bucket/in", filesystem=files, **settings)


def test_new_objects_are_read_and_deleted(bucket):
    store, source = bucket
    store.put("in/a", b"a\n")
    store.put("in/folder/", b"")
    job = EnumeratedJob(source(clean_source="delete"))
    assert job.read_on() == ["a"]
    store.put("in/deep/b", b"b\n")
    assert job.read_on() == ["b"]
    job.checkpoint()
    job.read_on()
    assert not [entry["path"] for page in store.list("in") for entry in page if entry["size"]]


def test_objects_are_archived_in_their_bucket(bucket):
    store, source = bucket
    store.put("in/x/a", b"a\n")
    job = EnumeratedJob(source(clean_source="archive", archive_dir="s3://bucket/old"))
    job.read_on()
    job.checkpoint()
    job.read_on()
    assert [entry["path"] for page in store.list() for entry in page] == ["old/x/a"]


def test_an_object_whose_time_was_not_listed_is_deleted(bucket):
    store, source = bucket
    store.put("in/a", b"a\n")
    made: Any = source(clean_source="delete")
    cleaner = FileCleaner(made.locations, made.watch, lambda path: made.filesystem, trusts_paths=False)
    assert cleaner.clean([FileInfo("s3://bucket/in/a", 2)]) == []
    assert not list(store.list())


# -- settings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"every": 0}, "every=0: give a finite duration longer than 0 s"),
        ({"order": "size"}, "order='size' is not allowed"),
        ({"rest": -1}, "rest=-1"),
        ({"marker": "done/x"}, "marker='done/x' is not allowed: give"),
        ({"marker": "a*b"}, r"marker='a\*b' is not allowed: give"),
        ({"marker": "*"}, r"marker='\*' is not allowed: give"),
        ({"clean_source": "move"}, "clean_source='move' is not allowed"),
        ({"clean_source": "archive"}, "need each other"),
        ({"archive_dir": "/old"}, "need each other"),
    ],
)
def test_settings_that_are_not_allowed_are_refused(settings, message):
    with pytest.raises(ConfigurationError, match=message):
        FolderWatch(**{"every": EVERY, **settings})


@pytest.mark.parametrize(
    ("archive", "message"),
    [("/in/old", "would be read again"), ("s3://bucket/old", "must be on the disk or in the bucket of /in")],
)
def test_an_archive_in_the_folder_or_in_another_store_is_refused(archive, message):
    with pytest.raises(ConfigurationError, match=message):
        watched("/in", clean_source="archive", archive_dir=archive)


def test_a_duration_is_the_time_between_two_listings():
    source: Any = FileSource.text("/in", watch=timedelta(seconds=10))
    assert source.watch == FolderWatch(10.0)
