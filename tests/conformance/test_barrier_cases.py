"""Every case of the barrier suites, against the real channels, gate and handlers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import replay
from drivers import barrier

DATA = Path(__file__).parent / "data"
CASES = [
    pytest.param(suite, case, id=f"{suite}-{case['name']}")
    for suite in barrier.SUITES
    for case in replay.load_suite(DATA / f"{suite}.json")["cases"]
]


@pytest.mark.parametrize(("suite", "case"), CASES)
def test_barrier_case_does_what_flink_does(suite: str, case: dict[str, Any]) -> None:
    assert barrier.replay(suite, case) == []


def test_all_cases_of_all_suites_are_there() -> None:
    counts = {suite: len(replay.load_suite(DATA / f"{suite}.json")["cases"]) for suite in barrier.SUITES}
    assert counts == {"aligner": 22, "tracker": 18, "unaligner": 29, "alternating": 12}


def run_program(*files: Path) -> subprocess.CompletedProcess[str]:
    program = Path(replay.__file__)
    return subprocess.run(
        [sys.executable, str(program), *map(str, files)], capture_output=True, text=True, check=False
    )


def test_program_prints_one_line_a_case_and_ends_with_zero_when_all_pass() -> None:
    done = run_program(DATA / "aligner.json", DATA / "tracker.json")
    lines = done.stdout.splitlines()
    assert len(lines) == 41
    assert "ok aligner/two_gates" in lines
    assert lines[-1] == "40 passed, 0 failed"
    assert done.returncode == 0


def damaged(tmp_path: Path, **change: Any) -> Path:
    suite = replay.load_suite(DATA / "aligner.json")
    suite["cases"] = [case for case in suite["cases"] if case["name"] == "two_gates"]
    suite |= change
    path = tmp_path / "suite.json"
    path.write_text(json.dumps(suite), encoding="utf-8")
    return path


def test_program_names_the_step_that_differs_and_ends_with_one(tmp_path: Path) -> None:
    suite = replay.load_suite(damaged(tmp_path))
    suite["cases"][0]["steps"][6]["expect"] = [{"unblock": [0, 1, 2]}, {"trigger": 2}]
    done = run_program(damaged(tmp_path, cases=suite["cases"]))
    assert done.returncode == 1
    assert "FAIL aligner/two_gates" in done.stdout
    assert "step 7" in done.stdout
    assert done.stdout.splitlines()[-1] == "0 passed, 1 failed"


def test_program_fails_for_a_suite_without_driver(tmp_path: Path) -> None:
    done = run_program(damaged(tmp_path, suite="weather"))
    assert done.returncode == 1
    assert "no driver replays the suite 'weather'" in done.stdout


def test_program_fails_for_a_file_that_is_no_suite(tmp_path: Path) -> None:
    path = tmp_path / "empty.json"
    path.write_text("{}", encoding="utf-8")
    assert run_program(path).returncode == 1
    assert run_program(tmp_path / "missing.json").returncode == 1
    assert run_program().returncode == 2


STEP: list[barrier.Event] = [
    {"abort": 1, "reason": "x"},
    {"unblock": [0, 2]},
    {"trigger": 2, "optional": True},
]


@pytest.mark.parametrize(
    ("observed", "same"),
    [
        ([{"unblock": [2]}, {"abort": 1, "reason": "x"}, {"unblock": [0]}, {"trigger": 2}], True),
        ([{"abort": 1, "reason": "x"}, {"unblock": [0, 2]}], True),
        ([{"abort": 1, "reason": "y"}, {"unblock": [0, 2]}], False),
        ([{"abort": 1, "reason": "x"}, {"unblock": [0, 2, 2]}], False),
        ([{"trigger": 2}, {"abort": 1, "reason": "x"}, {"unblock": [0, 2]}], False),
        ([{"abort": 1, "reason": "x"}, {"unblock": [0, 2]}, {"trigger": 2}, {"deliver": "a"}], False),
        ([{"unblock": [0, 2]}], False),
        ([], False),
    ],
)
def test_steps_are_compared_strictly(observed: list[barrier.Event], same: bool) -> None:
    assert barrier.same_events(STEP, observed) is same
