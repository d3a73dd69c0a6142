"""MQTT passes the tests that every source must pass, at least once, against a real broker."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import pytest
from deep import DEEP
from kit_steps import SOURCE_STEPS
from serving.kafka import free_ports
from serving.mqtt import PASSWORD, USER, MqttBroker
from serving.mqtt_proxy import mqtt_proxy

from penstock.mqtt import MqttSource
from penstock.testing import Fate
from penstock.testing.connectors import SourceTests

pytestmark = pytest.mark.usefixtures("short_turns")


class Sensors:
    """A topic, whose messages wait in a session at the broker."""

    secret = PASSWORD

    def __init__(self, broker: MqttBroker, protocol: Literal["5", "3.1.1"]) -> None:
        self.broker, self.protocol = broker, protocol
        self.name = f"kit-{uuid.uuid4().hex}"
        self._running = ExitStack()
        (self.port,) = free_ports(1)
        is_5 = protocol == "5"
        target = broker.port_5 if is_5 else broker.port
        self.proxy = self._running.enter_context(mqtt_proxy(self.port, target, is_5=is_5))
        broker.subscribe(self.name, f"{self.name}/#", is_5=is_5)

    def source(self, **settings: Any) -> MqttSource[Any]:
        settings = {"username": USER, "password": PASSWORD, "port": self.port, **settings}
        return MqttSource(
            "127.0.0.1", f"{self.name}/#", client_id=self.name, protocol=self.protocol, **settings
        )

    def write(self, records: Sequence[Any]) -> None:
        self.broker.publish(f"{self.name}/a", [json.dumps(record).encode() for record in records])

    def write_bad(self) -> None:
        self.broker.publish(f"{self.name}/a", [b"{"])

    def tolerant_source(self, on_error: Literal["skip", "dead_letter"]) -> MqttSource[Any]:
        return self.source(on_error=on_error)

    def acknowledged(self) -> list[Any]:
        self.proxy.settle()
        unique = dict.fromkeys(self.proxy.acknowledged)
        return [json.loads(text) for text in unique if text != b"{"]

    def next_fate(self, fate: Fate | None) -> None:
        """Cut the connection: what is on its way is lost."""
        if fate not in (None, Fate.ANSWER_LOST):
            raise NotImplementedError
        if fate is not None:
            self.proxy.cut()

    def kill(self, reader: Any) -> None:
        self.proxy.cut()
        reader.close()

    def cleanup(self) -> None:
        self._running.close()


class TestMqttSource(SourceTests):
    guarantee = "at_least_once"
    is_bounded = False
    simulated = False
    knows_lag = False
    steps = ("complete",) if DEEP == 1 else SOURCE_STEPS
    protocol: Literal["5", "3.1.1"] = "5"

    @pytest.fixture(autouse=True)
    def _use(self, shared_mqtt: MqttBroker) -> None:
        self.broker = shared_mqtt

    def make_world(self, folder: Path) -> Sensors:
        return Sensors(self.broker, self.protocol)


@pytest.mark.long
class TestMqttSourceOfVersion311(TestMqttSource):
    protocol = "3.1.1"
