"""A job reads a work queue of NATS: each message counts once, although processes die.

The queue deletes a message when it is acknowledged, so one that was acknowledged too early would be lost.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jobs.driving import (
    after_checkpoints,
    finish,
    kill_master,
    kill_subtask,
    submit,
    wait_until,
)
from nats.js.api import RetentionPolicy
from serving.nats import NatsServer, nats_server

from penstock import (
    AdvancedConfig,
    Checkpointing,
    FileSink,
    FixedDelay,
    JobConfig,
    StreamEnvironment,
)
from penstock.cluster import RayJobHandle
from penstock.nats import JetStreamSource

pytestmark = pytest.mark.usefixtures("ray_cluster")

SUBJECTS = ("orders.0", "orders.1")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with nats_server(tmp_path_factory.mktemp("nats")) as started:
        started.run(
            lambda js: js.add_stream(
                name="orders", subjects=["orders.*"], retention=RetentionPolicy.WORK_QUEUE
            )
        )
        yield started


def writing(server: NatsServer, folder: Path) -> StreamEnvironment:
    config = JobConfig(
        checkpointing=Checkpointing(every=0.3, storage=str(folder / "checkpoints")),
        restart=FixedDelay(attempts=10, delay=0.1),
        advanced=AdvancedConfig(buffer_rows=64),
    )
    env = StreamEnvironment("queue", parallelism=2, config=config)
    source: Any = JetStreamSource(server.url, "orders", subjects=SUBJECTS, max_unacknowledged=400)
    env.from_source("orders", source).sink("out", FileSink.json(str(folder / "out")))
    return env


def publish(server: NatsServer, numbers: range) -> None:
    async def all_of(js: Any) -> None:
        for number in numbers:
            await js.publish(SUBJECTS[number % 2], b'{"n": %d}' % number)

    server.run(all_of)


def left(server: NatsServer) -> int:
    found: int = server.run(lambda js: js.stream_info("orders")).state.messages
    return found


def restarted(job: RayJobHandle, attempt: int) -> None:
    wait_until(job, f"attempt {attempt + 1}", lambda report: report.statistics.attempt > attempt)


def test_each_message_of_a_queue_counts_once_although_subtasks_master_and_server_die(
    server: NatsServer, tmp_path: Path
) -> None:
    publish(server, range(1_500))
    job = submit(writing(server, tmp_path))
    report = after_checkpoints(job, 2)
    publish(server, range(1_500, 2_500))
    kill_subtask(job, vertex_of(job))
    restarted(job, report.statistics.attempt)
    server.kill()
    server.start()
    publish(server, range(2_500, 3_000))
    kill_master(job)
    publish(server, range(3_000, 3_500))
    wait_until(job, "an empty queue", lambda report: left(server) == 0)
    job.stop()
    finish(job)

    lines = [line for file in (tmp_path / "out").glob("part-*") for line in file.read_text().splitlines()]
    assert Counter(json.loads(line)["n"] for line in lines) == Counter(range(3_500))


def vertex_of(job: RayJobHandle) -> str:
    return min(process.subtask.vertex for process in job.processes() if process.subtask is not None)
