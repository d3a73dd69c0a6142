from __future__ import annotations

import csv
import json
import math
import os
from datetime import datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import LocalStore, MemoryStore

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.connectors import BadRecordError, ConnectorError, FileSink, FileSource, PendingFile
from penstock.runtime.io.connectors.object_files import ObjectFileSystem
from penstock.runtime.operators.protocols import RemovesLeftovers, Sink
from penstock.runtime.record.elements import ArrowBatch, RowBatch
from penstock.runtime.record.value_codec import ValueCodec


class Place:
    """A directory, on disk or in a store, and what is in it."""

    def __init__(self, directory, filesystem, names):
        self.directory = directory
        self.options = {} if filesystem is None else {"filesystem": filesystem}
        self.names = names

    def rows(self, read_all):
        return read_all(FileSource.json_lines(self.directory, **self.options)).rows


@pytest.fixture(params=["disk", "memory store", "local store"])
def place(request, tmp_path):
    directory = tmp_path / "out"
    if request.param == "disk":
        return Place(str(directory), None, lambda: sorted(os.listdir(directory)))
    store = MemoryStore() if request.param == "memory store" else LocalStore(tmp_path)
    files = ObjectFileSystem(store, "s3://bucket")

    def names():
        return sorted(each["path"].rpartition("/")[2] for chunk in store.list("out") for each in chunk)

    return Place("s3://bucket/out", files, names)


def test_rows_appear_when_they_are_committed_and_not_before(place, context, permit, read_all):
    writer = FileSink.json(place.directory, **place.options).writer(context(operator="to files"))
    writer.write(RowBatch([{"a": 1}, {"a": "é\n"}]))
    first = writer.prepare_commit()
    writer.write(RowBatch([[3]]))
    assert all(name.startswith("_") for name in place.names())
    writer.commit(first, permit)
    assert place.rows(read_all) == [{"a": 1}, {"a": "é\n"}]
    writer.commit(writer.prepare_commit(), permit)
    assert place.names() == ["part-job-1-to=20files-0-1-0.jsonl", "part-job-1-to=20files-0-1-1.jsonl"]
    assert place.rows(read_all) == [{"a": 1}, {"a": "é\n"}, [3]]
    writer.close()


def test_after_a_crash_the_next_attempt_commits_what_was_pre_committed(place, context, permit, read_all):
    sink = FileSink.json(place.directory, **place.options)
    crashed = sink.writer(context())
    crashed.write(RowBatch([1]))
    pending = crashed.prepare_commit()
    crashed.write(RowBatch([2]))
    codec = ValueCodec(allow_pickle=False)
    restored = sink.writer(context(attempt=2, subtask=1, parallelism=3))
    restored.commit(codec.loads(codec.dumps(list(pending))), permit)
    assert place.rows(read_all) == [1]


def test_committing_twice_changes_nothing(place, context, permit, read_all):
    writer = FileSink.json(place.directory, **place.options).writer(context())
    writer.write(RowBatch([1]))
    pending = writer.prepare_commit()
    writer.commit(pending, permit)
    writer.commit(pending, permit)
    assert place.rows(read_all) == [1]
    assert writer.statistics().files_committed == 1


def test_abort_removes_what_was_pre_committed_and_nothing_committed(place, context, permit, read_all):
    writer = FileSink.json(place.directory, **place.options).writer(context())
    writer.write(RowBatch([1]))
    kept = writer.prepare_commit()
    writer.commit(kept, permit)
    writer.write(RowBatch([2]))
    aborted = writer.prepare_commit()
    writer.abort(aborted)
    writer.abort(aborted)
    writer.abort(kept)
    assert place.names() == ["part-job-1-files-0-1-0.jsonl"]
    assert place.rows(read_all) == [1]


def test_committed_data_that_is_missing_is_an_error_unless_consumers_may_take_it(place, context, permit):
    writer = FileSink.json(place.directory, **place.options).writer(context())
    writer.write(RowBatch([1]))
    pending = writer.prepare_commit()
    writer.abort(pending)
    with pytest.raises(
        ConnectorError, match=r"committed data is missing: neither _in.* nor .*part-.*allow_missing"
    ):
        writer.commit(pending, permit)
    FileSink.json(place.directory, allow_missing=True, **place.options).writer(context()).commit(
        pending, permit
    )


