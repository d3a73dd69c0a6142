"""The leaders of a modelled cluster, whose brokers die and come back."""

from __future__ import annotations

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from penstock.runtime.io.connectors.kafka.simulated.broker import SimulatedBroker
from penstock.runtime.io.connectors.kafka.simulated.connection import Connection
from penstock.runtime.io.connectors.kafka.simulated.leaders import Leaders
from penstock.runtime.io.connectors.kafka.simulated.simulated_clients import SimulatedClients
from penstock.runtime.testing.connectors.outside import ScriptedCalls
from penstock.runtime.testing.manual_time import ManualClock

PLACES = [("orders", number) for number in range(3)]


def test_each_broker_leads_a_part_and_another_one_takes_over_from_one_that_died() -> None:
    clock = ManualClock()
    leaders = Leaders(3, clock)
    before = {place: leaders.of(place) for place in PLACES}
    assert sorted(before.values(), key=str) == [1, 2, 3]
    (lost,) = [place for place, leader in before.items() if leader == 2]
    leaders.die(2, election=1.0, absence=10.0)
    assert [leaders.of(place) for place in PLACES if place != lost] == [
        leader for leader in before.values() if leader != 2
    ]
    assert leaders.of(lost) is None
    clock.advance(1.0)
    assert leaders.of(lost) == 3
    clock.advance(10.0)
    assert leaders.of(lost) == 3  # it came back as a follower


def test_a_broker_that_is_back_before_the_election_leads_again() -> None:
    clock = ManualClock()
    leaders = Leaders(2, clock)
    (place,) = [place for place in PLACES[:2] if leaders.of(place) == 1]
    leaders.die(1, election=5.0, absence=1.0)
    assert leaders.of(place) is None
    clock.advance(1.0)
    assert leaders.of(place) == 1


class Cluster:
    """A cluster of three brokers and its clients; one partition has no leader for a second."""

    def __init__(self) -> None:
        self.run = ScriptedCalls()
        self.broker = SimulatedBroker(self.run.clock, brokers=3)
        self.broker.create_topic("orders", 3)
        self.clients = SimulatedClients(Connection(self.broker, self.run))
        self.broker.leaders.die(2, election=1.0, absence=10.0)
        (self.lost,) = [place for place in PLACES if self.broker.leaders.of(place) is None]

    def put(self) -> None:
        producer = self.clients.producer({})
        for name, number in PLACES:
            producer.produce(name, b"value", partition=number)
        assert producer.flush(60.0) == 0


def test_records_wait_for_the_new_leader_and_others_go_through() -> None:
    cluster = Cluster()
    cluster.put()
    assert cluster.run.clock.monotonic() >= 1.0
    assert [log.end for log in cluster.broker.topic("orders").partitions] == [1, 1, 1]


def test_a_flush_that_ends_before_the_election_leaves_these_records() -> None:
    cluster = Cluster()
    producer = cluster.clients.producer({})
    for name, number in PLACES:
        producer.produce(name, b"value", partition=number)
    assert producer.flush(0.5) == 1
    logs = cluster.broker.topic("orders").partitions
    assert [log.end for place, log in zip(PLACES, logs, strict=True) if place != cluster.lost] == [1, 1]


def test_a_consumer_gets_no_record_and_no_error_of_a_partition_without_a_leader() -> None:
    cluster = Cluster()
    cluster.put()
    cluster.broker.leaders.die(3, election=1.0, absence=10.0)
    consumer = cluster.clients.consumer({"group.id": "g"})
    consumer.assign([TopicPartition(*place, 0) for place in PLACES])
    led = [place for place in PLACES if cluster.broker.leaders.of(place) is not None]
    found = consumer.consume(10, 0)
    assert sorted((each.topic(), each.partition()) for each in found) == led
    cluster.run.spend(1.0)
    assert len(consumer.consume(10, 0)) == 3 - len(led)


def test_metadata_has_all_brokers_and_the_leader_of_each_partition() -> None:
    cluster = Cluster()
    admin = cluster.clients.admin({})
    metadata = admin.list_topics()
    assert sorted(metadata.brokers) == [1, 2, 3]
    leaders = {number: each.leader for number, each in metadata.topics["orders"].partitions.items()}
    assert leaders[cluster.lost[1]] == -1
    assert sorted(leaders.values())[1:] == [1, 3]
    place = TopicPartition(*cluster.lost)
    (future,) = admin.list_offsets({place: OffsetSpec.latest()}).values()
    assert future.result().offset == 0  # the request waits for the new leader
    assert cluster.run.clock.monotonic() >= 1.0
