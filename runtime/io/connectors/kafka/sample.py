"""Reads a sample of topics, from which a format learns its schema."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from penstock.runtime.errors import ConnectorError
from penstock.runtime.io.connectors.kafka.cluster import REQUEST_TIMEOUT, KafkaCluster, passes
from penstock.runtime.io.connectors.kafka.partitions import (
    KafkaPartitionSplit,
    PartitionMetadata,
    TopicPartition,
)

#: Learns the schema of the values of some partitions, and returns it serialized.
LearnsSchema: TypeAlias = Callable[[Sequence[KafkaPartitionSplit], PartitionMetadata], bytes]

#: Seconds of one wait for records.
_POLL: Final = 0.5


def first_values(
    cluster: KafkaCluster,
    isolation_level: str,
    count: int,
    splits: Sequence[KafkaPartitionSplit],
    metadata: PartitionMetadata,
) -> list[bytes | None]:
    """Up to `count` values from a job's start offsets on, and earlier values if too few follow.

    Raises:
        ConnectorError: The partitions have no records, or Kafka does not answer.
    """
    names = [split.name for split in splits]
    begins, ends = metadata.beginning_offsets(names), metadata.end_offsets(names)
    share = -(-count // len(splits)) if splits else 0
    starts = {
        split.name: max(begins[split.name], min(split.next_offset, ends[split.name] - share))
        for split in splits
    }
    filled = {name: start for name, start in starts.items() if start < ends[name]}
    values = _read(cluster, isolation_level, count, filled) if filled else []
    if not values:
        msg = (
            "the schema of JSON can't be learned, because the topics have no records yet. Give Json a "
            "schema=, or start the job when they have some"
        )
        raise ConnectorError(msg)
    return values


def _read(
    cluster: KafkaCluster, isolation_level: str, count: int, starts: dict[TopicPartition, int]
) -> list[bytes | None]:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka import TopicPartition as Place

    settings = {
        "group.id": "penstock-sample",
        "isolation.level": isolation_level,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = cluster.consumer(settings)
    values: list[bytes | None] = []
    unread = set(starts)
    deadline = cluster.clients.monotonic() + REQUEST_TIMEOUT
    try:
        consumer.assign([Place(*name, start) for name, start in starts.items()])
        while unread and len(values) < count:
            if cluster.clients.monotonic() > deadline:
                msg = f"the schema of JSON can't be learned: reading a sample took over {REQUEST_TIMEOUT:g} s"
                raise ConnectorError(msg) from TimeoutError(msg)
            for message in consumer.consume(count - len(values), _POLL):
                error = message.error()
                if error is None:
                    values.append(message.value())
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard((str(message.topic()), int(message.partition() or 0)))
                elif not passes(error):
                    what = "the schema of JSON can't be learned"
                    raise cluster.error(what, error)
    except KafkaException as error:
        what = "the schema of JSON can't be learned"
        raise cluster.error(what, error) from error
    finally:
        consumer.close()
    return values
