"""`SqlSink`: what it puts into tables, what it refuses, and what is left when attempts die."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from serving.postgres import PASSWORD, PostgresServer, postgres_server
from sql_jobs import Job, Shop, postgres_shop, sqlite_shop

from penstock.runtime.errors import BadRecordError, ConfigurationError, ConnectorError, LostOutputError
from penstock.runtime.io.connectors.sql.committer import SqlCommit
from penstock.runtime.io.connectors.sql.connections import open_database
from penstock.runtime.io.connectors.sql.database import Stage
from penstock.runtime.operators.last_commit import LastCommit
from penstock.sql import SqlSink


@pytest.fixture(params=["sqlite", "postgres"])
def shop(request: pytest.FixtureRequest, folder: Path) -> Shop:
    if request.param == "sqlite":
        return sqlite_shop(folder)
    return postgres_shop(request.getfixturevalue("postgres"))


@pytest.fixture
def job_of(context: Callable[..., Any]) -> Iterator[Callable[..., Job]]:
    jobs: list[Job] = []

    def make(shop: Shop, table: str, *, attempt: int = 1, **settings: Any) -> Job:
        jobs.append(Job(SqlSink(shop.url, table, **settings), context, attempt=attempt))
        return jobs[-1]

    yield make
    for job in jobs:
        job.close()


def orders(shop: Shop) -> list[Any]:
    return sorted(shop.run("SELECT id, item FROM orders"))


def with_orders(shop: Shop) -> None:
    shop.run("CREATE TABLE orders (id INTEGER PRIMARY KEY, item VARCHAR(9) NOT NULL, CHECK (id < 1000))")


def staged(shop: Shop) -> list[Any]:
    if shop.is_sqlite:
        return shop.run("SELECT name FROM sqlite_master WHERE name GLOB '_penstock_*_*'")
    return shop.run(
        "SELECT relname FROM pg_class WHERE relname LIKE '\\_penstock\\_%\\_%\\_%' AND relkind = 'r'"
    )


def test_the_last_record_of_a_key_wins_within_and_across_checkpoints(
    shop: Shop, job_of: Callable[..., Job]
) -> None:
    with_orders(shop)
    job = job_of(shop, "orders", key=["id"], stage_rows=3)
    job.write({"id": 1, "item": "tea"}, {"id": 2, "item": "jam"}, {"id": 1, "item": "milk"})
    job.write({"id": 3, "item": "salt"}, {"id": 2, "item": "bread"})
    assert orders(shop) == []
    job.checkpoint()
    assert orders(shop) == [(1, "milk"), (2, "bread"), (3, "salt")]
    job.write_columns({"id": [3, 4, 3], "item": ["oil", "rice", "corn"]})
    job.checkpoint()
    assert orders(shop) == [(1, "milk"), (2, "bread"), (3, "corn"), (4, "rice")]
    assert staged(shop) == []


def test_changes_are_applied_in_their_order(shop: Shop, job_of: Callable[..., Job]) -> None:
    with_orders(shop)
    job = job_of(shop, "orders", key=["id"], change_kind="change")
    job.write(
        {"id": 1, "item": "tea", "change": "insert"},
        {"id": 2, "item": "jam", "change": "insert"},
        {"id": 1, "item": "tea", "change": "update_preimage"},
        {"id": 1, "item": "milk", "change": "update_postimage"},
    )
    job.write({"id": 3, "item": "oil", "change": "insert"}, {"id": 3, "item": "oil", "change": "delete"})
    job.checkpoint()
    assert orders(shop) == [(1, "milk"), (2, "jam")]
    job.write({"id": 2, "change": "delete"})  # a delete needs only the key
    job.write_columns({"id": [1, 4], "item": ["milk", "rice"], "change": ["delete", "insert"]})
    job.checkpoint()
    assert orders(shop) == [(4, "rice")]


def test_a_record_sets_only_its_own_columns(shop: Shop, job_of: Callable[..., Job]) -> None:
    shop.run("CREATE TABLE prices (id INTEGER PRIMARY KEY, low INTEGER DEFAULT 7, high INTEGER)")
    job = job_of(shop, "prices", key=["id"])
    job.write({"id": 1, "low": 1, "high": 9}, {"id": 2, "high": 8}, {"id": 1, "high": 10})
    job.checkpoint()
    assert sorted(shop.run("SELECT * FROM prices")) == [(1, 1, 10), (2, 7, 8)]
    filled = job_of(shop, "prices", key=["id"], columns=["low", "high"], attempt=2)
    filled.write({"id": 1, "high": 11})
    filled.checkpoint()
    assert sorted(shop.run("SELECT * FROM prices"))[0] == (1, None, 11)


@pytest.mark.parametrize(
    "row",
    [
        {"id": 1_000, "item": "against a CHECK"},
        {"id": 1, "item": None},
        {"id": 1},
        {"id": 1, "item": "tea", "itm": "tea"},
        {"id": None, "item": "tea"},
    ],
)
def test_a_record_that_the_table_would_refuse_is_refused_before_the_checkpoint(
    shop: Shop, job_of: Callable[..., Job], row: dict[str, Any]
) -> None:
    shop.run("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT NOT NULL, CHECK (id < 1000))")
    job = job_of(shop, "orders", key=["id"])
    job.write({"id": 7, "item": "tea"})
    job.checkpoint()

    def pre_commit() -> None:
        job.write(row)
        job.pre_commit()

    with pytest.raises(BadRecordError):
        pre_commit()
    assert orders(shop) == [(7, "tea")]
    assert staged(shop) == []


def test_an_unknown_kind_of_change_is_refused(shop: Shop, job_of: Callable[..., Job]) -> None:
    with_orders(shop)
    job = job_of(shop, "orders", key=["id"], change_kind="change")
    with pytest.raises(
        BadRecordError, match="'upsert' in 'change' is not a kind of change: use one of 'insert'"
    ):
        job.write({"id": 1, "item": "tea", "change": "upsert"})


def test_keys_that_only_the_database_calls_equal_are_one_row(
    postgres: PostgresServer, job_of: Callable[..., Job]
) -> None:
    shop = postgres_shop(postgres)
    shop.run("CREATE TABLE prices (code char(3) PRIMARY KEY, price numeric)")
    job = job_of(shop, "prices", key=["code"])
    job.write({"code": "a", "price": Decimal("1.50")}, {"code": "a ", "price": Decimal("2.50")})
    job.checkpoint()
    assert shop.run("SELECT code, price FROM prices") == [("a  ", Decimal("2.50"))]


def test_a_fraction_is_not_cut_off(postgres: PostgresServer, job_of: Callable[..., Job]) -> None:
    shop = postgres_shop(postgres)
    with_orders(shop)
    job = job_of(shop, "orders", key=["id"])
    with pytest.raises(BadRecordError, match=r"column 'id' is integer: 1.5 would be truncated; the record"):
        job.write({"id": 1, "item": "tea"}, {"id": 1.5, "item": "jam"})


def test_a_table_that_does_not_fit_is_refused_when_the_job_starts(shop: Shop) -> None:
    shop.run("CREATE TABLE plain (id INTEGER)")
    with pytest.raises(ConnectorError, match="has no table orders: create it"):
        SqlSink(shop.url, "orders").prepare_destination("job-1")
    with pytest.raises(ConnectorError, match=r"no unique index on \(id\)"):
        SqlSink(shop.url, "plain", key=["id"]).prepare_destination("job-1")
    with pytest.raises(ConnectorError, match="has no column 'ids' of key=; did you mean 'id'"):
        SqlSink(shop.url, "plain", key=["ids"]).prepare_destination("job-1")


def test_a_commit_that_was_made_is_not_repeated_even_by_two_at_a_time(
    shop: Shop, job_of: Callable[..., Job]
) -> None:
    shop.run("CREATE TABLE orders (id INTEGER, item TEXT)")
    job = job_of(shop, "orders")
    job.write({"id": 1, "item": "tea"})
    committables = job.pre_commit()
    others = [job_of(shop, "orders") for _ in range(3)]
    for other in others:
        other.committer._opened()
    threads = [threading.Thread(target=each.commit, args=[committables]) for each in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    job.commit(committables)
    assert orders(shop) == [(1, "tea")]


def test_the_last_commit_is_reported_with_its_rows_and_a_repeated_one_is_not(
    shop: Shop, job_of: Callable[..., Job]
) -> None:
    with_orders(shop)
    job = job_of(shop, "orders")
    job.write({"id": 1, "item": "tea"}, {"id": 2, "item": "jam"})
    committables = job.pre_commit()
    assert job.committer.last_commit() is None
    job.commit(committables)
    assert job.committer.last_commit() == LastCommit(rows=2)
    job.commit(committables)
    assert job.committer.last_commit() is None


def test_an_older_savepoint_commits_new_rows_though_its_numbers_were_used(
    shop: Shop, job_of: Callable[..., Job]
) -> None:
    shop.run("CREATE TABLE orders (id INTEGER, item TEXT)")
    first = job_of(shop, "orders")
    for number in (1, 2, 3):
        first.write({"id": number, "item": "tea"})
        first.checkpoint()
    again = job_of(shop, "orders", attempt=2)
    again.write({"id": 4, "item": "jam"})
    again.checkpoint()
    assert [number for number, _ in orders(shop)] == [1, 2, 3, 4]


def test_a_staged_table_that_is_gone_is_an_error(shop: Shop, job_of: Callable[..., Job]) -> None:
    shop.run("CREATE TABLE orders (id INTEGER, item TEXT)")
    job = job_of(shop, "orders")
    job.write({"id": 1, "item": "tea"})
    committables = job.pre_commit()
    ((name,),) = staged(shop)
    shop.run(f"DROP TABLE {name}")
    with pytest.raises(
        LostOutputError, match=rf"{name} is gone, so 1 rows of a completed checkpoint are lost"
    ):
        job.commit(committables)


def test_the_next_attempt_drops_what_no_checkpoint_covers(shop: Shop, job_of: Callable[..., Job]) -> None:
    shop.run("CREATE TABLE orders (id INTEGER, item TEXT)")
    dead = job_of(shop, "orders")
    dead.write({"id": 1, "item": "tea"})
    dead.pre_commit()
    following = job_of(shop, "orders", attempt=2)
    following.write({"id": 2, "item": "jam"})
    following.pre_commit()
    assert len(staged(shop)) == 2
    following.remove_leftovers()
    assert len(staged(shop)) == 1, "its own rows wait for their commit"


def test_a_job_that_has_ended_leaves_only_what_a_snapshot_covers(
    shop: Shop, job_of: Callable[..., Job]
) -> None:
    shop.run("CREATE TABLE orders (id INTEGER, item TEXT)")
    job = job_of(shop, "orders")
    job.write({"id": 1, "item": "tea"})
    covered = job.pre_commit()
    job.write({"id": 2, "item": "jam"})
    job.pre_commit()
    job.sink.remove_uncovered("job-2", "out", [])
    assert len(staged(shop)) == 2, "those of another job stay"
    job.sink.remove_uncovered("job-1", "out", covered)
    assert staged(shop) == [(covered[0].stages[0].name,)]


@pytest.mark.parametrize("name", ["orders", '_penstock_x"; DROP TABLE orders; --', "_penstock_commits"])
def test_a_snapshot_can_name_no_other_table(shop: Shop, job_of: Callable[..., Job], name: str) -> None:
    shop.run("CREATE TABLE orders (id INTEGER, item TEXT)")
    job = job_of(shop, "orders")
    table = job.committer._opened()[1].label
    hostile = SqlCommit("a lineage", 1, table, (Stage(name, ("id",), (), False, False, 1),))
    with pytest.raises(ConnectorError, match="is not a staged table"):
        job.commit([hostile])


def test_a_newer_attempt_ends_the_connections_of_an_older_one(
    postgres: PostgresServer, job_of: Callable[..., Job]
) -> None:
    shop = postgres_shop(postgres)
    shop.run("CREATE TABLE orders (id INTEGER, item TEXT)")
    frozen = job_of(shop, "orders")
    frozen.write({"id": 1, "item": "tea"})
    committables = frozen.pre_commit()
    following = job_of(shop, "orders", attempt=2)
    following.commit(committables)
    frozen.write({"id": 2, "item": "jam"})
    with pytest.raises(ConnectorError, match="can't stage rows"):
        frozen.writer.prepare_commit()
    assert orders(shop) == [(1, "tea")]


def test_a_server_that_hangs_dies_or_restarts_costs_no_row(context: Callable[..., Any]) -> None:
    with postgres_server() as server:
        shop = postgres_shop(server)
        shop.run("CREATE TABLE orders (id INTEGER, item TEXT)")
        sink = SqlSink(shop.url, "orders", timeout=0.5)
        hung = Job(sink, context)
        hung.write({"id": 1, "item": "tea"})
        committables = hung.pre_commit()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("penstock.runtime.io.connectors.sql.postgres._GRACE", 0.1)
            server.pause()
            with pytest.raises(ConnectorError, match=r"gave no answer for 0.6 s to the call: commit"):
                hung.commit(committables)
            server.resume()
        hung.close()
        server.kill()
        refused = Job(sink, context, attempt=2)
        with pytest.raises(ConnectorError, match="refuses the connection") as failure:
            refused.commit(committables)
        assert PASSWORD not in str(failure.value)
        server.start()
        following = Job(sink, context, attempt=3)
        following.commit(committables)
        following.write({"id": 2, "item": "jam"})
        server.kill()
        server.start()
        with pytest.raises(ConnectorError, match="can't stage rows"):
            following.writer.prepare_commit()
        last = Job(sink, context, attempt=4)
        last.commit(committables)
        last.write({"id": 2, "item": "jam"})
        last.checkpoint()
        assert orders(shop) == [(1, "tea"), (2, "jam")]
        last.close()


def test_a_file_that_another_process_has_locked_is_waited_for_and_then_an_error(
    folder: Path, context: Callable[..., Any]
) -> None:
    shop = sqlite_shop(folder)
    shop.run("CREATE TABLE orders (id INTEGER, item TEXT)")
    blocking: Any = open_database(shop.url, 5.0)
    job = Job(SqlSink(shop.url, "orders", timeout=0.05), context)
    job.write({"id": 1, "item": "tea"})
    with blocking._transaction(), pytest.raises(ConnectorError, match=r"can't stage rows .*locked"):
        job.writer.prepare_commit()
    blocking.close()
    job.close()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(SqlSink, "mysql://me@host/shop", "orders"), "give postgresql://"),
        (partial(SqlSink, "sqlite:shop.db", "orders"), "absolute path"),
        (partial(SqlSink, "sqlite:///shop.db", "a.b.c"), "give the name of a table"),
        (partial(SqlSink, "sqlite:///shop.db", "orders", key="id"), "give a list of distinct column names"),
        (partial(SqlSink, "sqlite:///shop.db", "orders", change_kind="change"), "needs key="),
        (partial(SqlSink, "sqlite:///shop.db", "orders", stage_rows=0), "stage_rows=0 is not allowed"),
    ],
)
def test_a_setting_that_is_not_allowed_is_refused(make: Callable[[], SqlSink], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make()
