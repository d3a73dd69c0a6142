"""`DeltaSink`: commits, lineage, partition columns, types and new columns; real tables on a local disk."""

from __future__ import annotations

import math
import os
import shutil
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from delta_jobs import TableWorld, completed, counted_by_duckdb, in_order, numbers, restored, rows_of
from deltalake import DeltaTable, write_deltalake

from penstock.delta import DeltaSink
from penstock.operators import ArrowBatch
from penstock.runtime.errors import BadRecordError, ConfigurationError, OperatorError
from penstock.runtime.operators.committed_sink import StagingOperator
from penstock.runtime.snapshot.completed_checkpoint import permit_of_completed_checkpoint
from penstock.runtime.testing.harness import OperatorHarness
from penstock.runtime.trust.paths import UntrustedPathError

SCHEMA = pa.schema({"number": pa.int64()})


# -- commits --------------------------------------------------------------------------------------------


def test_a_checkpoint_of_several_subtasks_is_one_version(folder: Path) -> None:
    world = TableWorld(folder, SCHEMA)
    job = world.job(numbers(12), parallelism=3).start()
    for count in (4, 5, 3):
        job.write(count)
        job.checkpoint()
    job.close()
    assert [len(rows_of(world.folder, version)) for version in range(4)] == [0, 4, 9, 12]
    assert counted_by_duckdb(world.folder) == 12


def test_each_version_shows_a_completed_checkpoint_after_an_aborted_one(folder: Path) -> None:
    world = TableWorld(folder, SCHEMA)
    job = world.job(numbers(9)).start()
    job.write(3)
    job.abort(job.snapshot())
    job.write(3)
    job.checkpoint()
    assert [len(rows_of(world.folder, version)) for version in (0, 1)] == [0, 6]
    job.finish()
    assert in_order(world.rows()) == list(range(9))


def test_commits_come_in_the_order_of_checkpoints_after_a_death(folder: Path) -> None:
    world = TableWorld(folder, SCHEMA)
    job = world.job(numbers(9), parallelism=2).start()
    for _ in range(2):
        job.write(3)
        job.decide(job.snapshot())
    job.kill()
    job.start().finish()
    counts = [len(rows_of(world.folder, version)) for version in range(world.table.version() + 1)]
    assert counts == [0, 6, 9]


def test_the_last_commit_is_reported_with_its_version_beside_another_writer(folder: Path) -> None:
    world = TableWorld(folder, SCHEMA)
    job = world.job(numbers(9), parallelism=2).start()
    job.write(4)
    write_deltalake(world.folder, pa.table({"number": [100]}), mode="append")
    job.checkpoint()
    (counted,) = job.statistics()
    made = counted.last_commit
    assert made is not None
    assert (made.version, made.rows, made.files) == (str(world.table.version()), 4, 2)
    job.finish()


def test_two_processes_that_commit_one_checkpoint_add_it_once(folder: Path) -> None:
    world = TableWorld(folder, SCHEMA)
    job = world.job(numbers(6)).start()
    job.write()
    point = job.snapshot()
    job.decide(point)
    zombie = job.fork()
    job.start()
    zombie.notify(point)
    job.finish()
    assert in_order(world.rows()) == list(range(6))


def test_two_committers_that_see_the_same_version_add_a_checkpoint_once(folder: Path) -> None:
    """Both look for the marker before either has committed; Delta refuses the second commit."""
    world = TableWorld(folder, SCHEMA)
    job = world.job(numbers(6)).start()
    job.write()
    point = job.snapshot()
    job.decide(point)
    zombie = job.fork()
    committer = zombie.writers()[-1]
    stale = DeltaTable(world.folder)
    tables = iter([stale])
    newest = committer._table
    committer._table = lambda commits: next(tables, None) or newest(commits)
    job.start()
    zombie.notify(point)
    assert in_order(world.rows()) == list(range(6))


def test_a_commit_beside_another_writer_keeps_both(folder: Path) -> None:
    world = TableWorld(folder, SCHEMA)
    job = world.job(numbers(4)).start()
    job.write()
    point = job.snapshot()
    write_deltalake(world.folder, pa.table({"number": [100]}), mode="append")
    job.complete(point)
    job.close()
    assert in_order(world.rows()) == [0, 1, 2, 3, 100]


