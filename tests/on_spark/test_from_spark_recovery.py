"""DataFrames as sources while the job's processes die: rows arrive once, or the job says why it stops."""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
import pytest
import ray
from pipelines.jobs import (
    PATIENCE,
    Slowed,
    after_rows,
    assert_each_once,
    committed,
    copied,
    depots,
    environment,
    eventually,
    finish,
    kill_subtask,
    slow_release,
)
from pipelines.numbered import COUNT, numbers, wide_numbers
from ray.util import list_named_actors

from penstock import bridge
from penstock.actors import kill_process
from penstock.actors.names import NAMESPACE, master_name
from penstock.bridge.depot_messages import Frame
from penstock.bridge.depot_names import depot_name, desk_name
from penstock.bridge.hand_over import Depots
from penstock.bridge.hand_over_desk import Order, open_desk
from penstock.bridge.repeated_call import RepeatedCall
from penstock.bridge.spark_push import encoded
from penstock.bridge.spark_reader import Share, SparkReader, SparkSource
from penstock.runtime import FileSink, JobFailedError
from penstock.runtime.operators.protocols import ConnectorContext
from penstock.runtime.testing.manual_time import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_killed_reader_gets_its_rows_again(spark: SparkSession, tmp_path: Path) -> None:
    slow = Slowed(10_000, tmp_path / "go")
    job = copied(tmp_path, wide_numbers(spark), slow=slow, window=1 << 20)
    after_rows(job, 5_000)
    assert sum(depot.rows for depot in depots(job)) < COUNT, "in the middle of the hand-over"
    kill_subtask(job, "rows", 0)
    after_rows(job, 20_000)
    assert sum(depot.rows for depot in depots(job)) < COUNT
    kill_subtask(job, "rows", 1)
    slow_release(tmp_path)

    result = finish(job)

    assert_each_once(tmp_path, COUNT)
    assert result.statistics.restarts == 2


def test_a_killed_job_master_costs_nothing(spark: SparkSession, tmp_path: Path) -> None:
    job = copied(tmp_path, wide_numbers(spark), slow=Slowed(10_000, tmp_path / "go"), window=1 << 20)
    after_rows(job, 5_000)
    assert sum(depot.rows for depot in depots(job)) < COUNT, "in the middle of the hand-over"
    master = job.report().master
    assert master is not None
    kill_process(master)
    slow_release(tmp_path)

    result = finish(job)

    assert_each_once(tmp_path, COUNT)
    assert result.statistics.restarts == 1


def test_a_kill_before_the_first_checkpoint_reads_everything_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    env = environment(tmp_path, every=600.0)
    stream: Any = bridge.from_spark(env, numbers(spark), id="rows")
    slow = stream.map_batches(Slowed(10_000, tmp_path / "go"), "arrow")
    slow.sink("out", FileSink.parquet(tmp_path / "out"))
    job: Any = env.submit()
    after_rows(job, 5_000, checkpoints=0)
    kill_subtask(job, "rows", 0)
    slow_release(tmp_path)
    result = finish(job)
    assert_each_once(tmp_path, COUNT)
    assert result.statistics.restarts == 1


def test_spark_may_be_gone_after_the_hand_over(spark: SparkSession, tmp_path: Path) -> None:
    """What a stopped session leaves is tried in test_session.py; here nobody takes orders any more."""
    job = copied(tmp_path, numbers(spark), slow=Slowed(10_000, tmp_path / "go"), window=1 << 30)
    done = bridge.wait_for_hand_over(job, PATIENCE)
    assert sum(d.rows for d in done) == COUNT
    after_rows(job, 5_000)
    kill_subtask(job, "rows", 1)
    slow_release(tmp_path)
    result = finish(job)
    assert_each_once(tmp_path, COUNT)
    assert result.statistics.restarts == 1


def test_a_depot_that_dies_fails_the_job_at_once(spark: SparkSession, tmp_path: Path) -> None:
    job = copied(tmp_path, numbers(spark), slow=Slowed(10_000, tmp_path / "go"), window=1 << 18)
    after_rows(job, 5_000)
    name = next(a["name"] for a in list_named_actors(all_namespaces=True) if a["name"].startswith("depot:"))
    ray.kill(ray.get_actor(name, namespace=NAMESPACE))
    slow_release(tmp_path)
    with pytest.raises(
        JobFailedError, match="the process that holds the rows between Spark and the job died"
    ):
        job.wait(PATIENCE)
    assert job.statistics().restarts == 0


