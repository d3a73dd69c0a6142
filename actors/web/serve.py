"""Runs the server in this process until it is told to end."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from penstock.actors.web.access import Access, check_bind
from penstock.actors.web.application import description, make_application
from penstock.actors.web.job_directory import JobDirectory
from penstock.actors.web.server import WebServer
from penstock.runtime.errors import DeploymentError

#: Ports that are tried when none was given, from this one on: 8265 and 8266 are often Ray's dashboard.
FIRST_PORT: Final = 8275
_TRIED: Final = 20
#: Names of this machine for itself.
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
#: Addresses that mean every interface.
_EVERYWHERE: Final = ("0.0.0.0", "::")
#: Seconds for open streams to end.
_CLOSING: Final = 5.0


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How a server is to run.

    Attributes:
        host: Address to listen on.
        port: Port; `None` for the first free one from 8275 on, 0 for any.
        storage: Where ended jobs are looked for besides the cluster.
        read_only: Refuse whatever changes a job.
        token: Standing token for programs, needed beyond loopback.
        allowed_hosts: Further names that requests may come to.
        ends_with_input: End when standard input is closed: the program that holds its other end has ended.
    """

    host: str = "127.0.0.1"
    port: int | None = None
    storage: str | None = None
    read_only: bool = False
    token: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    ends_with_input: bool = False


def serve(options: ServerOptions, on_ready: Callable[[str, str], None]) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        on_ready: Called once with the server's address, and with the one that begins a session.

    Raises:
        ConfigurationError: It would listen beyond loopback without a token, or the token is too short.
        DeploymentError: The port is taken.
    """
    check_bind(options.host, options.token)
    asyncio.run(_serve(options, on_ready))


async def _serve(options: ServerOptions, on_ready: Callable[[str, str], None]) -> None:
    bound = bind(options.host, options.port)
    port = bound.getsockname()[1]
    names = [options.host] if options.host not in _EVERYWHERE else []
    access = Access(port, [*names, *_LOOPBACK, *options.allowed_hosts], options.token)
    shown = "127.0.0.1" if options.host in _EVERYWHERE else options.host
    address = f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/"
    server = WebServer(
        JobDirectory(options.storage),
        access,
        address,
        read_only=options.read_only,
        description=description(),
    )
    runner = web.AppRunner(make_application(server), access_log=None, shutdown_timeout=_CLOSING)
    await runner.setup()
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signal_number, ended.set)
    if options.ends_with_input:
        loop.add_reader(sys.stdin.fileno(), ended.set)  # nobody writes: what can be read is the end
    try:
        await web.SockSite(runner, bound).start()
        on_ready(address, f"{address}#token={access.new_login()}")
        await ended.wait()
    finally:
        await runner.cleanup()


def bind(host: str, port: int | None) -> socket.socket:
    """A socket that listens at this address.

    Raises:
        DeploymentError: The port is taken, or there is no such address here.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    tried = range(FIRST_PORT, FIRST_PORT + _TRIED) if port is None else (port,)
    for number in tried:
        made = socket.socket(family, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((host, number))
            made.listen()
        except OSError as error:
            made.close()
            problem = error
        else:
            made.setblocking(False)
            return made
    where = f"{host}:{port}" if port is not None else f"{host}:{tried[0]} to {tried[-1]}"
    msg = f"the server can't listen at {where}: {problem.strerror or problem}; choose another one with --port"
    raise DeploymentError(msg)
