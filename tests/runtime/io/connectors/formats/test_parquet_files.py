from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.runtime import ConnectorError, FileSource
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.record.elements import ArrowBatch

ROWS = [
    {
        "i": i,
        "f": None if i % 7 == 0 else i / 3,
        "s": None if i % 5 == 0 else f"é{i}",
        "t": datetime(2024, 1, 1, microsecond=i, tzinfo=UTC),
        "d": Decimal(i).scaleb(-2),
        "l": [i, i + 1],
        "b": i % 2 == 0,
    }
    for i in range(1000)
]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=300)
    return path


def test_each_row_group_is_a_split(file):
    assert [split.row_group for split in FileSource.parquet(file).splits(2)] == [0, 1, 2, 3]


@pytest.mark.parametrize("format", ["rows", "arrow"])
@pytest.mark.parametrize("restore_every", [0, 1, 3])
def test_rows_come_back_equal_from_any_position(file, read_all, format, restore_every):
    back = read_all(FileSource.parquet(file, format=format), 70, restore_every)
    assert back.rows == ROWS
    assert all(type(row["i"]) is int and type(row["b"]) is bool for row in back.rows)


def test_a_position_far_into_a_large_row_group_is_found_again(tmp_path, read_all):
    pq.write_table(pa.table({"i": range(50_000)}), tmp_path / "a.parquet")
    back = read_all(FileSource.parquet(tmp_path), 9000, restore_every=1)
    assert [row["i"] for row in back.rows] == list(range(50_000))


def test_arrow_batches_stay_arrow(file, context):
    source = FileSource.parquet(file, columns=["i", "s"], format="arrow")
    reader = source.reader(context(), source.splits(1))
    batch = reader.poll(10).batch
    reader.close()
    assert isinstance(batch, ArrowBatch)
    assert batch.batch.schema.names == ["i", "s"]
    assert len(batch) == 40


def test_only_wanted_columns_are_read(file, read_all):
    assert read_all(FileSource.parquet(file, columns=["s"])).rows == [{"s": row["s"]} for row in ROWS]


def test_a_time_that_python_has_no_value_for_is_refused_as_a_row_by_its_column(tmp_path, read_all):
    far = pa.array([0, 2**62]).cast(pa.timestamp("us"))
    pq.write_table(pa.table({"i": [1, 2], "at": far}), tmp_path / "a.parquet")
    with pytest.raises(ConnectorError, match=r"column 'at' of type timestamp\[us\] .* the years 1 to 9999"):
        read_all(FileSource.parquet(tmp_path))


def test_empty_row_groups_and_files_give_nothing(tmp_path, read_all):
    pq.write_table(pa.table({"a": pa.array([], pa.int64())}), tmp_path / "a.parquet")
    assert read_all(FileSource.parquet(tmp_path)).rows == []


def test_what_is_wrong_with_a_file_is_named(file, tmp_path, context):
    with pytest.raises(ConnectorError, match=r"a\.parquet: there is no column \['x'\]; the file has \['i', "):
        FileSource.parquet(file, columns=["x"]).splits(1)
    (tmp_path / "b.parquet").write_text("this is no Parquet file")
    with pytest.raises(ConnectorError, match=r"b\.parquet can't be read as Parquet"):
        FileSource.parquet(tmp_path / "b.parquet").splits(1)
    source = FileSource.parquet(file)
    splits = source.splits(1)
    file.write_bytes(file.read_bytes() + b"x")
    with pytest.raises(ConnectorError, match="has changed"):
        source.reader(context(), splits).poll(1)
    with pytest.raises(ConfigurationError, match="format='pandas'"):
        FileSource.parquet(file, format="pandas")  # type: ignore[arg-type]
