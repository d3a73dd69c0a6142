"""`PostgresCdcSource`: each row and each change once, in order, whatever happens in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from cdc_worlds import CdcJob, ChangedDatabase
from serving.postgres import PostgresServer
from sql_jobs import read_all

from penstock import StreamEnvironment
from penstock.aggregates import Count
from penstock.operators import ArrowBatch
from penstock.runtime.errors import ConfigurationError, ConnectorError, GraphError
from penstock.runtime.io.connectors.sql.cdc import receiver
from penstock.sql import PostgresCdcSource, SqlSink, SqlSource


@pytest.fixture
def shop(postgres: PostgresServer) -> Iterator[ChangedDatabase]:
    world = ChangedDatabase(postgres)
    yield world
    world.cleanup()


class Mirror:
    """A copy of a table, to which changes are applied; a change that does not fit is an error."""

    def __init__(self, *key: str) -> None:
        self._key = key
        self.rows: dict[Any, Any] = {}

    def apply(self, records: list[Any]) -> None:
        for record in records:
            row = {name: value for name, value in record.items() if name != "_change_type"}
            key, kind = tuple(row[name] for name in self._key), record["_change_type"]
            if kind in ("insert", "update_postimage"):
                assert key not in self.rows, f"{record} comes twice"
                self.rows[key] = row
            else:
                assert self.rows.pop(key) == row, f"{record} takes away another row"


def numbers(records: list[Any]) -> list[Any]:
    return [record["id"] for record in records]


# -- snapshot and stream ----------------------------------------------------------------------------------


KEYS = {
    "bigint": ("(id bigint, x int, PRIMARY KEY (id))", "{0} - 8"),
    "text": ("(id text, x int, PRIMARY KEY (id))", "chr(64 + {0} % 60) || 'é' || {0}"),
    "date": ("(id date, x int, PRIMARY KEY (id))", "date '2026-01-01' + {0}"),
    "numeric": ("(id numeric(9, 2), x int, PRIMARY KEY (id))", "{0} / 3.0"),
    "uuid": ("(id uuid, x int, PRIMARY KEY (id))", "md5('{0}')::uuid"),
    "two columns": ("(id bigint, b text, x int, PRIMARY KEY (b, id))", "{0}, chr(66 + {0} % 3)"),
}


@pytest.mark.parametrize("kind", KEYS)
def test_a_snapshot_that_is_interrupted_and_changed_meanwhile_gives_each_row_once(
    shop: ChangedDatabase, context: Callable[..., Any], kind: str
) -> None:
    columns, key = KEYS[kind]
    names = ("id", "b") if kind == "two columns" else ("id",)

    def insert(*values: int) -> None:
        listed = ", ".join(f"({key.format(value)}, {value})" for value in values)
        shop.run(f"INSERT INTO orders VALUES {listed}")

    def change(number: int) -> None:
        """Change rows everywhere: they are read already, or not yet."""
        insert(*range(100 + 10 * number, 105 + 10 * number))
        shop.run(
            f"DELETE FROM orders WHERE x % 10 = {number}",
            f"UPDATE orders SET x = x + 1000 WHERE x % 10 = {number + 4}",
        )
        moved = ", ".join(f"{name} = s.{name}" for name in names)
        values = f"(VALUES ({key.format(500 + number)})) AS s({', '.join(names)})"
        shop.run(f"UPDATE orders SET {moved} FROM {values} WHERE x = 1{number}")

    shop.run(f"CREATE TABLE orders {columns}", "ALTER TABLE orders REPLICA IDENTITY FULL")
    insert(*range(100))
    mirror, splits = Mirror(*names), None
    for number in range(3):
        job = CdcJob(shop.cdc(), context, splits, attempt=number + 1, poll_rows=7)
        change(number)
        mirror.apply(job.read(15))
        splits = job.checkpoint()
        assert splits[0].reading is not None, "it ends in the snapshot"
        change(number + 4)
        job.close()
    job = CdcJob(shop.cdc(), context, splits, attempt=4)
    change(3)
    table = read_all(SqlSource(shop.url, "SELECT * FROM orders", by=names), context)
    expected = {tuple(row[name] for name in names): row for row in table}
    while mirror.rows != expected:
        mirror.apply(job.read(1))
    assert splits is not None
    assert len(splits[0].tables[0].chunks) == 3
    assert job.checkpoint()[0].tables[0].chunks == ()
    job.close()


@pytest.mark.parametrize("is_new", [True, False], ids=["a new slot", "an old slot"])
def test_a_transaction_that_is_older_than_the_snapshot_is_waited_for(
    shop: ChangedDatabase, is_new: bool
) -> None:
    shop.run("CREATE TABLE orders (id bigint PRIMARY KEY)")
    if not is_new:
        shop.make_slot()
    with psycopg.connect(shop.url) as running:
        running.execute("INSERT INTO orders VALUES (1)")
        with pytest.raises(ConnectorError, match="transaction"):
            shop.cdc(timeout=0.5).splits(1)
    assert shop.cdc(timeout=30).splits(1)


def test_a_transaction_that_is_open_while_the_snapshot_is_read_comes_by_the_stream(
    shop: ChangedDatabase, context: Callable[..., Any]
) -> None:
    shop.run("CREATE TABLE orders (id bigint PRIMARY KEY)", "INSERT INTO orders VALUES (1)")
    splits = shop.cdc().splits(1)
    with psycopg.connect(shop.url) as running:
        running.execute("INSERT INTO orders VALUES (2)")
        shop.run("INSERT INTO orders VALUES (3)")
        job = CdcJob(shop.cdc(), context, splits)
        assert numbers(job.read(2)) == [1, 3]
    shop.run("INSERT INTO orders VALUES (4)")
    assert numbers(job.read(2)) == [2, 4]
    job.close()


def test_a_transaction_between_two_parts_of_a_snapshot_is_new_for_the_first_one_alone(
    shop: ChangedDatabase, context: Callable[..., Any]
) -> None:
    shop.run(
        "CREATE TABLE orders (id bigint PRIMARY KEY, item text)",
        "INSERT INTO orders SELECT n, 'old' FROM generate_series(1, 40) AS n",
    )
    splits = shop.cdc().splits(1)
    with psycopg.connect(shop.url) as running:
        running.execute("UPDATE orders SET item = 'new' WHERE id IN (1, 40)")
        shop.run("INSERT INTO orders VALUES (50, 'old')")
        job = CdcJob(shop.cdc(), context, splits, poll_rows=3)
        found = job.read(5)
        saved = job.checkpoint()
        job.close()
    job = CdcJob(shop.cdc(), context, saved, attempt=2)
    found += job.read(42 - len(found))
    shop.run("INSERT INTO orders VALUES (60, 'last')")
    found += job.read(1)
    job.close()
    assert numbers(found) == [*range(1, 41), 50, 1, 60]
    assert [record["item"] for record in found if record["id"] in (1, 40)] == ["old", "new", "new"]


def test_without_a_snapshot_an_old_slot_gives_what_it_has_and_a_new_one_what_comes(
    shop: ChangedDatabase, context: Callable[..., Any]
) -> None:
    shop.run("CREATE TABLE orders (id bigint PRIMARY KEY)", "INSERT INTO orders VALUES (1)")
    shop.make_slot()
    shop.run("INSERT INTO orders VALUES (2)")
    old = CdcJob(shop.cdc(snapshot=False), context)
    assert numbers(old.read(1)) == [2]
    old.close()
    new = ChangedDatabase.cdc(shop, snapshot=False, slot=f"{shop.slot}_new")
    job = CdcJob(new, context)
    shop.run("INSERT INTO orders VALUES (3)")
    assert numbers(job.read(1)) == [3]
    job.close()
    shop.drop_slot(f"{shop.slot}_new")


# -- changes ----------------------------------------------------------------------------------------------


def test_a_change_has_what_the_replica_identity_sends(
    shop: ChangedDatabase, context: Callable[..., Any]
) -> None:
    shop.run(
        "CREATE TABLE full_rows (id bigint PRIMARY KEY, item text)",
        "ALTER TABLE full_rows REPLICA IDENTITY FULL",
        "CREATE TABLE key_only (id bigint PRIMARY KEY, item text)",
    )
    job = CdcJob(shop.cdc("full_rows", "key_only", snapshot=False), context)
    for table in ("full_rows", "key_only"):
        shop.run(
            f"INSERT INTO {table} VALUES (1, 'tea')",
            f"UPDATE {table} SET item = 'jam'",
            f"UPDATE {table} SET id = 2",
            f"DELETE FROM {table}",
        )
    records = job.read(11)
    job.close()
    tables = {record.pop("_table") for record in records[:6]}
    assert tables == {"public.full_rows"}
    assert records[:6] == [
        {"id": 1, "item": "tea", "_change_type": "insert"},
        {"id": 1, "item": "tea", "_change_type": "update_preimage"},
        {"id": 1, "item": "jam", "_change_type": "update_postimage"},
        {"id": 1, "item": "jam", "_change_type": "update_preimage"},
        {"id": 2, "item": "jam", "_change_type": "update_postimage"},
        {"id": 2, "item": "jam", "_change_type": "delete"},
    ]
    named = {"_table": "public.key_only"}
    assert records[6:] == [
        {"id": 1, "item": "tea", "_change_type": "insert"} | named,
        {"id": 1, "item": "jam", "_change_type": "update_postimage"} | named,
        {"id": 1, "_change_type": "update_preimage"} | named,
        {"id": 2, "item": "jam", "_change_type": "update_postimage"} | named,
        {"id": 2, "_change_type": "delete"} | named,
    ]


def test_transactions_come_whole_in_the_order_of_their_commits(
    shop: ChangedDatabase, context: Callable[..., Any]
) -> None:
    shop.run("CREATE TABLE orders (id bigint PRIMARY KEY)")
    source = shop.cdc(snapshot=False, metadata=["_commit_lsn", "_commit_timestamp"])
    job = CdcJob(source, context)
    with psycopg.connect(shop.url) as one, psycopg.connect(shop.url) as two:
        for number in range(3):
            one.execute(f"INSERT INTO orders VALUES ({number})")
            two.execute(f"INSERT INTO orders VALUES (1{number})")
        with one.transaction(force_rollback=True):
            one.execute("INSERT INTO orders VALUES (99)")
        two.commit()
        one.commit()
    records = job.read(6)
    job.close()
    assert numbers(records) == [10, 11, 12, 0, 1, 2]
    commits = [(record["_commit_lsn"], record["_commit_timestamp"]) for record in records]
    assert len(set(commits)) == 2
    assert commits == sorted(commits)
    ((now,),) = shop.run("SELECT (extract(epoch FROM now()) * 1000000)::int8")
    assert now - 600_000_000 < commits[0][1] <= now


def test_a_job_continues_in_the_midst_of_a_transaction(
    shop: ChangedDatabase, context: Callable[..., Any]
) -> None:
    shop.run("CREATE TABLE orders (id bigint PRIMARY KEY)", "CREATE TABLE others (id bigint PRIMARY KEY)")
    splits = shop.cdc(snapshot=False).splits(1)
    shop.run(
        "BEGIN",
        "INSERT INTO orders SELECT * FROM generate_series(1, 20)",
        "INSERT INTO others VALUES (1), (2)",
        "INSERT INTO orders SELECT * FROM generate_series(21, 40)",
        "COMMIT",
        "INSERT INTO orders VALUES (41)",
    )
    found: list[Any] = []
    attempt = 0
    while len(found) < 41:
        attempt += 1
        job = CdcJob(shop.cdc(snapshot=False), context, splits, attempt=attempt, poll_rows=7)
        found += job.read(8)
        splits = job.checkpoint()
        job.close()
    assert attempt > 2
    assert numbers(found) == list(range(1, 42))


def test_values_are_those_of_sql_source(shop: ChangedDatabase, context: Callable[..., Any]) -> None:
    columns = {
        "small": ("smallint", "-7"),
        "real": ("float4", "0.1"),
        "double": ("float8", "'NaN'"),
        "exact": ("numeric(12, 3)", "12.345"),
        "any_number": ("numeric", "1.50"),
        "flag": ("boolean", "true"),
        "note": ("text", "E'a\\n\"b\", c\\\\'"),
        "empty": ("text", "''"),
        "nothing": ("text", "NULL"),
        "fixed": ("char(5)", "'ab'"),
        "bytes": ("bytea", "'\\x00ff'"),
        "day": ("date", "'2026-11-30'"),
        "clock": ("time", "'12:30:00.5'"),
        "moment": ("timestamptz", "'2026-11-30 12:00:00.123456+02'"),
        "local": ("timestamp", "'2026-11-30 12:00:00'"),
        "id_text": ("uuid", "md5('x')::uuid"),
        "document": ("jsonb", "'{\"a\": [1, null]}'"),
        "list": ("int[]", "'{1,2,NULL}'"),
        "span": ("interval", "'1 day 2 hours'"),
        "limited": ("positive", "5"),
        "mood": ("mood", "'ok'"),
        "short": ("varchar(3)", "'ü'"),
        "plain": ("json", '\'{"b": 1,  "a": 2}\''),
        "address": ("inet", "'10.0.0.1/8'"),
        "texts": ("text[]", "ARRAY['a\"b', NULL, '', 'c,d']"),
        "range": ("int4range", "'[1,5)'"),
        "bits": ("bit(3)", "B'101'"),
        "zoned": ("timetz", "'12:30+02'"),
        "money": ("money", "12.5"),
        "object": ("oid", "4000000000"),
        "infinite": ("float8", "'-Infinity'"),
        "ancient": ("timestamp", "'0044-03-15 10:00:00'"),
    }
    declared = ", ".join(f"{name} {kind}" for name, (kind, _) in columns.items())
    values = ", ".join(value for _, value in columns.values())
    shop.run(
        "CREATE DOMAIN positive AS numeric(5, 1) CHECK (VALUE > 0)",
        "CREATE TYPE mood AS ENUM ('ok')",
        f"CREATE TABLE orders (id bigint PRIMARY KEY, {declared})",
        f"INSERT INTO orders VALUES (1, {values})",
    )
    job = CdcJob(shop.cdc(), context)
    found = job.read(1)
    shop.run(f"INSERT INTO orders VALUES (2, {values})")
    found += job.read(1)
    job.close()
    expected = read_all(SqlSource(shop.url, "SELECT * FROM orders", by=["id"]), context)
    assert repr([{**row, "_change_type": "insert"} for row in expected]) == repr(
        found
    )  # NaN differs from NaN


@pytest.mark.parametrize("phase", ["snapshot", "stream"])
def test_a_batch_of_large_rows_has_few_of_them(
    shop: ChangedDatabase, context: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    monkeypatch.setattr(receiver, "_MOST_BYTES", 100_000)
    shop.run("CREATE TABLE orders (id bigint PRIMARY KEY, item text)")
    insert = "INSERT INTO orders SELECT n, repeat('x', 10000) FROM generate_series(1, 200) n"
    shop.run(insert if phase == "snapshot" else "INSERT INTO orders VALUES (0, '')")
    job = CdcJob(shop.cdc(), context)
    if phase == "stream":
        job.batches(1)
        shop.run(insert)
    batches = job.batches(200)
    job.close()
    sizes = [len(batch) for batch in batches if len(batch)]
    assert sum(sizes) == 200
    # The size of the rows of the first page is not known.
    assert max(sizes[1:] if phase == "snapshot" else sizes) <= 12


def test_arrow_batches_have_all_columns(shop: ChangedDatabase, context: Callable[..., Any]) -> None:
    shop.run("CREATE TABLE orders (id bigint PRIMARY KEY, item text)", "INSERT INTO orders VALUES (1, 'tea')")
    source = shop.cdc(batch_format="arrow", metadata=["_commit_timestamp"])
    with pytest.raises(ConnectorError, match="REPLICA IDENTITY FULL"):
        source.splits(1)
    shop.run("ALTER TABLE orders REPLICA IDENTITY FULL")
    job = CdcJob(source, context)
    batches = job.batches(1)
    shop.run("UPDATE orders SET item = NULL", "DELETE FROM orders")
    batches += job.batches(3)
    job.close()
    table = pa.Table.from_batches([batch.batch for batch in batches if isinstance(batch, ArrowBatch)])
    assert table.schema.field("_commit_timestamp").type == pa.timestamp("us", "UTC")
    assert table["item"].to_pylist() == ["tea", "tea", None, None]


def test_the_graph_knows_that_records_are_changes(shop: ChangedDatabase) -> None:
    env = StreamEnvironment("count")
    changes = env.from_source("orders", shop.cdc())
    with pytest.raises(GraphError, match="would treat a deletion as a row"):
        changes.key_by("id").aggregate("count", n=Count())
    with pytest.raises(GraphError, match="change_kind='_change_type'"):
        changes.sink("copy", SqlSink(shop.url, "copy", key=["id"]))
    changes.sink("right", SqlSink(shop.url, "copy", key=["id"], change_kind="_change_type"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"slot": "My-Slot"}, "slot='My-Slot' is not allowed"),
        ({"tables": ()}, "give one or more names"),
        ({"tables": "a.b.c"}, "give names of tables"),
        ({"metadata": ["_lsn"]}, "_commit_lsn"),
        ({"batch_format": "arrow", "tables": ["a", "b"]}, "takes one table"),
        ({"on_truncate": "ignore"}, "on_truncate"),
        ({"url": "sqlite:///shop.db"}, "reads PostgreSQL"),
        ({"page_rows": 0}, "page_rows=0"),
    ],
)
def test_a_setting_that_is_not_allowed_is_refused(settings: dict[str, Any], message: str) -> None:
    given = {"url": "postgresql://localhost/x", "tables": "orders", "slot": "s", "publication": "p"}
    with pytest.raises(ConfigurationError, match=message):
        PostgresCdcSource(**{**given, **settings})