def test_an_older_savepoint_loses_nothing_that_is_written_after_it(folder: Path) -> None:
    """The number of the newest committed checkpoint is higher than those of the restored job."""
    world = TableWorld(folder, SCHEMA)
    job = world.job(numbers(8)).start()
    job.write(2)
    savepoint = job.checkpoint()
    for _ in range(3):
        job.write(2)
        job.checkpoint()
    job.close()
    job.completed = savepoint
    job.with_input([*numbers(2), *numbers(2, first=100)]).start().finish()
    assert in_order(world.rows()) == [*range(8), 100, 101]


def test_a_pending_commit_of_an_older_lineage_is_made_though_a_newer_one_has_committed(folder: Path) -> None:
    world = TableWorld(folder, SCHEMA)
    job = world.job(numbers(4)).start()
    job.write(2)
    savepoint = job.checkpoint()
    job.write(2)
    pending = job.snapshot()
    job.decide(pending)
    job.kill()
    job.completed = savepoint
    job.with_input([*numbers(2), *numbers(2, first=100)]).start().finish()
    restored(world, numbers(4), pending).start().finish()
    assert in_order(world.rows()) == [0, 1, 2, 3, 100, 101]


def test_a_commit_whose_files_were_vacuumed_fails_and_says_so(folder: Path) -> None:
    world = TableWorld(folder, SCHEMA)
    job = world.job(numbers(4)).start()
    job.write()
    point = job.snapshot()
    job.kill()
    job.decide(point)
    world.table.vacuum(full=True, retention_hours=0, enforce_retention_duration=False, dry_run=False)
    with pytest.raises(OperatorError, match="VACUUM removes uncommitted files"):
        job.start()


def test_a_restore_after_a_commit_whose_files_were_compacted_away_changes_nothing(folder: Path) -> None:
    world = TableWorld(folder, SCHEMA)
    job = world.job(numbers(4)).start()
    job.write()
    job.checkpoint()
    job.kill()
    world.table.optimize.compact()
    world.table.vacuum(full=True, retention_hours=0, enforce_retention_duration=False, dry_run=False)
    job.start().finish()
    assert in_order(world.rows()) == list(range(4))


def test_a_pending_commit_is_not_made_in_another_table(folder: Path) -> None:
    """The path has changed, or the table was created again: the error says so."""
    world = TableWorld(folder, SCHEMA)
    job = world.job(numbers(4)).start()
    job.write()
    job.checkpoint()
    job.kill()
    shutil.rmtree(world.folder)
    with pytest.raises(OperatorError, match=r"there is no table here\. So the path has changed"):
        restored(TableWorld(folder), [], completed(job)).start()
    with pytest.raises(OperatorError, match=r"the table has the id .* here\. So the path has changed"):
        job.start()


def replace_table(world: TableWorld, schema: pa.Schema) -> None:
    """Replace the table in its folder, which keeps its files and its log; the id is a new one."""
    DeltaTable.create(world.folder, schema, mode="overwrite")


def test_a_pending_commit_is_not_made_in_a_table_that_has_replaced_its_own(folder: Path) -> None:
    """All files are still in the folder."""
    world = TableWorld(folder, SCHEMA)
    job = world.job(numbers(4)).start()
    job.write()
    job.decide(job.snapshot())
    job.kill()
    replace_table(world, SCHEMA)
    with pytest.raises(OperatorError, match=r"the table has the id .* here\. So the path has changed"):
        job.start()
    assert world.rows() == []


def test_a_made_commit_is_not_repeated_after_its_table_was_replaced(folder: Path) -> None:
    world = TableWorld(folder, SCHEMA)
    job = world.job(numbers(4)).start()
    job.write(2)
    job.checkpoint()
    job.kill()
    replace_table(world, SCHEMA)
    job.start().finish()
    assert in_order(world.rows()) == [2, 3]


def test_a_table_that_is_made_anew_before_the_checkpoint_fails_it(folder: Path) -> None:
    """Its folder lacks the staged files, so the commit could never be made."""
    world = TableWorld(folder, SCHEMA)
    job = world.job(numbers(4)).start()
    job.write(2)
    job.checkpoint()
    job.write(2)
    shutil.rmtree(world.folder)
    DeltaTable.create(world.folder, SCHEMA)
    with pytest.raises(OperatorError, match="was created again while rows were written to it"):
        job.snapshot()


def test_a_snapshot_names_no_file_outside_of_the_table(folder: Path) -> None:
    world = TableWorld(folder, SCHEMA)
    job = world.job(numbers(2), parallelism=1).start()
    job.write()
    commit = job.snapshot().committables[0]
    job.kill()
    outside = replace(commit, files=(replace(commit.files[0], path="../secret.parquet"),))
    job.start()
    with pytest.raises(UntrustedPathError):
        job.writers()[-1].commit([outside], permit_of_completed_checkpoint(1, 1))


