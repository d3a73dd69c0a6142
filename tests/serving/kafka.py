"""Real Kafka brokers on loopback: Apache Kafka, as `make kafka` fetches it, and a light one from a wheel.

A broker is ready when it answers with its metadata, and every partition that it can lead has a leader.
`kill` is SIGKILL; `start` starts the broker again, on the same ports and the same data.
"""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import random
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from serving import apache_kafka
from serving.kafka_security import Listener, Security, Settings

#: Seconds for a broker to start or to stop on a busy machine.
_PATIENCE: Final = 120.0
#: Seconds between two looks at a broker that starts.
_INTERVAL: Final = 0.005
#: The default is errors only.
_VERBOSE: Final = "-Dlog4j2.level=INFO"
#: Ray and the ephemeral ports are outside.
_PORTS: Final = range(20_000, 32_000)

#: For a fast start, and a fast return of a broker that was killed: by default its session lasts nine seconds.
_SETTINGS: Final[Mapping[str, object]] = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "broker.session.timeout.ms": 1500,
    "broker.heartbeat.interval.ms": 300,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    "auto.create.topics.enable": "false",
    # Tests write records of any time.
    "log.retention.ms": -1,
    # 128 MB by default.
    "log.cleaner.dedupe.buffer.size": 4_000_000,
}


