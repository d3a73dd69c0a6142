"""Output of the formats of a file sink, and their refusals of rows."""

from __future__ import annotations

import csv
import json
import math
import os
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import MemoryStore

from penstock import BadRecordError, FileSink, FileSource
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.connectors.object_files import ObjectFileSystem
from penstock.runtime.operators.sinks import Sink
from penstock.runtime.record.elements import ArrowBatch, RowBatch


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"when": date(2024, 1, 1)}, "an object of type date has no JSON form"),
        ({"x": math.nan}, "not JSON compliant"),
        ("\ud800", "surrogates not allowed"),
        ({(1, 2): 3}, "keys must be"),
        ({1: "a", "1": "b"}, "two of its keys have the JSON name '1'"),
        ({"in": [{"x": {None: 1, "null": 2}}]}, "two of its keys have the JSON name 'null'"),
        (({True: 1, "true": 2},), "two of its keys have the JSON name 'true'"),
    ],
)
def test_a_row_that_is_no_json_is_shown_with_its_type(tmp_path, context, row, reason):
    writer = FileSink.json(tmp_path).writer(context())
    with pytest.raises(
        BadRecordError, match=f"a record of type {type(row).__name__} can't be written.*{reason}"
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
    writer = FileSink.json(tmp_path, default=lambda value: {1: value.real, "1": value.imag}).writer(context())
    with pytest.raises(BadRecordError, match="two of its keys have the JSON name '1'"):
        writer.write(RowBatch([{"v": 1 + 2j}]))


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
    assert read_all(FileSource.json(tmp_path / "j")).rows == rows
    assert read_all(FileSource.csv(tmp_path / "c", schema={"a": int})).rows == [rows[0], {"a": 2, "b": ""}]
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


def test_the_first_row_that_is_no_csv_is_shown(tmp_path, context):
    writer = FileSink.csv(tmp_path).writer(context())
    with pytest.raises(BadRecordError, match=r"surrogates not allowed; the row is {'a': '.*udc80'}"):
        writer.write(RowBatch([{"a": "fine"}, {"a": "\udc80"}, {"a": "\udc81"}]))
    writer.close()


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


@pytest.mark.parametrize("text", ["a\rb", "\r", "a\r\nb", "\n", '"', "a,b", "", " ", "'"])
def test_every_text_comes_back_from_csv(tmp_path, context, permit, read_all, text):
    rows = [{"i": "1", text or "t": text}, {"i": "2", text or "t": "x"}]
    writer = FileSink.csv(tmp_path).writer(context())
    writer.write(RowBatch(rows))
    writer.commit(writer.prepare_commit(), permit)
    assert read_all(FileSource.csv(tmp_path)).rows == rows
    assert read_all(FileSource.csv(tmp_path, batch_format="arrow")).rows == rows


@pytest.mark.parametrize(
    ("first", "row", "message"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, r"lacks the keys \['b'\] and has the extra keys \[\]"),
        ({"a": 1, "b": 2}, {"a": 1, "c": 2}, r"lacks the keys \['b'\] and has the extra keys \['c'\]"),
        ((1, 2), (1, 2, 3), "has a different number of fields, 3"),
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
        ({"i": "x"}, r"column 'i' of type int64 can't hold 'x' of type str.*one of the rows is {'i': 'x'}"),
        ({"i": 1.5}, r"column 'i' of type int64 can't hold 1\.5 of type float unchanged"),
        ({"i": 1, "new": 2}, r"a row has unknown columns \['new'\]"),
        ((1, 2), "a row of type tuple can't be written as Parquet"),
    ],
)
def test_parquet_rows_of_another_schema_are_shown(tmp_path, context, row, message):
    writer = FileSink.parquet(tmp_path, pa.schema({"i": pa.int64()})).writer(context())
    writer.write(RowBatch([{"i": 1}]))
    writer.prepare_commit()
    writer.write(RowBatch([{"i": 2}, row]))
    with pytest.raises(BadRecordError, match=message):
        writer.prepare_commit()
    writer.close()


def test_arrow_batches_are_written_to_parquet_as_they_are(tmp_path, context, permit):
    rows = 70_000
    columns = {
        "i": pa.array(range(rows), pa.uint16() if rows < 2**16 else pa.uint32()),
        "category": pa.array(["a", None] * (rows // 2)).dictionary_encode(),
        "list": pa.array([[1.5, None], []] * (rows // 2)),
        "at": pa.array(range(rows)).cast(pa.timestamp("ns", "Europe/Berlin")),
        "price": pa.array([Decimal("1.10"), Decimal("-2.00")] * (rows // 2), pa.decimal256(50, 2)),
    }
    whole = pa.record_batch(columns)
    writer = FileSink.parquet(tmp_path).writer(context())
    for start in range(0, rows, 9_999):
        part = whole.slice(start, 9_999)
        noted = part.replace_schema_metadata({"from": "a file"}) if start else part
        writer.write(ArrowBatch(noted))
    writer.commit(writer.prepare_commit(), permit)
    (path,) = tmp_path.glob("part-*")
    assert pq.ParquetFile(path).metadata.num_row_groups == 2
    back = pq.read_table(path)
    assert back.schema.remove_metadata() == whole.schema
    assert back.combine_chunks().equals(pa.Table.from_batches([whole]).combine_chunks())


def test_rows_and_arrow_batches_of_a_parquet_file_have_one_schema(tmp_path, context):
    writer = FileSink.parquet(tmp_path).writer(context())
    writer.write(ArrowBatch(pa.record_batch({"i": [1], "s": ["x"]})))
    writer.write(RowBatch([{"i": 2, "s": None}]))
    (pending,) = writer.prepare_commit()
    assert pq.read_table(tmp_path / pending.name).to_pylist() == [{"i": 1, "s": "x"}, {"i": 2, "s": None}]


def test_parquet_of_a_given_schema_drops_no_field_that_it_does_not_have(tmp_path, context):
    schema = pa.schema({"s": pa.struct({"x": pa.int64()})})
    writer = FileSink.parquet(tmp_path, schema).writer(context())
    with pytest.raises(BadRecordError, match=r"column 's' of type struct<x: int64> has no field 'y'"):
        writer.write(ArrowBatch(pa.record_batch({"s": [{"x": 1, "y": 2}]})))


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
        (FileSink.json, FileSource.json),
        (
            FileSink.csv,
            lambda where, filesystem: FileSource.csv(where, schema={"a": int}, filesystem=filesystem),
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
