"""Flink's facts on key groups, and its cases on operator state for a new parallelism."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import replay
from drivers import key_groups, rescaling

DATA = Path(__file__).parent / "data"
CASES = [
    pytest.param(driver, case, id=f"{suite}-{case['name']}")
    for driver, suite in ((key_groups, "key_groups"), (rescaling, "rescaling"))
    for case in replay.load_suite(DATA / f"{suite}.json")["cases"]
]


@pytest.mark.parametrize(("driver", "case"), CASES)
def test_every_fact_holds_and_every_subtask_gets_its_part(driver: Any, case: dict[str, Any]) -> None:
    assert driver.replay(case["name"], case) == []


def test_all_cases_of_both_suites_are_there() -> None:
    assert len(CASES) == 8 + 13
    assert sum(len(case.values[1].get("facts", ())) for case in CASES) == 72


def test_a_fact_that_does_not_hold_is_noticed() -> None:
    wrong = {"fact": "murmur", "code": 0, "expect": {"hash": 1}}
    refused = {"fact": "range_size", "range": [0, 3], "expect": {"error": "illegal_argument"}}
    assert len(key_groups.replay("key_groups", {"facts": [wrong, refused]})) == 2


def test_a_part_that_goes_to_another_subtask_is_noticed() -> None:
    old = [
        {"a": {"mode": "union", "offsets": [0]}},
        {"b": {"mode": "split_distribute", "offsets": [1, 2, 3]}},
    ]
    case = {"old": old, "new_parallelism": 1, "expect": {"new": [[["a", 0, 1]]]}, "compare": "split_balanced"}
    assert len(rescaling.replay("rescaling", case)) == 1


def test_every_suite_has_a_driver() -> None:
    drivers = replay.find_drivers()
    assert {replay.load_suite(path)["suite"] for path in DATA.glob("*.json")} <= drivers.keys()
