"""`IcebergSink`: commits, lineage, partitions, types and new columns; real tables in a SQLite catalog."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from iceberg_jobs import SCHEMA, TABLE, TableWorld, catalog_in, counted_by_duckdb, in_order, numbers
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import EqualTo, IsNull
from pyiceberg.table import Table
from pyiceberg.table.update.snapshot import ManageSnapshots

from penstock.iceberg import IcebergSink
from penstock.operators import ArrowBatch
from penstock.runtime.errors import BadRecordError, ConfigurationError, ConnectorError, OperatorError
from penstock.runtime.io.connectors.iceberg.committer import LINEAGE, NUMBER
from penstock.runtime.operators.committed_sink import StagingOperator
from penstock.runtime.snapshot.completed_checkpoint import permit_of_completed_checkpoint
from penstock.runtime.testing.connectors.sink_job import SinkJob
from penstock.runtime.testing.harness import OperatorHarness
from penstock.runtime.trust.paths import UntrustedPathError


def see_first(job: SinkJob, *tables: Table) -> None:
    """Let the committer of a job see these states of the table first, as if it had loaded them earlier."""
    committer = job.writers()[-1]
    stale, newest = iter(tables), committer._table_of
    committer._table_of = lambda commit: next(stale, None) or newest(commit)


def expire_all_but_the_newest(world: TableWorld) -> None:
    table = world.table
    head = table.current_snapshot()
    old = [
        each.snapshot_id for each in table.snapshots() if head is None or each.snapshot_id != head.snapshot_id
    ]
    table.maintenance.expire_snapshots().by_ids(old).commit()


# -- commits --------------------------------------------------------------------------------------------


def test_a_checkpoint_of_several_subtasks_is_one_snapshot(folder: Path) -> None:
    world = TableWorld(folder, SCHEMA)
    job = world.job(numbers(12), parallelism=3).start()
    for count in (4, 5, 3):
        job.write(count)
        job.checkpoint()
    job.close()
    assert world.counts() == [4, 9, 12]
    assert counted_by_duckdb(world.table) == 12


def test_the_last_commit_names_its_snapshot_with_its_rows_and_files(folder: Path) -> None:
    world = TableWorld(folder, SCHEMA)
    job = world.job(numbers(5)).start()
    job.write(3)
    job.checkpoint()
    newest = world.table.current_snapshot()
    made = job.writers()[-1].last_commit()
    assert newest is not None
    assert (made.version, made.rows, made.files) == (str(newest.snapshot_id), 3, 2)


def test_an_aborted_checkpoint_and_the_next_one_are_two_snapshots(folder: Path) -> None:
    world = TableWorld(folder, SCHEMA)
    job = world.job(numbers(6)).start()
    job.write(3)
    job.abort(job.snapshot())
    job.write(3)
    job.checkpoint()
    job.close()
    assert world.counts() == [3, 6]


def test_commits_come_in_the_order_of_checkpoints_after_a_death(folder: Path) -> None:
    world = TableWorld(folder, SCHEMA)
    job = world.job(numbers(9), parallelism=2).start()
    for _ in range(2):
        job.write(3)
        job.decide(job.snapshot())
    job.kill()
    job.start().finish()
    assert world.counts() == [3, 6, 9]
    about = [each.summary.additional_properties for each in world.table.snapshots() if each.summary]
    assert [each[NUMBER] for each in about] == ["1", "2", "1"]
    assert len({each[LINEAGE] for each in about}) == 2


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


def test_two_committers_that_see_the_same_head_add_a_checkpoint_once(folder: Path) -> None:
    """Both look for the marker before either has committed; the library must not repeat the second commit."""
    world = TableWorld(folder, SCHEMA)
    job = world.job(numbers(6)).start()
    job.write(3)
    job.checkpoint()
    job.write(3)
    point = job.snapshot()
    job.decide(point)
    zombie = job.fork()
    see_first(zombie, world.table)
    job.start()
    zombie.notify(point)
    assert in_order(world.rows()) == list(range(6))


def test_the_first_snapshot_of_a_table_is_made_once_by_two_committers(folder: Path) -> None:
    world = TableWorld(folder, SCHEMA)
    job = world.job(numbers(3)).start()
    job.write()
    point = job.snapshot()
    job.decide(point)
    zombie = job.fork()
    see_first(zombie, world.table)
    job.start()
    zombie.notify(point)
    assert in_order(world.rows()) == list(range(3))


def test_a_commit_whose_answer_was_lost_is_not_repeated(folder: Path) -> None:
    world = TableWorld(folder, SCHEMA)
    job = world.job(numbers(3)).start()
    job.write()
    point = job.snapshot()
    committer = job.writers()[-1]
    append = committer._append

    def append_and_lose(*arguments: Any) -> None:
        append(*arguments)
        committer._client.call("commit a checkpoint", fail)

    def fail() -> None:
        msg = "the answer is lost"
        raise OSError(msg)

    committer._append = append_and_lose
    job.complete(point)
    job.close()
    assert in_order(world.rows()) == list(range(3))


def test_a_commit_that_was_made_and_then_refused_to_its_repetition_leaves_the_table_readable(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy has sent the request twice."""
    world = TableWorld(folder, SCHEMA)
    job = world.job(numbers(3)).start()
    job.write()
    commit_table = SqlCatalog.commit_table

    def commit_twice(*arguments: Any) -> Any:
        commit_table(*arguments)
        return commit_table(*arguments)

    point = job.snapshot()
    monkeypatch.setattr(SqlCatalog, "commit_table", commit_twice)
    job.complete(point)
    job.close()
    assert in_order(world.rows()) == list(range(3))


