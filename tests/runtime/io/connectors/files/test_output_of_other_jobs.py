"""A new job and a directory with the output of an earlier one: `if_exists`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from obstore.store import LocalStore, MemoryStore

from penstock import ConfigurationError, ConnectorError, FileSink
from penstock.connectors import FileSystem
from penstock.formats import Text
from penstock.runtime.errors import SuppressRestartsError
from penstock.runtime.io.connectors import object_files
from penstock.runtime.io.connectors.files.file_sink_writer import IN_PROGRESS, committing_job
from penstock.runtime.io.connectors.local_files import LocalFileSystem
from penstock.runtime.io.connectors.object_files import ObjectFileSystem
from penstock.runtime.record.elements import RowBatch

ROWS = [{"day": day, "n": day} for day in range(3)]


@dataclass
class Place:
    """A directory, on disk or in a store, with the writers of its jobs."""

    directory: str
    files: FileSystem
    context: Callable[..., Any]
    permit: Any

    def sink(self, **options: Any) -> FileSink:
        return FileSink.json(self.directory, filesystem=self.files, **options)

    def pre_commit(self, job: str, **options: Any) -> tuple[Any, Sequence[Any]]:
        writer = self.sink(**options).writer(self.context(job=job))
        writer.write(RowBatch(ROWS))
        return writer, writer.prepare_commit()

    def commit(self, job: str, **options: Any) -> None:
        writer, pending = self.pre_commit(job, **options)
        writer.commit(pending, self.permit)

    def put(self, name: str) -> None:
        *folders, name = name.split("/")
        below = "/".join((self.directory, *folders))
        self.files.make_directory(below, "_probe")
        file = self.files.create(below, name)
        file.write(b"{}\n")
        file.finish()


@pytest.fixture(params=["disk", "memory store", "local store"])
def place(request: pytest.FixtureRequest, tmp_path: Path, context: Any, permit: Any) -> Place:
    if request.param == "disk":
        return Place(str(tmp_path / "out"), LocalFileSystem(), context, permit)
    store = MemoryStore() if request.param == "memory store" else LocalStore(tmp_path)
    return Place("s3://bucket/out", ObjectFileSystem(store, "s3://bucket"), context, permit)


@pytest.mark.parametrize("by", [[], ["day"]], ids=["flat", "in folders"])
def test_a_new_job_is_refused_where_another_job_has_committed_and_learns_what_to_do(
    place: Place, by: list[str]
) -> None:
    place.commit("words-1", partition_by=by)
    with pytest.raises(
        ConnectorError,
        match=r"out has output of another job: job words-1 has committed (day=\d/)?part-words-1-files-0-1-\d"
        r"\.jsonl\. Choose another directory, or delete.*restore_from=.*if_exists=\"append\"; to delete it, "
        r"if_exists=\"replace\"",
    ) as caught:
        place.sink().prepare_destination("words-12")
    assert isinstance(caught.value, SuppressRestartsError), "a restart would only repeat it"


def test_a_job_that_appends_or_has_written_there_itself_is_not_refused(place: Place) -> None:
    place.commit("words-1")
    place.sink(if_exists="append").prepare_destination("words-2")
    place.sink().prepare_destination("words-1")


@pytest.mark.parametrize("by", [[], ["day"]], ids=["flat", "in folders"])
def test_a_job_that_replaces_deletes_what_others_have_committed_and_nothing_else(
    place: Place, by: list[str]
) -> None:
    for job in ("words-1", "words-2", "words-3"):
        place.commit(job, partition_by=by)
    place.pre_commit("words-1")
    place.put("part-00000-c000.json")
    sink = place.sink(if_exists="replace", partition_by=by)
    sink.prepare_destination("words-2")
    left = set(place.files.partition_files(place.directory, 100))
    names = {path.rpartition("/")[2] for path in left}
    assert {committing_job(name) for name in names} == {None, "words-2"}
    assert "part-00000-c000.json" in names
    assert any(name.startswith(IN_PROGRESS) for name in names)
    sink.prepare_destination("words-2")
    assert set(place.files.partition_files(place.directory, 100)) == left


def test_output_that_can_not_be_deleted_is_named(tmp_path: Path) -> None:
    (tmp_path / "out" / "part-words-1-files-0-1-0.jsonl").mkdir(parents=True)
    with pytest.raises(ConnectorError, match=r"out can't be listed, or its files can't be deleted: .*jsonl"):
        FileSink.json(tmp_path / "out", if_exists="replace").prepare_destination("words-2")


def test_files_that_no_other_job_has_committed_are_no_output_of_one(place: Place) -> None:
    place.sink().prepare_destination("words-2")
    place.pre_commit("words-1")
    of_sub_folder = "sub/part-words-1-files-0-1-0.json"
    for name in ("part-00000-c000.json", "part-1", "_SUCCESS", "day=1/a.json", of_sub_folder):
        place.put(name)
    place.sink().prepare_destination("words-2")


def test_a_directory_that_can_not_be_listed_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    with pytest.raises(ConnectorError, match=r"out can't be listed: .*Not a directory.*Check the path"):
        FileSink.json(tmp_path / "out").prepare_destination("words-1")


def test_a_listing_ends_after_so_many_names_of_files_and_folders(place: Place) -> None:
    for number in range(3):
        place.put(f"{number}.json")
        place.put(f"day={number}/{number}.json")
    every = {f"{folder}{n}.json" for n in range(3) for folder in ("", f"day={n}/")}
    assert set(place.files.partition_files(place.directory, 100)) == every
    for most in range(9):
        found = place.files.partition_files(place.directory, most)
        assert len(found) <= most
        assert set(found) <= every


def test_a_store_is_asked_for_no_page_behind_the_last_name(monkeypatch: pytest.MonkeyPatch) -> None:
    store, pages = MemoryStore(), list[int]()
    for number in range(3_500):
        store.put(f"out/{number}", b"")
    listing = object_files.obstore.list

    def counted(*arguments: Any, **options: Any) -> Iterator[Any]:
        for page in listing(*arguments, **options):
            pages.append(len(page))
            yield page

    monkeypatch.setattr(object_files.obstore, "list", counted)
    files = ObjectFileSystem(store, "s3://bucket")
    assert len(files.partition_files("s3://bucket/out", 2_000)) == 2_000
    assert pages == [1_000, 1_000]


def test_a_link_back_to_the_directory_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "day=1").symlink_to(tmp_path)
    assert LocalFileSystem().partition_files(str(tmp_path), 100) == ["day=1"]


def test_another_answer_to_output_that_is_there_is_refused_by_every_form() -> None:
    folder: Any = "/out"
    makers = (
        FileSink.json,
        FileSink.csv,
        FileSink.parquet,
        lambda folder, **options: FileSink.records(folder, Text(), **options),
    )
    for make, value in itertools.product(makers, ("overwrite", "", None, [])):
        with pytest.raises(ConfigurationError, match=r"if_exists=.*use one of 'error', 'append', 'replace'"):
            make(folder, if_exists=value)
        assert make(folder).if_exists == "error"
        for value in ("append", "replace"):
            assert make(folder, if_exists=value).if_exists == value
