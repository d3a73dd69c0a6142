from __future__ import annotations

import pickle
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from penstock import ConnectorError, FileSource
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


@pytest.mark.parametrize("batch_format", ["rows", "arrow"])
@pytest.mark.parametrize("restore_every", [0, 1, 3])
def test_rows_come_back_equal_from_any_position(file, read_all, batch_format, restore_every):
    back = read_all(FileSource.parquet(file, batch_format=batch_format), 70, restore_every)
    assert back.rows == ROWS
    assert all(type(row["i"]) is int and type(row["b"]) is bool for row in back.rows)


def test_a_position_far_into_a_large_row_group_is_found_again(tmp_path, read_all):
    pq.write_table(pa.table({"i": range(50_000)}), tmp_path / "a.parquet")
    back = read_all(FileSource.parquet(tmp_path), 9000, restore_every=1)
    assert [row["i"] for row in back.rows] == list(range(50_000))


@pytest.mark.parametrize("stop", [1, 65_536, 65_537, 150_000, 199_999])
def test_arrow_batches_are_large_and_their_positions_exact(tmp_path, context, stop):
    count = 200_000
    pq.write_table(pa.table({"i": range(count)}), tmp_path / "a.parquet", row_group_size=150_000)
    source = FileSource.parquet(tmp_path, batch_format="arrow")
    splits, read, sizes = source.splits(1), [], []
    for limit in (stop, count):
        reader = source.reader(context(), splits)
        while len(read) < limit:
            few = limit - len(read) < 65_536 and limit == stop
            batch = reader.poll(1 if few and limit - len(read) > 4 else 4_096).batch
            if batch is not None:
                sizes.append(len(batch))
                read.extend(batch.batch.column("i").to_pylist())
        splits = reader.snapshot()
        reader.close()
    assert read == list(range(count))
    assert max(sizes) == 65_536


def test_slow_jobs_get_small_arrow_batches_that_are_views(tmp_path, context):
    pq.write_table(pa.table({"i": range(70_000)}), tmp_path / "a.parquet")
    source = FileSource.parquet(tmp_path, batch_format="arrow")
    reader = source.reader(context(), source.splits(1))
    first, second = reader.poll(10).batch.batch, reader.poll(10).batch.batch
    assert (first.num_rows, second.num_rows) == (40, 40)
    assert first.column(0).buffers()[1].address == second.column(0).buffers()[1].address
    reader.close()


def test_rows_of_many_bytes_come_in_fewer_rows(tmp_path, context):
    texts = ["x" * 50_000 + str(i) for i in range(1_000)]
    pq.write_table(pa.table({"t": texts}), tmp_path / "a.parquet", use_dictionary=False)
    source = FileSource.parquet(tmp_path, batch_format="arrow")
    reader = source.reader(context(), source.splits(1))
    assert 10 < len(reader.poll(4_096).batch) < 400
    reader.close()


def test_arrow_columns_come_in_the_order_asked_for_also_members_of_structs(tmp_path, context):
    table = pa.table({"a": [1], "s": [{"x": 1, "y": "z"}], "b": ["t"], "s.x": [9]})
    pq.write_table(table, tmp_path / "a.parquet")
    for columns, row in (
        (["b", "s.y", "a"], {"b": "t", "s": {"y": "z"}, "a": 1}),
        (["b", "s", "a"], {"b": "t", "s": {"x": 1, "y": "z"}, "a": 1}),
        (["s.y", "a"], {"s": {"y": "z"}, "a": 1}),
    ):
        source = FileSource.parquet(tmp_path, columns, "arrow")
        reader = source.reader(context(), source.splits(1))
        batch = reader.poll(4_096).batch.batch
        reader.close()
        assert batch.to_pylist() == [row]
        assert batch.schema.names == list(row)


