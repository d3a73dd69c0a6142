"""`KafkaCluster`: the clients of a Kafka cluster, with checked settings, bounded calls and plain errors."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.runtime.errors import ConfigurationError, ConnectorError
from penstock.runtime.io.connectors.kafka.offsets import TopicPartition
from penstock.runtime.redaction import redacted, without_secrets

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient, OffsetSpec

T = TypeVar("T")

logger = logging.getLogger(__name__)

#: Seconds for an answer of the cluster.
REQUEST_TIMEOUT: Final = 30.0

#: Settings of librdkafka that Penstock sets itself, and what to do instead.
_OWN_SETTINGS: Final = {
    "bootstrap.servers": "use bootstrap_servers=",
    "metadata.broker.list": "use bootstrap_servers=",
    "group.id": "use group_id=",
    "isolation.level": "use isolation_level=",
    "auto.offset.reset": "use starting_offsets= and offset_reset=",
    "enable.auto.commit": "a completed checkpoint commits offsets",
    "enable.auto.offset.store": "a completed checkpoint commits offsets",
    "enable.partition.eof": "bounded= needs it",
    "on_commit": "a failed commit is logged",
    "transactional.id": "use transactional_id_prefix=",
    "transaction.timeout.ms": "use transaction_timeout=",
    "enable.idempotence": "it is always on",
    "on_delivery": "a record that is not delivered fails the job",
    "default.topic.config": "write its settings into properties",
}


@without_secrets
@dataclass(frozen=True)
class KafkaCluster:
    """The address of a cluster, and the settings of its clients.

    Attributes:
        properties: Settings of librdkafka (`security.protocol`, `sasl.password`, ...).
    """

    bootstrap_servers: str
    properties: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.bootstrap_servers, str) or not self.bootstrap_servers.strip():
            msg = f"bootstrap_servers={self.bootstrap_servers!r} is not allowed: write 'host:9092,host:9092'"
            raise ConfigurationError(msg)
        for name in self.properties:
            if name in _OWN_SETTINGS:
                msg = f"properties can't set {name!r}: {_OWN_SETTINGS[name]}"
                raise ConfigurationError(msg)

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of librdkafka for any client."""
        return {"bootstrap.servers": self.bootstrap_servers, **self.properties}

    def consumer(self, settings: Mapping[str, Any]) -> Consumer:
        from confluent_kafka import Consumer

        return self._client(Consumer, settings)

    def producer(self, settings: Mapping[str, Any]) -> Producer:
        from confluent_kafka import Producer

        return self._client(Producer, settings)

    def admin(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        return self._client(AdminClient, {})

    def _client(self, client: type[T], settings: Mapping[str, Any]) -> T:
        from confluent_kafka import KafkaException

        own = {"log_level": 4, "logger": logger}
        try:
            return client({**own, **self.settings, **settings})  # type: ignore[call-arg]
        except (KafkaException, ValueError, TypeError) as error:
            msg = f"the settings of the Kafka client are refused: {self._text(error)}"
            raise ConfigurationError(msg) from None

    def error(self, what: str, error: object) -> ConnectorError:
        """Make the error of a failed call; `error` is an exception or a `KafkaError`."""
        return self.failure(f"{what}: Kafka at {self.bootstrap_servers} answers {error}")

    def failure(self, error: object) -> ConnectorError:
        """Make an error whose text names the cluster already."""
        return ConnectorError(self._text(error))

    def _text(self, error: object) -> str:
        """Describe an error without the secrets among the settings."""
        text = redacted(str(error))
        for name, value in self.properties.items():
            if _IS_SECRET.search(name) and isinstance(value, str) and value:
                text = text.replace(value, "***")
        return text


#: Names of settings whose values are secret.
_IS_SECRET: Final = re.compile(
    r"password|secret|\.key|token|jaas|\.pem|sasl\.oauthbearer\.config", re.IGNORECASE
)


def check_installed() -> None:
    """Check that the client of librdkafka is installed.

    Raises:
        ConfigurationError: `confluent-kafka` is not installed.
    """
    try:
        import confluent_kafka  # noqa: F401
    except ImportError as error:
        msg = 'Kafka needs confluent-kafka: pip install "penstock[kafka]"'
        raise ConfigurationError(msg) from error


class PartitionMetadata:
    """Topics, partitions and offsets, as the brokers answer; calls block for at most `REQUEST_TIMEOUT`.

    Args:
        group_id: The group whose committed offsets are read.
        isolation_level: `"read_committed"` ends a partition at its first open transaction.
    """

    def __init__(self, cluster: KafkaCluster, group_id: str | None, isolation_level: str) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._isolation_level = isolation_level
        self._admin = cluster.admin()

    def partitions(self, topics: Collection[str], pattern: str | None) -> list[TopicPartition]:
        """List the partitions of these topics, or of the topics whose whole names match a pattern.

        Raises:
            ConnectorError: A topic does not exist, or no broker answers.
        """
        from confluent_kafka import KafkaException

        what = "the topics can't be listed"
        try:
            known = self._admin.list_topics(timeout=REQUEST_TIMEOUT).topics
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
                raise self._cluster.error(what, topic.error)
            found += [(name, number) for number in sorted(topic.partitions)]
        return found

    def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        from confluent_kafka.admin import OffsetSpec

        return self._listed(partitions, OffsetSpec.earliest())

    def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        from confluent_kafka.admin import OffsetSpec

        return self._listed(partitions, OffsetSpec.latest())

    def offsets_for_times(
        self, partitions: Collection[TopicPartition], milliseconds: int
    ) -> dict[TopicPartition, int]:
        """The first record with this timestamp or a later one; the end offset if there is none."""
        from confluent_kafka.admin import OffsetSpec

        found = self._listed(partitions, OffsetSpec.for_timestamp(milliseconds))
        beyond = [partition for partition, offset in found.items() if offset < 0]
        return found | (self.end_offsets(beyond) if beyond else {})

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets that the group has committed, without partitions that have none."""
        from confluent_kafka import ConsumerGroupTopicPartitions
        from confluent_kafka import TopicPartition as Place

        assert self._group_id is not None, "the source checks that it has a group"
        wanted = ConsumerGroupTopicPartitions(self._group_id, [Place(*partition) for partition in partitions])
        answers = self._admin.list_consumer_group_offsets([wanted], request_timeout=REQUEST_TIMEOUT)
        what = f"the offsets of group {self._group_id!r} can't be read"
        places = self._answer(what, answers[self._group_id]).topic_partitions
        for place in places:
            if place.error is not None:
                raise self._cluster.error(what, place.error)
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