def test_a_commit_beside_another_writer_is_repeated_and_keeps_both(folder: Path) -> None:
    world = TableWorld(folder, SCHEMA)
    job = world.job(numbers(4)).start()
    job.write()
    point = job.snapshot()
    see_first(job, world.table)
    world.append([{"number": 100}])
    job.complete(point)
    job.close()
    assert in_order(world.rows()) == [0, 1, 2, 3, 100]


def test_a_commit_to_one_branch_is_repeated_after_a_commit_to_another(folder: Path) -> None:
    """The head of the branch is the same, but the table's next sequence number is not."""
    world = TableWorld(folder, SCHEMA, branch="other")
    job = world.job(numbers(4)).start()
    job.write(2)
    job.checkpoint()
    job.write(2)
    point = job.snapshot()
    see_first(job, world.table)
    world.append([{"number": 100}])
    job.complete(point)
    job.close()
    assert world.counts("other") == [0, 2, 4]


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
    world.job(numbers(4), restored=pending).start().finish()
    assert in_order(world.rows()) == [0, 1, 2, 3, 100, 101]


def test_a_commit_that_a_user_has_undone_is_not_made_again(folder: Path) -> None:
    """The commits before it would not be made again, so the table would lack rows between others."""
    world = TableWorld(folder, SCHEMA)
    job = world.job(numbers(7)).start()
    for _ in range(3):
        job.write(2)
        job.checkpoint()
    job.kill()
    table = world.table
    table.manage_snapshots().rollback_to_snapshot(table.snapshots()[0].snapshot_id).commit()
    job.start().finish()
    assert in_order(world.rows()) == [0, 1, 6]


# -- commits that can't be made -------------------------------------------------------------------------


def test_a_commit_whose_files_are_gone_fails_and_leaves_the_table_readable(folder: Path) -> None:
    world = TableWorld(folder, SCHEMA)
    job = world.job(numbers(4)).start()
    job.write()
    job.decide(job.snapshot())
    job.kill()
    shutil.rmtree(folder / "warehouse/shop/orders/data")
    with pytest.raises(OperatorError, match="remove_orphan_files removes uncommitted files"):
        job.start()
    assert world.rows() == []


def test_a_made_commit_is_recognised_by_its_files_when_its_snapshot_has_expired(folder: Path) -> None:
    world = TableWorld(folder, SCHEMA)
    world.make()
    world.append([{"number": 100}])
    job = world.job(numbers(4)).start()
    job.write()
    job.checkpoint()
    job.kill()
    for number in (101, 102):
        world.append([{"number": number}])
    expire_all_but_the_newest(world)
    job.start().finish()
    assert in_order(world.rows()) == [*range(4), 100, 101, 102]


