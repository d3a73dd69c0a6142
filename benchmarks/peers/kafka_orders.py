"""Orders in a topic of Kafka, and the sums that every contender must write: JSON to JSON, by user and second.

An order has seven fields and about 170 bytes. Order `n` has the time `base_time` plus `n / event_rate`
seconds. Its user and all other fields follow from `n`. A user's orders are in one of two partitions, with the
user as key, because Quix can't group by anything else. So each partition is in the order of time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

PARTITIONS: Final = 2
#: Seconds for an answer of the broker.
PATIENCE: Final = 60.0

_FACTOR, _AMOUNTS = 7_919, 10_007
_BLOCK: Final = 20_000


@dataclass(frozen=True)
class Orders:
    """The data.

    Attributes:
        event_rate: Orders in a second of event time.
        users: Number of users; no multiple of the prime 7919.
        base_time: Time of order 0, in microseconds since the epoch.
    """

    event_rate: int = 50_000
    users: int = 1_000
    base_time: int = 1_764_000_000_000_000

    def write(self, servers: str, topic: str, count: int) -> None:
        """Make a topic with `count` orders.

        Raises:
            TimeoutError: The broker does not acknowledge them.
        """
        make_topic(servers, topic)
        limits = {"queue.buffering.max.messages": 2 * _BLOCK, "linger.ms": 20, "batch.size": 1_000_000}
        producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, **limits})
        for start in range(0, count, _BLOCK):
            messages = list(self._messages(start, min(count, start + _BLOCK)))
            producer.produce_batch(topic, messages)
            if producer.flush(PATIENCE):
                msg = f"Kafka at {servers} does not acknowledge the orders of {topic}"
                raise TimeoutError(msg)

    def _messages(self, start: int, end: int) -> Iterator[dict[str, Any]]:
        for number in range(start, end):
            user = number * _FACTOR % self.users
            yield {
                "key": f"user-{user:05}",
                "value": (
                    f'{{"id": {number}, "user": "user-{user:05}", "amount": {number * 31 % _AMOUNTS}, '
                    f'"weight": {number % 977 / 8}, '
                    f'"at": {self.base_time + number * 1_000_000 // self.event_rate}, '
                    f'"paid": {"true" if number % 3 else "false"}, '
                    f'"note": "{number * 2_654_435_761 % 2**64:020} to be left there"}}'
                ),
                "partition": user % PARTITIONS,
            }

    def sums(self, count: int) -> dict[tuple[int, str], int]:
        """The expected sum of each second and user."""
        numbers = np.arange(count, dtype=np.int64)
        seconds = (self.base_time + numbers * 1_000_000 // self.event_rate) // 1_000_000
        groups = (seconds - seconds[0]) * self.users + numbers * _FACTOR % self.users
        found, places = np.unique(groups, return_inverse=True)
        totals = np.bincount(places, numbers * 31 % _AMOUNTS).astype(np.int64)
        first = int(seconds[0])
        return {
            (first + group // self.users, f"user-{group % self.users:05}"): total
            for group, total in zip(found.tolist(), totals.tolist(), strict=True)
        }

    def check(self, servers: str, topic: str, count: int, open_seconds: int) -> None:
        """Compare the committed results in a topic with the expected sums.

        Args:
            open_seconds: Last seconds of the input whose results may be missing, because no later order
                closes their windows.

        Raises:
            AssertionError: A sum is wrong, is missing or occurs twice.
        """
        expected = self.sums(count)
        found = list(read(servers, topic))
        sums = {(row["second"], row["user"]): row["total"] for row in found}
        assert len(sums) == len(found), f"{topic} has {len(found) - len(sums)} sums more than once"
        wrong = [key for key, total in sums.items() if expected.get(key) != total]
        assert not wrong, f"{topic} has wrong sums, such as that of {wrong[0]}"
        last = max(second for second, _ in expected)
        missing = [key for key in expected if key not in sums and key[0] <= last - open_seconds]
        assert not missing, (
            f"{topic} lacks {len(missing)} of {len(expected)} sums, such as that of {missing[0]}"
        )


def make_topic(servers: str, topic: str) -> None:
    """Make an empty topic that keeps its records."""
    wanted = NewTopic(topic, PARTITIONS, 1, config={"retention.ms": "-1"})
    admin = AdminClient({"bootstrap.servers": servers})  # must live until its request has ended
    admin.create_topics([wanted])[topic].result(PATIENCE)


def read(servers: str, topic: str) -> Iterator[Mapping[str, Any]]:
    """The committed rows of a topic.

    Raises:
        TimeoutError: The end of the topic is not reached.
    """
    settings = {
        "group.id": f"check-{topic}",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    consumer = Consumer({"bootstrap.servers": servers, **settings})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    left = set(range(PARTITIONS))
    deadline = time.monotonic() + PATIENCE
    while left:
        if time.monotonic() > deadline:
            msg = f"{topic} has no end within {PATIENCE:g} s"
            raise TimeoutError(msg)
        for message in consumer.consume(10_000, 0.5):
            if message.error() is None:
                yield json.loads(message.value() or b"")
            else:
                left.discard(message.partition() or 0)
    consumer.close()
