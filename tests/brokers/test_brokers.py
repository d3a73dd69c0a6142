"""Brokers start, die, come back with their data, and leave nothing behind."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import psutil
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from serving.kafka import Broker, free_ports, kafka_broker, kafka_cluster, light_broker
from serving.kafka_abandoned import abandon
from serving.kafka_topics import Record, create_topic, produce, read

from penstock.runtime.io.connectors.kafka.transaction_requests import TransactionError, end_transaction


@pytest.fixture(params=["light", pytest.param("real", marks=pytest.mark.kafka)])
def broker(request: pytest.FixtureRequest) -> Broker:
    """A broker with a process."""
    found: Broker = request.getfixturevalue(request.param)
    return found


def processes_below(folder: Path) -> list[psutil.Process]:
    """Processes whose command names a file below a folder."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(str(folder) in word for word in process.cmdline()):
                found.append(process)
    return found


def values(broker: Broker, topic: str = "topic") -> list[bytes | None]:
    return [record.value for record in read(broker.client(), topic)]


def test_a_broker_listens_on_loopback_only(broker: Broker) -> None:
    (process,) = processes_below(broker.log.parent)
    listening = [c for c in process.net_connections() if c.status == psutil.CONN_LISTEN]
    assert listening
    assert {c.laddr.ip.removeprefix("::ffff:") for c in listening} == {"127.0.0.1"}


def test_a_broker_ends_with_its_test_even_if_that_fails(tmp_path: Path) -> None:
    with contextlib.suppress(ZeroDivisionError), light_broker(tmp_path):
        assert processes_below(tmp_path)
        1 / 0  # noqa: B018 (the test fails)
    assert processes_below(tmp_path) == []


def test_a_light_broker_that_was_stopped_starts_again_with_its_records(tmp_path: Path) -> None:
    with light_broker(tmp_path) as broker:
        create_topic(broker.client(), "topic")
        produce(broker.client(), "topic", [Record(b"a")])
        broker.stop()
        assert not broker.is_running
        with pytest.raises(KafkaException):
            AdminClient({**broker.client(), "log_level": 0}).list_topics(timeout=0.2)
        broker.start()
        assert values(broker) == [b"a"]


@pytest.mark.kafka
def test_a_broker_that_was_killed_comes_back_with_its_records_and_transactions(tmp_path: Path) -> None:
    """A commit waits for it: closed ports, then a coordinator that is not yet one (14, 15, 16)."""
    with kafka_broker(tmp_path) as broker:
        create_topic(broker.client(), "topic")
        committed = abandon(broker.client(), "committed", "topic", ["a", "b"])
        end_transaction(broker.client(), "committed", committed.producer_id, committed.epoch, commit=True)
        left_open = abandon(broker.client(), "open", "topic", ["c"])
        broker.kill()
        failures: list[TransactionError] = []

        def commit() -> None:
            numbers = left_open.producer_id, left_open.epoch
            try:
                end_transaction(broker.client(), "open", *numbers, commit=True, timeout=120)
            except TransactionError as error:
                failures.append(error)

        committing = threading.Thread(target=commit)
        committing.start()
        broker.start()
        committing.join()
        assert failures == []
        assert values(broker) == [b"a", b"b", b"c"]
        broker.stop()
        assert not broker.is_running
    assert processes_below(tmp_path) == []


@pytest.mark.kafka
@pytest.mark.long
def test_two_of_three_brokers_continue_without_the_one_that_was_killed(tmp_path: Path) -> None:
    with kafka_cluster(tmp_path) as cluster:
        create_topic(cluster.client(), "topic")
        produce(cluster.client(), "topic", [Record(b"a")])
        first = cluster.leader("topic")
        first.kill()
        dead = abandon(cluster.client(), "id", "topic", ["b"])
        end_transaction(cluster.client(), "id", dead.producer_id, dead.epoch, commit=True)
        second = cluster.leader("topic")
        assert second is not first
        first.start()
        second.kill()
        produce(cluster.client(), "topic", [Record(b"c")])
        assert [record.value for record in read(cluster.client(), "topic")] == [b"a", b"b", b"c"]


def test_a_broker_that_is_paused_answers_when_it_is_resumed(broker: Broker) -> None:
    broker.pause()
    try:
        with pytest.raises(KafkaException):
            AdminClient({**broker.client(), "log_level": 0}).list_topics(timeout=0.5)
    finally:
        broker.resume()
    assert AdminClient(broker.client()).list_topics(timeout=60).brokers


@pytest.mark.kafka
def test_a_broker_that_ends_at_its_start_shows_its_log(tmp_path: Path) -> None:
    expected = r"(?s)the broker at 127\.0\.0\.1:\d+ ended with 1; its log ends with:.*no\.such\.Authorizer"
    settings = {"authorizer.class.name": "no.such.Authorizer"}
    with pytest.raises(AssertionError, match=expected), kafka_broker(tmp_path, settings=settings):
        pass
    assert processes_below(tmp_path) == []


def test_ports_differ_and_no_client_is_given_one_as_its_own() -> None:
    given = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    ports = free_ports(50)
    assert len(set(ports)) == 50
    assert max(ports) < int(given[0])
