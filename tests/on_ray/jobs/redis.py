"""A Redis server for the GCS of a head, on a port and in a folder of its own."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jobs.driving import eventually


def why_no_redis() -> str | None:
    """Why there is no Redis here; `None` if there is one."""
    if shutil.which("redis-server") is None:
        return "there is no `redis-server` (Debian: apt-get install redis-server)"
    return None


@contextmanager
def redis_server(folder: Path, host: str, port: int, password: str, *before: str) -> Iterator[str]:
    """A server that lives as long as this block; its address.

    Args:
        folder: Where it keeps its data.
        host: Where it listens.
        port: Where it listens.
        password: What it asks everybody for.
        before: Words in front of the command, such as `ip netns exec NAME`.
    """
    folder.mkdir(exist_ok=True)
    options = ["--save", "", "--appendonly", "yes", "--protected-mode", "no", "--dir", str(folder)]
    options += ["--requirepass", password]
    command = [*before, "redis-server", "--bind", host, "--port", str(port), *options]
    with (folder / "said").open("wb") as said:
        server = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
    try:
        eventually("Redis", lambda: b"eady to accept connections" in (folder / "said").read_bytes(), 30.0)
        yield f"{host}:{port}"
    finally:
        server.terminate()
        server.wait()


def free_port() -> int:
    """A port of loopback that no process listens on right now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
