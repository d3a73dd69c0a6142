"""`make postgres`: a server to try things out, which leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

TESTS = next(folder for folder in Path(__file__).parents if folder.name == "tests")


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_a_server_answers_until_a_signal_ends_it(end: signal.Signals) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-m", "serving.postgres"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        with psycopg.connect(url) as connection:
            assert connection.execute("SHOW wal_level").fetchall() == [("logical",)]
            ((data,),) = connection.execute("SHOW data_directory").fetchall()
        server.send_signal(end)
        assert server.wait(60) == 0
    assert not Path(data).exists()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)
