"""The program that stands for a worker: without a template it becomes the worker itself."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.actors.template import entry

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="templates need Linux")

WORKER = """
import os, sys
print("worker", os.getpid(), *sys.argv[1:])
"""


def start(tmp_path: Path, name: str) -> subprocess.Popen[str]:
    worker = tmp_path / "worker.py"
    worker.write_text(WORKER, encoding="utf-8")
    return subprocess.Popen(
        [sys.executable, entry.__file__, "--worker-id=7"],
        env={**os.environ, entry.SOCKET: name, entry.WORKER: str(worker)},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_without_a_template_the_process_becomes_the_worker(tmp_path: Path) -> None:
    process = start(tmp_path, f"nobody-{secrets.token_hex(8)}")
    said, _ = process.communicate(timeout=60)
    assert said == f"worker {process.pid} --worker-id=7\n"
    assert process.returncode == 0


def test_a_template_that_ends_before_it_agrees_makes_the_process_the_worker(tmp_path: Path) -> None:
    name = f"leaves-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen(1)
        process = start(tmp_path, name)
        listener.accept()[0].close()
        said, _ = process.communicate(timeout=60)
    assert said == f"worker {process.pid} --worker-id=7\n"


def test_a_template_that_ends_after_it_has_agreed_leaves_no_worker(tmp_path: Path) -> None:
    """It may have forked one: a second worker with the same id must not exist."""
    name = f"agrees-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen(1)
        process = start(tmp_path, name)
        connection, _ = listener.accept()
        with connection:
            _, streams, _, _ = socket.recv_fds(connection, 4, 3)
            connection.sendall(entry.AGREED)
            while not connection.recv(65536).endswith(entry.YES):
                continue
        for stream in streams:
            os.close(stream)
        said, _ = process.communicate(timeout=60)
    assert said == ""
    assert process.returncode == 1
