"""Iceberg tables behind a REST catalog: Apache Iceberg's own server, which hangs, dies and starts again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from iceberg_jobs import SCHEMA, TABLE, TableWorld, in_order, numbers
from serving.iceberg_rest import TOKEN, CatalogServer, catalog_server

from penstock.iceberg import IcebergSource
from penstock.runtime.errors import ConnectorError, OperatorError
from penstock.runtime.testing.source_harness import SourceHarness
from penstock.testing.connectors import SinkTests

pytestmark = pytest.mark.rest_catalog


class RestWorld(TableWorld):
    secret = TOKEN

    def __init__(self, server: CatalogServer, **settings: Any) -> None:
        super().__init__(Path("/nowhere"), SCHEMA, **settings)
        self.catalog = server.properties


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CatalogServer]:
    with catalog_server(tmp_path_factory.mktemp("catalog")) as server:
        yield server


@pytest.fixture
def world(server: CatalogServer) -> Iterator[RestWorld]:
    world = RestWorld(server)
    yield world
    if world.opened.table_exists(TABLE):
        world.opened.drop_table(TABLE)


def failures(error: BaseException | None) -> str:
    """All that a report could show of an error."""
    return "" if error is None else f"{error!r} {error} {failures(error.__cause__ or error.__context__)}"


def poll_on(harness: SourceHarness) -> None:
    for _ in range(10):
        harness.advance(1)
        harness.poll()


def test_a_table_is_written_once_by_two_processes_and_read_back_beside_a_restart_of_the_catalog(
    server: CatalogServer, world: RestWorld
) -> None:
    job = world.job(numbers(6), parallelism=2).start()
    job.write(3)
    job.checkpoint()
    job.write(3)
    point = job.snapshot()
    job.decide(point)
    zombie = job.fork()
    committer = zombie.writers()[-1]
    stale, newest = iter([world.table]), committer._table_of
    committer._table_of = lambda commit: next(stale, None) or newest(commit)
    server.kill()
    try:
        with pytest.raises(OperatorError, match="it failed to load the table") as caught:
            job.start()
    finally:
        server.start()
    assert TOKEN not in failures(caught.value)
    job.start()
    zombie.notify(point)
    job.finish()
    assert world.counts() == [3, 6]
    with SourceHarness(IcebergSource(TABLE, catalog=world.catalog)) as harness:
        assert in_order(harness.read_all()) == list(range(6))


@pytest.mark.long
def test_a_commit_that_the_catalog_makes_after_its_timeout_is_not_repeated(
    server: CatalogServer, world: RestWorld
) -> None:
    """The server has the request when it stops, and does not answer."""
    job = world.job(numbers(4)).start()
    job.write()
    point = job.snapshot()
    client = job.writers()[-1]._client
    call = client.call

    def call_of_a_stopped_server(what: str, work: Any) -> Any:
        if what == "commit a checkpoint":
            server.pause()
            client.timeout = 1.0
        return call(what, work)

    client.call = call_of_a_stopped_server
    try:
        with pytest.raises(
            OperatorError, match=r"did not answer within 1 s \(commit a checkpoint\)"
        ) as caught:
            job.complete(point)
    finally:
        server.resume()
    assert TOKEN not in failures(caught.value)
    job.kill()
    job.start().finish()
    assert in_order(world.rows()) == list(range(4))


@pytest.mark.long
def test_a_commit_of_a_catalog_that_is_killed_meanwhile_is_made_once(
    server: CatalogServer, world: RestWorld
) -> None:
    job = world.job(numbers(4)).start()
    job.write()
    point = job.snapshot()
    committer = job.writers()[-1]
    append = committer._append

    def append_and_die(*arguments: Any) -> None:
        append(*arguments)
        server.kill()
        committer._client.load()

    committer._append = append_and_die
    try:
        with pytest.raises(OperatorError, match="it failed to load the table"):
            job.complete(point)
    finally:
        server.start()
    job.kill()
    job.start().finish()
    assert in_order(world.rows()) == list(range(4))


@pytest.mark.long
def test_a_source_continues_after_a_restart_of_the_catalog(server: CatalogServer, world: RestWorld) -> None:
    world.make()
    world.append(numbers(2))
    first = world.table.snapshots()[0].snapshot_id
    source = IcebergSource(TABLE, catalog=world.catalog, starting_snapshot_id=first, watch=1)
    with SourceHarness(source) as harness:
        seen = [row["number"] for _ in range(10) for row in harness.poll()]
        point = harness.snapshot()
        server.kill()
        try:
            with pytest.raises(OperatorError, match="it failed to load the table") as caught:
                poll_on(harness)
        finally:
            server.start()
    assert TOKEN not in failures(caught.value)
    world.append(numbers(2, 2))
    with SourceHarness(source, restored=[point]) as harness:
        seen += [row["number"] for _ in range(10) for row in harness.poll()]
    assert seen == [0, 1, 2, 3]


@pytest.mark.long
def test_a_table_that_two_jobs_change_keeps_the_columns_and_rows_of_both(world: RestWorld) -> None:
    world.settings = {"schema_mode": "merge"}
    rows = {"number": 0, "price": 1.5}, {"number": 1, "cost": 1.5}
    jobs = [world.job([row]).start() for row in rows]
    for job in jobs:
        job.write()
    for job in jobs:
        job.finish()
    assert sorted(world.rows(), key=lambda row: row["number"]) == [
        {"number": 0, "price": 1.5, "cost": None},
        {"number": 1, "price": None, "cost": 1.5},
    ]
    assert world.table.schema().as_arrow().names[0] == "number"
    assert world.table.scan().to_arrow().schema.field("price").type == pa.float64()


def test_errors_of_a_catalog_that_is_not_there_show_no_secret(server: CatalogServer) -> None:
    properties = {
        "type": "rest",
        "uri": "http://me:secret-of-me@127.0.0.1:1",
        "credential": "client:secret-of-client",
        "header.Authorization": "Bearer secret-of-header",
    }
    for given in (properties, {**properties, "uri": f"{server.uri}/nowhere?password=secret-of-uri"}):
        source = IcebergSource(TABLE, catalog=given, catalog_timeout=60)
        with pytest.raises(ConnectorError, match=f"table {TABLE}: it failed to load the table") as caught:
            source.splits(1)
        assert "secret" not in str(caught.value)
        assert "secret" not in repr(source)


@pytest.mark.long
class TestSinkOfRestCatalog(SinkTests):
    """The kit, with a server for all of its tests."""

    simulated = False
    steps = ("complete", "last write")

    @pytest.fixture(autouse=True)
    def _server(self, server: CatalogServer) -> None:
        self.server = server

    def make_world(self, folder: Path) -> RestWorld:
        world = RestWorld(self.server)
        if world.opened.table_exists(TABLE):
            world.opened.drop_table(TABLE)
        return world

    def bad_record(self) -> Any:
        return {"number": {}}
