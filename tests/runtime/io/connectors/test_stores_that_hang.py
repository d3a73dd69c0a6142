"""Tables on an object store that stops to answer: each call ends in time, and the job recovers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from serving.s3 import BUCKET, SECRET, S3Server, s3_server

from penstock.delta import DeltaSink
from penstock.iceberg import IcebergSink
from penstock.runtime.errors import ConnectorError, OperatorError
from penstock.runtime.io.connectors.object_files import object_file_system
from penstock.runtime.testing.connectors.sink_job import SinkJob

pytest.importorskip("moto.server", reason="moto's server is in the extra `dev`")

SCHEMA = pa.schema({"number": pa.int64()})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@dataclass
class StoredTable:
    sink: Callable[[], Any]
    rows: Callable[[], list[Any]]


def delta(server: S3Server, folder: Path, key: Sequence[str]) -> StoredTable:
    path = f"s3://{BUCKET}/delta{len(key)}"
    options = {
        "region": "us-east-1",
        "access_key_id": "x",
        "secret_access_key": SECRET,
        "allow_http": "true",
        "endpoint": server.endpoint,
        "timeout": "1s",
        "retry_timeout": "2s",
    }
    return StoredTable(
        lambda: DeltaSink(path, SCHEMA, key=key, storage_options=options),
        lambda: (
            DeltaTable(path, storage_options={**options, "timeout": "60s"}).to_pyarrow_table().to_pylist()
        ),
    )


def iceberg(server: S3Server, folder: Path, key: Sequence[str]) -> StoredTable:
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"s3://{BUCKET}/iceberg{len(key)}",
        "s3.endpoint": server.endpoint,
        "s3.region": "us-east-1",
        "s3.access-key-id": "x",
        "s3.secret-access-key": SECRET,
    }
    return StoredTable(
        lambda: IcebergSink("shop.orders", SCHEMA, key=key, catalog=catalog),
        lambda: load_catalog("default", **catalog).load_table("shop.orders").scan().to_arrow().to_pylist(),
    )


@pytest.mark.parametrize("key", [(), ("number",)], ids=["appended", "merged"])
@pytest.mark.parametrize("table", [delta, iceberg])
def test_a_commit_to_a_store_that_hangs_fails_in_time_and_is_made_once_afterwards(
    server: S3Server, tmp_path: Path, table: Callable[..., StoredTable], key: Sequence[str]
) -> None:
    world = table(server, tmp_path, key)
    job = SinkJob(world, [{"number": number} for number in range(6)]).start()
    job.write(2)
    job.checkpoint()
    job.write(2)
    point = job.snapshot()
    client = getattr(job.writers()[-1], "_client", None)
    if client is not None:
        client.timeout = 1.0  # that of `catalog_timeout`; the calls before had more time
    server.pause()
    try:
        with pytest.raises(OperatorError, match=r"commit failed: .*(did not answer|timed out)") as caught:
            job.complete(point)
    finally:
        server.resume()
    assert SECRET not in f"{caught.value!r} {caught.value.__cause__!r}"
    job.kill()
    job.start().finish()
    assert sorted(row["number"] for row in world.rows()) == list(range(6))


@pytest.mark.long
@pytest.mark.parametrize("table", [delta, iceberg])
def test_a_file_for_a_store_that_hangs_fails_its_subtask_in_time(
    server: S3Server, tmp_path: Path, table: Callable[..., StoredTable]
) -> None:
    world = table(server, tmp_path, ())
    job = SinkJob(world, [{"number": number} for number in range(6)]).start()
    job.write(2)
    server.pause()
    try:
        with pytest.raises(OperatorError, match=r"prepare_commit failed: .*can't be written") as caught:
            job.snapshot()
    finally:
        server.resume()
    assert SECRET not in f"{caught.value!r} {caught.value.__cause__!r}"


def test_a_limit_of_retries_that_is_no_duration_is_refused() -> None:
    with pytest.raises(ConnectorError, match="give seconds or minutes, such as '30s' or '2m'"):
        object_file_system("s3://bucket/folder", {"retry_timeout": "soon"})
    object_file_system("s3://bucket/folder", {"retry_timeout": "2 minutes", "max_retries": "3"})
