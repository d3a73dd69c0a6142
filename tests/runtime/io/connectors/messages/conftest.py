"""Servers that all tests of this folder share; each test has a stream of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_HERE = str(Path(__file__).parent)
if _HERE not in sys.path:
    sys.path.insert(0, _HERE)

from serving.mqtt import MqttBroker, mqtt_broker  # noqa: E402 (the path comes first)
from serving.nats import NatsServer, nats_server  # noqa: E402
from serving.redis import RedisServer, redis_server  # noqa: E402 (the path comes first)


@pytest.fixture(scope="session")
def shared_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as started:
        yield started


@pytest.fixture(scope="session")
def shared_nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with nats_server(tmp_path_factory.mktemp("nats")) as started:
        yield started


@pytest.fixture(scope="session")
def started_mqtt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqttBroker]:
    with mqtt_broker(tmp_path_factory.mktemp("mqtt")) as started:
        yield started


@pytest.fixture
def shared_mqtt(started_mqtt: MqttBroker) -> MqttBroker:
    """The broker. If it answers no more, one test fails and not all the others, too."""
    if not started_mqtt.answers():
        started_mqtt.kill()
        started_mqtt.start()
    return started_mqtt


@pytest.fixture
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for the ends of splits all the time."""
    monkeypatch.setattr("penstock.runtime.io.connectors.messages.fetcher._LOOK_FOR_END", 0.01)


@pytest.fixture(scope="module")
def short_turns() -> Iterator[None]:
    """Let the threads of clients run soon: jobs of the kit poll without a pause."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield
    sys.setswitchinterval(usual)