def test_a_final_name_that_is_taken_is_never_overwritten(place, context, permit, read_all):
    sink = FileSink.json(place.directory, **place.options)
    writer = sink.writer(context())
    writer.write(RowBatch(["mine"]))
    (mine,) = writer.prepare_commit()
    other = sink.writer(context(job="other"))
    other.write(RowBatch(["older"]))
    (theirs,) = other.prepare_commit()
    other.commit([PendingFile(theirs.directory, theirs.name, mine.final, theirs.size)], permit)
    with pytest.raises(ConnectorError, match="nothing was overwritten"):
        writer.commit([mine], permit)
    assert place.rows(read_all) == ["older"]


def test_leftovers_of_earlier_attempts_of_this_operator_are_removed_and_nothing_else(place, context, permit):
    sink = FileSink.json(place.directory, **place.options)

    def leave(**where):
        left = sink.writer(context(**where))
        left.write(RowBatch([where]))
        return left.prepare_commit()

    gone = [*leave(), *leave(subtask=1), *leave(subtask=11, attempt=2)]
    kept = [
        *leave(attempt=3),
        *leave(job="job-1-files", operator="0"),
        *leave(job="job"),
        *leave(job="job-12"),
        *leave(operator="files-0"),
        *leave(operator="files2"),
    ]
    committed = leave(subtask=2)
    restored = sink.writer(context(attempt=3))
    assert isinstance(restored, RemovesLeftovers)
    restored.commit(committed, permit)
    restored.remove_leftovers(permit)
    assert place.names() == sorted([pending.name for pending in kept] + [committed[0].final])
    assert restored.statistics().files_removed == len(gone)


def test_large_files_are_ended_early_and_committed_together(place, context, permit, read_all):
    writer = FileSink.json(place.directory, max_file_size=1000, **place.options).writer(context())
    for i in range(100):
        writer.write(RowBatch([f"row {i:04}"] * 10))
    pending = writer.prepare_commit()
    assert len(pending) == 10
    assert {each.size for each in pending} == {1100}
    writer.commit(pending, permit)
    assert sorted(place.rows(read_all)) == sorted(f"row {i:04}" for i in range(100) for _ in range(10))
    assert writer.statistics().bytes_written == 11_000


def test_closing_removes_what_was_not_pre_committed_and_leaves_the_rest(place, context, permit, read_all):
    writer = FileSink.json(place.directory, max_file_size=10, **place.options).writer(context())
    writer.write(RowBatch(["pre-committed"]))
    pending = writer.prepare_commit()
    writer.write(RowBatch(["ended because it is large"]))
    writer.write(RowBatch(["open"]))
    writer.close()
    writer.close()
    assert place.names() == [pending[0].name]


def test_a_second_writer_of_the_same_attempt_uses_new_names(place, context, permit, read_all):
    sink = FileSink.json(place.directory, **place.options)
    for i in range(3):
        writer = sink.writer(context())
        writer.write(RowBatch([i]))
        writer.commit(writer.prepare_commit(), permit)
    assert place.rows(read_all) == [0, 1, 2]


def test_nothing_written_is_nothing_to_commit(place, context):
    writer = FileSink.json(place.directory, **place.options).writer(context())
    writer.write(RowBatch([]))
    assert list(writer.prepare_commit()) == []
    writer.close()


def test_files_go_where_they_were_written_even_when_the_sink_has_moved(tmp_path, context, permit):
    writer = FileSink.json(tmp_path / "old").writer(context())
    writer.write(RowBatch([1]))
    pending = writer.prepare_commit()
    FileSink.json(tmp_path / "new").writer(context(attempt=2)).commit(pending, permit)
    assert os.listdir(tmp_path / "old") == ["part-job-1-files-0-1-0.jsonl"]


def test_a_crash_between_the_two_steps_of_a_commit_is_healed(tmp_path, context, permit):
    writer = FileSink.json(tmp_path).writer(context())
    writer.write(RowBatch([1]))
    (pending,) = writer.prepare_commit()
    os.link(tmp_path / pending.name, tmp_path / pending.final)
    writer.commit([pending], permit)
    assert os.listdir(tmp_path) == [pending.final]


def test_a_directory_that_can_not_be_written_is_named_when_the_writer_is_made(tmp_path, context):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(
        ConnectorError, match=r"operator 'files': directory .*/file can't be written.*Make it"
    ):
        FileSink.json(tmp_path / "file").writer(context())
    with pytest.raises(ConnectorError, match=r"directory .*/file/below can't be written"):
        FileSink.json(tmp_path / "file" / "below").writer(context())


