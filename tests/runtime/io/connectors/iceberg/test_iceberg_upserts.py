"""Rows that an `IcebergSink` merges by key, and files that it compacts."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from iceberg_jobs import TABLE, TableWorld, counted_by_duckdb, in_order, numbers, rows_of
from pyiceberg.expressions import EqualTo
from pyiceberg.io.pyarrow import PyArrowFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType

from penstock.iceberg import IcebergSink, IcebergSource
from penstock.runtime.errors import ConfigurationError, OperatorError
from penstock.runtime.io.connectors.errors import BadRecordError
from penstock.runtime.io.connectors.iceberg import compaction
from penstock.runtime.record.elements import ArrowBatch
from penstock.runtime.testing.connectors.sink_job import SinkJob
from penstock.runtime.testing.source_harness import SourceHarness

ORDERS = pa.schema({"id": pa.int64(), "state": pa.string()})
NUMBERS = pa.schema({"number": pa.int64()})


def order(number: int, state: str) -> dict[str, Any]:
    return {"id": number, "state": state}


def change(kind: str, number: int, state: str | None = None) -> dict[str, Any]:
    return {"id": number, "state": state, "change": kind}


def write(job: SinkJob, schema: pa.Schema, times: list[int], value: int = 0) -> None:
    """Write columns to a subtask of the sink: Python's dates end with the year 9999."""
    columns = [pa.array(times, schema.field(0).type), pa.array([value] * len(times))]
    job.writers()[0].write(ArrowBatch(pa.record_batch(columns, schema=schema)))


def by_id(world: TableWorld, snapshot: int | None = None) -> dict[int, str]:
    rows = rows_of(world.table, snapshot)
    found = {row["id"]: row["state"] for row in rows}
    assert len(found) == len(rows)
    return found


def operations(world: TableWorld) -> list[str]:
    return [each.summary.operation.value for each in world.table.snapshots() if each.summary is not None]


def files_of(world: TableWorld) -> list[Path]:
    """All files below the table's folder of data, also those that no snapshot names."""
    return sorted((world.folder / "warehouse/shop/orders/data").rglob("*.parquet"))


# -- upserts --------------------------------------------------------------------------------------------


def test_a_row_replaces_the_row_with_its_key_and_is_added_otherwise(folder: Path) -> None:
    world = TableWorld(folder, ORDERS, key=["id"])
    world.finish([order(1, "new"), order(2, "new")])
    world.finish([order(2, "paid"), order(3, "new")])
    assert by_id(world) == {1: "new", 2: "paid", 3: "new"}
    assert counted_by_duckdb(world.table) == 3


def test_a_checkpoint_is_one_snapshot_that_replaces_and_adds(folder: Path) -> None:
    world = TableWorld(folder, ORDERS, key=["id"])
    states = [order(1, "new"), order(2, "new"), order(1, "paid"), order(3, "new"), order(4, "new")]
    job = world.job(states, parallelism=1).start()
    for count in (2, 2, 1):
        job.write(count)
        job.checkpoint()
    job.close()
    snapshots = [by_id(world, each.snapshot_id) for each in world.table.snapshots()]
    assert snapshots == [
        {1: "new", 2: "new"},
        {1: "paid", 2: "new", 3: "new"},
        {1: "paid", 2: "new", 3: "new", 4: "new"},
    ]
    assert operations(world) == ["append", "overwrite", "append"]


def test_the_last_row_of_a_key_wins_within_a_checkpoint_and_across_two(folder: Path) -> None:
    world = TableWorld(folder, ORDERS, key=["id"])
    states = [order(1, "new"), order(1, "paid"), order(1, "sent"), order(1, "lost")]
    job = world.job(states, parallelism=1).start()
    job.write(2)
    first = job.snapshot()
    job.write(2)
    second = job.snapshot()
    job.decide(first)
    job.complete(second)
    assert by_id(world) == {1: "lost"}
    # Each checkpoint has a snapshot of its own, in their order.
    assert [by_id(world, each.snapshot_id) for each in world.table.snapshots()] == [{1: "paid"}, {1: "lost"}]