def rows_by_partition(share: Share) -> list[dict[str, int]]:
    return [{"partition": partition, "rows": rows} for partition, rows in share.rows.items()]


def test_a_job_can_not_go_on_amidst_rows_that_went_with_another_job(
    spark: SparkSession, tmp_path: Path
) -> None:
    slow = Slowed(2_000, tmp_path / "go")
    job = copied(tmp_path, numbers(spark), slow=slow)
    after_rows(job, 1)
    savepoint = job.stop()
    assert finish(job).statistics.restarts == 0
    shares = bridge.read_state(
        spark, savepoint, "rows", "splits", classes=[Share], value=rows_by_partition
    ).collect()
    known = [(each.partition, each.rows) for share in shares for each in share.value]
    assert len(dict(known)) == len(known), "each partition goes to one reader"
    assert sum(rows for _, rows in known) == committed(tmp_path).num_rows > 0
    env = environment(tmp_path)
    again: Any = bridge.from_spark(env, numbers(spark), id="rows", window=1 << 22)
    again.map_batches(slow, "arrow", id="slow").sink("out", FileSink.parquet(tmp_path / "out"))
    with pytest.raises(JobFailedError, match="the position in the checkpoint is one in rows that are not"):
        env.submit(restore_from=savepoint).wait(PATIENCE)


def test_a_reader_goes_on_behind_a_broken_connection_to_its_depot(spark: SparkSession) -> None:
    job = mastered()
    desk = open_desk("rows", one_job=False)
    context = ConnectorContext(job, "job", "rows", 0, 1, 1, ManualClock())
    reader = SparkReader(SparkSource("rows", "rows"), context, [Share(0, 1)])
    assert ray.get(desk.order.remote(0, 0.0)) == Order(job, (-1,))
    assert not reader.poll(10).finished, "a read waits in the depot"
    depot = actor(depot_name(job, "rows", 0))
    waiting = depot.read.remote(0, -1, 1, 2.0)

    assert broken_connections(depot, "DepotActor")

    with pytest.raises(ray.exceptions.ActorUnavailableError):
        ray.get(waiting)
    depots = Depots(job, (depot_name(job, "rows", 0),), (depot,), "", b"")
    assert depots.are_there()
    data = encoded([pa.record_batch({"n": range(3)})])
    assert ray.get(depot.begin.remote(0, "run"))
    assert ray.get(depot.push.remote(Frame(0, "run", 0, 0, 0, 3, data))) == "accepted"
    assert ray.get(depot.prepare.remote(0, "run", {0: (1, 3)})) is None
    assert ray.get(depot.close.remote(0)) is None
    depots.finish()
    rows: list[Any] = []

    def is_read_to_its_end() -> bool:
        polled = reader.poll(10)
        if polled.batch is not None:
            rows.extend(polled.batch.rows)
        return polled.finished

    eventually("the end", is_read_to_its_end)
    assert rows == [{"n": n} for n in range(3)]


def test_an_order_comes_through_a_broken_connection_to_the_desk(spark: SparkSession) -> None:
    desk = open_desk("rows", one_job=False)
    call = RepeatedCall[Order](lambda: desk.order.remote(0, PATIENCE), "the desk")
    assert not call.wait(0.0)
    assert broken_connections(actor(desk_name("rows")), "HandOverDesk")
    assert RepeatedCall[None](lambda: desk.announce.remote("a", 0, 1, "stamp"), "the desk").answer() is None
    assert call.answer(PATIENCE) == Order("a", (-1,))


@ray.remote(num_cpus=0)
class Master:
    """Stands for the JobMaster, without which depots end."""


def mastered() -> str:
    """The id of a job that lives as long as the test."""
    job_id = f"broken-{secrets.token_hex(4)}"
    Master.options(name=master_name(job_id), namespace=NAMESPACE, lifetime="detached").remote()
    return job_id


def actor(name: str) -> Any:
    return ray.get_actor(name, namespace=NAMESPACE)


def broken_connections(handle: Any, kind: str) -> int:
    """Break the connections of this process to the processes of a kind of actor."""
    ray.get(handle.__ray_ready__.remote())
    ports = {
        connection.laddr.port
        for process in psutil.process_iter(["cmdline"])
        if (process.info["cmdline"] or [""])[0].startswith(f"ray::{kind}")
        for connection in process.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    broken = 0
    for connection in psutil.Process().net_connections("tcp"):
        if connection.raddr and connection.raddr.port in ports:
            with socket.socket(fileno=os.dup(connection.fd)) as copy:
                copy.shutdown(socket.SHUT_RDWR)
            broken += 1
    return broken