def test_any_text_is_an_operator_id(place, context, permit, read_all):
    sink = FileSink.json(place.directory, **place.options)
    operators = ["Zähler/../-[*]", "日本語" * 50, "日本語" * 50 + "!", "a#%?\n", "", "=3D", "="]
    for operator in operators:
        writer = sink.writer(context(operator=operator))
        writer.write(RowBatch([operator]))
        writer.commit(writer.prepare_commit(), permit)
    assert len(place.names()) == len(operators)
    assert all(len(name) < 200 and name.isascii() for name in place.names())
    assert sorted(place.rows(read_all)) == sorted(operators)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"when": datetime(2024, 1, 1)}, "datetime is not JSON serializable"),  # noqa: DTZ001
        ({"x": math.nan}, "not JSON compliant"),
        ("\ud800", "surrogates not allowed"),
        ({(1, 2): 3}, "keys must be"),
    ],
)
def test_a_row_that_is_no_json_is_shown_with_its_type(tmp_path, context, row, reason):
    writer = FileSink.json(tmp_path).writer(context())
    with pytest.raises(
        BadRecordError, match=f"a row of type {type(row).__name__} can't be written.*{reason}"
    ):
        writer.write(RowBatch([{"fine": 1}, row]))
    writer.close()
    assert os.listdir(tmp_path) == []


def test_a_huge_or_endless_row_gives_a_bounded_message(tmp_path, context):
    writer = FileSink.json(tmp_path).writer(context())
    endless: list[object] = []
    endless.append(endless)
    for row in (endless, [object()] * 10_000):
        with pytest.raises(BadRecordError) as failure:
            writer.write(RowBatch([row]))
        assert len(str(failure.value)) < 1000


def test_default_makes_json_of_other_objects(tmp_path, context):
    writer = FileSink.json(tmp_path, default=str).writer(context())
    writer.write(RowBatch([{"d": Decimal("1.50"), "t": (1, None, True)}]))
    (pending,) = writer.prepare_commit()
    assert json.loads((tmp_path / pending.name).read_text()) == {"d": "1.50", "t": [1, None, True]}


def test_arrow_batches_are_written_by_every_format(tmp_path, context, permit, read_all):
    batch = pa.record_batch({"a": [1, 2], "b": ["x", None]})
    for sink in (
        FileSink.json(tmp_path / "j"),
        FileSink.csv(tmp_path / "c"),
        FileSink.parquet(tmp_path / "p"),
    ):
        writer = sink.writer(context())
        writer.write(ArrowBatch(batch))
        writer.commit(writer.prepare_commit(), permit)
    rows = [{"a": 1, "b": "x"}, {"a": 2, "b": None}]
    assert read_all(FileSource.json_lines(tmp_path / "j")).rows == rows
    assert read_all(FileSource.csv(tmp_path / "c", types={"a": int})).rows == [rows[0], {"a": 2, "b": ""}]
    assert read_all(FileSource.parquet(tmp_path / "p")).rows == rows


def csv_lines(directory):
    (name,) = os.listdir(directory)
    with open(directory / name, newline="") as file:
        return list(csv.reader(file))


def test_csv_of_dicts_has_a_header_in_every_file(tmp_path, context, permit):
    writer = FileSink.csv(tmp_path, columns=["b", "a"]).writer(context())
    writer.write(RowBatch([{"a": 1, "b": 'x, "y"\n'}]))
    writer.write(RowBatch([{"b": None, "a": 2}]))
    writer.prepare_commit()
    assert csv_lines(tmp_path) == [["b", "a"], ['x, "y"\n', "1"], ["", "2"]]
    writer.write(RowBatch([(5, 6)]))
    (pending,) = writer.prepare_commit()
    assert (tmp_path / pending.name).read_text() == "b,a\n5,6\n"


def test_csv_of_one_column_and_without_names(tmp_path, context):
    writer = FileSink.csv(tmp_path / "one").writer(context())
    writer.write(RowBatch([{"a": ""}, {"a": 1}]))
    writer.prepare_commit()
    assert csv_lines(tmp_path / "one") == [["a"], [""], ["1"]]
    writer = FileSink.csv(tmp_path / "tuples", delimiter=";").writer(context())
    writer.write(RowBatch([(1, "x"), (2, "y;")]))
    writer.prepare_commit()
    (name,) = os.listdir(tmp_path / "tuples")
    assert (tmp_path / "tuples" / name).read_text() == '1;x\n2;"y;"\n'


