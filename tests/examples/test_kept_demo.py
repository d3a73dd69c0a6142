"""`make demo KEEP=1`: the page is there while the job runs and afterwards, until Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Seconds for the whole demo, and for processes to end.
_PATIENCE = 600
_END = 30


@pytest.fixture
def demo(tmp_path: Path, environment_alone: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, ROOT / "examples" / "demo.py", "--keep", "--megabytes", "0.5"],
        cwd=tmp_path,
        env=environment_alone | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    yield process
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def read_to(demo: subprocess.Popen[str], pattern: str, said: list[str]) -> str:
    """Read to the line with this pattern; its first group."""
    assert demo.stdout is not None
    for line in demo.stdout:
        said.append(line)
        if found := re.search(pattern, line):
            return found.group(1)
    pytest.fail(f"no {pattern} in:\n{''.join(said)}")


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=30) as answer:
            return "<title>Penstock</title>" in answer.read().decode()
    except urllib.error.URLError:
        return False


def processes_of(folder: str) -> list[str]:
    """Processes with Ray's folder in their command line or environment."""
    found = []
    for process in psutil.process_iter():
        try:
            of_cluster = any(folder in text for text in process.cmdline())
            if of_cluster or process.environ().get("RAY_TMPDIR") == folder:
                found.append(" ".join(process.cmdline())[:100])
        except psutil.Error:
            continue
    return found


@pytest.mark.ray
def test_the_page_of_the_demo_is_there_while_it_runs_and_stays_until_it_is_interrupted(
    demo: subprocess.Popen[str], ray_folder: str
) -> None:
    said: list[str] = []
    login = read_to(demo, r"in a browser .*: (http://127\.0\.0\.1:\d+/\S*#token=\S+)", said)
    assert answers(login.partition("#")[0]), "while the job runs"
    assert not any("SIGKILL" in line for line in said)
    kept = read_to(demo, r"the page stays at (http://\S+) until Ctrl-C", said)
    assert "exactly once\n" in said
    for told in ("reduce(add)", "SIGKILL of count[", "recovered", "1 restart(s)", "0 missing, 0 too many"):
        assert told in "".join(said)
    assert login.startswith(kept)
    assert answers(kept), "after the job"

    demo.send_signal(signal.SIGINT)
    assert demo.wait(_PATIENCE) == 0
    assert not answers(kept)
    deadline = time.monotonic() + _END
    while (left := processes_of(ray_folder)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert left == []


def test_make_passes_the_wish_on_to_the_demo() -> None:
    def commands(*words: str) -> str:
        return subprocess.run(
            ["make", "--dry-run", *words], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout

    assert "examples/demo.py --keep" in commands("demo", "KEEP=1")
    assert "--keep" not in commands("demo")
