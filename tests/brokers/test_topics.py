"""Records come back as they were written, from our reader and from Kafka's own consumer in Java."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from confluent_kafka import Producer
from serving.kafka import Broker
from serving.kafka_clients import producer
from serving.kafka_topics import (
    Isolation,
    Record,
    create_topic,
    end_offsets,
    produce,
    read,
    read_with_java,
    send,
)

RECORDS = [
    Record(b"value", b"key", (("name", b"1"), ("name", b"2"), ("none", None)), 1_000, 0, 0),
    Record(b"", b"", (("empty", b""),), 2_000, 0, 1),
    Record(None, b"deleted", (), 3_000, 1, 0),
    Record(bytes(range(256)), bytes(range(256)), (("bytes", bytes(range(256))),), 4_000, 2, 0),
]


@pytest.fixture
def written(broker: Broker) -> str:
    """A topic with these records, and behind them one that was aborted and one that is open."""
    topic = f"topic-{uuid.uuid4()}"
    create_topic(broker.client(), topic, partitions=3)
    produce(broker.client(), topic, RECORDS)
    return topic


def with_open_transaction(broker: Broker, topic: str) -> Producer:
    """A producer that has aborted a transaction, and then begun another one behind all records."""
    writer = producer({**broker.client(), "transactional.id": f"id-{uuid.uuid4()}"})
    writer.init_transactions()
    writer.begin_transaction()
    send(writer, topic, [Record(b"aborted", timestamp=5_000, partition=1)])
    writer.abort_transaction()
    writer.begin_transaction()
    send(writer, topic, [Record(b"open", timestamp=6_000, partition=1)])
    return writer


def test_records_come_back_with_key_headers_time_partition_and_offset(broker: Broker, written: str) -> None:
    assert read(broker.client(), written) == RECORDS


def test_a_reader_ends_where_its_isolation_ends(broker: Broker, written: str) -> None:
    writer = with_open_transaction(broker, written)
    others = [Record(b"aborted", None, (), 5_000, 1, 1), Record(b"open", None, (), 6_000, 1, 3)]
    everything = sorted([*RECORDS, *others], key=lambda record: (record.partition, record.offset))
    assert read(broker.client(), written) == RECORDS
    assert read(broker.client(), written, "read_uncommitted") == everything
    assert end_offsets(broker.client(), written) == {0: 2, 1: 3, 2: 1}
    assert end_offsets(broker.client(), written, "read_uncommitted") == {0: 2, 1: 4, 2: 1}
    writer.abort_transaction()


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_from_compressed_batches(broker: Broker, topic: str, codec: str) -> None:
    records = [Record(b"value" * 100, timestamp=1_000, partition=0, offset=offset) for offset in range(100)]
    produce({**broker.client(), "compression.type": codec}, topic, records)
    assert read(broker.client(), topic) == records


@pytest.mark.kafka
@pytest.mark.parametrize("broker", ["real"], indirect=True)
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_the_consumer_in_java_reads_the_same(
    broker: Broker, written: str, tmp_path: Path, isolation: Isolation
) -> None:
    writer = with_open_transaction(broker, written)
    read_by_us = read(broker.client(), written, isolation)
    assert len(read_by_us) == {"read_committed": 4, "read_uncommitted": 6}[isolation]
    assert read_with_java(broker.bootstrap, written, tmp_path, isolation) == read_by_us
    writer.abort_transaction()


def test_a_record_that_the_broker_refuses_is_reported(broker: Broker) -> None:
    topic = f"topic-{uuid.uuid4()}"
    create_topic(broker.client(), topic, max_message_bytes="100")
    with pytest.raises(AssertionError, match="Message size too large"):
        produce(broker.client(), topic, [Record(b"x" * 1_000)])
