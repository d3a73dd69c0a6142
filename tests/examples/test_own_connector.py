"""The connector of `examples/own_connector.py`, without a cluster: its restores and its commits."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from own_connector import SqliteReader, SqliteSink, SqliteSource, make_readings

from penstock import ConnectorError
from penstock.connectors import ConnectorContext, Sink, Source
from penstock.testing import ManualClock, OperatorHarness


def driven(sink: Sink[Any], **settings: Any) -> OperatorHarness:
    """A sink in the harness, as a job has it."""
    return OperatorHarness.of(lambda rows: rows.sink("out", sink), **settings)


def context() -> ConnectorContext:
    return ConnectorContext("job", "job", "readings", 0, 1, 1, ManualClock())


def read(reader: SqliteReader, polls: int, max_rows: int = 10) -> list[tuple[object, ...]]:
    """The rows of this many polls."""
    rows: list[tuple[object, ...]] = []
    for _ in range(polls):
        polled = reader.poll(max_rows)
        if polled.batch is not None:
            rows.extend(polled.batch.rows)  # type: ignore[union-attr]
    return rows


def published(database: Path) -> list[str]:
    with closing(sqlite3.connect(database)) as result:
        return sorted(record for (record,) in result.execute("SELECT record FROM published"))


def staged(database: Path) -> int:
    with closing(sqlite3.connect(database)) as result:
        return int(result.execute("SELECT count(*) FROM published_staged").fetchone()[0])


@pytest.fixture
def database(tmp_path: Path) -> Path:
    file = tmp_path / "readings.db"
    make_readings(str(file), 100)
    return file


def test_it_is_a_source_and_a_sink(database: Path) -> None:
    assert isinstance(SqliteSource(str(database), "readings"), Source)
    assert isinstance(SqliteSink(str(database), "published"), Sink)


@pytest.mark.parametrize("parallelism", [1, 3, 200])
def test_splits_hold_every_row_once(database: Path, parallelism: int) -> None:
    splits = SqliteSource(str(database), "readings").splits(parallelism)
    rows = [row for first, last in splits for row in range(first, last + 1)]
    assert rows == list(range(1, 101))


def test_a_restored_reader_goes_on_with_the_next_row(database: Path) -> None:
    source = SqliteSource(str(database), "readings")
    with closing(source.reader(context(), source.splits(1))) as reader:
        before = read(reader, polls=3)
        left = reader.snapshot()
    with closing(source.reader(context(), left)) as reader:
        after = read(reader, polls=50)
    with closing(sqlite3.connect(database)) as result:
        assert before + after == result.execute("SELECT * FROM readings").fetchall()


def test_a_database_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConnectorError, match=r"none\.db does not exist"):
        SqliteSource(str(tmp_path / "none.db"), "readings").splits(1)


def test_rows_appear_with_their_checkpoint(database: Path) -> None:
    with driven(SqliteSink(str(database), "published")) as harness:
        harness.push(["a", "b"])
        snapshot = harness.snapshot()
        assert published(database) == []
        harness.push(["c"])
        harness.complete_checkpoint(snapshot)
        assert published(database) == ['"a"', '"b"']


def test_a_commit_that_is_repeated_after_a_restore_does_nothing(database: Path) -> None:
    sink = SqliteSink(str(database), "published")
    with driven(sink) as harness:
        harness.push(["a"])
        snapshot = harness.snapshot()
        harness.complete_checkpoint(snapshot)
    with driven(sink, restored=[snapshot], attempt=2):
        assert published(database) == ['"a"']


def test_what_no_checkpoint_covers_is_removed_by_the_next_attempt(database: Path) -> None:
    sink = SqliteSink(str(database), "published")
    with driven(sink) as harness:
        harness.push(["lost"])
        harness.snapshot()
    assert staged(database) == 1
    with driven(sink, attempt=2) as harness:
        harness.push(["kept"])
        harness.complete_checkpoint(harness.snapshot())
    assert staged(database) == 0
    assert published(database) == ['"kept"']