def test_changes_replace_and_delete_rows(folder: Path) -> None:
    world = TableWorld(folder, ORDERS, key=["id"], change_kind="change")
    world.finish([change("insert", number, "new") for number in (1, 2, 3)], parallelism=1)
    world.finish(
        [
            change("update_preimage", 1, "new"),
            change("update_postimage", 1, "paid"),
            change("delete", 2),
            change("delete", 9),
            change("insert", 4, "new"),
            change("delete", 4),
        ],
        parallelism=1,
    )
    assert by_id(world) == {1: "paid", 3: "new"}


def test_a_deletion_needs_only_its_key_beside_columns_that_are_never_null(folder: Path) -> None:
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), pa.field("state", pa.string(), nullable=False)]
    )
    world = TableWorld(folder, schema, key=["id"], change_kind="change")
    world.finish([change("insert", 1, "new"), change("insert", 2, "new")])
    world.finish([{"id": 1, "change": "delete"}])
    assert by_id(world) == {2: "new"}
    job = world.job([{"id": 3, "change": "insert"}]).start()
    with pytest.raises(OperatorError, match="column 'state' is NOT NULL, but a record has no value"):
        job.write()


def test_a_repeated_deletion_of_nothing_does_not_delete_a_later_row(folder: Path) -> None:
    """The checkpoint changes no row, and its marker is in the table all the same."""
    world = TableWorld(folder, ORDERS, key=["id"], change_kind="change")
    job = world.job([change("delete", 1)]).start()
    job.write()
    job.checkpoint()
    job.kill()
    TableWorld(folder, key=["id"]).finish([order(1, "new")])
    job.start().finish()
    assert by_id(world) == {1: "new"}


def test_a_repeated_merge_does_not_undo_a_later_one(folder: Path) -> None:
    world = TableWorld(folder, ORDERS, key=["id"])
    job = world.job([order(1, "new")]).start()
    job.write()
    job.checkpoint()
    job.kill()
    world.finish([order(1, "paid")])
    job.start().finish()
    assert by_id(world) == {1: "paid"}


def test_a_committer_whose_checkpoint_another_one_merges_meanwhile_loses_nothing(folder: Path) -> None:
    """It has looked for the marker before the other one has merged the rows and removed them."""
    world = TableWorld(folder, ORDERS, key=["id"])
    job = world.job([order(1, "new")]).start()
    job.write()
    point = job.snapshot()
    job.decide(point)
    zombie = job.fork()
    committer = zombie.writers()[-1]
    stale, newest = iter([world.table]), committer._table_of
    committer._table_of = lambda commit: next(stale, None) or newest(commit)
    job.start()
    zombie.notify(point)
    job.finish()
    assert by_id(world) == {1: "new"}
    assert len(world.table.snapshots()) == 1


def test_a_merge_beside_another_writer_is_made_again_for_its_rows(folder: Path) -> None:
    """The other writer adds a row with the key between the merge and its commit."""
    world = TableWorld(folder, ORDERS, key=["id"])
    world.finish([order(1, "new")])
    job = world.job([order(1, "paid"), order(2, "paid")]).start()
    job.write()
    point = job.snapshot()
    committer = job.writers()[-1]
    stale, newest = iter([world.table]), committer._table_of
    committer._table_of = lambda commit: next(stale, None) or newest(commit)
    world.append([order(2, "other")], ORDERS)
    job.complete(point)
    job.close()
    assert by_id(world) == {1: "paid", 2: "paid"}


def test_staged_rows_that_are_gone_fail_the_job(folder: Path) -> None:
    world = TableWorld(folder, ORDERS, key=["id"])
    job = world.job([order(1, "new")]).start()
    job.write()
    job.decide(job.snapshot())
    job.kill()
    for file in files_of(world):
        file.unlink()
    with pytest.raises(OperatorError, match="remove_orphan_files removes uncommitted files"):
        job.start()


