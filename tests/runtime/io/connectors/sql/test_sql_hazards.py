"""Sinks, sources and lookups where databases and their users do what is rarely expected."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, time
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from serving.postgres import PostgresServer
from sql_jobs import Job, Shop, postgres_shop, read_all, rows_in, sqlite_shop

from penstock.runtime.errors import BadRecordError, ConfigurationError, ConnectorError
from penstock.runtime.io.connectors.sql.connections import open_database
from penstock.sql import SqlLookup, SqlSink, SqlSource


@pytest.fixture(params=["sqlite", "postgres"])
def shop(request: pytest.FixtureRequest, folder: Path) -> Shop:
    if request.param == "sqlite":
        return sqlite_shop(folder)
    return postgres_shop(request.getfixturevalue("postgres"))


@pytest.fixture
def server_shop(postgres: PostgresServer) -> Shop:
    return postgres_shop(postgres)


@pytest.fixture
def job_of(context: Callable[..., Any]) -> Iterator[Callable[..., Job]]:
    jobs: list[Job] = []

    def make(shop: Shop, table: str, **settings: Any) -> Job:
        jobs.append(Job(SqlSink(shop.url, table, **settings), context))
        return jobs[-1]

    yield make
    for job in jobs:
        job.close()


def await_locks(watch: psycopg.Connection, count: int) -> None:
    """Wait until this number of connections to the database wait for a lock."""
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    while watch.execute(waiting).rowcount < count:
        pass


# -- sinks ------------------------------------------------------------------------------------------------


def test_deletes_by_key_between_whole_rows_need_no_staged_tables_of_their_own(
    shop: Shop, job_of: Callable[..., Job]
) -> None:
    shop.run("CREATE TABLE orders (id INTEGER PRIMARY KEY, item VARCHAR(9) NOT NULL)")
    job = job_of(shop, "orders", key=["id"], change_kind="change")
    for number in range(5):
        job.write({"id": number, "item": "tea", "change": "insert"})
        job.write({"change": "delete", "id": number - 1})
    (commit,) = job.pre_commit()
    assert len(commit.stages) == 1
    job.commit([commit])
    assert shop.run("SELECT * FROM orders") == [(4, "tea")]


def test_a_delete_by_key_fills_no_column_whose_domain_refuses_null(
    server_shop: Shop, job_of: Callable[..., Job]
) -> None:
    server_shop.run("CREATE DOMAIN name AS TEXT NOT NULL")
    server_shop.run("CREATE TABLE orders (id INTEGER PRIMARY KEY, item public.name)")
    job = job_of(server_shop, "orders", key=["id"], change_kind="change")
    job.write({"id": 1, "item": "tea", "change": "insert"}, {"id": 1, "change": "delete"})
    job.write({"id": 2, "item": "jam", "change": "insert"})
    job.checkpoint()
    assert server_shop.run("SELECT * FROM orders") == [(2, "jam")]


@pytest.mark.parametrize("number", [Decimal("1.5"), Decimal("NaN"), Decimal("Infinity"), 1.5])
def test_a_fraction_is_no_integer(server_shop: Shop, job_of: Callable[..., Job], number: Any) -> None:
    server_shop.run("CREATE TABLE orders (id INTEGER)")
    job = job_of(server_shop, "orders")
    job.write({"id": Decimal("2.0")})
    with pytest.raises(BadRecordError, match="would be truncated"):
        job.write({"id": number})


def test_a_timestamp_is_no_date_in_rows_and_columns(server_shop: Shop, job_of: Callable[..., Job]) -> None:
    server_shop.run("CREATE TABLE days (day DATE)")
    job = job_of(server_shop, "days")
    moment = datetime(2024, 2, 29, 23, 59)  # noqa: DTZ001 (a column without a zone)
    with pytest.raises(BadRecordError, match="would be truncated"):
        job.write({"day": moment})
    with pytest.raises(BadRecordError, match="would lose its time"):
        job.write_columns({"day": [moment]})
    job.write({"day": moment.date()})
    job.checkpoint()
    assert server_shop.run("SELECT * FROM days") == [(moment.date(),)]


def test_a_staged_table_that_a_backup_reads_does_not_hold_up_its_commit(
    server_shop: Shop, job_of: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.runtime.io.connectors.sql.postgres._SHORT", 10)
    server_shop.run("CREATE TABLE orders (id INTEGER)")
    job = job_of(server_shop, "orders")
    job.write({"id": 1})
    commits = job.pre_commit()
    with psycopg.connect(server_shop.url) as backup:
        backup.execute(f"LOCK TABLE {commits[0].stages[0].name} IN ACCESS SHARE MODE")  # type: ignore[call-overload]
        job.commit(commits)
        assert server_shop.run("SELECT * FROM orders") == [(1,)]
    job.write({"id": 2})
    job.checkpoint()
    assert server_shop.run("SELECT * FROM orders") == [(1,), (2,)]
    assert server_shop.run("SELECT 1 FROM pg_class WHERE relname LIKE '\\_penstock\\_%\\_%\\_%'") == []


def test_a_commit_that_is_the_victim_of_a_deadlock_is_repeated(
    server_shop: Shop, job_of: Callable[..., Job]
) -> None:
    server_shop.run("CREATE TABLE stock (id INTEGER PRIMARY KEY, pieces INTEGER)")
    server_shop.run("INSERT INTO stock VALUES (1, 0), (2, 0)")
    server_shop.run(
        "CREATE FUNCTION wait() RETURNS trigger AS "
        "'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NEW; END' LANGUAGE plpgsql"
    )
    server_shop.run(
        "CREATE TRIGGER wait BEFORE INSERT ON stock FOR EACH ROW WHEN (NEW.id = 2) EXECUTE FUNCTION wait()"
    )
    connect = partial(psycopg.connect, server_shop.url, autocommit=True)
    with connect() as other, connect() as gate, connect() as watch:
        other.execute("SET deadlock_timeout = '1h'")  # so the job is the victim
        gate.execute("SELECT pg_advisory_lock(1)")
        job = job_of(server_shop, "stock", key=["id"])
        job.write({"id": 1, "pieces": 5}, {"id": 2, "pieces": 5})
        commits = job.pre_commit()
        job.committer._opened()[0]._run("SET deadlock_timeout = '10ms'")  # type: ignore[attr-defined]
        committing = threading.Thread(target=job.commit, args=[commits])
        other.execute("BEGIN; UPDATE stock SET pieces = 7 WHERE id = 2")
        committing.start()
        await_locks(watch, 1)  # it has locked 1, and waits before 2
        updating = threading.Thread(
            target=other.execute, args=["UPDATE stock SET pieces = 7 WHERE id = 1; COMMIT"]
        )
        updating.start()
        await_locks(watch, 2)
        gate.execute("SELECT pg_advisory_unlock(1)")
        updating.join()
    committing.join()
    assert sorted(server_shop.run("SELECT * FROM stock")) == [(1, 5), (2, 5)]


def test_names_may_have_any_character(server_shop: Shop, job_of: Callable[..., Job]) -> None:
    server_shop.run('CREATE SCHEMA "50% off"')
    server_shop.run('CREATE TABLE "50% off"."a%s {}""q" (id INTEGER PRIMARY KEY, "x%s {}""" TEXT)')
    job = job_of(server_shop, '50% off.a%s {}"q', key=["id"])
    job.write({"id": 1, 'x%s {}"': "tea"})
    job.checkpoint()
    job.remove_leftovers()
    assert server_shop.run('SELECT * FROM "50% off"."a%s {}""q"') == [(1, "tea")]


