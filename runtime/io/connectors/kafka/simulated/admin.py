"""`SimulatedAdmin`: the calls of confluent-kafka's `AdminClient` that the connector and its tests use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, TypeVar

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, TopicPartition
from confluent_kafka.admin import (
    BrokerMetadata,
    ClusterMetadata,
    ListOffsetsResultInfo,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    PartitionMetadata,
    TopicMetadata,
)

from penstock.runtime.io.connectors.kafka.simulated.broker import (
    UNKNOWN_TOPIC_OR_PARTITION,
    SimulatedBroker,
)
from penstock.runtime.io.connectors.kafka.simulated.connection import Connection, error_of

T = TypeVar("T")

#: Timeout of a call that sets none, in seconds.
_TIMEOUT: Final = 60.0
#: Values of an `OffsetSpec` in the protocol.
_LATEST: Final = -1
_EARLIEST: Final = -2


def list_topics(broker: SimulatedBroker, topic: str | None = None) -> ClusterMetadata:
    """The metadata of all topics, or of one."""
    metadata = ClusterMetadata()
    numbers = list(range(1, broker.leaders.brokers + 1))
    for number in numbers:
        node = BrokerMetadata()
        node.id, node.port = number, 9092
        metadata.brokers[number] = node
    for name in broker.topics if topic is None else [topic]:
        found = TopicMetadata()
        found.topic = name
        known = broker.topics.get(name)
        if known is None:
            found.error = error_of(UNKNOWN_TOPIC_OR_PARTITION)
        for number in range(len(known.partitions) if known is not None else 0):
            partition = PartitionMetadata()
            leader = broker.leaders.of((name, number))
            partition.id, partition.leader = number, -1 if leader is None else leader
            partition.replicas = partition.isrs = numbers
            found.partitions[number] = partition
        metadata.topics[name] = found
    return metadata


class SimulatedAdmin:
    """An admin client; its calls are answered at once, as futures."""

    def __init__(self, connection: Connection, settings: Mapping[str, Any]) -> None:
        self._connection = connection
        self._broker = connection.broker

    def poll(self, timeout: float = -1) -> int:
        """Return 0: no callback waits, because the model answers each call at once."""
        return 0

    def list_topics(self, topic: str | None = None, timeout: float = _TIMEOUT) -> ClusterMetadata:
        return self._connection.call(lambda: list_topics(self._broker, topic), timeout)

    def list_offsets(
        self,
        topic_partition_offsets: Mapping[TopicPartition, OffsetSpec],
        *,
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        request_timeout: float = _TIMEOUT,
    ) -> dict[TopicPartition, Future[ListOffsetsResultInfo]]:
        is_committed = isolation_level == IsolationLevel.READ_COMMITTED
        return {
            place: self._answer(
                partial(self._offset, place, wanted, is_committed=is_committed), request_timeout
            )
            for place, wanted in topic_partition_offsets.items()
        }

    def list_consumer_group_offsets(
        self, requests: Sequence[ConsumerGroupTopicPartitions], *, request_timeout: float = _TIMEOUT
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        return {
            request.group_id: self._answer(partial(self._committed, request), request_timeout)
            for request in requests
        }

    def create_topics(
        self, new_topics: Sequence[NewTopic], *, request_timeout: float = _TIMEOUT
    ) -> dict[str, Future[None]]:
        def create(topic: NewTopic) -> None:
            config = dict(topic.config or {})
            sizes = [int(config["max.message.bytes"])] if "max.message.bytes" in config else []
            self._broker.create_topic(topic.topic, max(1, topic.num_partitions), *sizes)

        return {topic.topic: self._answer(partial(create, topic), request_timeout) for topic in new_topics}

    def create_partitions(
        self, new_partitions: Sequence[NewPartitions], *, request_timeout: float = _TIMEOUT
    ) -> dict[str, Future[None]]:
        create = self._broker.create_partitions
        return {
            each.topic: self._answer(partial(create, each.topic, each.new_total_count), request_timeout)
            for each in new_partitions
        }

    def _answer(self, effect: Callable[[], T], timeout: float) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(self._connection.call(effect, timeout))
        except Exception as error:
            future.set_exception(error)
        return future

    def _offset(
        self, place: TopicPartition, wanted: OffsetSpec, *, is_committed: bool
    ) -> ListOffsetsResultInfo:
        self._broker.check_leader((place.topic, place.partition))
        log = self._broker.log((place.topic, place.partition))
        asked = wanted._value
        if asked == _EARLIEST:
            return ListOffsetsResultInfo(log.start, -1, 0)
        if asked == _LATEST:
            return ListOffsetsResultInfo(log.readable_end(is_committed=is_committed), -1, 0)
        found = log.offset_for_time(asked, is_committed=is_committed)
        return ListOffsetsResultInfo(
            -1 if found is None else found.offset, -1 if found is None else found.timestamp, 0
        )

    def _committed(self, request: ConsumerGroupTopicPartitions) -> ConsumerGroupTopicPartitions:
        self._connection.coordinator()
        known = self._broker.groups.get(request.group_id, {})
        wanted = request.topic_partitions or [TopicPartition(*place) for place in known]
        return ConsumerGroupTopicPartitions(
            request.group_id,
            [
                TopicPartition(each.topic, each.partition, known.get((each.topic, each.partition), -1001))
                for each in wanted
            ],
        )
