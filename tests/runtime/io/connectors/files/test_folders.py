"""Files of a sink in folders by columns: what is written, what is read back, and what is refused."""

from __future__ import annotations

import os
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.store import MemoryStore

from penstock import ConfigurationError, ConnectorError, FileSink
from penstock.connectors import UntrustedPathError
from penstock.runtime.io.connectors.files import file_sink_writer
from penstock.runtime.io.connectors.files.file_sink_writer import PendingFile
from penstock.runtime.io.connectors.files.file_source import FileSource
from penstock.runtime.io.connectors.files.folders import Folders
from penstock.runtime.io.connectors.object_files import ObjectFileSystem
from penstock.runtime.record.elements import ArrowBatch, RowBatch

ROWS = [
    {"day": date(2024, 5, 1), "hour": 7, "n": 1},
    {"day": date(2024, 5, 1), "hour": 8, "n": 2},
    {"day": None, "hour": 7, "n": 3},
    {"day": date(2024, 5, 1), "hour": 7, "n": 4},
]
FOLDERS = {
    "day=2024-05-01/hour=7": [1, 4],
    "day=2024-05-01/hour=8": [2],
    "day=__HIVE_DEFAULT_PARTITION__/hour=7": [3],
}


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("as_columns", [False, True])
def test_files_get_their_folders_when_they_are_committed(
    tmp_path: Path, as_columns: bool, context: Any, permit: Any, read_all: Any
) -> None:
    writer = FileSink.parquet(tmp_path / "out", partition_by=["day", "hour"]).writer(context(operator="out"))
    batch = ArrowBatch(pa.RecordBatch.from_pylist(ROWS)) if as_columns else RowBatch(ROWS)
    writer.write(batch)
    pending = writer.prepare_commit()
    assert all(name.startswith("_") for name in files_below(tmp_path / "out")), "nothing can be read yet"
    writer.commit(pending, permit)
    writer.commit(pending, permit)
    assert {os.path.dirname(name) for name in files_below(tmp_path / "out")} == set(FOLDERS)
    read = read_all(FileSource.parquet(tmp_path / "out", partitioning="hive")).rows
    assert sorted((str(row["day"]), row["hour"], row["n"]) for row in read) == sorted(
        (str(row["day"]), row["hour"], row["n"]) for row in ROWS
    )


def test_folders_are_parts_of_keys_in_an_object_store(context: Any, permit: Any) -> None:
    store = MemoryStore()
    files = ObjectFileSystem(store, "s3://bucket")
    sink = FileSink.json("s3://bucket/out", filesystem=files, partition_by=["day", "hour"])
    writer = sink.writer(context(operator="out"))
    writer.write(RowBatch(ROWS))
    writer.commit(writer.prepare_commit(), permit)
    keys = [each["path"] for chunk in store.list("out") for each in chunk]
    assert {os.path.dirname(key) for key in keys} == {f"out/{folder}" for folder in FOLDERS}


def test_leftovers_of_all_folders_are_deleted(tmp_path: Path, context: Any, permit: Any) -> None:
    sink = FileSink.json(tmp_path, partition_by=["day", "hour"])
    sink.writer(context(operator="out")).write(RowBatch(ROWS))
    writer = sink.writer(context(operator="out", attempt=2))
    writer.remove_leftovers(permit)
    assert files_below(tmp_path) == []


def test_with_many_folders_the_least_recently_written_file_ends(
    tmp_path: Path, context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_sink_writer, "MOST_OPEN", 2)
    writer = FileSink.json(tmp_path, partition_by=["k"]).writer(context(operator="out"))
    for key in "abacb":
        writer.write(RowBatch([{"k": key, "n": 1}]))
    ended = [pending.final.partition("/")[0] for pending in writer.prepare_commit()]
    assert ended == ["k=b", "k=a", "k=c", "k=b"]


def test_files_of_all_folders_have_the_columns_of_the_first_record(
    tmp_path: Path, context: Any, permit: Any
) -> None:
    writer = FileSink.csv(tmp_path, partition_by=["k"], header=False).writer(context(operator="out"))
    writer.write(RowBatch([{"k": 1, "a": "a1", "b": "b1"}, {"k": 2, "b": "b2", "a": "a2"}]))
    writer.commit(writer.prepare_commit(), permit)
    writer.write(RowBatch([{"k": 2, "b": "b3", "a": "a3"}]))
    writer.commit(writer.prepare_commit(), permit)
    lines = [(tmp_path / name).read_text() for name in files_below(tmp_path)]
    assert lines == ["a1,b1\n", "a2,b2\n", "a3,b3\n"]
    with pytest.raises(ConnectorError, match=r"does not fit the CSV columns \('a', 'b'\)"):
        writer.write(RowBatch([{"k": 3, "a": 1}]))


