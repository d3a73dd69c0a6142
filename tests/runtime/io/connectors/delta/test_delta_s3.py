"""Delta tables on S3, from moto's server: exactly once, upserts, reading on, and errors without secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from delta_jobs import in_order, numbers
from deltalake import DeltaTable, write_deltalake

from penstock.delta import DeltaSink, DeltaSource
from penstock.runtime.errors import ConnectorError, OperatorError
from penstock.runtime.io.connectors.local_files import filesystem_for
from penstock.runtime.operators.committed_sink import CommitterOperator
from penstock.runtime.testing.connectors.sink_job import SinkJob
from penstock.runtime.testing.harness import OperatorHarness
from penstock.runtime.testing.source_harness import SourceHarness

SCHEMA = pa.schema({"number": pa.int64(), "day": pa.string()})
SECRET = "hush-hush-hush"


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, str]]:
    """Settings of a server with an empty bucket."""
    import boto3

    server = pytest.importorskip("moto.server", reason="moto's server is in the extra `dev`")
    running = server.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    client = boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="y"
    )
    client.create_bucket(Bucket="tables")
    yield {
        "region": "us-east-1",
        "access_key_id": "x",
        "secret_access_key": SECRET,
        "allow_http": "true",
        "endpoint": endpoint,
    }
    running.stop()


@dataclass(frozen=True)
class RemoteTable:
    """A table of the bucket."""

    name: str
    options: Mapping[str, str]
    key: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        return f"s3://tables/{self.name}"

    def sink(self) -> DeltaSink:
        return DeltaSink(
            self.path,
            SCHEMA,
            key=self.key,
            partition_by=self.partition_by,
            storage_options=self.options,
        )

    def rows(self) -> list[Any]:
        rows: list[Any] = (
            DeltaTable(self.path, storage_options=dict(self.options)).to_pyarrow_table().to_pylist()
        )
        return rows

    def staged(self) -> Sequence[str]:
        return filesystem_for(self.path, self.options).names(f"{self.path}/_penstock", "")


def test_a_job_that_dies_before_its_commit_adds_each_row_once(options: dict[str, str]) -> None:
    table = RemoteTable("appended", options, partition_by=("day",))
    rows = [{"number": number, "day": f"{number % 2}/ü"} for number in range(9)]
    job = SinkJob(table, rows, parallelism=2).start()
    job.write(4)
    job.decide(job.snapshot())
    job.kill()
    job.start().finish()
    found = sorted((row["number"], row["day"]) for row in table.rows())
    assert found == [(row["number"], row["day"]) for row in rows]


def test_a_commit_of_two_processes_at_a_time_is_made_once(options: dict[str, str]) -> None:
    table = RemoteTable("twice", options)
    job = SinkJob(table, numbers(6)).start()
    job.write()
    point = job.snapshot()
    job.decide(point)
    zombie = job.fork()
    job.start()
    zombie.notify(point)
    job.finish()
    assert in_order(table.rows()) == list(range(6))


def test_rows_are_merged_by_their_key_and_their_staged_files_removed(options: dict[str, str]) -> None:
    table = RemoteTable("merged", options, key=("number",))
    for _ in range(2):
        SinkJob(table, numbers(5)).start().finish()
    assert in_order(table.rows()) == list(range(5))
    assert not table.staged()


def test_a_source_reads_the_table_and_each_commit_as_it_comes(options: dict[str, str]) -> None:
    path = "s3://tables/read"

    def append(first: int) -> None:
        rows = pa.Table.from_pylist(numbers(3, first), SCHEMA)
        write_deltalake(path, rows, mode="append", storage_options=options)

    append(0)
    with SourceHarness(DeltaSource(path, watch=1, storage_options=options)) as harness:
        assert in_order([row for _ in range(10) for row in harness.poll()]) == [0, 1, 2]
        append(3)
        harness.advance(1)
        assert in_order([row for _ in range(10) for row in harness.poll()]) == [3, 4, 5]


def test_options_may_have_the_names_that_deltalake_has(options: dict[str, str]) -> None:
    names = {
        "region": "AWS_REGION",
        "access_key_id": "AWS_ACCESS_KEY_ID",
        "secret_access_key": "AWS_SECRET_ACCESS_KEY",
        "allow_http": "AWS_ALLOW_HTTP",
        "endpoint": "AWS_ENDPOINT_URL",
    }
    table = RemoteTable("named", {names[name]: value for name, value in options.items()})
    SinkJob(table, numbers(3)).start().finish()
    assert in_order(table.rows()) == [0, 1, 2]


def test_an_error_names_the_cause_and_no_secret(options: dict[str, str]) -> None:
    path = "s3://no-such-bucket/table"
    sink = DeltaSink(path, SCHEMA, storage_options=options)
    source = DeltaSource(path, storage_options=options)
    with pytest.raises(ConnectorError, match=r"table s3://no-such-bucket/table: .*404 Not Found") as read:
        source.splits(1)
    with pytest.raises(ConnectorError, match="404 Not Found") as checked:
        sink.prepare_destination("job-1")
    with (
        pytest.raises(OperatorError, match=r"404 Not Found.*storage_options") as written,
        OperatorHarness(CommitterOperator(sink)),
    ):
        pass
    for shown in (str(read.value), str(checked.value), str(written.value), repr(sink), repr(source)):
        assert SECRET not in shown
        assert "\x1b" not in shown
