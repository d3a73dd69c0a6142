"""A trial of a mutant ends when it waits for what never comes, and not because it is busy."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import trial


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "STANDSTILL", 0.3)


def test_a_trial_that_stands_still_is_killed_with_all_that_it_has_started() -> None:
    # It outlives what it has started, whichever of the two is killed first.
    program = (
        "import signal, subprocess; print(subprocess.Popen(['sleep', '300']).pid, flush=True); signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        started = int(process.stdout.readline())
        watch = trial.Watch(process.pid)
        while not watch.ended():
            time.sleep(0.05)
        assert process.wait(20) == -signal.SIGKILL
        assert process.stdout.read() == b"", "nobody holds its end any more"
    assert not Path(f"/proc/{started}/cwd").exists()


def test_a_trial_that_computes_goes_on() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        watch = trial.Watch(process.pid)
        for _ in range(20):
            assert not watch.ended()
            time.sleep(0.05)
        process.kill()
