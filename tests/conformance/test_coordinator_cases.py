"""Every case of the coordinator, its hooks and valves, and of the subtask's side of it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import replay
from drivers import coordinator, event_valve, subtask_coordinator

DATA = Path(__file__).parent / "data"
DRIVERS = replay.find_drivers()
CASES = [
    pytest.param(suite, case, id=f"{suite}-{case['name']}")
    for suite in (*coordinator.SUITES, *event_valve.SUITES, *subtask_coordinator.SUITES)
    for case in replay.load_suite(DATA / f"{suite}.json")["cases"]
]


@pytest.mark.parametrize(("suite", "case"), CASES)
def test_coordinator_case_does_what_flink_does(suite: str, case: dict[str, Any]) -> None:
    assert replay.replay_case(suite, case, DRIVERS) == []


def test_no_case_is_left_out() -> None:
    assert len(CASES) == 32 + 5 + 18 + 20


@pytest.mark.parametrize(("suite", "case"), CASES)
def test_a_case_that_expects_something_else_fails(suite: str, case: dict[str, Any]) -> None:
    """The drivers see every part of an expectation: no key of any operation can change unnoticed."""
    for index, op in enumerate(case["ops"]):
        for key, value in op["expect"].items():
            if key == "state" or "to" in op:
                continue
            other = copy.deepcopy(case)
            happens = ["e99", 7] if suite == "event_valve" else {"trigger": 99}
            other["ops"][index]["expect"][key] = different(value, happens)
            assert replay.replay_case(suite, other, DRIVERS) != [], f"op {index}: {key}"


def different(value: Any, happens: Any) -> Any:
    """Another value of the same kind; an empty list holds something that does not happen."""
    match value:
        case bool():
            return not value
        case list():
            return value[1:] or [happens]
        case _:
            return f"not {value}"
