"""`IcebergSource`: snapshots, times, snapshots as they come, and what a restored job reads."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from iceberg_jobs import TABLE, TableWorld, in_order, numbers

from penstock.iceberg import IcebergSource
from penstock.runtime.errors import ConfigurationError, ConnectorError, OperatorError
from penstock.runtime.io.connectors.iceberg import reader
from penstock.runtime.operators.lag import VersionLag
from penstock.runtime.testing.source_harness import SourceHarness

PARTITIONED = pa.schema({"number": pa.int64(), "day": pa.string()})


@pytest.fixture
def world(folder: Path) -> TableWorld:
    """A table whose snapshots have 2, 4 and 6 rows."""
    world = TableWorld(folder)
    world.make()
    for first in (0, 2, 4):
        world.append(numbers(2, first))
    return world


def source_of(world: TableWorld, **settings: Any) -> IcebergSource:
    return IcebergSource(TABLE, catalog=world.catalog, **settings)


def snapshots(world: TableWorld) -> list[int]:
    return [snapshot.snapshot_id for snapshot in world.table.snapshots()]


def rows_of(source: IcebergSource) -> list[Any]:
    """The rows of a source that has an end."""
    with SourceHarness(source) as harness:
        return harness.read_all()


def rows_so_far(harness: SourceHarness) -> list[Any]:
    """The rows that a source without an end returns in a few polls."""
    return [row for _ in range(30) for row in harness.poll()]


def numbers_of(harness: SourceHarness) -> list[int]:
    return [row["number"] for row in rows_so_far(harness)]


def version_of(harness: SourceHarness) -> VersionLag | None:
    lag = harness.statistics().lag
    return None if lag is None else lag.version


# -- snapshots and times --------------------------------------------------------------------------------


def test_by_default_the_newest_snapshot_is_read(world: TableWorld) -> None:
    assert in_order(rows_of(source_of(world))) == list(range(6))


def test_a_snapshot_is_read(world: TableWorld) -> None:
    assert in_order(rows_of(source_of(world, snapshot_id=snapshots(world)[1]))) == list(range(4))


def test_the_snapshot_at_a_time_is_read(world: TableWorld) -> None:
    at = datetime.fromtimestamp(world.table.history()[1].timestamp_ms / 1_000, UTC)
    assert in_order(rows_of(source_of(world, timestamp=at))) == list(range(4))


def test_a_tag_is_read(world: TableWorld) -> None:
    world.table.manage_snapshots().create_tag(snapshots(world)[0], "first").commit()
    assert in_order(rows_of(source_of(world, branch="first"))) == [0, 1]


def test_the_snapshot_is_chosen_once_for_all_subtasks(world: TableWorld) -> None:
    splits = source_of(world).splits(2)
    newest = snapshots(world)[-1]
    world.append(numbers(2, 6))
    assert {split.snapshot for split in splits} == {newest}
    assert len(splits) == 3


def test_the_snapshots_from_one_on_are_read_in_order(world: TableWorld) -> None:
    source = source_of(world, starting_snapshot_id=snapshots(world)[1])
    assert [row["number"] for row in rows_of(source)] == [2, 3, 4, 5]


def test_a_first_snapshot_of_another_branch_is_refused(world: TableWorld) -> None:
    """Its parent is on main, so the rows of main would be read instead of its own."""
    world.table.manage_snapshots().create_branch(snapshots(world)[1], "other").commit()
    world.table.append(pa.Table.from_pylist(numbers(1, 100)), branch="other")
    other = world.table.refs()["other"].snapshot_id
    with pytest.raises(ConnectorError, match=f"has no snapshot {other} on the branch 'main'"):
        source_of(world, starting_snapshot_id=other).splits(1)
    source = source_of(world, starting_snapshot_id=other, branch="other")
    assert [row["number"] for row in rows_of(source)] == [100]


@pytest.mark.parametrize(
    ("settings", "says"),
    [({"snapshot_id": 7}, "no snapshot 7"), ({"branch": "other"}, "no branch or tag 'other'")],
)
def test_what_the_table_does_not_have_is_named(
    world: TableWorld, settings: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConnectorError, match=says):
        source_of(world, **settings).splits(1)


def test_a_missing_table_is_named(folder: Path) -> None:
    with pytest.raises(ConnectorError, match=r"there is no table shop\.orders in the catalog"):
        source_of(TableWorld(folder)).splits(1)


def test_deleted_rows_are_left_out_and_a_batch_has_the_types_of_the_table(world: TableWorld) -> None:
    world.table.delete("number = 3")
    source = source_of(world, batch_format="arrow")
    assert sorted(value for row in rows_of(source) for value in row.values()) == [0, 1, 2, 4, 5]


def test_columns_are_selected_and_unknown_ones_named(folder: Path) -> None:
    world = TableWorld(folder, PARTITIONED, partition_by=["day"])
    rows = [{"number": 1, "day": "a"}, {"number": 2, "day": None}]
    world.finish(rows)
    assert sorted(rows_of(source_of(world)), key=lambda row: row["number"]) == rows
    assert {row["day"] for row in rows_of(source_of(world, columns=["day"]))} == {"a", None}
    with pytest.raises(OperatorError, match="has no column 'other'; it has number, day"):
        rows_of(source_of(world, columns=["other"]))


# -- snapshots as they come -----------------------------------------------------------------------------


def test_a_watched_table_is_followed_snapshot_by_snapshot(world: TableWorld) -> None:
    with SourceHarness(source_of(world, watch=timedelta(seconds=10))) as harness:
        assert sorted(numbers_of(harness)) == list(range(6))
        for first in (6, 8):
            world.append(numbers(2, first))
        assert numbers_of(harness) == [6, 7, 8, 9]


def test_the_lag_names_the_snapshot_that_is_read_and_counts_those_after_it(world: TableWorld) -> None:
    ids = snapshots(world)
    with SourceHarness(source_of(world, starting_snapshot_id=ids[0], watch=1)) as harness:
        while not harness.poll():
            pass
        first = version_of(harness)
        rows_so_far(harness)
        last = version_of(harness)
    assert first is not None
    assert (first.version, first.newest, first.behind) == (str(ids[0]), str(ids[2]), 2)
    assert last is not None
    assert (last.version, last.behind) == (str(ids[2]), 0)


def test_an_empty_table_is_followed_from_its_first_snapshot(folder: Path) -> None:
    world = TableWorld(folder)
    world.make()
    with SourceHarness(source_of(world, watch=1)) as harness:
        assert numbers_of(harness) == []
        world.append(numbers(2))
        assert numbers_of(harness) == [0, 1]


def test_a_restored_job_continues_in_the_middle_of_a_snapshot(world: TableWorld) -> None:
    source = source_of(world, starting_snapshot_id=snapshots(world)[0], watch=1)
    with SourceHarness(source) as harness:
        first: list[int] = []
        while len(first) < 3:
            first += [row["number"] for row in harness.poll(1)]
        snapshot = harness.snapshot()
    world.append(numbers(2, 6))
    with SourceHarness(source, restored=[snapshot]) as harness:
        assert [*first, *numbers_of(harness)] == list(range(8))


def test_new_columns_are_read_from_their_snapshot_on(world: TableWorld) -> None:
    writer = TableWorld(world.folder, schema_mode="merge")
    writer.finish([{"number": 6, "name": "x"}])
    source = source_of(world, starting_snapshot_id=snapshots(world)[2])
    assert rows_of(source) == [{"number": 4}, {"number": 5}, {"number": 6, "name": "x"}]


def test_a_snapshot_that_removes_rows_fails_the_job_or_is_left_out(world: TableWorld) -> None:
    first = snapshots(world)[0]
    world.table.overwrite(pa.table({"number": [100]}), "number = 0")
    world.append(numbers(1, 6))
    with pytest.raises(OperatorError, match=r"removes rows .* Set skip_change_commits=True"):
        rows_of(source_of(world, starting_snapshot_id=first))
    # pyiceberg overwrites with two snapshots, and the second one only adds rows.
    kept = rows_of(source_of(world, starting_snapshot_id=first, skip_change_commits=True))
    assert in_order(kept) == [*range(7), 100]


def expire(world: TableWorld, *ids: int) -> None:
    world.table.maintenance.expire_snapshots().by_ids(list(ids)).commit()


def test_snapshots_that_expired_before_they_were_read_fail_the_job(world: TableWorld) -> None:
    with SourceHarness(source_of(world, watch=1)) as harness:
        assert sorted(numbers_of(harness)) == list(range(6))
        world.append(numbers(2, 6))
        world.append(numbers(2, 8))
        expire(world, *snapshots(world)[:4])
        with pytest.raises(OperatorError, match=r"are missing, so rows are lost.*let expire_snapshots keep"):
            rows_so_far(harness)


def test_a_table_that_was_made_anew_fails_the_job(world: TableWorld) -> None:
    """Its oldest snapshot has the number of the one that is awaited, so nothing else tells them apart."""
    with SourceHarness(source_of(world, watch=1)) as harness:
        assert sorted(numbers_of(harness)) == list(range(6))
        world.opened.drop_table(TABLE)
        world.make()
        for number in range(4):
            world.append(numbers(1, number))
        expire(world, *snapshots(world)[:3])
        with pytest.raises(OperatorError, match="was created again: its id was"):
            rows_so_far(harness)


def test_the_snapshot_that_was_read_last_may_expire(world: TableWorld) -> None:
    with SourceHarness(source_of(world, watch=1)) as harness:
        assert sorted(numbers_of(harness)) == list(range(6))
        world.append(numbers(2, 6))
        expire(world, *snapshots(world)[:3])
        assert numbers_of(harness) == [6, 7]


def test_a_table_that_was_rolled_back_fails_the_job(world: TableWorld) -> None:
    first = snapshots(world)[0]
    with SourceHarness(source_of(world, watch=1)) as harness:
        rows_so_far(harness)
        world.table.manage_snapshots().rollback_to_snapshot(first).commit()
        with pytest.raises(OperatorError, match="or the branch was rolled back"):
            rows_so_far(harness)


@pytest.mark.parametrize("rows", [1, 2])
def test_a_rollback_whose_snapshots_have_expired_fails_the_job(world: TableWorld, rows: int) -> None:
    """The new snapshot has the number of the one that is awaited, and names no parent any more."""
    first = snapshots(world)[0]
    with SourceHarness(source_of(world, watch=1)) as harness:
        assert sorted(numbers_of(harness)) == list(range(6))
        world.table.manage_snapshots().rollback_to_snapshot(first).commit()
        world.append(numbers(rows, 100))
        expire(world, *snapshots(world)[:3])
        (left,) = world.table.snapshots()
        assert (left.sequence_number, left.parent_snapshot_id) == (4, None)
        with pytest.raises(OperatorError, match="or the branch was rolled back"):
            rows_so_far(harness)


def test_the_files_of_the_first_snapshot_are_listed_once_for_all_subtasks(
    world: TableWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.append([{"number": 6}, {"number": 7}])
    source = source_of(world)
    listed = []
    tasks = reader._tasks

    def counted(*given: Any, **how: Any) -> Any:
        listed.append(given)
        return tasks(*given, **how)

    monkeypatch.setattr(reader, "_tasks", counted)
    with SourceHarness(source) as harness:
        assert in_order(harness.read_all()) == list(range(8))
    assert len(listed) == 1


# -- settings -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"snapshot_id": 1, "starting_snapshot_id": 1}, "exclude each other"),
        ({"timestamp": datetime(2026, 1, 1)}, "has no time zone"),  # noqa: DTZ001 - without a zone on purpose
        ({"watch": 0}, "watch"),
        ({"batch_format": "pandas"}, "use one of 'rows', 'arrow'"),
    ],
)
def test_settings_that_are_not_allowed_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        IcebergSource(TABLE, catalog={}, **settings)
