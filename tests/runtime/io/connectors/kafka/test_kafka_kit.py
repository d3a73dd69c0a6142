"""Kafka passes the tests that every connector must pass: on a light broker, and in the model of a broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deep import DEEP
from serving.kafka import Broker
from serving.kafka_kit import BrokerTopic, ModelTopic, OutputOfBroker

from penstock.testing.connectors import SinkTests, SourceTests


class TestKafkaSink(SinkTests):
    seeds = range(DEEP)
    steps = ("pre-commit", "complete", "second commit")

    @pytest.fixture(autouse=True)
    def _use(self, broker: Broker) -> None:
        self.broker = broker

    def make_world(self, folder: Path) -> OutputOfBroker:
        return OutputOfBroker(self.broker)

    def make_model(self) -> Callable[[], Any]:
        return ModelTopic


class TestKafkaSource(SourceTests):
    seeds = range(DEEP)
    steps = ("snapshot", "complete", "last poll")

    @pytest.fixture(autouse=True)
    def _use(self, broker: Broker) -> None:
        self.broker = broker

    def make_world(self, folder: Path) -> BrokerTopic:
        return BrokerTopic(self.broker)

    def make_model(self) -> Callable[[], Any]:
        return ModelTopic


class TestKafkaSinkInTheModel(SinkTests):
    """The broker's answers go wrong here."""

    simulated = False

    def make_world(self, folder: Path) -> ModelTopic:
        return ModelTopic()


@pytest.mark.kafka
@pytest.mark.long
class TestKafkaSinkOnApacheKafka(TestKafkaSink):
    simulated = False
    steps = SinkTests.steps

    @pytest.fixture(autouse=True)
    def _use(self, real_broker: Broker) -> None:
        self.broker = real_broker


@pytest.mark.kafka
@pytest.mark.long
class TestKafkaSourceOnApacheKafka(TestKafkaSource):
    simulated = False
    steps = SourceTests.steps

    @pytest.fixture(autouse=True)
    def _use(self, real_broker: Broker) -> None:
        self.broker = real_broker
