"""An Iceberg table in a Glue catalog with its files on S3, both from moto's server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from iceberg_jobs import SCHEMA, TABLE, TableWorld, in_order, numbers

from penstock.iceberg import IcebergSource
from penstock.runtime.errors import OperatorError
from penstock.runtime.testing.source_harness import SourceHarness

SECRET = "hush-hush-hush"


@pytest.fixture(scope="module")
def glue() -> Iterator[dict[str, str]]:
    """Properties of a catalog with an empty bucket."""
    import boto3

    server = pytest.importorskip("moto.server", reason="moto's server is in the extra `dev`")
    running = server.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    keys = {"region_name": "us-east-1", "aws_access_key_id": "x", "aws_secret_access_key": SECRET}
    boto3.client("s3", endpoint_url=endpoint, **keys).create_bucket(Bucket="tables")
    yield {
        "type": "glue",
        "warehouse": "s3://tables/warehouse",
        "glue.endpoint": endpoint,
        "glue.region": "us-east-1",
        "glue.access-key-id": "x",
        "glue.secret-access-key": SECRET,
        "s3.endpoint": endpoint,
        "s3.region": "us-east-1",
        "s3.access-key-id": "x",
        "s3.secret-access-key": SECRET,
    }
    running.stop()


class GlueWorld(TableWorld):
    def __init__(self, glue: dict[str, str]) -> None:
        super().__init__(Path("/nowhere"), SCHEMA)
        self.catalog = glue


def test_a_table_of_glue_is_written_once_by_two_processes_and_read_back(glue: dict[str, str]) -> None:
    world = GlueWorld(glue)
    job = world.job(numbers(6)).start()
    job.write(3)
    job.checkpoint()
    job.write(3)
    point = job.snapshot()
    job.decide(point)
    zombie = job.fork()
    committer = zombie.writers()[-1]
    stale, newest = iter([world.table]), committer._table_of
    committer._table_of = lambda commit: next(stale, None) or newest(commit)
    job.start()
    zombie.notify(point)
    job.finish()
    assert world.counts() == [3, 6]
    with SourceHarness(IcebergSource(TABLE, catalog=glue)) as harness:
        assert in_order(harness.read_all()) == list(range(6))


def test_an_error_of_the_store_shows_no_secret(glue: dict[str, str]) -> None:
    world = GlueWorld(
        {**glue, "warehouse": "s3://no-such-bucket/warehouse", "glue.endpoint": glue["s3.endpoint"]}
    )
    world.opened.create_namespace_if_not_exists("other")
    sink = world.sink()
    object.__setattr__(sink, "table", "other.orders")
    world.sink = lambda: sink  # type: ignore[method-assign]
    with pytest.raises(OperatorError) as caught:
        world.finish(numbers(1))
    assert "other.orders" in str(caught.value)
    assert SECRET not in repr(caught.value) + repr(caught.value.__cause__) + repr(sink)
