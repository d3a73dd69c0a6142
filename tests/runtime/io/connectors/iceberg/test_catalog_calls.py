"""Calls to a catalog that hangs, refuses or is not reached: bounded in time, and errors without secrets."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest
from iceberg_jobs import SCHEMA, TABLE, TableWorld, catalog_in, in_order, numbers
from pyiceberg.catalog.sql import SqlCatalog, SqlCatalogBaseTable

from penstock.iceberg import IcebergSink, IcebergSource
from penstock.runtime.errors import ConnectorError, OperatorError
from penstock.runtime.io.connectors.iceberg.catalogs import TableClient
from penstock.runtime.operators.committed_sink import StagingOperator
from penstock.runtime.testing.harness import OperatorHarness


@pytest.fixture
def silent_catalog() -> Iterator[dict[str, str]]:
    """A REST catalog that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        yield {"type": "rest", "uri": f"http://127.0.0.1:{port}", "token": "secret-token"}


def test_a_catalog_that_hangs_fails_the_writer_in_time(silent_catalog: dict[str, str]) -> None:
    sink = IcebergSink(TABLE, SCHEMA, catalog=silent_catalog, catalog_timeout=0.05)
    with pytest.raises(
        OperatorError, match=r"did not answer within 0\.05 s \(load the table\).*raise catalog_timeout"
    ):
        OperatorHarness(StagingOperator(sink))


def test_a_catalog_that_hangs_fails_the_source_in_time(silent_catalog: dict[str, str]) -> None:
    with pytest.raises(ConnectorError, match=r"did not answer within 0\.05 s"):
        IcebergSource(TABLE, catalog=silent_catalog, catalog_timeout=0.05).splits(1)


def test_two_processes_may_create_the_tables_of_a_new_catalog_at_the_same_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = SqlCatalogBaseTable.metadata
    create = tables.create_all

    def create_second(engine: Any, **options: Any) -> None:
        monkeypatch.undo()
        create(engine)  # the other process, after this one has looked for them
        create(engine, checkfirst=False)

    monkeypatch.setattr(tables, "create_all", create_second)
    TableWorld(folder).sink().prepare_destination("job-1")
    assert (folder / "catalog.db").exists()


def test_two_processes_may_create_the_namespace_of_a_table_at_the_same_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def create_second(catalog: SqlCatalog, namespace: str) -> bool:
        monkeypatch.undo()
        catalog.create_namespace(namespace)  # the other process, after this one has looked for it
        return False

    monkeypatch.setattr(SqlCatalog, "namespace_exists", create_second)
    client = TableClient("new.orders", "default", catalog_in(folder), 60.0)
    assert client.make(pa.schema({"n": pa.int64()}), (), {}).name() == ("new", "orders")
    client.close()


def test_a_catalog_that_never_opens_is_named(folder: Path) -> None:
    missing = {**catalog_in(folder / "missing"), "warehouse": f"file://{folder}"}
    with pytest.raises(ConnectorError, match=r"failed to load the table: OperationalError.*Check catalog="):
        IcebergSource(TABLE, catalog=missing).splits(1)


def test_a_commit_that_takes_effect_after_its_timeout_is_not_repeated(folder: Path) -> None:
    world = TableWorld(folder, SCHEMA)
    job = world.job(numbers(4)).start()
    job.write()
    point = job.snapshot()
    client = job.writers()[-1]._client
    call, has_ended, may_answer = client.call, Event(), Event()

    def call_late(what: str, work: Callable[[], object]) -> object:
        if what != "commit a checkpoint":
            return call(what, work)

        def work_without_an_answer() -> None:
            work()
            has_ended.set()
            may_answer.wait()

        client.timeout = 0.0
        return call(what, work_without_an_answer)

    client.call = call_late
    with pytest.raises(OperatorError, match="did not answer"):
        job.complete(point)
    assert has_ended.wait(60)
    job.kill()
    job.start().finish()
    may_answer.set()
    assert in_order(world.rows()) == list(range(4))


def test_an_error_of_a_catalog_names_the_call_and_no_secret(folder: Path) -> None:
    world = TableWorld(folder)
    world.catalog["uri"] = "sqlite:////nowhere/catalog.db?password=hidden"
    with pytest.raises(ConnectorError, match="it failed to load the table: OperationalError") as caught:
        IcebergSource(TABLE, catalog=world.catalog).splits(1)
    assert "hidden" not in str(caught.value)
    assert "password" not in repr(IcebergSource(TABLE, catalog=world.catalog))


def test_an_error_shows_no_secret_of_nested_properties_and_of_one_with_a_line_break() -> None:
    properties: Any = {"type": "rest", "tenant": "open\n", "ssl": {"key": "sesame", "verify": True}}
    client = TableClient(TABLE, "catalog", properties, 1.0)
    told = str(client.failed("load the table", ValueError("bad header 'open\\n', key sesame")))
    assert "open" not in told
    assert "sesame" not in told
    assert "bad header" in told
    assert "sesame" not in repr(client)
