"""`SqlSource` and `SqlLookup`: which rows they read, and when they refuse to guess."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from serving.postgres import PostgresServer
from sql_jobs import Shop, postgres_shop, read_all, rows_in, sqlite_shop

from penstock.runtime.errors import ConfigurationError, ConnectorError
from penstock.runtime.io.connectors.sql.reader import SqlReader
from penstock.sql import SqlLookup, SqlSource
from penstock.testing import OperatorHarness

QUERY = "SELECT * FROM orders"


@pytest.fixture(params=["sqlite", "postgres"])
def shop(request: pytest.FixtureRequest, folder: Path) -> Shop:
    made = sqlite_shop(folder)
    if request.param == "postgres":
        made = postgres_shop(request.getfixturevalue("postgres"))
    made.run("CREATE TABLE orders (id INTEGER, item VARCHAR(9))")
    return made


def insert(shop: Shop, *rows: tuple[Any, Any]) -> None:
    for number, item in rows:
        shop.run(f"INSERT INTO orders VALUES ({number}, '{item}')")


def next_rows(reader: SqlReader, clock: Any, seconds: float = 1.0) -> list[Any]:
    """The rows of the next look; the reader's thread works in real time."""
    clock.time += seconds
    while not (polled := reader.poll(100)).batch and (
        polled.ready_at is None or polled.ready_at <= clock.time
    ):
        pass
    return rows_in(polled.batch)


def test_partitions_hold_each_row_once_though_numbers_have_gaps(
    shop: Shop, context: Callable[..., Any]
) -> None:
    insert(shop, (-7, "tea"), (1, "jam"), (2, "milk"), (100, "salt"))
    source = SqlSource(shop.url, QUERY, by=["id"], partitions=3)
    splits = source.splits(2)
    assert [split.name for split in splits] == ["rows -7 to 28", "rows 29 to 64", "rows 65 to 100"]
    found = [[row["id"] for row in read_all(source, context, [split])] for split in splits]
    assert found == [[-7, 1, 2], [], [100]]


def test_rows_that_come_after_the_start_are_read_only_with_watch(
    shop: Shop, context: Callable[..., Any], clock: Any
) -> None:
    insert(shop, (1, "tea"))
    bounded = SqlSource(shop.url, QUERY, by=["id"])
    splits = bounded.splits(1)
    insert(shop, (2, "jam"))
    assert [row["id"] for row in read_all(bounded, context, splits)] == [1]
    following = SqlSource(shop.url, QUERY, by=["id"], watch=1)
    reader = following.reader(context(), following.splits(1))
    assert [row["id"] for row in next_rows(reader, clock)] == [1, 2]
    assert next_rows(reader, clock) == []
    insert(shop, (3, "milk"))
    assert next_rows(reader, clock, 0.5) == []
    assert [row["id"] for row in next_rows(reader, clock)] == [3]
    reader.close()


def test_with_settle_a_row_that_is_committed_late_is_read(
    shop: Shop, context: Callable[..., Any], clock: Any
) -> None:
    source = SqlSource(shop.url, QUERY, by=["id"], watch=1, settle=3)
    reader = source.reader(context(), source.splits(1))
    insert(shop, (8, "jam"))  # 7 was taken before it, and is not committed yet
    assert next_rows(reader, clock) == []
    insert(shop, (7, "tea"))
    assert [next_rows(reader, clock) for _ in range(2)] == [[], []]
    assert [row["id"] for row in next_rows(reader, clock)] == [7, 8]
    reader.close()


def test_two_rows_with_one_position_are_an_error_even_across_pages(
    shop: Shop, context: Callable[..., Any]
) -> None:
    insert(shop, (1, "tea"), (2, "jam"), (2, "milk"), (3, "salt"))
    with pytest.raises(ConnectorError, match=r"two rows have the position \(2,\)"):
        read_all(SqlSource(shop.url, QUERY, by=["id"], page_rows=2), context)
    both = read_all(SqlSource(shop.url, QUERY, by=["id", "item"], page_rows=2), context)
    assert [row["item"] for row in both] == ["tea", "jam", "milk", "salt"]