def test_a_condition_of_the_whole_row_is_left_to_the_table(
    server_shop: Shop, job_of: Callable[..., Job]
) -> None:
    server_shop.run("CREATE TABLE orders (id INTEGER, item TEXT, CHECK (orders IS NOT NULL))")
    job = job_of(server_shop, "orders")
    job.write({"id": 1, "item": "tea"})
    job.checkpoint()
    assert server_shop.run("SELECT * FROM orders") == [(1, "tea")]


def test_values_of_special_types_come_back_as_they_went(
    server_shop: Shop, context: Callable[..., Any], job_of: Callable[..., Job]
) -> None:
    server_shop.run(
        "CREATE TABLE things (id INTEGER PRIMARY KEY, size FLOAT8, price NUMERIC, at TIMESTAMPTZ, "
        "daily TIME, data BYTEA, about JSONB, tags TEXT[])"
    )
    row = {
        "id": 1,
        "size": float("-inf"),
        "price": Decimal("NaN"),
        "at": datetime(2024, 2, 29, 23, 59, 59, 5, UTC),
        "daily": time(1, 2, 3, 500_000),
        "data": b"\x00\\x",
        "about": {"a": [None]},
        "tags": ['"\\', "NULL", ""],
    }
    job = job_of(server_shop, "things", key=["id"])
    job.write(row)
    job.checkpoint()
    text = {"price": "NaN", "about": '{"a": [null]}', "tags": '{"\\"\\\\","NULL",""}'}
    assert read_all(SqlSource(server_shop.url, "SELECT * FROM things", by=["id"]), context) == [row | text]


