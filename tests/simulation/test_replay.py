"""The same seed gives the same run, happening by happening, in any process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from penstock.runtime.testing.simulation.runs import run_seed

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(1500)]


def program(*arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock.runtime.testing.simulation", *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        check=False,
    )


#: In 103 a region that restarts gives several splits back.
@pytest.mark.parametrize("seed", [11, 42, 103, 105])
def test_trace_of_a_seed_is_the_same_in_every_process(seed: int) -> None:
    runs = [program("--seed", str(seed), "--trace", hash_seed=hash_seed) for hash_seed in ("1", "2")]
    assert runs[0].returncode == 0, runs[0].stdout[-2000:] + runs[0].stderr
    assert runs[0].stdout == runs[1].stdout
    assert len(runs[0].stdout.splitlines()) > 100


def test_trace_changes_nothing() -> None:
    lines: list[str] = []
    assert run_seed(42, lines.append) == run_seed(42)
    assert any("steps" in line for line in lines)


def test_program_closes_with_what_passed_and_what_was_injected() -> None:
    run = program("--seeds", "0:12", "--processes", "2")
    assert run.returncode == 0, run.stdout + run.stderr
    *lines, verdict = run.stdout.splitlines()
    assert verdict == "12 passed, 0 failed"
    (injected,) = [line for line in lines if line.startswith("failures injected that really happened: ")]
    assert "frame out of order" in injected
    killed = lines.index(next(line for line in lines if line.startswith("processes killed: ")))
    by_settings = dict(line.strip().split(": ") for line in lines[killed + 1 :])
    assert all("end_of_partition=" in settings for settings in by_settings), by_settings
    assert lines[killed] == f"processes killed: {sum(map(int, by_settings.values()))}"


@pytest.mark.parametrize("seeds", ["5", "9:3", "a:b", ""])
def test_program_refuses_what_is_no_range(seeds: str) -> None:
    run = program("--seeds", seeds)
    assert run.returncode == 2
    assert "no range of seeds" in run.stderr
