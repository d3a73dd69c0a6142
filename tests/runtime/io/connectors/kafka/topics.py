"""Topics of tests: what is in them, and what committed reads see of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from serving.kafka import Broker

from penstock.kafka import KafkaSink, KafkaSource, OffsetsInitializer
from penstock.testing import SourceHarness

PATIENCE = 60.0


class Topic:
    def __init__(self, broker: Broker, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        self.broker = broker
        self.name = name
        self._admin = AdminClient(broker.client())
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
        producer = Producer(self.broker.client())
        for value in values:
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            producer.produce(self.name, data, partition=partition, **message)
        assert producer.flush(PATIENCE) == 0

    def put_in_transaction(self, values: Iterable[Any], end: str | None = None) -> Producer:
        """Write values in a transaction, and call this method of its producer; `None` leaves it open."""
        producer = Producer(self.broker.client() | {"transactional.id": f"{self.name}-{end}"})
        producer.init_transactions(PATIENCE)
        producer.begin_transaction()
        for value in values:
            producer.produce(self.name, json.dumps(value).encode(), partition=0)
        assert producer.flush(PATIENCE) == 0
        if end is not None:
            getattr(producer, end)(PATIENCE)
        return producer

    def values(self, isolation_level: str = "read_committed") -> list[Any]:
        """All values that a consumer sees, sorted."""
        with SourceHarness(self.source(isolation_level=isolation_level)) as harness:
            return sorted(harness.read_all())

    def messages(self) -> list[Any]:
        """The committed messages, as the plain client has them."""
        consumer = Consumer(self.broker.client() | {"group.id": "test", "enable.partition.eof": True})
        known = consumer.list_topics(self.name, timeout=PATIENCE).topics[self.name].partitions
        consumer.assign([TopicPartition(self.name, number, 0) for number in known])
        found, open_ends = [], set(known)
        while open_ends:
            (message,) = consumer.consume(1, PATIENCE)
            if message.error() is None:
                found.append(message)
            else:
                open_ends.discard(message.partition())
        consumer.close()
        return found

    def committed(self, group: str) -> dict[int, int]:
        """The offsets of a group by partition."""
        consumer = Consumer(self.broker.client() | {"group.id": group})
        known = consumer.list_topics(self.name, timeout=PATIENCE).topics[self.name].partitions
        places = consumer.committed([TopicPartition(self.name, number) for number in known], timeout=PATIENCE)
        consumer.close()
        return {place.partition: place.offset for place in places if place.offset >= 0}
