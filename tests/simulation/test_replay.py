"""The same seed gives the same run, happening by happening, in any process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from simulate import main
from simulated_jobs.simulation import run_seed

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(1500)]


TESTS = Path(__file__).parents[1]


def run(*arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=TESTS,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        check=False,
    )


#: In 103 a region that restarts gives several splits back.
SEEDS = (11, 42, 103, 105)

#: The traces of several seeds, one after the other.
TRACES = """
import sys
from simulate import main

for seed in sys.argv[1:]:
    print("trace of", seed)
    if main(["--seed", seed, "--trace"]):
        sys.exit(f"seed {seed} failed")
"""


def traces(seeds: Sequence[int], hash_seed: str) -> dict[str, list[str]]:
    """A process's results of each seed."""
    done = run("-c", TRACES, *map(str, seeds), hash_seed=hash_seed)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    told: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        if line.startswith("trace of "):
            of_seed = told[line.removeprefix("trace of ")] = []
        else:
            of_seed.append(line)
    return told


def test_trace_of_a_seed_is_the_same_in_every_process_and_behind_any_other_seed() -> None:
    one, other = traces(SEEDS, "1"), traces(SEEDS[::-1], "2")
    assert list(one) == list(other)[::-1] == [str(seed) for seed in SEEDS]
    for seed, trace in one.items():
        assert trace == other[seed], seed
        assert len(trace) > 100


def test_trace_changes_nothing() -> None:
    lines: list[str] = []
    assert run_seed(42, lines.append) == run_seed(42)
    assert any("steps" in line for line in lines)


def test_program_closes_with_what_passed_and_what_was_injected() -> None:
    done = run("simulate.py", "--seeds", "0:12", "--processes", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    *lines, verdict = done.stdout.splitlines()
    assert verdict == "12 passed, 0 failed"
    (injected,) = [line for line in lines if line.startswith("failures injected that really happened: ")]
    assert "frame out of order" in injected
    killed = lines.index(next(line for line in lines if line.startswith("processes killed: ")))
    by_settings = dict(line.strip().split(": ") for line in lines[killed + 1 :])
    assert all("end_of_partition=" in settings for settings in by_settings), by_settings
    assert lines[killed] == f"processes killed: {sum(map(int, by_settings.values()))}"


@pytest.mark.parametrize("seeds", ["5", "9:3", "a:b", ""])
def test_program_refuses_what_is_no_range(seeds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--seeds", seeds])
    assert end.value.code == 2
    assert "no range of seeds" in capsys.readouterr().err
