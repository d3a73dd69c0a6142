"""A real MQTT broker from a wheel (`iotcore`, which is rumqttd), with versions 3.1.1 and 5.

Its sessions are in memory: they outlive a connection, and not the broker.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Semaphore
from typing import Any

from paho.mqtt.client import Client, MQTTv5, MQTTv311
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from serving.kafka import free_ports
from serving.process import Server

USER, PASSWORD = "me", "open-sesame"

#: Unacknowledged messages of a client.
MOST_IN_FLIGHT = 100

_PROGRAM = "import sys, iotcore; iotcore.Broker(config_path=sys.argv[1]).run_forever()"
_SETTINGS = """
id = 0
[router]
id = 0
max_connections = 100
max_outgoing_packet_count = 200
max_segment_size = 1048576
max_segment_count = 10
"""
_LISTENER = """
[{kind}.1]
name = "{kind}"
listen = "127.0.0.1:{port}"
next_connection_delay_ms = 1
[{kind}.1.connections]
connection_timeout_ms = 5000
max_payload_size = 100000
max_inflight_count = {most}
auth = {{ {user} = "{password}" }}
"""


class MqttBroker(Server):
    """A broker; `port_5` speaks version 5, and `port` version 3.1.1."""

    port_5: int

    def publish(self, topic: str, payloads: Iterable[bytes], qos: int = 1) -> None:
        client = Client(CallbackAPIVersion.VERSION2)
        connected, published = Event(), Semaphore(0)
        client.on_connect = lambda *_: connected.set()
        client.on_publish = lambda *_: published.release()
        with self._running(client, self.port):
            assert connected.wait(60), "the broker has not answered"
            # On a busy machine the broker may end the connection; the client then sends again by itself.
            for _ in [client.publish(topic, payload, qos) for payload in payloads]:
                assert published.acquire(timeout=60), "the broker has not taken the messages"

    def subscribe(self, client_id: str, topics: str, *, is_5: bool) -> None:
        """Begin a session that keeps the messages of topics, and leave it."""
        client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            clean_session=None if is_5 else False,
            protocol=MQTTv5 if is_5 else MQTTv311,
        )
        subscribed = Event()
        client.on_connect = lambda *_: client.subscribe(topics, 1)
        client.on_subscribe = lambda *_: subscribed.set()
        settings: dict[str, Any] = {}
        if is_5:
            properties = Properties(PacketTypes.CONNECT)
            properties.SessionExpiryInterval = 3600
            settings = {"clean_start": False, "properties": properties}
        with self._running(client, self.port_5 if is_5 else self.port, **settings):
            assert subscribed.wait(60), "the broker has not answered the subscription"

    @contextmanager
    def _running(self, client: Client, port: int, **settings: Any) -> Iterator[None]:
        client.username_pw_set(USER, PASSWORD)
        client.connect("127.0.0.1", port, **settings)
        client.loop_start()
        try:
            yield
        finally:
            client.disconnect()
            client.loop_stop()

    def take_over(self, client_id: str) -> None:
        """Take the session of a client, and leave at once without an acknowledgement."""
        client = Client(
            CallbackAPIVersion.VERSION2, client_id=client_id, clean_session=False, manual_ack=True
        )
        with self._running(client, self.port):
            pass


@contextmanager
def mqtt_broker(folder: Path) -> Iterator[MqttBroker]:
    ports = dict(zip(("v4", "v5"), free_ports(2), strict=True))
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "rumqttd.toml"
    listeners = [
        _LISTENER.format(kind=kind, port=port, most=MOST_IN_FLIGHT, user=USER, password=PASSWORD)
        for kind, port in ports.items()
    ]
    config.write_text(_SETTINGS + "".join(listeners))
    broker = MqttBroker([sys.executable, "-c", _PROGRAM, str(config)], ports["v4"], folder / "mqtt.log")
    broker.port_5 = ports["v5"]
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()
