"""`penstock ui --storage URL` without a cluster shows ended jobs."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from serving.client import PATIENCE, Client
from serving.reports import TOKEN, leave, report_of


def test_a_storage_is_enough_to_show_jobs_that_have_ended(tmp_path: Path) -> None:
    storage, token = tmp_path / "storage", tmp_path / "token"
    storage.mkdir()
    leave(storage, report_of("words-1f2e", "words", storage))
    token.touch(mode=0o600)
    token.write_text(TOKEN)
    with socket.socket() as closed:  # no server listens: other tests may have a cluster on this machine
        closed.bind(("127.0.0.1", 0))
        nowhere = f"127.0.0.1:{closed.getsockname()[1]}"
        command = [sys.executable, "-m", "penstock.actors.command_line", "ui", "--json", "--no-open"]
        command += ["--port", "0", "--token-file", str(token), "--storage", storage.as_uri()]
        with subprocess.Popen(
            command,
            env={**os.environ, "RAY_ADDRESS": nowhere},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as server:
            assert server.stdout is not None
            try:
                line = server.stdout.readline()
                assert line, server.communicate()
                client = Client(json.loads(line)["address"], TOKEN)
                (listed,) = client.look("/v1/jobs/overview")["jobs"]
                job = client.look("/v1/jobs/words")
                checkpoints = client.look("/v1/jobs/words-1f2e/checkpoints")
                details = client.look("/v1/jobs/words-1f2e/checkpoints/details/2")
                lost = client.get("/v1/jobs/nobody")
            finally:
                server.send_signal(signal.SIGINT)
                _, said = server.communicate(timeout=PATIENCE)
    assert server.returncode == 0, said
    assert "Showing the ended jobs in" in said
    assert (listed["job_id"], listed["status"], listed["live"]) == ("words-1f2e", "failed", False)
    assert job["report"]["failures"][0]["root"]["message"] == "operator 'count' broke"
    assert (job["live"], job["age"], job["lag_trend"]) == (False, 0.0, None)
    assert [each["id"] for each in checkpoints["history"]] == [3, 2, 1]
    assert details["status"] == "failed"
    assert lost.status == 404