def test_a_merge_whose_snapshot_has_expired_is_recognised_by_its_files(folder: Path) -> None:
    world = TableWorld(folder, ORDERS, key=["id"])
    world.make(ORDERS)
    world.append([order(9, "new")], ORDERS)
    job = world.job([order(1, "new")]).start()
    job.write()
    job.checkpoint()
    job.kill()
    for number in (7, 8):
        world.append([order(number, "new")], ORDERS)
    table = world.table
    head = table.current_snapshot()
    assert head is not None
    old = [each.snapshot_id for each in table.snapshots() if each.snapshot_id != head.snapshot_id]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    job.start().finish()
    assert by_id(world) == dict.fromkeys((1, 7, 8, 9), "new")


def test_rows_with_a_key_are_merged_after_the_sink_has_lost_its_key(folder: Path) -> None:
    world = TableWorld(folder, ORDERS, key=["id"])
    world.finish([order(1, "new")])
    records = [order(1, "paid"), order(2, "new")]
    job = world.job(records).start()
    job.write(1)
    job.decide(job.snapshot())
    job.kill()
    world.settings = {}
    world.job(records, restored=job.completed).start().finish()
    assert by_id(world) == {1: "paid", 2: "new"}


def test_rows_without_a_key_are_added_after_the_sink_has_got_a_key(folder: Path) -> None:
    world = TableWorld(folder, ORDERS)
    records = [order(1, "new"), order(1, "paid")]
    job = world.job(records).start()
    job.write(1)
    job.decide(job.snapshot())
    job.kill()
    world.settings = {"key": ["id"]}
    world.job(records, restored=job.completed).start().finish()
    assert by_id(world) == {1: "paid"}


def test_a_merge_goes_to_the_branch_of_the_sink(folder: Path) -> None:
    world = TableWorld(folder, ORDERS, key=["id"], branch="audit", audit=lambda scan: scan.count() < 3)
    world.finish([order(1, "new"), order(2, "new")])
    world.finish([order(1, "paid"), order(3, "new")])
    assert by_id(world) == {1: "new", 2: "new"}
    head = world.table.refs()["audit"].snapshot_id
    assert by_id(world, head) == {1: "paid", 2: "new", 3: "new"}


KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["a", "ä" * 40, "\U0010ffff"]),
    "text before the surrogates": (pa.string(), ["a", "b" * 15 + "\ud7ffb"]),
    "bytes": (pa.binary(), [b"a", b"\xff" * 40, b""]),
    "day": (pa.date32(), [date(1960, 1, 1), date(2026, 11, 30), date(1, 1, 1)]),
    "at": (pa.timestamp("us", "UTC"), [datetime(1960, 1, 1, 0, 0, 0, n, tzinfo=UTC) for n in (0, 1, 2)]),
    "money": (pa.decimal128(10, 2), [Decimal("1.25"), Decimal("-7.00"), Decimal("99999999.99")]),
    "yes": (pa.bool_(), [True, False]),
    "float": (pa.float64(), [1.5, math.inf, -2.5]),
}


@pytest.mark.parametrize("name", KEYS)
def test_keys_of_a_type_find_their_rows(folder: Path, name: str) -> None:
    kind, values = KEYS[name]
    world = TableWorld(folder, pa.schema({"key": kind, "value": pa.int64()}), key=["key"])
    world.finish([{"key": key, "value": 1} for key in values], parallelism=1)
    world.finish([{"key": values[-1], "value": 2}])
    found = {row["key"]: row["value"] for row in world.rows()}
    assert found == {key: 2 if key == values[-1] else 1 for key in values}
    assert len(world.rows()) == len(values)


@pytest.mark.parametrize(
    ("kind", "late"), [(pa.timestamp("us", "UTC"), 300_000_000_000_000_000), (pa.date32(), 4_000_000)]
)
def test_keys_after_the_year_9999_find_their_rows(folder: Path, kind: pa.DataType, late: int) -> None:
    schema = pa.schema({"at": kind, "value": pa.int64()})
    for value in (1, 2):
        job = TableWorld(folder, schema, key=["at"]).job([]).start()
        write(job, schema, [late, 0], value)
        job.checkpoint()
        job.close()
    assert TableWorld(folder).table.scan().to_arrow()["value"].to_pylist() == [2, 2]