def test_a_commit_of_which_no_trace_can_be_left_fails(folder: Path) -> None:
    """It may have been made and compacted, or not have been made: both guesses could be wrong."""
    world = TableWorld(folder, SCHEMA)
    world.make()
    world.append([{"number": 100}])
    job = world.job(numbers(4)).start()
    job.write()
    job.decide(job.snapshot())
    job.kill()
    for number in (101, 102):
        world.append([{"number": number}])
    expire_all_but_the_newest(world)
    with pytest.raises(OperatorError, match=r"have expired.*Let expire_snapshots keep snapshots for longer"):
        job.start()
    assert in_order(world.rows()) == [100, 101, 102]


def test_a_commit_after_the_kept_head_of_its_barrier_is_made(folder: Path) -> None:
    world = TableWorld(folder, SCHEMA)
    world.make()
    for number in (100, 101):
        world.append([{"number": number}])
    job = world.job(numbers(4)).start()
    job.write()
    job.decide(job.snapshot())
    job.kill()
    expire_all_but_the_newest(world)
    job.start().finish()
    assert in_order(world.rows()) == [*range(4), 100, 101]


def test_a_pending_commit_is_not_made_in_another_table(folder: Path) -> None:
    world = TableWorld(folder, SCHEMA)
    job = world.job(numbers(4)).start()
    job.write()
    job.decide(job.snapshot())
    job.kill()
    world.opened.drop_table(TABLE)
    with pytest.raises(OperatorError, match=r"the table has the id .* here\. So the catalog"):
        job.start()  # its writers have made a new table


def test_files_of_a_table_that_is_made_anew_before_the_checkpoint_fail_it(folder: Path) -> None:
    """The new table has the ids of columns in another order, so it would show values in the wrong columns."""
    columns = {"number": pa.int64(), "price": pa.int64()}
    world = TableWorld(folder, pa.schema(columns))
    job = world.job([{"number": 1, "price": 2}]).start()
    job.write()
    world.opened.drop_table(TABLE)
    world.make(pa.schema(dict(reversed(columns.items()))))
    with pytest.raises(OperatorError, match="was created again while rows were written to it"):
        job.checkpoint()
    job.kill()
    job.start().finish()
    assert world.rows() == [{"price": 2, "number": 1}]


def test_a_snapshot_names_no_file_outside_of_the_table(folder: Path) -> None:
    world = TableWorld(folder, SCHEMA)
    job = world.job(numbers(2), parallelism=1).start()
    job.write()
    commit = job.snapshot().committables[0]
    outside = replace(commit, files=(replace(commit.files[0], path="file:///etc/secret.parquet"),))
    with pytest.raises(UntrustedPathError):
        job.writers()[-1].commit([outside], permit_of_completed_checkpoint(1, 1))


# -- a branch -------------------------------------------------------------------------------------------


def even(scan: Any) -> bool:
    return bool(scan.count() % 2 == 0)


def test_a_branch_begins_with_main_and_leaves_main_alone(folder: Path) -> None:
    world = TableWorld(folder, SCHEMA, branch="audit")
    world.make()
    world.append([{"number": 100}])
    world.finish(numbers(2))
    assert in_order(world.rows()) == [100]
    assert world.counts("audit") == [1, 3]


def test_main_follows_the_branch_when_the_audit_approves(folder: Path) -> None:
    world = TableWorld(folder, SCHEMA, branch="audit", audit=even)
    job = world.job(numbers(4)).start()
    seen = []
    for count in (2, 1, 1):
        job.write(count)
        job.checkpoint()
        seen.append(in_order(world.rows()))
    job.close()
    assert seen == [[0, 1], [0, 1], [0, 1, 2, 3]]


def test_an_audit_that_was_interrupted_is_made_up_for_after_the_restore(folder: Path) -> None:
    world = TableWorld(folder, SCHEMA, branch="audit", audit=even)
    job = world.job(numbers(2)).start()
    job.write()
    point = job.snapshot()
    job.writers()[-1]._publish = lambda audit: None  # the process dies after the commit
    job.complete(point)
    job.kill()
    assert world.rows() == []
    job.start().close()
    assert in_order(world.rows()) == [0, 1]


def test_main_with_snapshots_of_others_is_not_overwritten(folder: Path) -> None:
    world = TableWorld(folder, SCHEMA, branch="audit", audit=even)
    job = world.job(numbers(4)).start()
    job.write(2)
    job.checkpoint()
    world.append([{"number": 100}])
    job.write(2)
    with pytest.raises(OperatorError, match="main has a snapshot that the branch 'audit' lacks"):
        job.checkpoint()
    assert in_order(world.rows()) == [0, 1, 100]


