"""Connections between the processes of a transfer break, and their calls come through; no row gets lost.

The processes are real. Nothing here needs Spark: the rows are pushed as its tasks would do it.
"""

from __future__ import annotations

import os
import secrets
import socket
from typing import Any

import psutil
import pyarrow as pa
import pytest
import ray
from jobs.driving import PATIENCE, eventually

from penstock.actors.shared.actor_calls import RepeatedCall
from penstock.actors.shared.registry import NAMESPACE, master_name, set_master, start_actor
from penstock.bridge.push_partition import encoded
from penstock.bridge.receive_buffer_messages import (
    BufferSettings,
    Frame,
    PushOutcome,
    buffer_name,
    rendezvous_name,
)
from penstock.bridge.spark_source import BufferSplit, SparkReader, SparkSource
from penstock.bridge.transfer_service import JobBuffers, Rendezvous, TransferRequest
from penstock.runtime.operators.source import ConnectorContext
from penstock.runtime.testing.manual_time import ManualClock

pytestmark = pytest.mark.usefixtures("ray_cluster")


def test_a_reader_goes_on_behind_a_broken_connection_to_its_buffer() -> None:
    job = mastered()
    rendezvous = start_actor(Rendezvous, rendezvous_name("rows"), num_cpus=0)
    context = ConnectorContext(job, "job", "rows", 0, 1, 1, ManualClock())
    reader = SparkReader(
        SparkSource(BufferSettings("rows"), "rows", pa.schema({"id": pa.int64()})),
        context,
        [BufferSplit(0, 1)],
    )
    assert ray.get(rendezvous.request.remote(0, 0.0)) == TransferRequest(job, (-1,))
    assert not reader.poll(10).finished, "a read waits in the receive buffer"
    buffer = actor(buffer_name(job, "rows", 0))
    waiting = buffer.read.remote(0, -1, 1, 2.0)

    assert broken_connections(buffer, "ReceiveBufferActor")

    with pytest.raises(ray.exceptions.ActorUnavailableError):
        ray.get(waiting)
    buffers = JobBuffers(job, (buffer_name(job, "rows", 0),), (buffer,), "", b"")
    assert buffers.are_there()
    data = encoded([pa.record_batch({"n": range(3)})])
    assert ray.get(buffer.begin.remote(0, "run"))
    assert ray.get(buffer.push.remote(Frame(0, "run", 0, 0, 0, 3, data))) is PushOutcome.ACCEPTED
    assert ray.get(buffer.prepare.remote(0, "run", {0: (1, 3)})) is None
    assert ray.get(buffer.close.remote(0)) is None
    buffers.finish()
    rows: list[Any] = []

    def is_read_to_its_end() -> bool:
        polled = reader.poll(10)
        if polled.batch is not None:
            rows.extend(polled.batch.rows)
        return polled.finished

    eventually("the end", is_read_to_its_end)
    assert rows == [{"n": n} for n in range(3)]


@pytest.mark.long
def test_a_request_comes_through_a_broken_connection_to_the_rendezvous() -> None:
    rendezvous = start_actor(Rendezvous, rendezvous_name("rows"), num_cpus=0)
    call = RepeatedCall[TransferRequest](lambda: rendezvous.request.remote(0, PATIENCE), "the rendezvous")
    assert not call.wait(0.0)
    assert broken_connections(actor(rendezvous_name("rows")), "Rendezvous")
    assert (
        RepeatedCall[None](
            lambda: rendezvous.register.remote("a", 0, 1, "instance"), "the rendezvous"
        ).answer()
        is None
    )
    assert call.answer(PATIENCE) == TransferRequest("a", (-1,))


@ray.remote(num_cpus=0)
class Master:
    """Stands for the JobMaster, without which receive buffers end."""


def mastered() -> str:
    """The id of a job that lives as long as the test."""
    job_id = f"broken-{secrets.token_hex(4)}"
    Master.options(name=master_name(job_id), namespace=NAMESPACE, lifetime="detached").remote()
    set_master(job_id, process=job_id)
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