def test_a_position_that_is_null_is_an_error(shop: Shop, context: Callable[..., Any]) -> None:
    shop.run("INSERT INTO orders VALUES (NULL, 'tea')")
    source = SqlSource(shop.url, QUERY, by=["id"])
    with pytest.raises(ConnectorError, match="is null in a row"):
        source.splits(1)


def test_arrow_batches_have_the_schema_in_each_batch(shop: Shop, context: Callable[..., Any]) -> None:
    insert(shop, (1, "tea"), (2, ""))
    shop.run("INSERT INTO orders VALUES (3, NULL)")
    schema = pa.schema({"item": pa.string(), "id": pa.int64()})
    source = SqlSource(shop.url, QUERY, by=["id"], batch_format="arrow", schema=schema, page_rows=1)
    reader = source.reader(context(), source.splits(1))
    batches = []
    while not (polled := reader.poll(100)).finished:
        batches += [] if polled.batch is None else [polled.batch.batch]  # type: ignore[union-attr]
    reader.close()
    assert [batch.schema for batch in batches] == [schema] * 3
    assert [batch.to_pylist()[0]["item"] for batch in batches] == ["tea", "", None]


def test_a_single_column_may_be_null_or_empty_or_have_line_ends(
    postgres: PostgresServer, context: Callable[..., Any]
) -> None:
    shop = postgres_shop(postgres)
    shop.run("CREATE TABLE notes (id INTEGER, note TEXT)")
    shop.run("INSERT INTO notes VALUES (1, NULL), (2, ''), (3, E'a\\n\\n\"b\\\\.'), (4, E'\\\\.')")
    rows = read_all(SqlSource(shop.url, "SELECT * FROM notes", by=["id"]), context)
    assert [row["note"] for row in rows] == [None, "", 'a\n\n"b\\.', "\\."]
    lookup = SqlLookup(shop.url, "SELECT note FROM notes WHERE note IS NOT NULL", key=["note"])
    assert lookup("\\.") == {"note": "\\."}


def test_a_lookup_adds_the_rows_of_a_table(shop: Shop) -> None:
    insert(shop, (1, "tea"), (2, "jam"))
    lookup = SqlLookup(shop.url, "SELECT id, item FROM orders", key=["id"])
    lookup(1)
    assert pickle.loads(pickle.dumps(lookup)) == lookup, "its connection stays here"
    with OperatorHarness.of(lambda users: users.lookup(lookup, on="id")) as harness:
        assert harness.push([{"id": 2}, {"id": 9}]) == [{"id": 2, "item": "jam"}, {"id": 9, "item": None}]
    schema = pa.schema({"id": pa.int64(), "item": pa.string()})
    columns = SqlLookup(shop.url, "SELECT id, item FROM orders", key=["id"], schema=schema)
    with OperatorHarness.of(lambda users: users.lookup(columns, on="id", batch_format="arrow")) as harness:
        assert harness.push([{"id": 2}, {"id": 1}]) == [{"id": 2, "item": "jam"}, {"id": 1, "item": "tea"}]


def test_a_lookup_can_wait_for_many_answers_at_a_time(shop: Shop) -> None:
    insert(shop, *((number, "tea") for number in range(20)))
    lookup = SqlLookup(shop.url, QUERY, key=["id"])

    async def all_of() -> list[Any]:
        return await asyncio.gather(*(lookup.find_async(number) for number in range(20)))

    assert [row["id"] for row in asyncio.run(all_of())] == list(range(20))


def test_a_lookup_refuses_two_rows_of_a_key(shop: Shop) -> None:
    insert(shop, (1, "tea"), (1, "jam"))
    with pytest.raises(ConnectorError, match=r"has 2 rows with the key \(1,\)"):
        SqlLookup(shop.url, QUERY, key=["id"])(1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"by": ()}, "give the columns that identify a row"),
        ({"by": ["id"], "partitions": 0}, "partitions=0 is not allowed"),
        ({"by": ["id"], "settle": 3}, "settle= needs watch="),
        ({"by": ["id"], "batch_format": "arrow"}, "needs schema="),
    ],
)
def test_a_setting_that_is_not_allowed_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        SqlSource("sqlite:///shop.db", QUERY, **settings)