def test_arrow_batches_of_all_files_have_one_schema(tmp_path, context):
    fields = [
        pa.field("k", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "1"}),
        ("v", pa.string()),
    ]
    noted = pa.schema(fields, metadata={"pandas": "{}"})
    pq.write_table(pa.table({"k": [1], "v": ["a"]}, schema=noted), tmp_path / "a.parquet")
    pq.write_table(pa.table({"k": [2], "v": ["b"]}), tmp_path / "b.parquet")
    source = FileSource.parquet(tmp_path, batch_format="arrow")
    reader = source.reader(context(), source.splits(1))
    batches = [polled.batch.batch for polled in (reader.poll(4_096), reader.poll(4_096))]
    reader.close()
    assert [b.schema for b in batches] == [pa.schema({"k": pa.int64(), "v": pa.string()})] * 2
    assert all(batch.schema.metadata is None for batch in batches)
    assert pa.Table.from_batches(batches).to_pylist() == [{"k": 1, "v": "a"}, {"k": 2, "v": "b"}]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            {"k": [1.5], "v": ["a"]},
            r"b\.parquet: column 'k' is of type double, but of type int64 in .*a\.parquet",
        ),
        ({"v": ["a"]}, r"b\.parquet: there is no column 'k', which .*a\.parquet has; the file has \['v'\]"),
        ({"k": [1], "v": ["a"], "w": [1]}, r"b\.parquet: column 'w' of type int64 is not in .*a\.parquet"),
        (
            {"v": ["a"], "k": [1]},
            r"b\.parquet: the columns are in the order \['v', 'k'\].* in the order that you",
        ),
    ],
)
def test_a_schema_that_changes_between_files_is_refused_for_arrow_batches(tmp_path, read_all, other, message):
    pq.write_table(pa.table({"k": [1], "v": ["a"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table(other), tmp_path / "b.parquet")
    with pytest.raises(ConnectorError, match=message):
        FileSource.parquet(tmp_path, batch_format="arrow").splits(1)
    assert len(read_all(FileSource.parquet(tmp_path)).rows) == 2
    assert FileSource.parquet(tmp_path, ["v"], "arrow").splits(1)


@pytest.mark.parametrize("batch_format", ["rows", "arrow"])
def test_a_filter_skips_row_groups_and_positions_stay_exact(tmp_path, read_all, batch_format):
    rows = [{"k": i, "v": None if i % 3 == 0 else i % 7} for i in range(10_000)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet", row_group_size=1_000)
    wanted = (pc.field("k") >= 2_500) & (pc.field("k") < 4_100)
    source = (
        FileSource.parquet(tmp_path, batch_format=batch_format)
        .with_filter(wanted)
        .with_filter(pc.field("v") > 3)
    )
    source = pickle.loads(pickle.dumps(source))
    expected = [row for row in rows if 2_500 <= row["k"] < 4_100 and row["v"] is not None and row["v"] > 3]
    assert read_all(source, 50).rows == expected
    assert read_all(source, 50, restore_every=1).rows == expected
    none = FileSource.parquet(tmp_path, batch_format=batch_format).with_filter(pc.field("k") < 0)
    assert read_all(none).rows == []


def test_a_projection_reads_only_some_columns_of_parquet(file, read_all):
    source = FileSource.parquet(file, batch_format="arrow").with_projection(["s", "i"])
    assert read_all(source).rows == [{"s": row["s"], "i": row["i"]} for row in ROWS]
    with pytest.raises(
        ConfigurationError, match=r"columns=\['f'\] is not a list of columns that this source reads"
    ):
        source.with_projection(["f"])
    with pytest.raises(ConfigurationError, match="columns='s' is not a list"):
        source.with_projection("s")


def test_a_filter_that_does_not_fit_is_named(file):
    source = FileSource.parquet(file, columns=["i"])
    with pytest.raises(ConnectorError, match=r"a\.parquet: the filter \(s > 3\) does not fit .*No match for"):
        source.with_filter(pc.field("s") > 3).splits(1)
    with pytest.raises(ConnectorError, match=r'a\.parquet: the filter \(i > "a"\) does not fit the columns'):
        source.with_filter(pc.field("i") > "a").splits(1)
    with pytest.raises(ConfigurationError, match="'i > 3' is not an expression of pyarrow"):
        source.with_filter("i > 3")
    with pytest.raises(ConfigurationError, match=r"FileSource\.with_filter is for Parquet files"):
        FileSource.csv(file).with_filter(pc.field("i") > 3)


@pytest.mark.parametrize("batch_format", ["rows", "arrow"])
def test_two_columns_of_one_name_are_refused_where_they_are_wanted(tmp_path, read_all, batch_format):
    pq.write_table(pa.table([[1], [2], [3]], names=["a", "a", "b"]), tmp_path / "a.parquet")
    for columns in (None, ["b", "a"]):
        with pytest.raises(ConnectorError, match=r"a\.parquet: the file has several columns called \['a'\]"):
            FileSource.parquet(tmp_path, columns, batch_format).splits(1)
    assert read_all(FileSource.parquet(tmp_path, ["b"], batch_format)).rows == [{"b": 3}]


def test_arrow_batches_stay_arrow(file, context):
    source = FileSource.parquet(file, columns=["i", "s"], batch_format="arrow")
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
    with pytest.raises(ConnectorError, match=r"a\.parquet: the file lacks \['x'\]; it has \['i', "):
        FileSource.parquet(file, columns=["x"]).splits(1)
    (tmp_path / "b.parquet").write_text("this is no Parquet file")
    with pytest.raises(ConnectorError, match=r"b\.parquet can't be read as Parquet"):
        FileSource.parquet(tmp_path / "b.parquet").splits(1)
    source = FileSource.parquet(file)
    splits = source.splits(1)
    file.write_bytes(file.read_bytes() + b"x")
    with pytest.raises(ConnectorError, match="has changed"):
        source.reader(context(), splits).poll(1)
    with pytest.raises(ConfigurationError, match="batch_format='pandas'"):
        FileSource.parquet(file, batch_format="pandas")  # type: ignore[arg-type]