VALUES = st.one_of(
    st.none(),
    st.text(max_size=3),
    st.integers(-5, 5),
    st.booleans(),
    st.dates(date(2024, 1, 1)),
)


@given(st.lists(st.tuples(st.one_of(st.none(), st.text(max_size=3)), st.sampled_from([1, 2, None]))))
def test_rows_and_columns_have_the_same_folders(pairs: list[tuple[Any, Any]]) -> None:
    rows = [{"a": a, "b": b, "n": n} for n, (a, b) in enumerate(pairs)]
    schema = pa.schema({"a": pa.string(), "b": pa.int64(), "n": pa.int64()})
    folders = Folders(["b", "a"])
    of_rows = {folder: [row["n"] for row in part.rows] for folder, part in folders.split(RowBatch(rows))}
    columns = ArrowBatch(pa.RecordBatch.from_pylist(rows, schema))
    of_columns = {folder: part.batch["n"].to_pylist() for folder, part in folders.split(columns)}
    assert of_rows == of_columns
    assert sorted(n for part in of_rows.values() for n in part) == list(range(len(rows)))


@given(VALUES)
def test_no_value_leads_out_of_its_folder(value: Any) -> None:
    ((folder, _),) = Folders(["k/=.."]).split(RowBatch([{"k/=..": value}]))
    assert folder.count("/") == 0
    assert folder.startswith("k%2F%3D..=")


@pytest.mark.parametrize("value", [1.5, datetime(2024, 1, 1, tzinfo=UTC), [1]])
def test_a_value_that_names_no_folder_is_refused(tmp_path: Path, context: Any, value: Any) -> None:
    writer = FileSink.json(tmp_path, partition_by=["k"]).writer(context(operator="out"))
    with pytest.raises(ConnectorError, match=r"column 'k' of partition_by has .* can't name a folder"):
        writer.write(RowBatch([{"k": value}]))
    with pytest.raises(ConnectorError, match="partition_by needs dicts"):
        writer.write(RowBatch([value]))
    with pytest.raises(ConnectorError, match="no column 'k' of partition_by: it has j"):
        writer.write(ArrowBatch(pa.record_batch({"j": [1]})))


@pytest.mark.parametrize("value", ["x" * 254, "é" * 43, "\ud800"])
def test_a_value_whose_folder_no_commit_could_make_is_refused_when_it_is_written(
    tmp_path: Path, context: Any, permit: Any, value: str
) -> None:
    writer = FileSink.json(tmp_path, partition_by=["k"]).writer(context(operator="out"))
    with pytest.raises(ConnectorError, match="column 'k' of partition_by has"):
        writer.write(RowBatch([{"k": value}]))
    for longest in ("x" * 253, "é" * 42):
        writer.write(RowBatch([{"k": longest}]))
    writer.commit(writer.prepare_commit(), permit)


def test_a_column_whose_folders_are_hidden_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"partition_by has '\.k': readers skip folders"):
        FileSink.json(tmp_path, partition_by=["_k", ".k"])


@pytest.mark.parametrize("by", ["day", ["day", "day"], [""], [5]])
def test_what_names_no_columns_is_refused(tmp_path: Path, by: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"partition_by=.* is not allowed"):
        FileSink.json(tmp_path, partition_by=by)


@pytest.mark.parametrize("folder", ["..", "k=1/..", "elsewhere", "/k=1", "k=1/"])
def test_a_snapshot_names_no_other_folder(tmp_path: Path, context: Any, permit: Any, folder: str) -> None:
    writer = FileSink.json(tmp_path, partition_by=["k"]).writer(context(operator="out"))
    writer.write(RowBatch([{"k": 1}]))
    (pending,) = writer.prepare_commit()
    final = f"{folder}/{pending.final.rpartition('/')[2]}"
    with pytest.raises(UntrustedPathError):
        writer.commit([PendingFile(pending.directory, pending.name, final, pending.size)], permit)
