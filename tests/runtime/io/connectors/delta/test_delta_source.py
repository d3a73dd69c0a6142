"""`DeltaSource`: versions, times, commits as they come, changes, and what a restored job reads."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_jobs import TableWorld, in_order, numbers
from deltalake import DeltaTable, write_deltalake

from penstock.connectors import VersionLag
from penstock.delta import DeltaSource
from penstock.runtime.errors import ConfigurationError, ConnectorError, OperatorError
from penstock.runtime.io.connectors.delta import reader
from penstock.runtime.io.connectors.delta.log import newest_version
from penstock.runtime.io.connectors.delta.tables import find_table
from penstock.runtime.io.connectors.local_files import LocalFileSystem
from penstock.runtime.testing.source_harness import SourceHarness

SCHEMA = pa.schema({"number": pa.int64()})


def append(table: Path, count: int, first: int = 0) -> None:
    write_deltalake(table, pa.Table.from_pylist(numbers(count, first), SCHEMA), mode="append")


@pytest.fixture
def table(folder: Path) -> Path:
    """A table whose versions 0 to 2 have 2, 4 and 6 rows."""
    for first in (0, 2, 4):
        append(folder / "table", 2, first)
    return folder / "table"


def rows_of(source: DeltaSource) -> list[Any]:
    """The rows of a source that has an end."""
    with SourceHarness(source) as harness:
        return harness.read_all()


def rows_so_far(harness: SourceHarness) -> list[Any]:
    """The rows that a source without an end returns in a few polls."""
    return [row for _ in range(30) for row in harness.poll()]


def numbers_of(harness: SourceHarness) -> list[int]:
    return [row["number"] for row in rows_so_far(harness)]


# -- versions and times ---------------------------------------------------------------------------------


def test_by_default_the_newest_version_is_read(table: Path) -> None:
    assert in_order(rows_of(DeltaSource(table))) == list(range(6))


def test_a_version_is_read(table: Path) -> None:
    assert in_order(rows_of(DeltaSource(table, version=1))) == list(range(4))


def test_the_version_at_a_time_is_read(table: Path) -> None:
    moments = {entry["version"]: entry["timestamp"] for entry in DeltaTable(table).history()}
    at = datetime.fromtimestamp(moments[1] / 1_000, UTC)
    assert in_order(rows_of(DeltaSource(table, timestamp=at))) == list(range(4))


def test_the_version_is_chosen_once_for_all_subtasks(table: Path) -> None:
    splits = DeltaSource(table).splits(2)
    append(table, 2, first=6)
    assert {split.version for split in splits} == {2}


def test_a_version_is_opened_once_for_all_its_files(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    def find_and_count(*arguments: Any) -> DeltaTable | None:
        opened.append(arguments)
        return find_table(*arguments)

    monkeypatch.setattr(reader, "find_table", find_and_count)
    assert in_order(rows_of(DeltaSource(table))) == list(range(6))
    assert len(opened) == 1


def test_a_removed_file_of_an_older_version_says_what_to_do(table: Path) -> None:
    DeltaTable(table).optimize.compact()
    DeltaTable(table).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    with pytest.raises(OperatorError, match="VACUUM removes files of older versions"):
        rows_of(DeltaSource(table, version=2))


def test_a_missing_table_is_named(folder: Path) -> None:
    with pytest.raises(ConnectorError, match="there is no Delta table at"):
        DeltaSource(folder / "none").splits(1)


# -- commits as they come -------------------------------------------------------------------------------


def test_commits_are_read_as_they_come(table: Path) -> None:
    with SourceHarness(DeltaSource(table, watch=timedelta(seconds=5))) as harness:
        assert sorted(numbers_of(harness)) == list(range(6))
        append(table, 1, first=6)
        append(table, 1, first=7)
        assert numbers_of(harness) == [6, 7]


def test_commits_from_a_version_on_are_read(table: Path) -> None:
    assert [row["number"] for row in rows_of(DeltaSource(table, starting_version=1))] == [2, 3, 4, 5]


def test_a_version_that_does_not_exist_yet_is_waited_for(table: Path) -> None:
    with SourceHarness(DeltaSource(table, starting_version=4, watch=1)) as harness:
        assert rows_so_far(harness) == []
        append(table, 1, first=6)
        append(table, 1, first=7)
        assert numbers_of(harness) == [7]


def test_a_restored_job_continues_in_the_middle_of_a_commit(table: Path) -> None:
    source = DeltaSource(table, starting_version=0, watch=1)
    with SourceHarness(source) as harness:
        first: list[int] = []
        while len(first) < 3:
            first += [row["number"] for row in harness.poll(1)]
        snapshot = harness.snapshot()
    append(table, 2, first=6)
    with SourceHarness(source, restored=[snapshot]) as harness:
        rest = numbers_of(harness)
    assert [*first, *rest] == list(range(8))


def test_a_compaction_is_no_input(table: Path) -> None:
    with SourceHarness(DeltaSource(table, watch=1)) as harness:
        assert len(numbers_of(harness)) == 6
        DeltaTable(table).optimize.compact()
        append(table, 1, first=6)
        assert numbers_of(harness) == [6]


def test_a_commit_that_the_log_has_forgotten_fails_the_job(table: Path) -> None:
    source = DeltaSource(table, starting_version=1, watch=1)
    with SourceHarness(source) as harness:
        snapshot = harness.snapshot()
    DeltaTable(table).create_checkpoint()
    for version in (0, 1):
        (table / "_delta_log" / f"{version:020d}.json").unlink()
    with (
        SourceHarness(source, restored=[snapshot]) as harness,
        pytest.raises(OperatorError, match="version 1 is not in the log any more"),
    ):
        rows_so_far(harness)


@pytest.mark.parametrize("count", [0, 5])
def test_a_table_that_was_made_anew_fails_a_job_that_follows_it(table: Path, count: int) -> None:
    """Its versions before the one that is awaited would never be read."""
    source = DeltaSource(table, watch=1)
    with SourceHarness(source) as harness:
        assert len(numbers_of(harness)) == 6
        snapshot = harness.snapshot()
        shutil.rmtree(table)
        DeltaTable.create(table, pa.schema({"number": pa.int64()}))
        for number in range(count):
            append(table, 1, first=number)
        if not count:
            with pytest.raises(OperatorError, match="was created again: its id was"):
                rows_so_far(harness)
    with (
        SourceHarness(source, restored=[snapshot]) as harness,
        pytest.raises(OperatorError, match="was created again: its id was"),
    ):
        rows_so_far(harness)


def test_a_table_that_is_replaced_in_its_log_is_followed(table: Path) -> None:
    source = DeltaSource(table, watch=1, skip_change_commits=True)
    with SourceHarness(source) as harness:
        assert len(numbers_of(harness)) == 6
        DeltaTable.create(table, pa.schema({"number": pa.int64()}), mode="overwrite")
        append(table, 1, first=6)
        assert numbers_of(harness) == [6]
        snapshot = harness.snapshot()
    append(table, 1, first=7)
    with SourceHarness(source, restored=[snapshot]) as harness:
        assert numbers_of(harness) == [7]


def test_texts_with_other_ends_of_lines_do_not_end_lines_of_the_log(folder: Path) -> None:
    rows = [{"name": "a\u2028b\u0085c\x1e"}]
    world = TableWorld(folder, pa.schema({"name": pa.string()}))
    world.finish(rows)
    assert rows_of(DeltaSource(world.folder, starting_version=0)) == rows


def test_columns_that_a_commit_adds_are_read_from_then_on(table: Path) -> None:
    with SourceHarness(DeltaSource(table, watch=1)) as harness:
        assert len(numbers_of(harness)) == 6
        more = pa.table({"number": [6], "name": ["x"]})
        write_deltalake(table, more, mode="append", schema_mode="merge")
        write_deltalake(table, more.slice(0, 1).select(["number"]), mode="append", schema_mode="merge")
        assert rows_so_far(harness) == [{"number": 6, "name": "x"}, {"number": 6, "name": None}]


def test_a_commit_that_removes_rows_fails_the_job_and_says_what_to_set(table: Path) -> None:
    with SourceHarness(DeltaSource(table, watch=1)) as harness:
        rows_so_far(harness)
        DeltaTable(table).delete("number = 3")
        with pytest.raises(OperatorError, match="change_data_feed=True to read changes"):
            rows_so_far(harness)


def test_commits_that_remove_rows_are_skipped_on_request(table: Path) -> None:
    with SourceHarness(DeltaSource(table, watch=1, skip_change_commits=True)) as harness:
        rows_so_far(harness)
        DeltaTable(table).delete("number = 3")
        append(table, 1, first=6)
        assert numbers_of(harness) == [6]


# -- changes --------------------------------------------------------------------------------------------


def test_changes_are_read_in_the_order_of_commits(folder: Path) -> None:
    table = folder / "table"
    DeltaTable.create(table, SCHEMA, configuration={"delta.enableChangeDataFeed": "true"})
    append(table, 2)
    with SourceHarness(DeltaSource(table, watch=1, change_data_feed=True)) as harness:
        first = rows_so_far(harness)
        DeltaTable(table).update(updates={"number": "number + 10"}, predicate="number = 1")
        DeltaTable(table).delete("number = 0")
        rest = rows_so_far(harness)
    kinds = [(row["_commit_version"], row["_change_type"], row["number"]) for row in [*first, *rest]]
    assert sorted(kinds[:2]) == [(1, "insert", 0), (1, "insert", 1)]
    assert sorted(kinds[2:4]) == [(2, "update_postimage", 11), (2, "update_preimage", 1)]
    assert kinds[4:] == [(3, "delete", 0)]


def test_without_a_change_data_feed_a_rewritten_file_is_removed_and_added(table: Path) -> None:
    with SourceHarness(DeltaSource(table, watch=1, change_data_feed=True)) as harness:
        rows_so_far(harness)
        DeltaTable(table).delete("number = 3")
        changes = [(row["_change_type"], row["number"]) for row in rows_so_far(harness)]
    assert sorted(changes[:2]) == [("delete", 2), ("delete", 3)]
    assert changes[2:] == [("insert", 2)]


# -- columns and partitions -----------------------------------------------------------------------------


def test_partition_columns_are_read_from_the_log_with_their_types(folder: Path) -> None:
    rows = [
        {"number": number, "city": ["Köln/1=%", None][number % 2], "day": date(2026, 5, 1)}
        for number in range(4)
    ]
    schema = pa.schema({"number": pa.int64(), "city": pa.string(), "day": pa.date32()})
    world = TableWorld(folder, schema, partition_by=["city", "day"])
    world.finish(rows)
    for source in (DeltaSource(world.folder), DeltaSource(world.folder, starting_version=0)):
        assert sorted(rows_of(source), key=lambda row: row["number"]) == rows


def test_times_in_utc_are_partition_columns_too(folder: Path) -> None:
    rows = [{"number": 1, "at": datetime(2026, 1, 1, 2, 3, 4, 5, tzinfo=UTC)}]
    schema = pa.schema({"number": pa.int64(), "at": pa.timestamp("us", "UTC")})
    write_deltalake(folder / "table", pa.Table.from_pylist(rows, schema), partition_by=["at"])
    for source in (DeltaSource(folder / "table"), DeltaSource(folder / "table", starting_version=0)):
        assert rows_of(source) == rows


def test_bytes_as_a_partition_column_are_refused(folder: Path) -> None:
    """Writers differ in their texts in the log."""
    rows = pa.table({"number": [1], "raw": [b"a"]})
    write_deltalake(folder / "table", rows, partition_by=["raw"])
    assert rows_of(DeltaSource(folder / "table", columns=["number"])) == numbers(1, 1)
    with pytest.raises(OperatorError, match="partition column 'raw' has bytes"):
        rows_of(DeltaSource(folder / "table"))


def test_times_in_old_files_of_spark_are_read_in_all_years(folder: Path) -> None:
    rows = [{"at": datetime(year, 1, 1, tzinfo=UTC)} for year in (1, 2026, 9999)]
    schema = pa.schema({"at": pa.timestamp("us", "UTC")})
    world = TableWorld(folder, schema)
    world.finish(rows, parallelism=1)
    (file,) = folder.glob("table/*.parquet")
    pq.write_table(pa.Table.from_pylist(rows, schema), file, use_deprecated_int96_timestamps=True)
    assert rows_of(DeltaSource(world.folder)) == rows


def test_a_damaged_file_is_not_blamed_on_vacuum(table: Path) -> None:
    for file in table.glob("*.parquet"):
        file.write_bytes(b"PAR1" * 5)
    with pytest.raises(OperatorError, match="is damaged, or its values don't fit"):
        rows_of(DeltaSource(table))


def test_only_the_given_columns_are_read(folder: Path) -> None:
    write_deltalake(folder / "table", pa.table({"a": [1], "b": ["x"], "c": [2.5]}))
    assert rows_of(DeltaSource(folder / "table", columns=["c", "a"])) == [{"c": 2.5, "a": 1}]
    with pytest.raises(OperatorError, match="has no column 'd'; it has a, b, c"):
        rows_of(DeltaSource(folder / "table", columns=["d"]))


def test_a_table_with_mapped_columns_is_refused(folder: Path) -> None:
    table = folder / "table"
    append(table, 1)
    log = table / "_delta_log" / "00000000000000000000.json"
    mapped = '"configuration":{"delta.columnMapping.mode":"name"}'
    log.write_text(log.read_text().replace('"configuration":{}', mapped))
    with pytest.raises(ConnectorError, match="columnMapping, which this source can't read"):
        DeltaSource(table).splits(1)


@pytest.mark.parametrize("next_version", [3, 4])
def test_columns_that_are_mapped_while_the_table_is_watched_are_refused(
    table: Path, next_version: int
) -> None:
    """With an older protocol, which has no list of features; also if a restored job begins behind it."""
    source = DeltaSource(table, starting_version=next_version, watch=1)
    with SourceHarness(source) as harness:
        rows_so_far(harness)
        snapshot = harness.snapshot()
    log = table / "_delta_log"
    actions = [json.loads(line) for line in (log / f"{0:020d}.json").read_text().splitlines()]
    metadata = next(action for action in actions if "metaData" in action)
    metadata["metaData"]["configuration"] = {"delta.columnMapping.mode": "name"}
    mapped = '"metadata":{"delta.columnMapping.id":1,"delta.columnMapping.physicalName":"number"}'
    schema = metadata["metaData"]["schemaString"].replace('"metadata":{}', mapped)
    metadata["metaData"]["schemaString"] = schema
    protocol = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}
    (log / f"{3:020d}.json").write_text(f"{json.dumps(protocol)}\n{json.dumps(metadata)}")
    with (
        SourceHarness(source, restored=[snapshot]) as harness,
        pytest.raises(OperatorError, match="columnMapping, which this source can't read"),
    ):
        rows_so_far(harness)


# -- how far behind -------------------------------------------------------------------------------------


def version_of(harness: SourceHarness) -> VersionLag | None:
    lag = harness.statistics().lag
    return None if lag is None else lag.version


def test_the_version_that_is_read_is_reported_with_the_newest_one(folder: Path) -> None:
    table = folder / "table"
    for first in range(9):
        append(table, 1, first)
    with SourceHarness(DeltaSource(table, starting_version=1, watch=1)) as harness:
        while not harness.poll():
            pass
        seen = version_of(harness)
        assert seen is not None
        assert (seen.version, seen.newest, seen.behind) == ("1", "8", 7)
        committed = DeltaTable(table).history()[-2]["timestamp"]
        assert seen.committed_at == committed / 1_000
        rows_so_far(harness)
        at_end = version_of(harness)
        assert at_end is not None
        assert (at_end.version, at_end.newest, at_end.behind) == ("8", "8", 0)


def test_the_version_of_a_source_that_follows_nothing_is_reported(table: Path) -> None:
    with SourceHarness(DeltaSource(table, version=1)) as harness:
        harness.poll()
        assert version_of(harness) == VersionLag("1")


@pytest.mark.parametrize("count", [1, 2, 3, 6, 11])
def test_the_newest_version_is_found_with_few_looks_at_the_log(folder: Path, count: int) -> None:
    log = folder / "_delta_log"
    log.mkdir()
    for version in range(3, 3 + count):
        (log / f"{version:020d}.json").touch()
    assert newest_version(LocalFileSystem(), str(folder), 3) == 2 + count


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"version": 1, "starting_version": 2}, "exclude each other"),
        ({"timestamp": datetime(2026, 1, 1)}, "has no time zone"),  # noqa: DTZ001 - without a zone on purpose
        ({"watch": 0}, "watch"),
        ({"batch_format": "pandas"}, "use one of 'rows', 'arrow'"),
    ],
)
def test_settings_that_are_not_allowed_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        DeltaSource("/in", **settings)
