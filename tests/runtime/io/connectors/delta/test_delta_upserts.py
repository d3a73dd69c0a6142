"""Rows that a `DeltaSink` merges by key, and files that it compacts."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta_jobs import TableWorld, completed, counted_by_duckdb, in_order, numbers, restored, rows_of
from deltalake import DeltaTable, write_deltalake

from penstock.runtime.errors import OperatorError
from penstock.runtime.testing.connectors.sink_job import SinkCheckpoint

ORDERS = pa.schema({"id": pa.int64(), "state": pa.string()})


def order(number: int, state: str) -> dict[str, Any]:
    return {"id": number, "state": state}


def by_id(world: TableWorld) -> dict[int, str]:
    rows = world.rows()
    found = {row["id"]: row["state"] for row in rows}
    assert len(found) == len(rows)
    return found


def test_a_row_replaces_the_row_with_its_key_and_is_added_otherwise(folder: Path) -> None:
    world = TableWorld(folder, ORDERS, key=["id"])
    world.finish([order(1, "new"), order(2, "new")])
    world.finish([order(2, "paid"), order(3, "new")])
    assert by_id(world) == {1: "new", 2: "paid", 3: "new"}


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
    assert world.table.version() == 1


def test_a_repeated_merge_does_not_undo_a_later_one(folder: Path) -> None:
    world = TableWorld(folder, ORDERS, key=["id"])
    job = world.job([order(1, "new")]).start()
    job.write()
    job.checkpoint()
    job.kill()
    world.finish([order(1, "paid")])
    job.start().finish()
    assert by_id(world) == {1: "paid"}


def test_a_committer_whose_transaction_another_one_merges_meanwhile_loses_nothing(folder: Path) -> None:
    """It has looked for the transaction before the other one has merged the rows and removed them."""
    world = TableWorld(folder, ORDERS, key=["id"])
    job = world.job([order(1, "new")]).start()
    job.write()
    point = job.snapshot()
    job.decide(point)
    zombie = job.fork()
    committer = zombie.writers()[-1]
    tables = iter([world.table])
    newest = committer._table
    committer._table = lambda commits: next(tables, None) or newest(commits)
    job.start()
    zombie.notify(point)
    job.finish()
    assert by_id(world) == {1: "new"}


def pending(world: TableWorld, records: list[Any]) -> SinkCheckpoint:
    """A complete checkpoint of a job that died before its commit."""
    job = world.job(records).start()
    job.write()
    job.decide(job.snapshot())
    job.kill()
    return completed(job)


def test_rows_with_a_key_are_merged_after_the_sink_has_lost_its_key(folder: Path) -> None:
    world = TableWorld(folder, ORDERS, key=["id"], partition_by=["state"])
    world.finish([order(1, "new")])
    point = pending(world, [order(1, "paid")])
    world.settings = {"partition_by": ["state"]}
    restored(world, [order(1, "paid"), order(2, "new")], point).start().finish()
    assert by_id(world) == {1: "paid", 2: "new"}
    assert not list(folder.glob("table/_penstock/*"))


def test_rows_without_a_key_are_added_after_the_sink_has_got_a_key(folder: Path) -> None:
    world = TableWorld(folder, ORDERS, partition_by=["state"])
    point = pending(world, [order(1, "new")])
    world.settings = {"key": ["id"], "partition_by": ["state"]}
    restored(world, [order(1, "new"), order(2, "paid")], point).start().finish()
    assert by_id(world) == {1: "new", 2: "paid"}


def test_keys_of_several_columns_with_odd_names_find_their_rows(folder: Path) -> None:
    schema = pa.schema({"Shop Id": pa.string(), "no": pa.int64(), "state": pa.string()})
    world = TableWorld(folder, schema, key=["Shop Id", "no"], partition_by=["Shop Id"])
    rows = [{"Shop Id": shop, "no": no, "state": "new"} for shop in "ab" for no in (1, 2)]
    world.finish(rows)
    world.finish([{"Shop Id": "b", "no": 1, "state": "paid"}])
    paid = [row for row in world.rows() if row["state"] == "paid"]
    assert paid == [{"Shop Id": "b", "no": 1, "state": "paid"}]
    assert len(world.rows()) == 4


def test_both_zeros_are_one_key_and_so_is_each_nan(folder: Path) -> None:
    """The merge takes both zeros for one row, and refuses two changes of it."""
    world = TableWorld(folder, pa.schema({"id": pa.float64(), "value": pa.int64()}), key=["id"])
    ids = [0.0, math.nan, -0.0, 0.0, math.nan]
    job = world.job([{"id": key, "value": value} for value, key in enumerate(ids)], parallelism=1).start()
    for count in (2, 3):
        job.write(count)
        job.checkpoint()
    assert sorted(row["value"] for row in world.rows()) == [3, 4]


def test_a_record_without_its_key_is_refused(folder: Path) -> None:
    job = TableWorld(folder, ORDERS, key=["id"]).job([{"state": "new"}]).start()
    with pytest.raises(OperatorError, match="column 'id' of key= is null"):
        job.write()


def test_staged_rows_are_in_no_version_and_leave_no_files(folder: Path) -> None:
    world = TableWorld(folder, ORDERS, key=["id"])
    job = world.job([order(1, "new")]).start()
    job.write()
    point = job.snapshot()
    assert rows_of(world.folder) == []
    assert list(world.folder.glob("_penstock/*.parquet"))
    job.complete(point)
    assert not list(world.folder.glob("_penstock/*"))


def test_new_columns_are_merged_too(folder: Path) -> None:
    world = TableWorld(folder, ORDERS, key=["id"], schema_mode="merge")
    world.finish([order(1, "new")])
    world.finish([{"id": 2, "state": "new", "price": 1.5}])
    assert sorted(world.rows(), key=lambda row: row["id"]) == [
        {"id": 1, "state": "new", "price": None},
        {"id": 2, "state": "new", "price": 1.5},
    ]


def test_small_files_are_joined_and_no_row_is_lost(folder: Path) -> None:
    world = TableWorld(folder, pa.schema({"number": pa.int64()}), compact_below=1_000_000, compact_at=4)
    job = world.job(numbers(12), parallelism=2).start()
    for _ in range(6):
        job.write(2)
        job.checkpoint()
    job.close()
    assert len(world.table.file_uris()) < 6
    assert in_order(world.rows()) == list(range(12))
    assert counted_by_duckdb(world.folder) == 12


def test_a_compaction_gives_way_to_another_writer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer removes the files that the compaction is about to join."""
    world = TableWorld(folder, pa.schema({"number": pa.int64()}), compact_below=1_000_000, compact_at=1)
    job = world.job(numbers(2)).start()
    job.write()
    point = job.snapshot()
    whole = DeltaTable.optimize.fget
    assert whole is not None

    def disturbed(table: DeltaTable) -> Any:
        write_deltalake(world.folder, pa.table({"number": [7]}), mode="overwrite")
        return whole(table)

    monkeypatch.setattr(DeltaTable, "optimize", property(disturbed))
    job.complete(point)
    job.close()
    assert in_order(world.rows()) == [7]