def test_values_of_a_strict_table_of_sqlite_are_not_converted(
    folder: Path, job_of: Callable[..., Job]
) -> None:
    shop = sqlite_shop(folder)
    shop.run("CREATE TABLE codes (id INTEGER PRIMARY KEY, code ANY) STRICT")
    job = job_of(shop, "codes", key=["id"])
    job.write({"id": 1, "code": "007"})
    job.checkpoint()
    assert shop.run("SELECT code FROM codes") == [("007",)]


def test_a_collation_is_found_though_the_case_of_the_table_differs(
    folder: Path, job_of: Callable[..., Job]
) -> None:
    shop = sqlite_shop(folder)
    shop.run("CREATE TABLE codes (code TEXT COLLATE NOCASE PRIMARY KEY)")
    job = job_of(shop, "CODES", key=["code"], change_kind="change")
    job.write({"code": "a", "change": "insert"}, {"code": "A", "change": "delete"})
    with pytest.raises(ConnectorError, match="has a COLLATE"):
        job.pre_commit()


def test_a_text_that_is_no_unicode_is_a_bad_record(shop: Shop, job_of: Callable[..., Job]) -> None:
    shop.run("CREATE TABLE notes (note TEXT)")
    job = job_of(shop, "notes")

    def pre_commit() -> None:
        job.write({"note": "\ud800"})
        job.pre_commit()

    with pytest.raises(BadRecordError, match="surrogates not allowed"):
        pre_commit()


def test_sqlite_writes_to_the_disk_before_it_answers(folder: Path) -> None:
    database: Any = open_database(sqlite_shop(folder).url, 1.0)
    assert database._run("PRAGMA synchronous") == [(3,)]
    database.close()


@pytest.mark.parametrize("password", ["q7x%zz", "a@q7x", "a/q7x", "a@q7x/b", "a?b@q7x", "[q7x", "a#q7x"])
def test_a_password_that_is_not_encoded_is_refused_or_read_and_never_shown(password: str) -> None:
    with pytest.raises((ConfigurationError, ConnectorError)) as failure:
        SqlSink(f"postgresql://me:{password}@127.0.0.1:1/shop", "orders").prepare_destination("job-1")
    assert "q7x" not in str(failure.value)
    assert failure.value.__cause__ is None


def test_a_url_with_an_unknown_parameter_is_a_wrong_setting() -> None:
    sink = SqlSink("postgresql://me:q7x@127.0.0.1:1/shop?colour=red", "orders")
    with pytest.raises(ConfigurationError, match=r'invalid URI query parameter: "colour"'):
        sink.prepare_destination("job-1")


# -- sources ----------------------------------------------------------------------------------------------


def test_with_settle_a_row_that_is_committed_late_is_read_though_the_source_had_just_started(
    shop: Shop, context: Callable[..., Any], clock: Any
) -> None:
    shop.run("CREATE TABLE orders (id INTEGER)")
    shop.run("INSERT INTO orders VALUES (8)")
    source = SqlSource(shop.url, "SELECT * FROM orders", by=["id"], watch=1, settle=3)
    reader = source.reader(context(), source.splits(1))
    assert reader.poll(100).ready_at == clock.time + 3
    shop.run("INSERT INTO orders VALUES (7)")  # it was taken before 8
    clock.time += 3
    while not (polled := reader.poll(100)).batch:
        pass
    assert rows_in(polled.batch) == [{"id": 7}, {"id": 8}]
    reader.close()


