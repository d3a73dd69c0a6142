"""A job on Ray moves a table of PostgreSQL to another one, exactly once, though its processes are killed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from jobs.driving import after_checkpoints, finish, kill_subtask, submit, wait_until
from jobs.faults import first_time, kill_this_process
from serving.postgres import PostgresServer, postgres_server

from penstock import AdvancedConfig, Checkpointing, FixedDelay, JobConfig, StreamEnvironment
from penstock.connectors import CommitPermit, SinkContext, SinkWriter
from penstock.operators import Batch
from penstock.sql import SqlSink, SqlSource

pytestmark = pytest.mark.usefixtures("ray_cluster")

COUNT = 6_000


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as started:
        yield started


@dataclass(frozen=True)
class DeadlyTable:
    """A sink whose committer kills its process before its first commit, and after its second one."""

    inner: SqlSink
    folder: str

    def writer(self, context: SinkContext) -> Any:
        return self.inner.writer(context)

    def committer(self, context: SinkContext) -> SinkWriter[Any]:
        return DeadlyCommitter(self.inner.committer(context), Path(self.folder))

    def remove_uncovered(self, job_id: str, operator_id: str, covered: Sequence[Any]) -> None:
        self.inner.remove_uncovered(job_id, operator_id, covered)


class DeadlyCommitter:
    def __init__(self, inner: Any, folder: Path) -> None:
        self._inner, self._folder = inner, folder

    def write(self, batch: Batch) -> None:
        self._inner.write(batch)

    def prepare_commit(self) -> Sequence[Any]:
        staged: Sequence[Any] = self._inner.prepare_commit()
        return staged

    def commit(self, committables: Sequence[Any], permit: CommitPermit) -> None:
        if first_time(str(self._folder / "before")):
            kill_this_process()
        self._inner.commit(committables, permit)
        if first_time(str(self._folder / "after")):
            kill_this_process()

    def remove_leftovers(self, permit: CommitPermit) -> None:
        self._inner.remove_leftovers(permit)

    def close(self) -> None:
        self._inner.close()


def copied(server: PostgresServer) -> int:
    count: int = server.run("SELECT count(*) FROM copied")[0][0]
    return count


def test_each_row_of_a_table_is_written_once_though_committer_and_reader_are_killed(
    server: PostgresServer, tmp_path: Path
) -> None:
    server.run(
        "CREATE TABLE orders (id bigint PRIMARY KEY, item text)",
        f"INSERT INTO orders SELECT n, 'item ' || n FROM generate_series(1, {COUNT}) AS n",
        "CREATE TABLE copied (id bigint, item text)",
    )
    config = JobConfig(
        checkpointing=Checkpointing(every=0.3, storage=str(tmp_path / "checkpoints")),
        restart=FixedDelay(attempts=10, delay=0.1),
        advanced=AdvancedConfig(buffer_rows=64),
    )
    env = StreamEnvironment("copy", parallelism=2, config=config)
    source = SqlSource(server.url, "SELECT * FROM orders", by=["id"], partitions=4, page_rows=200, watch=0.1)
    rows = env.from_source("orders", source).rate_limit(1_500)
    rows.sink("copied", DeadlyTable(SqlSink(server.url, "copied", timeout=60), str(tmp_path)))

    job = submit(env)
    died = wait_until(job, "two deaths", lambda report: report.statistics.restarts >= 2)
    after_checkpoints(job, died.statistics.completed_checkpoints + 2)
    vertex = next(each.subtask.vertex for each in job.processes() if each.subtask is not None)
    kill_subtask(job, vertex)
    server.run(
        f"INSERT INTO orders SELECT n, 'item ' || n FROM generate_series({COUNT + 1}, {COUNT + 500}) AS n"
    )
    wait_until(job, "all rows", lambda report: copied(server) >= COUNT + 500)
    job.stop()
    result = finish(job)

    assert result.statistics.restarts >= 3, "two deaths of the committer, and one of a reader"
    difference = "(SELECT * FROM {0} EXCEPT ALL SELECT * FROM {1})"
    for one, two in (("orders", "copied"), ("copied", "orders")):
        assert server.run(difference.format(one, two)) == []
    assert server.run("SELECT count(*) FROM pg_class WHERE relname ~ '^_penstock_.*_.*_'") == [(0,)]
