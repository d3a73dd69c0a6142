"""Listeners of Apache Kafka with passwords and with TLS: who gets in, and who does not."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from serving.kafka import Broker
from serving.kafka_security import Listener, Settings
from serving.kafka_topics import Record, create_topic, produce, read

from penstock.connectors import SinkContext
from penstock.kafka import KafkaSink, KafkaSource
from penstock.operators import RowBatch
from penstock.runtime.errors import ConnectorError
from penstock.runtime.io.connectors.kafka.transaction_requests import TransactionError, list_transactions
from penstock.testing import ManualClock

pytestmark = pytest.mark.kafka

SECURE: list[Listener] = ["SASL_PLAINTEXT", "SSL", "SASL_SSL"]
WITH_PASSWORD: list[Listener] = ["SASL_PLAINTEXT", "SASL_SSL"]
WITH_TLS: list[Listener] = ["SSL", "SASL_SSL"]


def refusal(settings: Settings) -> KafkaError:
    """The first reason why a client of librdkafka does not get in."""
    reasons: list[KafkaError] = []
    client = Producer({**settings, "error_cb": reasons.append, "log_level": 0})
    deadline = time.monotonic() + 60
    while not reasons:
        assert time.monotonic() < deadline, "the client was not refused"
        client.poll(0.1)
    return reasons[0]


@pytest.mark.parametrize("listener", SECURE)
def test_a_client_with_the_right_settings_writes_and_reads(real: Broker, listener: Listener) -> None:
    topic = f"topic-{uuid.uuid4()}"
    create_topic(real.client(listener), topic)
    produce(real.client(listener), topic, [Record(b"secret")])
    assert [record.value for record in read(real.client(listener), topic)] == [b"secret"]


@pytest.mark.parametrize("listener", SECURE)
def test_requests_about_transactions_take_the_same_settings(real: Broker, listener: Listener) -> None:
    assert list_transactions(real.client(listener)) == list_transactions(real.client())


@pytest.mark.parametrize("listener", WITH_PASSWORD)
def test_a_wrong_password_is_refused(real: Broker, listener: Listener) -> None:
    wrong: Settings = {**real.client(listener), "sasl.password": "not-hers"}
    assert refusal(wrong).code() == KafkaError._AUTHENTICATION
    with pytest.raises(TransactionError, match="the user or the password is wrong") as error:
        list_transactions(wrong)
    assert (error.value.code, error.value.is_retriable) == (58, False)
    assert "not-hers" not in str(error.value)


@pytest.mark.parametrize("call", ["read", "write"])
def test_a_source_and_a_sink_give_the_reason_why_they_are_refused(real: Broker, call: str) -> None:
    wrong: dict[str, Any] = {**real.client("SASL_PLAINTEXT"), "sasl.password": "not-hers"}
    address = wrong.pop("bootstrap.servers")
    context = SinkContext("job-1", "job", "out", 0, 1, 1, ManualClock())
    calls: dict[str, Callable[[], object]] = {
        "read": lambda: KafkaSource(address, "topic", properties=wrong).splits(1),
        "write": lambda: KafkaSink(address, "topic", properties=wrong).writer(context).write(RowBatch([1])),
    }
    with pytest.raises(ConnectorError, match="Authentication failed") as refused:
        calls[call]()
    assert "not-hers" not in str(refused.value)


@pytest.mark.parametrize("listener", WITH_TLS)
def test_a_client_refuses_a_broker_whose_authority_it_does_not_know(real: Broker, listener: Listener) -> None:
    trusting = real.client(listener)
    del trusting["ssl.ca.location"]
    assert refusal(trusting).code() == KafkaError._SSL


@pytest.mark.parametrize("listener", SECURE)
def test_a_client_without_security_does_not_get_in(real: Broker, listener: Listener) -> None:
    plain: Settings = {"bootstrap.servers": real.client(listener)["bootstrap.servers"]}
    assert refusal(plain).code() in {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}