@pytest.mark.parametrize("key", [[], ["at"]])
@pytest.mark.parametrize("partition", ["at", "days(at)", "years(at)"])
def test_times_after_the_year_9999_divide_no_rows(folder: Path, partition: str, key: list[str]) -> None:
    """A merge would fail only after the checkpoint is complete."""
    schema = pa.schema({"at": pa.timestamp("us"), "value": pa.int64()})
    world = TableWorld(folder, schema, key=key, partition_by=[partition])
    job = world.job([]).start()
    first, last, too_late = -62_135_596_800_000_000, 253_402_300_799_999_999, 253_402_300_800_000_000
    write(job, schema, [first, last])
    for time in (first - 1, too_late):
        with pytest.raises(BadRecordError, match=r"column 'at' has a time before the year 1 or after"):
            write(job, schema, [time])
    job.checkpoint()
    job.close()
    assert len(world.rows()) == 2


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64()])
def test_a_key_whose_partition_is_below_the_smallest_integer_finds_its_row(
    folder: Path, kind: pa.DataType
) -> None:
    least = -(2 ** (kind.bit_width - 1))
    schema = pa.schema({"id": kind, "value": pa.int64()})
    world = TableWorld(folder, schema, key=["id"], partition_by=["truncate(10, id)"])
    world.finish([{"id": number, "value": 1} for number in (least, least + 9, 0)])
    world.finish([{"id": least, "value": 2}])
    assert {row["id"]: row["value"] for row in world.rows()} == {least: 2, least + 9: 1, 0: 1}
    assert len(world.rows()) == 3


def test_both_zeros_are_one_key_and_so_is_each_nan(folder: Path) -> None:
    world = TableWorld(folder, pa.schema({"id": pa.float64(), "value": pa.int64()}), key=["id"])
    of_division = pc.divide(pa.array([0.0]), pa.array([0.0]))[0].as_py()  # its sign bit may be set
    ids = [0.0, math.nan, -0.0, 0.0, of_division]
    job = world.job([{"id": key, "value": value} for value, key in enumerate(ids)], parallelism=1).start()
    for count in (2, 3):
        job.write(count)
        job.checkpoint()
    assert sorted(row["value"] for row in world.rows()) == [3, 4]


def test_a_completed_checkpoint_is_merged_even_if_the_partitions_have_changed(folder: Path) -> None:
    schema = pa.schema({"id": pa.int64(), "value": pa.int64()})
    world = TableWorld(folder, schema, key=["id"], partition_by=["value"])
    world.finish([{"id": 1, "value": 0}], parallelism=1)
    job = world.job([{"id": 1, "value": 5}], parallelism=1).start()
    job.write()
    point = job.snapshot()
    job.decide(point)
    with world.table.update_spec() as update:
        update.add_field("id", BucketTransform(2), "bucket")
    job.notify(point)
    assert world.rows() == [{"id": 1, "value": 5}]


@pytest.mark.parametrize("change", ["update_postimage", "delete"])
def test_a_key_that_is_too_long_for_the_bounds_of_a_file_finds_its_row(folder: Path, change: str) -> None:
    schema = pa.schema({"id": pa.string(), "value": pa.int64()})
    world = TableWorld(folder, schema, key=["id"], change_kind="change")
    long, rows = "z" * 5_000, 131_072  # the long key is in the second row group, which has no bounds
    first = [*(f"a{number:07d}" for number in range(rows)), long]
    world.finish([{"id": key, "value": 0, "change": "insert"} for key in first], parallelism=1)
    world.finish([{"id": long, "value": 1, "change": change}], parallelism=1)
    found = world.table.scan(row_filter=EqualTo("id", long)).to_arrow()
    assert found["value"].to_pylist() == ([1] if change != "delete" else [])
    assert world.table.scan().to_arrow().num_rows == rows + (change != "delete")