# -- partition columns, types, statistics ---------------------------------------------------------------


def test_partition_columns_become_folders_with_any_values(folder: Path) -> None:
    cities = ["Köln am Rhein", "a/b=c%", None, "x"]
    rows = [
        {"number": number, "city": cities[number % 4], "day": date(2026, 5, 1 + number % 2)}
        for number in range(8)
    ]
    schema = pa.schema({"number": pa.int64(), "city": pa.string(), "day": pa.date32()})
    world = TableWorld(folder, schema, partition_by=["city", "day"])
    world.finish(rows)
    assert sorted(world.rows(), key=lambda row: row["number"]) == rows
    only = DeltaTable(world.folder).to_pyarrow_table(filters=[("city", "=", "a/b=c%")])
    assert in_order(only.to_pylist()) == [1, 5]


def test_an_existing_table_with_other_partition_columns_is_refused(folder: Path) -> None:
    write_deltalake(folder / "table", pa.table({"number": [1], "day": ["a"]}), partition_by=["day"])
    with pytest.raises(OperatorError, match=r"partition columns \['day'\]"):
        TableWorld(folder).job(numbers(1)).start()


def test_values_of_all_types_are_read_back(folder: Path) -> None:
    row = {
        "i": 2**62,
        "u": 255,
        "f": 0.1,
        "t": "ä" * 100,
        "b": b"\x00\xff",
        "yes": True,
        "day": date(2026, 11, 30),
        "at": datetime(2026, 11, 30, 12, 0, 0, 123456, tzinfo=UTC),
        "local": datetime(2026, 11, 30, 12, 0, 0, 123456),  # noqa: DTZ001 - without a zone on purpose
        "money": Decimal("12.34"),
        "list": [1, None, 3],
        "nested": {"a": 1, "b": ["x"]},
    }
    schema = pa.schema(
        {
            "i": pa.int64(),
            "u": pa.uint8(),
            "f": pa.float64(),
            "t": pa.large_string(),
            "b": pa.binary(),
            "yes": pa.bool_(),
            "day": pa.date32(),
            "at": pa.timestamp("us", "Europe/Berlin"),
            "local": pa.timestamp("us"),
            "money": pa.decimal128(10, 2),
            "list": pa.list_(pa.int64()),
            "nested": pa.struct({"a": pa.int64(), "b": pa.list_(pa.string())}),
        }
    )
    world = TableWorld(folder, schema)
    empty = dict.fromkeys(row)
    world.finish([row, empty])
    assert sorted(world.rows(), key=lambda found: found["i"] is None) == [row, empty]


def test_readers_that_skip_files_by_bounds_find_every_row(folder: Path) -> None:
    columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        "at": (
            pa.timestamp("us", "UTC"),
            [datetime(2026, 1, 1, 0, 0, 0, n, tzinfo=UTC) for n in (0, 1_000, 1_999)],
        ),
        "local": (pa.timestamp("us"), [datetime(year, 5, 1) for year in (987, 1, 2026)]),  # noqa: DTZ001 - no zone
        "name": (pa.string(), ["\U0010ffff", "ä" * 65, "z" * 5_000]),
        "share": (pa.float64(), [0.5, -1.5, 2.5]),
        "ratio": (pa.float64(), [1.5, math.nan, None]),
        "money": (pa.decimal128(38, 2), [Decimal("12.34"), Decimal("123456789012345678901.23"), None]),
        "yes": (pa.bool_(), [True, False, None]),
        "day": (pa.date32(), [date(2026, 1, 1), date(1, 1, 1), None]),
        "raw": (pa.binary(), [b"a", b"\xff", b"x" * 100_000]),
    }
    rows = [{name: values[place] for name, (_, values) in columns.items()} for place in range(3)]
    world = TableWorld(folder, pa.schema({name: kind for name, (kind, _) in columns.items()}))
    job = world.job(rows, parallelism=1).start()
    for _ in rows:  # one file for each row
        job.write(1)
        job.checkpoint()
    job.close()
    actions = pa.table(world.table.get_add_actions(flatten=True))
    assert {"min.name", "max.raw"}.intersection(actions.column_names) == {"min.name"}
    table = world.table.to_pyarrow_dataset()
    for row in rows:
        for name, value in row.items():
            if value is not None and value == value:
                assert table.to_table(filter=ds.field(name) == value).num_rows == 1, (name, value)
    assert table.to_table(filter=pc.is_nan(ds.field("ratio"))).num_rows == 1
    assert table.to_table(filter=ds.field("ratio").is_null()).num_rows == 1


