"""Topics of tests: what is in them, and what committed reads see of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewPartitions, NewTopic
from serving.kafka import Broker
from serving.kafka_clients import admin, consumer, producer
from serving.kafka_model import BOOTSTRAP
from serving.kafka_topics import Isolation, read

from penstock.kafka import KafkaSink, KafkaSource, OffsetsInitializer
from penstock.testing import SourceHarness

PATIENCE = 60.0


class Topic:
    def __init__(self, broker: Broker, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        self.broker = broker
        self.name = name
        self._admin = admin(broker.client())
        kept = {"retention.ms": "-1", **settings}
        self._admin.create_topics([NewTopic(name, partitions, 1, config=kept)])[name].result(PATIENCE)

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def source(self, **settings: Any) -> KafkaSource[Any]:
        """A source that ends at the newest record, unless the settings say otherwise."""
        bounded = settings.pop("bounded", OffsetsInitializer.latest())
        return KafkaSource(self.bootstrap, self.name, bounded=bounded, **settings)

    def sink(self, **settings: Any) -> KafkaSink[Any]:
        return KafkaSink(self.bootstrap, self.name, **settings)

    def add_partitions(self, total: int) -> None:
        self._admin.create_partitions([NewPartitions(self.name, total)])[self.name].result(PATIENCE)

    def put(self, values: Iterable[Any], partition: int = 0, **message: Any) -> None:
        """Write values as JSON, or as they are if they are bytes."""
        writer = producer(self.broker.client())
        for value in values:
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            writer.produce(self.name, data, partition=partition, **message)
        assert writer.flush(PATIENCE) == 0

    def put_in_transaction(self, values: Iterable[Any], end: str | None = None) -> Producer:
        """Write values in a transaction, and call this method of its producer; `None` leaves it open."""
        writer = producer(self.broker.client() | {"transactional.id": f"{self.name}-{end}"})
        writer.init_transactions(PATIENCE)
        writer.begin_transaction()
        for value in values:
            writer.produce(self.name, json.dumps(value).encode(), partition=0)
        assert writer.flush(PATIENCE) == 0
        if end is not None:
            getattr(writer, end)(PATIENCE)
        return writer

    def values(self, isolation_level: Isolation = "read_committed") -> list[Any]:
        """All values that a consumer sees, sorted."""
        if self.bootstrap == BOOTSTRAP:  # the thread of a source runs only in a simulation there
            return sorted(
                json.loads(record.value or b"")
                for record in read(self.broker.client(), self.name, isolation_level)
            )
        with SourceHarness(self.source(isolation_level=isolation_level)) as harness:
            return sorted(harness.read_all())

    def messages(self) -> list[Any]:
        """The committed messages, as the plain client has them."""
        reader = consumer(self.broker.client() | {"group.id": "test", "enable.partition.eof": True})
        known = reader.list_topics(self.name, timeout=PATIENCE).topics[self.name].partitions
        reader.assign([TopicPartition(self.name, number, 0) for number in known])
        found, open_ends = [], set(known)
        while open_ends:
            (message,) = reader.consume(1, PATIENCE)
            if message.error() is None:
                found.append(message)
            else:
                open_ends.discard(message.partition())
        reader.close()
        return found

    def committed(self, group: str) -> dict[int, int]:
        """The offsets of a group by partition."""
        reader = consumer(self.broker.client() | {"group.id": group})
        known = reader.list_topics(self.name, timeout=PATIENCE).topics[self.name].partitions
        places = reader.committed([TopicPartition(self.name, number) for number in known], timeout=PATIENCE)
        reader.close()
        return {place.partition: place.offset for place in places if place.offset >= 0}
