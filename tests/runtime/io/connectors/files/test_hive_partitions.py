"""Folders `name=value` are columns, of every format, with types that keep every letter."""

from __future__ import annotations

import json
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from penstock import ConnectorError, FileSource
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.operators.source import NeededColumns
from penstock.runtime.record.value_codec import ValueCodec

FOLDERS = {"year=2020/month=02": 1, "year=2021/month=11": 2, "year=__HIVE_DEFAULT_PARTITION__/month=a%2Fb": 3}
COLUMNS = [(2020, "02"), (2021, "11"), (None, "a/b")]
EXPECTED = [{"n": n, "year": year, "month": month} for n, (year, month) in enumerate(COLUMNS, 1)]


def write(folder, kind, name, numbers):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.{kind}"
    if kind == "csv":
        path.write_text("n\n" + "".join(f"{n}\n" for n in numbers))
    elif kind == "json":
        path.write_text("".join(json.dumps({"n": n}) + "\n" for n in numbers))
    else:
        pq.write_table(pa.table({"n": numbers}), path)


@pytest.fixture
def place(tmp_path):
    for folder, n in FOLDERS.items():
        for kind in ("csv", "json", "parquet"):
            write(tmp_path / kind / folder, kind, "part-0", [n])
    return tmp_path


SOURCES = [
    ("csv", {"schema": "infer"}),
    ("csv", {"schema": {"n": int}}),
    ("csv", {"schema": "infer", "batch_format": "arrow"}),
    ("json", {}),
    ("json", {"batch_format": "arrow"}),
    ("parquet", {}),
    ("parquet", {"batch_format": "arrow"}),
]


@pytest.mark.parametrize("partitioning", ["auto", "hive"])
@pytest.mark.parametrize(("kind", "settings"), SOURCES)
@pytest.mark.parametrize("restore_every", [0, 1])
def test_folders_are_columns_of_every_format(place, read_all, kind, settings, partitioning, restore_every):
    source = getattr(FileSource, kind)(place / kind, partitioning=partitioning, **settings)
    assert read_all(source, restore_every=restore_every).rows == EXPECTED
    warnings = source.splits(1).warnings
    if partitioning == "hive":
        assert list(warnings) == []
    else:
        (notice,) = warnings
        assert "folders such as 'year=2020' are read as columns: 'year', 'month'" in notice
        assert "partitioning=None leaves them out" in notice


@pytest.mark.parametrize(("kind", "settings"), SOURCES)
def test_folders_are_no_columns_when_the_program_says_so(place, read_all, kind, settings):
    source = getattr(FileSource, kind)(place / kind, partitioning=None, **settings)
    assert read_all(source).rows == [{"n": n} for n in (1, 2, 3)]
    assert list(source.splits(1).warnings) == []


def test_lines_of_text_stay_lines_unless_the_program_wants_their_folders(place, read_all):
    source = FileSource.text(place / "json")
    assert read_all(source).rows[0] == '{"n": 1}'
    (notice,) = source.splits(1).warnings
    assert "are ignored, because records have no fields. partitioning='hive' makes dicts of 'value'" in notice
    source = FileSource.text(place / "json", partitioning="hive")
    assert read_all(source).rows[0] == {"value": '{"n": 1}', "year": 2020, "month": "02"}


def test_positions_of_partitioned_splits_travel_in_snapshots(tmp_path, context, drain):
    write(tmp_path / "d=2024-02-29", "csv", "a", range(5_000))
    source = FileSource.csv(tmp_path, schema="infer")
    reader = source.reader(context(), source.splits(1))
    reader.poll(10)
    codec = ValueCodec(allow_pickle=False)
    splits = codec.loads(codec.dumps(list(reader.snapshot())))
    reader.close()
    reader = source.reader(context(), splits)
    rows = drain(reader).rows
    assert 0 < len(rows) < 5_000
    assert rows[-1] == {"n": 4_999, "d": date(2024, 2, 29)}
    reader.close()