def test_arrow_batches_of_narrower_types_are_widened(folder: Path) -> None:
    sink = DeltaSink(folder / "table", SCHEMA)
    with OperatorHarness(StagingOperator(sink)) as harness:
        harness.push_batch(ArrowBatch(pa.record_batch({"number": pa.array([1, 2], pa.uint8())})))
        harness.snapshot()
        (file,) = harness.outputs
    assert file.rows == 2


def test_a_column_of_a_type_that_delta_lacks_is_refused_by_its_name() -> None:
    with pytest.raises(BadRecordError, match="column 'takes' has the Arrow type duration"):
        DeltaSink("/out", pa.schema({"takes": pa.duration("s")}))


# -- columns of the table and of the records ------------------------------------------------------------


def test_without_a_schema_the_first_records_decide_the_columns(folder: Path) -> None:
    world = TableWorld(folder)
    rows = [{"number": 1, "name": "a"}, {"number": 2, "name": None}]
    world.finish(rows, parallelism=1)
    assert world.rows() == rows


def test_subtasks_that_find_different_types_fail_the_checkpoint_and_not_its_commit(folder: Path) -> None:
    job = TableWorld(folder).job([{"number": 1}, {"number": "one"}], parallelism=2).start()
    job.write()
    with pytest.raises(OperatorError, match=r"column 'number' is int64 .* and string in others"):
        job.snapshot()


def test_a_first_column_of_nulls_asks_for_a_schema(folder: Path) -> None:
    job = TableWorld(folder).job([{"number": 1, "name": None}]).start()
    with pytest.raises(OperatorError, match=r"column 'name' has only nulls .* give schema="):
        job.write()


def test_a_new_column_is_refused_by_default_and_the_row_is_shown(folder: Path) -> None:
    world = TableWorld(folder, SCHEMA)
    job = world.job([{"number": 1, "extra": 2}]).start()
    with pytest.raises(OperatorError, match=r"columns \['extra'\].*schema_mode=\"merge\""):
        job.write()


def test_new_columns_are_added_to_the_table_with_merge(folder: Path) -> None:
    world = TableWorld(folder, SCHEMA, schema_mode="merge")
    world.finish(numbers(2))
    world.finish([{"number": 2, "name": "c"}, {"number": 3}, {"number": 4, "price": 1.5}], parallelism=2)
    assert sorted(world.rows(), key=lambda row: row["number"]) == [
        {"number": 0, "name": None, "price": None},
        {"number": 1, "name": None, "price": None},
        {"number": 2, "name": "c", "price": None},
        {"number": 3, "name": None, "price": None},
        {"number": 4, "name": None, "price": 1.5},
    ]


def test_columns_that_records_lack_are_null(folder: Path) -> None:
    write_deltalake(folder / "table", pa.table({"number": [0], "name": ["a"]}))
    world = TableWorld(folder)
    world.finish(numbers(1, first=1))
    assert sorted(world.rows(), key=lambda row: row["number"])[1] == {"number": 1, "name": None}


# -- settings -------------------------------------------------------------------------------------------


def test_a_file_that_reaches_the_target_size_is_ended_before_the_checkpoint(folder: Path) -> None:
    sink = DeltaSink(folder / "table", pa.schema({"raw": pa.binary()}), target_file_size=200_000)
    with OperatorHarness(StagingOperator(sink)) as writer:
        for _ in range(6):
            writer.push([{"raw": os.urandom(100_000)}])
        writer.snapshot()
        assert [file.rows for file in writer.outputs] == [2, 2, 2]


def test_a_missing_folder_is_an_empty_table_until_the_first_commit(folder: Path) -> None:
    world = TableWorld(folder)
    job = world.job(numbers(1)).start()
    assert not world.folder.exists()
    job.finish()
    assert world.rows() == numbers(1)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"partition_by": "day"}, "give a list of distinct column names"),
        ({"key": ["a", "a"]}, "give a list of distinct column names"),
        ({"target_file_size": 0}, "give at least 1"),
        ({"compression": "none-such"}, "is not a codec of pyarrow"),
        ({"schema_mode": "other"}, "use one of 'fixed', 'merge'"),
    ],
)
def test_settings_that_are_not_allowed_are_refused(settings: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        DeltaSink("/out", **settings)  # type: ignore[arg-type]