def test_keys_of_several_columns_with_odd_names_find_their_rows_in_any_partition(folder: Path) -> None:
    schema = pa.schema({"Shop Id": pa.string(), "no": pa.int64(), "ratio": pa.float64()})
    world = TableWorld(
        folder, schema, key=["Shop Id", "no"], partition_by=["Shop Id", "bucket(4, no)", "ratio"]
    )
    world.finish([{"Shop Id": shop, "no": no, "ratio": math.nan} for shop in "ab" for no in range(5)])
    # The row moves to another partition.
    world.finish([{"Shop Id": "b", "no": 1, "ratio": None}, {"Shop Id": "c", "no": 1, "ratio": 0.5}])
    rows = world.rows()
    assert len(rows) == 11
    assert [row for row in rows if row["ratio"] is None] == [{"Shop Id": "b", "no": 1, "ratio": None}]


def test_rows_of_others_whose_key_is_null_stay(folder: Path) -> None:
    world = TableWorld(folder, ORDERS, key=["id"])
    world.make(ORDERS)
    world.append([{"id": None, "state": "odd"}, order(1, "new")], ORDERS)
    world.finish([order(1, "paid")])
    assert sorted(row["state"] for row in world.rows()) == ["odd", "paid"]


def test_rows_that_another_program_deleted_stay_deleted(folder: Path) -> None:
    world = TableWorld(folder, ORDERS, key=["id"])
    world.finish([order(number, "new") for number in range(4)], parallelism=1)
    world.table.delete("id = 3")
    world.finish([order(0, "paid")])
    assert by_id(world) == {0: "paid", 1: "new", 2: "new"}


def test_a_record_without_its_key_is_refused(folder: Path) -> None:
    job = TableWorld(folder, ORDERS, key=["id"]).job([{"state": "new"}]).start()
    with pytest.raises(OperatorError, match="column 'id' of key= is null"):
        job.write()


def test_a_key_column_that_is_renamed_before_the_commit_is_named(folder: Path) -> None:
    world = TableWorld(folder, key=["id"])
    world.make(ORDERS)
    job = world.job([order(1, "new")]).start()
    job.write()
    point = job.snapshot()
    with world.table.update_schema() as update:
        update.rename_column("id", "number")
    with pytest.raises(OperatorError, match="has no column 'id', which is part of the key of its rows"):
        job.complete(point)
    with world.table.update_schema() as update:
        update.rename_column("number", "id")
        update.rename_column("state", "status")
    job.kill()
    job.start().close()
    assert world.rows() == [{"id": 1, "status": "new"}]


def test_a_key_column_that_is_dropped_and_added_again_before_the_commit_is_named(folder: Path) -> None:
    world = TableWorld(folder, key=["id"])
    world.make(ORDERS)
    world.append([order(1, "old")], ORDERS)
    job = world.job([order(1, "new")]).start()
    job.write()
    point = job.snapshot()
    for change in (
        lambda update: update.delete_column("id"),
        lambda update: update.add_column("id", LongType()),
    ):
        with world.table.update_schema() as update:
            change(update)
    with pytest.raises(OperatorError, match=r"column 'id' is part of the key .* dropped and added again"):
        job.complete(point)
    assert [row["state"] for row in world.rows()] == ["old"]


def test_staged_rows_are_in_no_snapshot_and_leave_no_files(folder: Path) -> None:
    world = TableWorld(folder, ORDERS, key=["id"])
    job = world.job([order(1, "new")]).start()
    job.write()
    point = job.snapshot()
    assert world.rows() == []
    assert [file.name.endswith("-rows.parquet") for file in files_of(world)] == [True]
    job.complete(point)
    assert [file.name.endswith("-rows.parquet") for file in files_of(world)] == [False]


def test_new_columns_are_merged_too(folder: Path) -> None:
    world = TableWorld(folder, ORDERS, key=["id"], schema_mode="merge")
    world.finish([order(1, "new")])
    world.finish([{"id": 2, "state": "new", "price": 1.5}])
    world.finish([order(1, "paid")])
    assert sorted(world.rows(), key=lambda row: row["id"]) == [
        {"id": 1, "state": "paid", "price": None},
        {"id": 2, "state": "new", "price": 1.5},
    ]


