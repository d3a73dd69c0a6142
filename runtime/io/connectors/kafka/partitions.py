"""Partitions of topics: their names, their offsets, and how far a job has read them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from penstock.runtime.errors import ConnectorError
from penstock.runtime.io.connectors.kafka.cluster import REQUEST_TIMEOUT, KafkaCluster, Refusals

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka.admin import OffsetSpec, TopicMetadata

T = TypeVar("T")

#: A partition: its topic and its number.
TopicPartition: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class KafkaPartitionSplit:
    """A partition with the offset of the next record (Flink's class).

    Attributes:
        stopping_offset: The first offset that is not read any more; `None` reads for ever.
        schema: The schema of values that the job has learned, serialized; empty if it learns none.
    """

    topic: str
    partition: int
    next_offset: int
    stopping_offset: int | None = None
    schema: bytes = b""

    @property
    def name(self) -> TopicPartition:
        return self.topic, self.partition

    @property
    def is_finished(self) -> bool:
        return self.stopping_offset is not None and self.next_offset >= self.stopping_offset


class PartitionMetadata:
    """Topics, partitions and offsets, as the brokers answer; a request takes `REQUEST_TIMEOUT` at most.

    Args:
        group_id: The group whose committed offsets are read.
        isolation_level: `"read_committed"` ends a partition at its first open transaction.
    """

    def __init__(self, cluster: KafkaCluster, group_id: str | None, isolation_level: str) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._isolation_level = isolation_level
        self._refusals = Refusals()
        self._admin = cluster.admin(self._refusals)

    def partitions(self, topics: Collection[str], pattern: str | None) -> list[TopicPartition]:
        """List the partitions of these topics, or of the topics whose whole names match a pattern.

        A pattern matches no names that begin with `__`.

        Raises:
            ConnectorError: A topic does not exist, or no broker answers.
        """
        from confluent_kafka import KafkaException

        what = "the topics can't be listed"
        try:
            known = self._refusals.ask(self._admin, self._topics, REQUEST_TIMEOUT)
        except KafkaException as error:
            raise self._cluster.error(what, error) from error
        if pattern is not None:
            named = re.compile(pattern)
            topics = [name for name in sorted(known) if named.fullmatch(name) and not name.startswith("__")]
        found: list[TopicPartition] = []
        for name in topics:
            topic = known.get(name)
            if topic is None:
                msg = f"Kafka at {self._cluster.bootstrap_servers} has no topic {name!r}: create it first"
                raise ConnectorError(msg)
            if topic.error is not None:
                what = f"topic {name!r} can't be read"
                raise self._cluster.error(what, topic.error) from KafkaException(topic.error)
            found += [(name, number) for number in sorted(topic.partitions)]
        return found

    def _topics(self, timeout: float) -> Mapping[str, TopicMetadata]:
        return self._admin.list_topics(timeout=timeout).topics

    def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        from confluent_kafka.admin import OffsetSpec

        return self._listed(partitions, OffsetSpec.earliest())

    def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        from confluent_kafka.admin import OffsetSpec

        return self._listed(partitions, OffsetSpec.latest())

    def offsets_for_times(
        self, partitions: Collection[TopicPartition], milliseconds: int
    ) -> dict[TopicPartition, int]:
        """The offset of the first record with this timestamp or a later one; the end offset without one."""
        from confluent_kafka.admin import OffsetSpec

        found = self._listed(partitions, OffsetSpec.for_timestamp(milliseconds))
        beyond = [partition for partition, offset in found.items() if offset < 0]
        return found | (self.end_offsets(beyond) if beyond else {})

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets that the group has committed, without partitions that have none."""
        from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
        from confluent_kafka import TopicPartition as Place

        assert self._group_id is not None, "the source checks that it has a group"
        wanted = ConsumerGroupTopicPartitions(self._group_id, [Place(*partition) for partition in partitions])
        answers = self._admin.list_consumer_group_offsets([wanted], request_timeout=REQUEST_TIMEOUT)
        what = f"the offsets of group {self._group_id!r} can't be read"
        places = self._answer(what, answers[self._group_id]).topic_partitions
        for place in places:
            if place.error is not None:
                raise self._cluster.error(what, place.error) from KafkaException(place.error)
        return {(place.topic, place.partition): place.offset for place in places if place.offset >= 0}

    def _listed(self, partitions: Iterable[TopicPartition], wanted: OffsetSpec) -> dict[TopicPartition, int]:
        from confluent_kafka import IsolationLevel
        from confluent_kafka import TopicPartition as Place

        level = (
            IsolationLevel.READ_COMMITTED
            if self._isolation_level == "read_committed"
            else IsolationLevel.READ_UNCOMMITTED
        )
        asked = {Place(*partition): wanted for partition in partitions}
        if not asked:
            return {}
        answers = self._admin.list_offsets(asked, isolation_level=level, request_timeout=REQUEST_TIMEOUT)
        return {
            (place.topic, place.partition): self._answer(
                f"the offset of partition {place.partition} of topic {place.topic!r} can't be read", answer
            ).offset
            for place, answer in answers.items()
        }

    def _answer(self, what: str, answer: Future[T]) -> T:
        from confluent_kafka import KafkaException

        try:
            return answer.result(REQUEST_TIMEOUT + 5)
        except (KafkaException, TimeoutError) as error:
            raise self._cluster.error(what, error) from error
