"""A transaction hides its records until it ends, and any process that knows its numbers can end it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from kafka.errors import for_code
from serving.kafka import Broker
from serving.kafka_abandoned import abandon
from serving.kafka_clients import consumer, producer
from serving.kafka_security import Settings
from serving.kafka_topics import Isolation, Record, produce, read, send

from penstock.runtime.io.connectors.kafka.transaction_requests import (
    TransactionError,
    TransactionListing,
    client_settings,
    describe_transaction,
    end_transaction,
    list_transactions,
)

#: The light broker forgives what these refuse.
STRICT = ["model", pytest.param("real", marks=pytest.mark.kafka)]


def values(broker: Broker, topic: str, isolation: Isolation = "read_committed") -> list[bytes | None]:
    return [record.value for record in read(broker.client(), topic, isolation)]


def begun(broker: Broker, transactional_id: str, topic: str, value: bytes) -> Producer:
    """A producer with an open transaction of one record."""
    # A failure that a test expects keeps its producer beyond the end of the broker.
    quiet: Settings = {**broker.client(), "log_level": 2}
    begun = producer({**quiet, "transactional.id": transactional_id})
    begun.init_transactions()
    begun.begin_transaction()
    send(begun, topic, [Record(value)])
    return begun


def test_records_are_hidden_until_their_transaction_is_committed(
    broker: Broker, topic: str, transactional_id: str
) -> None:
    writer = begun(broker, transactional_id, topic, b"hidden")
    assert values(broker, topic) == []
    assert values(broker, topic, "read_uncommitted") == [b"hidden"]
    writer.commit_transaction()
    assert values(broker, topic) == [b"hidden"]


def test_records_of_an_aborted_transaction_are_never_seen(
    broker: Broker, topic: str, transactional_id: str
) -> None:
    begun(broker, transactional_id, topic, b"aborted").abort_transaction()
    produce(broker.client(), topic, [Record(b"after")])
    assert values(broker, topic) == [b"after"]
    assert values(broker, topic, "read_uncommitted") == [b"aborted", b"after"]


def test_an_open_transaction_holds_back_what_others_write_behind_it(
    broker: Broker, topic: str, transactional_id: str
) -> None:
    produce(broker.client(), topic, [Record(b"before")])
    writer = begun(broker, transactional_id, topic, b"open")
    produce(broker.client(), topic, [Record(b"behind")])
    assert values(broker, topic) == [b"before"]
    writer.abort_transaction()
    assert values(broker, topic) == [b"before", b"behind"]


def test_offsets_are_committed_with_the_transaction(
    broker: Broker, topic: str, transactional_id: str
) -> None:
    writer = begun(broker, transactional_id, topic, b"result")
    reader = consumer({**broker.client(), "group.id": transactional_id})
    position = TopicPartition(topic, 0, 7)
    writer.send_offsets_to_transaction([position], reader.consumer_group_metadata())
    writer.commit_transaction()
    assert [found.offset for found in reader.committed([TopicPartition(topic, 0)], timeout=60)] == [7]
    reader.close()


def test_a_new_producer_fences_the_older_one_with_its_transactional_id(
    broker: Broker, topic: str, transactional_id: str
) -> None:
    older = begun(broker, transactional_id, topic, b"older")
    begun(broker, transactional_id, topic, b"newer").commit_transaction()
    with pytest.raises(KafkaException, match="fenced"):
        older.commit_transaction()
    assert values(broker, topic) == [b"newer"]


def test_another_process_commits_what_a_dead_producer_has_flushed(
    broker: Broker, topic: str, transactional_id: str
) -> None:
    dead = abandon(broker.client(), transactional_id, topic, ["a", "b"])
    assert values(broker, topic) == []
    for _ in ("first", "the answer was lost"):
        end_transaction(broker.client(), transactional_id, dead.producer_id, dead.epoch, commit=True)
        assert values(broker, topic) == [b"a", b"b"]


def test_another_process_aborts_what_a_dead_producer_has_flushed(
    broker: Broker, topic: str, transactional_id: str
) -> None:
    dead = abandon(broker.client(), transactional_id, topic, ["a", "b"])
    produce(broker.client(), topic, [Record(b"behind")])
    end_transaction(broker.client(), transactional_id, dead.producer_id, dead.epoch, commit=False)
    assert values(broker, topic) == [b"behind"]


def test_a_transaction_that_a_newer_producer_has_superseded_is_refused(
    broker: Broker, topic: str, transactional_id: str
) -> None:
    dead = abandon(broker.client(), transactional_id, topic, ["superseded"])
    newer = begun(broker, transactional_id, topic, b"newer")
    with pytest.raises(TransactionError, match=f"{transactional_id}.*another producer") as refusal:
        end_transaction(broker.client(), transactional_id, dead.producer_id, dead.epoch, commit=True)
    assert not refusal.value.is_retriable
    newer.commit_transaction()
    assert values(broker, topic) == [b"newer"]


@pytest.mark.parametrize("broker", STRICT, indirect=True)
def test_an_epoch_that_never_was_is_refused(broker: Broker, topic: str, transactional_id: str) -> None:
    dead = abandon(broker.client(), transactional_id, topic, ["a"])
    with pytest.raises(TransactionError, match="another producer") as refusal:
        end_transaction(broker.client(), transactional_id, dead.producer_id, dead.epoch + 1, commit=True)
    assert not refusal.value.is_retriable
    assert values(broker, topic) == []


@pytest.mark.parametrize("broker", STRICT, indirect=True)
def test_a_transaction_that_was_aborted_is_not_committed(
    broker: Broker, topic: str, transactional_id: str
) -> None:
    dead = abandon(broker.client(), transactional_id, topic, ["a"])
    end_transaction(broker.client(), transactional_id, dead.producer_id, dead.epoch, commit=False)
    with pytest.raises(TransactionError, match="ended the other way") as refusal:
        end_transaction(broker.client(), transactional_id, dead.producer_id, dead.epoch, commit=True)
    assert (refusal.value.code, refusal.value.is_retriable) == (48, False)


@pytest.mark.parametrize("broker", STRICT, indirect=True)
def test_kafka_aborts_a_transaction_at_its_timeout_and_refuses_its_commit(
    broker: Broker, topic: str, transactional_id: str
) -> None:
    settings = {**broker.client(), "transaction.timeout.ms": 1_000}
    dead = abandon(settings, transactional_id, topic, ["lost"])
    deadline = time.monotonic() + 60
    while (found := describe_transaction(broker.client(), transactional_id)) is None or (
        found.state != "CompleteAbort"
    ):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    with pytest.raises(TransactionError, match="at its timeout") as refusal:
        end_transaction(broker.client(), transactional_id, dead.producer_id, dead.epoch, commit=True)
    assert not refusal.value.is_retriable
    assert values(broker, topic) == []


def test_transactions_are_listed_and_described(broker: Broker, topic: str, transactional_id: str) -> None:
    dead = abandon(broker.client(), transactional_id, topic, ["a"])
    found = describe_transaction(broker.client(), transactional_id)
    assert found is not None
    assert (found.producer_id, found.epoch, found.state) == (dead.producer_id, dead.epoch, "Ongoing")
    assert (found.timeout, found.partitions) == (60.0, frozenset({(topic, 0)}))
    assert found.started_at is not None
    listing = TransactionListing(transactional_id, dead.producer_id, "Ongoing")
    assert listing in list_transactions(broker.client(), states=["Ongoing"])
    end_transaction(broker.client(), transactional_id, dead.producer_id, dead.epoch, commit=True)
    assert listing not in list_transactions(broker.client(), states=["Ongoing"])


def test_a_transactional_id_that_was_never_used_has_no_description(
    broker: Broker, transactional_id: str
) -> None:
    assert describe_transaction(broker.client(), transactional_id) is None


def test_the_first_requests_of_a_process_may_come_from_several_threads() -> None:
    """Each would import kafka-python, whose modules import each other in circles."""
    program = [sys.executable, str(Path(__file__).with_name("first_requests.py"))]
    assert subprocess.run(program, capture_output=True, text=True).stdout == "TransactionError\n"


def test_brokers_that_do_not_answer_until_the_timeout_are_named() -> None:
    with pytest.raises(TransactionError, match=r"could not be committed at 127\.0\.0\.1:1") as failure:
        end_transaction({"bootstrap.servers": "127.0.0.1:1"}, "id", 1, 0, commit=True, timeout=0.2)
    assert (failure.value.code, failure.value.is_retriable) == (None, True)


@pytest.mark.parametrize(
    ("codes", "are_retriable"), [((14, 15, 16, 51), True), ((47, 48, 49, 53, 58, 90), False)]
)
def test_errors_that_pass_are_told_from_those_that_stay(codes: tuple[int, ...], are_retriable: bool) -> None:
    assert {for_code(code).retriable for code in codes} == {are_retriable}


def test_settings_of_librdkafka_are_translated_and_those_of_speed_left_out() -> None:
    settings = {
        "bootstrap.servers": "a:1",
        "sasl.username": "u",
        "ssl.ca.location": "ca",
        "ssl.endpoint.identification.algorithm": "none",
        "linger.ms": 5,
    }
    assert client_settings(settings) == {
        "bootstrap_servers": "a:1",
        "sasl_plain_username": "u",
        "ssl_cafile": "ca",
        "ssl_check_hostname": False,
    }


def test_a_setting_of_security_that_can_not_be_translated_is_refused_without_its_value() -> None:
    with pytest.raises(ValueError, match=r"'ssl\.key\.pem' can't be used.*ssl\.key\.location") as refusal:
        client_settings({"ssl.key.pem": "-----BEGIN"})
    assert "BEGIN" not in str(refusal.value)
