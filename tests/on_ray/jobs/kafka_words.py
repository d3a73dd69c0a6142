"""Jobs that count words from topic to topic, and a count of the same words that shares no code with them.

Each word comes out with the number of its occurrences so far. So committed reads of the output have to see
each pair of a word and a number exactly once.
"""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from jobs.driving import PATIENCE, wait_until
from serving.kafka import Broker, Cluster
from serving.kafka_topics import Record, create_topic

from penstock import AdvancedConfig, Checkpointing, FixedDelay, JobConfig, StreamEnvironment
from penstock.cluster import RayJobHandle
from penstock.connectors import Sink
from penstock.kafka import KafkaSink, KafkaSource

_WORDS: Final = 50
#: Milliseconds; the timestamp of a count is so much later as it is large.
TIME: Final = 1_700_000_000_000


class KafkaWords:
    """A topic of words and a topic of their counts.

    Attributes:
        written: The words that were written; the count that is compared with.
    """

    def __init__(self, broker: Broker | Cluster, folder: Path, partitions: int = 4) -> None:
        name = uuid.uuid4().hex[:8]
        self.words, self.counts = f"words-{name}", f"counts-{name}"
        self.written: Counter[str] = Counter()
        self._broker = broker
        self._folder = folder
        self._partitions = partitions
        for topic in (self.words, self.counts):
            create_topic(broker.client(), topic, partitions)
        self._seen: Counter[tuple[str, str, int]] = Counter()
        self._read_to: dict[int, int] = {}

    def environment(
        self,
        *,
        run: str = "",
        bootstrap: str | None = None,
        parallelism: int = 2,
        source: Mapping[str, Any] | None = None,
        sink: Mapping[str, Any] | None = None,
        wrapped: Callable[[KafkaSink[Any]], Sink[Any]] = lambda sink: sink,
        checkpointing: Mapping[str, Any] | None = None,
    ) -> StreamEnvironment:
        """The job.

        Args:
            run: Goes into a header of each record that the job writes.
            bootstrap: The address at which the job reaches the brokers; by default the plain listener.
            source: Further settings of the source; the others likewise.
            wrapped: Makes the sink of the job from the one of Kafka.
        """
        address = bootstrap or self._broker.bootstrap
        settings = {"every": 0.3, "storage": str(self._folder / "checkpoints"), **(checkpointing or {})}
        config = JobConfig(
            checkpointing=Checkpointing(**settings),
            restart=FixedDelay(attempts=30, delay=0.1),
            # A sink that waits for a broker that is away stops only after it.
            advanced=AdvancedConfig(buffer_rows=64, cancellation_timeout=1),
        )
        env = StreamEnvironment("kafka-words", parallelism=parallelism, config=config)
        words = env.from_source("words", KafkaSource(address, self.words, **(source or {})))
        ones = words.map(lambda row: {"word": row["word"], "count": 1}, id="ones")
        counted = ones.key_by(lambda row: row["word"]).reduce(
            "counts", lambda left, right: {"word": left["word"], "count": left["count"] + right["count"]}
        )
        out: KafkaSink[Any] = KafkaSink(
            address,
            self.counts,
            key="word",
            headers=lambda row: {"run": run},
            timestamp=lambda row: (TIME + row["count"]) * 1000,
            **(sink or {}),
        )
        counted.sink("out", wrapped(out))
        return env

    def submit(self, restore_from: str | None = None, **settings: Any) -> RayJobHandle:
        job = self.environment(**settings).submit(restore_from=restore_from)
        assert isinstance(job, RayJobHandle)
        return job

    def write(self, count: int) -> Counter[str]:
        """Write words to all partitions in turn, wait for the broker, and return them."""
        producer = Producer(self._broker.client())
        written: Counter[str] = Counter()
        for number in range(count):
            word = f"w{(number * number) % _WORDS}"
            written[word] += 1
            value = json.dumps({"word": word}).encode()
            producer.produce(self.words, value, partition=number % self._partitions)
        assert producer.flush(PATIENCE) == 0
        self.written += written
        return written

    def add_partitions(self, total: int) -> None:
        """Give both topics this many partitions."""
        admin = AdminClient(self._broker.client())
        wanted = [NewPartitions(topic, total) for topic in (self.words, self.counts)]
        for answer in admin.create_partitions(wanted).values():
            answer.result(PATIENCE)
        self._partitions = total

    def delete_before(self, offset: int) -> None:
        """Delete the words of each partition before this offset, as retention does."""
        admin = AdminClient(self._broker.client())
        wanted = [TopicPartition(self.words, number, offset) for number in range(self._partitions)]
        for answer in admin.delete_records(wanted).values():
            answer.result(PATIENCE)

    def counts_of(self, run: str = "") -> Counter[tuple[str, int]]:
        """The committed counts of a run that were read so far."""
        return Counter({(word, count): n for (of, word, count), n in self._seen.items() if of == run})

    def read(self, total: int, job: RayJobHandle, run: str = "") -> Counter[tuple[str, int]]:
        """Read committed counts until so many of a run have come in all, and then to the end of the topic."""
        deadline = time.monotonic() + PATIENCE
        while True:
            self._read_to_end()
            found = self.counts_of(run)
            if found.total() >= total:
                return found
            report, seen = job.report(), f"{found.total()} of {total} counts came"
            assert not report.status.is_terminal, f"{seen} before the end of the job: {report.failure}"
            assert time.monotonic() < deadline, f"{seen}: {report}"

    def assert_each_count_once(self, job: RayJobHandle, run: str = "") -> None:
        """Wait for a count of each word that was written; none comes twice."""
        found = self.read(self.written.total(), job, run)
        assert found == Counter(dict.fromkeys(self.pairs(self.written), 1))

    @staticmethod
    def pairs(written: Mapping[str, int]) -> set[tuple[str, int]]:
        """All pairs that a job emits for these words."""
        return {(word, number) for word, count in written.items() for number in range(1, count + 1)}

    def _read_to_end(self) -> None:
        consumer = Consumer(
            self._broker.client()
            | {"group.id": "test", "isolation.level": "read_committed", "enable.partition.eof": True}
        )
        try:
            left = set(consumer.list_topics(self.counts, timeout=PATIENCE).topics[self.counts].partitions)
            consumer.assign(
                [TopicPartition(self.counts, number, self._read_to.get(number, 0)) for number in left]
            )
            deadline = time.monotonic() + PATIENCE
            while left:
                assert time.monotonic() < deadline, f"partitions {left} of {self.counts} have no end"
                for message in consumer.consume(1000, 0.2):
                    partition = message.partition()
                    assert partition is not None
                    if message.error() is not None:
                        assert message.error().code() == -191, message.error()  # the end of a partition
                        left.discard(partition)
                        continue
                    self._note(message)
                    self._read_to[partition] = (message.offset() or 0) + 1
        finally:
            consumer.close()

    def _note(self, message: Any) -> None:
        update = json.loads(message.value())
        ((_, run),) = message.headers()
        self._seen[run.decode(), update["word"], update["count"]] += 1


def message(word: str, count: int, run: str = "") -> Record:
    """The message of a count, without its place."""
    value = json.dumps({"word": word, "count": count}, separators=(",", ":")).encode()
    return Record(value, word.encode(), (("run", run.encode()),), TIME + count)


def restarted(job: RayJobHandle, attempt: int) -> None:
    wait_until(job, f"attempt {attempt + 1}", lambda report: report.statistics.attempt > attempt)


def vertices(job: RayJobHandle) -> list[str]:
    return sorted({process.subtask.vertex for process in job.processes() if process.subtask is not None})
