"""A broker that all tests of this folder share, and topics of their own."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

_HERE = str(Path(__file__).parent)
if _HERE not in sys.path:
    sys.path.insert(0, _HERE)

from serving.kafka import Broker, kafka_broker, light_broker  # noqa: E402 (the path comes first)
from serving.kafka_model import model_broker  # noqa: E402
from topics import Topic  # noqa: E402


@pytest.fixture(scope="session")
def light(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with light_broker(tmp_path_factory.mktemp("kafka")) as started:
        yield started


@pytest.fixture(scope="session")
def model() -> Iterator[Broker]:
    with model_broker() as started:
        yield started


@pytest.fixture
def broker(light: Broker) -> Broker:
    return light


@pytest.fixture(scope="session")
def real_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with kafka_broker(tmp_path_factory.mktemp("real-kafka")) as started:
        yield started


@pytest.fixture(params=["model", pytest.param("real_broker", marks=pytest.mark.kafka)])
def strict_topic(request: pytest.FixtureRequest) -> Topic:
    """A topic of the model or of Apache Kafka, for what the light broker does not do."""
    return Topic(request.getfixturevalue(request.param), f"t-{uuid.uuid4().hex}", 1, {})


@pytest.fixture
def make_topic(broker: Broker) -> Callable[..., Topic]:
    """Makes topics with names of their own."""
    return lambda partitions=1, **settings: Topic(broker, f"t-{uuid.uuid4().hex}", partitions, settings)


@pytest.fixture
def topic(make_topic: Callable[..., Topic]) -> Topic:
    """A topic of three partitions."""
    return make_topic(3)