class Broker:
    """A broker in a process of its own.

    Attributes:
        bootstrap: The address of the listener without security.
        log: All that its processes have written.
    """

    def __init__(
        self, command: Sequence[str], port: int, log: Path, security: Security | None = None
    ) -> None:
        self.bootstrap = f"127.0.0.1:{port}"
        self.log = log
        self._command = list(command)
        self._port = port
        self._security = security
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def proxied_ports(self) -> tuple[int, int]:
        """The port of the proxy, and the port to which it connects."""
        assert self._security is not None, f"the broker at {self.bootstrap} has one listener only"
        assert self._security.behind_proxy is not None, f"the broker at {self.bootstrap} is behind no proxy"
        return self._security.ports["PROXIED"], self._security.behind_proxy

    def client(self, protocol: Listener = "PLAINTEXT") -> Settings:
        """Settings of librdkafka for a connection to a listener; with SASL as the first of the users."""
        if self._security is None:
            return {"bootstrap.servers": self.bootstrap}
        return self._security.client(protocol)

    def start(self) -> None:
        """Start the broker and wait until it is ready."""
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        """Start the broker; it is not ready yet."""
        assert not self.is_running, f"the broker at {self.bootstrap} runs"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )

    def wait_until_ready(self, others: Iterable[Broker] = ()) -> None:
        """Wait until this broker knows itself and others, and a leader of each partition of theirs.

        Raises:
            AssertionError: The process has ended, or two minutes have passed. The message has its last lines.
        """
        ports = {self._port, *(other._port for other in others)}
        deadline = time.monotonic() + _PATIENCE
        while not self._accepts():
            self._still_starts(deadline)
            time.sleep(_INTERVAL)
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "socket.timeout.ms": 5_000, "log_level": 2})
        while not self._is_ready(admin, ports):
            self._still_starts(deadline)
            time.sleep(_INTERVAL)

    def kill(self) -> None:
        """SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM: the broker closes its files. One that does not end is killed."""
        try:
            self._end(signal.SIGTERM)
        except subprocess.TimeoutExpired:
            self.kill()

    def pause(self) -> None:
        """SIGSTOP: connections stay open, and nothing answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(_PATIENCE)

    def _accepts(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), timeout=1):
            return True
        return False

    def _is_ready(self, admin: AdminClient, ports: set[int]) -> bool:
        try:
            metadata = admin.list_topics(timeout=5)
        except KafkaException:
            return False
        partitions = (p for topic in metadata.topics.values() for p in topic.partitions.values())
        return ports <= {broker.port for broker in metadata.brokers.values()} and all(
            p.leader in metadata.brokers or metadata.brokers.keys().isdisjoint(p.replicas) for p in partitions
        )

    def _still_starts(self, deadline: float) -> None:
        if not self.is_running or time.monotonic() > deadline:
            assert self._process is not None
            ended = self._process.poll()
            what = "did not get ready" if ended is None else f"ended with {ended}"
            lines = self.log.read_text(errors="replace").splitlines()[-30:]
            raise AssertionError(
                "\n".join([f"the broker at {self.bootstrap} {what}; its log ends with:", *lines])
            )


class Cluster:
    """Several brokers of one cluster; `nodes` has them, and any may be killed and started again."""

    def __init__(self, nodes: Sequence[Broker]) -> None:
        self.nodes = list(nodes)
        self.bootstrap = ",".join(node.bootstrap for node in nodes)

    def client(self, protocol: Listener = "PLAINTEXT") -> Settings:
        """Settings of librdkafka for a connection to a listener of any of the brokers."""
        settings = [node.client(protocol) for node in self.nodes]
        return settings[0] | {
            "bootstrap.servers": ",".join(str(each["bootstrap.servers"]) for each in settings)
        }

    def start(self) -> None:
        """Start the brokers that do not run, and wait until all are ready."""
        for node in self.nodes:
            if not node.is_running:
                node.launch()
        for node in self.nodes:
            node.wait_until_ready(self.nodes)

    def kill(self) -> None:
        """SIGKILL to all."""
        for node in self.nodes:
            node.kill()

    def leader(self, topic: str, partition: int = 0) -> Broker:
        """The broker that leads a partition."""
        metadata = AdminClient(self.client()).list_topics(topic, timeout=_PATIENCE)
        return self.nodes[metadata.topics[topic].partitions[partition].leader - 1]


@contextmanager
def kafka_broker(
    folder: Path,
    *,
    listeners: Sequence[Listener] = (),
    users: Mapping[str, str] | None = None,
    settings: Mapping[str, object] | None = None,
) -> Iterator[Broker]:
    """A single real broker that runs.

    Args:
        folder: For its data and its log.
        listeners: Those with security that it has beside the plain one; `PROXIED` is behind a `kafka_proxy`.
        users: Passwords by name, for SCRAM-SHA-256. By default `alice` has one.
        settings: Settings of the broker in addition.
    """
    with kafka_cluster(folder, nodes=1, listeners=listeners, users=users, settings=settings) as cluster:
        yield cluster.nodes[0]


@contextmanager
def kafka_cluster(
    folder: Path,
    *,
    nodes: int = 3,
    listeners: Sequence[Listener] = (),
    users: Mapping[str, str] | None = None,
    settings: Mapping[str, object] | None = None,
) -> Iterator[Cluster]:
    """Real brokers that run, each also a controller; the arguments are those of `kafka_broker`."""
    names: list[Listener] = ["PLAINTEXT", *listeners]
    is_proxied = "PROXIED" in names
    ports = iter(free_ports(nodes * (1 + len(names) + is_proxied)))
    controllers = {node: next(ports) for node in range(1, nodes + 1)}
    common = {
        **_SETTINGS,
        **_replication(nodes),
        "controller.quorum.voters": ",".join(
            f"{node}@127.0.0.1:{port}" for node, port in controllers.items()
        ),
        **(settings or {}),
    }
    cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    brokers, formatting = [], []
    with contextlib.ExitStack() as ends:
        for node, controller in controllers.items():
            place = folder / f"node-{node}"
            place.mkdir(parents=True)
            behind_proxy = next(ports) if is_proxied else None
            security = Security(folder, {name: next(ports) for name in names}, users, behind_proxy)
            own = {
                "node.id": node,
                "log.dirs": place / "data",
                **security.broker(f"CONTROLLER://127.0.0.1:{controller}"),
            }
            config = place / "server.properties"
            config.write_text("".join(f"{name}={value}\n" for name, value in {**common, **own}.items()))
            formatting.append(_begin_to_format(config, cluster_id, security.scram_users()))
            ends.callback(formatting[-1].kill)
            command = apache_kafka.command("kafka.Kafka", config, options=[_VERBOSE])
            brokers.append(Broker(command, security.ports["PLAINTEXT"], place / "server.log", security))
            ends.callback(brokers[-1].kill)
        for process in formatting:
            said, _ = process.communicate(timeout=_PATIENCE)
            assert process.returncode == 0, said
        cluster = Cluster(brokers)
        cluster.start()
        yield cluster


@contextmanager
def light_broker(folder: Path) -> Iterator[Broker]:
    """A broker that is ready in milliseconds: `noida-db`, for fast tests.

    It hides records until their commit, fences producers and keeps offsets as Kafka does. It differs in this:

    - It never aborts a transaction that has timed out.
    - `EndTxn` is refused for an older epoch only. For another producer, another transactional id, or the
      opposite end it is answered without an error, and nothing happens.
    - `kill` loses its last writes. `stop` and `kill` lose open transactions: `EndTxn` is answered without an
      error, and the records stay hidden for ever.
    - Retention applies at once, by the time of the records: create topics with `retention.ms=-1`.
    - There is a single broker, and no listener with security.
    """
    (port,) = free_ports(1)
    folder.mkdir(parents=True, exist_ok=True)
    package = importlib.util.find_spec("noida_db")
    assert package is not None
    assert package.origin is not None
    executable = str(Path(package.origin).parent / "noida-db")
    places = ("--data-dir", str(folder / "data"), "--host", "127.0.0.1")
    command = [executable, "start", *places, "--only", "kafka", "--kafka-port", str(port)]
    broker = Broker(command, port, folder / "server.log")
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()


def free_ports(count: int, among: Sequence[int] = _PORTS) -> list[int]:
    """Ports of loopback that are free.

    They are no ephemeral ports. While a broker is down, its clients try to connect again and again. A client
    that is given that ephemeral port for itself connects to itself. The broker could not start again.
    """
    with contextlib.ExitStack() as held:
        ports = []
        for port in random.sample(among, len(among)):
            listening = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                listening.bind(("127.0.0.1", port))
                ports.append(port)
            if len(ports) == count:
                return ports
    raise AssertionError(f"there are no {count} free ports in {among}")


def _replication(nodes: int) -> dict[str, object]:
    """Settings of a cluster that continues while one of its nodes is down, if it has three."""
    topics = ("transaction.state.log", "share.coordinator.state.topic")
    return {
        "default.replication.factor": nodes,
        "offsets.topic.replication.factor": nodes,
        "min.insync.replicas": min(nodes, 2),
        **{f"{topic}.replication.factor": nodes for topic in topics},
        **{f"{topic}.min.isr": min(nodes, 2) for topic in topics},
    }


def _begin_to_format(config: Path, cluster_id: str, scram: Sequence[str]) -> subprocess.Popen[str]:
    users = [word for user in scram for word in ("--add-scram", user)]
    # As one word: an id may begin with a dash.
    cluster = f"--cluster-id={cluster_id}"
    command = apache_kafka.command("kafka.tools.StorageTool", "format", cluster, "--config", config, *users)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
