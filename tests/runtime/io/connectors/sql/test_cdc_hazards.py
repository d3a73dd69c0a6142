"""`PostgresCdcSource`: its errors when changes are lost, have no record, or no longer come."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg
import pytest
from cdc_worlds import CdcJob, ChangedDatabase
from serving.postgres import PASSWORD, PostgresServer, postgres_server

from penstock.runtime.errors import ConnectorError, LostInputError
from penstock.runtime.io.connectors.sql.cdc.receiver import in_thread

ROW = "INSERT INTO orders VALUES "


@pytest.fixture
def shop(postgres: PostgresServer) -> Iterator[ChangedDatabase]:
    world = ChangedDatabase(postgres, snapshot=False)
    world.run("CREATE TABLE orders (id bigint PRIMARY KEY, item text)")
    yield world
    world.cleanup()


def ids(records: Sequence[Any]) -> list[Any]:
    return [record["id"] for record in records]


# -- the server's log -------------------------------------------------------------------------------------


def test_the_slot_moves_only_when_a_completed_checkpoint_covers_its_changes(
    shop: ChangedDatabase, context: Callable[..., Any]
) -> None:
    job = CdcJob(shop.cdc(), context)
    before = shop.confirmed()
    shop.run(f"{ROW} (1)", f"{ROW} (2)")
    assert ids(job.read(2)) == [1, 2]
    end = shop.written()
    job.snapshot()
    # The server has a sign of life that is later than the changes.
    while shop.reported() < end:
        assert job.reader.poll(1000).batch is None
    assert shop.confirmed() == before
    job.poll_until(lambda: shop.confirmed() > before)
    job.close()


def test_the_slot_moves_while_only_other_tables_change(
    shop: ChangedDatabase, context: Callable[..., Any]
) -> None:
    shop.run("CREATE TABLE others (id bigint PRIMARY KEY)")
    job = CdcJob(shop.cdc(), context)
    shop.run("INSERT INTO others SELECT * FROM generate_series(1, 10000)")
    end = shop.written()
    job.poll_until(lambda: shop.confirmed() >= end)
    job.poll_until(lambda: (lag := job.reader.lag()) is not None and lag.bytes == 0)
    job.close()


def test_a_savepoint_that_the_slot_has_passed_is_refused(
    shop: ChangedDatabase, context: Callable[..., Any]
) -> None:
    job = CdcJob(shop.cdc(), context)
    old = job.checkpoint()
    shop.run(f"{ROW} (1)")
    assert ids(job.read(1)) == [1]
    job.poll_until(lambda: shop.confirmed() > old[0].lsn)
    job.close()
    again = CdcJob(shop.cdc(), context, old, attempt=2)
    with pytest.raises(LostInputError, match=r"begins at .* bytes of the log are lost"):
        again.read(1)
    again.close()


@pytest.mark.parametrize("is_again", [False, True], ids=["dropped", "created again"])
def test_a_slot_that_was_dropped_is_refused(
    shop: ChangedDatabase, context: Callable[..., Any], is_again: bool
) -> None:
    job = CdcJob(shop.cdc(), context)
    saved = job.checkpoint()
    job.close()
    shop.cleanup()
    shop.run(f"{ROW} (1)")
    if is_again:
        shop.make_slot()
    job = CdcJob(shop.cdc(), context, saved, attempt=2)
    with pytest.raises(LostInputError, match="begins at" if is_again else "has no slot"):
        job.read(1)
    job.close()


def test_a_slot_that_the_server_has_invalidated_is_refused(context: Callable[..., Any]) -> None:
    with postgres_server(max_slot_wal_keep_size="1MB", max_wal_size="32MB") as server:
        shop = ChangedDatabase(server, snapshot=False)
        shop.run("CREATE TABLE orders (id bigint PRIMARY KEY, item text)")
        job = CdcJob(shop.cdc(), context)
        saved = job.checkpoint()
        job.close()
        for number in range(4):
            shop.run(f"{ROW} ({number})", "SELECT pg_switch_wal()")
        shop.run("CHECKPOINT")
        job = CdcJob(shop.cdc(), context, saved, attempt=2)
        with pytest.raises(LostInputError, match=r"invalidated the slot .* max_slot_wal_keep_size"):
            job.read(1)
        job.close()


def test_another_server_is_refused(shop: ChangedDatabase, context: Callable[..., Any]) -> None:
    from dataclasses import replace

    (split,) = shop.cdc().splits(1)
    job = CdcJob(shop.cdc(), context, [replace(split, system="42")])
    with pytest.raises(LostInputError, match="the restored state is of 42"):
        job.read(1)
    job.close()


# -- before the start -------------------------------------------------------------------------------------


def test_a_server_without_logical_changes_is_refused() -> None:
    with postgres_server(wal_level="replica") as server:
        shop = ChangedDatabase(server)
        with pytest.raises(ConnectorError, match="ALTER SYSTEM SET wal_level = logical"):
            shop.cdc().splits(1)


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        ("DROP PUBLICATION shop", "has no publication 'shop': CREATE PUBLICATION \"shop\" FOR TABLE orders"),
        ("DROP TABLE orders", "has no table orders"),
        (
            "DROP PUBLICATION shop; CREATE PUBLICATION shop",
            'ALTER PUBLICATION "shop" ADD TABLE public.orders',
        ),
        ("DROP PUBLICATION shop; CREATE PUBLICATION shop FOR TABLE orders WHERE (id > 3)", "a row filter"),
        ("ALTER TABLE orders DROP CONSTRAINT orders_pkey", "has no primary key"),
        ("ALTER TABLE orders RENAME item TO _change_type", "has a column '_change_type'"),
    ],
)
def test_a_database_that_lacks_something_is_refused_with_advice(
    shop: ChangedDatabase, prepare: str, message: str
) -> None:
    shop.run(*prepare.split(";"))
    with pytest.raises(ConnectorError, match=re.escape(message)):
        shop.cdc(snapshot=True).splits(1)
    assert not shop.run(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{shop.slot}'")


def test_a_user_without_the_right_to_replicate_is_refused(shop: ChangedDatabase) -> None:
    shop.run(
        f"DROP ROLE IF EXISTS {shop.slot}",
        f"CREATE ROLE {shop.slot} LOGIN PASSWORD '{PASSWORD}'",
        f"GRANT SELECT ON orders TO {shop.slot}",
    )
    shop.url = shop.url.replace("//me:", f"//{shop.slot}:")
    with pytest.raises(ConnectorError, match=f"ALTER ROLE {shop.slot} REPLICATION") as caught:
        shop.cdc().splits(1)
    assert PASSWORD not in str(caught.value)


def test_the_start_warns_about_values_that_updates_may_lack(shop: ChangedDatabase) -> None:
    (warning,) = shop.cdc().splits(1).warnings  # type: ignore[attr-defined]
    assert "an update lacks large values of item" in warning
    shop.run("ALTER TABLE orders REPLICA IDENTITY FULL", "ALTER PUBLICATION shop SET (publish = 'insert')")
    (warning,) = shop.cdc().splits(1).warnings  # type: ignore[attr-defined]
    assert "leaves out update, delete, truncate" in warning


# -- other processes --------------------------------------------------------------------------------------


def test_a_slot_that_another_process_reads_is_waited_for_and_then_refused(
    shop: ChangedDatabase, context: Callable[..., Any]
) -> None:
    splits = shop.cdc().splits(1)
    holder = CdcJob(shop.cdc(), lambda **given: context(job="another", **given), splits)
    shop.run(f"{ROW} (1)")
    assert ids(holder.read(1)) == [1]
    job = CdcJob(shop.cdc(timeout=1), context, splits, attempt=2)
    with pytest.raises(ConnectorError, match=r"is active for PID \d+.*Does another job use the slot"):
        job.read(1)
    job.close()
    waiting = CdcJob(shop.cdc(), context, splits, attempt=3)
    holder.close()
    assert ids(waiting.read(1)) == [1]
    waiting.close()


def test_a_reader_that_ends_during_a_call_closes_no_connection_before_the_end_of_the_call() -> None:
    begun, may_end = threading.Event(), threading.Event()
    steps = []

    def call() -> None:
        begun.set()
        assert may_end.wait(60)
        steps.append("the call has ended")

    async def receive() -> None:
        try:
            await in_thread(call)
        finally:
            steps.append("the connection is closed")

    async def end() -> None:
        receiving = asyncio.create_task(receive())
        await asyncio.to_thread(begun.wait, 60)
        for _ in range(2):  # the fetcher cancels again if a receiver does not end
            receiving.cancel()
            await asyncio.wait([receiving], timeout=0)
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await receiving

    asyncio.run(end())
    assert steps == ["the call has ended", "the connection is closed"]


def test_a_new_attempt_ends_the_connections_of_an_earlier_one(
    shop: ChangedDatabase, context: Callable[..., Any]
) -> None:
    old = CdcJob(shop.cdc(), context)
    shop.run(f"{ROW} (1)")
    assert ids(old.read(1)) == [1]
    new = CdcJob(shop.cdc(), context, old.splits, attempt=2)
    assert ids(new.read(1)) == [1]
    with pytest.raises(ConnectorError, match=r"terminating connection|connection is lost"):
        old.read(1)
    old.close()
    new.close()


@pytest.mark.parametrize("fate", ["killed", "frozen"])
def test_a_server_that_dies_or_hangs_fails_the_attempt(context: Callable[..., Any], fate: str) -> None:
    with postgres_server() as server:
        shop = ChangedDatabase(server, snapshot=False)
        shop.run("CREATE TABLE orders (id bigint PRIMARY KEY)")
        job = CdcJob(shop.cdc(timeout=2), context)
        shop.run(f"{ROW} (1)")
        assert ids(job.read(1)) == [1]
        saved = job.checkpoint()
        if fate == "killed":
            server.kill()
        else:
            server.pause()
        with pytest.raises(ConnectorError):
            job.read(1)
        job.close()
        if fate == "killed":
            server.start()
        else:
            server.resume()
        shop.run(f"{ROW} (2)")
        again = CdcJob(shop.cdc(), context, saved, attempt=2)
        assert ids(again.read(1)) == [2]
        again.close()


# -- tables that are altered ------------------------------------------------------------------------------


def test_a_large_value_that_did_not_change_is_never_null(
    shop: ChangedDatabase, context: Callable[..., Any]
) -> None:
    large = "(SELECT string_agg(md5(n::text), '') FROM generate_series(1, 1000) AS n)"
    shop.run("ALTER TABLE orders ADD price int", f"{ROW} (1, {large}, 5)")
    splits = shop.cdc().splits(1)
    shop.run("UPDATE orders SET price = 6", f"{ROW} (2)")
    job = CdcJob(shop.cdc(), context, splits)
    with pytest.raises(ConnectorError, match=r"lacks the columns \['item'\].*REPLICA IDENTITY FULL"):
        job.read(1)
    job.close()
    job = CdcJob(shop.cdc(on_unchanged="omit"), context, splits, attempt=2)
    assert job.read(2) == [
        {"id": 1, "price": 6, "_change_type": "update_postimage"},
        {"id": 2, "item": None, "price": None, "_change_type": "insert"},
    ]
    shop.run("ALTER TABLE orders REPLICA IDENTITY FULL", "UPDATE orders SET price = 7 WHERE id = 1")
    before, after = job.read(2)
    assert (before["price"], after["price"]) == (6, 7)
    assert before["item"] == after["item"]
    assert len(after["item"]) == 32_000
    job.close()


def test_a_truncate_fails_the_job_unless_it_is_skipped(
    shop: ChangedDatabase, context: Callable[..., Any]
) -> None:
    splits = shop.cdc().splits(1)
    shop.run(f"{ROW} (1)", "TRUNCATE orders", f"{ROW} (2)")
    job = CdcJob(shop.cdc(), context, splits)
    assert ids(job.read(1)) == [1]
    with pytest.raises(ConnectorError, match=r"TRUNCATE.*on_truncate=\"skip\""):
        job.read(1)
    job.close()
    job = CdcJob(shop.cdc(on_truncate="skip"), context, splits, attempt=2)
    assert ids(job.read(2)) == [1, 2]
    job.close()


def test_a_new_column_is_followed(shop: ChangedDatabase, context: Callable[..., Any]) -> None:
    splits = shop.cdc().splits(1)
    shop.run(f"{ROW} (1)", "ALTER TABLE orders ADD price int DEFAULT 3", f"{ROW} (2)")
    job = CdcJob(shop.cdc(), context, splits)
    assert job.read(2) == [
        {"id": 1, "item": None, "_change_type": "insert"},
        {"id": 2, "item": None, "price": 3, "_change_type": "insert"},
    ]
    saved = job.checkpoint()
    job.close()
    shop.run(f"{ROW} (3)")
    job = CdcJob(shop.cdc(), context, saved, attempt=2)
    assert ids(job.read(1)) == [3]
    job.close()


@pytest.mark.parametrize(
    ("alter", "message", "record"),
    [
        ("DROP item", r"the columns \['item'\] were dropped", {"id": 2}),
        ("RENAME item TO name", r"\['item'\] are gone, and \['name'\] are new", {"id": 2, "name": None}),
        ("ALTER item TYPE int USING 0", r"\['item'\] have another type", {"id": 2, "item": None}),
    ],
)
def test_an_altered_column_fails_the_job_unless_it_is_followed(
    shop: ChangedDatabase, context: Callable[..., Any], alter: str, message: str, record: dict[str, Any]
) -> None:
    splits = shop.cdc().splits(1)
    shop.run(f"{ROW} (1)", f"ALTER TABLE orders {alter}", f"{ROW} (2)")
    job = CdcJob(shop.cdc(), context, splits)
    assert ids(job.read(1)) == [1]
    with pytest.raises(ConnectorError, match=message):
        job.read(1)
    job.close()
    job = CdcJob(shop.cdc(on_schema_change="follow"), context, splits, attempt=2)
    assert job.read(2)[1] == {**record, "_change_type": "insert"}
    job.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["DROP TABLE orders"], "was dropped. Take it out"),
        (["DROP TABLE orders", "CREATE TABLE orders (id bigint)", f"{ROW} (3)"], "dropped and created again"),
        (["ALTER TABLE orders RENAME TO purchases"], "was renamed to public.purchases"),
        (["DROP PUBLICATION shop", "CREATE PUBLICATION shop FOR TABLE others"], "no longer has the table"),
    ],
)
def test_a_table_whose_changes_no_longer_come_fails_the_job(
    shop: ChangedDatabase, context: Callable[..., Any], change: Sequence[str], message: str
) -> None:
    shop.run("CREATE TABLE others (id bigint)")
    job = CdcJob(shop.cdc(), context)
    shop.run(f"{ROW} (1)")
    assert ids(job.read(1)) == [1]
    shop.run(f"{ROW} (2)", *change)
    assert ids(job.read(1)) == [2]
    with pytest.raises(ConnectorError, match=message):
        job.read(1)
    job.close()


def test_a_renamed_table_continues_with_its_new_name(
    shop: ChangedDatabase, context: Callable[..., Any]
) -> None:
    splits = shop.cdc(metadata=["_table"]).splits(1)
    shop.run(f"{ROW} (1)", "ALTER TABLE orders RENAME TO purchases", "INSERT INTO purchases VALUES (2)")
    job = CdcJob(shop.cdc("purchases", metadata=["_table"]), context, splits)
    assert [(record["_table"], record["id"]) for record in job.read(2)] == [
        ("public.purchases", 1),
        ("public.purchases", 2),
    ]
    job.close()


def test_a_table_that_was_added_to_a_restored_job_is_refused(
    shop: ChangedDatabase, context: Callable[..., Any]
) -> None:
    splits = shop.cdc().splits(1)
    shop.run("CREATE TABLE others (id bigint PRIMARY KEY)")
    job = CdcJob(shop.cdc("orders", "others"), context, splits)
    with pytest.raises(ConnectorError, match=r"does not know the table public\.others"):
        job.read(1)
    job.close()


def test_the_source_needs_no_more_than_select_and_replication(
    shop: ChangedDatabase, context: Callable[..., Any]
) -> None:
    shop.run(
        f"DROP ROLE IF EXISTS {shop.slot}",
        f"CREATE ROLE {shop.slot} LOGIN REPLICATION PASSWORD '{PASSWORD}'",
        f"GRANT SELECT ON orders TO {shop.slot}",
        f"{ROW} (1)",
    )
    with psycopg.connect(shop.url) as owner:
        owner.execute("SELECT 1")
        shop.url = shop.url.replace("//me:", f"//{shop.slot}:")
        job = CdcJob(shop.cdc(snapshot=True), context)
        assert ids(job.read(1)) == [1]
        owner.execute(f"{ROW} (2)")
    assert ids(job.read(1)) == [2]
    job.close()
