"""Counts the words of a Kafka topic by second, and writes each count to another topic exactly once.

    pip install 'penstock[kafka]'
    python examples/kafka_word_count.py --bootstrap-servers localhost:9092 --kill

It writes random words to the topic `words`, and runs the job. Then it reads committed records of the topic
`counts`, and compares the counts with the words that it wrote. `--kill` kills the process of a subtask after
the second checkpoint. The topics must not exist before.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from operator import itemgetter
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock import (
    AggregateFunction,
    Checkpointing,
    FixedDelay,
    PenstockError,
    StreamEnvironment,
    WatermarkStrategy,
)
from penstock.cluster import RayJobHandle
from penstock.kafka import KafkaSink, KafkaSource, OffsetsInitializer
from penstock.testing import kill_process
from penstock.windows import TimeWindow, TumblingEventTimeWindows

PARTITIONS = 4
WORDS = [f"word-{number}" for number in range(20)]
#: Words per second of event time, and maximum number of words that the job reads per second.
PACE, RATE = 1_000, 20_000
#: Timestamp of the first word, in milliseconds.
START = 1_700_000_000_000
#: Seconds for an answer of the brokers.
PATIENCE = 60.0

#: Second and word.
Counts = Counter[tuple[int, str]]


class Counted(AggregateFunction[dict[str, Any], int, int]):
    """The number of records."""

    def create_accumulator(self) -> int:
        """Begin at 0."""
        return 0

    def add(self, value: dict[str, Any], accumulator: int) -> int:
        """Count one record."""
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        """Return the number."""
        return accumulator


def with_second(word: str, window: TimeWindow, count: int) -> Iterable[dict[str, Any]]:
    """A row for each word and second."""
    yield {"second": int(window.start.timestamp()), "word": word, "count": count}


def write_words(servers: str, number: int) -> Counts:
    """Write random words with timestamps, and return their counts."""
    admin = AdminClient({"bootstrap.servers": servers})
    kept = {"retention.ms": "-1"}
    topics = [NewTopic(name, PARTITIONS, 1, config=kept) for name in ("words", "counts")]
    for created in admin.create_topics(topics).values():
        created.result(PATIENCE)
    # Without idempotence a retry may change the order of records.
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    expected: Counts = Counter()
    for index in range(number):
        word, at = random.Random(index).choice(WORDS), START + index * 1000 // PACE
        expected[at // 1000, word] += 1
        producer.produce("words", json.dumps({"word": word}), partition=index % PARTITIONS, timestamp=at)
        producer.poll(0)
    if producer.flush(PATIENCE):
        msg = f"Kafka at {servers} does not acknowledge the words"
        raise TimeoutError(msg)
    return expected


def read_counts(servers: str) -> list[dict[str, Any]]:
    """All committed rows of the topic `counts`."""
    reading = {
        "group.id": "kafka-word-count",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    consumer = Consumer({"bootstrap.servers": servers, **reading})
    consumer.assign([TopicPartition("counts", number, 0) for number in range(PARTITIONS)])
    rows, left = [], set(range(PARTITIONS))
    while left:
        for message in consumer.consume(1_000, 1.0):
            if message.error() is None:
                rows.append(json.loads(message.value() or b""))
            else:
                left.discard(message.partition() or 0)
    consumer.close()
    return rows


def count_words(servers: str, storage: str) -> StreamEnvironment:
    """The job: it ends with the newest word that the topic has when the job begins."""
    env = StreamEnvironment(
        "kafka-word-count",
        parallelism=2,
        checkpointing=Checkpointing(every=1, storage=storage),
        restart=FixedDelay(attempts=3, delay=0.1),
    )
    source = KafkaSource(servers, "words", metadata=("timestamp",), bounded=OffsetsInitializer.latest())
    strategy: WatermarkStrategy[Any] = WatermarkStrategy.for_monotonous_timestamps()
    (
        env.from_source("words", source, watermarks=strategy.with_timestamp_assigner(itemgetter("timestamp")))
        .rate_limit(RATE)
        .key_by(itemgetter("word"))
        .window(TumblingEventTimeWindows(timedelta(seconds=1)))
        .aggregate("counts", Counted(), with_second)
        .sink("out", KafkaSink(servers, "counts", key="word"))
    )
    return env


def kill_one(job: RayJobHandle) -> None:
    """Kill the process of a subtask after the second checkpoint."""
    while job.statistics().completed_checkpoints < 2 and not job.status().is_terminal:
        time.sleep(0.05)
    kill_process(job.processes()[0])


def main() -> int:
    """Write words, count them, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--words", type=int, default=200_000, metavar="N")
    parser.add_argument("--kill", action="store_true", help="kill a subtask while the job runs")
    options = parser.parse_args()
    servers = options.bootstrap_servers
    expected = write_words(servers, options.words)
    with tempfile.TemporaryDirectory() as storage:
        try:
            job = count_words(servers, storage).submit()
            assert isinstance(job, RayJobHandle)
            if options.kill:
                kill_one(job)
            restarts = job.wait(progress=False).statistics.restarts
        except PenstockError as error:
            print(f"kafka_word_count: {error}", file=sys.stderr)
            return 1
    rows = read_counts(servers)
    found = {(row["second"], row["word"]): row["count"] for row in rows}
    is_exact = len(rows) == len(found) and found == dict(expected)
    print(f"{options.words} words, {len(rows)} counts, restarts: {restarts}")
    print("each count is right and committed once" if is_exact else "the counts are wrong")
    return 0 if is_exact else 1


if __name__ == "__main__":
    sys.exit(main())