@pytest.mark.parametrize("batch_format", ["rows", "arrow"])
def test_columns_of_folders_are_chosen_and_filtered_like_others(place, read_all, batch_format):
    source = FileSource.parquet(place / "parquet", batch_format=batch_format, partitioning="hive")
    chosen = source.with_projection(["year", "n"])
    assert [list(row.items()) for row in read_all(chosen).rows] == [
        [("year", row["year"]), ("n", row["n"])] for row in EXPECTED
    ]
    assert [row["year"] for row in read_all(source.with_projection(["year"])).rows] == [2020, 2021, None]
    assert read_all(source.with_projection(["n"])).rows == [{"n": n} for n in (1, 2, 3)]
    assert [row["n"] for row in read_all(source.with_filter(pc.field("year") > 2020)).rows] == [2]
    assert [row["n"] for row in read_all(source.with_filter(pc.field("n") > 2)).rows] == [3]
    needed = source.reading(NeededColumns(("year",), ()))
    assert [row["year"] for row in read_all(needed).rows] == [2020, 2021, None]
    with pytest.raises(ConnectorError, match=r"the file lacks \['yaer'\]"):
        read_all(source.with_projection(["yaer"]))
    csv = FileSource.csv(
        place / "csv", columns=["month", "n"], schema={"n": pa.int8()}, batch_format=batch_format
    )
    assert read_all(csv).rows[0] == {"month": "02", "n": 1}


def test_types_of_folders_may_be_declared(place, read_all):
    schema = {"n": pa.int8(), "year": pa.string(), "month": pa.string()}
    rows = read_all(FileSource.csv(place / "csv", schema=schema, batch_format="arrow")).rows
    assert rows[0] == {"n": 1, "year": "2020", "month": "02"}
    with pytest.raises(ConnectorError, match=r"folders of column 'month' can't be read as int8"):
        read_all(FileSource.csv(place / "csv", schema={"month": pa.int8()}))
    schema = pa.schema({"n": pa.int32(), "year": pa.int16()})
    rows = read_all(FileSource.json(place / "json", batch_format="arrow", schema=schema)).rows
    assert rows[0] == {"n": 1, "year": 2020, "month": "02"}


@pytest.mark.parametrize("batch_format", ["rows", "arrow"])
def test_a_column_that_the_file_has_keeps_its_values(tmp_path, read_all, batch_format):
    write(tmp_path / "json" / "n=7", "json", "a", [1])
    write(tmp_path / "parquet" / "n=7", "parquet", "a", [1])
    write(tmp_path / "csv" / "n=7", "csv", "a", [1])
    for kind in ("json", "parquet"):
        source = getattr(FileSource, kind)
        assert read_all(source(tmp_path / kind, batch_format=batch_format)).rows == [{"n": 1}]
    assert read_all(FileSource.parquet(tmp_path / "parquet", ["n"], batch_format)).rows == [{"n": 1}]
    source = FileSource.csv(tmp_path / "csv", columns=["n"], schema="infer", batch_format=batch_format)
    assert read_all(source).rows == [{"n": 1}]


def test_only_folders_below_the_location_are_found_by_default(tmp_path, read_all):
    write(tmp_path / "run=3" / "year=2020", "csv", "a", [1])
    write(tmp_path / "run=3" / "_hidden=x", "csv", "b", [2])
    below = {"n": "1", "year": 2020, "_hidden": None}
    rows = read_all(FileSource.csv(tmp_path / "run=3")).rows
    assert sorted(rows, key=lambda row: row["n"]) == [below, {"n": "2", "year": None, "_hidden": "x"}]
    path = tmp_path / "run=3" / "year=2020"
    assert read_all(FileSource.csv(path)).rows == [{"n": "1"}]
    assert read_all(FileSource.csv(path / "*.csv", partitioning="hive")).rows == [
        {"n": "1", "run": 3, "year": 2020}
    ]
    globbed = read_all(FileSource.csv(tmp_path / "run=3" / "year=*" / "*.csv")).rows
    assert globbed == [{"n": "1", "year": 2020}]


def test_what_can_not_be_read_so_is_refused(tmp_path, read_all):
    write(tmp_path / "twice" / "a=1" / "a=2", "csv", "x", [1])
    with pytest.raises(ConnectorError, match="two folders name the column 'a'"):
        read_all(FileSource.csv(tmp_path / "twice"))
    write(tmp_path / "latin" / "a=%E4", "csv", "x", [1])
    with pytest.raises(ConnectorError, match="the folder 'a=%E4' is not UTF-8"):
        read_all(FileSource.csv(tmp_path / "latin"))
    folder = tmp_path / "list" / "a=1"
    folder.mkdir(parents=True)
    (folder / "x.json").write_text("[1]\n")
    with pytest.raises(ConnectorError, match=r"a record is \[1\], which can't hold the columns \['a'\]"):
        read_all(FileSource.json(tmp_path / "list"))
    with pytest.raises(ConfigurationError, match="partitioning='spark' is not allowed"):
        FileSource.csv("/data", partitioning="spark")
