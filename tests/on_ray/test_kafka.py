"""Jobs from topic to topic, exactly once although processes die.

Committed reads of the output are compared with a count of the input that shares no code with the job.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from jobs.driving import PATIENCE, after_checkpoints, kill_master, kill_subtask, submit, wait_until
from serving.kafka import Broker, light_broker
from serving.kafka_topics import create_topic

from penstock import AdvancedConfig, Checkpointing, FixedDelay, JobConfig, StreamEnvironment
from penstock.cluster import RayJobHandle
from penstock.kafka import KafkaSink, KafkaSource

pytestmark = pytest.mark.usefixtures("ray_cluster")

PARTITIONS, WORDS = 4, 50


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with light_broker(tmp_path_factory.mktemp("kafka")) as started:
        for topic in ("words", "counts"):
            create_topic(started.client(), topic, PARTITIONS)
        yield started


def counting(broker: Broker, tmp_path: Path) -> StreamEnvironment:
    """Emits each word with the number of its occurrences so far."""
    config = JobConfig(
        checkpointing=Checkpointing(every=0.3, storage=str(tmp_path / "checkpoints")),
        restart=FixedDelay(attempts=10, delay=0.1),
        advanced=AdvancedConfig(buffer_rows=64),
    )
    env = StreamEnvironment("kafka-words", parallelism=2, config=config)
    words = env.from_source("words", KafkaSource(broker.bootstrap, "words"))
    ones = words.map(lambda row: {"word": row["word"], "count": 1}, id="ones")
    counted = ones.key_by(lambda row: row["word"]).reduce(
        "counts", lambda left, right: {"word": left["word"], "count": left["count"] + right["count"]}
    )
    counted.sink("out", KafkaSink(broker.bootstrap, "counts", key="word"))
    return env


class Input:
    """Writes words in an order of its own, and counts what it wrote."""

    def __init__(self, broker: Broker) -> None:
        self._producer = Producer(broker.client())
        self.written: Counter[str] = Counter()

    def write(self, count: int) -> None:
        for number in range(count):
            word = f"w{(number * number) % WORDS}"
            self.written[word] += 1
            self._producer.produce(
                "words", json.dumps({"word": word}).encode(), partition=number % PARTITIONS
            )
        assert self._producer.flush(PATIENCE) == 0


class Output:
    """Committed reads of the output."""

    def __init__(self, broker: Broker) -> None:
        self._consumer = Consumer(broker.client() | {"group.id": "test", "isolation.level": "read_committed"})
        self._consumer.assign([TopicPartition("counts", number, 0) for number in range(PARTITIONS)])
        self.updates: Counter[tuple[str, int]] = Counter()

    def read(self, total: int, job: RayJobHandle) -> None:
        """Read until so many updates have come in all."""
        deadline = time.monotonic() + PATIENCE
        while self.updates.total() < total:
            for message in self._consumer.consume(1000, 0.2):
                assert message.error() is None, message.error()
                update: Any = json.loads(message.value() or b"")
                self.updates[update["word"], update["count"]] += 1
            seen = self.updates.total()
            assert time.monotonic() < deadline, f"{seen} of {total} updates came: {job.report()}"


def restarted(job: RayJobHandle, attempt: int) -> None:
    wait_until(job, f"attempt {attempt + 1}", lambda report: report.statistics.attempt > attempt)


def test_each_count_is_committed_once_although_subtasks_and_the_job_master_die(
    broker: Broker, tmp_path: Path
) -> None:
    words, output = Input(broker), Output(broker)
    words.write(3_000)
    job = submit(counting(broker, tmp_path))
    total = 3_000
    for vertex in ("words", "counts"):
        report = after_checkpoints(job, job.report().statistics.completed_checkpoints + 1)
        words.write(2_000)
        total += 2_000
        kill_subtask(job, next(v for v in vertices(job) if vertex in v))
        restarted(job, report.statistics.attempt)
    kill_master(job)
    words.write(2_000)
    total += 2_000
    output.read(total, job)
    job.cancel()

    expected = {(word, n) for word, count in words.written.items() for n in range(1, count + 1)}
    assert output.updates == Counter(dict.fromkeys(expected, 1))


def vertices(job: RayJobHandle) -> list[str]:
    return sorted({process.subtask.vertex for process in job.processes() if process.subtask is not None})