def test_the_last_commit_counts_the_rows_of_the_checkpoint(folder: Path) -> None:
    world = TableWorld(folder, ORDERS, key=["id"])
    job = world.job([order(1, "new"), order(1, "paid")], parallelism=1).start()
    job.write()
    job.checkpoint()
    made, newest = job.writers()[-1].last_commit(), world.table.current_snapshot()
    assert newest is not None
    assert (made.version, made.rows, made.files) == (str(newest.snapshot_id), 2, 1)


# -- files that a merge does not read -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("partition_by", "keys", "most"),
    [
        # 300 keys are too many for a filter that names them, so bounds decide.
        ((), [*range(150), *range(9_850, 10_000)], 2),
        ((), [5], 1),
        (("bucket(8, id)",), [5], 1),
        ((), range(0, 1_000, 3), 1),
        ((), [10_000_000], 0),
    ],
)
def test_a_merge_reads_only_files_that_may_have_its_keys(
    folder: Path, monkeypatch: pytest.MonkeyPatch, partition_by: Any, keys: Any, most: int
) -> None:
    world = TableWorld(folder, ORDERS, key=["id"], partition_by=partition_by)
    for first in range(0, 10_000, 1_000):
        TableWorld(folder, ORDERS, partition_by=partition_by).finish(
            [order(number, "new") for number in range(first, first + 1_000)], parallelism=1
        )
    job = world.job([order(key, "paid") for key in keys]).start()
    job.write()
    point = job.snapshot()
    before = {task.file.file_path for task in world.table.scan().plan_files()}
    opened: set[str] = set()
    open_file = PyArrowFile.open

    def counted(self: PyArrowFile, **settings: Any) -> Any:
        opened.add(self.location)
        return open_file(self, **settings)

    monkeypatch.setattr(PyArrowFile, "open", counted)
    job.complete(point)
    assert len(opened & before) <= most
    assert sum(row["state"] == "paid" for row in world.rows()) == len(keys)
    assert len(world.rows()) == len({*range(10_000), *keys})


def test_files_keep_the_ranges_of_their_keys_when_rows_of_all_of_them_change(folder: Path) -> None:
    world = TableWorld(folder, ORDERS, key=["id"])
    for first in range(0, 1_000, 100):
        world.finish([order(number, "new") for number in range(first, first + 100)], parallelism=1)
    world.finish([*(order(number, "paid") for number in range(0, 1_000, 50)), order(1_000, "new")])
    files = [task.file for task in world.table.scan().plan_files()]
    assert sorted(file.record_count for file in files) == [1, *[100] * 10]
    one = world.table.scan("id = 150").to_arrow().to_pylist()
    assert one == [order(150, "paid")]
    assert len(list(world.table.scan("id = 150").plan_files())) == 1


# -- compaction -----------------------------------------------------------------------------------------


def compacting(folder: Path, **settings: Any) -> TableWorld:
    return TableWorld(folder, NUMBERS, **{"compact_below": 1_000_000, "compact_at": 4, **settings})


def test_small_files_are_joined_and_no_row_is_lost(folder: Path) -> None:
    world = compacting(folder)
    job = world.job(numbers(12), parallelism=2).start()
    for _ in range(6):
        job.write(2)
        job.checkpoint()
    job.close()
    assert operations(world).count("replace") >= 2
    assert world.table.inspect.files().num_rows < 6
    assert in_order(world.rows()) == list(range(12))
    assert counted_by_duckdb(world.table) == 12
    summary = world.table.snapshots()[-1].summary
    assert summary is not None
    assert summary["total-records"] == "12"


def test_a_compaction_changes_no_snapshot_before_it_and_is_skipped_by_a_source(folder: Path) -> None:
    world = compacting(folder, compact_at=2)
    job = world.job(numbers(6), parallelism=1).start()
    for _ in range(3):
        job.write(2)
        job.checkpoint()
    job.close()
    kinds = operations(world)
    assert kinds == ["append", "append", "replace", "append"]
    assert world.counts() == [2, 4, 4, 6]
    first = world.table.snapshots()[0].snapshot_id
    with SourceHarness(IcebergSource(TABLE, catalog=world.catalog, starting_snapshot_id=first)) as harness:
        assert in_order(harness.read_all()) == list(range(6))