def test_a_null_in_the_midst_of_a_page_is_an_error(
    shop: Shop, context: Callable[..., Any], clock: Any
) -> None:
    shop.run("CREATE TABLE orders (day INTEGER, id INTEGER)")
    source = SqlSource(shop.url, "SELECT * FROM orders", by=["day", "id"], watch=1)
    reader = source.reader(context(), source.splits(1))
    shop.run("INSERT INTO orders VALUES (0, 1), (1, 1), (1, NULL), (2, 2)")

    def read() -> None:
        while not reader.poll(100).batch:
            pass

    with pytest.raises(ConnectorError, match="is null in a row"):
        read()
    reader.close()


def test_a_null_that_comes_later_does_not_stop_a_source_that_settles(
    server_shop: Shop, context: Callable[..., Any], clock: Any
) -> None:
    server_shop.run("CREATE TABLE orders (id INTEGER)")
    source = SqlSource(server_shop.url, "SELECT * FROM orders", by=["id"], watch=1, settle=3)
    reader = source.reader(context(), source.splits(1))
    server_shop.run("INSERT INTO orders VALUES (1), (NULL)")

    def read() -> None:
        while not (polled := reader.poll(100)).batch and polled.ready_at in (None, clock.time):
            pass

    with pytest.raises(ConnectorError, match="is null in a row"):
        read()
    reader.close()


def test_a_query_may_end_with_a_comment(shop: Shop, context: Callable[..., Any]) -> None:
    shop.run("CREATE TABLE orders (id INTEGER)")
    shop.run("INSERT INTO orders VALUES (1)")
    query = "SELECT id FROM orders -- all of them"
    assert read_all(SqlSource(shop.url, query, by=["id"]), context) == [{"id": 1}]
    assert SqlLookup(shop.url, query, key=["id"])(1) == {"id": 1}


def test_a_position_keeps_all_digits_whatever_the_database_shows(
    server_shop: Shop, context: Callable[..., Any]
) -> None:
    server_shop.run("CREATE TABLE sizes (size FLOAT8)")
    server_shop.run("INSERT INTO sizes VALUES (0.1::FLOAT8 + 0.2::FLOAT8), (1)")
    server_shop.run(f"ALTER DATABASE {server_shop.url.rpartition('/')[2]} SET extra_float_digits = 0")
    source = SqlSource(server_shop.url, "SELECT * FROM sizes", by=["size"], page_rows=1)
    reader = source.reader(context(), source.splits(1))
    found: list[Any] = []
    while len(found) < 2:
        found += rows_in(reader.poll(100).batch)
    reader.close()
    assert [row["size"] for row in found] == [0.1 + 0.2, 1.0]


# -- lookups ----------------------------------------------------------------------------------------------


def test_a_lookup_connects_again_after_a_failure(server_shop: Shop) -> None:
    server_shop.run("CREATE TABLE orders (id INTEGER)")
    server_shop.run("INSERT INTO orders VALUES (1)")
    lookup = SqlLookup(server_shop.url, "SELECT id FROM orders", key=["id"])
    assert lookup(1) == {"id": 1}
    database = server_shop.url.rpartition("/")[2]
    server_shop.run(
        f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{database}' "
        "AND pid <> pg_backend_pid()"
    )
    with pytest.raises(ConnectorError, match="can't look up"):
        lookup(1)
    assert lookup(1) == {"id": 1}


def test_a_number_that_sqlite_does_not_have_is_an_error_of_the_lookup(folder: Path) -> None:
    shop = sqlite_shop(folder)
    shop.run("CREATE TABLE orders (id INTEGER)")
    with pytest.raises(ConnectorError, match="can't look up: Python int too large"):
        SqlLookup(shop.url, "SELECT id FROM orders", key=["id"])(1 << 70)