def test_main_follows_the_branch_beside_another_writer_of_another_branch(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog refuses the first try."""
    world = TableWorld(folder, SCHEMA, branch="audit", audit=even)
    job = world.job(numbers(2)).start()
    job.write()
    set_current, tries = ManageSnapshots.set_current_snapshot, []

    def beside_others(self: ManageSnapshots, **where: Any) -> ManageSnapshots:
        tries.append(where)
        if len(tries) == 1:
            world.table.transaction().set_properties(color="red").commit_transaction()
            msg = "Table has been updated by another process"
            raise CommitFailedException(msg)
        return set_current(self, **where)

    monkeypatch.setattr(ManageSnapshots, "set_current_snapshot", beside_others)
    job.checkpoint()
    assert in_order(world.rows()) == [0, 1]


def test_a_pending_commit_keeps_its_branch_when_the_sink_gets_another(folder: Path) -> None:
    """The other branch does not show that the commit was made, and would add its rows again."""
    world = TableWorld(folder, SCHEMA)
    world.make()
    world.append([{"number": 100}])
    other = TableWorld(folder, SCHEMA, branch="other")
    other.finish(numbers(1, first=200))
    job = world.job(numbers(2)).start()
    job.write()
    made = job.checkpoint()
    job.close()
    other.job(numbers(2), restored=made).start().finish()
    assert in_order(world.rows()) == [0, 1, 100]
    assert other.counts("other") == [1, 2]


def test_a_tag_is_refused_as_a_branch(folder: Path) -> None:
    world = TableWorld(folder, SCHEMA)
    world.finish(numbers(1))
    table = world.table
    head = table.current_snapshot()
    assert head is not None
    table.manage_snapshots().create_tag(head.snapshot_id, "v1").commit()
    with pytest.raises(ConnectorError, match="branch='v1' is a tag"):
        TableWorld(folder, branch="v1").sink().prepare_destination("job")


# -- partitions, types, bounds --------------------------------------------------------------------------


def test_rows_are_divided_by_all_transforms_and_found_by_their_values(folder: Path) -> None:
    schema = pa.schema(
        {"number": pa.int64(), "city": pa.string(), "day": pa.date32(), "at": pa.timestamp("us", "UTC")}
    )
    cities = ["Köln am Rhein", "a/b=c%", None, ""]
    rows = [
        {
            "number": number,
            "city": cities[number % 4],
            "day": date(2026, 5, 1 + number % 2),
            "at": datetime(1969 + number % 3, 12, 31, 23, tzinfo=UTC),
        }
        for number in range(12)
    ]
    wanted = ["city", "day", "years(at)", "bucket(4, number)", "truncate(2, city)"]
    world = TableWorld(folder, schema, partition_by=wanted[:4])
    world.finish(rows)
    assert sorted(world.rows(), key=lambda row: row["number"]) == rows
    only = world.table.scan(EqualTo("city", "a/b=c%")).to_arrow().to_pylist()
    assert in_order(only) == [1, 5, 9]
    assert in_order(world.table.scan(IsNull("city")).to_arrow().to_pylist()) == [2, 6, 10]
    first = world.table.scan(EqualTo("at", "1969-12-31T23:00:00+00:00")).to_arrow().to_pylist()
    assert in_order(first) == [0, 3, 6, 9]
    assert counted_by_duckdb(world.table) == 12


def test_nan_is_one_partition_in_one_file_and_null_another(folder: Path) -> None:
    schema = pa.schema({"number": pa.int64(), "ratio": pa.float64()})
    world = TableWorld(folder, schema, partition_by=["ratio"])
    job = world.job(
        [{"number": number, "ratio": math.nan if number % 2 else None} for number in range(6)], parallelism=1
    ).start()
    for _ in range(3):
        job.write(2)
    job.checkpoint()
    assert world.table.inspect.files().num_rows == 2
    assert in_order(world.table.scan("ratio is nan").to_arrow().to_pylist()) == [1, 3, 5]
    assert in_order(world.table.scan(IsNull("ratio")).to_arrow().to_pylist()) == [0, 2, 4]


def test_an_existing_table_keeps_its_partitions_and_refuses_others(folder: Path) -> None:
    world = TableWorld(folder, SCHEMA, partition_by=["bucket(4, number)"])
    world.finish(numbers(4))
    TableWorld(folder).finish(numbers(2, first=4))
    assert in_order(world.rows()) == list(range(6))
    other = TableWorld(folder, partition_by=["number"])
    with pytest.raises(OperatorError, match=r"has the partitions \['bucket\[4\]\(number\)'\]"):
        other.job(numbers(1)).start()
    with pytest.raises(ConnectorError, match="partition_by differs"):
        other.sink().prepare_destination("job")  # before the first record is read


def test_files_of_the_old_partitions_are_committed_as_such_after_a_change(folder: Path) -> None:
    world = TableWorld(folder, SCHEMA)
    job = world.job(numbers(4)).start()
    job.write()
    point = job.snapshot()
    with world.table.update_spec() as update:
        update.add_field("number", "bucket[4]")
    job.complete(point)
    job.close()
    world.append([{"number": 100}])
    assert in_order(world.rows()) == [0, 1, 2, 3, 100]
    assert world.table.spec().spec_id == 1
    assert set(world.table.inspect.files().column("spec_id").to_pylist()) == {0, 1}


ROW = {
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
    "map": [("k", 1)],
}
KINDS = pa.schema(
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
        "map": pa.map_(pa.string(), pa.int64()),
    }
)


def test_values_of_all_types_are_read_back(folder: Path) -> None:
    world = TableWorld(folder, KINDS)
    empty = dict.fromkeys(ROW)
    world.finish([ROW, empty])
    assert sorted(world.rows(), key=lambda found: found["i"] is None) == [ROW, empty]


def test_readers_that_skip_files_by_bounds_find_every_row(folder: Path) -> None:
    columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        "at": (
            pa.timestamp("us", "UTC"),
            [datetime(2026, 1, 1, 0, 0, 0, n, tzinfo=UTC) for n in (0, 1_000, 1_999)],
        ),
        "name": (pa.string(), ["\U0010ffff", "ä" * 65, "z" * 5_000]),
        "share": (pa.float64(), [0.5, -1.5, 2.5]),
        "ratio": (pa.float64(), [1.5, math.nan, None]),
        "money": (pa.decimal128(38, 2), [Decimal("12.34"), Decimal("123456789012345678901.23"), None]),
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
    table = world.table
    for row in rows:
        for name, value in row.items():
            if value is not None and value == value:
                literal = value.isoformat() if isinstance(value, date) else value
                assert table.scan(EqualTo(name, literal)).count() == 1, (name, value)
    assert table.scan("ratio is nan").count() == 1
    assert table.scan(IsNull("ratio")).count() == 1


# -- columns of the table and of the records ------------------------------------------------------------


def test_without_a_schema_the_first_records_decide_the_columns(folder: Path) -> None:
    world = TableWorld(folder)
    rows = [{"number": 1, "name": "a"}, {"number": 2, "name": None}]
    world.finish(rows, parallelism=1)
    assert sorted(world.rows(), key=lambda row: row["number"]) == rows


def test_a_subtask_whose_first_records_differ_from_the_table_fails_at_once(folder: Path) -> None:
    job = TableWorld(folder).job([{"number": 1}, {"number": "one"}], parallelism=2).start()
    with pytest.raises(
        OperatorError, match=r"column 'number' .*Map the rows to the columns of table shop.orders"
    ):
        job.write()


def test_a_new_column_is_refused_by_default_and_the_row_is_shown(folder: Path) -> None:
    job = TableWorld(folder, SCHEMA).job([{"number": 1, "extra": 2}]).start()
    with pytest.raises(OperatorError, match=r"columns \['extra'\].*schema_mode=\"merge\""):
        job.write()


def test_new_columns_are_added_to_the_table_with_merge(folder: Path) -> None:
    world = TableWorld(folder, SCHEMA, schema_mode="merge")
    world.finish(numbers(2))
    world.finish(
        [{"number": 2, "name": "c"}, {"number": 3, "name": "d"}, {"number": 4, "price": 1.5}], parallelism=2
    )
    assert sorted(world.rows(), key=lambda row: row["number"]) == [
        {"number": 0, "name": None, "price": None},
        {"number": 1, "name": None, "price": None},
        {"number": 2, "name": "c", "price": None},
        {"number": 3, "name": "d", "price": None},
        {"number": 4, "name": None, "price": 1.5},
    ]


def test_a_column_that_differs_from_another_only_in_case_is_refused(folder: Path) -> None:
    job = TableWorld(folder, SCHEMA, schema_mode="merge").job([{"number": 1, "Number": 2}]).start()
    with pytest.raises(OperatorError, match="'number' and 'Number' differ only in upper and lower case"):
        job.write()


def test_a_column_that_is_dropped_before_the_checkpoint_fails_it(folder: Path) -> None:
    world = TableWorld(folder, pa.schema({"number": pa.int64(), "name": pa.string()}))
    job = world.job([{"number": 1, "name": "a"}]).start()
    job.write()
    with world.table.update_schema() as update:
        update.delete_column("name")
    with pytest.raises(OperatorError, match="a column of uncommitted rows was dropped"):
        job.snapshot()


def test_columns_that_records_lack_are_null_and_those_that_exclude_null_are_asked_for(folder: Path) -> None:
    schema = pa.schema([pa.field("number", pa.int64(), nullable=False), pa.field("name", pa.string())])
    world = TableWorld(folder, schema)
    world.finish(numbers(1))
    assert world.rows() == [{"number": 0, "name": None}]
    job = TableWorld(folder).job([{"name": "a"}]).start()
    with pytest.raises(OperatorError, match="column 'number' is 'not null', but a row has no value"):
        job.write()


def test_arrow_batches_of_narrower_types_are_widened(folder: Path) -> None:
    sink = TableWorld(folder, SCHEMA).sink()
    with OperatorHarness(StagingOperator(sink)) as harness:
        harness.push_batch(ArrowBatch(pa.record_batch({"number": pa.array([1, 2], pa.uint8())})))
        harness.snapshot()
        (file,) = harness.outputs
    assert file.rows == 2


def test_a_file_that_reaches_the_target_size_of_the_table_is_ended_before_the_checkpoint(
    folder: Path,
) -> None:
    properties = {"write.target-file-size-bytes": "1"}
    sink = TableWorld(folder, SCHEMA, properties=properties).sink()
    with OperatorHarness(StagingOperator(sink)) as writer:
        for first in (0, 2):
            writer.push(numbers(2, first))
        writer.snapshot()
        assert [file.rows for file in writer.outputs] == [2, 2]


def test_a_format_that_the_library_does_not_write_is_refused_before_the_first_commit(folder: Path) -> None:
    world = TableWorld(folder, SCHEMA)
    table = world.make()
    path = Path(table.metadata_location.removeprefix("file://"))
    path.write_text(json.dumps({**json.loads(path.read_text()), "format-version": 3, "next-row-id": 0}))
    with pytest.raises(ConnectorError, match="has format version 3, but pyiceberg writes no version after 2"):
        world.sink().prepare_destination("job")


# -- settings -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"table": "orders"}, "give a namespace and a name"),
        ({"partition_by": "day"}, "give a list of columns"),
        ({"partition_by": ["bucket(id)"]}, r"give a column, such as 'day', or one of 'years\(at\)'"),
        ({"partition_by": ["weeks(at)"]}, "partition_by has"),
        ({"schema_mode": "other"}, "use one of 'fixed', 'merge'"),
        ({"audit": even}, "audit needs a branch other than main"),
        ({"catalog_timeout": 0}, "catalog_timeout"),
    ],
)
def test_settings_that_are_not_allowed_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        IcebergSink(**{"table": TABLE, "catalog": {}, **settings})


def test_a_partition_column_that_is_missing_is_named(folder: Path) -> None:
    with pytest.raises(
        OperatorError, match="partition_by names 'day', which is not among the columns number"
    ):
        TableWorld(folder, SCHEMA, partition_by=["days(day)"]).job(numbers(1)).start()


def test_types_that_a_table_lacks_are_refused_by_the_name_of_the_column() -> None:
    with pytest.raises(BadRecordError, match="column 'takes' has the Arrow type duration"):
        IcebergSink(TABLE, pa.schema({"takes": pa.duration("s")}), catalog=catalog_in(Path("/out")))
