"""`KafkaSource`: reads topics of Kafka, each record exactly once (Flink's `KafkaSource`).

The position of each partition is in the job's checkpoints. A restored job continues there, whatever a
consumer group has committed. With `group_id`, the offsets of completed checkpoints are also committed to the
group. They are for monitoring, and for a job without a snapshot that starts at `committed_offsets`.

- `enumerator.py` finds partitions and gives each to a reader. `offsets.py` has their starts and stops.
- `fetcher.py` polls the consumer in a thread of its own. `records.py` decodes the messages.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from operator import methodcaller
from typing import Any, ClassVar, Final, Generic, Literal, TypeVar

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.connectors.errors import OnError, checked_setting
from penstock.runtime.io.connectors.kafka.cluster import KafkaCluster, check_installed
from penstock.runtime.io.connectors.kafka.enumerator import (
    DISCOVER_EVERY,
    EnumeratorState,
    KafkaSourceEnumerator,
    Subscription,
)
from penstock.runtime.io.connectors.kafka.fetcher import KafkaFetcher
from penstock.runtime.io.connectors.kafka.offsets import OFFSET_RESETS, OffsetReset, OffsetsInitializer
from penstock.runtime.io.connectors.kafka.partitions import KafkaPartitionSplit, PartitionMetadata
from penstock.runtime.io.connectors.kafka.reader import KafkaReader
from penstock.runtime.io.connectors.kafka.records import KAFKA, METADATA, MetadataField
from penstock.runtime.io.connectors.kafka.sample import first_values
from penstock.runtime.io.connectors.messages.deserializer import KeyDecoder, MessageDeserializer
from penstock.runtime.io.connectors.messages.settings import check_learns_nothing
from penstock.runtime.io.formats.format import Decoder, Format, HasSubject
from penstock.runtime.io.formats.json_format import Json
from penstock.runtime.io.formats.json_learning import schema_of_values
from penstock.runtime.io.formats.plain import Raw, Text
from penstock.runtime.names import NearestNames
from penstock.runtime.operators.metrics import Counter
from penstock.runtime.operators.source import ConnectorContext, SplitEnumeratorContext
from penstock.runtime.record.elements import BatchFormat
from penstock.runtime.redaction import without_secrets
from penstock.runtime.time.durations import Duration, seconds_in

T_co = TypeVar("T_co", covariant=True)

logger = logging.getLogger(__name__)

#: Settings of librdkafka that a user may replace. By default librdkafka waits a second at a full queue.
_DEFAULTS: Final[Mapping[str, Any]] = {
    "fetch.queue.backoff.ms": 10,
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 65_536,
    "fetch.max.bytes": 50 * 1024 * 1024,
    "max.partition.fetch.bytes": 8 * 1024 * 1024,
    "statistics.interval.ms": 0,
}


@without_secrets
@dataclass(frozen=True)
class KafkaSource(Generic[T_co], metaclass=NearestNames):
    """Reads topics; a record is the decoded value of a message.

    Attributes:
        bootstrap_servers: Brokers as `host:port`, separated by commas.
        topics: A topic or several; give either these or `topic_pattern`.
        topic_pattern: Regular expression that matches whole names of topics; names that begin with `__` are
            left out. New topics are found with new partitions, as `discover_every` says.
        value_format: Decodes the values of messages.
        metadata: Fields of the message that are added to the fields of the value: `"topic"`,
            `"partition"`, `"offset"`, `"timestamp"` (microseconds), `"headers"`, `"key"`. They replace fields
            of the value with these names. A value that is not a dict becomes the field `value`.
        key_format: Decodes the keys of messages. A key becomes the field `key_field` of its record: a struct
            in columns, unless the format is `Raw` or `Text`. The key of a message without one is `None`.
        key_field: Name of the field with the decoded key; it replaces a field of the value with this name.
        starting_offsets: Where a job without a snapshot starts; partitions found later start at their first
            record.
        bounded: Offsets at which the source stops; it ends when all partitions have stopped. `None` reads for
            ever.
        group_id: The group to which offsets of completed checkpoints are committed, for monitoring.
        isolation_level: `"read_committed"` leaves out records of open and aborted transactions.
        offset_reset: What happens if the record at a partition's offset has been deleted. `"error"` fails the
            job. `"earliest"` and `"latest"` continue at that end of the partition.
        discover_every: Interval at which the source looks for new partitions. With `None` or `bounded` it
            looks only once.
        on_error: What happens to a value that can't be decoded: `"fail"`, `"skip"` or `"dead_letter"`.
        batch_format: `"rows"`, or `"arrow"` for Arrow batches.
        properties: Further settings of librdkafka, such as `security.protocol`. Secrets are never shown.

    Raises:
        ConfigurationError: A setting has a value that is not allowed, or confluent-kafka is not installed.

    Example:
        >>> source = KafkaSource("localhost:9092", "orders", metadata=("partition", "offset"))
        >>> source.topics, source.starting_offsets.kind
        (('orders',), 'earliest')
    """

    only_reads: ClassVar[bool] = True

    bootstrap_servers: str
    topics: str | Sequence[str] = ()
    _: KW_ONLY
    topic_pattern: str | None = None
    value_format: Format = field(default_factory=Json)
    metadata: Sequence[MetadataField] = ()
    key_format: Format | None = None
    key_field: str = "key"
    starting_offsets: OffsetsInitializer = field(default_factory=OffsetsInitializer.earliest)
    bounded: OffsetsInitializer | None = None
    group_id: str | None = None
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed"
    offset_reset: OffsetReset = "error"
    discover_every: Duration | None = DISCOVER_EVERY
    on_error: OnError = "fail"
    batch_format: BatchFormat = "rows"
    properties: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        check_installed()
        topics = (self.topics,) if isinstance(self.topics, str) else tuple(self.topics)
        object.__setattr__(self, "topics", topics)
        self._check_topics(topics)
        KafkaCluster(self.bootstrap_servers, self.properties)
        for name in self.metadata:
            checked_setting("metadata", name, tuple(METADATA))
        if self.key_format is not None:
            check_learns_nothing("key_format", self.key_format)
        if self.key_format is not None and self.key_field in self.metadata:
            msg = (
                f"metadata and key_format both make the field {self.key_field!r}: leave it out of metadata, "
                "or give the decoded key another name with key_field="
            )
            raise ConfigurationError(msg)
        checked_setting("isolation_level", self.isolation_level, ("read_committed", "read_uncommitted"))
        checked_setting("offset_reset", self.offset_reset, OFFSET_RESETS)
        checked_setting("on_error", self.on_error, ("fail", "skip", "dead_letter"))
        checked_setting("batch_format", self.batch_format, ("rows", "arrow"))
        if self.group_id is None and "committed" in {
            at.kind for at in (self.starting_offsets, self.bounded) if at is not None
        }:
            msg = "OffsetsInitializer.committed_offsets() needs group_id="
            raise ConfigurationError(msg)
        if self.discover_every is not None:
            every = seconds_in("discover_every", self.discover_every, above=0.0)
            object.__setattr__(self, "discover_every", every)

    def _check_topics(self, topics: tuple[str, ...]) -> None:
        if bool(topics) == (self.topic_pattern is not None):
            msg = "give either topics or topic_pattern"
            raise ConfigurationError(msg)
        if len(set(topics)) < len(topics):
            msg = f"topics={topics!r} names a topic twice"
            raise ConfigurationError(msg)
        try:
            re.compile(self.topic_pattern or "")
        except re.error as error:
            msg = f"topic_pattern={self.topic_pattern!r} is not a regular expression: {error}"
            raise ConfigurationError(msg) from error

    @property
    def _cluster(self) -> KafkaCluster:
        return KafkaCluster(self.bootstrap_servers, self.properties)

    @property
    def _subscription(self) -> Subscription:
        every = None if self.discover_every is None else seconds_in("discover_every", self.discover_every)
        return Subscription(
            tuple(self.topics),
            self.topic_pattern,
            self.starting_offsets,
            self.bounded,
            every,
            partial(PartitionMetadata, self._cluster, self.group_id, self.isolation_level),
            self._cluster.clients.wait,
            self._learn if isinstance(self.value_format, Json) and self.value_format.learns else None,
        )

    def _learn(self, splits: Sequence[KafkaPartitionSplit], metadata: PartitionMetadata) -> bytes:
        assert isinstance(self.value_format, Json)
        count = self.value_format.sample
        return schema_of_values(first_values(self._cluster, self.isolation_level, count, splits, metadata))

    def splits(self, parallelism: int) -> Sequence[KafkaPartitionSplit]:
        """List the partitions that exist now."""
        return self._subscription.find((), is_first=True)

    def enumerator(
        self, context: SplitEnumeratorContext, state: EnumeratorState | None
    ) -> KafkaSourceEnumerator:
        """Make the enumerator, which also assigns partitions while the job runs."""
        return KafkaSourceEnumerator(self._subscription, context, state)

    def reader(self, context: ConnectorContext, splits: Sequence[KafkaPartitionSplit]) -> KafkaReader[T_co]:
        """Make the reader of one subtask, with a consumer and a thread of its own."""
        settings = {
            **{name: value for name, value in _DEFAULTS.items() if name not in self.properties},
            "client.id": self.properties.get(
                "client.id", f"{context.job_id}-{context.operator_id}-{context.subtask}"
            ),
            "group.id": self.group_id or f"penstock-{context.job_id}",
            "isolation.level": self.isolation_level,
            "auto.offset.reset": self.offset_reset,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "on_commit": partial(
                _committed, context.counter("commits_succeeded"), context.counter("commits_failed")
            ),
        }
        deserializer = MessageDeserializer(
            KAFKA, self._decoder(self.value_format), tuple(self.metadata), self.on_error, self._keys
        )
        consumer = self._cluster.consumer(settings)
        fetcher = KafkaFetcher(self._cluster, consumer, deserializer, context.counter("bytes_in"))
        is_arrow = self.batch_format == "arrow"
        return KafkaReader(fetcher, splits, is_arrow=is_arrow, commits=self.group_id is not None)

    def _decoder(self, form: Format, *, is_key: bool = False) -> Decoder:
        if isinstance(form, HasSubject) and len(self.topics) == 1:
            form = form.for_topic(self.topics[0], is_key=is_key)
        return form.decoder(self.batch_format)

    @property
    def _keys(self) -> KeyDecoder[Any] | None:
        form = self.key_format
        if form is None:
            return None
        is_column = isinstance(form, (Raw, Text))
        return KeyDecoder(methodcaller("key"), self._decoder(form, is_key=True), self.key_field, is_column)


def _committed(succeeded: Counter, failed: Counter, error: Any, partitions: Any) -> None:
    """Count commits, and log a failed one; no restored job uses these offsets."""
    if error is None:
        succeeded.increment()
    else:
        failed.increment()
        logger.warning("offsets can't be committed to the group: %s", error)
