"""Topics of a real broker, and of `KafkaWorld`, as the kit of connectors sees them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from confluent_kafka.admin import AdminClient, NewPartitions

from penstock.kafka import KafkaSink, KafkaSource, OffsetsInitializer
from penstock.runtime.io.connectors.kafka.transaction_requests import list_transactions
from penstock.testing import KafkaWorld
from serving.kafka import Broker
from serving.kafka_topics import Record, create_topic, produce, read

#: A password that a listener without security does not ask for.
SECRET: Final = "pa55-of-kafka"
#: Settings with the password.
SECURITY: Final[Mapping[str, Any]] = {"sasl.username": "alice", "sasl.password": SECRET}

_PATIENCE: Final = 60.0


def encoded(records: Sequence[Any], partition: int | None = None) -> list[Record]:
    """Messages of two partitions in turn, or of one."""
    return [
        Record(json.dumps(record).encode(), partition=number % 2 if partition is None else partition)
        for number, record in enumerate(records)
    ]


class BrokerTopic:
    """A topic of a real broker with two partitions."""

    secret = SECRET

    def __init__(self, broker: Broker) -> None:
        self.settings = broker.client()
        self.bootstrap = broker.bootstrap
        self.topic = f"kit-{uuid.uuid4().hex}"
        create_topic(self.settings, self.topic, 2)

    def source(self) -> KafkaSource[Any]:
        return self._source(bounded=OffsetsInitializer.latest())

    def write(self, records: Sequence[Any]) -> None:
        produce(self.settings, self.topic, encoded(records))

    def write_to(self, split: int, records: Sequence[Any]) -> None:
        produce(self.settings, self.topic, encoded(records, split))

    def write_bad(self) -> None:
        produce(self.settings, self.topic, [Record(b"{", partition=1)])

    def tolerant_source(self, on_error: Literal["skip", "dead_letter"]) -> KafkaSource[Any]:
        return self._source(bounded=OffsetsInitializer.latest(), on_error=on_error)

    def growing_source(self) -> KafkaSource[Any]:
        return self._source(discover_every=0.01)

    def add_split(self, records: Sequence[Any]) -> None:
        admin = AdminClient(self.settings)
        number = len(admin.list_topics(self.topic, timeout=_PATIENCE).topics[self.topic].partitions)
        admin.create_partitions([NewPartitions(self.topic, number + 1)])[self.topic].result(_PATIENCE)
        produce(self.settings, self.topic, encoded(records, number))

    def sink(self) -> KafkaSink[Any]:
        return KafkaSink(self.bootstrap, self.topic, properties=SECURITY)

    def rows(self) -> list[Any]:
        return [json.loads(record.value or b"") for record in read(self.settings, self.topic)]

    def kill(self, connector: Any) -> None:
        """End the consumer of a reader; the producers of a writer end when they are forgotten."""
        fetcher = getattr(connector, "_fetcher", None)
        if fetcher is not None:
            fetcher.close()

    def _source(self, **settings: Any) -> KafkaSource[Any]:
        return KafkaSource(self.bootstrap, self.topic, properties=SECURITY, **settings)


class OutputOfBroker(BrokerTopic):
    """A topic to which jobs write; it begins with the transactions that other tests have left open."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._others = set(self._open())

    def hidden(self) -> list[str]:
        return [name for name in self._open() if name not in self._others]

    def _open(self) -> list[str]:
        return [each.transactional_id for each in list_transactions(self.settings, states=["Ongoing"])]


class ModelTopic(KafkaWorld):
    """A topic of the model of Kafka."""

    secret = SECRET

    def __init__(self) -> None:
        super().__init__({"topic": 2})

    def sink(self) -> KafkaSink[Any]:
        return KafkaSink(self.bootstrap_servers, "topic", properties=SECURITY)

    def rows(self) -> list[Any]:
        return self.values("topic")

    def source(self) -> KafkaSource[Any]:
        latest = OffsetsInitializer.latest()
        return KafkaSource(self.bootstrap_servers, "topic", bounded=latest, properties=SECURITY)

    def write(self, records: Sequence[Any]) -> None:
        self.put("topic", records)
