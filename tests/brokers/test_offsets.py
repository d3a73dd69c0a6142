"""Offsets of partitions as the connector asks for them: of ends, of times, of groups; and epochs of ids."""

from __future__ import annotations

import pytest
from confluent_kafka import OFFSET_END, Producer, TopicPartition
from serving.kafka import Broker
from serving.kafka_clients import consumer, producer
from serving.kafka_topics import Record, produce, send

from penstock.runtime.io.connectors.kafka.cluster import KafkaCluster
from penstock.runtime.io.connectors.kafka.partitions import PartitionMetadata
from penstock.runtime.io.connectors.kafka.transaction_requests import describe_transaction

TIMES = (1_000, 3_000, 2_000, 4_000)


def metadata(broker: Broker, group: str = "group", isolation: str = "read_committed") -> PartitionMetadata:
    return PartitionMetadata(KafkaCluster(broker.bootstrap), group, isolation)


@pytest.mark.parametrize(("time", "offset"), [(0, 0), (1_000, 0), (1_001, 1), (3_500, 3), (4_001, 4)])
def test_the_first_record_of_a_time_or_later_is_found(
    broker: Broker, topic: str, time: int, offset: int
) -> None:
    produce(broker.client(), topic, [Record(b"", timestamp=at) for at in TIMES])
    assert metadata(broker).offsets_for_times([(topic, 0)], time) == {(topic, 0): offset}


def test_a_partition_ends_before_its_first_open_transaction_for_committed_reads(
    broker: Broker, topic: str, transactional_id: str
) -> None:
    produce(broker.client(), topic, [Record(b"a")])
    writer = producer({**broker.client(), "transactional.id": transactional_id})
    writer.init_transactions()
    writer.begin_transaction()
    send(writer, topic, [Record(b"open")])
    assert metadata(broker).beginning_offsets([(topic, 0)]) == {(topic, 0): 0}
    assert metadata(broker).end_offsets([(topic, 0)]) == {(topic, 0): 1}
    assert metadata(broker, isolation="read_uncommitted").end_offsets([(topic, 0)]) == {(topic, 0): 2}
    writer.abort_transaction()


def test_a_consumer_finds_ends_and_times_and_seeks(broker: Broker, topic: str) -> None:
    produce(broker.client(), topic, [Record(b"", timestamp=at) for at in TIMES])
    reader = consumer({**broker.client(), "group.id": topic})
    reader.assign([TopicPartition(topic, 0, 1)])
    offsets = []
    for place in (None, 3, 0):
        if place is not None:
            reader.seek(TopicPartition(topic, 0, place))
        message = reader.poll(60)
        assert message is not None
        offsets.append(message.offset())
    assert offsets == [1, 3, 0]
    assert reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=60) == (0, 4)
    (found,) = reader.offsets_for_times([TopicPartition(topic, 0, 1_001)], timeout=60)
    assert found.offset == 1
    reader.close()


@pytest.mark.parametrize(("isolation", "end"), [("read_committed", 1), ("read_uncommitted", 2)])
def test_a_consumer_asks_for_the_end_as_it_asks_for_a_time(
    broker: Broker, topic: str, transactional_id: str, isolation: str, end: int
) -> None:
    """`fetcher.py` finds the lag by this: one request for all partitions, as the consumer sees their ends."""
    produce(broker.client(), topic, [Record(b"a")])
    writer = producer({**broker.client(), "transactional.id": transactional_id})
    writer.init_transactions()
    writer.begin_transaction()
    send(writer, topic, [Record(b"open")])
    reader = consumer({**broker.client(), "group.id": topic, "isolation.level": isolation})
    (found,) = reader.offsets_for_times([TopicPartition(topic, 0, OFFSET_END)], timeout=60)
    assert (found.error, found.offset) == (None, end)
    reader.close()
    writer.abort_transaction()


def test_a_group_has_the_offsets_that_were_committed_to_it(
    broker: Broker, topic: str, transactional_id: str
) -> None:
    group = transactional_id
    assert metadata(broker, group).committed([(topic, 0)]) == {}
    reader = consumer({**broker.client(), "group.id": group})
    reader.commit(offsets=[TopicPartition(topic, 0, 7)], asynchronous=False)
    reader.close()
    assert metadata(broker, group).committed([(topic, 0)]) == {(topic, 0): 7}


@pytest.mark.parametrize("broker", ["model", pytest.param("real", marks=pytest.mark.kafka)], indirect=True)
def test_a_producer_raises_the_epoch_once_and_over_an_open_transaction_twice(
    broker: Broker, topic: str, transactional_id: str
) -> None:
    """`transactions.py` tells by this what has become of a committable."""

    def begin() -> None:
        writer = producer({**broker.client(), "transactional.id": transactional_id, "log_level": 2})
        writer.init_transactions()
        found = describe_transaction(broker.client(), transactional_id)
        assert found is not None
        epochs.append(found.epoch)
        writer.begin_transaction()
        send(writer, topic, [Record(b"a")])
        writers.append(writer)

    epochs: list[int] = []
    writers: list[Producer] = []
    begin()
    writers[-1].commit_transaction()
    begin()
    begin()
    assert [epoch - epochs[0] for epoch in epochs] == [0, 1, 3]
    writers[-1].abort_transaction()
