"""A real MQTT broker with versions 3.1.1 and 5: Mosquitto, or rumqttd from a wheel (`iotcore`).

Mosquitto is that of this machine, or the one that `make mosquitto` has unpacked in `.venv`. Sessions are in
memory: they outlive a connection, and not the broker.

In about one of fifty runs of the tests rumqttd stops answering after a client has left. The next test then
starts it again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from getpass import getuser
from pathlib import Path
from threading import Event, Semaphore
from typing import Any, Final

from paho.mqtt.client import Client, MQTTv5, MQTTv311
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from serving.kafka import free_ports
from serving.process import Server

USER, PASSWORD = "me", "open-sesame"

#: Unacknowledged messages of a client.
MOST_IN_FLIGHT = 100

#: Seconds for an answer of a broker on a busy machine, and to find that it answers no more.
_PATIENCE: Final = 60.0
_SHORT_PATIENCE: Final = 10.0

_UNPACKED: Final = Path(sys.prefix) / "mosquitto"
_FOLDERS: Final = ("/usr/sbin", *(str(_UNPACKED / "usr" / name) for name in ("bin", "sbin")))
_MOSQUITTO: Final = """
listener {port} 127.0.0.1
user {owner}
allow_anonymous false
password_file {passwords}
persistence false
max_inflight_messages {most}
max_queued_messages 0
set_tcp_nodelay true
"""

_RUMQTTD = "import sys, iotcore; iotcore.Broker(config_path=sys.argv[1]).run_forever()"
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

    def answers(self) -> bool:
        """Return whether the broker answers a client that connects."""
        client = Client(CallbackAPIVersion.VERSION2)
        connected = Event()
        client.on_connect = lambda *_: connected.set()
        with self._running(client, self.port):
            return connected.wait(_SHORT_PATIENCE)

    def publish(self, topic: str, payloads: Iterable[bytes], qos: int = 1) -> None:
        client = Client(CallbackAPIVersion.VERSION2)
        connected, published = Event(), Semaphore(0)
        client.on_connect = lambda *_: connected.set()
        client.on_publish = lambda *_: published.release()
        with self._running(client, self.port):
            assert connected.wait(_PATIENCE), "the broker has not answered"
            # On a busy machine the broker may end the connection; the client then sends again by itself.
            for _ in [client.publish(topic, payload, qos) for payload in payloads]:
                assert published.acquire(timeout=_PATIENCE), "the broker has not taken the messages"

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
            assert subscribed.wait(_PATIENCE), "the broker has not answered the subscription"

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


def program(name: str = "mosquitto") -> str | None:
    """The path of `mosquitto` or `mosquitto_passwd`; `None` where there is none."""
    return shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", os.defpath), *_FOLDERS)))


@contextmanager
def mqtt_broker(folder: Path) -> Iterator[MqttBroker]:
    folder.mkdir(parents=True, exist_ok=True)
    broker = _rumqttd(folder) if program() is None else _mosquitto(folder)
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()


def _mosquitto(folder: Path) -> MqttBroker:
    (port,) = free_ports(1)
    config, passwords = folder / "mosquitto.conf", folder / "passwords"
    # Those that this machine lacks.
    unpacked = map(str, _UNPACKED.glob("usr/lib/*-linux-gnu"))
    libraries = os.pathsep.join(filter(None, (os.environ.get("LD_LIBRARY_PATH"), *unpacked)))
    with_libraries = ["env", f"LD_LIBRARY_PATH={libraries}"]
    subprocess.run(
        [*with_libraries, str(program("mosquitto_passwd")), "-b", "-c", str(passwords), USER, PASSWORD],
        check=True,
    )
    config.write_text(_MOSQUITTO.format(port=port, owner=getuser(), passwords=passwords, most=MOST_IN_FLIGHT))
    command = [*with_libraries, str(program()), "-c", str(config)]
    broker = MqttBroker(command, port, folder / "mqtt.log")
    broker.port_5 = port
    return broker


def _rumqttd(folder: Path) -> MqttBroker:
    ports = dict(zip(("v4", "v5"), free_ports(2), strict=True))
    config = folder / "rumqttd.toml"
    listeners = [
        _LISTENER.format(kind=kind, port=port, most=MOST_IN_FLIGHT, user=USER, password=PASSWORD)
        for kind, port in ports.items()
    ]
    config.write_text(_SETTINGS + "".join(listeners))
    broker = MqttBroker([sys.executable, "-c", _RUMQTTD, str(config)], ports["v4"], folder / "mqtt.log")
    broker.port_5 = ports["v5"]
    return broker