@pytest.mark.parametrize(
    ("first", "row", "message"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, r"misses \['b'\] and has \[\] too much"),
        ({"a": 1, "b": 2}, {"a": 1, "c": 2}, r"misses \['b'\] and has \['c'\] too much"),
        ((1, 2), (1, 2, 3), "has 3 fields"),
        ((1, 2), "text", "is a str; CSV takes dicts"),
        ("text", "text", "is a str; CSV takes dicts"),
    ],
)
def test_a_row_that_does_not_fit_the_csv_columns_is_shown(tmp_path, context, first, row, message):
    writer = FileSink.csv(tmp_path).writer(context())
    with pytest.raises(BadRecordError, match=message):
        writer.write(RowBatch([first, first, row]))
    writer.close()


def test_parquet_rows_go_into_row_groups_of_one_schema(tmp_path, context, permit, read_all):
    writer = FileSink.parquet(tmp_path).writer(context())
    rows = [{"i": i, "s": None if i < 5 else str(i)} for i in range(70_000)]
    for start in range(0, len(rows), 1000):
        writer.write(RowBatch(rows[start : start + 1000]))
    pending = writer.prepare_commit()
    writer.write(RowBatch([{"s": "x"}]))
    pending = [*pending, *writer.prepare_commit()]
    writer.commit(pending, permit)
    files = [pq.ParquetFile(tmp_path / each.final) for each in pending]
    assert [file.metadata.num_row_groups for file in files] == [2, 1]
    assert files[0].schema_arrow == files[1].schema_arrow
    assert read_all(FileSource.parquet(tmp_path)).rows == [*rows, {"i": None, "s": "x"}]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"i": "x"}, "column 'i' can't be made of its values.*int64"),
        ({"i": 1, "new": 2}, r"a row has columns \['new'\]"),
        ((1, 2), "a row of type tuple can't be written as Parquet"),
    ],
)
def test_parquet_rows_of_another_schema_are_shown(tmp_path, context, row, message):
    writer = FileSink.parquet(tmp_path).writer(context())
    writer.write(RowBatch([{"i": 1}]))
    writer.prepare_commit()
    writer.write(RowBatch([{"i": 2}, row]))
    with pytest.raises(BadRecordError, match=message):
        writer.prepare_commit()
    writer.close()


def test_a_parquet_schema_can_be_given_and_arrow_batches_are_cast_to_it(tmp_path, context, permit):
    schema = pa.schema([("i", pa.int32()), ("d", pa.decimal128(9, 2))])
    writer = FileSink.parquet(tmp_path, schema).writer(context())
    writer.write(RowBatch([{"i": 1, "d": Decimal("1.5")}, {"i": None}]))
    writer.write(ArrowBatch(pa.record_batch({"d": pa.array([Decimal("2.25")]), "i": [7]})))
    with pytest.raises(BadRecordError, match="an Arrow batch has columns"):
        writer.write(ArrowBatch(pa.record_batch({"i": [7]})))
    (pending,) = writer.prepare_commit()
    table = pq.read_table(tmp_path / pending.name)
    assert table.schema == schema
    assert table.to_pylist() == [
        {"i": 1, "d": Decimal("1.50")},
        {"i": None, "d": None},
        {"i": 7, "d": Decimal("2.25")},
    ]


def test_every_format_is_written_to_and_read_from_an_object_store(context, permit, read_all):
    files = ObjectFileSystem(MemoryStore(), "s3://bucket")
    rows = [{"a": i, "b": f"é{i}" * 50} for i in range(5000)]
    for make, read in (
        (FileSink.json, FileSource.json_lines),
        (
            FileSink.csv,
            lambda where, filesystem: FileSource.csv(where, types={"a": int}, filesystem=filesystem),
        ),
        (FileSink.parquet, lambda where, filesystem: FileSource.parquet(where, filesystem=filesystem)),
    ):
        where = f"s3://bucket/{make.__name__}"
        writer = make(where, filesystem=files).writer(context())
        writer.write(RowBatch(rows))
        writer.commit(writer.prepare_commit(), permit)
        assert read_all(read(where, filesystem=files), 700, restore_every=2).rows == rows


def test_settings_that_are_not_allowed_are_named(tmp_path):
    with pytest.raises(ConfigurationError, match="max_file_size=0"):
        FileSink.json(tmp_path, max_file_size=0)
    with pytest.raises(ConfigurationError, match="max_file_size="):
        FileSink.json("s3://bucket/out", max_file_size=6 * 1024**3)
    with pytest.raises(ConfigurationError, match="delimiter=''"):
        FileSink.csv(tmp_path, delimiter="")
    with pytest.raises(ConfigurationError, match="list of different names"):
        FileSink.csv(tmp_path, columns="ab")
    with pytest.raises(ConfigurationError, match="compression='best'"):
        FileSink.parquet(tmp_path, compression="best")
    assert isinstance(FileSink.json(tmp_path), Sink)