def test_each_partition_is_joined_for_itself_and_one_file_is_left_alone(folder: Path) -> None:
    schema = pa.schema({"number": pa.int64(), "day": pa.string()})
    world = TableWorld(
        folder, schema, partition_by=["day"], compact_below=1_000_000, compact_at=3, key=["number"]
    )
    rows = [{"number": number, "day": day} for number, day in enumerate("aab")]
    job = world.job(rows, parallelism=1).start()
    for _ in rows:
        job.write(1)
        job.checkpoint()
    job.close()
    assert operations(world)[-1] == "replace"
    files = world.table.inspect.files().to_pylist()
    assert sorted((file["record_count"], "joined" in file["file_path"]) for file in files) == [
        (1, False),
        (2, True),
    ]
    assert sorted(world.rows(), key=lambda row: row["number"]) == rows


def test_files_of_the_target_size_are_not_joined_again(folder: Path) -> None:
    world = compacting(folder, compact_at=1, properties={"write.target-file-size-bytes": "1"})
    job = world.job(numbers(6), parallelism=1).start()
    for _ in range(3):
        job.write(2)
        job.checkpoint()
    assert operations(world) == ["append"] * 3


def test_a_compaction_gives_way_to_another_writer_and_is_made_up_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer commits while the compaction reads."""
    world = compacting(folder, compact_at=2)
    job = world.job(numbers(6), parallelism=1).start()
    listed = compaction._small_files

    def disturbed(table: Table, *arguments: Any) -> Any:
        found = listed(table, *arguments)
        if len(world.table.snapshots()) == 2:
            world.append([{"number": 100}])
        return found

    monkeypatch.setattr(compaction, "_small_files", disturbed)
    for _ in range(2):
        job.write(2)
        job.checkpoint()
    assert operations(world) == ["append"] * 3
    job.write(2)
    job.checkpoint()
    job.close()
    assert operations(world)[-1] == "replace"
    assert in_order(world.rows()) == [*range(6), 100]


def test_a_death_between_a_commit_and_its_compaction_repeats_neither(folder: Path) -> None:
    world = compacting(folder, compact_at=1)
    job = world.job(numbers(4), parallelism=2).start()
    job.write(2)
    job.checkpoint()
    job.write(2)
    point = job.snapshot()
    committer = job.writers()[-1]

    def die(*arguments: Any) -> None:
        raise ZeroDivisionError

    committer._compact = die
    with pytest.raises(OperatorError):
        job.complete(point)
    job.kill()
    job.start().finish()
    assert in_order(world.rows()) == list(range(4))
    assert [kind for kind in operations(world) if kind != "replace"] == ["append", "append"]


def test_a_death_after_a_compaction_finds_the_commit_before_it(folder: Path) -> None:
    world = compacting(folder, compact_at=1)
    job = world.job(numbers(4), parallelism=2).start()
    job.write()
    job.checkpoint()
    assert operations(world) == ["append", Operation.REPLACE.value]
    job.kill()
    job.start().finish()
    assert in_order(world.rows()) == list(range(4))


# -- settings -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"key": "id"}, "give a list of distinct column names"),
        ({"change_kind": "change"}, "needs key="),
        ({"compact_below": 0}, "compact_below=0 is not allowed"),
        ({"compact_at": 0}, "compact_at=0 is not allowed"),
    ],
)
def test_settings_that_are_not_allowed_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        IcebergSink(TABLE, catalog={}, **settings)


def test_a_key_that_is_no_column_or_has_parts_is_refused(folder: Path) -> None:
    with pytest.raises(OperatorError, match="key names 'no', which is not among the columns id, state"):
        TableWorld(folder, ORDERS, key=["no"]).job([]).start()
    schema = pa.schema({"id": pa.list_(pa.int64())})
    with pytest.raises(OperatorError, match="column 'id' of key= has the type list"):
        TableWorld(folder, schema, key=["id"]).job([]).start()
    job = TableWorld(folder, key=["no"]).job([order(1, "new")]).start()
    with pytest.raises(OperatorError, match="key names 'no', which is not among the columns id, state"):
        job.write()
    assert not TableWorld(folder).opened.table_exists(TABLE)
