"""One light broker and one of Apache Kafka for all tests that kill none; a topic of its own for each test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from serving.kafka import Broker, kafka_broker, light_broker
from serving.kafka_model import model_broker
from serving.kafka_security import Listener
from serving.kafka_topics import create_topic

REAL = pytest.param("real", marks=pytest.mark.kafka)


@pytest.fixture(scope="package")
def model() -> Iterator[Broker]:
    with model_broker() as broker:
        yield broker


@pytest.fixture(scope="package")
def light(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with light_broker(tmp_path_factory.mktemp("light")) as broker:
        yield broker


@pytest.fixture(scope="package")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    listeners: tuple[Listener, ...] = ("SASL_PLAINTEXT", "SSL", "SASL_SSL")
    with kafka_broker(tmp_path_factory.mktemp("real"), listeners=listeners) as broker:
        yield broker


@pytest.fixture(params=["model", "light", REAL])
def broker(request: pytest.FixtureRequest) -> Broker:
    """The model of the simulation, the light broker, and then Apache Kafka."""
    found: Broker = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic of that broker with one partition."""
    name = f"topic-{uuid.uuid4()}"
    create_topic(broker.client(), name)
    return name


@pytest.fixture
def transactional_id() -> str:
    return f"id-{uuid.uuid4()}"
