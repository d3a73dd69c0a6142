"""A template serves the next `entry`, whatever happened to the one before."""

from __future__ import annotations

import json
import os
import secrets
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.actors.template import template_process
from penstock.actors.template.entry import AGREED, YES

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="templates need Linux")

Connect = Callable[[], socket.socket]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Connects to a template that serves in a thread; at the end, it must still serve."""
    name, (end, node) = f"\0serves-{secrets.token_hex(8)}", os.pipe()
    connections = []

    def make() -> socket.socket:
        connections.append(socket.socket(socket.AF_UNIX))
        connections[-1].settimeout(30)
        connections[-1].connect(name)
        return connections[-1]

    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(1) as pool:
        listener.bind(name)
        listener.listen(4)
        served = pool.submit(template_process._serve, listener, end, {})
        try:
            yield make
            unfit = make()
            request(unfit, flags=["-S"])
            assert unfit.recv(1) == b"", "it answers, and refuses the flags"
        finally:
            os.close(node)
            for connection in connections:
                connection.close()
        assert served.result(30) is None
    os.close(end)


def request(connection: socket.socket, flags: list[str]) -> None:
    data = json.dumps({"flags": flags, "environment": {}}).encode()
    socket.send_fds(connection, [struct.pack("I", len(data))], [0, 1, 2])
    connection.sendall(data)


@pytest.mark.parametrize(
    "sent", [b"", b"\5", struct.pack("I", 9), struct.pack("I", 9) + b"part", struct.pack("I", 4) + b"part"]
)
def test_an_entry_that_ends_before_its_request_is_whole_gets_no_worker(connect: Connect, sent: bytes) -> None:
    with connect() as connection:
        connection.sendall(sent)


def test_a_template_that_can_not_fork_closes_the_connection(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fork() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(template_process.os, "fork", fork)
    connection = connect()
    request(connection, flags=[])
    assert connection.recv(1) == AGREED
    connection.sendall(YES)
    assert connection.recv(1) == b""
