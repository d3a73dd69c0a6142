"""Legs of a walk are found in recorded stacks."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"

if str(TOOLS) not in sys.path:
    sys.path.append(str(TOOLS))

walks = importlib.import_module("walks")


def stack(*names: str) -> list[tuple[str, str, str]]:
    """Frames in files of the project, each named after its function."""
    return [(f"{TOOLS.parent}/runtime/{name.lower()}.py", "penstock.x", name) for name in names]


def record(end: str, *names: str, types: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"of": end, "types": list(types), "stack": stack(*names)}


def test_a_leg_begins_at_its_outermost_start() -> None:
    records = [record("x:End", "Loop", "Start", "Middle", "Start", "End")]
    assert walks.leg_of(records, walks.Leg("x:End", "Start")) == stack("Start", "Middle", "Start", "End")


def test_a_leg_is_told_from_others_with_the_same_end_by_a_type() -> None:
    records = [
        record("x:End", "Start", "Other", "End", types=("B",)),
        record("x:End", "Start", "End", types=("A",)),
    ]
    assert walks.leg_of(records, walks.Leg("x:End", "Start", "A")) == stack("Start", "End")


def test_a_leg_is_told_from_others_with_the_same_end_by_a_function_on_its_way() -> None:
    records = [record("x:End", "Start", "Other", "End"), record("x:End", "Start", "Middle", "End")]
    leg = walks.Leg("x:End", "Start", via="Middle")
    assert walks.leg_of(records, leg) == stack("Start", "Middle", "End")


def test_a_leg_that_no_call_passed_is_an_error_that_shows_the_calls_that_were() -> None:
    calls = r"no call of x:End came from Start; the recorded calls are .'Loop > End'.$"
    with pytest.raises(LookupError, match=calls):
        walks.leg_of([record("x:End", "Loop", "End")], walks.Leg("x:End", "Start"))


def test_each_file_counts_once_and_those_of_others_do_not() -> None:
    frames = [*stack("A", "B", "A"), ("/usr/lib/python3/asyncio/base_events.py", "asyncio", "run")]
    assert walks.files_of(frames) == ["runtime/a.py", "runtime/b.py"]
